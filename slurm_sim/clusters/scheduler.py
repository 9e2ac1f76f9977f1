"""The scheduler's parameters, from Slurm's own names (`slurm.conf(5)`: SchedulerParameters, Priority*, Select*).

The same names come from a slurm.conf, from `scontrol show config` and from a command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from slurm_sim.clusters.known import (
    GLOBAL_DIFFERENCES,
    GLOBAL_NO_EFFECT,
    OPTION_DIFFERENCES,
    OPTION_NO_EFFECT,
    note_on,
)
from slurm_sim.clusters.notes import Entries, Entry, Note, NoteKind
from slurm_sim.clusters.parts import without_second_default
from slurm_sim.clusters.tres import WEIGHTED, weights_of_tres
from slurm_sim.clusters.values import duration_s, integer, is_unset, memory_mib, over_time_limit_s, words, yes
from slurm_sim.config import Params, SelectType
from slurm_sim.errors import InvalidCluster
from slurm_sim.ranges import LONGEST_S, MOST, MOST_WEIGHT

MINUTE_S = 60
SLURM_DEFAULTS = Params(
    priority_multifactor=False,
    priority_weight_age=0,
    priority_weight_job_size=0,
)
"""What slurmctld 22.05 does with an empty slurm.conf: `Params` has other weights, for clusters described by hand."""

Change = dict[str, Any]
"""Fields of `Params` and their new values."""
Rule = Callable[[Entry], tuple[Change, list[Note]]]


def _field(name: str, convert: Callable[[Entry], object]) -> Rule:
    return lambda entry: ({name: convert(entry)}, [])


def _range(least: int, most: int, unit: int = 1) -> Callable[[Entry], int]:
    return lambda entry: unit * integer(entry, least, most)


def _limit(entry: Entry) -> int | None:
    """0: no limit."""
    return integer(entry, 0, 1_000_000) or None


def _bf_interval(entry: Entry) -> tuple[Change, list[Note]]:
    if entry.value == "-1":
        return {"backfill": False}, []
    return {"bf_interval_s": integer(entry, 1, 10800)}, []


def _sched_interval(entry: Entry) -> tuple[Change, list[Note]]:
    if entry.value == "-1":
        return {"main": False}, []
    return {"sched_interval_s": integer(entry, 1, LONGEST_S)}, []


def _sched_min_interval(entry: Entry) -> tuple[Change, list[Note]]:
    """In microseconds; by default 2."""
    seconds, rest_us = divmod(integer(entry, 0, MOST), 1_000_000)
    told = entry.not_simulated(f"main passes come in whole seconds; here at least {seconds} s lie between them")
    return {"sched_min_interval_s": seconds}, [told] if rest_us > 2 else []


def _array_reservations(entry: Entry) -> tuple[Change, list[Note]]:
    tasks = integer(entry, 0, 1000)
    notes = [] if tasks else [entry.not_simulated("backfill reserves nodes for at least one task of an array")]
    return {"bf_max_job_array_resv": max(1, tasks)}, notes


OPTIONS: Mapping[str, Rule] = {
    "batch_sched_delay": _field("batch_sched_delay_s", _range(0, LONGEST_S)),
    "bf_busy_nodes": lambda _: ({"bf_busy_nodes": True}, []),
    "bf_interval": _bf_interval,
    "bf_job_part_count_reserve": _field("bf_job_part_count_reserve", _limit),
    "bf_max_job_assoc": _field("bf_max_job_assoc", _limit),
    "bf_max_job_array_resv": _array_reservations,
    "bf_max_job_part": _field("bf_max_job_part", _limit),
    "bf_max_job_start": _field("bf_max_job_start", _limit),
    "bf_max_job_test": _field("bf_max_job_test", _range(1, 1_000_000)),
    "bf_max_job_user": _field("bf_max_job_user", _limit),
    "bf_max_job_user_part": _field("bf_max_job_user_part", _limit),
    "bf_min_age_reserve": _field("bf_min_age_reserve_s", _range(0, 2_592_000)),
    "bf_min_prio_reserve": _field("bf_min_prio_reserve", _range(0, MOST_WEIGHT)),
    "bf_one_resv_per_job": lambda _: ({"bf_one_resv_per_job": True}, []),
    "bf_node_space_size": _field("bf_node_space_size", _range(2, 2_000_000)),
    "bf_resolution": _field("bf_resolution_s", _range(1, 3600)),
    "bf_window": _field("bf_window_s", _range(1, 43200, MINUTE_S)),
    "bf_window_linear": _field("bf_window_linear_s", _limit),
    "default_queue_depth": _field("default_queue_depth", _range(1, 1_000_000)),
    "defer": lambda _: ({"defer": True}, []),
    "partition_job_depth": _field("partition_job_depth", _limit),
    "sched_interval": _sched_interval,
    "sched_max_job_start": _field("sched_max_job_start", _limit),
    "sched_min_interval": _sched_min_interval,
}
"""Options of SchedulerParameters that are simulated, with the ranges and units of the manual: bf_window is minutes."""


def _options(entry: Entry) -> tuple[Change, list[Note]]:
    changes: Change = {}
    notes: list[Note] = []
    seen: set[str] = set()
    for option in _each_option(entry):
        if option.key.lower() in seen:
            notes.append(option.note(NoteKind.IGNORED, "given twice: the first one counts"))
            continue
        seen.add(option.key.lower())
        change, more = _option(option)
        changes |= change
        notes += more
    return changes, notes


def _each_option(entry: Entry) -> Iterator[Entry]:
    for word in words(entry):
        name, _, value = word.partition("=")
        yield Entry(name.strip(), value.strip(), entry.where)


def _option(option: Entry) -> tuple[Change, list[Note]]:
    if (rule := OPTIONS.get(option.key.lower())) is not None:
        return rule(option)
    return {}, [note_on(option, OPTION_DIFFERENCES, OPTION_NO_EFFECT)]


def _scheduler_type(entry: Entry) -> tuple[Change, list[Note]]:
    kind = entry.value.lower()
    if kind not in ("sched/backfill", "sched/builtin"):
        raise entry.error("sched/backfill or sched/builtin")
    return {"backfill": kind == "sched/backfill"}, []


def _priority_type(entry: Entry) -> tuple[Change, list[Note]]:
    kind = entry.value.lower()
    if kind not in ("priority/basic", "priority/multifactor"):
        raise entry.error("priority/basic or priority/multifactor")
    return {"priority_multifactor": kind == "priority/multifactor"}, []


def _select_type(entry: Entry) -> tuple[Change, list[Note]]:
    kind = entry.value.lower()
    if kind == "select/cons_res":
        why = "simulated as select/cons_tres, which also hands out GPUs one by one"
        return {"select_type": SelectType.CONS_TRES}, [entry.not_simulated(why)]
    try:
        return {"select_type": SelectType(kind)}, []
    except ValueError:
        raise entry.error("select/linear, select/cons_tres or select/cons_res; no other is simulated") from None


SELECT_DIFFERENCES = {
    "cr_socket": ("", "CPUs are handed out one by one, not by socket"),
    "cr_socket_memory": ("", "CPUs are handed out one by one, not by socket; memory is counted"),
    "cr_lln": ("", "nodes are not chosen by their load"),
    "cr_one_task_per_core": ("", "jobs ask for CPUs here, not for tasks"),
    "other_cons_res": ("", "only for Cray"),
    "other_cons_tres": ("", "only for Cray"),
}
SELECT_USED = ("cr_cpu", "cr_core", "cr_memory", "cr_cpu_memory", "cr_core_memory", "none")
SELECT_NO_EFFECT = frozenset(("cr_pack_nodes", "cr_core_default_dist_block"))


def _select_parameters(entry: Entry) -> tuple[Change, list[Note]]:
    """Whether memory counts, and the CPUs of a job's cores that it did not ask for."""
    options = [Entry(entry.key, word, entry.where) for word in words(entry)]
    names = [option.value.lower() for option in options]
    notes = [
        dataclasses.replace(
            note_on(Entry(option.value, "", entry.where), SELECT_DIFFERENCES, SELECT_NO_EFFECT),
            parameter=entry.key,
            value=option.value,
        )
        for option, name in zip(options, names, strict=True)
        if name not in SELECT_USED
    ]
    by_cpu = any(name in ("cr_cpu", "cr_cpu_memory") for name in names)
    with_memory = any(name.endswith("_memory") for name in names)
    return {"memory_is_consumable": with_memory, "idle_threads_count": not by_cpu}, notes


