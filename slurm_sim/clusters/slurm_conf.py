"""A cluster from its slurm.conf (`slurm.conf(5)`, Slurm 22.05)."""

from __future__ import annotations

from pathlib import Path

from slurm_sim.clusters.draft import Draft
from slurm_sim.clusters.known import GLOBAL_DIFFERENCES
from slurm_sim.clusters.lines import Line, read_lines
from slurm_sim.clusters.notes import Entries, Entry, Loaded
from slurm_sim.clusters.parts import by_name, configured_fate, node_notes, partition_notes, state_notes
from slurm_sim.clusters.sacctmgr import read_accounting
from slurm_sim.clusters.scheduler import of_cluster
from slurm_sim.clusters.values import hosts, words

DEFAULT = "DEFAULT"


def read_slurm_conf(path: Path, qos_text: str | None = None, assoc_text: str | None = None) -> Loaded:
    """The cluster, and a note on each parameter that did not go into it; texts as for `read_live`.

    Raises InvalidCluster.
    """
    reader = _Reader(path, qos_text, assoc_text)
    for line in read_lines(path):
        reader.read(line)
    return reader.finish()


class _Reader:
    """Goes through the lines; those named DEFAULT hold for the later ones of their kind."""

    def __init__(self, path: Path, qos_text: str | None, assoc_text: str | None) -> None:
        self._path, self._accounting = path, (qos_text, assoc_text)
        self._draft = Draft(str(path))
        self._settings: Entries = {}
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
            raise line.entries[0].error("NodeName lines instead; front ends are not simulated")
        kinds.get(line.kind, self._set)(line)

    def finish(self) -> Loaded:
        params, notes = of_cluster(self._settings)
        self._draft.notes += notes
        if "enforcepartlimits" not in self._settings:  # its default, NO, is not simulated
            unset = Entry("EnforcePartLimits", "", str(self._path))
            self._draft.notes.append(
                unset.not_simulated(f"not set, so NO; {GLOBAL_DIFFERENCES['enforcepartlimits'][1]}")
            )
        if (accounting := self._settings.get("accountingstoragetype")) is not None:
            self._draft.notes.append(accounting.no_effect("only says whether PriorityWeightAge and Fairshare count"))
        name = self._settings["clustername"].value if "clustername" in self._settings else "cluster"
        enforce = self._settings.get("accountingstorageenforce")
        if self._accounting == (None, None):
            if enforce is not None:
                why = "associations, QOS and their limits are in the accounting database: give what sacctmgr shows, too"
                self._draft.notes.append(enforce.not_simulated(why))
            return self._draft.finish(name, params)
        unset = Entry("AccountingStorageEnforce", "", str(self._path))
        found = read_accounting(*self._accounting, name).enforced(enforce or unset)
        self._draft.notes += found.notes
        return self._draft.finish(name, params, found.qos, found.associations)

    def _set(self, line: Line) -> None:
        for entry in line.entries:
            name = entry.key.lower()
            if (before := self._settings.get(name)) is not None:
                why = f"given again at {entry.where}, and the last counts, as in slurmctld"
                self._draft.notes.append(before.no_effect(why))
            self._settings[name] = entry

    def _nodes(self, line: Line) -> None:
        head, own = line.entries[0], by_name(line.entries)
        self._draft.notes += [*node_notes(own), *state_notes(own.get("state"))]
        if head.value.upper() == DEFAULT:
            self._node_defaults |= own
            return
        entries = {**self._node_defaults, **own}
        self._draft.add_nodes(head, entries, configured_fate(entries.get("state")))

    def _down_nodes(self, line: Line) -> None:
        """The state of nodes of earlier lines; DOWN, if none is given."""
        head, own = line.entries[0], by_name(line.entries)
        state = own.get("state", Entry("State", "DOWN", head.where))
        del own["downnodes"]
        self._draft.notes += [*node_notes(own), *state_notes(state)]
        for name in hosts(head):
            if name not in self._draft.node_where:
                raise head.error(f"nodes of the NodeName lines above: not {name}")
            self._draft.set_fate(name, configured_fate(state))

    def _node_set(self, line: Line) -> None:
        own = by_name(line.entries)
        for name in words(line.entries[0]):
            self._draft.node_sets[name] = own
        known = ("nodeset", "nodes", "features")
        self._draft.notes += [entry.unknown() for name, entry in own.items() if name not in known]

    def _partition(self, line: Line) -> None:
        head, own = line.entries[0], by_name(line.entries)
        self._draft.notes += partition_notes(own)
        if head.value.upper() == DEFAULT:
            self._partition_defaults |= own
            return
        self._draft.add_partition(head, {**self._partition_defaults, **own})
