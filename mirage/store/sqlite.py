"""SQLite, the embedded default. What holds for SQLite only is here."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event

from mirage.errors import StoreError, system_says
from mirage.store.files import is_on_network, make_private_file, make_private_folder

FOR_WRITING = {"sqlite_begin": "IMMEDIATE"}
"""Execution option. A transaction that is to write takes the write lock as it begins: one that
begins by reading fails at once, without the busy time-out, if another program wrote in between
(sqlite.org/rescode.html, BUSY_SNAPSHOT).
"""

_ADVICE = {
    "SQLITE_BUSY": "Another program keeps it locked. Nothing was written; retry later.",
    "SQLITE_CANTOPEN": "Check that this user may read and write the file and its folder.",
    "SQLITE_CONSTRAINT": "Nothing was written.",
    "SQLITE_CONSTRAINT_FOREIGNKEY": (
        "A link needs its chain, an intent its decision. Nothing was written."
    ),
    "SQLITE_CORRUPT": "The file is damaged: stop Mirage, move it away, and restore a back-up.",
    "SQLITE_FULL": "Make room on that disk. Nothing was written; retry then.",
    "SQLITE_IOERR": "The disk failed; see the kernel's log.",
    "SQLITE_NOTADB": "Name another file, or restore a back-up of the store.",
    "SQLITE_READONLY": "It was opened, or may be opened, for reading only. Nothing was written.",
    "SQLITE_READONLY_ROLLBACK": (
        "A crash left a write half done; the daemon or agent undoes it when it starts."
    ),
}


def file_of(url: URL) -> Path | None:
    """The database file, absolute; None: in memory."""
    return None if url.database in (None, "", ":memory:") else Path(str(url.database)).absolute()


def memory_engine() -> Engine:
    """A database that is gone with the engine. Its one connection is lent to one thread at a time."""
    return _engine(lambda: _connect(":memory:", 0.0), pool_size=1, max_overflow=0)


def file_engine(path: Path, *, create: bool, readonly: bool, busy_timeout_s: float) -> Engine:
    """A database file, made (0600) with its folder (0700) if told. StoreError if it is not there or
    can't be made.
    """
    try:
        if create and not readonly:
            make_private_folder(path.parent)
            make_private_file(path)
        path.stat()
        if readonly:
            return _engine(lambda: _connect(f"{path.as_uri()}?mode=ro", busy_timeout_s))
        journal = "DELETE" if is_on_network(path.parent) else "WAL"
    except FileNotFoundError as error:
        raise StoreError(
            f"Store {path}: not there (yet). The daemon or agent creates it when it starts."
        ) from error
    except OSError as error:
        raise StoreError(
            f"Store {path}: {system_says(error, path)}. Name another file, or permit it."
        ) from error
    return _engine(lambda: _connect(f"{path.as_uri()}?mode=rw", busy_timeout_s, journal))


def explain(error: BaseException) -> str:
    """What SQLite said, and what to do about it."""
    name = getattr(error, "sqlite_errorname", "")
    known = [prefix for prefix in _ADVICE if name.startswith(prefix)]
    return f"{error}. {_ADVICE[max(known, key=len)]}" if known else str(error)


def _engine(connect: Callable[[], sqlite3.Connection], **pool: int) -> Engine:
    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **pool)
    event.listen(engine, "begin", _begin)
    return engine


def _connect(target: str, busy_timeout_s: float, journal: str | None = None) -> sqlite3.Connection:
    # Without isolation_level=None Python begins transactions itself, later than we need and never
    # around reads or DDL.
    connection = sqlite3.connect(
        target, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys=ON")
    # In WAL mode NORMAL may lose the last commits when power fails. An intent must not be lost.
    connection.execute("PRAGMA synchronous=FULL")
    if journal:
        # WAL: readers and the writer don't wait for each other. Its index is shared memory, which
        # other hosts don't see (sqlite.org/wal.html), so on a network file system the older way,
        # which locks the file.
        _set_journal(connection, journal, busy_timeout_s)
    return connection


def _set_journal(connection: sqlite3.Connection, journal: str, busy_timeout_s: float) -> None:
    # As long as another connection holds the write lock of a new file, this fails at once: the busy
    # time-out does not count where two who wait for one another could block
    # (sqlite.org/c3ref/busy_handler.html).
    until = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={journal}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(
        f"BEGIN {connection.get_execution_options().get('sqlite_begin', 'DEFERRED')}"
    )
