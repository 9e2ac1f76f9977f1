"""Earlier runs of links that Slurm requeued; what a chain's links may use in all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Adds the columns that are missing: an upgrade may have been cut short (MariaDB)."""
    if not _has("links", "runs"):
        op.add_column("links", sa.Column("runs", sa.Text, nullable=False, server_default=""))
    if not _has("chains", "length"):
        length = sa.Column("length", sa.String(16), nullable=False, server_default="")
        op.add_column("chains", length)


def downgrade() -> None:
    """Drops them."""
    for table, name in (("links", "runs"), ("chains", "length")):
        if _has(table, name):
            op.drop_column(table, name)


def _has(table: str, name: str) -> bool:
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
