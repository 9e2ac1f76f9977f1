"""The store's files: who may read them, crashes, locks, read-only opening, schema versions."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateTable

from mirage.domain import ReleaseOutcome
from mirage.errors import StoreError
from mirage.store import migrations, schema, sqlite
from mirage.store.repository import SqlStore
from mirage.store.tables import metadata
from tests.unit.store.test_store import a_chain, a_decision, a_link

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "mirage.db"


@pytest.fixture
def made(file: Path) -> Path:
    """A store with one chain, closed."""
    with opened(file) as store:
        store.save_chain(a_chain())
    return file


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = sqlite.memory_engine()
    schema.bring_up_to_date(engine, "in memory")
    yield engine
    engine.dispose()


def opened(file: Path, **how: Any) -> SqlStore:
    return SqlStore.open(f"sqlite:///{file}", **how)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def another_program(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def killed_when_ready(target: Callable[..., None], *args: object) -> Iterator[None]:
    """Runs it in a process; when it has set its event, the body; then SIGKILL."""
    ready = SPAWN.Event()
    process = SPAWN.Process(target=target, args=(*args, ready))
    process.start()
    try:
        assert ready.wait(240)
        yield
    finally:
        process.kill()
        process.join()


# --- Files and their permissions


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o177])
def test_folder_and_files_are_for_their_owner_only_whatever_the_umask(
    file: Path, umask: int
) -> None:
    old = os.umask(umask)
    try:
        with opened(file) as store:
            store.save_chain(a_chain())
            assert mode(file.parent) & 0o077 == 0
            files = {path.name: mode(path) for path in file.parent.iterdir()}
    finally:
        os.umask(old)
    assert files.keys() >= {"mirage.db", "mirage.db-wal"}
    assert {bits & 0o177 for bits in files.values()} == {0}


def test_a_file_that_the_world_may_read_is_closed_to_it_but_not_to_its_group(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    file.chmod(0o644)
    opened(file).close()
    assert mode(file) == 0o640


def test_a_missing_file_is_made_only_if_told(file: Path) -> None:
    for how in ({"create": False}, {"readonly": True}):
        with pytest.raises(StoreError, match=rf"{file}: not there"):
            opened(file, **how)
    assert not file.parent.exists()


def test_a_file_that_is_no_database_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"#!/bin/sh\n" * 1000)
    for readonly in (False, True):
        with pytest.raises(StoreError, match=rf"{file}: file is not a database. Name another file"):
            opened(file, readonly=readonly)
    assert file.read_bytes() == b"#!/bin/sh\n" * 1000


def test_a_damaged_file_is_an_error_that_names_it(made: Path) -> None:
    size = made.stat().st_size
    with made.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreError, match=rf"{made}: .*damaged"), opened(made) as store:
        store.chains()


def test_a_path_that_can_not_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"{tmp_path}/file\S*: Not a directory\. Name"):
        opened(tmp_path / "file" / "sub" / "mirage.db")
    with pytest.raises(StoreError, match=rf"{tmp_path}: unable to open database file"):
        opened(tmp_path)


def test_a_write_is_on_the_disk_when_it_returns(file: Path) -> None:
    """`synchronous` FULL is 2: each commit is synced to the disk."""
    engine = sqlite.file_engine(file, create=True, readonly=False, busy_timeout_s=1)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    engine.dispose()


def test_on_a_network_file_system_no_shared_memory_is_used(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"21 1 0:999 / /proc rw shared:1 - proc proc rw\n22 1 {os.major(device)}:{os.minor(device)}"
        " / /home rw,relatime shared:2 - nfs4 server:/home rw\n"
    )
    monkeypatch.setattr("mirage.store.files.MOUNTS", mounts)
    with opened(file) as store:
        store.save_chain(a_chain())
        with opened(file, readonly=True) as reader:
            assert reader.chains() == [a_chain()]
        assert [path.name for path in file.parent.iterdir()] == ["mirage.db"]


# --- Crashes


def _open_intent_and_wait(file: Path, ready: Event) -> None:
    store = opened(file)
    store.open_intent(a_decision(), 1001)
    ready.set()
    time.sleep(600)


def _write_without_end(file: Path, network: bool, ready: Event) -> None:
    with patch.object(sqlite, "is_on_network", return_value=network):
        store = opened(file)
    store.save_chain(a_chain("before"))
    with store.transaction():
        for number in range(300):
            store.save_chain(a_chain(f"c{number}"))
            store.save_step("gpu", number, bytes(10_000))
        store.open_intent(a_decision(), 1001)
        ready.set()
        time.sleep(600)


def test_an_intent_outlives_a_kill_between_opening_and_closing(file: Path) -> None:
    with killed_when_ready(_open_intent_and_wait, file):
        pass
    with opened(file, readonly=True) as reader:
        assert len(reader.open_intents()) == 1
    with opened(file) as store:
        (intent,) = store.open_intents()
        assert (intent.decision, intent.created_s) == (a_decision(), 1001)
        store.close_intent(intent, ReleaseOutcome.ALREADY, "", 1002)
        assert store.open_intents() == []


def test_nothing_of_a_transaction_outlives_a_kill_inside_it(file: Path) -> None:
    with killed_when_ready(_write_without_end, file, False), opened(file, readonly=True) as reader:
        assert reader.chains() == [a_chain("before")]
    _check_before_only(file)


def test_nor_does_it_on_a_network_file_system(file: Path) -> None:
    """There the old pages wait in a journal, which only a program that may write can put back."""
    with killed_when_ready(_write_without_end, file, True):
        pass
    with (
        pytest.raises(StoreError, match="the daemon or agent undoes it"),
        opened(file, readonly=True),
    ):
        pytest.fail("a half-written file was read")
    _check_before_only(file)


def _check_before_only(file: Path) -> None:
    with opened(file) as store:
        assert store.chains() == [a_chain("before")]
        assert store.open_intents() == []
        assert store.steps("gpu", 0) == []
        store.save_chain(a_chain("after"))


# --- Locks


def test_a_locked_database_is_an_error_within_the_time_out_and_works_after(made: Path) -> None:
    with opened(made, busy_timeout_s=0.2) as store, another_program(made) as other:
        other.execute("BEGIN EXCLUSIVE")
        started = time.monotonic()
        for write in (
            lambda: store.add_decision(a_decision()),
            lambda: store.open_intent(a_decision(), 1),
        ):
            with pytest.raises(StoreError, match=rf"{made}: database is locked. .* retry later"):
                write()
        with pytest.raises(StoreError, match="locked"), store.transaction():
            pytest.fail("a transaction that is to write begins with the lock")
        assert 0.4 < time.monotonic() - started < 20
        assert store.chains() == [a_chain()], "reading goes on"
        other.execute("ROLLBACK")
        assert store.decisions(12) == []
        store.open_intent(a_decision(), 1)
        assert len(store.open_intents()) == 1


def test_a_lock_shorter_than_the_time_out_only_delays(made: Path) -> None:
    with opened(made, busy_timeout_s=120) as store, another_program(made) as other:
        other.execute("BEGIN IMMEDIATE")
        writer = threading.Thread(target=store.save_chain, args=(a_chain("c2"),))
        writer.start()
        time.sleep(0.2)
        other.execute("COMMIT")
        writer.join()
        assert len(store.chains()) == 2


def _open_together(file: Path, together: Barrier, number: int) -> None:
    together.wait()
    with opened(file) as store:
        store.save_chain(a_chain(f"c{number}"))


def test_processes_that_open_a_new_store_together_all_succeed(file: Path) -> None:
    together = SPAWN.Barrier(3, timeout=240)
    processes = [
        SPAWN.Process(target=_open_together, args=(file, together, number)) for number in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 3
    with opened(file) as store:
        assert len(store.chains()) == 3


def test_a_new_store_that_another_program_is_writing_is_waited_for(file: Path) -> None:
    file.parent.mkdir(mode=0o700)
    file.touch(mode=0o600)
    with another_program(file) as other:
        other.execute(
            "BEGIN IMMEDIATE"
        )  # not in WAL mode yet: the lock that SQLite itself does not wait for
        with (
            pytest.raises(StoreError, match="database is locked"),
            opened(file, busy_timeout_s=0.1),
        ):
            pytest.fail("it is locked")
        seen: list[int] = []

        def open_and_read() -> None:
            with opened(file, busy_timeout_s=120) as store:
                seen.append(len(store.chains()))

        reader = threading.Thread(target=open_and_read)
        reader.start()
        time.sleep(0.3)
        other.execute("ROLLBACK")
        reader.join()
        assert seen == [0]


# --- Reading only


def test_reading_only_does_not_wait_for_the_writer_and_sees_what_is_committed(made: Path) -> None:
    """A reader that waits for the lock fails in the end: the writer has it all the time."""
    with opened(made) as writer, writer.transaction():
        writer.save_chain(a_chain("c2"))
        with opened(made, readonly=True, busy_timeout_s=0.1) as reader:
            assert reader.chains() == [a_chain()]
    with opened(made, readonly=True) as reader:
        assert len(reader.chains()) == 2


def test_reading_only_follows_a_writer_that_goes_on(made: Path) -> None:
    with opened(made, readonly=True) as reader, opened(made) as writer:
        writer.save_link(a_link())
        assert reader.open_links() == [a_link()]


def test_reading_only_can_not_write(made: Path) -> None:
    before = made.read_bytes()
    with opened(made, readonly=True) as reader:
        with pytest.raises(StoreError, match="for reading only"):
            reader.save_chain(a_chain("c2"))
        assert reader.chains() == [a_chain()]
    assert made.read_bytes() == before


def test_reading_only_makes_no_tables(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    with pytest.raises(StoreError, match="schema is older"):
        opened(file, readonly=True)
    assert file.stat().st_size == 0


# --- Schema


def set_schema(file: Path, version: str) -> None:
    with another_program(file) as other:
        other.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{version}'")


@pytest.mark.parametrize("readonly", [False, True])
def test_a_newer_schema_is_refused_with_both_versions(made: Path, readonly: bool) -> None:
    set_schema(made, "9999")
    with pytest.raises(
        StoreError, match=rf"{made}: .*schema 9999; .*schema {schema.NEWEST}\)\. Install"
    ):
        opened(made, readonly=readonly)
    set_schema(made, schema.NEWEST)
    opened(made).close()


def test_another_programs_database_is_left_alone(file: Path) -> None:
    file.parent.mkdir()
    with another_program(file) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
        with pytest.raises(StoreError, match=r"another program \(it has the table bookmarks\)"):
            opened(file)
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)


def test_an_older_schema_is_brought_up_to_date_by_who_may_write(made: Path) -> None:
    engine = sqlite.file_engine(made, create=False, readonly=False, busy_timeout_s=1)
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), "base")
    engine.dispose()
    with pytest.raises(StoreError, match="schema is older"):
        opened(made, readonly=True)
    with opened(made) as store:
        assert store.chains() == []


def test_migrations_lead_to_the_tables_and_back(engine: Engine) -> None:
    def difference() -> list[Any]:
        with engine.connect() as connection:
            options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
            return list(
                compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
            )

    assert difference() == []
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), "base")
        assert inspect(connection).get_table_names() == [schema.VERSION_TABLE]
    assert len(difference()) >= len(metadata.tables)
    schema.bring_up_to_date(engine, "in memory")
    assert difference() == []


def test_the_newest_schema_is_the_newest_migration(engine: Engine) -> None:
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(migrations.config(connection))
    assert scripts.get_heads() == [schema.NEWEST]


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("alembic.op.create_index", fail)  # comes after the first table
    with pytest.raises(ZeroDivisionError):
        opened(file)
    monkeypatch.undo()
    with another_program(file) as other:
        assert other.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    opened(file).close()


@pytest.mark.parametrize(
    "dialect", [postgresql.dialect, mysql.dialect], ids=["postgresql", "mariadb"]
)
def test_the_tables_can_be_made_on_other_databases(dialect: Any) -> None:
    sql = {
        table.name: str(CreateTable(table).compile(dialect=dialect()))
        for table in metadata.sorted_tables
    }
    assert (
        "intent_id BIGSERIAL" in sql["intents"]
        or "intent_id BIGINT NOT NULL AUTO_INCREMENT" in sql["intents"]
    )
    assert "payload BYTEA" in sql["steps"] or "payload BLOB(16777215)" in sql["steps"]
    assert "wait_p50_s DOUBLE" in sql["decisions"]


# --- Imports


def test_the_domain_does_not_load_a_database_library() -> None:
    check = "import sys, mirage, mirage.domain, mirage.ports; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_opening_a_store_of_this_release_does_not_load_alembic(made: Path) -> None:
    check = (
        "import sys; from mirage.store.repository import SqlStore;"
        f"SqlStore.open('sqlite:///{made}').close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
