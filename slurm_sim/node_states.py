"""Node states of Slurm: one table for what `scontrol`, `sinfo` and PySlurm print, and what each
state means.

A node has a base state and flags. `scontrol show node` and PySlurm print all of them
(`IDLE+CLOUD+POWERED_DOWN`). `sinfo -O StateComplete` prints the same in small letters. `sinfo -o
%T` prints one word, which stands for the base and one flag, and a sign for another flag (`mixed#`):
of several flags it leaves some out. Plain sinfo shortens these words (`mix#`).

Sources: sinfo(1), NODE STATE CODES; scontrol(1), State; and what libslurm of 22.05, 24.11 and 26.05
prints for each base with each flag. Imports nothing heavy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

IN_USE = frozenset({"ALLOCATED", "MIXED"})
UP = IN_USE | {"IDLE"}
"""Bases of nodes that Slurm can use. The others: DOWN, ERROR, FUTURE, UNKNOWN (slurmctld has just
started).
"""
BASES = UP | {"DOWN", "ERROR", "FUTURE", "UNKNOWN"}


@dataclass(frozen=True, slots=True)
class Flag:
    """What a flag does to a node whose base is up."""

    sign: str = ""
    """sinfo's sign for it; empty: sinfo has a word for it, or shows nothing."""
    is_out: bool = False
    """The node takes no new jobs until somebody or something changes that: it is no capacity."""
    is_busy: bool = False
    """The node is capacity, but it takes no job at this moment."""
    since: str = "22.05"
    """The first of the releases looked at that has it."""


FLAGS = {
    "BLOCKED": Flag(is_busy=True, since="24.11"),  # a job on another node has this one to itself
    "CLOUD": Flag(),
    "COMPLETING": Flag(sign="+", is_busy=True),
    "DRAIN": Flag(is_out=True),
    "DYNAMIC_FUTURE": Flag(),
    "DYNAMIC_NORM": Flag(),
    "EXTERNAL": Flag(since="26.05"),  # no slurmd runs there; sinfo does not show it
    "FAIL": Flag(is_out=True),
    "INVALID_REG": Flag(is_out=True),  # registered with less than slurm.conf says
    "MAINTENANCE": Flag(sign="$", is_out=True),
    "NOT_RESPONDING": Flag(sign="*", is_out=True),
    "PERFCTRS": Flag(is_busy=True),
    "PLANNED": Flag(sign="-"),  # for a job of higher priority; shorter jobs may run before it
    "POWERED_DOWN": Flag(sign="~"),  # Slurm boots it for a job
    "POWERING_DOWN": Flag(sign="%", is_busy=True),
    "POWERING_UP": Flag(sign="#"),  # jobs are allocated to it while it boots
    "POWER_DOWN": Flag(sign="!", is_busy=True),
    "POWER_UP": Flag(),
    "REBOOT_ISSUED": Flag(sign="^", is_out=True),
    "REBOOT_REQUESTED": Flag(sign="@"),  # once the jobs on it are over: see `_is_out`
    "RESERVED": Flag(is_busy=True),
    "RESUME": Flag(),  # a request
}
POWER_SAVING = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
"""A node with one of these can't answer, and need not."""

_SIGNS = {flag.sign: name for name, flag in FLAGS.items() if flag.sign}
_WORDS = {
    "BLOCKED": ("IDLE", "BLOCKED"),
    "CLOUD": ("UNKNOWN", "CLOUD"),
    "COMPLETING": ("IDLE", "COMPLETING"),
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DYNAMIC_FUTURE": ("UNKNOWN", "DYNAMIC_FUTURE"),
    "DYNAMIC_NORM": ("UNKNOWN", "DYNAMIC_NORM"),
    "EXTERNAL": ("UNKNOWN", "EXTERNAL"),
    "FAIL": ("IDLE", "FAIL"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "INVAL": ("IDLE", "INVALID_REG"),
    "MAINT": ("IDLE", "MAINTENANCE"),
    "PERFCTRS": ("IDLE", "PERFCTRS"),
    "PLANNED": ("IDLE", "PLANNED"),
    "POWERED_DOWN": ("UNKNOWN", "POWERED_DOWN"),
    "POWERING_DOWN": ("UNKNOWN", "POWERING_DOWN"),
    "POWERING_UP": ("UNKNOWN", "POWERING_UP"),
    "POWER_DOWN": ("UNKNOWN", "POWER_DOWN"),
    "POWER_UP": ("UNKNOWN", "POWER_UP"),
    "REBOOT": ("IDLE", "REBOOT_REQUESTED"),
    "RESERVED": ("IDLE", "RESERVED"),
}
"""Words of sinfo that are no base, and what they stand for. UNKNOWN: libslurm has the word for no
other base.
"""
_COMPACT = {
    "ALLOC": "ALLOCATED",
    "BLOCK": "BLOCKED",
    "BOOT": "REBOOT",
    "COMP": "COMPLETING",
    "DRAIN": "DRAINED",
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "FUTR": "FUTURE",
    "MIX": "MIXED",
    "NPC": "PERFCTRS",
    "PLND": "PLANNED",
    "RESM": "RESUME",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
}
"""The words of `sinfo -o %t` and of plain sinfo, where they differ from those of `%T`."""
_TEXT = re.compile(r"(?:[A-Z_]+|\?)(?:\+[A-Z_]+|[^\w\s])*")
_PARTS = re.compile(r"\+?[A-Z_]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's state, whichever command printed it."""

    base: str
    flags: frozenset[str]

    @property
    def up(self) -> bool:
        """Whether the node is capacity: in use, or able to take jobs, if need be after Slurm has
        booted it.
        """
        return self.base in UP and not any(map(self._is_out, self.flags))

    @property
    def idle(self) -> bool:
        """Up, empty, and free to take a job now."""
        return (
            self.base == "IDLE" and self.up and not any(FLAGS[flag].is_busy for flag in self.flags)
        )

    @property
    def unknown(self) -> frozenset[str]:
        """Its words that no release known here has."""
        return (self.flags - FLAGS.keys()) | ({self.base} - BASES)

    @property
    def is_absent(self) -> bool:
        """FUTURE: only a name in slurm.conf."""
        return self.base == "FUTURE"

    @property
    def is_drained(self) -> bool:
        """Out of service by somebody's or slurmctld's decision, while its base is up: jobs on it go
        on.
        """
        return (
            self.base in UP and not self.up and bool(self.flags & {"DRAIN", "FAIL", "INVALID_REG"})
        )

    def _is_out(self, flag: str) -> bool:
        if flag == "NOT_RESPONDING":
            return not self.flags & POWER_SAVING
        if flag == "REBOOT_REQUESTED":
            return self.base not in IN_USE  # an empty node reboots at once
        known = FLAGS.get(flag)
        return (
            known is None or known.is_out
        )  # a flag of a newer release: never guess that the node takes jobs


@lru_cache(maxsize=1 << 10)
def node_state(text: str) -> NodeState:
    """Reads `IDLE+DRAIN`, `mixed#`, `mix#`, `drained*`. Raises ValueError for what is no node state by its
    form.
    """
    text = text.upper()
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is no node state")
    word, *more = _PARTS.findall(text)
    word = _COMPACT.get(word, word)
    base, flag = _WORDS.get(word, (word, ""))
    flags = {flag, *(_SIGNS.get(part, part.removeprefix("+")) for part in more)} - {""}
    if flag == "REBOOT_REQUESTED" and "REBOOT_ISSUED" in flags:
        flags.discard(flag)
    return NodeState(base, frozenset(flags))
