"""The Store port on a SQL database."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import TracebackType
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Executable,
    Select,
    Table,
    and_,
    bindparam,
    not_,
    or_,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from mirage.domain import (
    Chain,
    ChainState,
    Decision,
    Intent,
    JobState,
    Link,
    Penalties,
    ReleaseOutcome,
)
from mirage.errors import StoreError
from mirage.store import schema, server, sqlite
from mirage.store.tables import chains, decisions, intents, links, steps
from mirage.store.url import parse_url, shown

PRUNED_AT_ONCE = 2000
"""Rows; a site with 500 chains writes 500 decisions a cycle."""

_Row = Mapping[str, Any]
"""By column name."""


def _columns(table: Table, record: type[Link] | type[Decision]) -> list[Column[Any]]:
    """Those that have the names of a record's fields."""
    return [table.c[field.name] for field in fields(record)]


_LINK = _columns(links, Link)
_DECISION = _columns(decisions, Decision)
_INTENT = [
    intents.c[name] for name in ("intent_id", "created_s", "outcome", "detail", "finished_s")
]
_INTENTS = select(*_INTENT, *_DECISION).join_from(intents, decisions)
_OVER = [state for state in JobState if state.is_over]
_OPEN = [state for state in ChainState if not state.is_over]
_UPDATE = {
    table: table.update().where(*(key == bindparam(f"old_{key.name}") for key in table.primary_key))
    for table in (chains, links, steps)
}


