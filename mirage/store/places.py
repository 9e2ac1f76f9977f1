"""Where a store and its lock lie, found out without SQLAlchemy: commands that ask only this are to
be fast.
"""

from __future__ import annotations

import time
from pathlib import Path

from slurm_sim.files import write_whole


def file_in(url: str) -> Path | None:
    """The file of an SQLite store's URL, absolute; None: it is in memory, or on a server."""
    scheme, separator, path = url.partition(":///")
    return (
        Path(path).absolute()
        if scheme == "sqlite" and separator and path not in ("", ":memory:")
        else None
    )


def lock_file(path: Path) -> Path:
    """`mirage.lock` of `mirage.db`."""
    return path.with_suffix(".lock")


def once_file(path: Path) -> Path:
    """`mirage.once` of `mirage.db`: its time is that of the last run with `--once`, as from cron;
    it holds the seconds since the run before.
    """
    return path.with_suffix(".once")


def note_look(file: Path) -> None:
    """Writes down that a run with `--once` has just looked."""
    last = last_look(file)
    every_s = 0 if last is None else max(0, int(time.time() - last[0]))
    write_whole(file, f"{every_s}\n".encode(), 0o600)


def last_look(file: Path) -> tuple[float, int] | None:
    """When the last run with `--once` looked (Unix seconds), and how long after the run before
    (seconds; 0: not known). None: there was none.
    """
    try:
        text, at_s = file.read_text(errors="replace").strip(), file.stat().st_mtime
    except OSError:
        return None
    return at_s, int(text) if text.isascii() and text.isdecimal() else 0
