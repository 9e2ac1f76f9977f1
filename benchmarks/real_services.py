"""Clients without pause at services on a real Slurm, through `mirage gateway`: which requests are lost, by
event. Run by scripts/real-services, in real time: a clock that runs faster makes no server faster.

Beside them the simplest rule: a client that asks squeue every 5 s for the newest running job, and goes to
its node.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.real_services_client import Clients, Failure
from tests.slurm.site import ALICE, OPERATOR, ROOT, Site, free_port, until

SERVICE = """#!/bin/sh
#SBATCH -N1 -n1 -t{minutes} -o {home}/{name}.%j.log -J {name}
#MIRAGE --mode=service --port=free --health-http=/health --startup={load}s
exec {python} {chat} --port "$MIRAGE_PORT" --load-s {load} --token-s 0.05
"""
NEAR_S = 45
"""A failure so long after an event counts as its."""
POLL_S = 5
_USUAL = ("handover", "end of a link")


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    replicas: int
    load_s: int
    has_haproxy: bool = False


PLANS = (Plan("one", 1, 20), Plan("two", 2, 20, True), Plan("slow", 1, 60), Plan("three", 3, 40))


@dataclass
class Run:
    """What is under way."""

    site: Site
    minutes: int
    daemon: subprocess.Popen[bytes] | None = None
    gateways: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, what, of which service; empty: all)."""
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def folder(self) -> Path:
        return self.site.folder / "mirage"

    def note(self, what: str, service: str = "") -> None:
        self.events.append((time.time(), what, service))
        print(f"{time.strftime('%H:%M:%S')} {what} {service}", flush=True)

    def start_daemon(self) -> None:
        config = str(self.folder / "mirage.toml")
        self.daemon = self.site.start(
            OPERATOR, "mirage", "daemon", "--config", config, log=self.folder / "daemon.log"
        )

    def submit(self, plan: Plan) -> None:
        text = SERVICE.format(
            minutes=self.minutes,
            home=self.site.home(ALICE),
            name=plan.name,
            python=self.site.bin / "python",
            chat=self.site.folder / "chat.py",
            load=plan.load_s,
        )
        script = self.site.script(ALICE, f"{plan.name}.sh", text)
        words = [f"--replicas={plan.replicas}"] if plan.replicas > 1 else []
        self.site.run(ALICE, "mirage-submit", *words, script)

    def start_gateway(self, plan: Plan) -> None:
        port = self.ports.setdefault(plan.name, free_port())
        more = ["--haproxy", f"{self.site.home(ALICE)}/haproxy.sock"] if plan.has_haproxy else []
        log = self.folder / f"gateway.{plan.name}.log"
        self.gateways[plan.name] = self.site.start(
            ALICE, "mirage", "gateway", f"{plan.name}:{port}", *more, log=log
        )

    def start_haproxy(self, plan: Plan) -> tuple[subprocess.Popen[bytes], int]:
        public, home = free_port(), self.site.home(ALICE)
        words = ("mirage", "gateway", f"{plan.name}:{self.ports[plan.name]}", "--print-config")
        text = self.site.run(ALICE, *words, "haproxy").stdout
        text = text.replace("SOCKET mode", f"{home}/haproxy.sock mode")
        text = text.replace(":8443 ssl crt CERTIFICATE.pem alpn h2,http/1.1", f"127.0.0.1:{public}")
        self.site.script(ALICE, "haproxy.cfg", text)
        log = self.folder / "haproxy.log"
        return self.site.start(
            ALICE, "haproxy", "-db", "-f", f"{home}/haproxy.cfg", log=log
        ), public

    def endpoints(self, name: str) -> list[dict[str, int]]:
        done = self.site.run(ALICE, "mirage", "endpoint", name, "--json", check=False)
        return list(json.loads(done.stdout)["endpoints"]) if done.returncode == 0 else []

    # ---- Events

    def kill_server(self, plan: Plan) -> None:
        found = self.endpoints(plan.name)
        if found:
            words = f"chat.py --port {found[0]['port']} "
            pids = self.site.run("root", "pgrep", "-f", words, check=False).stdout.split()
            self.note("server killed", plan.name)
            if pids:
                os.kill(int(pids[-1]), signal.SIGKILL)

    def kill_gateway(self, plan: Plan) -> None:
        self.note("gateway killed", plan.name)
        self.gateways[plan.name].kill()
        self.gateways[plan.name].wait()
        self.start_gateway(plan)

    def kill_daemon(self) -> None:
        self.note("daemon killed")
        assert self.daemon
        os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()
        time.sleep(20)
        self.start_daemon()

    def stop_slurmctld(self, for_s: int) -> None:
        self.note("slurmctld down")
        self.site.slurm("kill", "slurmctld")
        time.sleep(for_s)
        self.site.slurm("start", "slurmctld")

    def fail_node(self, plan: Plan) -> None:
        found = self.endpoints(plan.name)
        if found:
            node = self.site.job(found[0]["job_id"]).get("NodeList", "")
            self.note("node down", plan.name)
            self.site.run(
                "root", "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test"
            )
            time.sleep(20)
            self.site.run(
                "root", "scontrol", "update", f"NodeName={node}", "State=RESUME", check=False
            )

    def watch(self) -> None:
        """Notes each handover: an endpoint that goes while another one of its chain is there."""
        before: dict[str, dict[str, int]] = {}
        chains = self.site.home(ALICE) / ".mirage" / "chains"
        while not self.is_over.wait(0.5):
            for folder in chains.glob("*"):
                links = [int(path.suffix[1:]) for path in folder.glob("endpoint.*")]
                known = before.setdefault(folder.name, {})
                record = (folder / "chain").read_text()
                name = next(line[5:] for line in record.splitlines() if line.startswith("name="))
                for link in set(known) - set(map(str, links)):
                    kind = (
                        "handover" if any(each > int(link) for each in links) else "end of a link"
                    )
                    self.note(kind, name)
                before[folder.name] = dict.fromkeys(map(str, links), 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--minutes", type=int, default=25)
    parser.add_argument("--limit-min", type=int, default=4, help="time limit of a link")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "real_services.json")
    args = parser.parse_args()
    run = Run(Site(args.dir), args.limit_min)
    prepare(run)
    proxies, clients = [], {}
    try:
        run.start_daemon()
        for plan in PLANS:
            run.submit(plan)
            run.start_gateway(plan)
        for plan in PLANS:
            token = run.site.home(ALICE) / f".mirage/services/{plan.name}/token"
            until(token.exists, 120, "the token")
            port = run.ports[plan.name]
            if plan.has_haproxy:
                until(lambda: run.endpoints("two"), 200, "a replica")
                proxy, port = run.start_haproxy(plan)
                proxies.append(proxy)
            clients[plan.name] = a_set(port, token.read_text().strip())
        clients["squeue"] = a_set(0, "", Newest(run.site))
        until(lambda: all(run.endpoints(plan.name) for plan in PLANS), 300, "all services")
        threading.Thread(target=run.watch, daemon=True).start()
        with run.site.full(backlog=4, run_s=(20, 60), limit_min=2):
            began = time.time()
            for each in clients.values():
                each.start()
            disturb(run, began + 60 * args.minutes)
    finally:
        run.is_over.set()
        for each in clients.values():
            each.stop()
        for process in [*run.gateways.values(), *proxies, *([run.daemon] if run.daemon else [])]:
            os.killpg(process.pid, signal.SIGKILL)
        run.site.cancel_all()
    report(run, clients, args.out, time.time() - began)


