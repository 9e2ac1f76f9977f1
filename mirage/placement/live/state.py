"""The cluster's GPU jobs, free GPUs and network as Slurm shows them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from mirage.chain.tag import parse_tag
from mirage.domain import Job, JobState, Snapshot
from mirage.errors import ClusterNonsense, InputError
from mirage.placement.live.law import Machine, StepWork, with_measured
from mirage.placement.live.network import NetworkText
from mirage.placement.live.opt_in import OptIn, parse_opt_in
from mirage.placement.live.slurm_topology import is_outside, read_switches, slurm_topology
from mirage.placement.packing import best_fit
from mirage.placement.profiles import Profile
from mirage.placement.topology import Bools, Topology
from mirage.ports import Cluster
from mirage.slurm.agreement import of_gpus
from mirage.slurm.fields import known_state
from mirage.slurm.job_details import JobDetails, NodeShare, read_details
from mirage.slurm.resources import NodeUse, read_node_use
from mirage.slurm.runner import Runner
from slurm_sim.node_states import FLAGS

MOST_WAITING = 5
"""Waiting jobs for which it is looked whether a move lets them start."""
_STEP_FACTOR = 2 * 3
"""A multiply-add is two operations; the backward pass computes twice what the forward pass does."""
_BUSY = {"PLANNED"} | {name for name, flag in FLAGS.items() if flag.is_busy}
"""Flags of nodes that take no job now, or that Slurm plans for another."""


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What nobody told: of jobs whose tag does not say it."""

    profile: Profile
    minibatch: int
    machine: Machine
    is_named: bool = False
    """Whether the machine is the site's, as the command line says; else no speed is shown."""
    rates: tuple[Path, ...] = ()
    """Outputs of `all_reduce_perf` of this site."""


@dataclass(frozen=True, kw_only=True)
class PlacedJob:
    """A job that has GPUs."""

    job: Job
    details: JobDetails
    opt_in: OptIn | None
    obstacle: str
    """Why it must stay where it is, in words that follow "job 7"; empty: it may be moved, if its
    owner has opted in.
    """
    gpus: Bools
    """Which it has, [M]."""

    @property
    def shares(self) -> tuple[NodeShare, ...]:
        """What it has of each node."""
        return self.details.shares


@dataclass(frozen=True, kw_only=True)
class TargetNode:
    """What a node can give to a job that comes."""

    partitions: tuple[str, ...]
    gpu_type: str
    rack: str
    gpus: Bools
    """Free ones, [M]."""
    cpus: int
    memory_mib: int
    members: Bools
    """All its GPUs, [M]."""
    tenants: frozenset[int]
    """Ids of the jobs on it, also of those without GPUs."""
    takes_jobs: bool
    """Up, and not reserved or planned for others."""


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """Read at one moment."""

    at_s: int
    topology: Topology
    machine: Machine
    is_named: bool
    """Whether speeds are those of the site's machine, and can be shown."""
    jobs: tuple[PlacedJob, ...]
    waiting: tuple[Job, ...]
    """Pending jobs that ask for GPUs and compete for nodes; the first in line comes first."""
    waiting_details: Mapping[int, JobDetails]
    """Of the first of them, by job id."""
    pending: tuple[Job, ...]
    """All pending jobs."""
    rooms: Mapping[str, TargetNode]
    work: StepWork
    """Of `jobs`, [J]."""
    usual_work: StepWork
    """Of a job that does not say what it trains, [1]."""
    notes: tuple[str, ...] = ()
    """What was assumed or left out, in sentences."""

    @property
    def assigned(self) -> Bools:
        """GPUs of each job, [J, M]."""
        rows = [each.gpus for each in self.jobs]
        return np.array(rows, dtype=bool).reshape(len(rows), len(self.topology))


def read_state(
    cluster: Cluster,
    runner: Runner,
    network: NetworkText,
    assumptions: Assumptions,
    own_lists: Mapping[int, frozenset[str]] = MappingProxyType({}),
) -> LiveState:
    """Asks Slurm: one squeue, two sinfo, and one scontrol for each job that has GPUs.

    ``own_lists``: node lists that moves have set, by job id; they tie no job. Raises ClusterError, InputError.
    """
    snapshot, use = cluster.snapshot(), read_node_use(runner)
    uncounted = of_gpus(use, snapshot).keys()
    asked = [
        job
        for job in snapshot.jobs
        if job.state.has_nodes and (job.gpus or not uncounted.isdisjoint(job.node_names))
    ]
    asked += waiting_jobs(snapshot)[:MOST_WAITING]
    details = {
        job.job_id: found for job in asked if (found := _details(runner, job.job_id)) is not None
    }
    details = {
        job_id: replace(each, required_nodes=())
        if frozenset(each.required_nodes) == own_lists.get(job_id)
        else each
        for job_id, each in details.items()
    }
    return live_state(snapshot, use, details, network, assumptions)


