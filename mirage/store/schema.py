"""Brings a database to this release's schema, or says why it can't."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, column, inspect, select, table

from mirage import __version__
from mirage.errors import StoreError

NEWEST = "0001"
"""The schema of this release: the revision of the newest migration."""
VERSION_TABLE = "mirage_schema"
"""Not Alembic's usual name, so that another program's database is not taken for ours."""


def is_current(connection: Connection, where: str) -> bool:
    """False: nothing there yet, or an older schema. StoreError: a newer one, or another program's tables."""
    version = _version(connection)
    if version is not None and version > NEWEST:
        raise StoreError(
            f"Store {where}: written by a newer Mirage (schema {version}; this is Mirage {__version__} with schema"
            f" {NEWEST}). Install that release again, or restore the back-up from before the upgrade."
        )
    if version is None and (others := set(inspect(connection).get_table_names()) - {VERSION_TABLE}):
        raise StoreError(
            f"Store {where}: a database of another program (it has the table {min(others)}). Name another file or"
            " database."
        )
    return version == NEWEST


def bring_up_to_date(writer: Engine, where: str) -> None:
    """Runs the missing migrations in one transaction: all of them, or none. StoreError as `is_current`."""
    # Loading Alembic takes longer than all the rest of opening a store, and is seldom needed.
    from alembic import command

    from mirage.store import migrations

    with writer.begin() as connection:
        # Another process may have done it while this one waited for the write lock.
        if not is_current(connection, where):
            command.upgrade(migrations.config(connection), "head")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalars(select(column("version_num")).select_from(table(VERSION_TABLE))).first()
