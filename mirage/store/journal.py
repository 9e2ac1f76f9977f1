"""An append-only file of JSON lines that is rotated by size and age. Only its owner can read it.

One process writes (it holds the store's lock), any number read. A line is there in whole or not at
all: what a full disk cut off is taken back, and what even that left is skipped by readers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mirage.errors import AuditError, system_says
from mirage.store.files import make_private_folder
from slurm_sim.formats import parse_json

Json = dict[str, Any]

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, kw_only=True)
class Journal:
    """`file.jsonl`, and beside it `file.000001.jsonl` and so on for those that were put away,
    oldest first.
    """

    path: Path
    max_bytes: int
    max_age_s: int
    """Of the first record, by its key `at` (Unix seconds)."""
    keep: int
    """So many files that were put away."""

    def append(self, records: Sequence[Json]) -> None:
        """Writes all of them, durably, or none. Raises AuditError."""
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
        if not text:
            return
        try:
            make_private_folder(self.path.parent)
            self._rotate(int(records[0]["at"]))
            append_durably(self.path, text.encode())
        except OSError as error:
            raise AuditError(
                f"Audit log {self.path}: {error.strerror or error}. Make room, or name another"
                " audit.file."
            ) from error

    def _rotate(self, now_s: int) -> None:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if size and (
            size >= self.max_bytes or now_s - _first_s(self.path, now_s) >= self.max_age_s
        ):
            self.path.rename(_next_name(self.path))
            _sync_folder(self.path.parent)
            for old in _put_away(self.path)[: -self.keep]:
                old.unlink()


def read_journal(path: Path, since_s: int = 0) -> Iterator[Json | None]:
    """All records, oldest first; None for a line that is no record. Raises AuditError if a file
    can't be read.

    Files that were last written before ``since_s`` are left out.
    """
    with contextlib.ExitStack() as stack:
        try:
            for lines in _opened(path, stack):
                if os.fstat(lines.fileno()).st_mtime >= since_s:
                    yield from map(_record, lines)
        except PermissionError as error:
            raise AuditError(
                f"Audit log {system_says(error, path)}. Ask as its owner or root, or name another"
                " one with --audit."
            ) from error
        except OSError as error:
            raise AuditError(f"Audit log {system_says(error, path)}; it can't be read.") from error


def _opened(path: Path, stack: contextlib.ExitStack) -> Sequence[BinaryIO]:
    """All files, oldest first. The one that is written to is opened first: it may be put away
    meanwhile.
    """
    last, files = [], list[BinaryIO]()
    with contextlib.suppress(FileNotFoundError):  # put away this moment, or none yet
        last.append(stack.enter_context(path.open("rb")))
    for name in _put_away(path):
        with contextlib.suppress(FileNotFoundError):  # beyond `keep` by now
            files.append(stack.enter_context(name.open("rb")))
    files += [
        it
        for it in last
        if not any(os.path.sameopenfile(it.fileno(), file.fileno()) for file in files)
    ]
    if not files:
        raise AuditError(
            f"Audit log {path}: no such file. The daemon or agent writes it; name another one with"
            " --audit."
        )
    return files


def _record(line: bytes) -> Json | None:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("at"), int) else None


def append_durably(path: Path, text: bytes) -> None:
    """Appends to a file (0600): all is on the disk, or nothing is written. Raises OSError."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text  # a line that was cut off, and could not be taken back
        try:
            written = os.write(descriptor, text)
            if written != len(text):
                raise OSError(28, "only a part could be written (disk full?)")
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        if not size:
            _sync_folder(path.parent)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """So that a new name is there after a power failure too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_s(path: Path, default_s: int) -> int:
    with path.open("rb") as lines:
        record = _record(lines.readline())
    return int(record["at"]) if record else default_s


def _next_name(path: Path) -> Path:
    """Numbered, not dated: a clock may jump."""
    last = _put_away(path)[-1:]
    number = int(last[0].suffixes[-2][1:]) + 1 if last else 1
    return path.with_suffix(f".{number:06}{path.suffix}")


def _put_away(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.{'[0-9]' * 6}{path.suffix}"))
