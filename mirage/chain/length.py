"""How long a chain is: what its links may use in all, as one word of its folder and of its jobs'
tags.

`5`: five time limits (`--segments`); `604800s`: seconds of running links (`--total-time`); `done`:
until the work is done; empty: just as many links as the chain says (`--up-front`). A link that its
successor asks to end is shorter than its limit, so the number of links has a bound of its own.
"""

from __future__ import annotations

import math

from mirage.chain.durations import format_duration
from mirage.chain.tag import MAX_SEGMENTS

SHORTEST = 4
"""A chain may have so many times the links that would do if none were cut short."""
UNTIL_DONE = "done"
UNTIL_DONE_LINKS = 1000
"""The bound of a chain without a length."""


def of_time(seconds: int) -> str:
    """The length of `--total-time`."""
    return f"{seconds}s"


def most_links(length: str, links: int) -> int:
    """How many links a chain of this length may have; ``links``: how many would do, at their limit."""
    if length == UNTIL_DONE:
        return UNTIL_DONE_LINKS
    return links if not length or length == "1" else min(SHORTEST * links, MAX_SEGMENTS)


def is_time(length: str) -> bool:
    return length.endswith("s")


def seconds_of(length: str) -> int:
    """Of a length that is a time."""
    return int(length.removesuffix("s"))


def links_in(seconds: int, limit_s: int) -> int:
    """How many links of this limit run for so long. Slurm rounds a limit up to whole minutes."""
    return math.ceil(seconds / (math.ceil(limit_s / 60) * 60))


def in_words(length: str, segments: int) -> str:
    """For people. ``segments``: how many links the chain has at most."""
    if length == UNTIL_DONE:
        return "until the work is done"
    if is_time(length):
        return format_duration(seconds_of(length))
    what = "time limit" if length else "link"
    number = int(length or segments)
    return f"{number} {what}{'' if number == 1 else 's'}"
