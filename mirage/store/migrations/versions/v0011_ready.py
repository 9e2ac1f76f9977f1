"""When a link of a service became ready, whether its owner held it; the up-time that he wants, and what a
handover costs.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ADDED = (
    ("links", "ready_s"),
    ("links", "was_held"),
    ("chains", "uptime"),
    ("chains", "handover_s"),
)


def upgrade() -> None:
    """Adds the columns that are missing: an upgrade may have been cut short (MariaDB)."""
    columns: tuple[sa.Column[Any], ...] = (
        sa.Column("ready_s", sa.BigInteger),
        sa.Column("was_held", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("uptime", sa.Double),
        sa.Column("handover_s", sa.Integer),
    )
    for (table, name), column in zip(_ADDED, columns, strict=True):
        if not _has(table, name):
            op.add_column(table, column)


def downgrade() -> None:
    """Drops them."""
    for table, name in _ADDED:
        if _has(table, name):
            op.drop_column(table, name)


def _has(table: str, name: str) -> bool:
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