PRIORITY_FLAGS = {
    "depth_oblivious": ("", "usage becomes a factor as without this flag"),
    "no_fair_tree": ("", "usage becomes a factor as without this flag"),
    "no_normal_assoc": ("", "no association's own priority"),
}
NO_DIFFERENCE = frozenset({"calculate_running", "fair_tree"})
PRIORITY_FLAGS_USED = {
    "accrue_always": ("accrue_always",),
    "incr_only": ("incr_only",),
    "max_tres": ("max_tres",),
    "no_normal_all": ("no_normal_part", "no_normal_qos", "no_normal_tres"),
    "no_normal_part": ("no_normal_part",),
    "no_normal_qos": ("no_normal_qos",),
    "no_normal_tres": ("no_normal_tres",),
    "small_relative_to_time": ("small_relative_to_time",),
}
"""And the fields of `Params` that they set."""


def _priority_flags(entry: Entry) -> tuple[Change, list[Note]]:
    flags = words(entry)
    notes = [
        dataclasses.replace(
            note_on(Entry(flag, "", entry.where), PRIORITY_FLAGS, NO_DIFFERENCE),
            parameter=entry.key,
            value=flag,
        )
        for flag in flags
        if flag.lower() not in PRIORITY_FLAGS_USED
    ]
    given = {field for flag in flags for field in PRIORITY_FLAGS_USED.get(flag.lower(), ())}
    return {field: field in given for fields in PRIORITY_FLAGS_USED.values() for field in fields}, notes


