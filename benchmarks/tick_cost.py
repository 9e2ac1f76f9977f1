"""One cycle of the daemon with a long queue and many chains: CPU time, peak memory, commands run.

    .venv/bin/python -m benchmarks.tick_cost [--queued 10000] [--chains 500] [--cycles 7] [--cold] [--keep]

Slurm's commands are replaced by answers of that size, as text: so parsing, encoding, deciding, the
store and the audit log are measured, and Slurm is not. Seed 1. The first cycle starts with an empty
store and nothing in memory: it reads a week of accounting, with a start for each queued job, and
writes all chains and links. The further ones, ten minutes apart, are what a service does all day.
Nearly all decisions are to wait. With ``--cold`` there is no accounting, and every chain is due at
once: each cycle releases as many as `acting.releases_per_minute` permits, and writes down why the
others wait. With ``--keep`` the result replaces the one of that size in tick_cost.json.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.sim_common import HERE, machine, write_json
from mirage.chain.durations import format_time_limit
from mirage.chain.tag import ChainTag, format_tag
from mirage.config import PolicyConfig
from mirage.daemon.app import calm_collector
from mirage.daemon.audit import Audit
from mirage.daemon.cycle import Daemon
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Job, JobState, Mode, Penalties
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.provision.policies.registry import make_policy
from mirage.slurm.argv import SQUEUE_FIELDS
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import CommandResult, Runner
from mirage.store.journal import Journal
from mirage.store.repository import SqlStore

HOUR = 3600
NODES = 1000
KEPT = HERE / "tick_cost.json"
OLDEST_ID = 10_000_000
"""Of the jobs in accounting."""
MARK = "\0"
"""Stands for the nonce until the call that brings it."""


def queue(queued: int, chains: int, now_s: int) -> list[Job]:
    """Other users' pending jobs, and of each chain a running and a waiting link."""
    rng = random.Random(1)
    jobs = []
    for job_id in range(1, queued + 1):
        age_s, limit_s = rng.randrange(6 * HOUR), rng.choice([2, 8, 24, 48]) * HOUR
        nodes = rng.choice([1, 1, 1, 2, 4, 8])
        user = f"user{job_id % 200}"
        submit_s = now_s - age_s
        jobs.append(
            Job(
                job_id=job_id,
                user=user,
                partition="gpu",
                state=JobState.PENDING,
                nodes=nodes,
                submit_s=submit_s,
                time_limit_s=limit_s,
                reason="Priority",
                eligible_s=submit_s,
            )
        )
    for number in range(chains):
        first, user = queued + 2 * number + 1, f"user{number}"
        start_s = now_s - rng.randrange(40 * HOUR)
        nodes = rng.choice([1, 1, 2, 4])
        tag = ChainTag(
            chain_id=f"chain{number:05d}",
            segment=1,
            segments=9,
            predecessor_id=None,
            mode=Mode.TRAIN,
            penalties=Penalties(),
        )
        running = Job(
            job_id=first,
            user=user,
            partition="gpu",
            state=JobState.RUNNING,
            nodes=nodes,
            submit_s=start_s - HOUR,
            time_limit_s=48 * HOUR,
            reason="None",
            eligible_s=start_s - HOUR,
        )
        jobs.append(replace(running, start_s=start_s, comment=format_tag(tag)))
        tag = ChainTag(
            chain_id=f"chain{number:05d}",
            segment=2,
            segments=9,
            predecessor_id=first,
            mode=Mode.TRAIN,
            penalties=Penalties(),
        )
        waiting = Job(
            job_id=first + 1,
            user=user,
            partition="gpu",
            state=JobState.PENDING,
            nodes=nodes,
            submit_s=start_s,
            time_limit_s=48 * HOUR,
            reason="Dependency",
        )
        jobs.append(
            replace(waiting, dependency=f"afterany:{first}(unfulfilled)", comment=format_tag(tag))
        )
    return jobs


