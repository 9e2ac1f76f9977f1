"""The limits that a snapshot's pending jobs wait for, as the reasons name them.

squeue shows neither a limit's number nor who counts in it, but a job that waits for a limit shows
that it is reached. So whoever counts in it may use as much as they use now: as their jobs end,
theirs come in. Who counts follows from the reason (job_reason_codes.html): the user, the account,
the array. For a limit of a whole QOS it is taken to be those users who wait for it, in their
partition, since squeue does not say which QOS a running job is in.

Limits that count something else than running jobs and what these hold, such as CPU minutes, do not
end with anybody's job; their jobs stay where they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirage.domain import Job
from slurm_sim.config import Association, ClusterConfig, Qos, SelectType

Key = tuple[str | int, ...]
"""Who counts together."""


class Limit(NamedTuple):
    """What a reason says of its limit."""

    scope: str
    """Who counts: `array`, `user`, `account`, or `partition`."""
    kind: str
    """What counts: `jobs`, `nodes`, `cpus` or `gpus`."""
    field: str
    """Where a cluster's description has it, in a `Qos`, or in an `Association` with `max_jobs` and
    `grp_` fields.
    """
    of_qos: bool = True


def _all(scope: str, names: str, prefix: str, *, of_qos: bool = True) -> dict[str, Limit]:
    suffix = {"user": "_per_user", "account": "_per_account"}[scope] if prefix == "max" else ""
    kinds = ("jobs", "nodes", "cpus", "gpus")
    return {
        name: Limit(scope, kind, f"{prefix}_{kind}{suffix}", of_qos)
        for name, kind in zip(names.split(), kinds, strict=True)
    }


LIMITS: Mapping[str, Limit] = {
    "JobArrayTaskLimit": Limit("array", "jobs", ""),
    "AssocMaxJobsLimit": Limit("user", "jobs", "max_jobs", of_qos=False),
    **_all(
        "user",
        "QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit QOSMaxCpuPerUserLimit QOSMaxGRESPerUser",
        "max",
    ),
    **_all(
        "account", "MaxJobsPerAccount MaxNodePerAccount MaxCpuPerAccount MaxGRESPerAccount", "max"
    ),
    **_all(
        "account",
        "AssocGrpJobsLimit AssocGrpNodeLimit AssocGrpCpuLimit AssocGrpGRES",
        "grp",
        of_qos=False,
    ),
    **_all("partition", "QOSGrpJobsLimit QOSGrpNodeLimit QOSGrpCpuLimit QOSGrpGRES", "grp"),
}
"""By the reason; each ends as running jobs end."""


@dataclass(frozen=True)
class ReachedLimits:
    """The cluster with a QOS for each limit that is reached, and who is in which."""

    cluster: ClusterConfig
    _qos: Mapping[Key, str]
    _waiting: Mapping[Key, frozenset[str]]
    """Of limits of a whole QOS, the users who wait for it."""

    @classmethod
    def of(
        cls, jobs: Sequence[Job], cluster: ClusterConfig, qos: Mapping[int, str | None]
    ) -> ReachedLimits:
        """``qos``: of jobs whose QOS is known. Limits that the description has are left to it."""
        waiting = defaultdict[tuple[Key, Limit], list[Job]](list)
        for job in jobs:
            limit = LIMITS.get(job.reason) if job.is_pending else None
            if limit and not _is_described(limit, job, cluster, qos.get(job.job_id)):
                waiting[_key(job, limit.scope), limit].append(job)
        users = {key: frozenset(job.user for job in them) for (key, _), them in waiting.items()}
        fields = defaultdict[Key, dict[str, int]](dict)
        for (key, limit), them in waiting.items():
            running = [job for job in jobs if job.state.has_nodes and _is_in(job, key, users[key])]
            kind = _counted(limit.kind, cluster)
            fields[key][f"grp_{kind}"] = _most(kind, running, them)
        base = {key: _qos_of(cluster, next(iter(them)), qos) for (key, _), them in waiting.items()}
        new = [
            replace(base[key], name=f"limit {number}", **its)
            for number, (key, its) in enumerate(fields.items(), start=1)
        ]
        names = {key: item.name for key, item in zip(fields, new, strict=True)}
        return cls(replace(cluster, qos=(*cluster.qos, *new)) if new else cluster, names, users)

    def qos_of(self, job: Job) -> str | None:
        """The QOS of a limit that the job counts in; None: of no limit."""
        for scope in ("array", "user", "account", "partition"):
            key = _key(job, scope)
            if key in self._qos and _is_in(job, key, self._waiting[key]):
                return self._qos[key]
        return None


def _key(job: Job, scope: str) -> Key:
    whose: dict[str, Key] = {
        # Each running task has an id of its own; one array was submitted at one instant.
        "array": (job.user, job.submit_s, job.name),
        "user": (job.user,),
        "account": (job.account,),
        "partition": (job.partition,),
    }
    return (scope, *whose[scope])


def _is_in(job: Job, key: Key, waiting: frozenset[str]) -> bool:
    scope = str(key[0])
    if scope == "array" and not job.array_task:
        return False
    return _key(job, scope) == key and (scope != "partition" or job.user in waiting)


def _counted(kind: str, cluster: ClusterConfig) -> str:
    """Where jobs have whole nodes, these stand for their CPUs and GPUs."""
    is_linear = cluster.params.select_type is SelectType.LINEAR
    return "nodes" if is_linear and kind in ("cpus", "gpus") else kind


def _most(kind: str, running: Iterable[Job], waiting: Sequence[Job]) -> int:
    """The greatest number with which those who wait do, but at least enough for each alone."""
    used = sum(_use(kind, job) for job in running)
    needed = [_use(kind, job) for job in waiting]
    return max(used + min(needed) - 1, *needed)


def _use(kind: str, job: Job) -> int:
    return 1 if kind == "jobs" else max(1, int(getattr(job, kind)))


def _qos_of(cluster: ClusterConfig, job: Job, qos: Mapping[int, str | None]) -> Qos:
    name = qos.get(job.job_id)
    return next((item for item in cluster.qos if item.name == name), cluster.qos[0])


def _is_described(limit: Limit, job: Job, cluster: ClusterConfig, qos: str | None) -> bool:
    """Whether the cluster's description has the limit, so that the simulator knows its number."""
    if not limit.field:
        return False
    if not limit.of_qos:
        return any(_is_set(item, limit.field) for item in cluster.associations)
    of_partition = {
        item.qos for item in cluster.partitions if item.name in job.partition.split(",")
    }
    names = {*of_partition, cluster.qos[0].name if qos is None else qos}
    return any(_is_set(item, limit.field) for item in cluster.qos if item.name in names)


def _is_set(item: Qos | Association, field: str) -> bool:
    return getattr(item, field) is not None
