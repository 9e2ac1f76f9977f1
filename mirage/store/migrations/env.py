"""Alembic loads this file to run a migration."""

from __future__ import annotations

from alembic import context

from mirage.store.schema import VERSION_TABLE
from mirage.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
