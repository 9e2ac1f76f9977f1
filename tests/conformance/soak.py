"""The soak itself; scripts/soak says what it is, brings Slurm up, and takes it down."""

from __future__ import annotations

import argparse
import heapq
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from mirage.cli.signals import ending_on_sigterm
from tests.conformance.soak_chains import HOUR_S, SCRIPT, Plan, plans
from tests.conformance.soak_check import (
    Evidence,
    Verdict,
    accepted_jobs,
    judge,
    parse_journal,
    parse_sacct,
    runaway,
)
from tests.conformance.soak_faults import KINDS, Fault, begin, faults
from tests.conformance.soak_world import LEAD_S, POLL_S, Clock, FastSite, World
from tests.slurm.site import ALICE, BOB, CAROL, OPERATOR

AGAIN_S = 300
"""A user who gets no answer tries again after so long."""
DRAIN_S = 6 * HOUR_S


@dataclass
class Chain:
    """A chain that was submitted."""

    plan: Plan
    chain_id: str
    expected_end: str
    expected_links: int


class Soak:
    """Events in the order of their simulated times."""

    def __init__(self, world: World, planned: list[Plan], disturbances: list[Fault]) -> None:
        self.world = world
        self.chains: dict[str, Chain] = {}
        self.faults: list[dict[str, object]] = []
        self.restarts = 0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        for plan in planned:
            self._at(plan.submit_s, lambda plan=plan: self._submit(plan))
        for fault in disturbances:
            self._at(fault.at_s, lambda fault=fault: self._disturb(fault))

    def run(self, hours: float) -> None:
        """Until all chains are over and no fault lasts; at most `DRAIN_S` beyond ``hours``."""
        told_s = 0.0
        while (at_s := self.world.clock.elapsed_s()) < hours * HOUR_S + DRAIN_S:
            while self._due and self._due[0][0] <= self.world.clock.elapsed_s():
                self._do(heapq.heappop(self._due)[2])
            self.restarts += self.world.restart_dead_daemon()
            if at_s > told_s + HOUR_S and not self.world.is_held("slurmctld"):
                told_s = at_s
                self.world.release_failed_launches()
                over = self._over()
                print(f"{at_s / HOUR_S:5.1f} h: {len(self.chains)} chains, {over} over", flush=True)
                if not self._due and over == len(self.chains) and at_s > hours * HOUR_S:
                    return
            time.sleep(0.1)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def _again(self, act: Callable[[], None]) -> None:
        self._at(self.world.clock.elapsed_s() + AGAIN_S, act)

    def _do(self, act: Callable[[], None]) -> None:
        """What fails on a busy machine (a daemon of Slurm that is not up within half a minute) is
        tried again.
        """
        try:
            act()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self._tell(f"tried again later: {str(error)[-300:]}")
            self._again(act)

    def _tell(self, text: str) -> None:
        print(f"{self.world.clock.elapsed_s() / HOUR_S:5.2f} h  {text}", flush=True)

    def _over(self) -> int:
        """Chains of which Slurm has no living job."""
        told = self.world.site.run("root", "squeue", "-h", "-o", "%j", check=False)
        alive = set(told.stdout.split()) if told.returncode == 0 else set(self.chains)
        return sum(name not in alive for name in self.chains)

    # ---- what users do

    def _submit(self, plan: Plan) -> None:
        if self.world.is_held("slurmctld"):  # a command would only keep us waiting
            self._again(lambda: self._submit(plan))
            return
        site = self.world.site
        script = site.home(plan.user) / "soak.sh"
        done = site.run(
            plan.user,
            "mirage-submit",
            "--json",
            *plan.words(str(script)),
            check=False,
            timeout_s=300,
        )
        if done.returncode:
            self._tell(f"{plan.name}: mirage-submit: {done.stderr.strip()[-200:]}")
            self._again(lambda: self._submit(plan))
            return
        self.chains[plan.name] = Chain(plan, json.loads(done.stdout)["chain"], *plan.expected())
        if plan.act_s is not None:
            self._at(plan.act_s, lambda: self._act(self.chains[plan.name]))

    def _act(self, chain: Chain) -> None:
        if self.world.is_held("slurmctld"):
            self._again(lambda: self._act(chain))
            return
        plan, site = chain.plan, self.world.site
        jobs = site.run("root", "squeue", "-h", "-n", plan.name, "-o", "%A %T %k", check=False)
        if jobs.returncode:
            self._again(lambda: self._act(chain))
        elif not jobs.stdout:
            chain.expected_end, chain.expected_links = "done", plan.segments  # it was over before
        elif plan.kind == "cancel":
            if site.run(
                plan.user, "mirage", "cancel", chain.chain_id, check=False, timeout_s=120
            ).returncode:
                self._again(lambda: self._act(chain))
            else:
                self._tell(f"{plan.name}: cancelled")
        else:
            self._cancel_a_link(chain, jobs.stdout)

    def _cancel_a_link(self, chain: Chain, told: str) -> None:
        """By hand, and not the last one."""
        rows = [line.split() for line in told.splitlines()]
        running = [
            row[0]
            for row in rows
            if row[1] == "RUNNING" and not re.search(r"seg=(\d+)/\1 ", " ".join(row))
        ]
        if (
            not running
            or self.world.site.run(chain.plan.user, "scancel", running[0], check=False).returncode
        ):
            self._again(lambda: self._act(chain))
        else:
            self._tell(f"{chain.plan.name}: job {running[0]} cancelled by hand")

    # ---- what goes wrong

    def _disturb(self, fault: Fault) -> None:
        at_s = self.world.clock.elapsed_s()
        end = begin(self.world, fault)
        record: dict[str, object] = {**asdict(fault), "began_s": round(at_s)}
        self.faults.append(record)
        self._tell(f"{fault.kind} ({fault.amount_s} s)")
        if end:
            self._at(at_s + fault.amount_s, lambda: self._mend(record, end))

    def _mend(self, record: dict[str, object], end: Callable[[], None]) -> None:
        end()
        record["ended_s"] = round(self.world.clock.elapsed_s())
        self._tell(f"{record['kind']}: over")


