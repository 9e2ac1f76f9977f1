"""The built-in relay, with servers and clients of this process."""

from __future__ import annotations

import asyncio
import http.client
import resource
import socket
import threading
from pathlib import Path

import pytest

from mirage.errors import InputError
from mirage.gateway.counts import RequestCounts
from mirage.gateway.pool import LinkPool
from mirage.gateway.relay import Relay
from mirage.gateway.tokens import Tokens, make_token
from tests.unit.gateway.rig import CHAIN, PATIENCE_S, Server, Site, gateway, wait_until


def client(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)


def get(link: http.client.HTTPConnection, path: str = "/", **headers: str) -> tuple[int, str]:
    link.request("GET", path, headers=headers)
    answer = link.getresponse()
    return answer.status, answer.read().decode()


def draining(site: Site, link: int = 1) -> list[Path]:
    return list((site.home / "chains" / CHAIN).glob(f"draining.{link}.*"))


def test_one_connection_of_a_client_moves_from_link_to_link(site: Site) -> None:
    site.chain()
    first, second = Server("first"), Server("second")
    site.ready(first.port)
    with gateway(site) as running:
        link = client(running.port)
        assert get(link) == (200, "first")
        taken = link.sock
        site.ready(second.port, 2)
        (site.home / "chains" / CHAIN / "endpoint.1").unlink()
        running.shows(f"ready: 127.0.0.1:{second.port}")
        assert get(link) == (200, "second")
        assert link.sock is taken
        link.request("POST", "/", b"text")
        assert link.getresponse().read() == b"second:text"
        wait_until(lambda: running.demand()["requests"] == 3)
        assert running.demand()["failed"] == 0
        assert running.demand()["slowest_s"] > 0


def test_a_stream_keeps_the_leaving_link_until_it_ends(site: Site) -> None:
    site.chain()
    server = Server("first")
    path = site.ready(server.port)
    with gateway(site) as running:
        link = client(running.port)
        link.request("GET", "/stream")
        answer = link.getresponse()
        assert answer.readline() == b"data: first\n"
        path.unlink()
        wait_until(lambda: draining(site), "the word that a client is still there")
        wait_until(lambda: running.demand()["open"] == 1)
        server.go_on.set()
        assert answer.read().endswith(b"data: last\n\n")
        wait_until(lambda: not draining(site), "the word that all clients have left")


def test_a_stream_that_never_ends_is_cut_after_the_drain(site: Site) -> None:
    site.chain()
    path = site.ready(Server("first").port)
    with gateway(site, drain_s=0.1) as running:
        link = client(running.port)
        link.request("GET", "/stream")
        answer = link.getresponse()
        path.unlink()
        with pytest.raises((http.client.HTTPException, OSError)):
            answer.read()
        running.shows("1 connections at a leaving link were cut")
        wait_until(lambda: running.demand()["failed"] == 1)
        wait_until(lambda: not draining(site))


def test_a_request_waits_for_a_replica(site: Site) -> None:
    site.chain()
    with gateway(site) as running:
        link = client(running.port)
        link.request("GET", "/")
        wait_until(lambda: running.demand()["waiting"] == 1)
        site.ready(Server("late").port)
        assert link.getresponse().read() == b"late"
        wait_until(lambda: running.demand()["waiting"] == 0)


def test_a_request_that_waits_for_nothing_gets_503(site: Site) -> None:
    site.chain()
    with gateway(site, wait_s=0.1) as running:
        status, words = get(client(running.port))
        assert status == 503
        assert "no replica of this service is ready" in words
        wait_until(lambda: running.demand()["failed"] == 1)


def test_requests_go_to_the_replica_with_the_fewest(site: Site) -> None:
    servers = [Server("one"), Server("two")]
    for number, server in enumerate(servers, 1):
        site.chain(f"replica{number}", service="chat", replica=number)
        site.ready(server.port, chain_id=f"replica{number}")
    with gateway(site) as running:
        running.shows(" ".join(sorted(f"127.0.0.1:{server.port}" for server in servers)))
        streams = [client(running.port) for _ in range(4)]
        for stream in streams:
            stream.request("GET", "/stream")
            stream.getresponse().readline()
        assert [len(server.seen) for server in servers] == [2, 2]
        for server in servers:
            server.go_on.set()


def test_a_dead_replica_loses_no_request_that_it_had_not_taken(site: Site) -> None:
    for number in (1, 2):
        site.chain(f"replica{number}", service="chat", replica=number)
    dead, living = Server("dead"), Server("living")
    site.ready(dead.port, chain_id="replica1")
    site.ready(living.port, chain_id="replica2")
    with gateway(site) as running:
        running.shows(" ".join(sorted((f"127.0.0.1:{dead.port}", f"127.0.0.1:{living.port}"))))
        dead.stop()
        answers = [get(client(running.port)) for _ in range(6)]
        assert answers == [(200, "living")] * 6
        running.shows(f"ready: 127.0.0.1:{living.port}")


def test_a_request_whose_replica_dies_gets_502_and_no_second_try(site: Site) -> None:
    site.chain()
    server = Server("first")
    site.ready(server.port)
    with gateway(site) as running:
        link = client(running.port)
        link.request("POST", "/die", b"order")
        assert link.getresponse().status == 502
        assert server.seen == ["/die"], "it may have been done"


