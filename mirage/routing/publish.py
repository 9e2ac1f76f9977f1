"""From the cluster as Slurm shows it to what the plugin reads. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain import Job, Snapshot
from mirage.errors import ClusterError, InputError
from mirage.provision.starts.forecast import JobShape
from mirage.provision.starts.forecaster import QueueView, forecast_shape
from mirage.routing.agent import Agent, check_products
from mirage.routing.decide import Table
from mirage.routing.flavors import Demand, PartitionKind
from mirage.routing.model import read_model
from mirage.routing.places import ExpectedWait, NodeShape, Place
from mirage.routing.state import PartitionState, Server
from mirage.routing.stream import planned_wait_s
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.resources import NodeUse, read_node_use
from mirage.slurm.runner import Runner
from slurm_sim import JobSpec
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.walk import NightlyWaits

NODES, LIMITS_S = (1, 4), (HOUR_S, DAY_S, 7 * DAY_S)
"""Sizes and limits of jobs for which waits are forecast; of nodes also all of a partition."""
RECORDS_S = DAY_S
"""Accounting records of so long are asked for, once in `AGAIN_S`."""
AGAIN_S = HOUR_S


def agents_of(model: str | Path) -> tuple[Agent, ...]:
    """Those of a model folder; none where it is empty. Raises InputError, also for agents that lack
    their proof on the site's history.
    """
    if not model:
        return ()
    found = read_model(Path(model))
    if found.needs_proof and not found.proof:
        raise InputError(
            f"{model}: these agents have no proof on the site's own jobs, where they can make jobs"
            f" finish much later. Prove them first: `mirage route prove --model {model} --trace"
            " HISTORY` (docs/routing.md)."
        )
    return found.agents


@dataclass(kw_only=True)
class Publisher:
    """Publishes the cluster's state, and agents if there are some. Raises InputError for agents that
    don't belong together, or that slurmctld would wait for.
    """

    partitions: tuple[str, ...] = ()
    """To which jobs may go; none: those of the agents."""
    agents: tuple[Agent, ...] = ()
    run: Path
    runner: Runner
    valid_s: int
    accounting: Callable[[int, int], Sequence[Job]]
    """Records of a time; the site's recent waits."""
    learned: Callable[[], NightlyWaits | None] = lambda: None
    """What the nights learnt of this site's waits; None: nothing yet, like jobs count."""
    describe: Callable[[], ClusterConfig] | None = None
    """The cluster, for agents: they see Slurm's own plan."""
    _records: Sequence[Job] = field(default=(), init=False)
    _asked_s: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for agent in self.agents:
            agent.check_team(len(self.agents))
        if self.agents:
            check_products([agent.products for agent in self.agents], self.agents[0].variant)
        self._text = agents_text(self.agents) if self.agents else ""
        self.partitions = self.partitions or tuple(agent.kind.name for agent in self.agents)
        if not self.partitions:
            raise InputError("routing: no partitions to which jobs may go; name them.")

    def publish(self, snapshot: Snapshot) -> None:
        """Writes the state and, before it, the agents if they are not there. Raises ClusterError,
        InputError.
        """
        ask = partial(self._recent, snapshot.at_s)
        view = QueueView(snapshot=snapshot, user="", ask_records=ask, learned=self.learned())
        nodes = read_node_use(self.runner)
        places = tuple(places_in(self.partitions, view, nodes))
        kinds = [agent.kind for agent in self.agents]
        table = replace(table_of(kinds, snapshot, nodes, self.valid_s), places=places)
        if self.describe and kinds:
            _set_waits(table, snapshot, self.describe())
        if self.agents and not self._is_there():
            write(self.run, AGENTS, self._text)
        write(self.run, STATE, state_text(table, self._text))

    def _recent(self, now_s: int) -> Sequence[Job]:
        """Without an answer of accounting the jobs that run now are all that is known."""
        if now_s - self._asked_s >= AGAIN_S:
            self._asked_s = now_s
            try:
                self._records = self.accounting(now_s - RECORDS_S, now_s)
            except ClusterError:
                self._records = ()
        return self._records

    def _is_there(self) -> bool:
        try:
            return (self.run / AGENTS).read_text(encoding="utf-8") == self._text
        except (OSError, UnicodeDecodeError):
            return False


def places_in(
    partitions: Sequence[str], view: QueueView, nodes: Sequence[NodeUse]
) -> Iterator[Place]:
    """Each partition's nodes that are up, and how long jobs are forecast to wait there. Raises
    InputError for one that has no nodes.
    """
    up = {node.name for node in view.snapshot.nodes if node.up}
    for name in partitions:
        mine = [node for node in nodes if name in node.partitions]
        if not mine:
            raise InputError(f"routing: partition {name} has no nodes in Slurm (sinfo -p {name}).")
        shapes = tuple(_shapes([node for node in mine if node.name in up]))
        yield Place(name=name, shapes=shapes, waits=tuple(_waits(name, shapes, view)))


