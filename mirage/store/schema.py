"""Brings a database to this release's schema, or says why it can't."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from sqlalchemy import Connection, Engine, column, inspect, select, table

from mirage import __version__
from mirage.errors import StoreError
from mirage.store.server import migrating

NEWEST = "0001"
"""The schema of this release: the revision of the newest migration."""
VERSION_TABLE = "mirage_schema"
"""Not Alembic's usual name, so that another program's database is not taken for ours."""


def is_current(connection: Connection, where: str) -> bool:
    """False: nothing there yet, or an older schema. StoreError: a newer one, or another program's
    tables.
    """
    tables = set(inspect(connection).get_table_names())
    version = _version(connection) if VERSION_TABLE in tables else None
    if version is not None and version > NEWEST:
        raise StoreError(
            f"Store {where}: written by a newer Mirage (schema {version}; this is Mirage"
            f" {__version__} with schema {NEWEST}). Install that release again, or restore the"
            " back-up from before the upgrade."
        )
    # Tables beside an empty version table are ours: on MariaDB each table is there at once, even if
    # the next one fails.
    if tables and VERSION_TABLE not in tables:
        raise StoreError(
            f"Store {where}: a database of another program (it has the table {min(tables)}). Name"
            " another file or database."
        )
    return version == NEWEST


def bring_up_to_date(writer: Engine, where: str) -> None:
    """Runs the missing migrations: all of them, or none (SQLite, PostgreSQL). StoreError as
    `is_current`.

    On MariaDB, which has no transaction around changes of the schema, one that is cut short goes on
    at the next start.
    """
    # Loading Alembic takes longer than all the rest of opening a store, and is seldom needed.
    from alembic import command

    from mirage.store import migrations

    with _one_at_a_time(writer), writer.begin() as connection:
        # Another process may have done it while this one waited for the lock.
        if not is_current(connection, where):
            command.upgrade(migrations.config(connection), "head")


def _one_at_a_time(writer: Engine) -> AbstractContextManager[None]:
    # SQLite's transaction that is to write has the lock already.
    return nullcontext() if writer.dialect.name == "sqlite" else migrating(writer)


def _version(connection: Connection) -> str | None:
    return connection.scalars(
        select(column("version_num")).select_from(table(VERSION_TABLE))
    ).first()
