"""A cluster from its slurm.conf (`slurm.conf(5)`, Slurm 22.05)."""

from __future__ import annotations

from pathlib import Path

from slurm_sim.clusters.checks import WORD_READERS, check_settings
from slurm_sim.clusters.draft import Draft
from slurm_sim.clusters.known import GLOBAL_DIFFERENCES, NODE_NUMBERS, NUMBERS, PARTITION_NUMBERS
from slurm_sim.clusters.lines import Line, read_lines
from slurm_sim.clusters.notes import ClusterDescription, Entries, Entry, NoteKind, Readers, readable
from slurm_sim.clusters.parts import (
    DOWN,
    NODE_READERS,
    PARTITION_READERS,
    UP,
    NodeFate,
    by_name,
    check_numbers,
    configured_fate,
    fate_of,
    node_notes,
    partition_notes,
    repeated_notes,
    state_notes,
    with_defaults,
)
from slurm_sim.clusters.sacctmgr import read_accounting
from slurm_sim.clusters.scheduler import of_cluster
from slurm_sim.clusters.tres import tracked
from slurm_sim.clusters.values import compress_hosts, hosts, kept_time

DEFAULT = "DEFAULT"
SPANS = ("prioritycalcperiod", "prioritydecayhalflife", "prioritymaxage")


def read_slurm_conf(
    path: Path, qos_text: str | None = None, assoc_text: str | None = None
) -> ClusterDescription:
    """The cluster, and a note on each parameter that did not go into it; texts as for `read_live`.

    Raises InvalidCluster.
    """
    reader = _Reader(path, qos_text, assoc_text)
    for line in read_lines(path):
        reader.read(line)
    return reader.finish()


