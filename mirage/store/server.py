"""PostgreSQL and MariaDB, for sites that keep their services' data on a database server. What holds
for these only.

A server may go away and come back: each use asks whether its connection still lives (one round
trip), so the first use after it came back works. A host that does not answer at all is given up
after `ANSWER_S`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from mirage.errors import InputError, StoreError, StoreInUse
from mirage.store.url import shown

CONNECT_S = 5
ANSWER_S = 60
"""A statement that takes longer counts as "no answer"; no statement of ours takes a second, but for
a migration.
"""
LIBPQ_16 = 160_000
TELLING = ("mysql_clear_password", "dialog", "caching_sha2_password", "sha256_password")
"""Plugins by which PyMySQL gives the password, or encrypts it by a key that the server names."""
_GONE = "The database does not answer, or refuses us. Mirage goes on when it does."


def server_engine(url: URL, lock_timeout_s: float) -> Engine:
    """``lock_timeout_s``: how long a statement waits for another program's lock. InputError: the
    driver is missing.
    """
    connect = {"postgresql": _postgresql, "mariadb": _mariadb}[url.get_backend_name()]
    try:
        # READ COMMITTED: MariaDB's own default locks gaps between rows, which makes two threads of
        # ours deadlock.
        engine = create_engine(
            url,
            connect_args=connect(lock_timeout_s, url),
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
        )
    except ModuleNotFoundError as error:
        extra = url.get_backend_name()
        raise InputError(
            f"Store {shown(url)}: {error.name} is not installed: pip install"
            f" 'mirage-slurm[{extra}]'"
        ) from error
    event.listen(engine, "do_connect", _connect)
    return engine


def _connect(
    dialect: Dialect, _record: object, words: Sequence[Any], options: dict[str, Any]
) -> Any:
    try:
        return dialect.connect(*words, **options)
    except (
        AttributeError,
        TypeError,
        ValueError,
    ) as error:  # PyMySQL does not look at what it is given
        raise InputError(f"Store: an option behind the ? of its URL is wrong: {error}") from error


def _postgresql(lock_timeout_s: float, url: URL) -> dict[str, object]:
    """Whoever listens where the server was is not told the password (libpq 16 and newer)."""
    from psycopg import pq

    is_proven = (
        str(url.query.get("sslmode", "")).startswith("verify-") or "require_auth" in url.query
    )
    proof = {} if is_proven or pq.version() < LIBPQ_16 else {"require_auth": "!password"}
    return proof | {
        "connect_timeout": CONNECT_S,
        "tcp_user_timeout": ANSWER_S * 1000,
        "keepalives_idle": ANSWER_S,
        "options": f"-c lock_timeout={int(lock_timeout_s * 1000)} -c timezone=UTC",
    }


class _NotInTheClear:
    """In place of a plugin that would tell the password to whoever listens where the server was."""

    def __init__(self, _connection: object) -> None: ...

    def authenticate(self, _packet: object) -> None:
        from pymysql.err import OperationalError  # type: ignore[import-untyped,unused-ignore]

        raise OperationalError(
            2059,
            "the server asks for the password in the clear, and nothing proves who it is (no ssl_ca in"
            " the URL)",
        )


def _mariadb(lock_timeout_s: float, url: URL) -> dict[str, object]:
    proof = (
        {} if "ssl_ca" in url.query else {"auth_plugin_map": dict.fromkeys(TELLING, _NotInTheClear)}
    )
    return proof | {
        "connect_timeout": CONNECT_S,
        "read_timeout": ANSWER_S,
        "write_timeout": ANSWER_S,
        "init_command": f"SET SESSION innodb_lock_wait_timeout={max(1, int(lock_timeout_s))}",
    }


def explain(error: SQLAlchemyError) -> str:
    """What the server said, in one line, and what to do about it."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    # PyMySQL's errors are a number and a sentence, those of psycopg several lines.
    said = " ".join(str(cause.args[-1] if cause.args else cause).split()).rstrip(".")
    name = type(cause).__name__
    if name in {"IntegrityError", "ForeignKeyViolation"}:
        return f"{said}. A link needs its chain, an intent its decision. Nothing was written."
    if isinstance(error, DBAPIError) and (
        error.connection_invalidated or name in {"OperationalError", "AdminShutdown"}
    ):
        return f"{said}. {_GONE}"
    return said


