"""The store on a real PostgreSQL and MariaDB: schema, locks, and a server that goes away and comes
back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text

from mirage.domain import ReleaseOutcome
from mirage.errors import MirageError, StoreError
from mirage.store import migrations, schema
from mirage.store.exclusive import exclusive, is_held
from mirage.store.repository import SqlStore
from mirage.store.tables import metadata
from mirage.store.url import parse_url
from tests.databases import FOLDER, SERVERS, database_on
from tests.fakes.fake_slurm import FakeSlurm
from tests.unit.cli.test_cli import ME, NOW, Shell
from tests.unit.store.test_store import a_chain, a_decision

pytestmark = pytest.mark.databases

SCRIPT = Path(__file__).parents[3] / "scripts" / "databases"


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with database_on(request.param) as made:
        yield made


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = create_engine(parse_url(url))
    yield made
    made.dispose()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, FakeSlurm.create(tmp_path, 2, NOW))


def password(url: str) -> str:
    return str(make_url(url).password)


@contextmanager
def server_away(url: str) -> Iterator[None]:
    name = make_url(url).drivername
    subprocess.run([SCRIPT, "stop", "--dir", FOLDER, name], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([SCRIPT, "up", "--dir", FOLDER, name], check=True, capture_output=True)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


# --- Schema


def test_migrations_lead_to_the_tables_and_back(url: str, engine: Engine) -> None:
    def difference() -> list[Any]:
        with engine.connect() as connection:
            options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
            return list(
                compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
            )

    with SqlStore.open(url) as store:
        store.save_chain(a_chain())
    assert difference() == []
    for revision in ("0001", "head"):  # the data stays in a step back and forth
        with engine.begin() as connection:
            (command.downgrade if revision == "0001" else command.upgrade)(
                migrations.config(connection), revision
            )
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT chain_id FROM chains")) == "c1"
    with engine.begin() as connection:
        command.downgrade(migrations.config(connection), "base")
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == [schema.VERSION_TABLE]
    SqlStore.open(url).close()
    assert difference() == []


def test_a_newer_schema_is_refused_without_the_password(url: str, engine: Engine) -> None:
    SqlStore.open(url).close()
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(
        StoreError, match=rf"schema 9999; .*schema {schema.NEWEST}\)\. Install"
    ) as caught:
        SqlStore.open(url)
    assert password(url) not in str(caught.value)


def test_another_programs_database_is_left_alone(url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE bookmarks (url VARCHAR(9))"))
    with pytest.raises(StoreError, match=r"another program \(it has the table bookmarks\)"):
        SqlStore.open(url)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["bookmarks"]


def test_a_migration_that_is_cut_short_is_completed_by_the_next_start(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("alembic.op.create_index", fail)  # comes after the first table
    with pytest.raises(ZeroDivisionError):
        SqlStore.open(url)
    monkeypatch.undo()
    with engine.connect() as connection:
        left = set(inspect(connection).get_table_names())
    # MariaDB has no transaction around changes of the schema.
    assert left == ({schema.VERSION_TABLE, "chains"} if "mariadb" in url else set())
    with pytest.raises(StoreError, match="schema is older"):
        SqlStore.open(url, readonly=True)
    with SqlStore.open(url) as store:
        store.save_chain(a_chain())


@pytest.fixture
def commits_take_long() -> Iterator[None]:
    """What is written before a lock is let go, and committed after it, is not there yet for who
    gets the lock.
    """

    def slowly(_connection: Connection) -> None:
        time.sleep(0.2)

    event.listen(Engine, "commit", slowly)
    yield
    event.remove(Engine, "commit", slowly)


def test_programs_that_open_a_new_store_together_all_succeed(
    url: str, commits_take_long: None
) -> None:
    together = threading.Barrier(3, timeout=240)
    failures: list[BaseException] = []

    def opened(number: int) -> None:
        together.wait()
        try:
            with SqlStore.open(url) as store:
                store.save_chain(a_chain(f"c{number}"))
        except BaseException as error:  # noqa: BLE001 - of a thread
            failures.append(error)

    threads = [threading.Thread(target=opened, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with SqlStore.open(url) as store:
        assert len(store.chains()) == 3


# --- One daemon a store


def test_a_second_daemon_is_refused_while_the_first_one_lives(url: str) -> None:
    assert not is_held(url)
    with exclusive(url) as ensure:
        ensure()
        assert is_held(url)
        with (
            pytest.raises(
                StoreError, match="another daemon or agent runs on this database"
            ) as caught,
            exclusive(url),
        ):
            pytest.fail("two had the lock")
        assert password(url) not in str(caught.value)
    assert not is_held(url)
    with exclusive(url):
        assert is_held(url)


def test_two_databases_of_one_server_have_locks_of_their_own(url: str) -> None:
    with database_on(make_url(url).drivername) as other, exclusive(url), exclusive(other):
        assert is_held(other)


def test_the_lock_is_taken_anew_after_the_server_was_away(url: str) -> None:
    with exclusive(url) as ensure:
        with server_away(url), pytest.raises(StoreError, match="goes on when it does"):
            ensure()
        ensure()
        assert is_held(url)


def test_while_it_was_away_another_daemon_may_have_come(url: str) -> None:
    with exclusive(url) as ensure:
        with server_away(url):
            pass
        with exclusive(url), pytest.raises(StoreError, match="another daemon or agent"):
            ensure()
        ensure()


# --- A server that is away


def test_a_store_goes_on_when_its_server_comes_back(url: str) -> None:
    with SqlStore.open(url) as store:
        store.save_chain(a_chain())
        with server_away(url):
            for use in (
                store.chains,
                lambda: store.save_chain(a_chain("c2")),
                lambda: store.open_intent(a_decision(), 1),
            ):
                with pytest.raises(StoreError, match="goes on when it does") as caught:
                    use()
                assert password(url) not in str(caught.value)
                assert "\n" not in str(caught.value)
            with pytest.raises(StoreError):
                SqlStore.open(url)
        assert store.chains() == [a_chain()]
        store.close_intent(store.open_intent(a_decision(), 1), ReleaseOutcome.RELEASED, "", 2)


def test_a_server_that_goes_away_inside_a_transaction_takes_all_of_it_along(url: str) -> None:
    with SqlStore.open(url) as store:
        with pytest.raises(StoreError), store.transaction():  # noqa: PT012
            store.save_chain(a_chain())
            with server_away(url):
                pass
            store.save_chain(a_chain("c2"))
        assert store.chains() == []


def test_a_wrong_password_is_one_clear_error_without_it(url: str) -> None:
    wrong = make_url(url).set(password="wrong-horse").render_as_string(hide_password=False)
    with pytest.raises(StoreError, match="refuses us") as caught:
        SqlStore.open(wrong)
    assert "wrong-horse" not in str(caught.value)


@pytest.mark.parametrize("option", ["no_such_option=1", "charset=nonsense"])
def test_a_wrong_option_of_the_driver_is_one_clear_error(url: str, option: str) -> None:
    with pytest.raises(MirageError, match="option") as caught:
        SqlStore.open(f"{url}?{option}")
    assert password(url) not in str(caught.value)


def test_the_daemon_says_that_its_database_is_away_and_goes_on_when_it_is_back(
    url: str, shell: Shell
) -> None:
    secret = shell.folder / "store.url"
    secret.write_text(url + "\n")
    secret.chmod(0o600)
    (shell.folder / "mirage.toml").write_text(
        f'[daemon]\npoll_s = 1\nsocket = ""\nstore_file = "{secret}"\n[acting]\nmode = "enforce"\n'
        '[policy]\nname = "timer"\n'
        "[policy.timer]\nlead_s = 999999\n"
    )
    log = shell.folder / "log"
    words = [
        sys.executable,
        "-m",
        "mirage.cli.main",
        "daemon",
        "--verbose",
        "--config",
        str(shell.folder / "mirage.toml"),
    ]
    env = os.environ | {
        "PATH": f"{shell.folder / 'bin'}:{os.environ['PATH']}",
        "FAKE_SLURM_DIR": str(shell.folder),
        "FAKE_SLURM_USER": "root",
    }

    def asked(command: str) -> int:
        return sum(call[0] == command for call in shell.slurm.calls())

    with log.open("wb") as out, subprocess.Popen(words, env=env, stdout=out, stderr=out) as daemon:
        try:
            until(lambda: asked("squeue") >= 2, "the first cycle to end")
            with server_away(url):
                until(
                    lambda: "cycle skipped: nothing is done" in log.read_text(),
                    "the daemon to notice",
                )
                _first, second = shell.chain()  # to be released at once
                skipped = log.read_text().count("cycle skipped")
                until(
                    lambda: log.read_text().count("cycle skipped") > skipped + 1, "two more cycles"
                )
                assert ["scontrol", "update"] not in [call[:2] for call in shell.slurm.calls()]
            until(lambda: "the store answers again" in log.read_text(), "the daemon to go on")
            with SqlStore.open(url, readonly=True) as store:
                until(
                    lambda: [i.outcome for i in store.intents(second)] == [ReleaseOutcome.RELEASED],
                    "the release",
                )
            assert [call[:2] for call in shell.slurm.calls()].count(["scontrol", "update"]) == 1
        finally:
            daemon.terminate()
            code = daemon.wait(240)
    assert code == 0, log.read_text()
    assert password(url) not in log.read_text()
    assert "Traceback" not in log.read_text()


def test_status_reads_the_agents_store_on_a_server(url: str, shell: Shell) -> None:
    shell.chain()
    config = shell.folder / ".config" / "mirage" / "mirage.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[daemon]\nstore = "{url}"\n')
    with SqlStore.open(url) as store:
        store.save_chain(a_chain("elsewhere", user=ME))
    assert "chain elsewhere" in shell.run("status", "elsewhere").stdout
    printed = shell.run("agent", "--print-config").stdout
    assert "mirage:***@127.0.0.1" in printed
    assert password(url) not in printed