def _span_s(entry: Entry) -> int:
    """In whole minutes, rounded up, as slurmctld keeps it."""
    seconds = duration_s(entry)
    if seconds is None:
        raise entry.error("a time; there is no UNLIMITED here")
    return -(-seconds // MINUTE_S) * MINUTE_S


def _positive_span_s(entry: Entry) -> int:
    if (seconds := _span_s(entry)) == 0:
        raise entry.error("at least 1 minute")
    return seconds


def _seconds(entry: Entry) -> int:
    """`scontrol` writes "30 sec"."""
    return integer(dataclasses.replace(entry, value=entry.value.removesuffix(" sec")), 0, LONGEST_S)


def _default_memory(name: str, other: str) -> Rule:
    """One replaces the other."""
    return lambda entry: ({name: memory_mib(entry), other: None}, [])


def _auth_info(entry: Entry) -> tuple[Change, list[Note]]:
    """A requeued job waits until its credential has expired."""
    lifetime = re.search(r"(?:^|,)cred_expire=(\d+)", entry.value, re.IGNORECASE | re.ASCII)
    if lifetime is None:
        return {}, [entry.no_effect("it does not influence scheduling as simulated")]
    seconds = integer(Entry("cred_expire", lifetime[1], f"{entry.where}: {entry.key}"), 0, LONGEST_S - 1)
    return {"requeue_delay_s": seconds + 1}, []


GLOBALS: Mapping[str, Rule] = {
    "authinfo": _auth_info,
    "prioritycalcperiod": _field("priority_calc_period_s", _positive_span_s),
    "prioritydecayhalflife": _field("priority_decay_half_life_s", _span_s),
    "priorityfavorsmall": _field("priority_favor_small", yes),
    "priorityflags": _priority_flags,
    "prioritymaxage": _field("priority_max_age_s", _positive_span_s),
    "priorityweighttres": lambda entry: weights_of_tres(entry, "priority_weight_"),
    "defmempercpu": _default_memory("default_memory_per_cpu_mib", "default_memory_per_node_mib"),
    "defmempernode": _default_memory("default_memory_per_node_mib", "default_memory_per_cpu_mib"),
    "overtimelimit": _field("over_time_limit_s", lambda entry: over_time_limit_s(entry) or 0),
    "killwait": _field("kill_wait_s", _seconds),
    "minjobage": _field("min_job_age_s", _seconds),
    "prioritytype": _priority_type,
    "priorityweightage": _field("priority_weight_age", _range(0, MOST_WEIGHT)),
    "priorityweightfairshare": _field("priority_weight_fairshare", _range(0, MOST_WEIGHT)),
    "priorityweightjobsize": _field("priority_weight_job_size", _range(0, MOST_WEIGHT)),
    "priorityweightpartition": _field("priority_weight_partition", _range(0, MOST_WEIGHT)),
    "priorityweightqos": _field("priority_weight_qos", _range(0, MOST_WEIGHT)),
    "schedulerparameters": _options,
    "schedulertype": _scheduler_type,
    "selecttype": _select_type,
    "selecttypeparameters": _select_parameters,
}
"""Parameters outside SchedulerParameters that are simulated."""

ELSEWHERE = ("clustername", "accountingstorageenforce", "accountingstoragetype")
"""Read by `of_cluster` and the readers themselves."""


def of_cluster(entries: Entries) -> tuple[Params, list[Note]]:
    """The parameters of a whole configuration; what it does not set has Slurm 22.05's default."""
    changes: Change = {}
    entries, notes = without_second_default(entries)
    for name, entry in entries.items():
        if (rule := GLOBALS.get(name)) is not None:
            change, more = rule(entry)
            # bf_interval=-1 also switches backfill off.
            changes |= change | {"backfill": changes.get("backfill", True) and change.get("backfill", True)}
            notes += more
        elif name not in ELSEWHERE:
            notes.append(note_on(entry, GLOBAL_DIFFERENCES, GLOBAL_NO_EFFECT))
    params = dataclasses.replace(SLURM_DEFAULTS, **_with_memory_default(changes, entries))
    without, more = _without_slurmdbd(params, entries)
    in_vain = _basic_notes(params, entries) + _linear_notes(params, entries) + _memory_notes(params, entries)
    return without, notes + more + in_vain


def _with_memory_default(changes: Change, given: Collection[str]) -> Change:
    """`slurm.conf(5)`, SelectTypeParameters: select/cons_tres takes CR_Core_Memory by itself."""
    if changes.get("select_type") is SelectType.CONS_TRES and "selecttypeparameters" not in given:
        return {**changes, "memory_is_consumable": True}
    return changes


def _memory_notes(params: Params, entries: Entries) -> list[Note]:
    """On what is said of memory in vain."""
    if params.memory_is_consumable and params.select_type is not SelectType.LINEAR:
        return []
    vain = [entries[name] for name in ("defmempercpu", "defmempernode") if name in entries]
    notes = [entry.no_effect("memory is not counted, with these Select parameters") for entry in vain]
    if params.memory_is_consumable:
        notes.append(entries["selecttypeparameters"].not_simulated("select/linear does not count memory here"))
    return notes


def _without_slurmdbd(params: Params, entries: Entries) -> tuple[Params, list[Note]]:
    """Without slurmdbd a real slurmctld says: PriorityWeightAge can only be used with SlurmDBD, ignoring."""
    kind = entries.get("accountingstoragetype")
    if kind is not None and kind.value.lower() == "accounting_storage/slurmdbd":
        return params, []
    why = "slurmctld takes it only if AccountingStorageType is accounting_storage/slurmdbd"
    notes = [
        entries[name].note(NoteKind.IGNORED, why)
        for name in ("priorityweightage", "priorityweightfairshare")
        if params.priority_multifactor and name in entries and integer(entries[name], 0, MOST_WEIGHT)
    ]
    return dataclasses.replace(params, priority_weight_age=0, priority_weight_fairshare=0), notes


BASIC = "priority/basic is first come, first served; it counts with PriorityType=priority/multifactor only"


def _basic_notes(params: Params, entries: Entries) -> list[Note]:
    """On priorities that are set beside priority/basic."""
    if params.priority_multifactor:
        return []
    rules = {name: GLOBALS[name] for name in entries if name.startswith("priority") and name in GLOBALS}
    return [
        entries[name].note(NoteKind.IGNORED, BASIC)
        for name, rule in rules.items()
        if any(why_ignored(params, field, value) for field, value in rule(entries[name])[0].items())
    ]


LINEAR = "select/linear gives whole nodes and does not look at it; it counts with select/cons_tres only"
NOT_LINEAR = ("threads_per_core", "bf_busy_nodes", "bf_window_linear_s")


def _linear_notes(params: Params, entries: Entries) -> list[Note]:
    """On options that are set beside select/linear, in SchedulerParameters or alone."""
    if params.select_type is not SelectType.LINEAR:
        return []
    options = list(entries.values())
    if "schedulerparameters" in entries:
        options += _each_option(entries["schedulerparameters"])
    return [
        each.note(NoteKind.IGNORED, LINEAR)
        for each in options
        if each.key.lower() in ("bf_busy_nodes", "bf_window_linear")
    ]


FLAG_FIELDS = frozenset(field for fields in PRIORITY_FLAGS_USED.values() for field in fields)


def why_ignored(params: Params, field: str, value: object) -> str:
    """Why a field of `Params` asks in vain, beside priority/basic or select/linear; empty: it does not."""
    if value == getattr(SLURM_DEFAULTS, field):
        return ""
    if not params.priority_multifactor and (field.startswith("priority_") or field in FLAG_FIELDS):
        return BASIC
    return LINEAR if params.select_type is SelectType.LINEAR and field in NOT_LINEAR else ""


def params_from(text: str, base: Params = SLURM_DEFAULTS) -> tuple[Params, tuple[Note, ...]]:
    """`base` with changes such as ``bf_window=2880,bf_max_job_test=500,PriorityWeightAge=1000``.

    Each is an option of SchedulerParameters or another parameter of slurm.conf, in Slurm's notation and units, or a
    field of `Params` that Slurm has no name for (`OWN_FIELDS`). A known one
    that is not simulated gives a `Note`; an unknown one is an error here, since it was typed by hand.
    """
    changes: Change = {}
    notes: list[Note] = []
    entries: Entries = {}
    for word in _parameters(text):
        name, _, value = word.partition("=")
        entry = Entry(name.strip(), value.strip(), "parameters")
        if entry.key.lower() in entries:
            raise InvalidCluster(f"{entry.where}: {entry.key} is given twice; give it once")
        change, more = _typed(entry)
        changes |= change
        notes += more
        entries[entry.key.lower()] = entry
    if {"defmempercpu", "defmempernode"} <= set(entries):
        raise InvalidCluster("parameters: DefMemPerCPU and DefMemPerNode are given; give one of them")
    params = dataclasses.replace(base, **_with_memory_default(changes, entries))
    return params, (*notes, *_basic_notes(params, entries), *_linear_notes(params, entries))


def _parameters(text: str) -> list[str]:
    """What stands between commas, lists such as ``PriorityFlags=A,B`` in one piece."""
    found: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        members = LISTS.get(found[-1].partition("=")[0].strip().lower(), ()) if found else ()
        if word.partition("=")[0].strip().lower() in members:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


LISTS = {
    "priorityflags": {*PRIORITY_FLAGS, *PRIORITY_FLAGS_USED, *NO_DIFFERENCE},
    "priorityweighttres": {*WEIGHTED, "billing", "energy", "fs/disk", "vmem", "pages"},
}
"""Parameters that are lists, and what may be in them."""
OWN_FIELDS = ("bf_cycle_us", "limit_check_s", "requeue_delay_s")


def _typed(entry: Entry) -> tuple[Change, list[Note]]:
    name = entry.key.lower()
    if name in OWN_FIELDS:
        return {name: integer(entry, 0, LONGEST_S)}, []
    if (rule := OPTIONS.get(name) or GLOBALS.get(name)) is not None:
        return rule(entry)
    if name in OPTION_DIFFERENCES or name in OPTION_NO_EFFECT:
        return _option(entry)
    if name in GLOBAL_DIFFERENCES or name in GLOBAL_NO_EFFECT:
        return {}, [note_on(entry, GLOBAL_DIFFERENCES, GLOBAL_NO_EFFECT)]
    like = difflib.get_close_matches(name, [*OPTIONS, *GLOBALS, *OWN_FIELDS], 1)
    hint = f"did you mean {like[0]}?" if like else f"known: {', '.join(sorted((*OPTIONS, *GLOBALS, *OWN_FIELDS)))}"
    raise InvalidCluster(f"{entry.where}: {entry.key}: not a parameter of slurm.conf; {hint}")


def set_entries(entries: Entries) -> Entries:
    """Without those that scontrol shows as not set."""
    return {name: entry for name, entry in entries.items() if not is_unset(entry.value)}
