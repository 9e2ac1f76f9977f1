"""What the owner of an elastic job asks for: `JOB.toml` (docs/elastic-jobs.md).

The dataclasses are the schema: a field is a key, its default is the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from mirage.chain.durations import parse_time_limit
from mirage.config import read_typed
from mirage.elastic.speed import dl2_types
from mirage.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_MEMORY = re.compile(r"\d{1,9}[KMGT]?", re.ASCII)
_OWN_OPTIONS = re.compile(
    r"(--(job-name|comment|time|time-min|output|error|chdir|nice|array|dependency|parsable|wrap"
    r"|requeue|no-requeue|open-mode|nodes|ntasks|gpus-per-node|cpus-per-task|mem|partition)(=|$)"
    r"|-[JtoeDadHnNcp])"
)
"""Options of sbatch that Mirage sets itself."""
SERVERS, ALL_REDUCE = "parameter-servers", "all-reduce"
"""As in `mirage.elastic.runtime.protocol`, which needs the extra `elastic`."""
MOST_TASKS = 64
"""Workers, or PSs, of a job."""


class Role(str, Enum):
    """What a task does."""

    COORDINATOR = "coordinator"
    SERVER = "server"
    """Parameter server."""
    WORKER = "worker"


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """What each task of a role takes."""

    gpus: int = field(default=0, metadata={"min": 0})
    cpus: int = field(default=1, metadata={"min": 1})
    memory: str = ""
    """As of `sbatch --mem`; empty: the site's default."""
    partition: str = ""
    """Empty: the site's default."""
    options: tuple[str, ...] = ()
    """Further options of sbatch."""


@dataclass(frozen=True, kw_only=True)
class CountedRequest(TaskRequest):
    """A role that has several tasks."""

    min: int = field(default=1, metadata={"min": 0})
    """These tasks queue like any job."""
    max: int = field(default=1, metadata={"min": 1})
    """The tasks above `min` use idle resources."""
    extra_options: tuple[str, ...] = ()
    """Further options of sbatch for these alone, such as a preemptible QOS."""


@dataclass(frozen=True, kw_only=True)
class WorkerRequest(CountedRequest):
    """The workers."""

    gpus: int = field(default=1, metadata={"min": 0})
    shards: int = field(default=12, metadata={"min": 0})
    """Micro-shards of a batch, as the script has them; 0: any number of workers divides a batch."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of workers up to `max` of which each is faster than the one before."""
        each = range(1, self.max + 1)
        if not self.shards:
            return tuple(each)
        return tuple(n for n in each if n == 1 or _share(self, n) < _share(self, n - 1))


