"""Chains, links, decisions, intents, steps."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# A retry after a failure finds what was made before it, where the database has no transaction
# around this (MariaDB).
AT_MOST_ONCE: dict[str, Any] = {
    "if_not_exists": True,
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From nothing."""
    _create_chains()
    _create_links()
    _create_decisions()
    _create_intents()
    _create_steps()


def downgrade() -> None:
    """To nothing."""
    for table in ("steps", "intents", "decisions", "links", "chains"):
        op.drop_table(table, if_exists=True)


def _create_chains() -> None:
    op.create_table(
        "chains",
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("segments", sa.Integer, nullable=False),
        sa.Column("mode", sa.String(32), nullable=False),
        sa.Column("penalty_interruption", sa.Double, nullable=False),
        sa.Column("penalty_overlap", sa.Double, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("updated_s", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(80), nullable=False, server_default=""),
        sa.Column("length", sa.String(16), nullable=False, server_default=""),
        sa.Column("uptime", sa.Double),
        sa.Column("handover_s", sa.Integer),
        sa.Column("service", sa.String(64)),
        sa.Column("replica", sa.Integer),
        sa.PrimaryKeyConstraint("user", "chain_id", name="pk_chains"),
        **AT_MOST_ONCE,
    )
    op.create_index("ix_chains_state", "chains", ["state"], if_not_exists=True)
    op.create_index("ix_chains_updated_s", "chains", ["updated_s"], if_not_exists=True)


def _create_links() -> None:
    op.create_table(
        "links",
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("job_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("segment", sa.Integer, nullable=False),
        sa.Column("predecessor_id", sa.BigInteger),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("time_limit_s", sa.BigInteger),
        sa.Column("submit_s", sa.BigInteger, nullable=False),
        sa.Column("eligible_s", sa.BigInteger),
        sa.Column("start_s", sa.BigInteger),
        sa.Column("end_s", sa.BigInteger),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("released_s", sa.BigInteger),
        sa.Column("lead_s", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("dependency", sa.Text, nullable=False, server_default=""),
        sa.Column("begin_s", sa.BigInteger),
        sa.Column("runs", sa.Text, nullable=False, server_default=""),
        sa.Column("ready_s", sa.BigInteger),
        sa.Column("down_s", sa.Integer, nullable=False, server_default="0"),
        sa.Column("was_held", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("user", "chain_id", "job_id", name="pk_links"),
        sa.ForeignKeyConstraint(
            ["user", "chain_id"], ["chains.user", "chains.chain_id"], name="fk_links_chains"
        ),
        **AT_MOST_ONCE,
    )
    op.create_index("ix_links_job_id", "links", ["job_id"], if_not_exists=True)


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("decision_id", ROW_ID, nullable=False),
        sa.Column("at_s", sa.BigInteger, nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("predecessor_id", sa.BigInteger, nullable=False),
        sa.Column("successor_id", sa.BigInteger, nullable=False),
        sa.Column("policy", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("inputs_hash", sa.String(64), nullable=False),
        sa.Column("remaining_s", sa.BigInteger),
        sa.Column("wait_p10_s", sa.Double),
        sa.Column("wait_p50_s", sa.Double),
        sa.Column("wait_p90_s", sa.Double),
        sa.Column("expected_interruption_s", sa.Double),
        sa.Column("expected_overlap_s", sa.Double),
        sa.Column("gain", sa.Double),
        sa.PrimaryKeyConstraint("decision_id", name="pk_decisions"),
        **AT_MOST_ONCE,
    )
    op.create_index(
        "ix_decisions_successor_id_at_s", "decisions", ["successor_id", "at_s"], if_not_exists=True
    )
    op.create_index("ix_decisions_at_s", "decisions", ["at_s"], if_not_exists=True)


def _create_intents() -> None:
    op.create_table(
        "intents",
        sa.Column("intent_id", ROW_ID, nullable=False),
        sa.Column("decision_id", ROW_ID, nullable=False),
        sa.Column("created_s", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.String(32)),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("finished_s", sa.BigInteger),
        sa.PrimaryKeyConstraint("intent_id", name="pk_intents"),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.decision_id"], name="fk_intents_decisions"
        ),
        sa.UniqueConstraint("decision_id", name="uq_intents_decision_id"),
        **AT_MOST_ONCE,
    )
    op.create_index("ix_intents_finished_s", "intents", ["finished_s"], if_not_exists=True)


def _create_steps() -> None:
    op.create_table(
        "steps",
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("at_s", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("payload", sa.LargeBinary(2**24 - 1), nullable=False),
        sa.PrimaryKeyConstraint("pool", "at_s", name="pk_steps"),
        **AT_MOST_ONCE,
    )
    op.create_index("ix_steps_at_s", "steps", ["at_s"], if_not_exists=True)
