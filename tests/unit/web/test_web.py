"""The web page without a browser: who may see what, what it says, and that it is in nobody's way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.cookiejar import CookieJar
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
from waitress.trigger import trigger

from mirage.cli.main import main
from mirage.config import DaemonConfig, RetentionConfig
from mirage.daemon.audit_summary import RETRY_S, AuditSummary
from mirage.daemon.cycle import Daemon
from mirage.daemon.cycle_guard import CycleGuard
from mirage.daemon.last_cycle import LastCycle
from mirage.daemon.restraint import Acting
from mirage.daemon.socket import Source, ask, serving
from mirage.domain import ActingMode, Chain, Job, JobState, Mode, Snapshot
from mirage.elastic.jobs.tag import TaskTag, format_task_tag
from mirage.errors import InputError, StoreError
from mirage.provision.policies.heuristics import Timer
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from mirage.store.repository import SqlStore
from mirage.web import sessions
from mirage.web.allowance import SAVED_S, SHARE, Allowance
from mirage.web.page import opened
from mirage.web.server import port_of, served
from mirage.web.sessions import Visitors
from slurm_sim.config import Partition
from tests.fakes.fake_slurm import FakeSlurm
from tests.sims import fast_simulator
from tests.web_site import WebSite, web_site

NOW = 1_800_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with web_site(tmp_path_factory.mktemp("web"), NOW, {"alice": 7, "bob": 5}) as found:
        found.desk.audit_summary.latest(0)
        found.desk.audit_summary.wait()
        yield found


class Page(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]
    url: str


class Browser:
    """Just enough of one: it follows redirects and keeps cookies."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.jar))

    def get(self, url: str, method: str = "GET", **headers: str) -> Page:
        request = Request(url, method=method, headers=headers)
        try:
            answer = self._opener.open(request, timeout=240)
        except HTTPError as error:
            answer = error
        with contextlib.closing(answer):
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Page(answer.status, answer.read().decode(), found, answer.url)


def chain_links(page: Page) -> list[str]:
    return re.findall(r'href="(/s/[^"]+/chain/[^"]+)"', page.text)


# --- who sees what


def test_without_a_link_there_are_sums_only(site: WebSite) -> None:
    seen = site.desk.last_cycle.view.snapshot  # type: ignore[union-attr]
    hidden = tuple(replace(node, state="allocated") for node in seen.nodes)
    for _ in range(2):
        site.desk.last_cycle.agreement.queue_read(replace(seen, jobs=(), nodes=hidden))
    page = Browser().get(site.url)
    assert "Slurm's answers disagree: sinfo says that 40 nodes" in page.text
    assert page.status == 200
    assert "36 of 40" in page.text
    assert "handovers" in page.text
    words = set(re.findall(r"\w+", page.text))
    chains = site.store.chains()
    named = {
        link.job_id for chain in chains for link in site.store.links(chain.user, chain.chain_id)
    }
    assert len(named) > 20
    jobs = site.desk.last_cycle.view.snapshot.jobs  # type: ignore[union-attr]
    assert not words & {*map(str, named), *(chain.chain_id for chain in chains)}
    assert not words & {*(job.user for job in jobs), *(str(job.job_id) for job in jobs)}


def test_a_user_sees_their_own_chains_and_root_sees_all(site: WebSite) -> None:
    for user, mine in (("alice", {"alice"}), ("bob", {"bob"}), (None, {"alice", "bob"})):
        browser = Browser()
        page = browser.get(site.link(user))
        assert page.status == 200
        shown = {
            link.rsplit("/", 1)[1]
            for link in chain_links(browser.get(f"{page.url}?show=all&days=30"))
        }
        assert shown == mine
        for name in ("decisions", "queue", "site"):
            text = browser.get(page.url + name).text
            assert ({"alice", "bob"} - mine).isdisjoint(re.findall(r"\w+", text)), (user, name)


def test_a_service_is_one_row_with_a_link_to_each_replica(site: WebSite) -> None:
    mine = [chain for chain in site.store.chains("bob") if not chain.state.is_over][:2]
    try:
        for number, chain in enumerate(mine, start=1):
            site.store.save_chain(
                replace(chain, mode=Mode.SERVICE, service="my-llm", replica=number)
            )
        browser = Browser()
        page = browser.get(f"{browser.get(site.link('bob')).url}?show=all&days=30")
        assert page.text.count("<h3>my-llm</h3>") == 1
        assert re.search(r"\d of 2 replicas ready", page.text)
        for number, chain in enumerate(mine, start=1):
            link = rf'Replica {number}, <a href="/s/[^"]+/chain/{chain.chain_id}/bob">'
            assert len(re.findall(link, page.text)) == 1
    finally:
        for chain in mine:
            site.store.save_chain(chain)