def _shapes(nodes: Collection[NodeUse]) -> Iterator[NodeShape]:
    found = Counter((node.total, node.gpu_type) for node in nodes)
    for ((gpus, cpus, memory_mib), kind), count in found.items():
        gpu_type = kind if kind and "," not in kind else "-"
        yield NodeShape(count=count, cpus=cpus, memory_mib=memory_mib, gpus=gpus, gpu_type=gpu_type)


def _waits(name: str, shapes: Sequence[NodeShape], view: QueueView) -> Iterator[ExpectedWait]:
    most = max((shape.count for shape in shapes), default=0)
    gpus = max((shape.gpus for shape in shapes), default=0)
    for nodes in sorted({*(each for each in NODES if each < most), most} - {0}):
        for limit_s in LIMITS_S:
            shape = JobShape(nodes=nodes, time_limit_s=limit_s, partition=name, gpus=gpus * nodes)
            found = forecast_shape(shape, view)
            if found:
                yield ExpectedWait(nodes=nodes, limit_s=limit_s, wait_s=round(found.wait_s[1]))


def _set_waits(table: Table, snapshot: Snapshot, cluster: ClusterConfig) -> None:
    """How long a job of each flavour would wait by Slurm's own plan, as the agents have learned: nobody
    else comes, and all jobs run until their limits.
    """
    keeps = cluster.params.priority_weight_fairshare > 0
    plan = simulator_from(snapshot, cluster, Known(priorities=keeps))
    for state in table.partitions:
        for index, flavor in enumerate(state.kind.flavors):
            if state.may_start(index):
                continue
            spec = JobSpec(
                flavor.servers,
                flavor.limit_s,
                partition=state.kind.name,
                cpus_per_node=flavor.cpus // flavor.servers,
                memory_mib_per_node=flavor.memory_mib // flavor.servers,
                gpus_per_node=flavor.gpus // flavor.servers,
            )
            state.waits_s[index] = planned_wait_s(plan.fork(), spec)


def table_of(
    kinds: Sequence[PartitionKind], snapshot: Snapshot, nodes: Sequence[NodeUse], valid_s: int
) -> Table:
    """The state of the agents' partitions. Raises InputError where one is not as its agent knows
    it.
    """
    up = {node.name for node in snapshot.nodes if node.up}
    return Table(snapshot.at_s, valid_s, tuple(_state(kind, snapshot, nodes, up) for kind in kinds))


def _state(
    kind: PartitionKind, snapshot: Snapshot, nodes: Sequence[NodeUse], up: set[str]
) -> PartitionState:
    mine = [node for node in nodes if kind.name in node.partitions]
    if len(mine) != kind.servers:
        raise InputError(
            f"partition {kind.name}: {len(mine)} nodes in Slurm, {kind.servers} in its flavours;"
            " correct flavors.toml, and train agents again (docs/routing.md)."
        )
    ends = _ends(snapshot)
    servers = [_server(node, ends.get(node.name, []), node.name in up) for node in mine]
    state = PartitionState(kind, servers, [0] * len(kind.flavors), waits_s=[0] * len(kind.flavors))
    _queue(state, snapshot)
    return state


def _server(node: NodeUse, ends: Sequence[int], up: bool) -> Server:
    total = (max(node.total[0], 1), max(node.total[1], 1), max(node.total[2], 1))
    return Server(
        name=node.name,
        total=total,
        free=node.free,
        next_end_s=min(ends, default=0),
        last_end_s=max(ends, default=0),
        up=up,
    )


def _ends(snapshot: Snapshot) -> dict[str, list[int]]:
    """Node -> when, by limits, the jobs on it end."""
    ends: dict[str, list[int]] = {}
    for job in snapshot.jobs:
        if job.limit_end_s is not None and job.state.has_nodes:
            for name in job.node_names:
                ends.setdefault(name, []).append(job.limit_end_s)
    return ends


def _queue(state: PartitionState, snapshot: Snapshot) -> None:
    """Puts the waiting jobs in; those that no flavour covers count as the largest."""
    kind = state.kind
    for job in snapshot.jobs:
        names = job.partition.split(",")
        if job.is_queueing and kind.name in names:
            found = kind.flavor_of(_demand(job))
            flavor = len(kind.flavors) - 1 if found is None else found
            longest_s = kind.flavors[flavor].limit_s
            state.wait(flavor, min(job.time_limit_s or longest_s, longest_s) // len(names))


def _demand(job: Job) -> Demand:
    return Demand(job.gpus, limit_s=job.time_limit_s, nodes=max(job.nodes, 1))