class SqlStore:
    """Implements `ports.Store`. May be used by several threads; each has its own transaction.

    If a statement fails inside `transaction()`, the whole of that transaction is lost, even if the
    error is caught. A `transaction()` inside another one is undone alone if its body raises an
    error of its own.
    """

    def __init__(self, engine: Engine, where: str = "") -> None:
        """``engine``: of a database with the newest schema. ``where``: its name in errors."""
        self._engine = engine
        self._writer = engine.execution_options(**sqlite.FOR_WRITING)
        self._where = where or shown(engine.url)
        self._local = threading.local()

    @classmethod
    def open(
        cls,
        url: str | URL,
        *,
        create: bool = True,
        readonly: bool = False,
        busy_timeout_s: float = 5.0,
    ) -> SqlStore:
        """Opens the store of a URL: `sqlite:////path/of/file`, `sqlite://` for one in memory, or a
        server's (`url.py`).

        In a text, `%` and `?` are the URL's; for a path that has them give `URL.create("sqlite",
        database=path)`. Makes the file (unless ``create`` is False) and runs the migrations that
        are missing. ``readonly`` does neither, and does not hold up the daemon that writes.
        ``busy_timeout_s``: how long to wait for another program's lock. Raises StoreError, and
        InputError for a URL that is none.
        """
        engine, where = _engine(url, create, readonly, busy_timeout_s)
        store = cls(engine, where)
        try:
            store._prepare(readonly)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside are committed together, or none is."""
        outer = self._own
        with self._explained():
            if outer is not None:
                with outer.begin_nested():
                    yield
                return
            with self._writer.begin() as connection:
                self._local.connection = connection
                try:
                    yield
                finally:
                    self._local.connection = None
                if not connection.in_transaction():
                    raise StoreError(
                        f"Store {self._where}: a part of this transaction failed, so nothing was"
                        " written."
                    )

    def active_chains(self) -> list[Chain]:
        """Oldest first."""
        active = select(chains).where(chains.c.state.in_(_OPEN))
        return [
            _chain(row)
            for row in self._rows(active.order_by(chains.c.created_s, chains.c.chain_id))
        ]

    def chains(self, user: str | None = None, since_s: int | None = None) -> list[Chain]:
        """All chains (of a user), newest first; with ``since_s`` those that are active, or changed
        since then.
        """
        query = select(chains).order_by(chains.c.created_s.desc(), chains.c.chain_id.desc())
        if user is not None:
            query = query.where(chains.c.user == user)
        if since_s is not None:
            query = query.where(or_(chains.c.state.in_(_OPEN), chains.c.updated_s >= since_s))
        return [_chain(row) for row in self._rows(query)]

    def chain(self, user: str, chain_id: str) -> Chain | None:
        """None: there is no such chain."""
        rows = self._rows(
            select(chains).where(chains.c.user == user, chains.c.chain_id == chain_id)
        )
        return _chain(rows[0]) if rows else None

    def links(self, user: str, chain_id: str) -> list[Link]:
        """By segment; the retries of one segment as they were submitted."""
        query = select(*_LINK).where(links.c.user == user, links.c.chain_id == chain_id)
        return [
            Link(**row)
            for row in self._rows(query.order_by(links.c.segment, links.c.submit_s, links.c.job_id))
        ]

    def open_links(self) -> list[Link]:
        """Links of active chains whose job was not over when last seen."""
        query = select(*_LINK).join_from(chains, links).where(chains.c.state.in_(_OPEN))
        # As `Link.is_over`.
        was_passed = and_(links.c.state == JobState.REQUEUED, links.c.end_s.is_not(None))
        query = query.where(links.c.state.not_in(_OVER), not_(was_passed)).order_by(links.c.job_id)
        return [Link(**row) for row in self._rows(query)]

    def link_of_job(self, job_id: int) -> Link | None:
        """The newest one, if Slurm has used the job id twice."""
        query = (
            select(*_LINK)
            .where(links.c.job_id == job_id)
            .order_by(links.c.submit_s.desc())
            .limit(1)
        )
        return next((Link(**row) for row in self._rows(query)), None)

    def save_chain(self, chain: Chain) -> None:
        """Inserts or replaces, by (user, chain_id)."""
        self._save(chains, _chain_values(chain))

    def save_link(self, link: Link) -> None:
        """Inserts or replaces, by (user, chain_id, job_id). Its chain must be in the store."""
        self._save(links, _values(link, _LINK))

    def drop_link(self, link: Link) -> None:
        """Forgets a link, and its chain with the last one."""
        of = links.c
        with self.transaction():
            self._write(
                links.delete().where(
                    of.user == link.user, of.chain_id == link.chain_id, of.job_id == link.job_id
                )
            )
            if not self.links(link.user, link.chain_id):
                self._write(
                    chains.delete().where(
                        chains.c.user == link.user, chains.c.chain_id == link.chain_id
                    )
                )

    def add_decision(self, decision: Decision) -> None:
        """Adds to the record; decisions are never changed."""
        self._insert(decisions, _values(decision, _DECISION))

    def decisions(self, successor_id: int, limit: int = 100) -> list[Decision]:
        """Newest first."""
        query = select(*_DECISION).where(decisions.c.successor_id == successor_id)
        query = query.order_by(decisions.c.at_s.desc(), decisions.c.decision_id.desc()).limit(limit)
        return [Decision(**row) for row in self._rows(query)]

    def gains(self, policy: str, since_s: int) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """By predecessor and successor: when a decision of this policy gave a gain, and which.
        Oldest first.
        """
        of = decisions.c
        query = select(of.predecessor_id, of.successor_id, of.at_s, of.gain)
        query = query.where(of.at_s >= since_s, of.policy == policy, of.gain.is_not(None))
        found: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for row in self._rows(query.order_by(of.at_s, of.decision_id)):
            pair = (row["predecessor_id"], row["successor_id"])
            found.setdefault(pair, []).append((row["at_s"], row["gain"]))
        return found

    def open_intent(self, decision: Decision, now_s: int) -> Intent:
        """Writes decision and intent together, durably: when this returns, a crash can't lose it.

        Inside `transaction()` that holds once the transaction is over, so don't act before.
        """
        with self.transaction():
            decision_id = self._insert(decisions, _values(decision, _DECISION))
            intent_id = self._insert(
                intents, {"decision_id": decision_id, "created_s": now_s, "detail": ""}
            )
        return Intent(intent_id=intent_id, decision=decision, created_s=now_s)

    def close_intent(
        self, intent: Intent, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        """StoreError if it is not open."""
        update = intents.update().where(
            intents.c.intent_id == intent.intent_id, intents.c.finished_s.is_(None)
        )
        if not self._write(update, {"outcome": outcome, "detail": detail, "finished_s": now_s}):
            raise StoreError(
                f"Store {self._where}: intent {intent.intent_id} is not open. Nothing was written."
            )

    def open_intents(self) -> list[Intent]:
        """Intents without an outcome, oldest first: a crash cut them short."""
        query = _INTENTS.where(intents.c.finished_s.is_(None)).order_by(intents.c.intent_id)
        return [_intent(row) for row in self._rows(query)]

    def intents(self, successor_id: int) -> list[Intent]:
        """Newest first."""
        query = _INTENTS.where(decisions.c.successor_id == successor_id).order_by(
            intents.c.intent_id.desc()
        )
        return [_intent(row) for row in self._rows(query)]

    def newest_intents(self, limit: int) -> list[Intent]:
        """Of all jobs, newest first."""
        return [
            _intent(row)
            for row in self._rows(_INTENTS.order_by(intents.c.intent_id.desc()).limit(limit))
        ]

    def save_step(self, pool: str, at_s: int, payload: bytes) -> None:
        """One step of a pool's history, in place of the one that it has at this time."""
        self._save(steps, {"pool": pool, "at_s": at_s, "payload": payload})

    def steps(self, pool: str, since_s: int) -> list[tuple[int, bytes]]:
        """Those at or after ``since_s``, oldest first."""
        query = select(steps.c.at_s, steps.c.payload).where(
            steps.c.pool == pool, steps.c.at_s >= since_s
        )
        return [(row["at_s"], row["payload"]) for row in self._rows(query.order_by(steps.c.at_s))]

    def drop_steps(self, before_s: int) -> None:
        """Those of all pools before this time."""
        self._write(steps.delete().where(steps.c.at_s < before_s))

    def prune(
        self, decisions_before_s: int, chains_before_s: int, limit: int = PRUNED_AT_ONCE
    ) -> int:
        """Forgets what is older: decisions with their releases, and chains that were over then,
        with their links.

        At most ``limit`` of each, oldest first, so that it never holds up a cycle; returns how many
        went. What a crash cut short (an open intent) stays.
        """
        with self.transaction():
            return self._prune_decisions(decisions_before_s, limit) + self._prune_chains(
                chains_before_s, limit
            )

    def _prune_decisions(self, before_s: int, limit: int) -> int:
        is_open = select(intents.c.decision_id).where(intents.c.finished_s.is_(None))
        old = select(decisions.c.decision_id).where(
            decisions.c.at_s < before_s, decisions.c.decision_id.not_in(is_open)
        )
        ids = [
            row["decision_id"] for row in self._rows(old.order_by(decisions.c.at_s).limit(limit))
        ]
        if ids:  # MariaDB takes no LIMIT in a subquery, so the ids go back and forth
            self._write(intents.delete().where(intents.c.decision_id.in_(ids)))
            self._write(decisions.delete().where(decisions.c.decision_id.in_(ids)))
        return len(ids)

    def _prune_chains(self, before_s: int, limit: int) -> int:
        old = select(chains.c.user, chains.c.chain_id).where(chains.c.updated_s < before_s)
        old = old.where(chains.c.state.not_in(_OPEN)).order_by(chains.c.updated_s).limit(limit)
        keys = self._rows(old)
        for key in keys:
            for table in (links, chains):  # a link refers to its chain, so the links go first
                is_of_chain = (table.c[name] == value for name, value in key.items())
                self._write(table.delete().where(*is_of_chain))
        return len(keys)

    @property
    def where(self) -> str:
        """Which store this is, for people: a path, or a URL without its password."""
        return self._where

    @property
    def _own(self) -> Connection | None:
        """The connection of this thread's transaction."""
        found: Connection | None = getattr(self._local, "connection", None)
        return found

    def _prepare(self, readonly: bool) -> None:
        with self._explained(), self._engine.begin() as connection:
            current = schema.is_current(connection, self._where)
        if not current and readonly:
            raise StoreError(
                f"Store {self._where}: its schema is older than this Mirage's ({schema.NEWEST})."
                " The daemon or agent of this Mirage brings it up to date when it starts."
            )
        if not current:
            with self._explained():
                schema.bring_up_to_date(self._writer, self._where)

    def _rows(self, query: Select[Any]) -> list[_Row]:
        try:
            with self._using(self._engine) as connection:
                found = connection.execute(query)
                names = tuple(found.keys())
                return [dict(zip(names, row, strict=True)) for row in found]
        except LookupError as error:  # of SQLAlchemy's Enum
            raise StoreError(
                f"Store {self._where}: a newer Mirage wrote a word that this one lacks: {error}"
            ) from error

    def _write(self, statement: Executable, values: Mapping[str, Any] | None = None) -> int:
        """Returns how many rows it met."""
        with self._using(self._writer) as connection:
            return connection.execute(statement, values).rowcount

    def _insert(self, table: Table, values: Mapping[str, Any]) -> int:
        """Returns the row's number."""
        with self._using(self._writer) as connection:
            return int(connection.execute(table.insert(), values).inserted_primary_key[0])  # type: ignore[index]

    def _save(self, table: Table, values: Mapping[str, Any]) -> None:
        """Inserts or replaces by primary key, in the one way that all databases know: update, else
        insert.
        """
        keys = {column.name for column in table.primary_key}
        changes = {
            (f"old_{name}" if name in keys else name): value for name, value in values.items()
        }
        with self._using(self._writer) as connection:
            if not connection.execute(_UPDATE[table], changes).rowcount:
                connection.execute(table.insert(), values)

    @contextmanager
    def _using(self, engine: Engine) -> Iterator[Connection]:
        """This thread's transaction, or one for a single call."""
        own = self._own
        with self._explained():
            if own is None:
                with engine.begin() as connection:
                    yield connection
                return
            try:
                yield own
            except SQLAlchemyError:
                # SQLite may have undone it already (disk full); what follows would be committed on
                # its own.
                _abandon(own)
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise StoreError(f"Store {self._where}: {self._explanation(error)}") from error

    def _explanation(self, error: SQLAlchemyError) -> str:
        if self._engine.dialect.name != "sqlite":
            return server.explain(error)
        return sqlite.explain(error.orig if isinstance(error, DBAPIError) and error.orig else error)