def test_another_users_chain_is_not_there(site: WebSite) -> None:
    alice, bob = Browser(), Browser()
    alices, bobs = alice.get(site.link("alice")), bob.get(site.link("bob"))
    theirs = chain_links(bobs)[0].split("/chain/")[1]
    page = alice.get(f"{alices.url}chain/{theirs}")
    nowhere = alice.get(f"{alices.url}chain/none1234/bob")
    assert (page.status, nowhere.status) == (404, 404)
    assert page.text == nowhere.text, "nothing tells whether it is there"
    assert bob.get(f"{bobs.url}chain/{theirs}").status == 200
    listed = alice.get(f"{alices.url}?user=bob&show=all&days=30")
    assert {link.rsplit("/", 1)[1] for link in chain_links(listed)} == {"alice"}


def test_an_address_without_its_cookie_opens_nothing(site: WebSite) -> None:
    alice, bob = Browser(), Browser()
    alices, bobs = alice.get(site.link("alice")).url, bob.get(site.link("bob")).url
    for name in ("", "queue", "decisions", "site", "chain/x/alice"):
        assert Browser().get(alices + name).status == 403
        assert bob.get(alices + name).status == 403, "bob's cookie at alice's address"
    (cookie,) = bob.jar
    assert (
        Browser().get(bobs, Cookie=f"mirage={cookie.value}").status,
        Browser().get(alices, Cookie=f"mirage={cookie.value}").status,
        Browser().get(bobs, Cookie=f"mirage={cookie.value}x").status,
    ) == (200, 403, 403)


def test_a_link_works_once(site: WebSite) -> None:
    link = site.link("alice")
    assert Browser().get(link).status == 200
    second = Browser().get(link)
    assert second.status == 403
    assert "mirage web" in second.text


def test_the_cookie_goes_to_one_address_only_and_to_no_script(site: WebSite) -> None:
    browser = Browser()
    page = browser.get(site.link("alice"))
    (cookie,) = browser.jar
    assert page.url.endswith(cookie.path)
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "Lax"


def test_who_leaves_is_out(site: WebSite) -> None:
    browser = Browser()
    own = browser.get(site.link("alice")).url
    assert Browser().get(own + "leave", method="POST").status == 403
    assert browser.get(own).status == 200
    assert browser.get(own + "leave").status == 405
    assert browser.get(own + "leave", method="POST").url == site.url + "/"
    assert browser.get(own).status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "mirage:9816"])
def test_a_foreign_name_that_leads_here_is_refused(site: WebSite, host: str) -> None:
    page = Browser().get(site.url, Host=host)
    assert page.status == 400
    assert "Mode" not in page.text
    for ours in ("localhost:1234", "127.0.0.1"):
        assert Browser().get(site.url, Host=ours).status == 200


def test_every_answer_forbids_scripts_and_is_kept_nowhere(site: WebSite) -> None:
    browser = Browser()
    own = browser.get(site.link("alice")).url
    for url in (
        site.url,
        own,
        own + "queue",
        own + "none",
        site.url + "/s/x/",
        site.url + "/enter/x",
    ):
        headers = browser.get(url).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; style-src 'self'; img-src 'self'"
        )
        assert "script-src" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


