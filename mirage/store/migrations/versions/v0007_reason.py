"""Why Slurm keeps a link waiting, so that what is said of it holds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0004"

COLUMNS = ("reason", "dependency")


def upgrade() -> None:
    """Adds the columns, unless an upgrade that was cut short has added them already (MariaDB)."""
    for name in COLUMNS:
        if name not in _there():
            op.add_column("links", sa.Column(name, sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Drops them."""
    for name in COLUMNS:
        if name in _there():
            op.drop_column("links", name)


def _there() -> set[str]:
    return {column["name"] for column in sa.inspect(op.get_bind()).get_columns("links")}
