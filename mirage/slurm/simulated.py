"""The Cluster port on a simulated Slurm (`slurm_sim`): for the demo and for tests, with switches
for its faults.
"""

from __future__ import annotations

import argparse
import copy
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from mirage.chain.durations import parse_time_limit
from mirage.domain import ClusterNode, Job, JobState, NodeEvent, Settings, Snapshot
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused
from mirage.ports import Clock, Cluster
from slurm_sim import JobRecord, JobSpec, SimulationError, Simulator
from slurm_sim.config import SelectType

MIN_JOB_AGE_S = 300
"""MinJobAge: slurmctld forgets a job this long after its end."""

Behaviour = Callable[[str], tuple[int | None, int]]
"""What a batch script (its path) would do: run for so many seconds (None: until its limit), and
exit so.
"""


def _runs_to_its_limit(_script: str) -> tuple[int | None, int]:
    return None, 0


class SimulatedClock(Clock):
    """The simulator's time."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim

    def now_s(self) -> int:
        return self._sim.now_s


@dataclass
class _Faults:
    """Shared by everybody's view of one cluster."""

    down: bool = False
    empty_queue_answers: int = 0
    accounting: bool = True


class SimulatedCluster(Cluster):
    """One user's view of a simulated cluster; `as_user` gives another's. An operator may release
    and cancel any job.

    Time passes only as the simulator is run. Messages are those of 22.05's commands.
    """

    def __init__(
        self,
        sim: Simulator,
        user: str = "user",
        *,
        operator: bool = False,
        behaviour: Behaviour = _runs_to_its_limit,
    ) -> None:
        self._sim = sim
        self._user = user
        self._operator = operator
        self._behaviour = behaviour
        self._faults = _Faults()
        self._shown: dict[int, tuple[JobRecord, Job]] = {}

    def as_user(self, name: str, *, operator: bool = False) -> SimulatedCluster:
        """The same cluster, seen by somebody else."""
        view = copy.copy(self)
        view._user, view._operator = name, operator
        return view

    @property
    def down(self) -> bool:
        """Whether slurmctld (and with it slurmdbd) answers nothing. Set it to try."""
        return self._faults.down

    @down.setter
    def down(self, down: bool) -> None:
        self._faults.down = down

    @property
    def empty_queue_answers(self) -> int:
        """How many of the next snapshots show no job, and no error: a slurmctld that has just been
        restarted.
        """
        return self._faults.empty_queue_answers

    @empty_queue_answers.setter
    def empty_queue_answers(self, count: int) -> None:
        self._faults.empty_queue_answers = count

    @property
    def has_accounting(self) -> bool:
        """Whether there are accounting records. Clear it to try a site without, or slurmdbd down."""
        return self._faults.accounting

    @has_accounting.setter
    def has_accounting(self, there: bool) -> None:
        self._faults.accounting = there

    # --- the port

    def snapshot(self) -> Snapshot:
        self._reach()
        jobs = tuple(map(self._seen, (*self._sim.pending(), *self._sim.running())))
        if self.empty_queue_answers > 0:
            self.empty_queue_answers -= 1
            jobs = ()
        return Snapshot(at_s=self._sim.now_s, jobs=jobs, nodes=tuple(self._nodes()))

    def _seen(self, job: JobRecord) -> Job:
        """Most jobs of a long queue are as they were in the snapshot before."""
        before = self._shown.get(job.job_id)
        if before is None or before[0] != job:
            self._shown[job.job_id] = before = (job, _queued(job))
        return before[1]

    def queue_of(self, user: str) -> Snapshot:
        self._reach()
        records = (*self._sim.pending(), *self._sim.running())
        own = tuple(_queued(job) for job in records if job.user == user)
        return Snapshot(at_s=self._sim.now_s, jobs=own, nodes=())

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        self._reach()
        return {job_id: _queued(job) for job_id in job_ids if (job := self._find(job_id))}

    def accounting(
        self, start_s: int, end_s: int, job_ids: Collection[int] | None = None
    ) -> list[Job]:
        """As of `sacct -D`: a requeued job has a record for each time that it was submitted.

        Without ids, jobs that were kept back until after ``end_s`` are left out.
        """
        self._reach_accounting()
        ended = (*self._sim.cut_short(), *self._sim.finished(since_s=start_s))
        records = [*ended, *self._sim.pending(), *self._sim.running()]
        found = [job for job in records if _in_window(job, start_s, end_s, job_ids)]
        return [
            _accounted(job) for job in sorted(found, key=lambda job: (job.job_id, job.submit_s))
        ]

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        return [job for job in self.accounting(start_s, end_s) if job.user in users]

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        self._reach_accounting()
        events = (
            NodeEvent(outage.node, outage.start_s, outage.end_s) for outage in self._sim.outages()
        )
        return [
            event
            for event in events
            if event.start_s <= end_s and (event.end_s is None or event.end_s >= start_s)
        ]

    def settings(self) -> Settings:
        self._reach()
        return Settings(
            version="simulated", cluster="simulated", accrue_always=self._sim.params.accrue_always
        )

    def submit(self, args: Sequence[str], script: str) -> int:
        """Knows sbatch's options for nodes, time, partition, dependency, begin, comment, hold and
        nice, and where jobs share nodes for CPUs and GPUs of each; `#SBATCH` lines too.

        Options that say nothing about the queue (`_IGNORED`) change nothing.
        """
        self._reach()
        spec = _job_spec([*_directives(script), *args], self._user, self._sim)
        runtime_s, exit_code = self._behaviour(script)
        try:
            return self._sim.submit(replace(spec, runtime_s=runtime_s, exit_code=exit_code))
        except SimulationError as error:
            raise Refused(f"sbatch: error: Batch job submission failed: {error}") from error

    def release(self, job_id: int) -> None:
        self._reach()
        job = self._find(job_id)
        if job is None:
            raise Refused(f"Invalid job id specified for job {job_id}")
        if not self._may_act_on(job):
            raise Refused(f"Invalid user id for job {job_id}")
        if job.state.is_over:
            raise Refused(f"Job has already finished for job {job_id}")
        self._sim.drop_dependency(job_id)

    def cancel(self, job_ids: Collection[int]) -> None:
        """Cancels what it may; then raises Refused if there was a job that it may not."""
        self._reach()
        known = [job for job_id in sorted(set(job_ids)) if (job := self._find(job_id))]
        for job in known:
            if self._may_act_on(job):
                self._sim.cancel(job.job_id)
        denied = [job.job_id for job in known if not self._may_act_on(job)]
        if denied:
            lines = (
                f"scancel: error: Kill job error on job id {n}: Access/permission denied"
                for n in denied
            )
            raise Refused("\n".join(lines))

    # --- behind it

    def _reach(self) -> None:
        if self.down:
            raise ClusterUnavailable

    def _reach_accounting(self) -> None:
        if self.down or not self.has_accounting:
            raise AccountingUnavailable

    def _find(self, job_id: int) -> JobRecord | None:
        """The job, if slurmctld has not forgotten it."""
        try:
            job = self._sim.job(job_id)
        except SimulationError:
            return None
        return job if job.end_s is None or job.end_s > self._sim.now_s - MIN_JOB_AGE_S else None

    def _may_act_on(self, job: JobRecord) -> bool:
        return self._operator or job.user == self._user

    @cached_property
    def _partitions_of(self) -> dict[str, tuple[str, ...]]:
        """By node, in the order of the nodes."""
        found: dict[str, list[str]] = {name: [] for name in self._sim.node_names}
        for partition in self._sim.partitions:
            for name in partition.nodes:
                found[name].append(partition.name)
        return {name: tuple(partitions) for name, partitions in found.items()}

    def _nodes(self) -> Iterator[ClusterNode]:
        for name, partitions in self._partitions_of.items():
            up, idle = self._sim.is_up(name), self._sim.is_idle(name)
            yield ClusterNode(
                name=name,
                partitions=partitions,
                up=up,
                idle=idle,
                state="idle" if idle else "allocated" if up else "down",
            )


