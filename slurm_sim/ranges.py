"""What is given from outside: of its type, and not larger than can be meant. The core counts in 64
bits.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Real
from reprlib import repr as short
from typing import TypeVar

from slurm_sim.errors import SimulationError, UnknownJob

T = TypeVar("T")

LAST_S = 10**11
"""No time is later than this (about the year 5138 as Unix time), so milliseconds are noticed."""
END_S = 2 * LAST_S
"""No simulation goes on for longer."""
LONGEST_S = 10**9
"""No limit, run time, interval or delay is longer (31 years)."""
MOST = 2**31 - 1
"""Nobody has, or asks for, more of anything."""
MOST_NODES = 100_000
"""More than any cluster has; a slip of the hand, and memory would run out."""
MOST_WEIGHT = 2**32 - 1
"""Slurm keeps priorities and weights in 32 bits."""
MOST_OF_PARTITION = 2**16 - 1
"""And those of a partition, PriorityTier and PriorityJobFactor, in 16."""
LAST_ID = 2**53
BOOLS = ("bool", "bool_")
"""Names of the types of Python and numpy, which takes a third of a second to import."""


def whole(name: str, value: object, least: int, most: int, error: type[SimulationError]) -> int:
    """The number as Python's (numpy's are taken, too). Raises `error`; True and False are no
    numbers here.
    """
    if type(value) is int and least <= value <= most:
        return value
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise error(f"{name} is {value!r}; give a whole number from {least:,} to {most:,}")
    if number < least:
        raise error(f"{name} is {number}; give at least {least}")
    if number > most:
        seconds = "seconds, " if name.endswith("_s") else ""
        raise error(f"{name} is {number}; give {seconds}at most {most:,}")
    return number


def amount(name: str, value: object, most: int, error: type[SimulationError]) -> float:
    """A number from 0 on that may have a fraction. Raises `error`, also for what is infinite or
    none.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= most:
        raise error(f"{name} is {value!r}; give a number from 0 to {most:,}")
    return float(value)


def flag(name: str, value: object, error: type[SimulationError]) -> bool:
    """Python's True or False (numpy's are taken, too). Raises `error`."""
    if type(value).__name__ not in BOOLS:
        raise error(f"{name} is {value!r}; give True or False")
    return bool(value)


def known_id(job_id: object) -> int:
    """A job's id as Python's number. Raises UnknownJob for what no job can have."""
    if type(job_id) is int and 0 < job_id <= LAST_ID:
        return job_id
    return whole("job_id", job_id, 1, LAST_ID, UnknownJob)


def check_kind(name: str, value: object, kind: type, error: type[SimulationError]) -> None:
    """Raises `error` for anything else."""
    if not isinstance(value, kind):
        raise error(f"{name} is {short(value)}; give a {kind.__name__}")


def listed(name: str, values: Iterable[T], kind: type[T], error: type[SimulationError]) -> list[T]:
    """As a list. Raises `error` for what is no list, or has anything else in it."""
    if not isinstance(values, Iterable):
        raise error(f"{name} is {short(values)}; give a list of {kind.__name__}")
    found = list(values)
    for index, value in enumerate(found):
        check_kind(f"{name}[{index}]", value, kind, error)
    return found
