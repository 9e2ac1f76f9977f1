"""When a link of a service became ready; the up-time that its owner wants, and what a handover costs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ADDED = (
    ("links", "ready_s", sa.BigInteger),
    ("chains", "uptime", sa.Double),
    ("chains", "handover_s", sa.Integer),
)


def upgrade() -> None:
    """Adds the columns that are missing: an upgrade may have been cut short (MariaDB)."""
    for table, name, kind in _ADDED:
        if not _has(table, name):
            op.add_column(table, sa.Column(name, kind))


def downgrade() -> None:
    """Drops them."""
    for table, name, _ in _ADDED:
        if _has(table, name):
            op.drop_column(table, name)


def _has(table: str, name: str) -> bool:
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