def test_nobody_is_sent_to_a_port_whose_job_has_gone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job was killed outright; another program has its port now."""
    site.chain()
    monkeypatch.setattr("mirage.gateway.gateway.not_running", lambda found, _owner: list(found))
    stranger = Server("stranger")
    site.ready(stranger.port)
    with gateway(site, wait_s=0.1) as running:
        assert get(client(running.port))[0] == 503
        assert stranger.seen == []


def test_after_an_upgrade_bytes_go_both_ways(site: Site) -> None:
    site.chain()
    site.ready(Server("first").port)
    with gateway(site) as running, socket.create_connection(("127.0.0.1", running.port)) as link:
        link.sendall(
            b"GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
        )
        answer = link.recv(1000)
        while b"\r\n\r\n" not in answer:
            answer += link.recv(1000)
        assert b" 101 " in answer
        link.sendall(b"hello")
        assert link.recv(5) == b"HELLO"


def test_wrong_and_missing_tokens_are_refused(site: Site) -> None:
    site.chain()
    server = Server("first")
    site.ready(server.port)
    make_token(site.home / "token")
    tokens = Tokens(site.home / "token")
    with gateway(site, tokens=tokens) as running:
        right = f"Bearer {(site.home / 'token').read_text().strip()}"
        assert get(client(running.port))[0] == 401
        assert get(client(running.port), Authorization="Bearer wrong")[0] == 401
        assert get(client(running.port), Authorization=right.replace("Bearer", "Basic"))[0] == 401
        link = client(running.port)
        link.request("POST", "/", b"x" * 5_000_000)
        assert link.getresponse().status == 401, "though its body was not read"
        assert server.seen == []
        assert get(client(running.port), Authorization=right) == (200, "first")
        fresh = site.home / "fresh"
        make_token(fresh)
        fresh.rename(site.home / "token")
        wait_until(lambda: get(client(running.port), Authorization=right)[0] == 401, "a change")


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    make_token(tmp_path / "token")
    (tmp_path / "token").chmod(mode)
    with pytest.raises(InputError, match="others may read this file of tokens"):
        Tokens(tmp_path / "token")


@pytest.mark.parametrize("content", ["", 'two words "quoted"'])
def test_a_token_file_without_sound_tokens_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(InputError, match="token"):
        Tokens(tmp_path / "token")


def test_a_thousand_idle_connections_keep_nobody_out(site: Site) -> None:
    """They hold no replica, and do not count as open."""
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    site.chain()
    server = Server("first")
    site.ready(server.port)
    with gateway(site) as running:
        idle = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(1000)]
        assert get(client(running.port)) == (200, "first")
        wait_until(lambda: running.demand()["requests"] == 1)
        assert running.demand()["open"] == 0
        for link in idle:
            link.close()


def test_clients_beyond_the_limit_are_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.gateway.relay._raise_file_limit", lambda: 1)
    site.chain()
    site.ready(Server("first").port)
    with gateway(site) as running, socket.create_connection(("127.0.0.1", running.port)):
        assert get(client(running.port))[0] == 503


def test_a_port_in_use_is_refused(site: Site) -> None:
    site.chain()
    with gateway(site) as running:
        relay = Relay(pool=LinkPool(), counts=RequestCounts())
        with pytest.raises(InputError, match="give another one: NAME:PORT"):
            asyncio.run(relay.serve("127.0.0.1", running.port))


def test_what_is_not_http_is_told(site: Site) -> None:
    site.chain()
    with gateway(site) as running, socket.create_connection(("127.0.0.1", running.port)) as link:
        link.sendall(b"hello\r\n\r\n")
        assert link.recv(1000).startswith(b"HTTP/1.1 400 ")


# ---- Other protocols


class Echo:
    """Answers each line, as a database does."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            link, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        while data := link.recv(100):
            if data != b"slow":
                link.sendall(data.upper())


def ask(link: socket.socket, data: bytes) -> bytes:
    link.sendall(data)
    return link.recv(100)


def test_a_database_s_client_at_rest_is_let_go_and_one_that_waits_for_an_answer_is_not(
    site: Site,
) -> None:
    site.chain()
    path = site.ready(Echo().port)
    with gateway(site, is_http=False) as running:
        rests = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S)
        works = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE_S)
        assert ask(rests, b"query") == b"QUERY"
        works.sendall(b"slow")
        wait_until(lambda: running.demand()["open"] == 2)
        path.unlink()
        assert rests.recv(100) == b"", "it asks anew, and finds the next link"
        wait_until(lambda: running.demand()["open"] == 1)
        assert draining(site)
        assert ask(works, b"more") == b"MORE"
        assert works.recv(100) == b""
        wait_until(lambda: not draining(site))


def test_http_2_passes_as_bytes_but_not_past_a_token(site: Site) -> None:
    site.chain()
    site.ready(Echo().port)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with gateway(site) as running, socket.create_connection(("127.0.0.1", running.port)) as link:
        link.sendall(preface[:7])
        assert ask(link, preface[7:]) == preface.upper()
    make_token(site.home / "token")
    with (
        gateway(site, tokens=Tokens(site.home / "token")) as running,
        socket.create_connection(("127.0.0.1", running.port)) as link,
    ):
        assert ask(link, preface) == b""


def test_counts_that_can_not_be_written_are_told_and_requests_go_on(site: Site) -> None:
    site.chain()
    site.ready(Server("first").port)
    with gateway(site) as running:
        running.shows("ready: 127.0.0.1")
        wait_until(lambda: running.demand()["replicas"] == 1)
        running.folder.rename(site.home / "away")
        running.shows("No such file or directory")
        assert get(client(running.port)) == (200, "first")
