"""The scheduler's parameters, from Slurm's own names (`slurm.conf(5)`: SchedulerParameters,
Priority*, Select*).

The same names come from a slurm.conf, from `scontrol show config` and from a command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_sim.clusters.checks import SLURMDBD
from slurm_sim.clusters.known import (
    GLOBAL_DIFFERENCES,
    GLOBAL_NO_EFFECT,
    NUMBERS,
    OPTION_DIFFERENCES,
    OPTION_NO_EFFECT,
    note_on,
)
from slurm_sim.clusters.notes import Entries, Entry, Note, NoteKind, UnknownValue, readable
from slurm_sim.clusters.parts import check_numbers, without_second_default
from slurm_sim.clusters.tres import WEIGHTED, weights_of_tres
from slurm_sim.clusters.values import (
    duration_s,
    integer,
    is_unset,
    leading_whole,
    memory_mib,
    over_time_limit_s,
    unsigned,
    words,
    yes,
)
from slurm_sim.config import Params, SelectType
from slurm_sim.errors import InvalidCluster
from slurm_sim.ranges import LONGEST_S, MOST, MOST_WEIGHT
from slurm_sim.seconds import MINUTE_S

SLURM_DEFAULTS = Params(
    priority_multifactor=False,
    priority_weight_age=0,
    priority_weight_job_size=0,
)
"""What slurmctld 22.05 does with an empty slurm.conf: `Params` has other weights, for clusters
described by hand.
"""

Change = dict[str, Any]
"""Fields of `Params` and their new values."""
Rule = Callable[[Entry], tuple[Change, list[Note]]]


def _field(name: str, convert: Callable[[Entry], object]) -> Rule:
    return lambda entry: ({name: convert(entry)}, [])


@dataclass(frozen=True)
class NumberOption:
    """An option of SchedulerParameters that is a number: outside its range slurmctld takes its
    default instead.
    """

    field: str
    least: int
    most: int
    unit: int = 1
    none: bool = False
    """Whether 0 stands for no limit."""

    def change(self, number: int) -> Change:
        """Of a number in the range."""
        return {self.field: None if self.none and not number else number * self.unit}

    @property
    def default(self) -> str:
        """In the option's unit, as slurmctld's log has it."""
        default = getattr(SLURM_DEFAULTS, self.field)
        return str(0 if default is None else default // self.unit)


OPTIONS: Mapping[str, NumberOption] = {
    "batch_sched_delay": NumberOption("batch_sched_delay_s", 0, LONGEST_S),
    "bf_interval": NumberOption("bf_interval_s", 1, 10800),
    "bf_job_part_count_reserve": NumberOption("bf_job_part_count_reserve", 0, 100_000, none=True),
    "bf_max_job_assoc": NumberOption("bf_max_job_assoc", 0, MOST, none=True),
    "bf_max_job_array_resv": NumberOption("bf_max_job_array_resv", 0, 1000),
    "bf_max_job_part": NumberOption("bf_max_job_part", 0, MOST, none=True),
    "bf_max_job_start": NumberOption("bf_max_job_start", 0, 10_000, none=True),
    "bf_max_job_test": NumberOption("bf_max_job_test", 1, 1_000_000),
    "bf_max_job_user": NumberOption("bf_max_job_user", 0, MOST, none=True),
    "bf_max_job_user_part": NumberOption("bf_max_job_user_part", 0, MOST, none=True),
    "bf_min_age_reserve": NumberOption("bf_min_age_reserve_s", 0, 2_592_000),
    "bf_min_prio_reserve": NumberOption("bf_min_prio_reserve", 1, MOST_WEIGHT),
    "bf_node_space_size": NumberOption("bf_node_space_size", 2, 2_000_000),
    "bf_resolution": NumberOption("bf_resolution_s", 1, 3600),
    "bf_window": NumberOption("bf_window_s", 1, 43200, MINUTE_S),
    "bf_window_linear": NumberOption("bf_window_linear_s", 1, MOST),
    "default_queue_depth": NumberOption("default_queue_depth", 0, MOST),
    "partition_job_depth": NumberOption("partition_job_depth", 0, MOST, none=True),
    "sched_interval": NumberOption("sched_interval_s", 0, LONGEST_S),
    "sched_max_job_start": NumberOption("sched_max_job_start", 0, MOST, none=True),
    "sched_min_interval": NumberOption("sched_min_interval_s", 0, MOST),
}
"""With the ranges that slurmctld 22.05 checks, and the units of the manual: bf_window is minutes.
"""

SWITCHES: Mapping[str, Change] = {
    "bf_busy_nodes": {"bf_busy_nodes": True},
    "bf_one_resv_per_job": {"bf_one_resv_per_job": True},
    "defer": {"defer": True},
}
"""Options of SchedulerParameters that are simulated and have no value."""
OFF: Mapping[str, Change] = {"bf_interval": {"backfill": False}, "sched_interval": {"main": False}}
"""What -1 switches off."""
SIMULATED = (*OPTIONS, *SWITCHES)


def _options(entry: Entry) -> tuple[Change, list[Note]]:
    """As slurmctld finds them in the text: each option's first mention counts, what is no number is
    0, and what is out of range is the default.
    """
    text = entry.value.lower()
    changes: Change = {}
    notes: list[Note] = []
    for name, switched in SWITCHES.items():
        changes |= switched if name in text else {}
    for name, option in OPTIONS.items():
        if (at := text.find(f"{name}=")) >= 0:
            given = entry.value[at + len(name) + 1 :].split(",")[0]
            change, more = _numbered(Entry(name, given.strip(), entry.where), option)
            changes |= change
            notes += more
    return changes, notes + _notes_on_options(entry, text)


def _notes_on_options(entry: Entry, text: str) -> list[Note]:
    """On those that slurmctld does not find, finds twice, or that are not simulated."""
    notes: list[Note] = []
    seen: set[str] = set()
    for option in _each_option(entry):
        name = option.key.lower()
        if name in seen:
            notes.append(option.note(NoteKind.IGNORED, "given twice: the first one counts"))
        elif name in OPTIONS and f"{name}=" not in text:
            notes.append(
                option.note(
                    NoteKind.IGNORED,
                    f"slurmctld looks for {name}=, and takes {OPTIONS[name].default}",
                )
            )
        elif name not in SIMULATED:
            notes += [note_on(option, OPTION_DIFFERENCES, OPTION_NO_EFFECT)]
        seen.add(name)
    return notes


def _numbered(given: Entry, option: NumberOption) -> tuple[Change, list[Note]]:
    number = leading_whole(given.value, 64 if given.key == "bf_min_prio_reserve" else 32)
    if number == -1 and given.key in OFF:
        return dict(OFF[given.key]), []
    if not option.least <= number <= option.most:
        why = (
            f"slurmctld takes its default, {option.default}, for what is not from {option.least} to"
            f" {option.most}"
        )
        return {}, [given.note(NoteKind.IGNORED, why)]
    notes = []
    if not re.fullmatch(r"\d+", given.value, re.ASCII) or int(given.value) != number:
        notes.append(given.note(NoteKind.IGNORED, f"slurmctld reads {number}"))
    change, more = _simulated(given, option, number)
    return change, notes + more


def _simulated(given: Entry, option: NumberOption, number: int) -> tuple[Change, list[Note]]:
    """What of it is simulated."""
    if given.key == "sched_min_interval":
        # In microseconds; by default 2.
        seconds, rest_us = divmod(number, 1_000_000)
        note = given.not_simulated(
            f"main passes come in whole seconds; here at least {seconds} s lie between them"
        )
        return {option.field: seconds}, [note] if rest_us > 2 else []
    if number == 0 and given.key in NOT_ZERO:
        return {option.field: 1}, [given.not_simulated(NOT_ZERO[given.key])]
    return option.change(number), []


NOT_ZERO = {
    "bf_max_job_array_resv": "backfill reserves nodes for at least one task of an array",
    "default_queue_depth": "a main pass looks at one job at least",
    "sched_interval": "main passes come each second at most",
}
"""Options that may be 0 in slurmctld, and what happens here instead."""


def _each_option(entry: Entry) -> Iterator[Entry]:
    for word in words(entry):
        name, _, value = word.partition("=")
        yield Entry(name.strip(), value.strip(), entry.where)


def _option(option: Entry) -> tuple[Change, list[Note]]:
    """One that was typed by hand: what slurmctld would not take as it stands is an error."""
    name = option.key.lower()
    if name in SWITCHES:
        return dict(SWITCHES[name]), []
    if name not in OPTIONS:
        return {}, [note_on(option, OPTION_DIFFERENCES, OPTION_NO_EFFECT)]
    if name in OFF and option.value == "-1":
        return dict(OFF[name]), []
    known = OPTIONS[name]
    return _simulated(
        Entry(name, option.value, option.where), known, integer(option, known.least, known.most)
    )


def _scheduler_type(entry: Entry) -> tuple[Change, list[Note]]:
    if entry.value not in ("sched/backfill", "sched/builtin"):
        raise entry.unknown_value("sched/backfill or sched/builtin, in lower case")
    return {"backfill": entry.value == "sched/backfill"}, []


def _priority_type(entry: Entry) -> tuple[Change, list[Note]]:
    if entry.value not in ("priority/basic", "priority/multifactor"):
        raise entry.unknown_value("priority/basic or priority/multifactor, in lower case")
    return {"priority_multifactor": entry.value == "priority/multifactor"}, []


def _select_type(entry: Entry) -> tuple[Change, list[Note]]:
    """select/cray_aries takes the place of select/linear, or of another one that
    SelectTypeParameters names.
    """
    if entry.value == "select/cons_res":
        why = "simulated as select/cons_tres, which also hands out GPUs one by one"
        return {"select_type": SelectType.CONS_TRES}, [entry.not_simulated(why)]
    if entry.value == "select/cray_aries":
        return {"select_type": SelectType.LINEAR}, [
            entry.not_simulated("simulated as the plugin that it works upon")
        ]
    try:
        return {"select_type": SelectType(entry.value)}, []
    except ValueError:
        known = "select/linear, select/cons_tres, select/cons_res or select/cray_aries"
        why = f"not known here (known: {known}); simulated as select/cons_tres"
        return {"select_type": SelectType.CONS_TRES}, [entry.note(NoteKind.UNKNOWN, why)]


SELECT_DIFFERENCES = {
    "cr_socket": ("", "CPUs are handed out one by one, not by socket"),
    "cr_socket_memory": ("", "CPUs are handed out one by one, not by socket; memory is counted"),
    "cr_lln": ("", "nodes are not chosen by their load"),
    "cr_one_task_per_core": ("", "jobs ask for CPUs here, not for tasks"),
}
SELECT_UNITS = (
    "cr_cpu",
    "cr_core",
    "cr_socket",
    "cr_cpu_memory",
    "cr_core_memory",
    "cr_socket_memory",
)
"""What is handed out; at most one of these, or CR_Memory, may be given."""
SELECT_USED = (
    "cr_cpu",
    "cr_core",
    "cr_memory",
    "cr_cpu_memory",
    "cr_core_memory",
    "other_cons_res",
    "other_cons_tres",
)
SELECT_NO_EFFECT = frozenset(("cr_pack_nodes", "cr_core_default_dist_block"))


def _select_names(entry: Entry) -> list[str]:
    """Those that are known here."""
    known = {*SELECT_UNITS, *SELECT_USED, *SELECT_DIFFERENCES, *SELECT_NO_EFFECT}
    return [name for name in entry.value.lower().split(",") if name in known]


def _select_parameters(entry: Entry) -> tuple[Change, list[Note]]:
    """Whether memory counts, and the CPUs of a job's cores that it did not ask for."""
    options, names = [word for word in entry.value.split(",") if word], _select_names(entry)
    if len([name for name in names if name in SELECT_UNITS or name == "cr_memory"]) > 1:
        raise entry.error(
            "one of CR_CPU, CR_Core, CR_Socket, CR_Memory, or one with both, such as CR_Core_Memory"
        )
    if "cr_one_task_per_core" in names and {"cr_cpu", "cr_cpu_memory"} & set(names):
        raise entry.error("CR_ONE_TASK_PER_CORE with CR_Core or CR_Core_Memory, not with CR_CPU")
    notes = [
        dataclasses.replace(
            note_on(Entry(option, "", entry.where), SELECT_DIFFERENCES, SELECT_NO_EFFECT),
            parameter=entry.key,
            value=option,
        )
        for option in options
        if option.lower() not in SELECT_USED
    ]
    by_cpu = any(name in ("cr_cpu", "cr_cpu_memory") for name in names)
    with_memory = any(name.endswith("_memory") for name in names)
    if not names:  # as if it were not given
        return {}, notes
    return {"memory_is_consumable": with_memory, "idle_threads_count": not by_cpu}, notes


