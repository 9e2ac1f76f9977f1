"""What the jobs of a chain are called, so that people need not know a chain by its id alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Adds the column, unless an upgrade that was cut short has added it already (MariaDB)."""
    if not _is_there():
        name = sa.Column("name", sa.String(80), nullable=False, server_default="")
        op.add_column("chains", name)


def downgrade() -> None:
    """Drops it."""
    if _is_there():
        op.drop_column("chains", "name")


def _is_there() -> bool:
    columns = sa.inspect(op.get_bind()).get_columns("chains")
    return "name" in {column["name"] for column in columns}
