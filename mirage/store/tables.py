"""The tables. Columns are named after the fields of the records in `domain.py` that they hold.

Portable types only, with lengths, so that the same schema works on SQLite, PostgreSQL and MariaDB.
Points in time are Unix seconds in 64 bits. A change here needs a new file in `migrations/versions`;
a test compares the two.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    false,
)
from sqlalchemy import Enum as EnumOf
from sqlalchemy.dialects.mysql import MEDIUMBLOB
from sqlalchemy.engine import Dialect

from mirage.domain import MAX_NAME, Action, ChainState, JobState, Mode, ReleaseOutcome, Run
from mirage.store.runs_column import read_runs, write_runs

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

MAX_PAYLOAD = 2**24 - 1
"""Bytes of one step: a MEDIUMBLOB of MariaDB, where a plain BLOB ends at 64 KiB."""

MARIADB: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
"""Of each table: transactions, all of Unicode, and names that differ in case or in a final space
are different.
"""

# Names of users come from directories (`user@realm`), so they may be longer than Linux's 32
# characters.
_User = String(255)
_ChainId = String(64)
# SQLite numbers rows by itself only in a column of the very type INTEGER, which has 64 bits there.
_RowId = BigInteger().with_variant(Integer(), "sqlite")


def _words(enum: type[Enum]) -> EnumOf:
    """Kept as the member's value, in a plain string column: a new member needs no migration."""
    return EnumOf(
        enum, native_enum=False, length=32, values_callable=lambda e: [member.value for member in e]
    )


class _Runs(TypeDecorator[tuple[Run, ...]]):
    impl = Text
    cache_ok = True

    def process_bind_param(
        self,
        value: tuple[Run, ...] | None,
        dialect: Dialect,  # noqa: ARG002 - the same signature
    ) -> str:
        return write_runs(value or ())

    def process_result_value(
        self,
        value: str | None,
        dialect: Dialect,  # noqa: ARG002 - the same signature
    ) -> tuple[Run, ...]:
        return read_runs(value or "")


chains = Table(
    "chains",
    metadata,
    Column("user", _User, primary_key=True),
    Column("chain_id", _ChainId, primary_key=True),
    Column("segments", Integer, nullable=False),
    Column("length", String(16), nullable=False, server_default=""),
    Column("mode", _words(Mode), nullable=False),
    Column("penalty_interruption", Double, nullable=False),
    Column("penalty_overlap", Double, nullable=False),
    Column("state", _words(ChainState), nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("created_s", BigInteger, nullable=False),
    Column("updated_s", BigInteger, nullable=False, index=True),
    Column("name", String(MAX_NAME), nullable=False, server_default=""),
    Column("uptime", Double),
    Column("handover_s", Integer),
    Column("service", String(64)),
    Column("replica", Integer),
    **MARIADB,
)

links = Table(
    "links",
    metadata,
    Column("user", _User, primary_key=True),
    Column("chain_id", _ChainId, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("segment", Integer, nullable=False),
    Column("predecessor_id", BigInteger),
    Column("state", _words(JobState), nullable=False),
    Column("partition", Text, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("time_limit_s", BigInteger),
    Column("submit_s", BigInteger, nullable=False),
    Column("eligible_s", BigInteger),
    Column("start_s", BigInteger),
    Column("end_s", BigInteger),
    Column("ready_s", BigInteger),
    Column("down_s", Integer, nullable=False, server_default="0"),
    Column("exit_code", Integer, nullable=False),
    Column("released_s", BigInteger),
    Column("lead_s", Integer, nullable=False, server_default="0"),
    Column("reason", Text, nullable=False, server_default=""),
    Column("dependency", Text, nullable=False, server_default=""),
    Column("begin_s", BigInteger),
    Column("was_held", Boolean, nullable=False, server_default=false()),
    Column("runs", _Runs, nullable=False, server_default=""),
    ForeignKeyConstraint(["user", "chain_id"], ["chains.user", "chains.chain_id"]),
    **MARIADB,
)

# No foreign key to chains: a decision is a record for later, which must not be refused.
decisions = Table(
    "decisions",
    metadata,
    Column("decision_id", _RowId, primary_key=True),
    Column("at_s", BigInteger, nullable=False, index=True),
    Column("chain_id", _ChainId, nullable=False),
    Column("user", _User, nullable=False),
    Column("predecessor_id", BigInteger, nullable=False),
    Column("successor_id", BigInteger, nullable=False),
    Column("policy", String(64), nullable=False),
    Column("action", _words(Action), nullable=False),
    Column("reason", Text, nullable=False),
    Column("inputs_hash", String(64), nullable=False),
    Column("remaining_s", BigInteger),
    Column("wait_p10_s", Double),
    Column("wait_p50_s", Double),
    Column("wait_p90_s", Double),
    Column("expected_interruption_s", Double),
    Column("expected_overlap_s", Double),
    Column("gain", Double),
    Index(None, "successor_id", "at_s"),
    **MARIADB,
)

intents = Table(
    "intents",
    metadata,
    Column("intent_id", _RowId, primary_key=True),
    Column("decision_id", ForeignKey("decisions.decision_id"), nullable=False, unique=True),
    Column("created_s", BigInteger, nullable=False),
    Column("outcome", _words(ReleaseOutcome)),
    Column("detail", Text, nullable=False),
    # Indexed because the open ones, looked for at every start, are those with NULL here.
    Column("finished_s", BigInteger, index=True),
    **MARIADB,
)

steps = Table(
    "steps",
    metadata,
    Column("pool", String(255), primary_key=True),
    Column("at_s", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column(
        "payload", LargeBinary(MAX_PAYLOAD).with_variant(MEDIUMBLOB(), "mariadb"), nullable=False
    ),
    **MARIADB,
)
