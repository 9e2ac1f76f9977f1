"""Nodes and partitions from their attributes: those of a slurm.conf's lines, or of what scontrol
shows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from slurm_sim.clusters.known import (
    NODE_DIFFERENCES,
    NODE_NO_EFFECT,
    PARTITION_DIFFERENCES,
    PARTITION_NO_EFFECT,
    names,
    note_on,
)
from slurm_sim.clusters.notes import Entries, Entry, Note, NoteKind, Readers
from slurm_sim.clusters.tres import weights_of_tres
from slurm_sim.clusters.values import (
    expand_list,
    is_unset,
    leading_whole,
    limit_s,
    memory_mib,
    unsigned,
    words,
    yes,
)
from slurm_sim.config import YEAR_S, NodeAction, NodeSpec, Partition
from slurm_sim.ranges import MOST, MOST_WEIGHT

NODE_USED = names(
    "nodename cpus procs boards sockets socketsperboard corespersocket threadspercore realmemory"
    " gres weight feature features state"
)
PARTITION_USED = names(
    "partitionname nodes default maxtime defaulttime minnodes maxnodes prioritytier"
    " priorityjobfactor priority oversubscribe shared overtimelimit qos state tresbillingweights"
    " defmempercpu defmempernode exclusive exclusivetopo"
)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
COUNT = re.compile(r"(\d+)([KMGTP]?)", re.IGNORECASE | re.ASCII)
BITS_16 = 2**16 - 1
BITS_32 = 2**32 - 1


def by_name(pairs: Iterable[Entry]) -> Entries:
    """A line's attributes; of one that stands twice the last."""
    return {entry.key.lower(): entry for entry in pairs}


def repeated_notes(pairs: Sequence[Entry]) -> list[Note]:
    """On what stands on a line again."""
    last = by_name(pairs)
    why = "given again on this line, and the last counts, as in slurmctld"
    return [
        entry.note(NoteKind.IGNORED, why) for entry in pairs if last[entry.key.lower()] is not entry
    ]


def with_defaults(own: Entries, defaults: Entries) -> Entries:
    """A line's attributes, and those of the DEFAULT lines above it that it does not set."""
    if "feature" in own or "features" in own:
        defaults = {
            name: entry for name, entry in defaults.items() if name not in ("feature", "features")
        }
    return {**defaults, **own}


def check_numbers(entries: Iterable[Entry], kinds: Mapping[str, int | None]) -> None:
    """Raises InvalidCluster where slurmctld would not start: a value that is no number, or no YES
    or NO.
    """
    for entry in entries:
        name = entry.key.lower()
        if name in kinds:
            bits = kinds[name]
            _ = yes(entry) if bits is None else unsigned(entry, bits)


def node_notes(entries: Entries) -> list[Note]:
    """On what of a node's line is not used."""
    unused = [entry for name, entry in entries.items() if name not in NODE_USED]
    return [note_on(entry, NODE_DIFFERENCES, NODE_NO_EFFECT) for entry in unused]


def partition_notes(entries: Entries) -> list[Note]:
    """On what of a partition's line is not used."""
    unused = [entry for name, entry in entries.items() if name not in PARTITION_USED]
    return [note_on(entry, PARTITION_DIFFERENCES, PARTITION_NO_EFFECT) for entry in unused]


def make_node(name: str, entries: Entries, gres_types: Collection[str] | None = None) -> NodeSpec:
    """A node with these attributes; what is not given has Slurm's default.

    `gres_types`: GresTypes, other generic resources are not there; None: all of the node's are.
    """
    features = _first(entries, "feature", "features")
    return NodeSpec(
        name,
        cpus=_cpus(entries)[0],
        memory_mib=min(MOST, _number(entries, "realmemory", 64, 1)),
        gpus=_gpus(entries, gres_types)[0],
        weight=min(MOST_WEIGHT - 1, _number(entries, "weight", 32, 1)),
        features=tuple(dict.fromkeys(words(features))) if features is not None else (),
    )


def derived_notes(entries: Entries, gres_types: Collection[str] | None = None) -> list[Note]:
    """On attributes that are used, but not as they stand."""
    notes = [
        *_cpus(entries)[1],
        *_gpus(entries, gres_types)[1],
        *_second_notes(entries, "feature", "features"),
    ]
    if _number(entries, "realmemory", 64, 1) > MOST:
        notes.append(entries["realmemory"].not_simulated(f"{MOST} MiB, the most that is simulated"))
    return notes


