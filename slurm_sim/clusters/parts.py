"""Nodes and partitions from their attributes: those of a slurm.conf's lines, or of what scontrol shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from slurm_sim.clusters.known import (
    NODE_DIFFERENCES,
    NODE_NO_EFFECT,
    PARTITION_DIFFERENCES,
    PARTITION_NO_EFFECT,
    names,
    note_on,
)
from slurm_sim.clusters.notes import Entries, Entry, Note, NoteKind
from slurm_sim.clusters.tres import weights_of_tres
from slurm_sim.clusters.values import count_or_none, integer, is_unset, limit_s, memory_mib, over_time_limit_s, words
from slurm_sim.config import Node, NodeAction, Partition
from slurm_sim.errors import InvalidCluster
from slurm_sim.ranges import MOST, MOST_OF_PARTITION, MOST_WEIGHT

NODE_USED = names("nodename cpus boards sockets corespersocket threadspercore realmemory gres weight features state")
PARTITION_USED = names(
    "partitionname nodes default maxtime defaulttime minnodes maxnodes prioritytier priorityjobfactor priority "
    "oversubscribe overtimelimit qos state tresbillingweights defmempercpu defmempernode"
)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
COUNT = re.compile(r"(\d+)([KMGTP]?)", re.IGNORECASE | re.ASCII)


ALIASES = {"shared": "oversubscribe", "feature": "features", "procs": "cpus", "socketsperboard": "sockets"}
"""Old and second names of attributes. One name each, so that a line's own value replaces the default."""


def by_name(pairs: Iterable[Entry]) -> Entries:
    """A line's attributes. What stands twice is an error."""
    entries: Entries = {}
    for entry in pairs:
        name = ALIASES.get(entry.key.lower(), entry.key.lower())
        if name in entries:
            raise InvalidCluster(f"{entry.where}: {entry.key} is given twice on this line; give it once")
        entries[name] = entry
    return entries


def node_notes(entries: Entries) -> list[Note]:
    """On what of a node's line is not used."""
    unused = [entry for name, entry in entries.items() if name not in NODE_USED]
    return [note_on(entry, NODE_DIFFERENCES, NODE_NO_EFFECT) for entry in unused]


def partition_notes(entries: Entries) -> list[Note]:
    """On what of a partition's line is not used, or not as it stands."""
    unused = [entry for name, entry in entries.items() if name not in PARTITION_USED]
    notes = [note_on(entry, PARTITION_DIFFERENCES, PARTITION_NO_EFFECT) for entry in unused]
    return [*notes, *_sharing_notes(entries), *_partition_state_notes(entries.get("state")), *_billing(entries)[1]]


def make_node(name: str, entries: Entries) -> Node:
    """A node with these attributes; what is not given has Slurm's default."""
    return Node(
        name,
        cpus=_cpus(entries)[0],
        memory_mib=_integer(entries, "realmemory", 1, least=1),
        gpus=_gpus(entries)[0],
        weight=_integer(entries, "weight", 1, most=MOST_WEIGHT),
        features=tuple(dict.fromkeys(words(entries["features"]))) if "features" in entries else (),
    )


def derived_notes(entries: Entries) -> list[Note]:
    """On attributes that are used, but not as they stand."""
    return [*_cpus(entries)[1], *_gpus(entries)[1]]


def cpus_of_core(entries: Entries) -> int:
    """Of a node with these attributes."""
    return _cpus(entries)[2]


def _integer(entries: Entries, name: str, default: int, least: int = 0, most: int = MOST) -> int:
    return integer(entries[name], least, most) if name in entries else default


_COUNTED = ("threadspercore", "corespersocket", "sockets", "boards")


def _cpus(entries: Entries) -> tuple[int, list[Note], int]:
    """`slurm.conf(5)`, CPUs: as given, if they are the sockets, cores or threads; otherwise the threads.

    And how many of them a core has.
    """
    given = entries.get("cpus")
    sockets = _integer(entries, "boards", 1, 1) * _integer(entries, "sockets", 1, 1)
    cores = sockets * _integer(entries, "corespersocket", 1, 1)
    threads = cores * (threads_each := _integer(entries, "threadspercore", 1, 1))
    if threads > MOST:
        raise next(entries[name] for name in _COUNTED if name in entries).error(f"fewer: {threads:,} threads in all")
    cpus = integer(given, 1) if given else threads
    notes = []
    if given is not None and "sockets" in entries and cpus not in (sockets, cores, threads):
        why = f"neither the sockets ({sockets}), the cores ({cores}) nor the threads; slurmctld takes these, {threads}"
        notes.append(given.note(NoteKind.IGNORED, why))
        cpus = threads
    return cpus, notes, threads_each if cpus > cores else 1


def _gpus(entries: Entries) -> tuple[int, list[Note]]:
    """`slurm.conf(5)`, Gres: ``gpu:a100:4(S:0-1),gpu:2``."""
    if (entry := entries.get("gres")) is None:
        return 0, []
    gpus = 0
    notes = []
    for item in filter(None, re.sub(r"\([^)]*\)", "", entry.value).split(",")):
        name, *kinds = item.strip().split(":")
        count = COUNT.fullmatch(kinds.pop()) if kinds and COUNT.fullmatch(kinds[-1]) else None
        if not name or not all(kinds):
            raise entry.error("name[:type][:count], such as gpu:2 or gpu:a100:4")
        if name.lower() != "gpu":
            notes.append(entry.not_simulated(f"only GPUs are counted, not {name}"))
            continue
        gpus += int(count[1]) * UNITS[count[2].lower()] if count else 1
        if gpus > MOST:
            raise entry.error(f"at most {MOST} GPUs")
        if kinds:
            notes.append(entry.not_simulated("GPUs of different types are not told apart"))
    return gpus, notes


