"""A cluster from what a live Slurm prints: `scontrol show config`, `show node -o`, `show partition
-o`, sacctmgr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from slurm_sim.clusters.draft import Draft
from slurm_sim.clusters.notes import ClusterDescription, Entries, Entry
from slurm_sim.clusters.parts import (
    ABSENT,
    DOWN,
    DRAIN,
    UP,
    NodeFate,
    by_name,
    node_notes,
    partition_notes,
)
from slurm_sim.clusters.sacctmgr import read_accounting
from slurm_sim.clusters.scheduler import of_cluster, set_entries
from slurm_sim.clusters.values import compress_hosts, hosts
from slurm_sim.config import Params
from slurm_sim.errors import InvalidCluster
from slurm_sim.node_states import node_state

CONFIG, NODES, PARTITIONS = "scontrol show config", "scontrol show node", "scontrol show partition"
SETTING = re.compile(r"(?P<key>[A-Za-z0-9_]+(?:\[\d+\])?)\s*= ?(?P<value>.*)")
ATTRIBUTE = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_]*)=")
NODE_ATTRIBUTES = {
    "cputot": "CPUs",
    "corespersocket": "CoresPerSocket",
    "threadspercore": "ThreadsPerCore",
    "sockets": "Sockets",
    "realmemory": "RealMemory",
    "gres": "Gres",
    "weight": "Weight",
    "availablefeatures": "Features",
    "corespeccount": "CoreSpecCount",
    "cpuspeclist": "CpuSpecList",
    "memspeclimit": "MemSpecLimit",
}
"""Of `scontrol show node`: what is configuration, and its name in slurm.conf; the rest is the
node's present state.
"""
LATE = {"nodename": ("state", "weight"), "partitionname": ("state",)}
"""Of a node and a partition: what stands late in a whole record, and decides much."""
PARTITION_COUNTS = ("totalcpus", "totalnodes", "tres", "nodesets")
"""Of `scontrol show partition`: what follows from the rest."""


def read_live(
    config_text: str,
    nodes_text: str,
    partitions_text: str,
    qos_text: str | None = None,
    assoc_text: str | None = None,
) -> ClusterDescription:
    """The cluster as slurmctld has it now.

    `config_text`: `scontrol show config`; `nodes_text`, `partitions_text`: `scontrol show node -o`,
    `... partition -o`; `qos_text`, `assoc_text`: `sacctmgr -P show qos`, `sacctmgr -P show assoc
    tree` (or with a column ParentName). Nodes that are down or drained now are so from time 0.
    Raises InvalidCluster with the command and the line.
    """
    settings = _settings(config_text)
    params, notes = of_cluster(settings)
    draft = _drafted(nodes_text, partitions_text)
    draft.notes[:0] = notes
    name = settings["clustername"].value if "clustername" in settings else "cluster"
    enforce = settings.get("accountingstorageenforce") or Entry(
        "AccountingStorageEnforce", "", CONFIG
    )
    accounting = read_accounting(qos_text, assoc_text, name).enforced(enforce)
    draft.notes += accounting.notes
    return draft.finish(name, params, accounting.qos, accounting.associations)


def read_live_nodes(
    name: str, params: Params, nodes_text: str, partitions_text: str
) -> ClusterDescription:
    """As `read_live` where slurm.conf is not shown: ``params`` are assumed, and marked so. Raises
    InvalidCluster.
    """
    found = _drafted(nodes_text, partitions_text).finish(name, params)
    return replace(found, cluster=replace(found.cluster, scheduler_is_assumed=True))


def _drafted(nodes_text: str, partitions_text: str) -> Draft:
    draft = Draft("the live cluster")
    for entries in _records(nodes_text, NODES, "nodename"):
        _add_node(draft, entries)
    for entries in _records(partitions_text, PARTITIONS, "partitionname"):
        _add_partition(draft, entries)
    return draft


def _settings(text: str) -> Entries:
    """The lines ``Key = value``, up to the blank line before what is not slurm.conf's; slurmctld's
    state is last.
    """
    entries: Entries = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if entries and not line.strip():
            break
        if (found := SETTING.fullmatch(line)) is not None:
            entries[found["key"].lower()] = Entry(
                found["key"], found["value"].strip(), f"{CONFIG}:{number}"
            )
        elif line.strip() and not line.startswith("Configuration data as of"):
            raise InvalidCluster(
                f"{CONFIG}:{number}: found {line!r}; give the output of `{CONFIG}`: Key = value"
            )
    last = text.rstrip().rpartition("\n")[2]
    if "schedulertype" not in entries or not last.startswith("Slurmctld("):
        missing = (
            "line Slurmctld(...) at its end" if "schedulertype" in entries else "SchedulerType"
        )
        raise InvalidCluster(
            f"{CONFIG}: no {missing}: cut short? Give the whole output of `{CONFIG}`"
        )
    return set_entries(entries)


def _records(text: str, source: str, first: str) -> Iterator[Entries]:
    """One line each (`-o`). Values may hold blanks; of a key that seems to come twice the first
    counts.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{source}:{number}"
        pieces = ATTRIBUTE.split(line)
        entries: Entries = {}
        for key, value in zip(pieces[1::2], pieces[2::2], strict=True):
            entries.setdefault(key.lower(), Entry(key, value.strip(), where))
        if next(iter(entries), None) != first:
            raise InvalidCluster(
                f"{where}: found {line[:40]!r}; give the output of `{source} -o`, one line each"
            )
        if late := [name for name in LATE[first] if name not in entries]:
            whose = entries[first]
            raise InvalidCluster(
                f"{where}: {whose.key}={whose.value}: no {late[0].capitalize()} in its record: cut"
                f" short? Give the whole output of `{source} -o`"
            )
        yield set_entries(entries)


