"""Jobs: what a user asks for, and what became of it. Times and durations are integer seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from slurm_sim.dependency import Dependencies
from slurm_sim.errors import InvalidJob
from slurm_sim.ranges import LAST_ID, LAST_S, LONGEST_S, MOST, flag, whole


class State(str, Enum):
    """A job's state, in Slurm's words (`squeue(1)`, JOB STATE CODES)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"
    REQUEUED = "REQUEUED"
    """Only in `Simulator.cut_short()`: this run ended, the job is pending again."""

    @property
    def is_over(self) -> bool:
        return self not in (State.PENDING, State.RUNNING, State.SUSPENDED)


LIMITED = ("Limit", "GRES", "PerUser", "PerAccount")
"""How the reasons end of jobs that wait for a limit, not for nodes."""

WHOLE: dict[str, tuple[int, int]] = {
    "nodes": (1, MOST),
    "time_limit_s": (1, LONGEST_S),
    "runtime_s": (0, LONGEST_S),
    "submit_s": (0, LAST_S),
    "job_id": (1, LAST_ID),
    "begin_s": (0, LAST_S),
    "exit_code": (0, MOST),
    "cpus_per_node": (1, MOST),
    "memory_mib_per_node": (0, MOST),
    "gpus_per_node": (0, MOST),
    "priority": (1, LAST_ID),
    "nice": (-MOST, MOST),
    "array_job_id": (1, LAST_ID),
    "array_throttle": (1, MOST),
    "cancel_s": (0, LAST_S),
    "time_min_s": (1, LONGEST_S),
}
"""Fields of a `JobSpec` that are whole numbers: from, to."""
NEEDED = ("nodes", "exit_code", "cpus_per_node", "memory_mib_per_node", "gpus_per_node", "nice")
_WHOLE = tuple((name, least, most, name not in NEEDED) for name, (least, most) in WHOLE.items())
_FLAGS = ("held", "requeue", "exclusive")
_TEXTS = ("user", "dependency", "comment", "account", "constraint")
_NAMES = ("partition", "qos", "reservation")
"""Texts that may be None."""
_LONG_NUMBER = re.compile(r"\d{16}", re.ASCII)