def cpus_of_core(entries: Entries) -> int:
    """Of a node with these attributes."""
    return _cpus(entries)[2]


def _first(entries: Entries, *keys: str) -> Entry | None:
    return next((entries[key] for key in keys if key in entries), None)


def _second_notes(entries: Entries, first: str, second: str) -> list[Note]:
    """Of two names for the same thing slurmctld takes the first."""
    if first not in entries or second not in entries:
        return []
    return [
        entries[second].note(NoteKind.IGNORED, f"{entries[first].key} is given, too, and counts")
    ]


def _number(entries: Entries, name: str, bits: int, default: int) -> int:
    return unsigned(entries[name], bits) if name in entries else default


def _at_least_one(entries: Entries, name: str, notes: list[Note]) -> int:
    number = _number(entries, name, 16, 1)
    if number == 0:
        notes.append(entries[name].note(NoteKind.IGNORED, "slurmctld takes 1"))
    return number or 1


def _cpus(entries: Entries) -> tuple[int, list[Note], int]:
    """`slurm.conf(5)`, CPUs: as given, if they are the sockets, cores or threads; otherwise the
    threads.

    And how many of them a core has. Sockets are all of a node's, whatever its Boards; without them
    they follow from the CPUs. Numbers have 16 bits.
    """
    notes: list[Note] = []
    names_of_cpus = [name for name in ("cpus", "procs") if name in entries]
    boards, cores, each = (
        _at_least_one(entries, name, notes)
        for name in ("boards", "corespersocket", "threadspercore")
    )
    cpus = _at_least_one(entries, names_of_cpus[0], notes) if names_of_cpus else 0
    notes += _second_notes(entries, "cpus", "procs")
    if "socketsperboard" in entries:
        sockets = boards * _at_least_one(entries, "socketsperboard", notes) & BITS_16 or 1
        notes += _second_notes(entries, "socketsperboard", "sockets")
    elif "sockets" in entries:
        sockets = _at_least_one(entries, "sockets", notes)
    else:
        sockets = cpus // (cores * each) if cpus and cpus % (cores * each) == 0 else boards
    threads = sockets * cores * each
    if names_of_cpus and cpus not in (sockets, sockets * cores, threads):
        why = (
            f"neither the sockets ({sockets}), the cores ({sockets * cores}) nor the threads;"
            f" slurmctld takes these, {threads & BITS_16}"
        )
        notes.append(entries[names_of_cpus[0]].note(NoteKind.IGNORED, why))
        cpus = 0
    cpus = cpus or threads & BITS_16 or 1
    return cpus, notes, each if cpus == threads else 1


def _gpus(entries: Entries, gres_types: Collection[str] | None) -> tuple[int, list[Note]]:
    """`slurm.conf(5)`, Gres: ``gpu:a100:4(S:0-1),gpu:2``."""
    if (entry := entries.get("gres")) is None or is_unset(entry.value):
        return 0, []
    gpus = 0
    notes = []
    for item in filter(None, re.sub(r"\([^)]*\)", "", entry.value).split(",")):
        name, *kinds = item.split(":")
        each = dataclasses.replace(entry, value=item)
        if gres_types is not None and name not in gres_types:
            notes.append(
                each.note(
                    NoteKind.IGNORED,
                    f"GresTypes does not name {name!r}, so slurmctld has none of it",
                )
            )
            continue
        if name != "gpu":
            notes.append(each.not_simulated(f"only GPUs are counted, not {name}"))
            continue
        count = COUNT.fullmatch(kinds.pop()) if kinds and COUNT.fullmatch(kinds[-1]) else None
        # slurmctld counts so many of each type: gpu:a:b:2 are four.
        kinds = [kind for kind in kinds if kind and kind != "no_consume"]
        number = int(count[1]) * UNITS[count[2].lower()] if count else 1
        gpus += number * max(1, len(kinds))
        if kinds:
            notes.append(entry.not_simulated("GPUs of different types are not told apart"))
    if gpus > MOST:
        notes.append(entry.not_simulated(f"{MOST} GPUs, the most that is simulated"))
    return min(gpus, MOST), notes


