"""Opening what users name. As `slurm_sim.files`, whose package takes a tenth of a second to import."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

MOST_BYTES = 4 << 20
"""Of a file that people write: a configuration, a script."""
WRITER_S, SILENCE_S = 2.0, 60.0
"""How long a pipe may have no writer, and one with a writer may say nothing."""


def read_text(path: Path, most_bytes: int = MOST_BYTES, errors: str = "strict") -> str:
    """A text file in UTF-8, as `read_bytes`. Raises UnicodeDecodeError, too."""
    return read_bytes(path, most_bytes).decode("utf-8", errors)


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """A file or a pipe, at most so many bytes; it neither hangs nor fills the memory.

    Raises OSError, also for a device (`/dev/zero` never ends) but `/dev/null`, for a pipe that nobody writes to, and
    for more than `most_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and str(path) != os.devnull:
            raise OSError(errno.ENODEV, "A device, not a file", str(path))
        parts: list[bytes] = []
        size = 0
        while part := _part(descriptor, path, is_first=not parts, is_pipe=stat.S_ISFIFO(mode)):
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise OSError(errno.EFBIG, f"More than {most_bytes >> 10:,} KiB, too large for what it is", str(path))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _part(descriptor: int, path: Path, *, is_first: bool, is_pipe: bool) -> bytes:
    """The next bytes; none at the end."""
    begin = time.monotonic()
    while True:
        waited_s = time.monotonic() - begin
        try:
            part = os.read(descriptor, 1 << 16)
            if part or not is_pipe or not is_first:
                return part
            if waited_s > WRITER_S:
                raise OSError(errno.EPIPE, "A pipe that nobody writes to", str(path))
            time.sleep(0.02)
        except BlockingIOError:
            if waited_s > SILENCE_S:
                raise OSError(errno.ETIMEDOUT, "A pipe whose writer says nothing", str(path)) from None
            select.select([descriptor], [], [], 1.0)
