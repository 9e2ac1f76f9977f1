"""SIGHUP: the service reads everything again by starting itself again, in the same process, if all
that is good.

So there is one way to start and no half-changed service, and an upgraded program is taken up as
well.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from typing import NoReturn

log = logging.getLogger(__name__)

CHECK_S = 60


def is_good() -> bool:
    """Whether the same command line with `--check` succeeds; if not, the log says why."""
    try:
        done = subprocess.run(
            [*_command(), "--check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.error("not reloaded, all stays as it was: the check failed: %s", error)
        return False
    if done.returncode:
        log.error("not reloaded, all stays as it was: %s", done.stderr.strip())
    return done.returncode == 0


def begin() -> NoReturn:
    """Replaces this process by a new start of the same command line. Everything that it holds must
    be closed.
    """
    # The new start has its own handler only later, and the default one would end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execv(sys.executable, _command())  # noqa: S606  its own command line


def _command() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]
