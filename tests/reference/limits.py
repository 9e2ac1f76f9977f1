"""Limits of QOS and associations on what may run at once (`sacctmgr(1)`, `resource_limits.html`).

A job over a limit waits, with the limit's name as its reason. It stops nobody else, and backfill
reserves nothing for it; but if it is over a limit of resources, backfill looks for its place all
the same, and counts it as tested.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from slurm_sim.admission import Admission, bits
from slurm_sim.config import ROOT, Association, Qos


class Use(NamedTuple):
    """What a job holds, or would hold, while it runs."""

    nodes: int
    cpus: int
    gpus: int
    where: int
    """The nodes, as bits; 0: not known yet."""
    jobs: int = 1


class NodeCounter:
    """Nodes of jobs that a limit counts together. One that several of them share counts once."""

    def __init__(self) -> None:
        self._jobs = Counter[int]()
        self.nodes = 0

    def count(self, nodes: int, sign: int) -> None:
        for index in bits(nodes):
            self._jobs[index] += sign
            self.nodes = self.nodes & ~(1 << index) | bool(self._jobs[index]) << index


COUNTED = ("jobs", "cpus", "gpus")
# (Qos field, kind in Use, whose use counts, reason) in the order in which slurmctld looks: first
# what counts jobs, of QOS and of associations, then what counts resources.
_QOS_JOBS = (
    ("grp_jobs", "jobs", "all", "QOSGrpJobsLimit"),
    ("max_jobs_per_account", "jobs", "account", "MaxJobsPerAccount"),
    ("max_jobs_per_user", "jobs", "user", "QOSMaxJobsPerUserLimit"),
)
_QOS_RESOURCES = (
    ("grp_cpus", "cpus", "all", "QOSGrpCpuLimit"),
    ("grp_nodes", "nodes", "all", "QOSGrpNodeLimit"),
    ("grp_gpus", "gpus", "all", "QOSGrpGRES"),
    ("max_cpus_per_account", "cpus", "account", "MaxCpuPerAccount"),
    ("max_nodes_per_account", "nodes", "account", "MaxNodePerAccount"),
    ("max_gpus_per_account", "gpus", "account", "MaxGRESPerAccount"),
    ("max_cpus_per_user", "cpus", "user", "QOSMaxCpuPerUserLimit"),
    ("max_nodes_per_user", "nodes", "user", "QOSMaxNodePerUserLimit"),
    ("max_gpus_per_user", "gpus", "user", "QOSMaxGRESPerUser"),
)
_QOS_SUBMITTED = (
    ("max_submit_jobs_per_account", "account", "MaxSubmitJobsPerAccount"),
    ("max_submit_jobs_per_user", "user", "QOSMaxSubmitJobPerUserLimit"),
)
_GROUP_JOBS = (("grp_jobs", "jobs", "AssocGrpJobsLimit"),)
_GROUP_RESOURCES = (
    ("grp_cpus", "cpus", "AssocGrpCpuLimit"),
    ("grp_nodes", "nodes", "AssocGrpNodeLimit"),
    ("grp_gpus", "gpus", "AssocGrpGRES"),
)


Whose = tuple[str, ...]
"""Whose use a counter is of."""


def _in_qos(qos: str, scope: str, claimant: Claimant) -> Whose:
    return {
        "all": ("qos", qos),
        "account": ("qos", qos, scope, claimant.account),
        "user": ("qos", qos, scope, claimant.user),
    }[scope]


@lru_cache(maxsize=10_000)
def _without_limits(account: str, user: str | None) -> Association:
    """Kept, since each test of a limit asks for it."""
    return Association(account, user)


def _of_association(item: Association) -> Whose:
    return ("association", item.account, item.user or "")


class Claimant(NamedTuple):
    """Whose limits apply to a job."""

    user: str
    account: str
    qos: str | None
    """None: the default one."""
    partition: str


class LimitCounters:
    """Counts what runs, per QOS, user, account and association."""

    def __init__(self, admission: Admission) -> None:
        config = admission.config
        self._qos_of = admission.qos_of
        self._of_partition = {item.name: item.qos for item in config.partitions}
        self._associations = {(item.account, item.user): item for item in config.associations}
        self._used = Counter[tuple[Whose, str]]()
        self._occupied: defaultdict[Whose, NodeCounter] = defaultdict(NodeCounter)
        self._submitted = Counter[Whose]()

    def _all_qos(self, claimant: Claimant) -> Iterator[Qos]:
        """The partition's QOS first: of a limit that both set, it decides."""
        of_partition, of_job = self._of_partition[claimant.partition], self._qos_of(claimant.qos)
        if of_partition is not None:
            yield self._qos_of(of_partition)
        if of_partition != of_job.name:
            yield of_job

    # ---- what may start

    def reached(self, claimant: Claimant, use: Use) -> str:
        """The reason for which a job may not start now; empty: it may."""
        all_qos = list(self._all_qos(claimant))
        return (
            self.jobs_reached(claimant)
            or self._qos_reached(all_qos, _QOS_RESOURCES, claimant, use)
            or self._group_reached(all_qos, _GROUP_RESOURCES, claimant, use)
        )

    def jobs_reached(self, claimant: Claimant) -> str:
        """The same for limits that count jobs, which slurmctld asks before it looks for nodes
        (`pre_select`).
        """
        all_qos, use = list(self._all_qos(claimant)), Use(0, 0, 0, 0)
        return (
            self._qos_reached(all_qos, _QOS_JOBS, claimant, use)
            or self._group_reached(all_qos, _GROUP_JOBS, claimant, use)
            or self._max_jobs_reached(all_qos, claimant, use)
        )

    def preferred(self, claimant: Claimant) -> int:
        """Nodes that the job's limits of nodes count already (`_find_grp_node_bitmap` in
        slurmctld's source).
        """
        nodes, together = 0, False
        all_qos = list(self._all_qos(claimant))
        for field, kind, scope, _ in _QOS_RESOURCES:
            limiting = next(
                (item.name for item in all_qos if getattr(item, field) is not None), None
            )
            if kind == "nodes" and limiting is not None:
                nodes |= self._occupied[_in_qos(limiting, scope, claimant)].nodes
                together = together or scope == "all"
        for item in self._chain(claimant):
            if item.grp_nodes is not None and not together:
                return nodes | self._occupied[_of_association(item)].nodes
        return nodes

    def _exceeds(self, whose: Whose, kind: str, use: Use, limit: int) -> bool:
        """A job that adds nothing passes, also if others go over the limit (a QOS' own may let
        them).
        """
        used, more = self._used[whose, kind], int(getattr(use, kind))
        if kind == "nodes":
            occupied = self._occupied[whose].nodes
            used, more = occupied.bit_count(), use.nodes - (occupied & use.where).bit_count()
        return more > 0 and used + more > limit

    def _qos_reached(
        self,
        all_qos: Sequence[Qos],
        limits: Iterable[tuple[str, str, str, str]],
        claimant: Claimant,
        use: Use,
    ) -> str:
        for field, kind, scope, reason in limits:
            for item in all_qos:
                limit = getattr(item, field)
                if limit is None:
                    continue
                if self._exceeds(_in_qos(item.name, scope, claimant), kind, use, limit):
                    return reason
                break
        return ""

    def _group_reached(
        self,
        all_qos: Sequence[Qos],
        limits: Iterable[tuple[str, str, str]],
        claimant: Claimant,
        use: Use,
    ) -> str:
        """Of the user, the account, and those above it. What a QOS limits is left to it."""
        for item in self._chain(claimant):
            for field, kind, reason in limits:
                limit = getattr(item, field)
                if limit is None or any(getattr(each, field) is not None for each in all_qos):
                    continue
                if self._exceeds(_of_association(item), kind, use, limit):
                    return reason
        return ""

    def _max_jobs_reached(self, all_qos: Sequence[Qos], claimant: Claimant, use: Use) -> str:
        if any(
            each is not None
            for item in all_qos
            for each in (item.max_jobs_per_user, item.max_jobs_per_account)
        ):
            return ""
        account, user = claimant.account, claimant.user
        own = self._associations.get((account, user))
        of_account = self._associations.get((account, None))
        limit = own.max_jobs if own is not None else None
        if limit is None and of_account is not None:
            limit = of_account.max_jobs
        whose = _of_association(_without_limits(account, user))
        if limit is not None and self._used[whose, "jobs"] + use.jobs > limit:
            return "AssocMaxJobsLimit"
        return ""

    def _chain(self, claimant: Claimant) -> Iterator[Association]:
        """The user's association, the account's, and those above."""
        account, user = claimant.account, claimant.user
        yield self._association(account, user)
        while account != ROOT:
            item = self._association(account)
            yield item
            account = item.parent
        yield self._association(ROOT)

    def _association(self, account: str, user: str | None = None) -> Association:
        """One that is not configured sets no limit."""
        return self._associations.get((account, user)) or _without_limits(account, user)

    def refusal(self, claimant: Claimant) -> str:
        """Why a submission is refused (MaxSubmitPA, MaxSubmitPU); empty: it is not."""
        for field, scope, reason in _QOS_SUBMITTED:
            for item in self._all_qos(claimant):
                limit = getattr(item, field)
                if limit is None:
                    continue
                if self._submitted[_in_qos(item.name, scope, claimant)] >= limit:
                    return reason
                break
        return ""

    # ---- what is counted

    def count(self, claimant: Claimant, use: Use, sign: int) -> None:
        """A job starts (sign 1) or gives back what it held (-1)."""
        for item in self._all_qos(claimant):
            for scope in ("all", "account", "user"):
                self._count(_in_qos(item.name, scope, claimant), use, sign)
        for association in self._chain(claimant):
            self._count(_of_association(association), use, sign)

    def _count(self, whose: Whose, use: Use, sign: int) -> None:
        self._occupied[whose].count(use.where, sign)
        for kind in COUNTED:
            self._used[whose, kind] += sign * getattr(use, kind)

    def count_submitted(self, claimant: Claimant, sign: int) -> None:
        """A job enters the queue, or is over."""
        for item in self._all_qos(claimant):
            for scope in ("account", "user"):
                self._submitted[_in_qos(item.name, scope, claimant)] += sign
