"""An agent's SQLite file, read without SQLAlchemy, which takes longer to load than all that `mirage
status` does.

It reads what `tables.py` describes: columns have the names of the records' fields, words are the
enums' values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from mirage.domain import Chain, Decision, Intent, Link, Penalties, ReleaseOutcome, Run
from mirage.errors import StoreError
from mirage.store.memory import MemoryStore
from mirage.store.runs_column import read_runs

BUSY_S = 5.0
"""How long to wait for the agent that writes."""


def _kinds(record: type) -> Mapping[str, Any]:
    """The record's fields and their types."""
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


_CHAIN = {name: kind for name, kind in _kinds(Chain).items() if name != "penalties"}
_LINK, _DECISION = _kinds(Link), _kinds(Decision)


def read_chains(file: Path, job_id: int | None = None) -> MemoryStore:
    """All chains and links; decisions and releases of links that are not over, and of ``job_id``.

    Raises StoreError: the file is no store that this Mirage can read.
    """
    store = MemoryStore()
    with _opened(file) as connection:
        for chain in _chains(connection):
            store.save_chain(chain)
        for row in connection.execute(_select(_LINK, "links")):
            link = Link(**_values(_LINK, row))
            store.save_link(link)
            if not link.is_over or link.job_id == job_id:
                _put_decisions(connection, store, link.job_id)
    return store


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        ) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")  # all of it as it was at one moment
            yield connection
    except sqlite3.OperationalError as error:
        if "no such table: chains" in str(error):
            raise StoreError(
                f"Store {file}: empty as yet: the agent has not finished its start."
            ) from error
        raise _unreadable(file, error) from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> StoreError:
    return StoreError(
        f"Store {file}: can't be read: {error}. If it is of another release of Mirage, restart"
        " the agent with this one."
    )


def _chains(connection: sqlite3.Connection) -> Iterator[Chain]:
    columns = [*_CHAIN, "penalty_interruption", "penalty_overlap"]
    for row in connection.execute(_select(columns, "chains")):
        yield Chain(
            **_values(_CHAIN, row),
            penalties=Penalties(row["penalty_interruption"], row["penalty_overlap"]),
        )


def _put_decisions(connection: sqlite3.Connection, store: MemoryStore, job_id: int) -> None:
    """The newest ten, and all on which the agent acted."""
    own = ["intent_id", "created_s", "outcome", "detail", "finished_s"]
    joined = (
        "decisions LEFT JOIN intents USING (decision_id) WHERE successor_id = ? AND (intent_id IS"
        " NOT NULL OR decision_id IN (SELECT decision_id FROM decisions WHERE successor_id = ?"
        " ORDER BY at_s DESC LIMIT 10)) ORDER BY at_s, decision_id"
    )
    for row in connection.execute(_select([*_DECISION, *own], joined), (job_id, job_id)):
        decision = Decision(**_values(_DECISION, row))
        store.put(decision, _intent(decision, row))


def _intent(decision: Decision, row: sqlite3.Row) -> Intent | None:
    if row["intent_id"] is None:
        return None
    outcome = None if row["outcome"] is None else ReleaseOutcome(row["outcome"])
    return Intent(
        intent_id=row["intent_id"],
        decision=decision,
        created_s=row["created_s"],
        outcome=outcome,
        detail=row["detail"],
        finished_s=row["finished_s"],
    )


def _select(columns: Collection[str], rest: str) -> str:
    # In brackets: SQLite takes an unknown name in quotes for a text, and an older store lacks
    # columns.
    names = ", ".join(f"[{name}]" for name in columns)
    return f"SELECT {names} FROM {rest}"  # noqa: S608  names of our own records


def _values(kinds: Mapping[str, Any], row: sqlite3.Row) -> dict[str, Any]:
    """ValueError: a word of a newer release."""
    return {name: _value(kind, row[name]) for name, kind in kinds.items()}


def _value(kind: Any, shown: Any) -> Any:
    if kind == tuple[Run, ...]:
        return read_runs(shown)
    return kind(shown) if _is_word(kind) else shown


def _is_word(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
