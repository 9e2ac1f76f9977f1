"""Indexes by age, for the retention: what is too old is found without reading the rest."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds them."""
    op.create_index("ix_decisions_at_s", "decisions", ["at_s"], if_not_exists=True)
    op.create_index("ix_chains_updated_s", "chains", ["updated_s"], if_not_exists=True)


def downgrade() -> None:
    """Drops them."""
    op.drop_index("ix_chains_updated_s", "chains", if_exists=True)
    op.drop_index("ix_decisions_at_s", "decisions", if_exists=True)