def _queued(job: JobRecord) -> Job:
    state = JobState[job.state.name]
    return Job(
        job_id=job.job_id,
        user=job.user,
        partition=job.partition,
        state=state,
        nodes=job.nodes,
        submit_s=job.submit_s,
        time_limit_s=job.time_limit_s,
        reason="" if job.reason == "None" else job.reason,
        eligible_s=job.eligible_s,
        start_s=job.start_s,
        end_s=job.end_s,
        dependency=job.dependency,
        priority=job.priority,
        exit_code=job.exit_code,
        comment=job.spec.comment,
        account=job.spec.account,
        gpus=job.spec.gpus_per_node * job.nodes,
        cpus=job.spec.cpus_per_node * job.nodes,
        node_names=job.node_names if state.has_nodes else (),
    )


def _accounted(job: JobRecord) -> Job:
    return replace(_queued(job), reason="", dependency="", node_names=job.node_names)


def _in_window(job: JobRecord, start_s: int, end_s: int, job_ids: Collection[int] | None) -> bool:
    since_s = job.eligible_s if job_ids is None else job.submit_s
    wanted = job_ids is None or job.job_id in job_ids
    return (
        wanted
        and since_s is not None
        and since_s <= end_s
        and (job.end_s is None or job.end_s >= start_s)
    )