PORT = re.compile(r"0*[1-9]\d{0,4}", re.ASCII)


def check_addresses(nodes: int, entries: Entries) -> None:
    """Raises InvalidCluster where slurmctld would not start: addresses, names or ports that are not
    one for each node.

    One alone serves for all.
    """
    for key in ("nodehostname", "nodeaddr", "bcastaddr", "port"):
        if (entry := entries.get(key)) is None:
            continue
        try:
            listed = expand_list(entry.value)
        except ValueError as error:
            raise entry.error(f"one, or one for each node ({error})") from None
        if len(listed) not in (1, nodes):
            raise entry.error(f"one, or {nodes}, one for each node")
        if key == "port" and not all(
            PORT.fullmatch(port) and int(port) <= BITS_16 for port in listed
        ):
            raise entry.error(f"ports from 1 to {BITS_16}")


NodeFate = tuple[NodeAction | None, bool]
"""What becomes of a node at the start, and whether it is there at all."""
UP: NodeFate = (None, True)
DOWN: NodeFate = (NodeAction.DOWN, True)
DRAIN: NodeFate = (NodeAction.DRAIN, True)
ABSENT: NodeFate = (None, False)
CONFIGURED: dict[str, NodeFate] = {
    "unknown": UP,
    "idle": UP,
    "allocated": UP,
    "mixed": UP,
    "down": DOWN,
    "future": ABSENT,
}
"""State= of a NodeName or DownNodes line."""
BEGINNINGS: dict[str, NodeFate] = {"drain": DRAIN, "fail": DRAIN, "cloud": UP}
"""States of which slurmctld reads no more than this: DRAINED, FAILING, CLOUD."""


def fate_of(state: str) -> NodeFate | None:
    """What a State= means; None: slurmctld knows no such state."""
    of_beginning = (
        fate for beginning, fate in BEGINNINGS.items() if state.lower().startswith(beginning)
    )
    return CONFIGURED.get(state.lower()) or next(of_beginning, None)


def configured_fate(entry: Entry | None) -> NodeFate:
    """What State= of a NodeName line means."""
    if entry is None:
        return UP
    if (fate := fate_of(entry.value)) is None:
        raise entry.unknown_value("UNKNOWN, DOWN, DRAIN, FAIL, FAILING, FUTURE or CLOUD")
    return fate


def state_notes(entry: Entry | None) -> list[Note]:
    """On states that are not simulated as they are."""
    if entry is None:
        return []
    if entry.value.lower() == "future":
        return [entry.not_simulated("these nodes are left out")]
    if entry.value.lower() in ("allocated", "mixed"):
        return [entry.not_simulated("these nodes are free at the start")]
    if entry.value.lower().startswith("cloud"):
        return [entry.not_simulated("these nodes are up from the start")]
    return []


PARTITION_STATES = ("down", "up", "drain", "inactive")


def is_open(entry: Entry | None) -> bool:
    """Whether a partition's state lets jobs start; slurmctld reads no more of it than the
    beginning: DRAINED.
    """
    if entry is None:
        return True
    state = next((word for word in PARTITION_STATES if entry.value.lower().startswith(word)), None)
    if state is None:
        raise entry.unknown_value("UP, DOWN, DRAIN or INACTIVE")
    return state in ("up", "drain")


def _partition_state_notes(entry: Entry | None) -> list[Note]:
    if entry is None or entry.value.lower().startswith("up"):
        return []
    if is_open(entry):
        return [entry.not_simulated("new jobs are accepted all the same")]
    return [entry.not_simulated("the partition is left out")]


def shut(entries: Entries) -> Note | None:
    """Why no job can run in a partition with these limits; None: jobs can."""
    why = "the partition is left out: no job can run here"
    least, most = _number(entries, "minnodes", 32, 0), _number(entries, "maxnodes", 32, BITS_32)
    if "maxtime" in entries and limit_s(entries["maxtime"]) == 0:
        return entries["maxtime"].not_simulated(why)
    if max(1, least) > most:
        return entries["maxnodes"].not_simulated(f"{why}, as MinNodes is more")
    return entries["minnodes"].not_simulated(why) if least > MOST else None


