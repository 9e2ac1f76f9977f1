"""Earlier runs of links that Slurm requeued."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Adds the column, unless an upgrade that was cut short has added it already (MariaDB)."""
    if not _is_there():
        runs = sa.Column("runs", sa.Text, nullable=False, server_default="")
        op.add_column("links", runs)


def downgrade() -> None:
    """Drops it."""
    if _is_there():
        op.drop_column("links", "runs")


def _is_there() -> bool:
    columns = sa.inspect(op.get_bind()).get_columns("links")
    return "runs" in {column["name"] for column in columns}