def _share(workers: WorkerRequest, number: int) -> int:
    """Micro-shards of the worker that has most."""
    return -(-workers.shards // number)


@dataclass(frozen=True, kw_only=True)
class SpeedRequest:
    """What is known of the job's speed beforehand."""

    like: str = ""
    """A type of `mirage.elastic.speed`; empty: nothing, and the controller measures."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """An elastic job."""

    name: str = ""
    script: str = ""
    """The training script in Python, which each worker runs."""
    arguments: tuple[str, ...] = ()
    """Of the script."""
    folder: str = ""
    """Where the script runs; relative to the file. Empty: the file's folder."""
    plane: str = SERVERS
    """`parameter-servers` or `all-reduce`; the latter has no PSs."""
    time: str = ""
    """Limit of the whole job, in a form of `sbatch --time`."""
    epochs: int = field(default=0, metadata={"min": 1})
    """The owner's estimate."""
    steps_per_epoch: int = field(default=0, metadata={"min": 1})
    workers: WorkerRequest = WorkerRequest()
    servers: CountedRequest = CountedRequest()
    coordinator: TaskRequest = TaskRequest()
    speed: SpeedRequest = SpeedRequest()

    @property
    def time_s(self) -> int:
        """Seconds of `time`."""
        seconds = parse_time_limit(self.time)
        assert seconds
        return seconds

    @property
    def is_replicated(self) -> bool:
        """Whether workers reduce among themselves."""
        return self.plane == ALL_REDUCE

    def of(self, role: Role) -> TaskRequest:
        """What each task of a role takes."""
        return {
            Role.COORDINATOR: self.coordinator,
            Role.SERVER: self.servers,
            Role.WORKER: self.workers,
        }[role]


NO_SERVERS = CountedRequest(min=0, max=0)


def read_request(path: Path) -> JobRequest:
    """The checked content of a `JOB.toml`. Raises InputError: file, key, what was expected."""
    request = read_typed(JobRequest, path)
    if request.is_replicated and request.servers == CountedRequest():
        request = replace(request, servers=NO_SERVERS)
    for problem in (_missing(request), _bad_value(request), _bad_counts(request)):
        if problem:
            raise InputError(f"{path}: {problem}")
    return request


def request_table(request: JobRequest) -> dict[str, Any]:
    """The request as a table, for `request_from`."""
    return {
        name: request_table(value) if hasattr(value, "__dataclass_fields__") else value
        for name, value in vars(request).items()
    }


def request_from(table: Mapping[str, Any]) -> JobRequest:
    """What `request_table` gave, after JSON has made lists of its tuples."""

    def fields_of(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(it) if isinstance(it, list) else it for name, it in part.items()}

    kinds = {
        "workers": WorkerRequest,
        "servers": CountedRequest,
        "coordinator": TaskRequest,
        "speed": SpeedRequest,
    }
    values = fields_of(table)
    return JobRequest(
        **{
            name: kinds[name](**fields_of(value)) if name in kinds else value
            for name, value in values.items()
        }
    )


def _missing(request: JobRequest) -> str:
    for name in ("name", "script", "time", "epochs", "steps_per_epoch"):
        if not getattr(request, name):
            return f"{name}: missing; see docs/elastic-jobs.md for an example"
    return ""


def _bad_value(request: JobRequest) -> str:
    if not _NAME.fullmatch(request.name):
        return f"name: expected 1 to 32 of a-z, 0-9 and -, got {request.name!r}"
    if request.plane not in (SERVERS, ALL_REDUCE):
        return f"plane: expected {SERVERS} or {ALL_REDUCE}, got {request.plane!r}"
    try:
        limit_s = parse_time_limit(request.time)
    except ValueError as error:
        return f"time: {error}"
    if limit_s is None:
        return "time: expected a limit above 0; an elastic job must have one"
    if request.speed.like and request.speed.like not in (names := _speed_names()):
        return f"speed.like: unknown type {request.speed.like!r}; there are {', '.join(names)}"
    return ""


def _bad_counts(request: JobRequest) -> str:
    for name, role in (("workers", request.workers), ("servers", request.servers)):
        if role.min > role.max:
            return f"{name}.min: {role.min} is above {name}.max, {role.max}"
        if role.max > MOST_TASKS:
            return f"{name}.max: at most {MOST_TASKS}, got {role.max}"
    if wrong := _useless_size(request.workers):
        return wrong
    if request.is_replicated and request.servers != NO_SERVERS:
        return f"servers: a job of plane {ALL_REDUCE} has none; leave the table out"
    if not request.is_replicated and not request.servers.min:
        return "servers.min: expected at least 1; a PS holds the model"
    for each in Role:
        part, name = request.of(each), each.value if each is Role.COORDINATOR else f"{each.value}s"
        if part.memory and not _MEMORY.fullmatch(part.memory):
            return f"{name}.memory: expected a size such as 4000M or 16G, got {part.memory!r}"
        for option in (*part.options, *getattr(part, "extra_options", ())):
            if not option.startswith("-") or _OWN_OPTIONS.match(option):
                return (
                    f"{name}.options: {option!r}: expected an option of sbatch in one word"
                    " (--account=x) that Mirage does not set itself"
                )
    return ""


def _useless_size(workers: WorkerRequest) -> str:
    for key, number in (("min", workers.min), ("max", workers.max)):
        if number and number not in workers.sizes:
            best = max(size for size in workers.sizes if size < number)
            usable = replace(workers, max=workers.shards).sizes
            return (
                f"workers.{key}: {number} are as fast as {best}, since a batch has"
                f" {workers.shards} micro-shards (workers.shards): expected one of"
                f" {', '.join(map(str, usable))}"
            )
    return ""


def _speed_names() -> list[str]:
    return [kind.name for kind in dl2_types()]