class _Reader:
    """Goes through the lines; what becomes of nodes and partitions is known at the end, when all
    settings are read.

    Lines named DEFAULT hold for the later ones of their kind.
    """

    def __init__(self, path: Path, qos_text: str | None, assoc_text: str | None) -> None:
        self._path, self._accounting = path, (qos_text, assoc_text)
        self._draft = Draft(str(path))
        self._settings: Entries = {}
        self._node_lines: list[tuple[Entry, Entries]] = []
        self._down_lines: list[tuple[Entry, Entries]] = []
        self._node_defaults: Entries = {}
        self._partition_defaults: Entries = {}

    def read(self, line: Line) -> None:
        kinds = {
            "nodename": self._nodes,
            "downnodes": self._down_nodes,
            "nodeset": self._node_set,
            "partitionname": self._partition,
        }
        if line.kind == "frontendname":
            why = "front ends are not simulated; jobs run on the nodes of the NodeName lines"
            self._draft.note([line.entries[0].not_simulated(why)])
            return
        kinds.get(line.kind, self._set)(line)

    def finish(self) -> ClusterDescription:
        self._keep_times(self._settings, SPANS)
        check_settings(self._settings)
        self._settings = self._readable(self._settings, WORD_READERS)
        params, notes = of_cluster(self._settings)
        self._draft.notes += notes
        self._draft.tres = tracked(self._settings.get("accountingstoragetres"))
        types = self._settings.get("grestypes")
        self._draft.gres_types = frozenset(types.value.split(",") if types is not None else ())
        self._finish_nodes()
        self._finish_notes()
        # slurmctld has it in lower case, and so have the files and tables that are named after it.
        named = self._settings.get("clustername")
        name = "cluster" if named is None else named.value.lower()
        enforce = self._settings.get("accountingstorageenforce")
        if self._accounting == (None, None):
            if enforce is not None:
                why = (
                    "associations, QOS and their limits are in the accounting database: give what"
                    " sacctmgr shows, too"
                )
                self._draft.notes.append(enforce.not_simulated(why))
            return self._draft.finish(name, params)
        unset = Entry("AccountingStorageEnforce", "", str(self._path))
        found = read_accounting(*self._accounting, name).enforced(enforce or unset)
        self._draft.notes += found.notes
        return self._draft.finish(name, params, found.qos, found.associations)

    def _finish_nodes(self) -> None:
        """What the lines of nodes come to, once all are read."""
        fates: dict[str, NodeFate] = {}
        for head, entries in self._node_lines:
            self._draft.add_nodes(head, entries, UP)
            fates |= dict.fromkeys(hosts(head), configured_fate(entries.get("state")))
        for head, entries in self._down_lines:
            fates |= self._down(head, entries.get("state"))
        for name, fate in fates.items():
            self._draft.set_fate(name, fate)

    def _readable(self, entries: Entries, readers: Readers) -> Entries:
        kept, notes = readable(entries, readers)
        self._draft.note(notes)
        return kept

    def _finish_notes(self) -> None:
        if "enforcepartlimits" not in self._settings:  # its default, NO, is not simulated
            unset = Entry("EnforcePartLimits", "", str(self._path))
            self._draft.notes.append(
                unset.not_simulated(f"not set, so NO; {GLOBAL_DIFFERENCES['enforcepartlimits'][1]}")
            )
        if (accounting := self._settings.get("accountingstoragetype")) is not None:
            self._draft.notes.append(
                accounting.no_effect("only says whether PriorityWeightAge and Fairshare count")
            )

    def _keep_times(self, entries: Entries, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key in entries and (kept := kept_time(entries[key])) is not entries[key]:
                why = f"slurmctld's seconds run over, and it takes {kept.value} (minutes)"
                self._draft.note([entries[key].note(NoteKind.IGNORED, why)])
                entries[key] = kept

    def _set(self, line: Line) -> None:
        for entry in line.entries:
            name = entry.key.lower()
            check_numbers([entry], NUMBERS)
            before = self._settings.get(name)
            if before is not None and name != "slurmctldhost":  # of which there may be several
                why = f"given again at {entry.where}, and the last counts, as in slurmctld"
                self._draft.notes.append(before.no_effect(why))
            self._settings[name] = entry

    def _nodes(self, line: Line) -> None:
        head, own = line.entries[0], by_name(line.entries)
        check_numbers(line.entries, NODE_NUMBERS)
        self._draft.note(
            [*repeated_notes(line.entries), *node_notes(own), *state_notes(own.get("state"))]
        )
        own = self._readable(own, NODE_READERS)
        if head.value.upper() != DEFAULT:
            self._node_lines.append((head, with_defaults(own, self._node_defaults)))
            return
        if address := next(
            (own[key] for key in ("nodehostname", "nodeaddr", "bcastaddr") if key in own), None
        ):
            raise address.error("it on the lines of single nodes, not for DEFAULT")
        self._node_defaults |= own

    def _down_nodes(self, line: Line) -> None:
        """The state of nodes, of later lines, too; DOWN, if none is given."""
        own = by_name(line.entries)
        others = {
            name: entry
            for name, entry in own.items()
            if name not in ("downnodes", "state", "reason")
        }
        self._draft.note(
            [*repeated_notes(line.entries), *(entry.unknown() for entry in others.values())]
        )
        self._down_lines.append((line.entries[0], own))

    def _down(self, head: Entry, state: Entry | None) -> dict[str, NodeFate]:
        """What a DownNodes line makes of nodes that there are."""
        fate = DOWN if state is None else fate_of(state.value)
        if state is not None and (fate is None or state.value.lower() == "unknown"):
            self._draft.note(
                [state.note(NoteKind.IGNORED, "slurmctld leaves the nodes as they are")]
            )
            return {}
        self._draft.note(state_notes(state))
        names = hosts(head)
        if unknown := [name for name in names if name not in self._draft.node_where]:
            why = f"no NodeName line has {compress_hosts(unknown)}; slurmctld goes on without"
            self._draft.note([head.note(NoteKind.IGNORED, why)])
        return {name: fate for name in names if name in self._draft.node_where and fate is not None}

    def _node_set(self, line: Line) -> None:
        """slurmctld takes its name as it stands, and of two sets of one name the first."""
        head, own = line.entries[0], by_name(line.entries)
        known = ("nodeset", "nodes", "feature")
        self._draft.note(
            [
                *repeated_notes(line.entries),
                *(own[name].unknown() for name in own if name not in known),
            ]
        )
        if head.value in self._draft.node_sets:
            self._draft.note(
                [
                    head.note(
                        NoteKind.IGNORED,
                        "there is a NodeSet of this name above, and the first counts",
                    )
                ]
            )
            return
        self._draft.node_sets[head.value] = own

    def _partition(self, line: Line) -> None:
        head, own = line.entries[0], by_name(line.entries)
        check_numbers(line.entries, PARTITION_NUMBERS)
        self._draft.note([*repeated_notes(line.entries), *partition_notes(own)])
        own = self._readable(own, PARTITION_READERS)
        if head.value.upper() == DEFAULT:
            self._partition_defaults |= own
            return
        entries = {**self._partition_defaults, **own}
        self._keep_times(entries, ("maxtime", "defaulttime"))
        self._draft.add_partition(head, entries)
