"""What a training script needs to be a link of a chain. Standard library only: copy it beside your
script.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StopAsked:
    """True once the signal came. Ask it between two steps, where a checkpoint is whole."""

    def __init__(self, number: int = signal.SIGUSR1) -> None:
        self._came = False
        signal.signal(number, lambda _number, _frame: setattr(self, "_came", True))

    def __bool__(self) -> bool:
        return self._came


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Waits until no other process writes to ``folder``. However a process dies, the kernel lets
    its lock go.

    Mirage starts a link's work when its predecessor is gone; this is the belt to those braces.
    `writers.log` keeps who wrote when.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "writer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note(folder, "begin")
        yield
        note(folder, "end")


def note(folder: Path, what: str) -> None:
    """A line of `writers.log`: Unix seconds, what, link, job."""
    link, job = os.environ.get("MIRAGE_SEGMENT", "-"), os.environ.get("SLURM_JOB_ID", "-")
    with (folder / "writers.log").open("a") as log:
        log.write(f"{time.time():.6f} {what} {link} {job}\n")


def save(path: Path, payload: bytes) -> None:
    """Whole or not at all: written beside, flushed to the disk, renamed. Its SHA-256 stands in
    front.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(hashlib.sha256(payload).digest() + payload)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    note(path.parent, "save")


def load(path: Path) -> bytes | None:
    """What `save` wrote; None: nothing yet. ValueError: these are not the bytes that were saved."""
    if not path.exists():
        return None
    content = path.read_bytes()
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        raise ValueError(
            f"{path} is damaged: put an older checkpoint in its place, or remove it to begin anew"
        )
    return content[32:]


def work_goes_on() -> None:
    """The program has started and goes on: until now Mirage measures what a handover costs."""
    if marker := os.environ.get("MIRAGE_READY_FILE"):
        Path(marker).touch()


def work_is_done() -> None:
    """Ends the chain: the queued links go away once this one exits with 0."""
    if marker := os.environ.get("MIRAGE_DONE_FILE"):
        Path(marker).touch()
