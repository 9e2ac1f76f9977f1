"""One cycle of the daemon with a long queue and many chains: CPU time, peak memory, commands run.

    .venv/bin/python -m benchmarks.tick_cost [--queued 10000] [--chains 500] [--cycles 7]

Slurm's commands are replaced by answers of that size, as text: so parsing, encoding, deciding and
the store are measured, and Slurm is not. Seed 1.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from mirage.chain.durations import format_time_limit
from mirage.chain.tag import ChainTag, format_tag
from mirage.config import PolicyConfig
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
MARK = "\0"
"""Stands for the nonce until the call that brings it."""


def queue(queued: int, chains: int, now_s: int) -> list[Job]:
    """Other users' pending jobs, and of each chain a running and a waiting link."""
    rng = random.Random(1)
    jobs = []
    for job_id in range(1, queued + 1):
        age_s, limit_s = rng.randrange(48 * HOUR), rng.choice([2, 8, 24, 48]) * HOUR
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
        first, user, start_s = (
            queued + 2 * number + 1,
            f"user{number}",
            now_s - rng.randrange(40 * HOUR),
        )
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
            nodes=1,
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
            nodes=1,
            submit_s=start_s,
            time_limit_s=48 * HOUR,
            reason="Dependency",
        )
        jobs.append(
            replace(waiting, dependency=f"afterany:{first}(unfulfilled)", comment=format_tag(tag))
        )
    return jobs


class Slurm:
    """Answers squeue and sinfo from memory, and counts."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.sinfo = "".join(f"n{number}|gpu|allocated|\n" for number in range(NODES))
        self.squeue = ""

    def show(self, jobs: Sequence[Job]) -> None:
        self.squeue = "".join(_row(job) for job in jobs)

    def execute(
        self, argv: Sequence[str], env: Mapping[str, str], _timeout_s: float, _limit: int
    ) -> CommandResult:
        self.asked[argv[0]] += 1
        if argv == ["scontrol", "show", "config"]:
            return CommandResult(stdout="SLURM_VERSION = 22.05.8\n", stderr="", returncode=0)
        if argv[0] == "squeue" and "-j" not in argv and "all" not in argv:
            nonce = env["SQUEUE_FORMAT2"].split(",")[0].removeprefix("JobID:")
            return CommandResult(stdout=self.squeue.replace(MARK, nonce), stderr="", returncode=0)
        return CommandResult(
            stdout=self.sinfo if argv[0] == "sinfo" else "", stderr="", returncode=0
        )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--cycles", type=int, default=7)
    parser.add_argument("--policy", default="quantile")
    args = parser.parse_args()
    clock, slurm = StepClock(), Slurm()
    cluster = CommandCluster(Runner(execute=slurm.execute), now_s=clock.now_s)
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore.open(f"sqlite:///{Path(folder) / 'mirage.db'}")
        acting = Acting(mode=ActingMode.ENFORCE)
        audit = Audit(
            Journal(
                path=Path(folder) / "audit.jsonl", max_bytes=64 << 20, max_age_s=7 * 86_400, keep=20
            ),
            acting.mode,
        )
        baselines = (Reactive(), Timer(10_800))
        daemon = Daemon(
            cluster,
            store,
            clock,
            make_policy(PolicyConfig(name=args.policy)),
            poll_s=600,
            acting=acting,
            observers=(audit,),
            baselines=baselines,
        )
        times = []
        jobs = queue(args.queued, args.chains, clock.time_s)
        for _ in range(args.cycles):
            slurm.show(jobs)
            begin = time.process_time()
            assert daemon.run_cycle()
            times.append(time.process_time() - begin)
            clock.time_s += 600
        slowest_s = max(times[1:])
        decided = len(store.decisions(args.queued + 2))
        size_mib = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{args.queued} queued jobs, {args.chains} chains, policy {args.policy}: first cycle"
        f" {times[0]:.2f} CPU s, then median {median(times[1:]):.2f} (at most {slowest_s:.2f}) CPU"
        f" s; peak memory {peak_mib:.0f} MiB; database and audit log {size_mib:.1f} MiB after"
        f" {args.cycles} cycles; {decided} decisions on each chain; commands run:"
        f" {dict(slurm.asked)}"
    )


if __name__ == "__main__":
    main()
