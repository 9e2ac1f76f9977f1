"""A cluster from what a live Slurm prints: `scontrol show config`, `show node -o`, `show partition
-o`, sacctmgr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from slurm_sim.clusters.draft import Draft
from slurm_sim.clusters.known import NODE_NUMBERS, PARTITION_NUMBERS
from slurm_sim.clusters.notes import (
    ClusterDescription,
    Entries,
    Entry,
    Note,
    NoteKind,
    Readers,
    readable,
)
from slurm_sim.clusters.parts import (
    ABSENT,
    DOWN,
    DRAIN,
    PARTITION_READERS,
    PARTITION_USED,
    UP,
    NodeFate,
    by_name,
    node_notes,
    partition_notes,
)
from slurm_sim.clusters.sacctmgr import read_accounting
from slurm_sim.clusters.scheduler import of_cluster, set_entries
from slurm_sim.clusters.tres import weights_of_tres
from slurm_sim.clusters.values import compress_hosts, hosts, limit_s, unsigned, yes
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
_NODE_READERS: Readers = {
    name: partial(unsigned, bits=bits) for name, bits in NODE_NUMBERS.items() if bits
}
_PARTITION_READERS: Readers = {
    **{
        name: yes if bits is None else partial(unsigned, bits=bits)
        for name, bits in PARTITION_NUMBERS.items()
        if name in PARTITION_USED
    },
    **PARTITION_READERS,
    "defaulttime": limit_s,
    "maxtime": limit_s,
    "nodes": hosts,
    "tresbillingweights": partial(weights_of_tres, prefix=""),
}
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
    settings, strange = _settings(config_text)
    params, notes = of_cluster(settings, is_running=True)
    draft = _drafted(nodes_text, partitions_text)
    draft.notes[:0] = strange + notes
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
    for entries in _records(draft, nodes_text, NODES, "nodename"):
        _add_node(draft, entries)
    for entries in _records(draft, partitions_text, PARTITIONS, "partitionname"):
        _add_partition(draft, entries)
    return draft


def _settings(text: str) -> tuple[Entries, list[Note]]:
    """The lines ``Key = value``, up to the blank line before what is not slurm.conf's; slurmctld's
    state is last. And a note on each line that is none of these.
    """
    entries: Entries = {}
    strange = []
    for number, line in enumerate(text.splitlines(), start=1):
        if entries and not line.strip():
            break
        if (found := SETTING.fullmatch(line)) is not None:
            entries[found["key"].lower()] = Entry(
                found["key"], found["value"].strip(), f"{CONFIG}:{number}"
            )
        elif line.strip() and not line.startswith("Configuration data as of"):
            strange.append(_strange(line, f"{CONFIG}:{number}", f"`{CONFIG}`: Key = value"))
    if "schedulertype" not in entries and strange:
        raise _wrong_text(strange)
    last = text.rstrip().rpartition("\n")[2]
    if "schedulertype" not in entries or not last.startswith("Slurmctld("):
        missing = (
            "line Slurmctld(...) at its end" if "schedulertype" in entries else "SchedulerType"
        )
        raise InvalidCluster(
            f"{CONFIG}: no {missing}: cut short? Give the whole output of `{CONFIG}`"
        )
    return set_entries(entries), strange


def attributes(line: str) -> dict[str, str]:
    """The values of a record's line, by their keys in lower case."""
    return {key.lower(): value for key, value in _pairs(line).items()}


def _pairs(line: str) -> dict[str, str]:
    pieces = ATTRIBUTE.split(line)
    found: dict[str, str] = {}
    for key, value in zip(pieces[1::2], pieces[2::2], strict=True):
        found.setdefault(key, value.strip())
    return found


def _strange(line: str, where: str, expected: str) -> Note:
    return Note(NoteKind.UNKNOWN, line[:40], "", where, f"no line of {expected}; left out")


def _wrong_text(strange: list[Note]) -> InvalidCluster:
    """Of a text that has nothing but lines of another kind."""
    first = strange[0]
    expected = first.why.removeprefix("no line of ").removesuffix("; left out")
    return InvalidCluster(
        f"{first.where}: found {first.parameter!r}; give the output of {expected}"
    )


def _records(draft: Draft, text: str, source: str, first: str) -> Iterator[Entries]:
    """One line each (`-o`). Values may hold blanks; of a key that seems to come twice the first
    counts. A line that is no record gets a note.
    """
    found, strange = False, []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{source}:{number}"
        entries = {key.lower(): Entry(key, value, where) for key, value in _pairs(line).items()}
        used = set_entries(entries)
        if next(iter(entries), None) != first or first not in used:
            strange.append(_strange(line, where, f"`{source} -o`, one line each"))
            continue
        if late := [name for name in LATE[first] if name not in entries]:
            whose = entries[first]
            raise InvalidCluster(
                f"{where}: {whose.key}={whose.value}: no {late[0].capitalize()} in its record: cut"
                f" short? Give the whole output of `{source} -o`"
            )
        found = True
        yield used
    if strange and not found:
        raise _wrong_text(strange)
    draft.note(strange)


def _add_node(draft: Draft, shown: Entries) -> None:
    known = [
        Entry(NODE_ATTRIBUTES[name], shown[name].value, shown[name].where)
        for name in shown
        if name in NODE_ATTRIBUTES
    ]
    entries, unread = readable(by_name(known), _NODE_READERS, InvalidCluster)
    draft.note([*node_notes(entries), *unread])
    name = shown["nodename"]
    state = shown.get("state", Entry("State", "", name.where))
    draft.add_nodes(name, entries, _fate(draft, state))


def _fate(draft: Draft, state: Entry) -> NodeFate:
    """What a node's present state means for the simulation (`slurm_sim.node_states`)."""
    try:
        known = node_state(state.value)
    except ValueError:
        why = "no node state that is known here, so the node is taken as down"
        draft.note([state.note(NoteKind.UNKNOWN, why)])
        return DOWN
    if known.unknown:
        words = ", ".join(sorted(known.unknown))
        draft.note([state.note(NoteKind.UNKNOWN, f"{words}: not known here: no capacity")])
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
    entries, unread = readable(entries, _PARTITION_READERS, InvalidCluster)
    draft.note([*partition_notes(entries), *unread])
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
