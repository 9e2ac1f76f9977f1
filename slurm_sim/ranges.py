"""How large numbers may be: what is larger is a slip or in another unit, and the core counts in 64 bits."""

from __future__ import annotations

import operator

from slurm_sim.errors import SimulationError

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


def whole(name: str, value: object, least: int, most: int, error: type[SimulationError]) -> int:
    """The number as Python's (numpy's are taken, too). Raises `error`; True and False are no numbers here."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise error(f"{name} is {value!r}; give a whole number from {least} to {most:,}")
    if number < least:
        raise error(f"{name} is {number}; give at least {least}")
    if number > most:
        seconds = "seconds, " if name.endswith("_s") else ""
        raise error(f"{name} is {number}; give {seconds}at most {most:,}")
    return number
