"""When replicas of a service hand over, so that they do not end together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

APART = 1 / 2
"""Of the distance that the ends of N replicas would have if they were spread evenly over a link."""


def apart_s(length_s: int, replicas: int) -> int:
    """The least distance between the ends of two replicas' links of this length."""
    return int(APART * length_s / replicas) if replicas > 1 else 0


def earlier_s(ends_s: Mapping[int, int], apart_s: int) -> dict[int, int]:
    """How much before its link's end each replica is to hand over, so that any two do so at least
    ``apart_s`` apart. The last one runs to its end; of two that end together the one with the greater
    number goes first. ``ends_s``: by replica.
    """
    later_s, found = inf, dict[int, int]()
    for replica, end_s in sorted(ends_s.items(), key=lambda each: (-each[1], each[0])):
        later_s = min(end_s, later_s - apart_s)
        found[replica] = end_s - int(later_s)
    return found
