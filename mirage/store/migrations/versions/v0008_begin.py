"""The begin time that a waiting link's owner gave it, so that nobody is told that Slurm starts it sooner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Adds the column, unless an upgrade that was cut short has added it already (MariaDB)."""
    if not _is_there():
        op.add_column("links", sa.Column("begin_s", sa.BigInteger))


def downgrade() -> None:
    """Drops it."""
    if _is_there():
        op.drop_column("links", "begin_s")


def _is_there() -> bool:
    columns = sa.inspect(op.get_bind()).get_columns("links")
    return "begin_s" in {column["name"] for column in columns}