def check_partition(entries: Entries, tres: Collection[str] | None) -> list[Note]:
    """On what of a partition, with its defaults, slurmctld corrects. Raises InvalidCluster where it
    would not start.

    `tres`: see `weights_of_tres`.
    """
    for key in ("maxtime", "defaulttime"):
        if key in entries:
            limit_s(entries[key])
    is_open(entries.get("state"))
    notes = [
        *_sharing_notes(entries),
        *_partition_state_notes(entries.get("state")),
        *_billing(entries, tres)[1],
    ]
    notes += default_time_notes(entries) + _over_time_notes(entries)
    notes += _second_notes(entries, "oversubscribe", "shared")
    notes += _second_notes(entries, "priority", "prioritytier") + _second_notes(
        entries, "priority", "priorityjobfactor"
    )
    return notes


def _word(pattern: str, expected: str) -> Callable[[Entry], None]:
    def check(entry: Entry) -> None:
        if not re.match(pattern, entry.value, re.IGNORECASE):
            raise entry.unknown_value(expected)

    return check


_MODES = "(off|cancel|requeue|suspend|gang|within)"
NODE_READERS: Readers = {"state": configured_fate}
PARTITION_READERS: Readers = {
    "exclusive": lambda entry: _exclusive(entry),
    "oversubscribe": lambda entry: _oversubscribed(entry),
    "shared": lambda entry: _oversubscribed(entry),
    "state": is_open,
    "preemptmode": _word(f"{_MODES}(,{_MODES})*$", "OFF, CANCEL, REQUEUE, SUSPEND, GANG or WITHIN"),
    "selecttypeparameters": _word(
        "none$|cr_(core|socket)", "CR_Core, CR_Core_Memory, CR_Socket or CR_Socket_Memory"
    ),
}
"""Of attributes whose values are words."""


def make_partition(
    name: str, nodes: Sequence[str], entries: Entries, tres: Collection[str] | None = None
) -> Partition:
    """A partition with these attributes, not `shut`; what is not given has Slurm's default."""
    priority = entries.get("priority")
    most = _number(entries, "maxnodes", 32, MOST + 1)
    default_s, most_s = (_optional(entries, key, limit_s) for key in ("defaulttime", "maxtime"))
    return Partition(
        name,
        tuple(nodes),
        max_time_s=most_s,
        default_time_s=None if exceeds(entries) or default_s is None else max(60, default_s),
        min_nodes=max(1, _number(entries, "minnodes", 32, 0)),
        max_nodes=None if most > MOST else most,
        priority_tier=(
            _number(entries, "prioritytier", 16, 1) if priority is None else unsigned(priority, 16)
        ),
        priority_job_factor=(
            _number(entries, "priorityjobfactor", 16, 1)
            if priority is None
            else unsigned(priority, 16)
        ),
        over_time_limit_s=_over_time_s(entries),
        default_memory_per_cpu_mib=_optional(entries, "defmempercpu", memory_mib),
        default_memory_per_node_mib=_optional(entries, "defmempernode", memory_mib),
        exclusive=_sharing(entries) == "exclusive",
        qos=(
            entries["qos"].value
            if "qos" in entries and not is_unset(entries["qos"].value)
            else None
        ),
        **_billing(entries, tres)[0],
    )


def _over_time_s(entries: Entries) -> int | None:
    """A partition's OverTimeLimit, of which slurmctld reads what it begins with; negative: as not
    given.
    """
    entry = entries.get("overtimelimit")
    if entry is None or is_unset(entry.value):
        return None
    if entry.value.lower() in ("infinite", "unlimited"):
        return YEAR_S
    minutes = leading_whole(entry.value)
    return None if minutes < 0 else YEAR_S if minutes >= BITS_16 else 60 * minutes


def _over_time_notes(entries: Entries) -> list[Note]:
    entry = entries.get("overtimelimit")
    if (
        entry is None
        or is_unset(entry.value)
        or re.fullmatch(r"\d+|infinite|unlimited", entry.value, re.I)
    ):
        return []
    seconds = _over_time_s(entries)
    taken = "none, as if it were not given" if seconds is None else f"{seconds // 60} minutes"
    return [entry.note(NoteKind.IGNORED, f"slurmctld takes {taken}")]


def _billing(entries: Entries, tres: Collection[str] | None) -> tuple[dict[str, float], list[Note]]:
    entry = entries.get("tresbillingweights")
    return (
        ({}, [])
        if entry is None or is_unset(entry.value)
        else weights_of_tres(entry, "billing_weight_", tres)
    )