NodeFate = tuple[NodeAction | None, bool]
"""What becomes of a node at the start, and whether it is there at all."""
UP: NodeFate = (None, True)
DOWN: NodeFate = (NodeAction.DOWN, True)
DRAIN: NodeFate = (NodeAction.DRAIN, True)
ABSENT: NodeFate = (None, False)
CONFIGURED: dict[str, NodeFate] = {
    "unknown": UP,
    "idle": UP,
    "cloud": UP,
    "down": DOWN,
    "drain": DRAIN,
    "fail": DRAIN,
    "failing": DRAIN,
    "future": ABSENT,
}
"""State= of a NodeName or DownNodes line."""


def configured_fate(entry: Entry | None) -> NodeFate:
    """What State= of a NodeName line means."""
    if entry is None:
        return UP
    if (fate := CONFIGURED.get(entry.value.lower())) is None:
        raise entry.error("UNKNOWN, DOWN, DRAIN, FAIL, FAILING, FUTURE or CLOUD")
    return fate


def state_notes(entry: Entry | None) -> list[Note]:
    """On states that are not simulated as they are."""
    if entry is None:
        return []
    if entry.value.lower() == "future":
        return [entry.not_simulated("these nodes are left out")]
    if entry.value.lower() == "cloud":
        return [entry.not_simulated("these nodes are up from the start")]
    return []


def is_open(entry: Entry | None) -> bool:
    """Whether a partition's state lets jobs start."""
    if entry is not None and entry.value.lower() not in ("up", "down", "drain", "inactive"):
        raise entry.error("UP, DOWN, DRAIN or INACTIVE")
    return entry is None or entry.value.lower() in ("up", "drain")


def _partition_state_notes(entry: Entry | None) -> list[Note]:
    if entry is None or entry.value.lower() == "up":
        return []
    if is_open(entry):
        return [entry.not_simulated("new jobs are accepted all the same")]
    return [entry.not_simulated("the partition is left out")]


def make_partition(name: str, nodes: Sequence[str], entries: Entries) -> Partition:
    """A partition with these attributes; what is not given has Slurm's default."""
    old_priority = _integer(entries, "priority", 1, most=MOST_OF_PARTITION)
    min_nodes, max_nodes = max(1, _integer(entries, "minnodes", 0)), _optional(entries, "maxnodes", count_or_none)
    if max_nodes is not None and min_nodes > max_nodes:
        raise entries["maxnodes"].error(f"at least MinNodes, {min_nodes}, or no job can run here")
    return Partition(
        name,
        tuple(nodes),
        max_time_s=_optional(entries, "maxtime", limit_s),
        default_time_s=None if default_time_notes(entries) else _optional(entries, "defaulttime", limit_s),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        priority_tier=_integer(entries, "prioritytier", old_priority, most=MOST_OF_PARTITION),
        priority_job_factor=_integer(entries, "priorityjobfactor", old_priority, most=MOST_OF_PARTITION),
        over_time_limit_s=_optional(entries, "overtimelimit", over_time_limit_s),
        default_memory_per_cpu_mib=_optional(entries, "defmempercpu", memory_mib),
        default_memory_per_node_mib=_optional(entries, "defmempernode", memory_mib),
        exclusive=_sharing(entries) == "exclusive",
        qos=entries["qos"].value if "qos" in entries and not is_unset(entries["qos"].value) else None,
        **_billing(entries)[0],
    )


def _billing(entries: Entries) -> tuple[dict[str, float], list[Note]]:
    entry = entries.get("tresbillingweights")
    return ({}, []) if entry is None or is_unset(entry.value) else weights_of_tres(entry, "billing_weight_")


def without_second_default(entries: Entries) -> tuple[Entries, list[Note]]:
    """Of DefMemPerCPU and DefMemPerNode slurmctld takes the former; of the whole configuration, or of a partition."""
    second = entries.get("defmempernode")
    if second is None or memory_mib(second) is None or "defmempercpu" not in entries:
        return entries, []
    rest = {name: entry for name, entry in entries.items() if name != "defmempernode"}
    return rest, [second.note(NoteKind.IGNORED, "DefMemPerCPU is given, too, and counts")]


def default_time_notes(entries: Entries) -> list[Note]:
    """On a DefaultTime beyond MaxTime: slurmctld takes MaxTime."""
    default_s, most_s = (_optional(entries, name, limit_s) for name in ("defaulttime", "maxtime"))
    if default_s is None or most_s is None or default_s <= most_s:
        return []
    return [entries["defaulttime"].note(NoteKind.IGNORED, f"it exceeds MaxTime={entries['maxtime'].value}")]


def _optional(entries: Entries, name: str, convert: Callable[[Entry], int | None]) -> int | None:
    return convert(entries[name]) if name in entries else None


def _sharing(entries: Entries) -> str:
    entry = entries.get("oversubscribe")
    if entry is None:
        return "no"
    word, _, jobs = entry.value.lower().partition(":")
    if word not in ("no", "exclusive", "yes", "force") or (jobs and not jobs.isdecimal()):
        raise entry.error("NO, EXCLUSIVE, YES[:jobs] or FORCE[:jobs]")
    return word


def _sharing_notes(entries: Entries) -> list[Note]:
    """On OverSubscribe, of which only NO and EXCLUSIVE are simulated."""
    entry = entries.get("oversubscribe")
    if entry is None or _sharing(entries) in ("no", "exclusive"):
        return []
    if entry.value.lower() == "force:1":
        return [entry.no_effect("one job on a resource, as with NO")]
    return [entry.not_simulated("a resource is given to one job at a time, as with NO")]
