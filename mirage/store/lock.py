"""One daemon a store: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirage.errors import StoreError, StoreInUse
from mirage.store.files import make_private_folder


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock file; makes it (0600), and its folder (0700). It stays there afterwards,
    unlocked.

    StoreError, at once, if another process holds it (it says which), or if the file system has no
    locks.
    """
    try:
        make_private_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"Lock {path}: {error.strerror}. Set daemon.store to a place that this user may write to."
        ) from error
    try:
        _lock(descriptor, path)
        yield
    finally:
        # The file stays: were it removed, two processes could each hold a lock, one on the old
        # file, one on a new one.
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock. False where that is not known."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(descriptor, 0)
        os.write(descriptor, f"pid {os.getpid()} on {os.uname().nodename}\n".encode())
    except BlockingIOError as error:
        holder = (
            os.pread(descriptor, 300, 0).decode(errors="replace").strip() or "pid not written yet"
        )
        raise StoreInUse(
            f"Lock {path}: another daemon or agent runs on this store ({holder}). Stop that one"
            " first, or give this one a store of its own."
        ) from error
    except OSError as error:
        raise StoreError(
            f"Lock {path}: {error.strerror}. Put the state folder on a disk that knows flock(2)."
        ) from error
