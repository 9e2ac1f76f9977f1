"""A cluster in the making: nodes and partitions as they are read, put together and checked at the
end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slurm_sim.clusters.accounts import check_accounts
from slurm_sim.clusters.notes import ClusterDescription, Entries, Entry, Note
from slurm_sim.clusters.parts import (
    NodeFate,
    check_addresses,
    check_partition,
    cpus_of_core,
    derived_notes,
    is_open,
    make_node,
    make_partition,
    shut,
    without_second_default,
)
from slurm_sim.clusters.values import hosts, yes
from slurm_sim.config import (
    Association,
    ClusterConfig,
    NodeAction,
    NodeChange,
    NodeSpec,
    Params,
    Partition,
    Qos,
    SelectType,
)
from slurm_sim.errors import InvalidCluster

ALL = "all"


@dataclass
class Draft:
    """What was read so far. `notes` grows until `finish`."""

    source: str
    """Named in errors that concern the whole."""
    notes: list[Note] = field(default_factory=list)
    nodes: dict[str, NodeSpec] = field(default_factory=dict)
    """In their order, without those of `absent`."""
    threads: dict[str, Entry] = field(default_factory=dict)
    """ThreadsPerCore of nodes whose cores have several CPUs."""
    node_where: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """FUTURE nodes."""
    actions: dict[str, NodeAction] = field(default_factory=dict)
    node_sets: dict[str, Entries] = field(default_factory=dict)
    partitions: dict[str, Entries] = field(default_factory=dict)
    """By name; each has its ``partitionname``."""

    gres_types: Collection[str] | None = None
    """GresTypes; None: whatever a node has."""
    tres: Collection[str] | None = None
    """What may have weights, see `tres.tracked`; None: anything."""

    def note(self, notes: Iterable[Note]) -> None:
        """Each once, as a DEFAULT line is read for each node and partition after it."""
        self.notes += [note for note in dict.fromkeys(notes) if note not in self.notes]

    def add_nodes(self, head: Entry, entries: Entries, fate: NodeFate) -> None:
        """The nodes of one line; `head` has their names."""
        self.note(derived_notes(entries, self.gres_types))
        if not (names := hosts(head)):
            raise head.error("a list of nodes such as n[1-16]")
        check_addresses(len(names), entries)
        for name in names:
            if name.lower() == ALL:
                raise head.error("names of nodes: ALL stands for all of them")
            if (before := self.node_where.get(name)) is not None:
                raise InvalidCluster(
                    f"{head.where}: node {name} stands at {before} already; describe each node once"
                )
            self.node_where[name] = head.where
            self.nodes[name] = make_node(name, entries, self.gres_types)
            if cpus_of_core(entries) > 1:
                self.threads[name] = entries["threadspercore"]
            self.set_fate(name, fate)

    def set_fate(self, name: str, fate: NodeFate) -> None:
        """What becomes of it at the start."""
        action, present = fate
        if not present:
            self.absent.add(name)
            self.nodes.pop(name, None)
            self.actions.pop(name, None)
        elif action is None:
            self.actions.pop(name, None)
        elif name in self.nodes:
            self.actions[name] = action

    def add_partition(self, head: Entry, entries: Entries) -> None:
        """A partition; `head` has its name."""
        if (before := self.partitions.get(head.value)) is not None:
            where = before["partitionname"].where
            raise InvalidCluster(
                f"{head.where}: partition {head.value} stands at {where} already; describe each"
                " partition once"
            )
        self.partitions[head.value] = {**entries, "partitionname": head}

    def finish(
        self,
        name: str,
        params: Params,
        qos: tuple[Qos, ...] | None = None,
        associations: tuple[Association, ...] = (),
    ) -> ClusterDescription:
        """The cluster; `qos` None: partitions may name QOS of which nothing else is known."""
        if not self.nodes:
            raise InvalidCluster(
                f"{self.source}: no nodes that could be used; give at least one, with NodeName="
            )
        partitions = self._make_partitions()
        params = self._with_threads(params)
        changes = tuple(NodeChange(0, node, action) for node, action in self.actions.items())
        try:
            cluster = ClusterConfig(
                tuple(self.nodes.values()),
                partitions,
                params,
                qos=self._named_qos(partitions) if qos is None else qos,
                associations=associations,
                node_changes=changes,
                name=name,
            )
        except InvalidCluster as error:
            raise InvalidCluster(f"{self.source}: {error}") from None
        check_accounts(associations, f"{self.source}: ")
        return ClusterDescription(cluster, tuple(self.notes))

    def _with_threads(self, params: Params) -> Params:
        """Params.threads_per_core, which is of all nodes."""
        threads = {name: entry for name, entry in self.threads.items() if name in self.nodes}
        found = {int(entry.value) for entry in threads.values()}
        if params.select_type is SelectType.LINEAR or not found:
            return params
        if len(found) == 1 and len(threads) == len(self.nodes):
            return replace(params, threads_per_core=found.pop())
        why = "nodes differ in it, so CPUs are handed out one by one here, not by core"
        self.notes.append(next(iter(threads.values())).not_simulated(why))
        return params

    def _make_partitions(self) -> tuple[Partition, ...]:
        """The default one first."""
        made: list[Partition] = []
        default = None
        for name, entries in self.partitions.items():
            entries, notes = without_second_default(entries)
            self.note([*notes, *check_partition(entries, self.tres)])
            nodes = self._nodes_of(entries)
            if (why := shut(entries)) is not None:
                self.note([why])
            elif is_open(entries.get("state")) and nodes:
                made.append(make_partition(name, nodes, entries, self.tres))
                default = name if "default" in entries and yes(entries["default"]) else default
        if not made:
            raise InvalidCluster(
                f"{self.source}: no partition that can run jobs; give PartitionName= with Nodes="
            )
        if default is None:
            head = self.partitions[made[0].name]["partitionname"]
            self.notes.append(
                head.not_simulated(
                    "no partition has Default=YES; jobs that name none go to this one"
                )
            )
        return tuple(sorted(made, key=lambda partition: partition.name != default))

    def _nodes_of(self, entries: Entries) -> list[str]:
        """Its nodes in the order of the cluster's, without those that are not there."""
        given = entries.get("nodes")
        names = self._expand(given, inside_set=False) if given is not None else set()
        present = [name for name in self.nodes if name in names]
        if not present:
            self.notes.append(
                entries["partitionname"].not_simulated(
                    "left out: it has no nodes that could be used"
                )
            )
        elif given is not None and names & self.absent:
            self.notes.append(given.not_simulated("its FUTURE nodes are left out"))
        return present

    def _expand(self, entry: Entry, inside_set: bool) -> set[str]:
        if entry.value.lower() == ALL and not inside_set:
            return set(self.node_where)
        names: set[str] = set()
        for name in hosts(entry):
            if name in self.node_sets and not inside_set:
                names |= self._members(self.node_sets[name])
            elif name in self.node_where:
                names.add(name)
            else:
                raise entry.error(
                    f"ALL, or names of NodeName lines{'' if inside_set else ' and NodeSets'}: not"
                    f" {name}"
                )
        return names

    def _members(self, node_set: Mapping[str, Entry]) -> set[str]:
        """Of a NodeSet: its nodes, and those with its feature."""
        names = self._expand(node_set["nodes"], inside_set=True) if "nodes" in node_set else set()
        if "feature" in node_set:
            names |= {
                node.name
                for node in self.nodes.values()
                if node_set["feature"].value in node.features
            }
        return names

    def _named_qos(self, partitions: tuple[Partition, ...]) -> tuple[Qos, ...]:
        known = {"normal": Qos("normal")}
        for partition in partitions:
            if partition.qos is not None:
                known[partition.qos] = Qos(partition.qos)
                why = (
                    "its limits are in the accounting database: give them in a TOML, or read the"
                    " live cluster"
                )
                self.notes.append(self.partitions[partition.name]["qos"].not_simulated(why))
        return tuple(known.values())