def without_second_default(entries: Entries) -> tuple[Entries, list[Note]]:
    """Of DefMemPerNode and DefMemPerCPU slurmctld takes the former, whatever it says; of the whole
    configuration, or of a partition.
    """
    if "defmempernode" not in entries or "defmempercpu" not in entries:
        return entries, []
    rest = {name: entry for name, entry in entries.items() if name != "defmempercpu"}
    return rest, [
        entries["defmempercpu"].note(NoteKind.IGNORED, "DefMemPerNode is given, too, and counts")
    ]


def exceeds(entries: Entries) -> bool:
    """Whether DefaultTime is beyond MaxTime: slurmctld then takes MaxTime."""
    if "defaulttime" not in entries or "maxtime" not in entries:
        return False
    default_s, most_s = limit_s(entries["defaulttime"]), limit_s(entries["maxtime"])
    return most_s is not None and (default_s is None or default_s > most_s)


def default_time_notes(entries: Entries) -> list[Note]:
    """On a DefaultTime that is not taken as it stands."""
    if exceeds(entries):
        return [
            entries["defaulttime"].note(
                NoteKind.IGNORED, f"it exceeds MaxTime={entries['maxtime'].value}"
            )
        ]
    if "defaulttime" in entries and limit_s(entries["defaulttime"]) == 0:
        return [
            entries["defaulttime"].not_simulated("a job that names no limit gets a minute here")
        ]
    return []


def _optional(entries: Entries, name: str, convert: Callable[[Entry], int | None]) -> int | None:
    return convert(entries[name]) if name in entries else None


EXCLUSIVE_DIFFERENCES = {
    "user": "users may share a node",
    "topo": "a job gets whole nodes, but not the whole switch or block",
    "yes": "a job gets whole nodes, but not the whole switch or block",
}
EXCLUSIVE = ("no", "node", "user", "topo")
"""Of a partition of 26.05 and later, where NODE is what OverSubscribe=EXCLUSIVE was before."""


def _exclusive(entry: Entry) -> set[str]:
    found = set(words(Entry(entry.key, entry.value.lower(), entry.where)))
    if not found <= set(EXCLUSIVE):
        raise entry.unknown_value(", ".join(EXCLUSIVE).upper())
    return found


def _gives_whole_nodes(entries: Entries) -> bool:
    """By Exclusive, or its form in 24.05 to 25.11, ExclusiveTopo."""
    topology = entries.get("exclusivetopo")
    return (
        bool({"node", "topo"} & _exclusive(entries["exclusive"]))
        if "exclusive" in entries
        else False
    ) or (topology is not None and yes(topology))


def _sharing(entries: Entries) -> str:
    """no, exclusive, yes or force."""
    entry = _first(entries, "oversubscribe", "shared")
    if _gives_whole_nodes(entries):
        return "exclusive"
    return "no" if entry is None else _oversubscribed(entry)


def _oversubscribed(entry: Entry) -> str:
    word, colon, jobs = entry.value.lower().partition(":")
    if word not in ("no", "exclusive", "yes", "force") or (colon and word in ("no", "exclusive")):
        raise entry.unknown_value("NO, EXCLUSIVE, YES[:jobs] or FORCE[:jobs]")
    # slurmctld ignores a bad number of jobs, and takes NO.
    return "no" if colon and leading_whole(jobs) < (1 if word == "force" else 2) else word


def _sharing_notes(entries: Entries) -> list[Note]:
    """On OverSubscribe and Exclusive, of which only NO and whole nodes are simulated."""
    for name, word in (("exclusive", "user"), ("exclusive", "topo"), ("exclusivetopo", "yes")):
        if name in entries and word in entries[name].value.lower().split(","):
            return [entries[name].not_simulated(EXCLUSIVE_DIFFERENCES[word])]
    entry = _first(entries, "oversubscribe", "shared")
    if entry is None or _sharing(entries) == "exclusive" or entry.value.lower() == "no":
        return []
    if _sharing(entries) == "no":
        return [entry.note(NoteKind.IGNORED, "slurmctld takes NO, for no such number of jobs")]
    if entry.value.lower() == "force:1":
        return [entry.no_effect("one job on a resource, as with NO")]
    return [entry.not_simulated("a resource is given to one job at a time, as with NO")]
