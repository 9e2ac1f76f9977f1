"""What models said of each pair: those that decide by the mean of the last hours must not forget it
at a restart.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the column, unless an upgrade that was cut short has added it already (MariaDB)."""
    if not _is_there():
        op.add_column("decisions", sa.Column("gain", sa.Double))


def downgrade() -> None:
    """Drops it."""
    if _is_there():
        op.drop_column("decisions", "gain")


def _is_there() -> bool:
    return "gain" in {
        column["name"] for column in sa.inspect(op.get_bind()).get_columns("decisions")
    }
