"""More and fewer replicas of a service: what `mirage scale` and the scaler do, as the owner."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mirage.chain.folder import DONE, SCALE_DOWN, chain_folder, read_handover
from mirage.chain.service import (
    ReplicaChain,
    ServiceRecord,
    living_replicas,
    service_of,
    turn,
    write_service,
)
from mirage.chain.tag import parse_tag
from mirage.domain import Job, JobState
from mirage.errors import ClusterError, MirageError
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import run_bounded
from mirage.user.ending import end_chains, jobs_of
from mirage.user.slurm_access import adapter_config
from mirage.user.steering import Steering

SUBMIT_S = 120
"""The submission of one replica may take so long,"""
MOST_BYTES = 1 << 20
"""and print so much."""
GRACE_S = 300
"""Of a replica that is to end, where its chain does not say: as of a handover."""


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """How a replica stands in the queue."""

    replica: ReplicaChain
    running: Job | None
    is_ready: bool

    @property
    def place(self) -> tuple[bool, float]:
        """The first ones end first: those that do not serve yet, then those that end soonest, whose
        next handover is saved.
        """
        end_s = self.running.expected_end_s if self.running else None
        return self.is_ready, math.inf if end_s is None else end_s


def set_replicas(name: str, wanted: int) -> list[str]:
    """Starts or ends replicas until ``wanted`` are there; says what was done, a sentence each.

    Raises InputError, and ClusterError where Slurm refuses one: those before it are started.
    """
    service_of(name)
    with turn(name):
        record = replace(service_of(name), wanted=wanted)
        write_service(record)
        living = living_replicas().get(name, [])
        if wanted < len(living):
            return _end(record, living, len(living) - wanted)
        return _start(record, living, wanted - len(living))


def _start(record: ServiceRecord, living: Sequence[ReplicaChain], count: int) -> list[str]:
    taken = {one.number for one in living}
    free = [number for number in range(1, len(taken) + count + 1) if number not in taken]
    said: list[str] = []
    for number in free[:count]:
        try:
            said.append(_submit(record, number))
        except MirageError as error:
            failed = ClusterError(
                f"replica {number} of service {record.name} is not started: {error}"
                f" {len(living) + len(said)} of {record.wanted} are there."
            )
            failed.exit_code = error.exit_code
            raise failed from error
    return said


def _submit(record: ServiceRecord, number: int) -> str:
    """By a process of its own, in the folder and with the environment of the first submission."""
    replica = ["--replica", f"{record.name}:{number}"]
    command = [sys.executable, "-P", "-m", "mirage.cli.submit", *replica, *record.words]
    try:
        done = run_bounded(command, record.environ, SUBMIT_S, MOST_BYTES, record.cwd)
    except TimeoutError as error:
        raise ClusterError(f"mirage-submit gave no answer within {SUBMIT_S} s.") from error
    except OSError as error:
        raise ClusterError(f"mirage-submit can't run in {record.cwd}: {error}.") from error
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        failed = ClusterError(words[-1].removeprefix("mirage-submit: "))
        failed.exit_code = done.returncode
        raise failed
    return done.stdout.strip().partition(", until")[0]


def _end(record: ServiceRecord, living: Sequence[ReplicaChain], count: int) -> list[str]:
    cluster = CommandCluster.from_config(adapter_config())
    jobs = jobs_of(cluster, [one.chain_id for one in living])
    standing = sorted((_standing(one, jobs) for one in living), key=lambda each: each.place)
    going = standing[:count]
    chains = [each.replica.chain_id for each in going]
    reason = f"service {record.name} was scaled to {record.wanted}"
    end_chains(cluster, chains, DONE, reason, running_too=False)
    return [_ask_to_end(each, cluster) for each in going]


def _standing(replica: ReplicaChain, jobs: Mapping[str, Sequence[Job]]) -> _Standing:
    running = [job for job in jobs[replica.chain_id] if job.state is JobState.RUNNING]
    tags = [parse_tag(job.comment) for job in running]
    is_ready = any(tag is not None and tag.ready_s != 0 for tag in tags)
    return _Standing(replica=replica, running=running[-1] if running else None, is_ready=is_ready)


def _ask_to_end(standing: _Standing, cluster: CommandCluster) -> str:
    """As a handover does: the signal, then at most the grace until Slurm ends it."""
    job, who = standing.running, f"replica {standing.replica.number}"
    if job is None:
        return f"Ended {who}, which waited in the queue"
    tag = parse_tag(job.comment)
    segment = tag.segment if tag else 0
    folder = chain_folder(standing.replica.chain_id)
    try:
        Steering.of(standing.replica.chain_id).ask_to_end(job, segment, SCALE_DOWN)
        asked = read_handover(folder, segment)
        grace_s = (asked.grace_s if asked else None) or GRACE_S
        cluster.end_within(job, grace_s, int(time.time()))
    except (MirageError, OSError):  # --handover-signal none, or the job is just ending
        cluster.cancel([job.job_id])
        return f"Cancelled job {job.job_id} of {who}"
    return f"Asked job {job.job_id} of {who} to end"
