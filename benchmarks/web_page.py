"""How long the web page takes with many chains, and what a flood of visits costs the daemon's
cycle.

    .venv/bin/python -m benchmarks.web_page [--queued 20000] [--chains 2000] [--cycles 5]

Slurm's commands are replaced by answers of that size (`tick_cost`). The daemon and its page run in
this process, as they do in service; visitors are processes of their own. Seed 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from contextlib import ExitStack, closing
from http.cookiejar import CookieJar
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

from benchmarks.tick_cost import Slurm, StepClock, queue
from mirage.config import DaemonConfig, PolicyConfig
from mirage.daemon.audit import Audit
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.cycle import Daemon
from mirage.daemon.last_cycle import LastCycle
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.provision.policies.registry import make_policy
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from mirage.store.journal import Journal
from mirage.store.repository import SqlStore
from mirage.web.page import opened

VISITS, PAUSE_S = 10, 2.0
FLOOD = 4
"""Visitors at once who reload without a pause."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=2_000)
    parser.add_argument("--cycles", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = f"sqlite:///{folder}/mirage.db"
        last_cycle = LastCycle(
            acting=Acting(mode=ActingMode.ENFORCE), policy="quantile", poll_s=600
        )
        store = stack.enter_context(SqlStore.open(url))
        rounds = Cycles(store, last_cycle, Path(folder), args.queued, args.chains)
        rounds.run(2)
        audit_summary = stack.enter_context(
            closing(AuditSummary(Path(folder) / "audit.jsonl", 10_800))
        )
        door = stack.enter_context(
            opened(DaemonConfig(web="127.0.0.1:0", store=url), last_cycle, audit_summary)
        )
        print(
            f"{args.queued} queued jobs, {args.chains} chains; each page {VISITS} times, one visit"
            " after the other:"
        )
        for user in ("user7", None):
            for name, times in latencies(door(user)).items():
                middle, worst = 1e3 * median(times), 1e3 * max(times)
                print(
                    f"  {user or 'root':6} {name:10} median {middle:4.0f} ms, worst {worst:4.0f} ms"
                )
        alone = rounds.run(args.cycles)
        stop = multiprocessing.Event()
        visitors = [
            multiprocessing.Process(target=flood, args=(door(None), stop), daemon=True)
            for _ in range(FLOOD)
        ]
        for visitor in visitors:
            visitor.start()
        flooded = rounds.run(args.cycles)
        stop.set()
        for visitor in visitors:
            visitor.join()
    print(
        f"a cycle, median of {args.cycles}: {median(alone):.1f} s, and {median(flooded):.1f} s"
        f" while {FLOOD} visitors reload root's list of chains without a pause"
    )


class Cycles:
    """A daemon on Slurm's made-up answers."""

    def __init__(
        self, store: SqlStore, last_cycle: LastCycle, folder: Path, queued: int, chains: int
    ) -> None:
        self._clock, self._slurm, self._size = StepClock(), Slurm(), (queued, chains)
        self._clock.time_s = int(time.time())
        acting = last_cycle.acting
        audit = Audit(
            Journal(path=folder / "audit.jsonl", max_bytes=64 << 20, max_age_s=7 * 86_400, keep=20),
            acting.mode,
        )
        self._daemon = Daemon(
            CommandCluster(Runner(execute=self._slurm.execute), now_s=self._clock.now_s),
            store,
            self._clock,
            make_policy(PolicyConfig(name="quantile")),
            poll_s=600,
            acting=acting,
            observers=(last_cycle, audit),
            baselines=(Reactive(), Timer(10_800)),
        )

    def run(self, cycles: int) -> list[float]:
        """Seconds by the wall clock of each cycle."""
        times = []
        for _ in range(cycles):
            self._slurm.show(queue(*self._size, self._clock.time_s))
            begun = time.perf_counter()
            assert self._daemon.run_cycle()
            times.append(time.perf_counter() - begun)
            self._clock.time_s += 600
        return times


def latencies(link: str) -> dict[str, list[float]]:
    """Page -> seconds of each visit, from the request to the last byte."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    with browser.open(link) as answer:
        own = answer.url
    found: dict[str, list[float]] = {}
    for name, path in (
        ("chains", ""),
        ("decisions", "decisions"),
        ("queue", "queue"),
        ("site", "site"),
    ):
        for _ in range(VISITS):
            time.sleep(PAUSE_S)  # so that the allowance lasts
            begun = time.perf_counter()
            assert visit(browser, own + path) == 200
            found.setdefault(name, []).append(time.perf_counter() - begun)
    return found


def visit(browser: OpenerDirector, url: str) -> int:
    """The answer's status, once all of it is read."""
    try:
        with browser.open(url) as answer:
            answer.read()
            return int(answer.status)
    except HTTPError as error:
        return error.code


def flood(link: str, stop: Event) -> None:
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    with browser.open(link) as answer:
        own = answer.url
    while not stop.is_set():
        visit(browser, own)


if __name__ == "__main__":
    main()