def evidence(soak: Soak, began_s: int) -> tuple[list[Evidence], dict[str, int]]:
    """Of every chain; and what slurmctld and slurmdbd say of jobs as a whole."""
    world = soak.world
    period = ["-S", _stamp(began_s), "-E", _stamp(world.clock.now_s() + HOUR_S)]
    words = [
        "-a",
        "-n",
        "-X",
        "-P",
        "-D",
        *period,
        "--format=JobIDRaw,State,Start,End,JobName,SubmitLine",
    ]
    told = world.site.run("root", "sacct", *words)
    records = parse_sacct(told.stdout)
    log = (world.site.folder / "log" / "slurmctld.log").read_text(errors="replace").splitlines()
    mine = {record.job_id for record in records}
    taken = {job for job in accepted_jobs(log) if mine and job >= min(mine)}
    stored = {str(row[0]): str(row[1]) for row in world.query("select chain_id, state from chains")}
    kept: dict[str, dict[int, str]] = defaultdict(dict)
    for chain_id, job_id, state in world.query("select chain_id, job_id, state from links"):
        kept[str(chain_id)][int(str(job_id))] = str(state)
    queued = [
        line.split()
        for line in world.site.run("root", "squeue", "-h", "-o", "%A %j").stdout.splitlines()
    ]
    found = []
    for chain in soak.chains.values():
        home = world.site.home(chain.plan.user)
        folder = home / ".mirage" / "chains" / chain.chain_id
        markers = [name for name in ("done", "failed", "cancelled") if (folder / name).exists()]
        journal = home / "soak" / chain.plan.name / "journal"
        found.append(
            Evidence(
                chain.plan,
                chain.expected_end,
                chain.expected_links,
                [record for record in records if record.chain_name == chain.plan.name],
                parse_journal(journal.read_text() if journal.exists() else ""),
                " and ".join(markers),
                stored.get(chain.chain_id, ""),
                kept[chain.chain_id],
                {int(job_id) for job_id, name in queued if name == chain.plan.name},
            )
        )
    return found, {
        "taken_by_slurmctld": len(taken),
        "known_to_slurmdbd": len(mine),
        "never_eligible": len(taken - mine),
        "runaway_in_slurmdbd": len(runaway(records, {int(job_id) for job_id, _ in queued})),
    }


