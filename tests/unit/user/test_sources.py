"""What `mirage status` takes over from an agent's store, and how it joins what daemon and agent
say.
"""

from __future__ import annotations

import socket
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirage.cli.table import heading
from mirage.daemon.report import chain_reports, explain
from mirage.daemon.waiting_reason import AGENT, DAEMON
from mirage.domain import (
    Chain,
    ChainState,
    Decision,
    JobState,
    Link,
    Mode,
    Penalties,
    ReleaseOutcome,
)
from mirage.errors import StoreError
from mirage.store.fast_reader import read_chains
from mirage.store.memory import MemoryStore
from mirage.store.repository import SqlStore
from mirage.user import sources
from mirage.user.folders import add_names, add_records
from mirage.user.sources import _joined, _of_server
from tests.links import link
from tests.unit.store.test_store import a_chain, a_decision, a_link

OVER, WAITING = 11, 12


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An agent's store: a link that is over and one that waits, each with two decisions and a
    release.
    """
    path = tmp_path / "mirage.db"
    with SqlStore.open(f"sqlite:///{path}") as source:
        source.save_chain(
            Chain(
                chain_id="c1",
                user="alice",
                segments=5,
                mode=Mode.SERVICE,
                penalties=Penalties(2.5, 0.1),
                state=ChainState.FAILED,
                reason="exit code 3",
                created_s=10,
                updated_s=2**33,
            )
        )
        source.save_chain(a_chain("c2"))
        source.save_link(a_link(OVER, state=JobState.COMPLETED))
        source.save_link(
            a_link(WAITING, segment=2, reason="Dependency", dependency="afterany:11", released_s=7)
        )
        for job_id in (OVER, WAITING):
            source.add_decision(a_decision(job_id, at_s=1000, wait_p50_s=1.5))
            source.close_intent(
                source.open_intent(a_decision(job_id, at_s=2000), 2000),
                ReleaseOutcome.RELEASED,
                "",
                2001,
            )
    return path


@pytest.mark.parametrize(
    ("asked", "copied"), [(None, [WAITING]), (WAITING, [WAITING]), (OVER, [OVER, WAITING])]
)
def test_decisions_on_links_that_are_over_come_only_where_they_are_asked_for(
    file: Path, asked: int | None, copied: list[int]
) -> None:
    """A year of them would be read for nothing. With SQLAlchemy or without, the same comes."""
    for target in (read_chains(file, asked), _of_server(f"sqlite:///{file}", asked)):
        with SqlStore.open(f"sqlite:///{file}", readonly=True) as source:
            assert target.chains() == source.chains()
            assert target.links("alice", "c1") == source.links("alice", "c1")
            assert [job_id for job_id in (OVER, WAITING) if target.decisions(job_id)] == copied
            for job_id in copied:
                assert target.decisions(job_id) == source.decisions(job_id)
                assert target.intents(job_id) == source.intents(job_id)


def test_of_many_decisions_the_newest_ten_come_and_those_that_were_acted_on(tmp_path: Path) -> None:
    path = tmp_path / "mirage.db"
    with SqlStore.open(f"sqlite:///{path}") as source:
        source.save_chain(a_chain())
        source.save_link(a_link(WAITING))
        source.open_intent(a_decision(WAITING, at_s=1), 1)
        for at_s in range(2, 40):
            source.add_decision(a_decision(WAITING, at_s=at_s))
    assert [decision.at_s for decision in read_chains(path).decisions(WAITING)] == [
        *range(39, 29, -1),
        1,
    ]


@pytest.mark.parametrize(
    "change", ["ALTER TABLE links DROP COLUMN reason", "UPDATE chains SET mode = 'swarm'"]
)
def test_a_store_of_another_release_is_refused_in_a_sentence(file: Path, change: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(change)
    with pytest.raises(StoreError, match="restart the agent"):
        read_chains(file)


def test_a_store_without_tables_is_of_an_agent_that_starts(tmp_path: Path) -> None:
    (tmp_path / "mirage.db").touch()
    with pytest.raises(StoreError, match="has not finished its start"):
        read_chains(tmp_path / "mirage.db")


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mirage.db").write_bytes(b"something else" * 100)
    with pytest.raises(StoreError, match="can't be read"):
        read_chains(tmp_path / "mirage.db")


# --- daemon and agent on the same chain
# -------------------------------------------------------------------------------

FIRST = link(1, eligible_s=100, start_s=200)
SECOND = link(2, reason="Dependency", dependency="afterany:11")
LET_IN = replace(SECOND, eligible_s=900, reason="Priority", dependency="")


def told(
    service: str, second: Link, *, decides: bool = True, decision: Decision | None = None
) -> list[dict[str, Any]]:
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    store.save_link(FIRST)
    store.save_link(second)
    if decision:
        store.put(decision)
    return chain_reports(store, None, None, service, decides=decides)


def test_a_release_is_told_once_and_of_who_did_it_whoever_else_looks_on() -> None:
    acted = replace(LET_IN, released_s=900)
    observed = a_decision(12, reason="[observe: this service only observes] 3 h are left")
    for runs in (True, False):
        (by_agent,) = _joined(
            told(DAEMON, LET_IN, decision=observed), told(AGENT, acted, decides=runs), runs
        )
        (by_daemon,) = _joined(told(DAEMON, acted), told(AGENT, LET_IN, decides=runs), runs)
        assert by_agent["links"][1]["let_in_by"] == "agent"
        assert by_agent["links"][1]["released"] == 900
        assert "by its owner's Mirage agent and waits for nodes" in by_agent["next"]
        assert by_daemon["links"][1]["let_in_by"] == "daemon"
        assert "by Mirage's daemon and waits for nodes" in by_daemon["next"]


def test_why_a_waiting_link_was_released_is_said_to_who_asks_for_it() -> None:
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    store.save_link(FIRST)
    store.save_link(replace(LET_IN, released_s=900))
    store.put(a_decision(12))
    found = explain(store, "alice", 12)["explanation"]
    assert found.endswith("and waits for nodes. Why then: 3 h are left.")
    (report,) = chain_reports(store, None, None)
    assert report["next"].endswith("and waits for nodes.")


def test_a_daemon_that_did_not_let_a_link_in_does_not_say_that_slurm_did() -> None:
    (report,) = told(DAEMON, LET_IN)
    assert report["links"][1]["let_in_by"] == "owner"
    assert "by its owner or the owner's agent before job 11 ended" in report["next"]


def test_the_service_that_acts_speaks_while_it_runs() -> None:
    observed = a_decision(12, reason="[observe: this service only observes] 3 h are left")
    for runs, acting, watched_by in ((True, "enforce", "agent"), (False, "observe", "daemon")):
        mine = told(AGENT, SECOND, decides=runs, decision=a_decision(12))
        (report,) = _joined(told(DAEMON, SECOND, decision=observed), mine, runs)
        assert (report["acting"], report["watched_by"]) == (acting, watched_by)


@pytest.mark.parametrize(
    ("eligible_s", "successor", "who"), [(50, 12, "owner"), (50, None, "slurm"), (51, 12, "slurm")]
)
def test_a_link_that_asked_its_predecessor_to_end_was_not_let_in_by_slurm(
    tmp_path, monkeypatch, eligible_s, successor, who
):
    """Even if it became eligible in the second of that end."""
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path))
    folder = tmp_path / "chains" / "abcdef12"
    folder.mkdir(parents=True)
    if successor:
        (folder / "handover.1").write_text(f"job={successor}\ngrace=300\nasked=50\n")
    links = [
        {"segment": 1, "job_id": 11, "predecessor": None, "end": 50, "let_in_by": "slurm"},
        {"segment": 2, "job_id": 12, "predecessor": 11, "end": None, "let_in_by": "slurm"},
    ]
    links[0]["eligible"], links[1]["eligible"] = 10, eligible_s
    report = {"chain": "abcdef12", "user": "alice", "state": "active", "links": links}
    add_records([report], "alice")
    assert links[1]["let_in_by"] == who


def test_a_chain_without_a_folder_here_has_the_name_that_slurm_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path))
    store = MemoryStore()
    store.save_chain(replace(a_chain("c1"), name="night"))
    reports = chain_reports(store, None)
    add_names(reports, "somebody")
    assert [(each["name"], each["script"]) for each in reports] == [("night", "")]
    assert heading(reports[0]).endswith(": night")


def test_a_daemon_whose_socket_is_shut_off_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sources, "ask", refuse)
    assert sources._from_daemon(None) is None
    assert "permission denied, so the site's daemon can't be asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        b"hello\n",
        b"[1, 2]\n",
        b"[" * 100_000 + b"\n",
        b'{"chains": 7, "notice": "", "seen": null}\n',
        b'{"chains": [{"chain": 5}], "notice": "", "seen": null}\n',
    ],
)
def test_what_is_no_answer_of_a_daemon_counts_as_none(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program may listen at the path, such as a daemon of another release."""
    path = tmp_path / "s"
    monkeypatch.setattr(sources, "socket_path", lambda: path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        answering = threading.Thread(target=_answer_once, args=(listener, said))
        answering.start()
        assert sources._from_daemon(None) is None
        answering.join()


def _answer_once(listener: socket.socket, said: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(said)