def history(count: int, now_s: int) -> list[Job]:
    """Starts of a week: waits of one to six hours, and a burst of large jobs that is over."""
    rng = random.Random(2)
    jobs = []
    for job_id in range(OLDEST_ID, OLDEST_ID + count):
        is_large = job_id % 100 == 0
        start_s = now_s - (HOUR if is_large else rng.randrange(HOUR // 2, 7 * 24 * HOUR))
        wait_s = 7 * HOUR if is_large else rng.randrange(HOUR, 6 * HOUR)
        jobs.append(
            Job(
                job_id=job_id,
                user=f"user{job_id % 200}",
                partition="gpu",
                state=JobState.COMPLETED,
                nodes=NODES if is_large else rng.choice([1, 1, 2, 4]),
                submit_s=start_s - wait_s,
                time_limit_s=rng.choice([8, 24, 48]) * HOUR,
                eligible_s=start_s - wait_s,
                start_s=start_s,
                end_s=min(start_s + HOUR, now_s),
            )
        )
    return jobs


class Slurm:
    """Answers squeue, sinfo and sacct from memory, does what scontrol is asked, and counts."""

    def __init__(self, past: Sequence[Job] = ()) -> None:
        self.asked: Counter[str] = Counter()
        self.sinfo = "".join(f"n{number}|gpu|allocated|\n" for number in range(NODES))
        self.sacct = "".join(_record(job) for job in past)
        self.jobs: dict[int, Job] = {}
        self.squeue = ""

    def show(self, jobs: Sequence[Job]) -> None:
        self.jobs = {job.job_id: job for job in jobs}
        self.squeue = "".join(map(_row, jobs))

    def execute(
        self, argv: Sequence[str], env: Mapping[str, str], _timeout_s: float, _limit: int
    ) -> CommandResult:
        self.asked[" ".join(argv[:2]) if argv[0] == "scontrol" else argv[0]] += 1
        text = self._answer(argv, env.get("SQUEUE_FORMAT2", ""))
        return CommandResult(stdout=text, stderr="", returncode=0)

    def _answer(self, argv: Sequence[str], squeue_format: str) -> str:
        if argv[0] == "squeue":
            nonce = squeue_format.split(",")[0].removeprefix("JobID:")
            return self._queue(argv).replace(MARK, nonce)
        if argv[:2] == ["scontrol", "update"]:
            job_id = int(argv[2].removeprefix("JobId="))
            job = self.jobs[job_id]
            self.jobs[job_id] = replace(
                job, dependency="", reason="Priority", eligible_s=StepClock.time_s
            )
            return ""
        if argv[0] == "sacct":
            text, self.sacct = self.sacct, ""  # asked once
            return text if "JobIDRaw,JobID" in argv[-1] else ""
        config = "SLURM_VERSION = 22.05.8\n"
        return {"sinfo": self.sinfo, "scontrol": config}.get(argv[0], "")

    def _queue(self, argv: Sequence[str]) -> str:
        if "-j" not in argv:
            return self.squeue
        ids = map(int, argv[argv.index("-j") + 1].split(","))
        return "".join(_row(self.jobs[job_id]) for job_id in ids if job_id in self.jobs)


def _record(job: Job) -> str:
    """As sacct prints it; it is asked for Unix seconds."""
    fields = (
        job.job_id,
        job.job_id,
        job.user,
        job.partition,
        job.state.value,
        job.nodes,
        job.submit_s,
        (job.time_limit_s or 0) // 60,
        job.eligible_s,
        job.start_s,
        job.end_s,
        1000,
        "0:0",
        f"cpu=64,mem=256G,node={job.nodes},billing=64,gres/gpu=4",
        "",
        "n17",
    )
    return "|".join(map(str, fields)) + "\n"


def _row(job: Job) -> str:
    text = {
        "JobID": job.job_id,
        "ArrayTaskID": "N/A",
        "UserName": job.user,
        "Partition": job.partition,
        "Account": "research",
        "State": job.state.value,
        "NumNodes": job.nodes,
        "SubmitTime": job.submit_s,
        "TimeLimit": format_time_limit(job.time_limit_s),
        "EligibleTime": job.eligible_s or "N/A",
        "StartTime": job.start_s or "N/A",
        "EndTime": "N/A",
        "PriorityLong": 1000,
        "exit_code": 0,
        "tres-alloc": f"cpu=64,mem=256G,node={job.nodes},billing=64,gres/gpu=4",
        "NodeList": "n17" if job.start_s else "",
        "Dependency": job.dependency or "(null)",
        "Reason": job.reason,
        "Name": job.name or "train",
        "Comment": job.comment or "(null)",
    }
    return "".join(f"{text[name]}{MARK}" for name in SQUEUE_FIELDS) + "\n"


class StepClock:
    time_s = 1_800_000_000

    def now_s(self) -> int:
        return self.time_s


class Cost(NamedTuple):
    """What some cycles took."""

    cpu_s: Sequence[float]
    """Of each."""
    size_mib: float
    """Of the store and the audit log."""
    decisions: int
    """On the first chain."""


def measured(slurm: Slurm, jobs: Sequence[Job], cycles: int, policy: str) -> Cost:
    """A service on a new store, ``cycles`` times."""
    clock, first = StepClock(), next(job.job_id for job in jobs if job.dependency)
    with (
        tempfile.TemporaryDirectory() as folder,
        SqlStore.open(f"sqlite:///{Path(folder) / 'mirage.db'}") as store,
    ):
        daemon = service(slurm, clock, store, Path(folder), policy)
        times = []
        for _ in range(cycles):
            slurm.show([slurm.jobs.get(job.job_id, job) for job in jobs])
            begin = time.process_time()
            assert daemon.run_cycle()
            times.append(time.process_time() - begin)
            clock.time_s += 600
        size_mib = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
        return Cost(times, size_mib, len(store.decisions(first)))


def service(slurm: Slurm, clock: StepClock, store: SqlStore, folder: Path, policy: str) -> Daemon:
    """With an audit log in the folder."""
    acting = Acting(mode=ActingMode.ENFORCE)
    journal = Journal(
        path=folder / "audit.jsonl", max_bytes=64 << 20, max_age_s=7 * 86_400, keep=20
    )
    return Daemon(
        CommandCluster(Runner(execute=slurm.execute), now_s=clock.now_s),
        store,
        clock,
        make_policy(PolicyConfig(name=policy)),
        poll_s=600,
        acting=acting,
        observers=(Audit(journal, acting.mode),),
        baselines=(Reactive(), Timer(10_800)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--cycles", type=int, default=7)
    parser.add_argument("--policy", default="quantile")
    parser.add_argument("--cold", action="store_true", help="without accounting")
    parser.add_argument("--keep", nargs="?", type=Path, const=KEPT, help=f"writes {KEPT.name}")
    args = parser.parse_args()
    now_s = StepClock.time_s
    calm_collector()
    slurm = Slurm([] if args.cold else history(args.queued, now_s))
    cost = measured(slurm, queue(args.queued, args.chains, now_s), args.cycles, args.policy)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{args.queued} queued jobs, {args.chains} chains, policy {args.policy}: first cycle"
        f" {cost.cpu_s[0]:.2f} CPU s, then median {median(cost.cpu_s[1:]):.2f} (at most"
        f" {max(cost.cpu_s[1:]):.2f}) CPU s; peak memory {peak_mib:.0f} MiB; database and audit log"
        f" {cost.size_mib:.1f} MiB after {args.cycles} cycles; {cost.decisions} decisions on the"
        f" first chain; commands run: {dict(slurm.asked)}"
    )

    if args.keep:
        name = f"{args.queued}-{args.chains}{'-cold' if args.cold else ''}"
        row = {
            "first_cpu_s": cost.cpu_s[0],
            "cpu_s": median(cost.cpu_s[1:]),
            "most_cpu_s": max(cost.cpu_s[1:]),
            "peak_mib": peak_mib,
            "cycles": args.cycles,
            "machine": machine(),
        }
        kept = json.loads(args.keep.read_text()) if args.keep.exists() else {}
        write_json(args.keep, kept | {name: row})


if __name__ == "__main__":
    main()