def _stamp(at_s: int) -> str:
    """As sacct takes it: local time."""
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%dT%H:%M:%S")


def report(
    soak: Soak, judged: list[tuple[Evidence, Verdict]], jobs: dict[str, int]
) -> dict[str, object]:
    """Prints the tables; returns what the JSON has."""
    print(f"\n{'fault':22} {'times':>5} {'lasted, simulated min':>22}")
    for kind in KINDS:
        mine = [record for record in soak.faults if record["kind"] == kind]
        lasted = sum(
            int(str(r["ended_s"])) - int(str(r["began_s"])) for r in mine if "ended_s" in r
        )
        print(f"{kind:22} {len(mine):5} {lasted / 60:22.0f}")
    verdicts = [verdict for _, verdict in judged]
    totals = {
        "chains": len(judged),
        "links_that_worked": sum(
            len({e[1] for e in seen.journal if e[0] == "begin"}) for seen, _ in judged
        ),
        "lost": sum(len(verdict.lost) for verdict in verdicts),
        "twice": sum(len(verdict.twice) for verdict in verdicts),
        "untrue": sum(len(verdict.untrue) for verdict in verdicts),
        "known_weakness": sum(len(verdict.known) for verdict in verdicts),
        "daemon_restarts": soak.restarts,
        **jobs,
    }
    print(
        "\n" + "\n".join(f"{name.replace('_', ' '):22} {number}" for name, number in totals.items())
    )
    kinds = Counter(
        (seen.plan.kind, seen.expected_end, verdict.is_good) for seen, verdict in judged
    )
    for (kind, end, good), number in sorted(kinds.items()):
        print(
            f"{kind:10} {end:10} {'as it should be' if good else 'NOT as it should be':20} {number}"
        )
    for seen, verdict in judged:
        for text in (*verdict.lost, *verdict.twice, *verdict.untrue):
            print(f"{seen.plan.name} ({seen.plan.kind}, {seen.plan.user}): {text}")
    details = [
        {"name": s.plan.name, "kind": s.plan.kind, "stored": s.stored, **asdict(v)}
        for s, v in judged
    ]
    return {"totals": totals, "faults": soak.faults, "chains": details}


def main() -> int:
    """Exit code 0: nothing lost, nothing twice, every end true; 1: else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--databases", type=Path, required=True)
    parser.add_argument("--port-base", type=int, required=True)
    parser.add_argument("--clock-library", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--chains", type=int, default=50)
    parser.add_argument("--faults", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=60)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    clock = Clock(args.dir / "clock", args.speed)
    began_s, began = clock.now_s(), time.monotonic()
    site = FastSite(args.dir, str(args.clock_library), str(clock.path))
    world = World(site, clock, databases_dir=args.databases, port_base=args.port_base)
    for user in (ALICE, BOB, CAROL):
        site.run(user, "rm", "-rf", "soak", ".mirage")
        site.script(user, "soak.sh", SCRIPT)
    with ending_on_sigterm():
        try:
            world.up()
            soak = Soak(
                world,
                plans(args.chains, args.hours, args.seed),
                faults(args.faults, args.hours, args.seed),
            )
            soak.run(args.hours)
            time.sleep(3 * POLL_S / args.speed)  # the daemon's last cycles
            simulated_h = clock.elapsed_s() / HOUR_S
            seen, jobs = evidence(soak, began_s)
        finally:
            world.down()
    judged = [(chain, judge(chain)) for chain in seen]
    content = report(soak, judged, jobs)
    content |= {
        "command": (
            f"scripts/soak --hours {args.hours:g} --chains {args.chains} --faults {args.faults} "
            f"--seed {args.seed} --speed {args.speed:g}"
        ),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": args.seed,
        "simulated_hours": round(simulated_h, 2),
        "real_s": round(time.monotonic() - began),
        "speed": args.speed,
        "poll_s": POLL_S,
        "timer_lead_s": LEAD_S,
        "operator": OPERATOR,
        "cpus": os.cpu_count(),
    }
    fresh = args.out.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.replace(args.out)
    return 0 if all(verdict.is_good for _, verdict in judged) and len(judged) == args.chains else 1


if __name__ == "__main__":
    sys.exit(main())
