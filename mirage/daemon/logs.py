"""Where the service's log goes: to the journal with a priority on each line, elsewhere with a time
in front.

systemd reads a priority from `<N>` at a line's beginning (sd-daemon(3)), and sets `JOURNAL_STREAM`
to the device and inode of the stream that it reads (systemd.exec(5)); a child whose error stream
goes elsewhere still has the variable.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


class JournalFormatter(logging.Formatter):
    """Each line of a message with its syslog priority: the journal keeps lines apart. It knows time
    and process.
    """

    def __init__(self) -> None:
        super().__init__("%(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{priority(record.levelno)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def priority(level: int) -> int:
    """The syslog priority (syslog(3)) of one of logging's levels."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def goes_to_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether systemd's journal reads this very stream."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file, or closed
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def as_error(words: str, stream: TextIO, environ: Mapping[str, str]) -> str:
    """What a program prints as its last words: each line an error for the journal, where that reads
    the stream.
    """
    mark = f"<{priority(logging.ERROR)}>" if goes_to_journal(stream, environ) else ""
    return "\n".join(mark + line for line in words.splitlines())


def handler_for(stream: TextIO, environ: Mapping[str, str]) -> logging.StreamHandler[TextIO]:
    handler = logging.StreamHandler(stream)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JournalFormatter() if goes_to_journal(stream, environ) else plain)
    return handler


def set_up(level: str) -> logging.StreamHandler[TextIO]:
    """Sends the log of ``level`` (of `LEVELS`) and above to the error stream, for the whole
    process.
    """
    handler = handler_for(sys.stderr, os.environ)
    logging.basicConfig(level=LEVELS[level], handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # A connection that breaks as it is given back is a traceback to it; the store says in a line
    # what is away.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    return handler


def set_up_for_cron(level: str) -> Callable[[], object]:
    """As `set_up`. But what is logged is held back until what this returns is called, unless people
    read it or ask for details: cron sends a mail of what a program prints.
    """
    handler = set_up(level)
    if sys.stderr.isatty() or level == "debug":
        return str
    held_back = io.StringIO()
    handler.setStream(held_back)
    return lambda: sys.stderr.write(held_back.getvalue())