@pytest.mark.parametrize(
    "path", ["static/../app.py", "static/%2e%2e/app.py", "static//etc/passwd", "etc/passwd"]
)
def test_no_file_leaves_that_is_none_of_the_pages(site: WebSite, path: str) -> None:
    with socket.create_connection(
        ("127.0.0.1", int(site.url.rsplit(":", 1)[1])), timeout=240
    ) as connection:
        connection.sendall(f"GET /{path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert not answer.startswith("HTTP/1.0 200 ")
    assert "import" not in answer
    assert "root:" not in answer


@pytest.mark.parametrize(
    "query", ["?page=-1", "?page=99999999999", "?page=x&days=5", "?days=%00", "?user=%3Cscript%3E"]
)
def test_a_query_that_means_nothing_does_no_harm(site: WebSite, query: str) -> None:
    browser = Browser()
    for user in ("alice", None):
        assert browser.get(browser.get(site.link(user)).url + query).status == 200


# --- tickets and sessions


def test_tickets_and_sessions_end() -> None:
    now_s = 0.0
    known = Visitors(lambda: now_s)
    late, ticket = known.ticket("alice"), known.ticket("alice")
    entered = known.enter(ticket)
    assert entered is not None
    address, session = entered
    now_s = sessions.TICKET_S
    assert known.enter(late) is None
    assert known.find(address, session.secret) == session
    assert known.find(address, session.secret + "é") is None
    now_s = sessions.SESSION_S
    assert known.find(address, session.secret) is None


def test_one_user_can_not_crowd_out_another() -> None:
    known = Visitors()
    first = known.enter(known.ticket("bob"))
    assert first is not None
    addresses = [known.enter(known.ticket("alice")) for _ in range(50)]
    held = [known.find(address, session.secret) for address, session in filter(None, addresses)]
    assert [session is not None for session in held] == [False] * 42 + [True] * 8
    assert known.find(first[0], first[1].secret)
    tickets = [known.ticket("alice") for _ in range(50)]
    assert sum(known.enter(ticket) is not None for ticket in tickets) == sessions.MOST


def test_the_socket_gives_links_for_who_asks(tmp_path: Path) -> None:
    store = SqlStore.open("sqlite://")
    with serving(tmp_path / "m.sock", Source(store=store, door=lambda user: f"http://x/{user}")):
        assert ask(tmp_path / "m.sock", {"ask": "web"}) == {"url": "http://x/None", "user": None}
    with (
        serving(tmp_path / "m.sock", Source(store=store)),
        pytest.raises(InputError, match="no web page"),
    ):
        ask(tmp_path / "m.sock", {"ask": "web"})


# --- what goes wrong


def test_a_store_that_can_not_be_read_is_said_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with web_site(tmp_path, NOW, {"alice": 2}) as site:
        browser = Browser()
        own = browser.get(site.link("alice")).url
        site.store.close()
        file = tmp_path / "mirage.db"
        site.desk.store.close()  # type: ignore[attr-defined]
        for left in tmp_path.glob("mirage.db*"):
            left.unlink()
        file.write_bytes(b"no database at all" * 1000)
        for path in ("", "decisions"):
            page = browser.get(own + path)
            assert page.status == 503
            assert "The daemon&#39;s store can&#39;t be read now" in page.text
        assert browser.get(own + "queue").status == 200, "it comes from memory"
        assert browser.get(site.url).status == 200
    told = [record for record in caplog.records if "a page could not be made" in record.message]
    assert len(told) == 1, "visits don't fill the log"


def test_a_fault_of_ours_is_a_page_in_words(site: WebSite, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser()
    own = browser.get(site.link("alice")).url
    monkeypatch.setattr(site.desk.last_cycle, "policy", None)
    monkeypatch.setattr(site.desk.last_cycle, "acting", None)
    page = browser.get(own + "site")
    assert page.status == 500
    assert "Traceback" not in page.text


def test_before_the_first_cycle_it_says_so(tmp_path: Path) -> None:
    with web_site(tmp_path, NOW, {"alice": 1}) as site:
        site.desk.last_cycle.view = site.desk.last_cycle.result = None
        browser = Browser()
        own = browser.get(site.link("alice")).url
        assert "No cycle has ended yet" in browser.get(own).text
        assert "has not seen the queue yet" in browser.get(own + "queue").text
        site.desk.last_cycle.cycle_ended(False, 1, NOW - 60)
        assert "was skipped" in browser.get(own).text
        site.desk.last_cycle.cycle_ended(True, 1, NOW - 7200)
        assert "2 h ago" in browser.get(own).text


def test_a_drift_alarm_is_on_the_page(site: WebSite, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = site.desk.audit_summary.latest(60)
    assert summary.found is not None
    found = summary.found | {"drift": {"words": "The model no longer fits <here>.", "alarms": []}}
    assert "no longer fits" not in Browser().get(site.url).text
    monkeypatch.setattr(
        site.desk.audit_summary, "latest", lambda _max_age_s: replace(summary, found=found)
    )
    assert "The model no longer fits &lt;here&gt;." in Browser().get(site.url).text


def test_an_audit_log_that_can_not_be_read_is_said(tmp_path: Path) -> None:
    with web_site(tmp_path, NOW, {"alice": 1}) as site:
        for file in tmp_path.glob("audit*"):
            file.unlink()
        site.desk.audit_summary.latest(0)
        site.desk.audit_summary.wait()
        assert "Nothing is in the audit log yet" in Browser().get(site.url).text
        (tmp_path / "audit.jsonl").mkdir()
        site.desk.audit_summary.now_s = lambda: NOW + RETRY_S
        site.desk.audit_summary.latest(0)
        site.desk.audit_summary.wait()
        assert "can&#39;t be read now" in Browser().get(site.url).text


def test_it_stops_though_a_page_just_made_wakes_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread, woken by the page, may see that it is to end before the one who stops it has
    woken it.
    """
    pull, before = trigger._physical_pull, threading.enumerate()

    def late(self: trigger) -> None:
        pull(self)
        for thread in set(threading.enumerate()) - set(before):
            thread.join(5)
        pull(self)

    with served(lambda _environ, _start: [], "127.0.0.1:0"):
        monkeypatch.setattr(trigger, "_physical_pull", late)
    assert set(threading.enumerate()) <= set(before)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9816", "10.0.0.1:9816", "login1:9816", "[::]:9816", "9816", "127.0.0.1:x"]
)
def test_it_is_served_on_this_machine_only(address: str) -> None:
    with pytest.raises(InputError, match=r"daemon\.web is"):
        port_of(address)
    assert port_of("localhost:9816") == port_of(":9816") == 9816


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(InputError, match=r"daemon\.web is .*can't be listened on"),
            served(object(), f"127.0.0.1:{taken.getsockname()[1]}"),
        ):
            pass


def test_its_store_is_for_reading(tmp_path: Path) -> None:
    with (
        web_site(tmp_path, NOW, {"alice": 1}) as site,
        pytest.raises(StoreError, match="reading only"),
    ):
        site.desk.store.save_chain(Chain(chain_id="abcdef12", user="alice", segments=2))


def test_chains_have_their_jobs_name_on_each_page(site: WebSite) -> None:
    name = "<b>night & day</b>"
    (chain, *_) = site.store.chains("alice")
    site.store.save_chain(replace(chain, name=name))
    alice = Browser()
    own = alice.get(site.link("alice")).url
    pages = [
        alice.get(f"{own}{path}?show=all").text for path in ("", f"chain/{chain.chain_id}/alice")
    ]
    assert all("&lt;b&gt;night &amp; day&lt;/b&gt;" in text and name not in text for text in pages)


def test_the_page_opens_on_what_needs_attention(tmp_path: Path) -> None:
    with web_site(tmp_path, NOW, {"alice": 3}) as site:
        alice = Browser()
        page = alice.get(site.link("alice"))
        assert "Needs attention" not in page.text
        (quiet, _, chain) = site.store.chains("alice")
        links = site.store.links("alice", chain.chain_id)
        for link in links:
            if link.state.has_nodes:
                over = replace(link, state=JobState.TIMEOUT, end_s=NOW - 7200)
                site.store.save_link(over)
        text = alice.get(page.url).text
    heading, others = text.index("Needs attention"), text.index("Other chains")
    assert heading < text.index(f">{chain.chain_id}<") < others < text.index(f">{quiet.chain_id}<")
    assert "Interrupted for 2 h: no link runs since job" in text


def test_a_service_that_only_observes_would_have_saved(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Would have saved" not in Browser().get(site.url).text
    summary = site.desk.audit_summary.latest(60)
    assert summary.found is not None
    found = summary.found | {"impact": summary.found["impact"] | {"only_observed": True}}
    monkeypatch.setattr(
        site.desk.audit_summary, "latest", lambda _max_age_s: replace(summary, found=found)
    )
    text = Browser().get(site.url).text
    assert ">Would have saved</h2>" in text
    assert "with Mirage, had it acted (estimated)" in text
    assert "with Mirage (measured)" not in text


def test_what_training_chains_give_up_costs_their_handovers(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = site.desk.audit_summary.latest(60)
    assert summary.found is not None
    impact = summary.found["impact"] | {"training": 1, "handover_cost_s": 900}
    found = summary.found | {"impact": impact}
    assert "of training chains" not in Browser().get(site.url).text
    monkeypatch.setattr(
        site.desk.audit_summary, "latest", lambda _max_age_s: replace(summary, found=found)
    )
    total = summary.found["impact"]["handovers"]
    words = (
        f"Of all {total} handovers, 1 is of training chains: a time limit that they give up costs"
        " 0.25 h in all"
    )
    assert words in Browser().get(site.url).text


# --- the service goes on, whatever visitors do


def test_who_reloads_without_end_has_to_wait_and_others_have_not(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(site.desk, "allowance", Allowance(saved_s=0.2, now_s=lambda: now_s))
    alice, bob = Browser(), Browser()
    own = alice.get(site.link("alice")).url
    answers = [alice.get(own)]
    while answers[-1].status == 200 and len(answers) < 1000:
        answers.append(alice.get(own))
    assert answers[-1].status == 429
    assert answers[-1].headers["retry-after"] == "60"
    assert Browser().get(own).status == 403, "who has no session pays for themselves"
    assert bob.get(site.link("bob")).status == 200
    now_s = 3600.0
    assert alice.get(own).status == 200


def test_who_has_no_session_is_told_apart_by_the_kernel(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.desk, "allowance", Allowance(saved_s=0.2, now_s=lambda: 0.0))
    monkeypatch.setattr("mirage.web.app.holder", lambda *_: "user bob")
    answers = [Browser().get(site.url)]
    while answers[-1].status == 200 and len(answers) < 1000:
        answers.append(Browser().get(site.url))
    assert answers[-1].status == 429
    monkeypatch.setattr("mirage.web.app.holder", lambda *_: "user alice")
    assert Browser().get(site.link("alice")).status == 200


def test_what_is_in_hand_grows_to_a_bound() -> None:
    now_s = 0.0
    allowance = Allowance(now_s=lambda: now_s)
    allowance.take("alice", 12)
    assert allowance.left_s("alice") == pytest.approx(SAVED_S - 12)
    now_s = 15
    assert allowance.left_s("alice") == pytest.approx(SAVED_S - 12 + 15 * SHARE)
    now_s = 10_000
    assert allowance.left_s("alice") == SAVED_S
    for number in range(5000):
        allowance.take(f"user{number}", 0.001)
        now_s += 1
    assert len(allowance._left) <= 1000


def test_a_page_that_hangs_holds_up_no_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = fast_simulator(("n1", "n2"), [Partition("gpu", ("n1", "n2"))], start_s=NOW)
    cluster, clock = SimulatedCluster(sim, user="mirage", operator=True), SimulatedClock(sim)
    last_cycle = LastCycle(acting=Acting(mode=ActingMode.ENFORCE), policy="timer", poll_s=600)
    url = f"sqlite:///{tmp_path}/mirage.db"
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(*_args: object, **_named: object) -> list[Chain]:
        hangs.set()
        assert goes_on.wait(240)
        return []

    audit_summary = AuditSummary(tmp_path / "audit.jsonl", 60)
    with (
        SqlStore.open(url) as store,
        opened(DaemonConfig(web="127.0.0.1:0", store=url), last_cycle, audit_summary) as door,
    ):
        daemon = Daemon(
            cluster,
            store,
            clock,
            Timer(60),
            poll_s=600,
            acting=last_cycle.acting,
            observers=(last_cycle,),
        )
        rounds = CycleGuard(
            daemon,
            store,
            clock,
            RetentionConfig(),
            ensure_exclusive=lambda: None,
            observers=(last_cycle,),
        )
        browser = Browser()
        own = browser.get(door("alice")).url
        monkeypatch.setattr("mirage.web.app.chain_list", hang)
        visits = [threading.Thread(target=browser.get, args=(own,)) for _ in range(20)]
        for visit in visits:
            visit.start()
        assert hangs.wait(240)
        assert rounds.run()
        assert last_cycle.view is not None
        assert last_cycle.result is not None
        assert last_cycle.result.ok
        goes_on.set()
        for visit in visits:
            visit.join()
        monkeypatch.undo()
        assert "Queue" in browser.get(own + "queue").text


# --- as installed


@contextlib.contextmanager
def running(tmp_path: Path, verb: str = "daemon", **more: str) -> Iterator[dict[str, str]]:
    """A daemon on fake Slurm commands whose page is on a free port; gives the environment to ask it
    in.
    """
    FakeSlurm.create(tmp_path, 2, int(time.time()))
    env = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "FAKE_SLURM_DIR": str(tmp_path),
        "FAKE_SLURM_USER": "root",
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "HOME": str(tmp_path),
        "MIRAGE_SOCKET": f"{tmp_path}/mirage.sock",
        "MIRAGE__DAEMON__STORE": f"sqlite:///{tmp_path}/mirage.db",
        "MIRAGE__DAEMON__SOCKET": f"{tmp_path}/mirage.sock",
        "MIRAGE__DAEMON__WEB": "127.0.0.1:0",
        **more,
    }
    words = [sys.executable, "-m", "mirage.cli.main", verb, "--config", os.devnull]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(240)
        with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as daemon:
            try:
                while manager.recv(4096) != b"READY=1":
                    pass
                yield env
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(240) == 0, daemon.stderr.read() if daemon.stderr else ""
            finally:
                daemon.kill()


def mirage(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "mirage.cli.main", *words]
    return subprocess.run(program, env=env, capture_output=True, text=True, timeout=240)


def test_mirage_web_prints_a_link_to_the_daemons_page(tmp_path: Path) -> None:
    with running(tmp_path) as env:
        told = json.loads(mirage(env, "web", "--json").stdout)
        assert told["user"] is None, "the daemon's own user sees all"
        assert "Chains" in Browser().get(told["url"]).text
        words = mirage(env, "web").stdout
        port = told["url"].split(":")[2].split("/")[0]
        assert f"ssh -L {port}:127.0.0.1:{port} " in words
        assert Browser().get(words.split()[0]).status == 200


def test_without_a_daemon_mirage_web_says_what_to_do(tmp_path: Path) -> None:
    done = mirage(os.environ | {"MIRAGE_SOCKET": str(tmp_path / "none")}, "web")
    assert done.returncode == 1
    assert done.stderr.startswith("mirage web: no daemon answers at")


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Starts a service that must not start; gives what it says."""

    def start(verb: str, address: str) -> str:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("MIRAGE__DAEMON__WEB", address)
        monkeypatch.setenv("MIRAGE__DAEMON__STORE", f"sqlite:///{tmp_path}/mirage.db")
        monkeypatch.setenv("MIRAGE__DAEMON__SOCKET", f"{tmp_path}/mirage.sock")
        assert main([verb, "--config", os.devnull]) == 2
        return capsys.readouterr().err

    return start


@pytest.mark.parametrize(
    ("verb", "address", "said"),
    [
        ("agent", "127.0.0.1:0", "no socket"),
        ("daemon", "0.0.0.0:9816", "no TLS"),
        ("daemon", "here", "HOST:PORT"),
    ],
)
def test_what_can_not_be_served_is_refused_at_the_start(
    refused: Callable[..., str], verb: str, address: str, said: str
) -> None:
    assert said in refused(verb, address)


def test_without_the_extra_the_daemon_says_what_to_install(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mirage.web.page", None)
    assert "pip install 'mirage-slurm[web]'" in refused("daemon", "127.0.0.1:0")


def test_the_queue_page_has_ones_own_elastic_jobs(tmp_path: Path) -> None:
    def task(job_id: int, user: str, name: str, *, extra: bool = False) -> Job:
        tag = TaskTag(job=f"{user[:5]:x<10}", task=name, is_extra=extra)
        return Job(
            job_id=job_id,
            user=user,
            partition="gpu",
            state=JobState.RUNNING,
            nodes=1,
            submit_s=NOW - 60,
            gpus=3,
            comment=format_task_tag(tag),
            node_names=(f"g{job_id}",),
        )

    jobs = (task(1, "alice", "c1"), task(2, "alice", "w1", extra=True), task(3, "bob", "w1"))
    with web_site(tmp_path, NOW, {"alice": 1, "bob": 1}) as site:
        site.desk.last_cycle.decisions_made(Snapshot(at_s=NOW, jobs=jobs, nodes=()), [])
        browser = Browser()
        text = browser.get(browser.get(site.link("alice")).url + "queue").text
        assert "Your elastic jobs" in text
        assert "alicexxxxx" in text
        assert "g1, g2" in text
        assert "bobxxxxxxx" not in text
        root = Browser()
        text = root.get(root.get(site.link(None)).url + "queue").text
        assert "alicexxxxx" in text
        assert "bobxxxxxxx" in text