def a_set(port: int, token: str, where: Newest | None = None) -> Clients:
    return Clients(port, token, streams=1, keep_alive=1, fresh=1, pause_s=0.2, where=where)


class Newest:
    """Where the newest running job of service `one` is, by squeue. The job's id tells the port."""

    def __init__(self, site: Site) -> None:
        self._site, self._at_s, self._found = site, 0.0, None

    def __call__(self) -> tuple[str, int] | None:
        if time.time() - self._at_s > POLL_S:
            self._at_s = time.time()
            words = ("squeue", "-h", "-t", "R", "-n", "one", "-S", "-S", "-o", "%A")
            jobs = self._site.run(ALICE, *words, check=False).stdout.split()
            self._found = ("127.0.0.1", 20000 + int(jobs[0]) % 12000) if jobs else None
        return self._found


def prepare(run: Run) -> None:
    run.folder.mkdir(mode=0o755, exist_ok=True)
    (run.folder / "mirage.toml").write_text(
        f'[daemon]\npoll_s = 5\nstore = "sqlite:///{run.folder}/mirage.db"\nsocket ='
        f' "{run.site.socket}"\n[acting]\nmode = "enforce"\n'
    )
    subprocess.run(["chown", "-R", f"{OPERATOR}:", str(run.folder)], check=True)
    example = ROOT / "docs" / "examples" / "chat.py"
    (run.site.folder / "chat.py").write_text(example.read_text())


def disturb(run: Run, until_s: float) -> None:
    one, two, slow, three = PLANS
    acts = [
        lambda: run.kill_server(three),
        lambda: run.kill_gateway(one),
        run.kill_daemon,
        lambda: run.kill_server(one),
        lambda: run.kill_gateway(two),
        lambda: run.fail_node(two),
        lambda: run.stop_slurmctld(100),
        lambda: run.kill_gateway(three),
        lambda: run.fail_node(three),
        lambda: run.kill_server(slow),
        run.kill_daemon,
    ]
    pause_s = (until_s - time.time()) / (len(acts) + 1)
    for act in acts:
        time.sleep(max(0.0, min(pause_s, until_s - time.time())))
        act()
    time.sleep(max(0.0, until_s - time.time()))


def cause(failure: Failure, service: str, events: list[tuple[float, str, str]]) -> str:
    """The event that a failure counts as: of several one of its own service, and a fault before a handover."""
    near = [
        (whose == service, what not in _USUAL, at_s, what)
        for at_s, what, whose in events
        if at_s - 15 <= failure.at_s <= at_s + NEAR_S and whose in ("", service)
    ]
    return max(near)[3] if near else "none"


def report(run: Run, clients: dict[str, Clients], out: Path, took_s: float) -> None:
    counted = Counter(what for _, what, _ in run.events)
    rows = {}
    for name, each in clients.items():
        service = "one" if name == "squeue" else name
        times = sorted(seconds for _, seconds in each.answers)
        causes = Counter(cause(failure, service, run.events) for failure in each.failures)
        rows[name] = {
            "requests": each.count + len(each.failures),
            "failed": len(each.failures),
            "by_event": dict(causes),
            "median_s": times[len(times) // 2] if times else None,
            "p99_s": times[int(0.99 * (len(times) - 1))] if times else None,
            "slowest_s": times[-1] if times else None,
            "examples": [failure.why for failure in each.failures[:5]],
        }
        print(name, json.dumps(rows[name]))
    found = {"minutes": took_s / 60, "limit_min": run.minutes, "events": counted, "clients": rows}
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(counted))


if __name__ == "__main__":
    main()
