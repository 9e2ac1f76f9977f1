"""What single fields of Slurm's answers say: states, times, limits, counts. Pure; ValueError: nothing
that Slurm prints there.

A number that is too large becomes the largest that can be meant (`parsing.py` says why).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

import hostlist

from mirage.chain.durations import parse_time_limit
from mirage.domain import JobState
from mirage.slurm.oddities import note_once
from slurm_sim.node_states import NodeState, node_state

_NO_TIME = frozenset({"", "N/A", "NONE", "None", "Unknown"})
# NOT_SET and Partition_Limit: the job's owner set none. INVALID: squeue's word for more than a
# year.
_NO_LIMIT = frozenset({"", "INVALID", "NOT_SET", "Partition_Limit", "UNLIMITED"})
NO_NODES = frozenset({"", "(null)", "None assigned"})
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3, "?": math.inf}
"""``?`` is Slurm's sign for more than petabytes."""
# States of newer releases, and flags that squeue shows in place of the state.
_SAME_STATE = {
    "EXPEDITING": JobState.PENDING,
    "LAUNCH_FAILED": JobState.PENDING,
    "POWER_UP_NODE": JobState.CONFIGURING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
}
_STATES = {state.value: state for state in JobState} | _SAME_STATE
MAX_COUNT = 2**31 - 1
"""The largest number of nodes, CPUs or GPUs that can be meant; also what the store's integers hold.
"""
MAX_MEMORY_MIB = 2**50
MAX_S = 2**53
"""No time is later."""
_MAX_ARRAY_TASKS = 4_000_001
"""The largest MaxArraySize (slurm.conf(5))."""
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([1-9][0-9]{0,8}))?")


@lru_cache(maxsize=1 << 10)
def known_state(text: str) -> NodeState:
    """What a node's state means; words that are not known here are logged once, and no capacity."""
    try:
        known = node_state(text)
    except ValueError:
        known = NodeState("UNKNOWN", frozenset({text}))
    if known.unknown:
        words = ", ".join(sorted(known.unknown))
        note_once(f"Slurm's node state {words!r} is not known here: such a node is no capacity")
    return known


def first_word(state: str) -> str:
    """The state of "CANCELLED by 1000"."""
    return state.partition(" ")[0]


@lru_cache(maxsize=1 << 10)
def read_state(word: str) -> JobState:
    if not re.fullmatch(r"[A-Za-z0-9_+-]+", word):
        raise ValueError(f"{word!r} is no job state")
    if word not in _STATES:
        note_once(
            f"Slurm's job state {word} is not known here: such a job counts as running if it has"
            " nodes"
        )
    return _STATES.get(word, JobState.UNKNOWN)


@lru_cache(maxsize=1 << 10)
def read_limit(text: str) -> int | None:
    """squeue prints [days-]hours:minutes:seconds, sacct minutes: both are forms of sbatch's --time."""
    return None if text in _NO_LIMIT else parse_time_limit(text)


class Counts(NamedTuple):
    gpus: int
    cpus: int
    memory_mib: int


@lru_cache(maxsize=1 << 10)
def read_counts(tres: str) -> Counts:
    """Of `cpu=4,mem=1.50G,gres/gpu=2,gres/gpu:a100=2`.

    0 where Slurm does not count one: GPUs where AccountingStorageTRES lacks them, memory where jobs
    are not given any.
    """
    counts = dict(item.partition("=")[::2] for item in tres.split(","))
    gpus = [read_count(count) for name, count in counts.items() if name.startswith("gres/gpu:")]
    return Counts(
        read_count(counts["gres/gpu"]) if "gres/gpu" in counts else min(sum(gpus), MAX_COUNT),
        read_count(counts.get("cpu", "0")),
        read_mib(counts.get("mem", "0")),
    )


def read_mib(text: str) -> int:
    """Slurm prints memory with at most two decimals and a suffix; without one it means MiB."""
    number, suffix = (text[:-1], text[-1]) if text[-1:] in _MIB else (text, "M")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number, re.ASCII):
        raise ValueError(f"{text!r} is no amount of memory")
    mib = float(number) * _MIB[suffix]
    return (
        math.ceil(mib) if mib < MAX_MEMORY_MIB else MAX_MEMORY_MIB
    )  # 0 of infinity is no number: it counts as all


@lru_cache(maxsize=1 << 10)
def read_exit_code(text: str) -> int:
    """As a shell shows it: 128 + signal if one ended the job. squeue prints wait(2)'s status, sacct
    `code:signal`.
    """
    code, colon, signal = text.partition(":")
    if not colon:
        code, signal = str(read_number(text) >> 8), str(read_number(text) & 0x7F)
    return 128 + read_number(signal) if read_number(signal) else read_number(code)


@lru_cache(maxsize=1 << 12)
def read_node_names(text: str) -> tuple[str, ...]:
    if text in NO_NODES:
        return ()
    try:
        return tuple(hostlist.expand_hostlist(text))
    except hostlist.BadHostlist as error:
        raise ValueError(f"{text!r} is no node list: {error}") from error


def array_tasks(shown_id: str) -> list[str]:
    """`7` -> [""], `7_3` -> ["3"], `7_[1-5:2,9%4]` -> ["1", "3", "5", "9"]: the tasks that a record
    stands for.
    """
    tasks = shown_id.partition("_")[2]
    if not tasks.startswith("["):
        return [tasks]
    found: list[str] = []
    for part in tasks.strip("[]").partition("%")[0].split(","):
        match = _SPAN.fullmatch(part)
        numbers = (
            range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)) if match else ()
        )
        if not 0 < len(numbers) <= _MAX_ARRAY_TASKS - len(found):
            raise ValueError(f"{shown_id!r} is no list of array tasks")
        found.extend(map(str, numbers))
    return found


def read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ValueError(f"{text!r} is no number")
    return int(text)


def read_count(text: str) -> int:
    """A number that users choose. slurmctld keeps some in 64 bits."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is no number")
    return min(int(text), MAX_COUNT) if len(text) <= 20 else MAX_COUNT


def read_time(text: str) -> int | None:
    """A begin time may be thousands of years off."""
    return None if text in _NO_TIME else min(read_number(text), MAX_S)


def needed_time(at_s: int | None) -> int:
    if at_s is None:
        raise ValueError("a time is missing")
    return at_s


@lru_cache(maxsize=1 << 12)
def read_word(text: str) -> str:
    if text.split() != [text]:
        raise ValueError(f"{text!r} is no name")
    return text


@lru_cache(maxsize=1 << 12)
def read_user(text: str) -> str:
    """Directories have names with blanks."""
    if not text.strip() or "\n" in text:
        raise ValueError(f"{text!r} is no user's name")
    return text