# --- sbatch's options

_IGNORED = (
    *(
        "-A",
        "--account",
        "-D",
        "--chdir",
        "-e",
        "--error",
        "--export",
        "--gpus",
    ),
    *(
        "--gres",
        "-J",
        "--job-name",
        "--mail-type",
        "--mail-user",
        "--mem",
        "-n",
        "--ntasks",
    ),
    *("--ntasks-per-node", "-o", "--output", "--open-mode", "-q", "--qos", "--signal"),
)
_IGNORED_FLAGS = ("--exclusive", "--parsable", "-Q", "--quiet", "--requeue")
_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_FROM_NOW = re.compile(r"now(?:\+(\d+)(second|minute|hour|day|week)?s?)?", re.ASCII)


class _SbatchParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(f"sbatch: error: {message}")


def _parser() -> _SbatchParser:
    parser = _SbatchParser(prog="sbatch", add_help=False, allow_abbrev=False)
    parser.add_argument("-N", "--nodes", default="1")
    parser.add_argument("-t", "--time")
    parser.add_argument("--time-min")
    parser.add_argument("-p", "--partition")
    parser.add_argument("-d", "--dependency", default="")
    parser.add_argument("-b", "--begin")
    parser.add_argument("--comment", default="")
    parser.add_argument("-H", "--hold", action="store_true")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("-c", "--cpus-per-task", type=int, default=1)
    parser.add_argument("--gpus-per-node", type=int, default=0)
    parser.add_argument("--no-requeue", action="store_true")
    for option in _IGNORED:
        parser.add_argument(option, dest="ignored")
    for flag in _IGNORED_FLAGS:
        parser.add_argument(flag, dest="ignored_flag", action="store_true")
    return parser


def _directives(script: str) -> list[str]:
    """The options on the script's `#SBATCH` lines, which end at its first command."""
    try:
        lines = Path(script).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise Refused(f"sbatch: error: Unable to open file {script}") from error
    options: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            options += shlex.split(line.removeprefix("#SBATCH "), comments=True)
    return options


def _job_spec(args: Sequence[str], user: str, sim: Simulator) -> JobSpec:
    options = _parser().parse_args(args)
    if options.partition not in (None, *(partition.name for partition in sim.partitions)):
        raise Refused(
            f"sbatch: error: invalid partition specified: {options.partition}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )
    shares_nodes = sim.params.select_type is SelectType.CONS_TRES
    return JobSpec(
        nodes=_nodes(options.nodes),
        cpus_per_node=options.cpus_per_task if shares_nodes else 1,
        gpus_per_node=options.gpus_per_node if shares_nodes else 0,
        nice=options.nice,
        time_limit_s=_time_limit(options.time),
        time_min_s=_time_limit(options.time_min),
        user=user,
        partition=options.partition,
        dependency=options.dependency,
        begin_s=_begin(options.begin, sim.now_s),
        held=options.hold,
        requeue=not options.no_requeue,
        comment=options.comment,
    )


def _nodes(text: str) -> int:
    """The lower end of `--nodes=MIN-MAX`: the simulator gives no more."""
    least = text.partition("-")[0]
    if not least.isdecimal():
        raise Refused(f"sbatch: error: Invalid node count: {text}")
    return int(least)


def _time_limit(text: str | None) -> int | None:
    """None, as `--time=0`: the partition's limit. Slurm rounds up to minutes."""
    try:
        seconds = parse_time_limit(text) if text else None
    except ValueError as error:
        raise Refused(f"sbatch: error: Invalid --time specification ({error})") from error
    return -(-seconds // 60) * 60 if seconds else None


def _begin(text: str | None, now_s: int) -> int | None:
    if text is None:
        return None
    if match := _FROM_NOW.fullmatch(text):
        return now_s + int(match[1] or 0) * _UNITS_S[match[2] or "second"]
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise Refused(f"sbatch: error: Invalid --begin specification: {text}") from error
