"""How long before its time limit a link's own signal comes: what a handover cost is measured from
there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the column, unless an upgrade that was cut short has added it already (MariaDB)."""
    if not _is_there():
        op.add_column("links", sa.Column("lead_s", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drops it."""
    if _is_there():
        op.drop_column("links", "lead_s")


def _is_there() -> bool:
    return "lead_s" in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("links")}
