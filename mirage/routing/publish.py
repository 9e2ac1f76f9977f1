"""From the cluster as Slurm shows it to what the plugin reads. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirage.domain import Job, Snapshot
from mirage.errors import InputError
from mirage.routing.agent import Agent, check_products, no_agents
from mirage.routing.decide import Table
from mirage.routing.flavors import Demand, PartitionKind, load_partitions
from mirage.routing.model import read_model
from mirage.routing.state import PartitionState, Server
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from mirage.slurm.resources import NodeUse, read_node_use
from mirage.slurm.runner import Runner


def agents_of(model: str | Path, flavors: str | Path) -> tuple[Agent, ...]:
    """Those of a model folder, or, for the rule that needs none, of a file of flavours; one of both
    is empty. Raises InputError, also for agents that lack their proof on the site's history.
    """
    if model and flavors:
        raise InputError(
            f"routing: both a model ({model}) and flavors ({flavors}); give one: a model has its"
            " own flavours."
        )
    if not model:
        return no_agents(load_partitions(Path(flavors)))
    found = read_model(Path(model))
    if found.needs_proof and not found.proof:
        raise InputError(
            f"{model}: these agents have no proof on the site's own jobs, where they can make jobs"
            f" finish much later. Prove them first: `mirage route prove --model {model} --trace"
            " HISTORY` (docs/routing.md)."
        )
    return found.agents


class Publisher:
    """Publishes agents with the cluster's state. Raises InputError for agents that don't belong
    together, or that slurmctld would wait for.
    """

    def __init__(self, agents: Sequence[Agent], run: Path, runner: Runner, valid_s: int) -> None:
        self._agents = tuple(agents)
        for agent in agents:
            agent.check_team(len(agents))
        check_products([agent.products for agent in agents], agents[0].variant)
        self._text = agents_text(self._agents)
        self._run, self._runner, self._valid_s = run, runner, valid_s

    def publish(self, snapshot: Snapshot) -> None:
        """Writes the state and, before it, the agents if they are not there. Raises ClusterError,
        InputError.
        """
        kinds = [agent.kind for agent in self._agents]
        table = table_of(kinds, snapshot, read_node_use(self._runner), self._valid_s)
        if not self._is_there():
            write(self._run, AGENTS, self._text)
        write(self._run, STATE, state_text(table, self._text))

    def _is_there(self) -> bool:
        try:
            return (self._run / AGENTS).read_text(encoding="utf-8") == self._text
        except (OSError, UnicodeDecodeError):
            return False


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
            " correct flavors.toml, and train agents, if you have some, again (docs/routing.md)."
        )
    ends = _ends(snapshot)
    servers = [_server(node, ends.get(node.name, []), node.name in up) for node in mine]
    state = PartitionState(kind, servers, [0] * len(kind.flavors))
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
