"""Chains on a real slurmctld whose clock is fast; scripts/real-chains says what it is."""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean

from benchmarks.real_chains_client import Client, answered, from_history
from benchmarks.real_chains_judge import (
    FIELDS,
    HANDOVER_S,
    Figures,
    JobRecord,
    Verdict,
    figures,
    judge,
    parse_jobs,
    parse_notes,
    waits_h,
)
from benchmarks.real_chains_plan import (
    HOUR_S,
    LINK_MIN,
    SUBMITTED,
    WORK,
    ChainPlan,
    OtherJob,
    chain_plans,
    fault_times,
    kill_times,
    other_jobs,
)
from mirage.cli.signals import ending_on_sigterm
from tests.conformance.soak_world import POLL_S, Clock, DaemonWorld, FastSite, checked
from tests.slurm.site import ALICE, BOB, CAROL, until

WARM_UP_H = 4
"""Jobs of others run so long before the chains come."""
LOOK_S = 4 * HOUR_S
"""Between two looks at `mirage status`."""
AGAIN_S = 300


class ChainWorld(DaemonWorld):
    """The daemon with a store of its own, in one of the modes."""

    def up(self, mode: str) -> None:
        self.quicken()
        checked(["rm", "-rf", str(self.folder)])
        self.folder.mkdir()
        (self.folder / "mirage.toml").write_text(
            f'[daemon]\npoll_s = {POLL_S}\nstore = "sqlite:///{self.folder}/mirage.db"\n'
            f'socket = "{self.site.socket}"\n[acting]\nmode = "{mode}"\nmax_age_s = 900\n'
            f'disable_file = "{self.folder}/disabled"\n'
        )
        self.give_folder()
        self.start_daemon()
        self.await_daemon()

    def down(self) -> None:
        self.stop_daemon()
        (self.site.folder / "etc" / "environment").unlink(missing_ok=True)


class Run:
    """Events in the order of their simulated times."""

    def __init__(self, world: ChainWorld, plans: list[ChainPlan], hours: float) -> None:
        self.world = world
        self.plans = {plan.name: plan for plan in plans}
        self.chains: dict[str, str] = {}
        self.end_s = (hours + WARM_UP_H) * HOUR_S
        self.client = Client(world.clock, self._answers())
        self.restarts = 0
        self._failed = 0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def schedule(
        self, others: list[OtherJob], kills: list[tuple[int, int]], faults: list[tuple[int, str]]
    ) -> None:
        for job in others:
            self._at(job.submit_s, partial(self._submit_other, job))
        for number, plan in enumerate(self.plans.values()):
            at_s = WARM_UP_H * HOUR_S + number * 600
            self._at(at_s, partial(self._submit_chain, plan))
        for at_s, away_s in kills:
            self._at(at_s, partial(self._kill, away_s))
        for at_s, name in faults:
            self._at(at_s, partial(self._fail, name))
        for look in range(int(self.end_s / LOOK_S)):
            self._at(look * LOOK_S, self._look)

    def run(self) -> None:
        clock = self.world.clock
        self.client.start()
        while clock.elapsed_s() < self.end_s:
            while self._due and self._due[0][0] <= clock.elapsed_s():
                heapq.heappop(self._due)[2]()
            self.restarts += self.world.restart_dead_daemon()
            time.sleep(0.1)

    def cancel_chains(self) -> None:
        for user in (ALICE, BOB):
            self.world.site.run(user, "mirage", "cancel", "--all", "--yes", timeout_s=300)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def _print(self, text: str) -> None:
        print(f"{self.world.clock.elapsed_s() / HOUR_S:5.2f} h  {text}", flush=True)

    def _submit_other(self, job: OtherJob) -> None:
        self.world.site.run(
            CAROL,
            "sbatch",
            "-o/dev/null",
            f"-N{job.nodes}",
            f"-t{job.limit_min}",
            "--wrap",
            f"sleep {job.run_s}",
            timeout_s=300,
        )

    def _submit_chain(self, plan: ChainPlan) -> None:
        site = self.world.site
        words = plan.words(str(site.home(plan.user) / "chain.sh"))
        done = site.run(plan.user, "mirage-submit", "--json", *words, check=False, timeout_s=300)
        if done.returncode:
            self._print(f"{plan.name}: mirage-submit: {done.stderr.strip()[-300:]}")
            at_s = self.world.clock.elapsed_s() + AGAIN_S
            self._at(at_s, partial(self._submit_chain, plan))
            return
        self.chains[plan.name] = json.loads(done.stdout)["chain"]

    def _kill(self, away_s: int) -> None:
        self._print(f"the daemon is killed, away for {away_s} s")
        give_back = self.world.held("daemon", self.world.kill_daemon, self.world.start_daemon)
        self._at(self.world.clock.elapsed_s() + away_s, give_back)

    def _answers(self) -> dict[str, Path]:
        home = self.world.site.home
        return {
            name: home(plan.user) / "chains" / name / "answers"
            for name, plan in self.plans.items()
            if plan.mode == "service"
        }

    def _fail(self, name: str) -> None:
        """Kills a service's server, or takes the node of its link down for ten minutes; in turn."""
        self._failed += 1
        if self._failed % 2:
            pid = (self._answers()[name].parent / "server").read_text()
            self._print(f"{name}: its server is killed")
            self.world.site.run("root", "kill", "-9", pid.strip(), check=False)
            return
        listed = self.world.site.run("root", "squeue", "-h", "-t", "R", "-n", name, "-o", "%B")
        for node in listed.stdout.split()[-1:]:
            self._print(f"{name}: node {node} is down")
            self._set_node(node, "state=down", "reason=test")
            back_s = self.world.clock.elapsed_s() + 600
            self._at(back_s, partial(self._set_node, node, "state=resume"))

    def _set_node(self, node: str, *words: str) -> None:
        self.world.site.run(
            "root", "scontrol", "update", f"nodename={node}", *words, check=False, timeout_s=300
        )

    def _look(self) -> None:
        """Keeps what users see, in the daemon's folder: `status-HOURS`."""
        told = [
            self.world.site.run(user, "mirage", "status", check=False, timeout_s=300)
            for user in (ALICE, BOB)
        ]
        squeue = self.world.site.run("root", "squeue", "-h", "-t", "PD,R", "-o", "%u %t %D")
        rows = [line.split() for line in squeue.stdout.splitlines()]
        waiting = sum(int(nodes) for _, state, nodes in rows if state == "PD")
        running = sum(int(nodes) for _, state, nodes in rows if state == "R")
        self._print(f"nodes: {running} busy, {waiting} asked for by waiting jobs")
        hours = int(self.world.clock.elapsed_s() / HOUR_S)
        text = "\n".join(done.stdout + done.stderr for done in told)
        (self.world.folder / f"status-{hours:03}").write_text(text)


