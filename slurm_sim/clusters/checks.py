"""What slurmctld 22.05 does not start with, of parameters of the whole cluster: values that
contradict each other. Numbers are checked where the lines are read. Words that it does not know may be
a newer release's: they get a note (`WORD_READERS`).

Checked are parameters that have to do with scheduling. What hangs on the machine, such as plugins,
users and files, is not, nor are lists of flags, which grow with each release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_sim.clusters.notes import Entries, Entry, Readers
from slurm_sim.clusters.tres import STATIC, tracked, weights_of_tres
from slurm_sim.clusters.values import duration_s, leading_whole, unsigned

SLURMDBD = "accounting_storage/slurmdbd"
PREEMPTION = ("off", "cancel", "requeue", "suspend", "gang", "within")
ENFORCED = (
    "associations",
    "limits",
    "qos",
    "safe",
    "nojobs",
    "nosteps",
    "wckeys",
    "all",
    "1",
    "2",
    "yes",
)
WORDS: Mapping[str, tuple[str, ...]] = {
    "accountingstoragetype": ("accounting_storage/none", SLURMDBD),
    "enforcepartlimits": ("all", "any", "yes", "up", "true", "1", "no", "down", "false", "0"),
    "preempttype": ("preempt/none", "preempt/qos", "preempt/partition_prio"),
    "priorityusageresetperiod": (
        "none",
        "now",
        "daily",
        "weekly",
        "monthly",
        "quarterly",
        "yearly",
    ),
}
EXACT = ("accountingstoragetype", "preempttype")
"""Names of plugins: slurmctld takes them in lower case only."""
NOT_ZERO = ("firstjobid", "maxjobcount", "maxstepcount")
SHARED_GRES = ("mps", "shard")
LARGEST_SCRIPT = 512 * 2**20
"""Bytes, of max_script_size."""


def _check_word(entry: Entry) -> None:
    name, known = entry.key.lower(), WORDS[entry.key.lower()]
    if (entry.value if name in EXACT else entry.value.lower()) not in known:
        raise entry.unknown_value(" or ".join(known))


def _check_modes(entry: Entry) -> None:
    if not _modes(entry) <= set(PREEMPTION):
        words = ", ".join(PREEMPTION).upper()
        raise entry.unknown_value(f"{words}, or some of them with commas between them")


def _check_enforced(entry: Entry) -> None:
    for word in re.split(r"[,\s]+", entry.value.lower()):
        if word and word not in ENFORCED:
            raise entry.unknown_value(f"some of {', '.join(ENFORCED)}, not {word}")


WORD_READERS: Readers = {
    **dict.fromkeys(WORDS, _check_word),
    "accountingstorageenforce": _check_enforced,
    "preemptmode": _check_modes,
}
"""Of parameters whose values are words that slurmctld 22.05 checks."""


def check_settings(entries: Entries) -> None:
    """Raises InvalidCluster where slurmctld would not start."""
    for name in NOT_ZERO:
        if name in entries and unsigned(entries[name], 32) == 0:
            raise entries[name].error("at least 1")
    _check_preemption(entries)
    _check_priority(entries)
    _check_accounting(entries)
    _check_select(entries)
    if (entry := entries.get("schedulerparameters")) is not None:
        _check_options(entry)


def _check_preemption(entries: Entries) -> None:
    mode, kind = entries.get("preemptmode"), entries.get("preempttype")
    modes = {"off"} if mode is None else _modes(mode)
    if not modes <= set(PREEMPTION) or (kind and kind.value not in WORDS["preempttype"]):
        return
    if mode is not None and "suspend" in modes and "gang" not in modes:
        raise mode.error("SUSPEND,GANG: SUSPEND alone is nothing for slurmctld")
    preempts = bool(modes - {"off", "gang", "within"})
    if kind is not None and kind.value != "preempt/none" and not preempts:
        raise kind.error("it with a PreemptMode that preempts: CANCEL, REQUEUE or SUSPEND,GANG")
    if (
        mode is not None
        and modes - {"off", "gang"}
        and (kind is None or kind.value == "preempt/none")
    ):
        raise mode.error("it with PreemptType=preempt/qos or preempt/partition_prio only")
    if (exempt := entries.get("preemptexempttime")) is not None:
        duration_s(exempt)


def _modes(entry: Entry) -> set[str]:
    return {word.lower() for word in entry.value.split(",") if word}


def _check_priority(entries: Entries) -> None:
    half_life, weights = entries.get("prioritydecayhalflife"), entries.get("priorityweighttres")
    kind = entries.get("prioritytype")
    if weights is not None and kind is not None and kind.value == "priority/multifactor":
        weights_of_tres(weights, "", tracked(entries.get("accountingstoragetres")))
    if (
        half_life is not None
        and duration_s(half_life) == 0
        and "priorityusageresetperiod" not in entries
    ):
        raise half_life.error(
            "more than 0, or PriorityUsageResetPeriod, too: else usage would grow for ever"
        )


def _check_accounting(entries: Entries) -> None:
    listed = entries.get("accountingstoragetres")
    kind = entries.get("accountingstoragetype")
    if (
        listed is not None
        and (kind is None or kind.value != SLURMDBD)
        and (more := tracked(listed) - STATIC)
    ):
        raise listed.error(
            f"it without {sorted(more)[0]}, or AccountingStorageType={SLURMDBD}, which that needs"
        )


def _check_select(entries: Entries) -> None:
    types, nodes = entries.get("grestypes"), entries.get("maxnodecount")
    select = entries["selecttype"].value if "selecttype" in entries else "select/linear"
    shared = (
        [] if types is None else [name for name in types.value.split(",") if name in SHARED_GRES]
    )
    if types is not None and shared and "gpu" not in types.value.split(","):
        raise types.error(f"gpu, too, with {shared[0]}")
    if types is not None and shared and select != "select/cons_tres":
        raise types.error(f"{shared[0]} with SelectType=select/cons_tres only")
    if nodes is not None and unsigned(nodes, 32) and select != "select/cons_tres":
        raise nodes.error("it with SelectType=select/cons_tres only")


def _check_options(entry: Entry) -> None:
    text = entry.value.lower()
    if "max_job_bf=" in text and "bf_max_job_test=" not in text:
        raise entry.error(
            "bf_max_job_test in place of max_job_bf, which slurmctld does not take any more"
        )
    if leading_whole(text.partition("max_script_size=")[2]) > LARGEST_SCRIPT:
        raise entry.error(f"a max_script_size up to {LARGEST_SCRIPT}")