@dataclass(frozen=True)
class JobSpec:
    """What a user asks for, and how the job will behave."""

    nodes: int
    time_limit_s: int | None = None
    """None: the partition's DefaultTime."""
    runtime_s: int | None = None
    """After which it ends by itself; None: only its limit, or a call, ends it."""
    user: str = "user"
    partition: str | None = None
    """None: the cluster's first partition. Of several, ``gpu,cpu``, it runs in the one where it can
    start first.
    """
    submit_s: int | None = None
    """None: now."""
    job_id: int | None = None
    """None: the next free one."""
    dependency: str = ""
    """As for `sbatch --dependency`: ``afterany:1:2,afterok:3``."""
    begin_s: int | None = None
    """Not before this time."""
    held: bool = False
    requeue: bool = True
    """Whether a node failure requeues it; otherwise it ends as NODE_FAIL."""
    exit_code: int = 0
    """What it returns if it ends by itself; not 0: FAILED."""
    comment: str = ""
    cpus_per_node: int = 1
    memory_mib_per_node: int = 0
    """0: as without `--mem`. Where memory is consumable the job then gets the default, or all of
    its nodes'.
    """
    gpus_per_node: int = 0
    exclusive: bool = False
    """`--exclusive`: whole nodes."""
    account: str = "root"
    qos: str | None = None
    """None: the cluster's first QOS."""
    constraint: str = ""
    """Features that each node must have: ``a&b``, or ``a|b`` for any of them."""
    reservation: str | None = None
    """Runs inside this reservation, on its nodes."""
    priority: int | None = None
    """A fixed priority, as from `scontrol update Priority=` or a trace; None: it is computed. Slurm
    holds jobs by 0: here that is `held`.
    """
    nice: int = 0
    """`--nice`: taken off the priority that slurmctld gives the job."""
    array_job_id: int | None = None
    """The tasks of one array share it; each task is a job of its own."""
    array_throttle: int | None = None
    """``--array=...%N``: tasks that may run at once."""
    cancel_s: int | None = None
    """Its owner cancels it at this time, if it is not over by then."""
    time_min_s: int | None = None
    """`--time-min`: backfill may shorten the limit to this to start the job earlier; None: it may
    not. A job that starts has the limit it got: `JobRecord.time_limit_s`.
    """

    def __post_init__(self) -> None:
        """Raises InvalidJob. Numbers of numpy become Python's."""
        given = self.__dict__
        for name, least, most, may_be_none in _WHOLE:
            value = given[name]
            if value is None and may_be_none:
                continue
            if type(value) is not int or value < least or value > most:
                object.__setattr__(self, name, whole(name, value, least, most, InvalidJob))
        for name in _FLAGS:
            if given[name] is not True and given[name] is not False:
                object.__setattr__(self, name, flag(name, given[name], InvalidJob))
        for name in _TEXTS:
            if type(given[name]) is not str or not given[name].isascii():
                _check_text(name, given[name])
        for name in _NAMES:
            if given[name] is not None and (
                type(given[name]) is not str or not given[name].isascii()
            ):
                _check_text(name, given[name])
        if self.dependency and _LONG_NUMBER.search(self.dependency):
            raise InvalidJob(
                f"dependency is {self.dependency!r}; job ids and minutes have at most 15 digits"
            )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidJob(f"{name} is {value!r}; give a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidJob(f"{name} is {value!r}; give text that can be written as UTF-8") from None


def array(
    spec: JobSpec, runtimes_s: Sequence[int | None], first_id: int, throttle: int | None = None
) -> list[JobSpec]:
    """The tasks of an array (`sbatch --array`), with ids from `first_id` on, which is also the
    array's.
    """
    tasks = enumerate(runtimes_s, start=first_id)
    return [
        replace(
            spec, runtime_s=runtime_s, job_id=job_id, array_job_id=first_id, array_throttle=throttle
        )
        for job_id, runtime_s in tasks
    ]


@dataclass(slots=True)
class JobRecord:
    """A job as slurmctld shows it. The simulator hands out copies: changing one changes nothing."""

    job_id: int
    spec: JobSpec
    partition: str
    """While it is pending, the first of those that it may run in."""
    time_limit_s: int | None
    """Of one that has started, the limit it got (`JobSpec.time_min_s`)."""
    submit_s: int
    dependencies: Dependencies
    """What it still waits for; empty once fulfilled or dropped."""
    nodes: int
    """How many it asks for, or has: `spec.nodes` until it is resized."""
    begin_s: int | None = None
    held: bool = False
    state: State = State.PENDING
    reason: str = "None"
    """Why it is pending, in Slurm's words."""
    priority: int = 0
    eligible_s: int | None = None
    """Since when it competes for nodes; None while a dependency, a hold or a begin time keeps it
    back.
    """
    start_s: int | None = None
    end_s: int | None = None
    allocated: int = 0
    """The nodes it has, or had, as bits."""
    node_names: tuple[str, ...] = ()
    scheduler: str = ""
    """Which pass started it: main or backfill."""
    restarts: int = 0
    suspended_s: int = 0
    """For how long it was suspended, in whole, until the last resume; its limit does not count it.
    """
    accrues_s: int | None = field(default=None, compare=False, repr=False)
    """When it was first eligible: its age counts from then, also if it was held since. Of the
    reference only.
    """

    @property
    def user(self) -> str:
        return self.spec.user

    @property
    def dependency(self) -> str:
        """As squeue prints it: ``afterany:17(unfulfilled)``."""
        return str(self.dependencies)

    @property
    def exit_code(self) -> int:
        return self.spec.exit_code if self.state in (State.COMPLETED, State.FAILED) else 0

    @property
    def limit_end_s(self) -> int | None:
        """When its limit is reached; None: not started, or no limit."""
        if self.start_s is None or self.time_limit_s is None:
            return None
        return self.start_s + self.time_limit_s + self.suspended_s


class Sample(NamedTuple):
    """The queue and the running jobs at one moment; each list is by job id.

    Queued jobs are those that compete for nodes: a dependency, a hold, a begin time or a limit
    keeps the others back.
    """

    time_s: int
    queued_nodes: Sequence[int]
    queued_age_s: Sequence[int]
    """Since they became eligible."""
    queued_limit_s: Sequence[int]
    """-1: no limit."""
    running_nodes: Sequence[int]
    running_elapsed_s: Sequence[int]
    running_limit_s: Sequence[int]
    idle_nodes: int
    """Up and empty."""
    up_nodes: int