def evidence(
    run: Run, began_s: int, end_s: int, queued: set[str], asked: dict[str, dict[str, object]]
) -> dict[str, object]:
    """Figures and verdicts of all chains, and the waits of the others' jobs. ``asked``: of services,
    what they answered and what Mirage says of that.
    """
    site = run.world.site
    day = 24 * HOUR_S
    period = ["-S", _stamp(began_s - day), "-E", _stamp(end_s + day)]
    # All of a user's jobs: the filter is by name, below.
    told = site.run("root", "sacct", "-a", "-n", "-X", "-P", "-D", *period, f"--format={FIELDS}")
    records = [job for job in parse_jobs(told.stdout) if (job.eligible_s or 0) >= began_s]
    chains: dict[str, dict[str, object]] = {}
    for name, plan in run.plans.items():
        jobs = [job for job in records if job.name == name]
        journal = site.home(plan.user) / "chains" / name / "journal"
        notes = parse_notes(journal.read_text()) if journal.exists() else []
        chains[name] = {
            "chain": run.chains.get(name, ""),
            "kind": plan.kind,
            "mode": plan.mode,
            "nodes": plan.nodes,
            "options": " ".join(plan.options),
            **({"loads_s": plan.loads_s, **asked[name]} if name in asked else {}),
            "figures": figures(plan, jobs, notes, end_s),
            "verdict": judge(plan, jobs, notes, queued=queued, end_s=end_s),
            "ends": dict(Counter(_end_of(job, end_s) for job in jobs)),
        }
    others = [job for job in records if job.segment == 0]
    return {"chains": chains, "waits_of_others_h": waits_h(others)}


def _end_of(job: JobRecord, end_s: int) -> str:
    return "at the end" if job.end_s is None or job.end_s >= end_s else job.state


def _stamp(at_s: int) -> str:
    """As sacct takes it: local time."""
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%dT%H:%M:%S")


def summary(chains: dict[str, dict[str, object]]) -> dict[str, dict[str, float]]:
    """Means over the chains of a mode, and sums of what is wrong."""
    found: dict[str, dict[str, float]] = {}
    for mode in ("train", "service"):
        mine = [chain for chain in chains.values() if chain["mode"] == mode]
        rows = [
            row for chain in mine if isinstance(row := chain["figures"], Figures) and row.wall_h
        ]
        if not rows:
            continue
        found[mode] = {
            "chains": len(rows),
            "goodput": round(
                sum(r.goodput * r.wall_h for r in rows) / sum(r.wall_h for r in rows), 4
            ),
            "worked": round(
                sum(r.worked * r.wall_h for r in rows) / sum(r.wall_h for r in rows), 4
            ),
            "interrupted_h": round(sum(r.interrupted_h for r in rows), 1),
            "handovers": sum(r.handovers for r in rows),
            "cut_young": sum(r.cut_young for r in rows),
            "twice_node_h": round(sum(r.twice_node_h for r in rows), 1),
            "mean_wall_h": round(fmean(r.wall_h for r in rows), 1),
        }
        if mode == "service":
            found[mode] |= answered(mine)
    return found