def _engine(
    text: str | URL, create: bool, readonly: bool, busy_timeout_s: float
) -> tuple[Engine, str]:
    """The engine of a store URL, and what errors call it."""
    url = parse_url(text)
    if url.get_backend_name() != "sqlite":
        return server.server_engine(url, busy_timeout_s), shown(url)
    path = sqlite.file_of(url)
    if path is None:
        return sqlite.memory_engine(), "in memory"
    return sqlite.file_engine(
        path, create=create, readonly=readonly, busy_timeout_s=busy_timeout_s
    ), str(path)


def _abandon(connection: Connection) -> None:
    if transaction := connection.get_transaction():
        transaction.rollback()


def _values(record: Link | Decision, columns: Sequence[Column[Any]]) -> dict[str, Any]:
    return {column.name: getattr(record, column.name) for column in columns}


def _chain_values(chain: Chain) -> dict[str, Any]:
    values = {
        field.name: getattr(chain, field.name)
        for field in fields(chain)
        if field.name != "penalties"
    }
    return values | {
        "penalty_interruption": chain.penalties.interruption,
        "penalty_overlap": chain.penalties.overlap,
    }


def _chain(row: _Row) -> Chain:
    values = dict(row)
    penalties = Penalties(values.pop("penalty_interruption"), values.pop("penalty_overlap"))
    return Chain(penalties=penalties, **values)


def _intent(row: _Row) -> Intent:
    decision = Decision(**{column.name: row[column.name] for column in _DECISION})
    return Intent(decision=decision, **{column.name: row[column.name] for column in _INTENT})
