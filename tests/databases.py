"""Databases of the tests' own, on the servers that scripts/databases started."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from mirage.store.url import DRIVERS

FOLDER = Path(os.environ.get("MIRAGE_DATABASES_DIR", "/var/tmp/mirage-databases"))
SERVERS = [pytest.param(name, marks=pytest.mark.databases) for name in ("postgresql", "mariadb")]


@contextmanager
def fresh_database(place: str, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store; ``place``: `memory`, `file`, or a server's name."""
    match place:
        case "memory":
            yield "sqlite://"
        case "file":
            yield f"sqlite:///{tmp_path}/mirage.db"
        case name:
            with database_on(name) as url:
                yield url


@contextmanager
def database_on(server: str) -> Iterator[str]:
    """The URL of a new database, dropped at the end.

    Without a server the test is skipped, or fails where MIRAGE_DATABASES_REQUIRED is set.
    """
    admin = make_url(_url_of(server))
    name = f"mirage_{uuid.uuid4().hex[:12]}"
    _execute(admin, f"CREATE DATABASE {name}")
    try:
        yield admin.set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(
            admin, f"DROP DATABASE {name}" + (" WITH (FORCE)" if server == "postgresql" else "")
        )


def _url_of(server: str) -> str:
    try:
        return (FOLDER / f"{server}.url").read_text().strip()
    except OSError as error:
        reason = (
            f"needs a {server}: {error}. Start one with scripts/databases, or run"
            " scripts/test-databases."
        )
        if os.environ.get("MIRAGE_DATABASES_REQUIRED"):
            pytest.fail(reason)
        pytest.skip(reason)


def _execute(admin: URL, sql: str) -> None:
    engine = create_engine(
        admin.set(drivername=DRIVERS[admin.drivername]), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(text(sql))
    engine.dispose()