def report(policy: str, found: dict[str, object]) -> bool:
    """Prints the tables; whether all is well."""
    chains = found["chains"]
    assert isinstance(chains, dict)
    print(
        f"\n{policy}\n{'chain':8} {'kind':8} {'nodes':>5} {'goodput':>8} {'worked':>7}"
        f" {'interrupted':>11} {'handovers':>9} {'young':>5} {'twice':>6}  ends"
    )
    good = True
    for name, chain in chains.items():
        row, verdict = chain["figures"], chain["verdict"]
        print(
            f"{name:8} {chain['kind']:8} {chain['nodes']:5} {row.goodput:8.1%} {row.worked:7.1%}"
            f" {row.interrupted_h:9.1f} h {row.handovers:9} {row.cut_young:5}"
            f" {row.twice_node_h:6.2f}  {chain['ends']}"
        )
        if "client" in chain:
            print(f"    loads for {chain['loads_s']} s; asked: {chain['client']}")
            print(f"    history: {chain['history']}")
        for kind, texts in asdict(verdict).items():
            for text in texts:
                print(f"    {kind}: {text}")
        good = good and verdict.is_good
    print(json.dumps({"by mode": found["by_mode"], "others": found["waits_of_others_h"]}, indent=1))
    return good


def merge(out: Path, run: str, found: dict[str, object], conditions: dict[str, object]) -> None:
    """Puts the result of a policy and seed into the JSON, in place of their last one."""
    content = json.loads(out.read_text()) if out.exists() else {}
    runs = content.get("runs", {}) | {run: found | {"conditions": conditions}}
    fresh = out.with_suffix(".new")
    content = {"handover_cost_s": HANDOVER_S, "link_min": LINK_MIN, "runs": runs}
    text = json.dumps(content, indent=1, default=_as_dict)
    fresh.write_text(text + "\n")
    fresh.replace(out)


def _as_dict(record: object) -> dict[str, object]:
    assert isinstance(record, Figures | Verdict)
    return asdict(record)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="folder of scripts/slurm-up")
    parser.add_argument("--clock-library", type=Path, required=True)
    parser.add_argument("--policy", choices=["reactive", "default"], default="default")
    parser.add_argument("--hours", type=float, default=72)
    parser.add_argument("--chains", type=int, default=12)
    parser.add_argument("--mode", choices=["train", "service"], default="")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--load", type=float, default=22, help="nodes that others ask for")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=80)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def prepare(site: FastSite) -> None:
    for user in (ALICE, BOB, CAROL):
        site.run(user, "rm", "-rf", "chains", ".mirage")
        site.script(user, "chain.sh", SUBMITTED)
        site.script(user, "work.sh", WORK)


def queued_names(run: Run) -> set[str]:
    """Of the jobs that slurmctld has as running or waiting."""
    done = run.world.site.run("root", "squeue", "-h", "-o", "%j", timeout_s=300)
    return set(done.stdout.split())


def main() -> int:
    """Exit code 0: no chain lost, no link doubled, one writer, all work saved; 1: else."""
    args = parse()
    clock = Clock(args.dir / "clock", args.speed)
    began_s, began = clock.now_s(), time.monotonic()
    site = FastSite(args.dir, str(args.clock_library), str(clock.path))
    prepare(site)
    world = ChainWorld(site, clock)
    run = Run(world, chain_plans(args.chains, args.mode), args.hours)
    total_h = args.hours + WARM_UP_H
    run.schedule(
        other_jobs(total_h, args.load, args.seed),
        kill_times(args.kills, total_h, args.seed),
        fault_times(args.faults, list(run.client.answers), total_h, args.seed),
    )
    with ending_on_sigterm():
        try:
            world.up("enforce" if args.policy == "default" else "observe")
            run.run()
            queued, end_s = queued_names(run), clock.now_s()
            answers, recorded = run.client.stop(), from_history(site, (ALICE, BOB))
            run.cancel_chains()
            until(lambda: not (queued_names(run) & run.plans.keys()), 120, "the chains to end")
            time.sleep(3 * POLL_S / args.speed)  # the daemon's last cycles
            asked = {
                name: {"client": answers[name], "history": recorded.get(name, {})}
                for name in answers
            }
            found = evidence(run, began_s, end_s, queued, asked)
        finally:
            world.down()
    chains = found["chains"]
    assert isinstance(chains, dict)
    found["by_mode"] = summary(chains)
    conditions = {
        "command": f"scripts/real-chains --policy {args.policy} --hours {args.hours:g} --chains"
        f" {args.chains}{f' --mode {args.mode}' if args.mode else ''} --load {args.load:g} --kills"
        f" {args.kills} --faults {args.faults} --seed {args.seed} --speed {args.speed:g}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "real_s": round(time.monotonic() - began),
        "poll_s": POLL_S,
        "daemon_restarts": run.restarts,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "slurm": subprocess.run(
            ["slurmctld", "-V"], capture_output=True, text=True, check=False
        ).stdout.strip(),
    }
    alone = f", {args.mode} alone" if args.mode else ""
    merge(args.out, f"{args.policy}{alone}, seed {args.seed}", found, conditions)
    return 0 if report(args.policy, found) and len(run.chains) == args.chains else 1


if __name__ == "__main__":
    sys.exit(main())