def waiting_jobs(snapshot: Snapshot) -> list[Job]:
    """Pending jobs that ask for GPUs and compete for nodes, by priority. An array counts once."""
    found = {job.job_id: job for job in snapshot.jobs if job.gpus and job.is_queueing}
    return sorted(found.values(), key=lambda job: (-job.priority, job.job_id))


def _details(runner: Runner, job_id: int) -> JobDetails | None:
    """Whose own text can't be read stays; the others' advice goes on."""
    try:
        return read_details(runner, job_id)
    except ClusterNonsense:
        return JobDetails(
            job_id=job_id,
            restarts=0,
            shares=(),
            required_nodes=(),
            ties=("can't be read with scontrol",),
            takes_whole_nodes=True,
        )


def live_state(
    snapshot: Snapshot,
    use: Sequence[NodeUse],
    details: Mapping[int, JobDetails],
    network: NetworkText,
    assumptions: Assumptions,
) -> LiveState:
    """What Slurm's answers come to. Raises InputError."""
    topology = _topology(use, network)
    uncounted = of_gpus(use, snapshot)
    snapshot = replace(snapshot, jobs=_with_gpus(snapshot.jobs, uncounted.keys(), details))
    build = _Builder(topology=topology, places=_places(topology))
    # Who knows its GPUs' numbers goes first; the others get what is left.
    known = sorted(
        (
            job
            for job in snapshot.jobs
            if job.gpus and job.job_id in details and job.state.has_nodes
        ),
        key=lambda job: (not details[job.job_id].fits(job), job.job_id),
    )
    jobs = tuple(build.job(job, details[job.job_id]) for job in known)
    waiting = tuple(waiting_jobs(snapshot))
    rooms = build.rooms(use, snapshot)
    return LiveState(
        at_s=snapshot.at_s,
        topology=topology,
        machine=with_measured(assumptions.machine, assumptions.rates, topology),
        is_named=assumptions.is_named,
        jobs=jobs,
        waiting=waiting,
        waiting_details={
            job.job_id: details[job.job_id] for job in waiting if job.job_id in details
        },
        pending=tuple(job for job in snapshot.jobs if job.is_pending),
        rooms=rooms,
        work=_work([each.opt_in for each in jobs], assumptions),
        usual_work=_work([None], assumptions),
        notes=(
            *build.notes,
            *_too_large(waiting, topology),
            *_outside(topology),
            *_stranded(rooms, snapshot),
            *_uncounted(uncounted),
        ),
    )


def _with_gpus(
    jobs: Sequence[Job], nodes: Collection[str], details: Mapping[int, JobDetails]
) -> tuple[Job, ...]:
    """Jobs that squeue shows without GPUs, with those that scontrol says they have on these nodes."""
    return tuple(
        replace(job, gpus=sum(share.gpus for share in details[job.job_id].shares))
        if job.job_id in details and not job.gpus and not set(nodes).isdisjoint(job.node_names)
        else job
        for job in jobs
    )


def _outside(topology: Topology) -> list[str]:
    if not (nodes := sorted({gpu.node for gpu in topology.gpus if is_outside(gpu)})):
        return []
    return [
        f"{', '.join(nodes)}: on no switch and in no block; a network to there is assumed, and no job"
        " is moved there"
    ]


def _stranded(rooms: Mapping[str, TargetNode], snapshot: Snapshot) -> list[str]:
    """Free GPUs that no job can have: on nodes that take none, or without a free CPU."""
    states = {node.name: node.state or "IDLE" for node in snapshot.nodes}
    found = []
    for name, room in rooms.items():
        free, state = int(room.gpus.sum()), states.get(name, "IDLE")
        if free and not known_state(state).up:
            found.append(f"{name}: {free} free GPUs are stranded, the node is {state}")
        elif free and not room.cpus:
            found.append(f"{name}: {free} free GPUs are stranded, no CPU of the node is free")
    return found


def _uncounted(gpus: Mapping[str, int]) -> list[str]:
    if not gpus:
        return []
    return [
        f"squeue shows no job with the {sum(gpus.values())} GPUs that are in use on"
        f" {', '.join(sorted(gpus))}: they are as scontrol says, and what waiting jobs ask for is not"
        " known; AccountingStorageTRES=gres/gpu counts them"
    ]


def _topology(use: Sequence[NodeUse], network: NetworkText) -> Topology:
    gpus = {node.name: node.total[0] for node in use}
    if not any(gpus.values()):
        raise InputError("no node of this cluster has a GPU (sinfo's Gres): nothing to place")
    if network.is_given and network.switches is not None:
        switches = read_switches(network.switches, network.source).values()
        named = {node for switch in switches for node in switch.nodes}
        if unknown := sorted(named - set(gpus)):
            raise InputError(
                f"{network.source}: node {unknown[0]} is not in this cluster"
                f" ({len(unknown)} such): give this cluster's topology"
            )
    links = {node: network.links for node, number in gpus.items() if number and network.links}
    return slurm_topology(network.switches, gpus, source=network.source, links=links)


def _places(topology: Topology) -> dict[str, list[int]]:
    """The GPUs of each node, as indices of the topology, in the order of their numbers."""
    places: dict[str, list[int]] = {}
    for nth, gpu in enumerate(topology.gpus):
        places.setdefault(gpu.node, []).append(nth)
    return places


