"""Reading what users name, and writing files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time
from collections.abc import Iterator
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
    """A file or a pipe, at most `most_bytes` long; it neither hangs nor fills the memory.

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


# --- writing


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """An empty file beside ``path``, which takes its place if all goes well and is gone otherwise.

    ``mode``: its rights; None: those of any new file of this user. Raises OSError, with ``path`` as
    the file's name.
    """
    fresh = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        yield fresh
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(fresh)):
            error.filename = str(path)  # for the message: not a name that is gone
        raise


def write_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Writes a file, in place of one that is there; text as UTF-8. Raises OSError as `replacing`."""
    with replacing(path, mode) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """An empty folder, of which the files move to ``folder`` if all goes well, in the order of
    their names.

    Otherwise nothing stays, not even ``folder`` if it was not there before. Other files in it stay.
    Raises OSError.
    """
    made: list[Path] = []
    fresh = folder / f".new-{os.urandom(4).hex()}"
    try:
        made += [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        yield fresh
        files = sorted(fresh.iterdir())
        for path in (folder / file.name for file in files):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        for file in files:
            file.replace(folder / file.name)
        fresh.rmdir()
    except BaseException as error:
        import shutil  # takes longer to import than a short-lived command may

        shutil.rmtree(fresh, ignore_errors=True)
        if isinstance(error, OSError) and Path(error.filename or "").parent != folder:
            error.filename = str(folder)  # for the message: not a name that is gone
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise
