"""The daemon's web page on a real Slurm: two users, each with their own link, and an operator's."""

from __future__ import annotations

import json
import re
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, BOB, BUSY, Site, until

pytestmark = pytest.mark.slurm

EVIL = "\"'><script>alert(1)</script>"


class Visitor:
    """A browser of ``user``, who ran `mirage web`."""

    def __init__(self, site: Site, user: str) -> None:
        self.told = json.loads(site.run(user, "mirage", "web", "--json").stdout)
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))
        with self._opener.open(self.told["url"], timeout=60 * BUSY) as answer:
            self.url, self.text = answer.url, answer.read().decode()

    def read(self, path: str) -> str:
        with self._opener.open(self.url + path, timeout=60 * BUSY) as answer:
            return str(answer.read().decode())

    def status(self, path: str) -> int:
        try:
            with self._opener.open(self.url + path, timeout=60 * BUSY) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code


def test_each_user_sees_their_own_chains_and_root_sees_all(site: Site, service: Service) -> None:
    service.configure(mode="observe", web="127.0.0.1:0")
    chains = {}
    for user in (ALICE, BOB):
        script = site.script(user, "work.sh", "#!/bin/sh\nsleep 600\n")
        words = ("--segments", "3", "--time", "20", "-J", EVIL, f"--comment={EVIL}", script)
        chains[user] = site.submit_chain(user, *words)
    with service.running():
        check(site, service, chains)


def check(site: Site, service: Service, chains: dict[str, tuple[str, list[int]]]) -> None:
    for chain, _ in chains.values():
        service.wait_for(chain, "active")
    alice, bob, root = (Visitor(site, user) for user in (ALICE, BOB, "root"))
    assert [visitor.told["user"] for visitor in (alice, bob, root)] == [ALICE, BOB, None]
    for visitor, seen in ((alice, {ALICE}), (bob, {BOB}), (root, {ALICE, BOB})):
        for path in ("", "decisions", "queue", "site"):
            text = visitor.read(path)
            named = {user for user in chains if user in text or chains[user][0] in text}
            shown = (
                {int(number) for number in re.findall(r'<th scope="row">(\d+)', text)}
                if path == "queue"
                else set()
            )
            jobs = {user for user in chains if shown & set(chains[user][1])}
            assert path != "queue" or jobs == seen
            assert named | jobs <= seen, path
            assert "<script" not in text
        text = visitor.read("")
        assert {user for user in chains if chains[user][0] in text} == seen
    mine = f"chain/{chains[ALICE][0]}/{ALICE}"
    told = re.compile(rf"{chains[ALICE][1][1]}\b.*only observes", re.S)
    until(
        lambda: told.search(alice.read(mine)), 60, "a decision on the second link"
    )  # once the first one runs
    assert alice.status(f"chain/{chains[BOB][0]}/{BOB}") == 404
    assert bob.status(f"chain/{chains[BOB][0]}/{BOB}") == 200
    anyone = (
        build_opener().open(alice.told["url"].split("/enter")[0], timeout=60 * BUSY).read().decode()
    )
    assert "Mode" in anyone
    assert not [
        word for user, (chain, _) in chains.items() for word in (user, chain) if word in anyone
    ]


def test_a_new_daemon_knows_no_old_visitor(site: Site, service: Service) -> None:
    service.configure(web="127.0.0.1:21999")
    with service.running():
        alice = Visitor(site, ALICE)
        assert alice.status("") == 200
    with service.running():
        Visitor(site, BOB)
        assert alice.status("") == 403
