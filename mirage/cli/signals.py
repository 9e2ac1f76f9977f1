"""Signals that end a command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends what is inside as Ctrl-C does, so that it can save and clean up.

    `kill`, `systemctl stop` and `scancel` send it. A command that a shell starts in the background
    ignores Ctrl-C's signal.
    """

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