@contextmanager
def migrating(engine: Engine, wait_s: int = ANSWER_S) -> Iterator[None]:
    """One migration at a time: whoever comes second waits. StoreError if that takes longer than
    ``wait_s``.

    The lock is of a connection of its own, so that it is let go only after the migration has been
    committed.
    """
    name = _lock_name(engine.url, "migration")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = {wait_s * 1000}"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _number(name)})
            yield
            return
        if not connection.scalar(
            text("SELECT GET_LOCK(:name, :wait_s)"), {"name": name, "wait_s": wait_s}
        ):
            raise StoreError(
                f"Store {shown(engine.url)}: another program has been changing its schema for"
                f" {wait_s} s"
            )
        try:
            yield
        finally:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})


class ServerLock:
    """One daemon a database: a lock of the database session, which ends with the connection,
    however that ends.

    When the server went away the lock is gone too, so `ensure` asks before each cycle, and takes it
    again.
    """

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engine = server_engine(url, CONNECT_S).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def ensure(self) -> None:
        """StoreError if another program has the lock, or the server does not answer."""
        try:
            if self._connection is None or not self._lives(self._connection):
                self.release()
                self._connection = self._taken()
        except SQLAlchemyError as error:
            self.release()
            raise StoreError(f"Store {shown(self._url)}: {explain(error)}") from error

    def is_held(self) -> bool:
        """Whether any program has it. StoreError: the server does not answer."""
        try:
            with self._engine.connect() as connection:
                return bool(connection.scalar(text(_HELD[connection.dialect.name]), self._key))
        except SQLAlchemyError as error:
            raise StoreError(f"Store {shown(self._url)}: {explain(error)}") from error

    def release(self) -> None:
        """Gives the lock back, and its connection."""
        if self._connection is not None:
            # Told to, the server does it before this returns; when a connection merely ends, a
            # little later.
            with suppress(SQLAlchemyError):
                self._connection.execute(text(_GIVE_BACK[self._connection.dialect.name]), self._key)
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Releases it and closes all connections."""
        self.release()
        self._engine.dispose()

    def _taken(self) -> Connection:
        connection = self._engine.connect()
        if connection.scalar(text(_TAKE[connection.dialect.name]), self._key):
            return connection
        connection.close()
        raise StoreInUse(
            f"Store {shown(self._url)}: another daemon or agent runs on this database. Stop that"
            " one first, or give this one a database of its own."
        )

    def _lives(self, connection: Connection) -> bool:
        try:
            return bool(connection.scalar(text("SELECT 1")))
        except SQLAlchemyError:
            return False

    @property
    def _key(self) -> dict[str, object]:
        name = _lock_name(self._url, "daemon")
        if self._url.get_backend_name() == "mariadb":
            return {"key": name}
        return {"key": _number(name)}


_TAKE = {
    "postgresql": "SELECT pg_try_advisory_lock(:key)",
    "mariadb": "SELECT GET_LOCK(:key, 0)",
}
_GIVE_BACK = {
    "postgresql": "SELECT pg_advisory_unlock(:key)",
    "mariadb": "SELECT RELEASE_LOCK(:key)",
}
# pg_locks shows a key of 64 bits as two halves of 32 (PostgreSQL's manual, 52.12).
_HELD = {
    "postgresql": (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND (classid::bigint << 32) | objid::bigint = :key"
    ),
    "mariadb": "SELECT IS_USED_LOCK(:key) IS NOT NULL",
}


def _lock_name(url: URL, purpose: str) -> str:
    """MariaDB's named locks are the whole server's, so the database is in the name; at most 64
    characters.
    """
    return f"mirage-{purpose}-" + hashlib.sha256(str(url.database).encode()).hexdigest()[:32]


def _number(name: str) -> int:
    """PostgreSQL's advisory locks have numbers, 63 bits here."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
