"""Alembic migrations. They ship with the package and run by themselves (`store/schema.py`); there
is no alembic.ini.

To change the schema: change `tables.py`, copy the newest file of `versions/`, number it, write the
two directions, and set `schema.NEWEST`.
"""

from __future__ import annotations

from alembic.config import Config
from sqlalchemy import Connection


def config(connection: Connection) -> Config:
    """What `alembic.command`'s functions need to work on this connection, inside its transaction."""
    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", "mirage.store:migrations")
    return made
