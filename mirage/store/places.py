"""Where a store and its lock lie, found out without SQLAlchemy: commands that ask only this are to
be fast.
"""

from __future__ import annotations

from pathlib import Path


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
    """`mirage.once` of `mirage.db`: its time is that of the last run with `--once`, as from cron."""
    return path.with_suffix(".once")
