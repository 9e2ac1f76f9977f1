"""Listeners under a crowd: each user has a share, connections end in time, and the log names who
takes too many.
"""

from __future__ import annotations

import getpass
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from mirage import peers
from mirage.daemon.host_names import is_known, known_names
from mirage.daemon.metrics import MOST_SCRAPERS, SCRAPES_EACH, Metrics, exposed
from mirage.daemon.socket import MOST_ASKERS, QUESTIONS_EACH, Source, ask, serving
from mirage.peers import Connection, Connections, allow_files, holder
from mirage.store.repository import SqlStore
from mirage.web.server import VISITORS, VISITS_EACH, served

PATIENCE_S = 120


class Peer(Connection):
    """A connection of somebody, without a socket."""

    def __init__(self, who: str, since_s: float = 0.0) -> None:
        super().__init__(socket.socket(), since_s)
        self.connection.close()
        self.who = who
        self.is_gone = False

    def hang_up(self) -> None:
        self.is_gone = True


def admitted(crowd: Connections, *names: str) -> list[Peer]:
    peers = [Peer(name) for name in names]
    for peer in peers:
        if not crowd.admit(peer):
            peer.is_gone = True
    return peers


def test_who_takes_more_than_a_share_loses_their_oldest(caplog: pytest.LogCaptureFixture) -> None:
    crowd = Connections(name="door", most=6, share=3)
    bobs = admitted(crowd, *["bob"] * 5)
    (alice,) = admitted(crowd, "alice")
    assert [peer.is_gone for peer in bobs] == [True, True, False, False, False]
    assert not alice.is_gone
    (record,) = caplog.records
    assert "door: bob has 4 connections" in record.getMessage()


def test_who_is_answered_is_not_displaced() -> None:
    crowd = Connections(name="door", most=6, share=2)
    first, second = admitted(crowd, "bob", "bob")
    crowd.asked(first.connection)
    assert [peer.is_gone for peer in (*admitted(crowd, "bob"), first, second)] == [
        False,
        False,
        True,
    ]
    for guest in crowd._guests:
        guest.has_asked = True
    assert admitted(crowd, "bob")[0].is_gone, "none of theirs can go, so the new one does"
    assert not admitted(crowd, "alice")[0].is_gone


def test_when_all_is_taken_the_one_with_most_makes_room() -> None:
    crowd = Connections(name="door", most=6, share=3)
    peers = admitted(crowd, "ada", "bob", "bob", "cyd", "cyd", "cyd", "eve")
    assert [peer.who for peer in peers if peer.is_gone] == ["cyd"]


def test_time_to_ask_and_to_be_answered_is_bounded() -> None:
    now_s = 0.0
    crowd = Connections(name="door", most=6, share=6, now_s=lambda: now_s)
    slow, busy = admitted(crowd, "ada", "ada")
    busy.has_asked = True
    for now_s, gone in ((4.0, [False, False]), (6.0, [True, False]), (31.0, [True, True])):  # noqa: B007
        crowd.hang_up_late()
        assert [slow.is_gone, busy.is_gone] == gone


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_says_who_holds_the_other_end(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = [
        "import encodings.idna, os, socket, sys",
        "os.setgid(65534); os.setuid(65534)",
        "connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))",
        "print(flush=True); sys.stdin.read()",
    ]
    with socket.create_server((host, 0), family=family) as listener:
        listener.settimeout(PATIENCE_S)
        port = listener.getsockname()[1]
        program = [sys.executable, "-c", "\n".join(words), host, str(port)]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            connection, theirs = listener.accept()
            with connection:
                assert holder(theirs, connection.getsockname()) == "user nobody"
                other.communicate(b"")
                assert holder(theirs, connection.getsockname()) == host, "closed by its program"


@contextmanager
def crowd_at(kind: str, folder: Path) -> Iterator[tuple[int | str, int]]:
    """A listener in the background, and how many connections one user may have there."""
    with ExitStack() as stack:
        if kind == "metrics":
            yield (
                stack.enter_context(exposed(Metrics("observe", "timer"), "127.0.0.1:0")),
                SCRAPES_EACH,
            )
        elif kind == "web":
            url = stack.enter_context(served(answer_all, "127.0.0.1:0"))
            yield int(url.rsplit(":", 1)[1]), VISITS_EACH
        else:
            store = stack.enter_context(SqlStore.open("sqlite://"))
            stack.enter_context(serving(folder / "s", Source(store=store)))
            yield str(folder / "s"), QUESTIONS_EACH


def answer_all(_environ: object, start_response: object) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])  # type: ignore[operator]
    return [b"ok"]