def _add_node(draft: Draft, shown: Entries) -> None:
    known = [
        Entry(NODE_ATTRIBUTES[name], shown[name].value, shown[name].where)
        for name in shown
        if name in NODE_ATTRIBUTES
    ]
    entries = by_name(known)
    draft.note(node_notes(entries))
    draft.add_nodes(shown["nodename"], entries, _fate(draft, shown["state"]))


def _fate(draft: Draft, state: Entry) -> NodeFate:
    """What a node's present state means for the simulation (`slurm_sim.node_states`)."""
    try:
        known = node_state(state.value)
    except ValueError as error:
        raise InvalidCluster(f"{state.where}: State={state.value}: {error}") from None
    if known.is_absent:
        return ABSENT
    if not known.up:
        return DRAIN if known.is_drained or "MAINTENANCE" in known.flags else DOWN
    if any("POWER" in flag for flag in known.flags):
        draft.notes.append(
            state.not_simulated("nodes are never powered down here, so none has to boot")
        )
    if "RESERVED" in known.flags:
        draft.notes.append(
            state.not_simulated(
                "reservations are not in this output: the node is free for all jobs"
            )
        )
    return UP


def _add_partition(draft: Draft, shown: Entries) -> None:
    entries = by_name(entry for name, entry in shown.items() if name not in PARTITION_COUNTS)
    draft.notes += partition_notes(entries)
    nodes = entries.get("nodes")
    if nodes is not None:
        _leave_out_hidden(draft, entries, nodes)
    draft.add_partition(entries["partitionname"], entries)


def _leave_out_hidden(draft: Draft, entries: Entries, nodes: Entry) -> None:
    """FUTURE nodes are in a partition's list, but `show node` does not have them."""
    there = [name for name in hosts(nodes) if name in draft.node_where]
    if len(there) < len(hosts(nodes)):
        draft.notes.append(
            nodes.not_simulated(
                "nodes that `scontrol show node` does not list (FUTURE) are left out"
            )
        )
        entries["nodes"] = Entry(nodes.key, compress_hosts(there), nodes.where)
