"""Opening what users name."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 16 << 20
"""Of a file that people write: a configuration, a cluster."""
WRITER_S, SILENCE_S = 2.0, 60.0
"""How long a pipe may have no writer, and one with a writer may say nothing."""


def read_text(path: Path, most_bytes: int = MOST_BYTES, errors: str = "strict") -> str:
    """A text file in UTF-8, as `read_bytes`. Raises UnicodeDecodeError, too."""
    return read_bytes(path, most_bytes).decode("utf-8", errors)


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """A file or a pipe, at most so many bytes; it neither hangs nor fills the memory.

    Raises OSError, also for a device (`/dev/zero` never ends) but `/dev/null`, for a pipe that
    nobody writes to, and for more than `most_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_pipe = _checked(descriptor, path)
        parts: list[bytes] = []
        size = 0
        while part := _part(descriptor, path, is_first=not parts, is_pipe=is_pipe):
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise OSError(
                    errno.EFBIG,
                    f"more than {most_bytes >> 10:,} KiB, too large for what it is",
                    str(path),
                )
        return b"".join(parts)
    finally:
        os.close(descriptor)


def open_bytes(path: Path) -> BinaryIO:
    """A file of any size, or a pipe, to read from. Raises OSError as `read_bytes`; a writer's
    silence is waited out.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_pipe = _checked(descriptor, path)
        first = _part(descriptor, path, is_first=True, is_pipe=True) if is_pipe else b""
        os.set_blocking(descriptor, True)
        return BufferedReader(_Ahead(descriptor, first))
    except BaseException:
        os.close(descriptor)
        raise


class _Ahead(FileIO):
    """A file of which the first bytes are read already."""

    def __init__(self, descriptor: int, first: bytes) -> None:
        super().__init__(descriptor, "rb")
        self._first = first

    def readinto(self, buffer: Any) -> int:
        if not self._first:
            return super().readinto(buffer) or 0
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._first))
        view[:count], self._first = self._first[:count], self._first[count:]
        return count

    def readall(self) -> bytes:
        first, self._first = self._first, b""
        return first + (super().readall() or b"")


def _checked(descriptor: int, path: Path) -> bool:
    """Whether it is a pipe. Raises OSError for what is neither a file nor a pipe."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and str(path) != os.devnull:
        raise OSError(errno.ENODEV, "a device, not a file", str(path))
    return stat.S_ISFIFO(mode)


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
                raise OSError(errno.EPIPE, "a pipe that nobody writes to", str(path))
            time.sleep(0.02)
        except BlockingIOError:
            if waited_s > SILENCE_S:
                raise OSError(
                    errno.ETIMEDOUT, "a pipe whose writer says nothing", str(path)
                ) from None
            select.select([descriptor], [], [], 1.0)