def connected(target: int | str) -> socket.socket:
    if isinstance(target, int):
        return socket.create_connection(("127.0.0.1", target), timeout=PATIENCE_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(target)
    return connection


def is_answered(target: int | str) -> bool:
    if isinstance(target, str):
        return ask(Path(target), {"ask": "chains", "chain": None})["chains"] == []
    return urlopen(f"http://127.0.0.1:{target}/metrics", timeout=PATIENCE_S).status == 200


def still_open(held: list[socket.socket]) -> int:
    open_ones = 0
    for connection in held:
        connection.setblocking(False)
        try:
            connection.recv(1)
        except BlockingIOError:
            open_ones += 1
        except OSError:
            pass
    return open_ones


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["metrics", "web", "socket"])
def test_a_hundred_connections_that_ask_nothing(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with crowd_at(kind, tmp_path) as (target, share), ExitStack() as stack:
        before = threading.active_count()
        held = [stack.enter_context(connected(target)) for _ in range(100)]
        until(lambda: still_open(held) <= share)
        until(lambda: threading.active_count() - before <= share + 1)
        assert is_answered(target)
    assert [
        record
        for record in caplog.records
        if f"user {getpass.getuser()} has" in record.getMessage()
    ]


@pytest.mark.parametrize("kind", ["metrics", "web", "socket"])
def test_who_trickles_is_hung_up_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ASK_S", 0.5)
    monkeypatch.setattr("mirage.web.server.IDLE_S", 1)
    monkeypatch.setattr("mirage.web.server.CHECK_S", 1)
    with crowd_at(kind, tmp_path) as (target, _), connected(target) as connection:

        def is_hung_up_on() -> bool:
            with suppress(OSError):  # it has just been
                connection.send(b"{" if kind == "socket" else b"G")
            return not still_open([connection])

        until(is_hung_up_on)


def test_the_listeners_together_leave_files_for_slurms_commands_and_the_store() -> None:
    assert MOST_SCRAPERS + MOST_ASKERS + VISITORS < 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard)
        allow_files(280)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, hard), "it takes nothing away"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_asks_much_at_once_is_answered_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.daemon.socket.PATIENCE_S", float(PATIENCE_S))
    found: list[object] = []
    with (
        SqlStore.open(f"sqlite:///{tmp_path}/m.db") as store,
        serving(tmp_path / "s", Source(store=store)),
    ):
        words = {"ask": "chains", "chain": None}
        askers = [
            threading.Thread(target=lambda: found.append(ask(tmp_path / "s", words)))
            for _ in range(24)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert json.dumps(found) == json.dumps(
        [{"chains": [], "notice": "", "seen": None, "every_s": None}] * 24
    )


# --- what this machine is called


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost:9815", True),
        ("LOCALHOST.", True),
        ("127.0.0.1", True),
        ("[::1]:9815", True),
        ("login1.site:80", True),
        (socket.gethostname(), True),
        ("127.0.0.2:9815", True),
        ("evil.example", False),
        ("localhost.evil.example:9815", False),
        ("evil.example,localhost", False),
        ("user@localhost", False),
        ("192.0.2.1:9815", False),
        ("0.0.0.0", False),
        ("", False),
        ("localhost localhost", False),
        ("[localhost]", False),
    ],
)
def test_names_and_addresses_of_this_machine(host: str, known: bool) -> None:
    assert is_known(host, known_names("login1.site")) is known


def test_the_metrics_are_for_who_calls_this_machine_by_its_name() -> None:
    with exposed(Metrics("observe", "timer"), "127.0.0.1:0", ["prometheus-target"]) as port:
        for host, status in (
            ("evil.example", 400),
            ("prometheus-target", 200),
            (f"localhost:{port}", 200),
        ):
            request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": host})
            if status == 200:
                assert urlopen(request, timeout=PATIENCE_S).status == 200
            else:
                with pytest.raises(HTTPError, match="400"):
                    urlopen(request, timeout=PATIENCE_S)
