"""How often a service must look at links, by how long they run."""

from __future__ import annotations

from collections.abc import Iterable

from mirage.chain.durations import format_duration

LEAST_S = 10
"""No service looks more often: each look asks slurmctld for its whole queue."""
LOOKS = 20
"""In the time of a link: a release is late by a part of this many at most."""


def shortest_s(limits_s: Iterable[int | None]) -> int | None:
    """The shortest of some links' time limits, seconds; None: none has a limit."""
    return min((limit_s for limit_s in limits_s if limit_s is not None), default=None)


def needed_s(limit_s: int) -> int:
    """How often to look at links of this time limit, seconds."""
    return max(LEAST_S, limit_s // LOOKS)


def too_slow(poll_s: int, limit_s: int | None) -> str:
    """What users of links with this limit are to know of a service that looks every ``poll_s``.
    Empty: it looks often enough.
    """
    if limit_s is None or limit_s >= LOOKS * poll_s:
        return ""
    every = format_duration(poll_s)
    return (
        f"links of {format_duration(limit_s)} are short for a look every {every}: the next one may"
        f" be let in up to {every} late"
    )