def _with_select(changes: Change, given: Entries) -> Change:
    """SelectType and SelectTypeParameters together. Raises InvalidCluster where slurmctld would not
    start.
    """
    kind, entry = given.get("selecttype"), given.get("selecttypeparameters")
    names = [] if entry is None else _select_names(entry)
    if (
        kind is not None
        and kind.value == "select/cray_aries"
        and {"other_cons_res", "other_cons_tres"} & set(names)
    ):
        changes = {**changes, "select_type": SelectType.CONS_TRES}
    linear = changes.get("select_type", SelectType.LINEAR) is SelectType.LINEAR
    units = set(names) & set(SELECT_UNITS)
    if entry is not None and names and linear == bool(units):
        wanted = (
            "CR_Memory at most"
            if linear
            else "one of CR_CPU, CR_Core, CR_Socket and their forms with _Memory"
        )
        raise entry.error(
            f"{wanted}, with SelectType={kind.value if kind is not None else 'select/linear'}"
        )
    # `slurm.conf(5)`, SelectTypeParameters: by default CR_Core_Memory.
    return {**changes, "memory_is_consumable": True} if not linear and not names else changes


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
    """slurmctld looks for the flags in the text, whatever stands between them."""
    text = entry.value.lower()
    notes = []
    for flag in re.split(r"[\s,|]+", entry.value):
        known = [
            name
            for name in (*PRIORITY_FLAGS_USED, *PRIORITY_FLAGS, *NO_DIFFERENCE)
            if name in flag.lower()
        ]
        if flag and not any(name in PRIORITY_FLAGS_USED for name in known):
            shown = note_on(
                Entry(max(known, key=len, default=flag), "", entry.where),
                PRIORITY_FLAGS,
                NO_DIFFERENCE,
            )
            notes.append(dataclasses.replace(shown, parameter=entry.key, value=flag))
    given = {
        field for name, fields in PRIORITY_FLAGS_USED.items() if name in text for field in fields
    }
    return {
        field: field in given for fields in PRIORITY_FLAGS_USED.values() for field in fields
    }, notes