@dataclass(kw_only=True)
class _Builder:
    topology: Topology
    places: Mapping[str, list[int]]
    notes: list[str] = field(default_factory=list)
    taken: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.taken = np.zeros(len(self.topology), dtype=bool)

    def job(self, job: Job, details: JobDetails) -> PlacedJob:
        obstacle = _obstacle(job, details)
        if not details.fits(job):
            details = replace(details, shares=_even_shares(job))
            obstacle = obstacle or "is shown with other GPUs by squeue than by scontrol"
        gpus = np.zeros(len(self.topology), dtype=bool)
        for share in details.shares:
            gpus[self._numbers(share)] = True
        if gpus.sum() < job.gpus:
            self.notes.append(
                f"job {job.job_id} has {job.gpus} GPUs, {int(gpus.sum())} of them in the topology"
            )
        self.taken |= gpus
        opt_in = None
        try:
            opt_in = parse_opt_in(job.comment)
        except InputError as error:
            self.notes.append(f"job {job.job_id} of {job.user} stays: {error}")
        return PlacedJob(job=job, details=details, opt_in=opt_in, obstacle=obstacle, gpus=gpus)

    def _numbers(self, share: NodeShare) -> list[int]:
        own = self.places.get(share.node, [])
        numbers = [own[number] for number in share.gpu_numbers if number < len(own)]
        rest = [nth for nth in own if not self.taken[nth] and nth not in numbers]
        return [*numbers, *rest[: share.gpus - len(numbers)]]

    def rooms(self, use: Sequence[NodeUse], snapshot: Snapshot) -> dict[str, TargetNode]:
        states = {node.name: known_state(node.state or "IDLE") for node in snapshot.nodes}
        tenants: dict[str, set[int]] = {}
        for job in snapshot.jobs:
            for name in job.node_names if job.state.has_nodes else ():
                tenants.setdefault(name, set()).add(job.job_id)
        found = {}
        for node in use:
            if node.name not in self.places:
                continue
            state = states.get(node.name)
            gpus = np.zeros(len(self.topology), dtype=bool)
            gpus[self.places[node.name]] = True
            first = self.topology.gpus[self.places[node.name][0]]
            found[node.name] = TargetNode(
                partitions=node.partitions,
                gpu_type=node.gpu_type,
                rack=first.rack,
                gpus=self._free(gpus, node),
                cpus=node.free[1],
                memory_mib=node.free[2],
                members=gpus,
                tenants=frozenset(tenants.get(node.name, ())),
                takes_jobs=bool(
                    state and state.up and not state.flags & _BUSY and not is_outside(first)
                ),
            )
        return found

    def _free(self, gpus: Bools, node: NodeUse) -> Bools:
        """Those of the node that no job has; no more of them than sinfo says are free."""
        free: Bools = gpus & ~self.taken
        hidden = int(free.sum()) - node.free[0]
        if hidden > 0:
            free[np.nonzero(free)[0][-hidden:]] = False
            self.notes.append(
                f"{node.name}: {hidden} GPUs are in use, by sinfo, that no job in the queue has"
            )
        return free


def _obstacle(job: Job, details: JobDetails) -> str:
    if job.state is not JobState.RUNNING:
        return f"is {job.state.value}"
    if parse_tag(job.comment):
        return "is a link of a chain, which the service looks after"
    if details.ties:
        return details.ties[0]
    return f"asks for nodes {','.join(details.required_nodes)}" if details.required_nodes else ""


def _even_shares(job: Job) -> tuple[NodeShare, ...]:
    each, rest = divmod(job.gpus, max(len(job.node_names), 1))
    return tuple(
        NodeShare(
            node=node,
            gpus=each + (nth < rest),
            gpu_numbers=(),
            gpu_type="",
            cpus=0,
            memory_mib=0,
        )
        for nth, node in enumerate(job.node_names)
    )


def _work(said: Sequence[OptIn | None], assumptions: Assumptions) -> StepWork:
    """Of each job, [J]."""
    networks = [(tag and tag.profile) or assumptions.profile for tag in said]
    minibatch = np.array([(tag and tag.minibatch) or assumptions.minibatch for tag in said])
    forward = np.array([network.flops_per_example for network in networks])
    return StepWork(
        flops=_STEP_FACTOR * forward * minibatch,
        gradient_mb=np.array([network.gradient_mb for network in networks]),
    )


def _too_large(waiting: Sequence[Job], topology: Topology) -> list[str]:
    return [
        f"job {job.job_id} of {job.user} asks for {job.gpus} GPUs; the cluster has {len(topology)}"
        for job in waiting
        if job.gpus > len(topology)
    ]


def free_gpus(topology: Topology, room: Bools, wanted: int) -> Bools:
    """``wanted`` of a node's free GPUs [M], packed close; where they are no more, all of them."""
    chosen = np.zeros(len(room), dtype=bool)
    chosen[best_fit(topology, room, min(wanted, int(room.sum())))] = True
    return chosen