def _span_s(entry: Entry) -> int:
    """In whole minutes, rounded up, as slurmctld keeps it; UNLIMITED: 31 years, the longest here."""
    seconds = duration_s(entry)
    if seconds is None:
        return LONGEST_S
    return min(LONGEST_S, -(-seconds // MINUTE_S) * MINUTE_S)


def _period_s(entry: Entry) -> int:
    if duration_s(entry) in (None, 0):
        raise entry.error("at least 1 minute, and not UNLIMITED")
    return _span_s(entry)


def _age_s(entry: Entry) -> int:
    """0: any job is as old as counts, from its first second on."""
    return max(1, _span_s(entry))


def _seconds(bits: int, least: int = 0) -> Callable[[Entry], int]:
    """`scontrol` writes "30 sec"."""
    return lambda entry: min(
        LONGEST_S,
        max(
            least,
            unsigned(dataclasses.replace(entry, value=entry.value.removesuffix(" sec")), bits),
        ),
    )


def _min_job_age(entry: Entry) -> tuple[Change, list[Note]]:
    seconds = _seconds(32, least=2)(entry)
    too_short = _seconds(32)(entry) < seconds
    notes = (
        [entry.note(NoteKind.IGNORED, f"slurmctld takes {seconds}, the least")] if too_short else []
    )
    return {"min_job_age_s": seconds}, notes


def _weight(name: str) -> Rule:
    return _field(name, lambda entry: unsigned(entry, 32))


def _default_memory(name: str, other: str) -> Rule:
    """One replaces the other."""
    return lambda entry: ({name: memory_mib(entry), other: None}, [])


def _auth_info(entry: Entry) -> tuple[Change, list[Note]]:
    """A requeued job waits until its credential has expired."""
    _, found, lifetime = entry.value.partition("cred_expire=")
    if not found:
        return {}, [entry.no_effect("it does not influence scheduling as simulated")]
    seconds = leading_whole(lifetime)
    if not 0 < seconds < LONGEST_S:
        return {}, [
            entry.note(
                NoteKind.IGNORED,
                f"slurmctld takes its default, {SLURM_DEFAULTS.requeue_delay_s - 1} s",
            )
        ]
    return {"requeue_delay_s": seconds + 1}, []


GLOBALS: Mapping[str, Rule] = {
    "authinfo": _auth_info,
    "prioritycalcperiod": _field("priority_calc_period_s", _period_s),
    "prioritydecayhalflife": _field("priority_decay_half_life_s", _span_s),
    "priorityfavorsmall": _field("priority_favor_small", yes),
    "priorityflags": _priority_flags,
    "prioritymaxage": _field("priority_max_age_s", _age_s),
    "priorityweighttres": lambda entry: weights_of_tres(entry, "priority_weight_"),
    "defmempercpu": _default_memory("default_memory_per_cpu_mib", "default_memory_per_node_mib"),
    "defmempernode": _default_memory("default_memory_per_node_mib", "default_memory_per_cpu_mib"),
    "overtimelimit": _field("over_time_limit_s", lambda entry: over_time_limit_s(entry) or 0),
    "killwait": _field("kill_wait_s", _seconds(16)),
    "minjobage": _min_job_age,
    "prioritytype": _priority_type,
    "priorityweightage": _weight("priority_weight_age"),
    "priorityweightfairshare": _weight("priority_weight_fairshare"),
    "priorityweightjobsize": _weight("priority_weight_job_size"),
    "priorityweightpartition": _weight("priority_weight_partition"),
    "priorityweightqos": _weight("priority_weight_qos"),
    "schedulerparameters": _options,
    "schedulertype": _scheduler_type,
    "selecttype": _select_type,
    "selecttypeparameters": _select_parameters,
}
"""Parameters outside SchedulerParameters that are simulated."""

ELSEWHERE = ("clustername", "accountingstorageenforce", "accountingstoragetype")
"""Read by `of_cluster` and the readers themselves."""


def of_cluster(entries: Entries, *, is_running: bool = False) -> tuple[Params, list[Note]]:
    """The parameters of a whole configuration; what it does not set has Slurm 22.05's default.

    ``is_running``: of a slurmctld that runs with it, so that no value of it is wrong.
    """
    changes: Change = {}
    entries, notes = without_second_default(entries)
    entries, unread = readable(
        entries,
        GLOBALS if _is_multifactor(entries) else {**GLOBALS, "priorityweighttres": str},
        InvalidCluster if is_running else UnknownValue,
    )
    notes += unread
    for name, entry in entries.items():
        if name == "priorityweighttres" and not _is_multifactor(entries):
            # Nor does slurmctld look at it.
            notes.append(entry.note(NoteKind.IGNORED, BASIC))
        elif (rule := GLOBALS.get(name)) is not None:
            change, more = rule(entry)
            # bf_interval=-1 also switches backfill off.
            changes |= change | {
                "backfill": changes.get("backfill", True) and change.get("backfill", True)
            }
            notes += more
        elif name not in ELSEWHERE:
            notes.append(note_on(entry, GLOBAL_DIFFERENCES, GLOBAL_NO_EFFECT))
    try:
        changes = _with_select(changes, entries)
    except InvalidCluster:
        if not is_running:
            raise
    params = dataclasses.replace(SLURM_DEFAULTS, **changes)
    without, more = _without_slurmdbd(params, entries)
    in_vain = (
        _basic_notes(params, entries)
        + _linear_notes(params, entries)
        + _memory_notes(params, entries)
    )
    return without, notes + more + in_vain


def _is_multifactor(entries: Entries) -> bool:
    return "prioritytype" in entries and entries["prioritytype"].value == "priority/multifactor"


def _memory_notes(params: Params, entries: Entries) -> list[Note]:
    """On what is said of memory in vain."""
    if params.memory_is_consumable and params.select_type is not SelectType.LINEAR:
        return []
    vain = [entries[name] for name in ("defmempercpu", "defmempernode") if name in entries]
    notes = [
        entry.no_effect("memory is not counted, with these Select parameters") for entry in vain
    ]
    if params.memory_is_consumable:
        notes.append(
            entries["selecttypeparameters"].not_simulated(
                "select/linear does not count memory here"
            )
        )
    return notes


def _without_slurmdbd(params: Params, entries: Entries) -> tuple[Params, list[Note]]:
    """Without slurmdbd a real slurmctld says: PriorityWeightAge can only be used with SlurmDBD,
    ignoring.
    """
    kind = entries.get("accountingstoragetype")
    if kind is not None and kind.value == SLURMDBD:
        return params, []
    why = "slurmctld takes it only if AccountingStorageType is accounting_storage/slurmdbd"
    notes = [
        entries[name].note(NoteKind.IGNORED, why)
        for name in ("priorityweightage", "priorityweightfairshare")
        if params.priority_multifactor and name in entries and unsigned(entries[name], 32)
    ]
    return dataclasses.replace(params, priority_weight_age=0, priority_weight_fairshare=0), notes


BASIC = (
    "priority/basic is first come, first served; it counts with PriorityType=priority/multifactor"
    " only"
)


def _basic_notes(params: Params, entries: Entries) -> list[Note]:
    """On priorities that are set beside priority/basic."""
    if params.priority_multifactor:
        return []
    looked_at = [
        name for name in entries if name.startswith("priority") and name != "priorityweighttres"
    ]
    rules = {name: GLOBALS[name] for name in looked_at if name in GLOBALS}
    return [
        entries[name].note(NoteKind.IGNORED, BASIC)
        for name, rule in rules.items()
        if any(why_ignored(params, field, value) for field, value in rule(entries[name])[0].items())
    ]


LINEAR = (
    "select/linear gives whole nodes and does not look at it; it counts with select/cons_tres only"
)
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
    """Why a field of `Params` asks in vain, beside priority/basic or select/linear; empty: it does
    not.
    """
    if value == getattr(SLURM_DEFAULTS, field):
        return ""
    if not params.priority_multifactor and (field.startswith("priority_") or field in FLAG_FIELDS):
        return BASIC
    return LINEAR if params.select_type is SelectType.LINEAR and field in NOT_LINEAR else ""


def params_from(text: str, base: Params = SLURM_DEFAULTS) -> tuple[Params, tuple[Note, ...]]:
    """`base` with changes such as ``bf_window=2880,bf_max_job_test=500,PriorityWeightAge=1000``.

    Each is an option of SchedulerParameters or another parameter of slurm.conf, in Slurm's notation
    and units, or a field of `Params` that Slurm has no name for (`OWN_FIELDS`). A known one that is
    not simulated gives a `Note`; an unknown one is an error here, since it was typed by hand.
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
        raise InvalidCluster(
            "parameters: DefMemPerCPU and DefMemPerNode are given; give one of them"
        )
    if "selecttype" in entries or "selecttypeparameters" in entries:
        changes = _with_select({"select_type": base.select_type, **changes}, entries)
    params = dataclasses.replace(base, **changes)
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
OWN_FIELDS = ("bf_cycle_us", "limit_check_s", "requeue_delay_s", "time_min_extends")


def _typed(entry: Entry) -> tuple[Change, list[Note]]:
    name = entry.key.lower()
    if name == "time_min_extends":
        return {name: bool(integer(entry, 0, 1))}, []
    if name in OWN_FIELDS:
        return {name: integer(entry, 0, LONGEST_S)}, []
    if name in NUMBERS:
        check_numbers([entry], NUMBERS)
    if (rule := GLOBALS.get(name)) is not None:
        change, notes = rule(entry)
        if unknown := [note for note in notes if note.kind is NoteKind.UNKNOWN]:
            raise InvalidCluster(str(unknown[0]))
        return change, notes
    if name in SIMULATED or name in OPTION_DIFFERENCES or name in OPTION_NO_EFFECT:
        return _option(entry)
    if name in GLOBAL_DIFFERENCES or name in GLOBAL_NO_EFFECT:
        return {}, [note_on(entry, GLOBAL_DIFFERENCES, GLOBAL_NO_EFFECT)]
    like = difflib.get_close_matches(name, [*SIMULATED, *GLOBALS, *OWN_FIELDS], 1)
    hint = (
        f"did you mean {like[0]}?"
        if like
        else f"known: {', '.join(sorted((*SIMULATED, *GLOBALS, *OWN_FIELDS)))}"
    )
    raise InvalidCluster(f"{entry.where}: {entry.key}: not a parameter of slurm.conf; {hint}")


def set_entries(entries: Entries) -> Entries:
    """Without those that scontrol shows as not set."""
    return {name: entry for name, entry in entries.items() if not is_unset(entry.value)}
