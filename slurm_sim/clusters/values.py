"""Single values in Slurm's notation: durations, counts, yes and no, lists of nodes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import hostlist

from slurm_sim.clusters.notes import Entry
from slurm_sim.config import YEAR_S
from slurm_sim.ranges import LONGEST_S, MOST

NO_LIMIT = ("infinite", "unlimited", "-1")
UNSET = ("", "(null)", "none", "n/a", "(null type)")
LEAST_S = 60
TIMES = "minutes, m:s, h:m:s, days-h, days-h:m, days-h:m:s or UNLIMITED"
TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?", re.ASCII)


def parse_time_s(text: str) -> int | None:
    """Slurm's durations (`slurm.conf(5)`, MaxTime) in seconds; None: no limit. Raises ValueError.

    >>> [parse_time_s(text) for text in ("90", "90:30", "1:00:30", "2-0", "1-2:30", "1-0:0:1", "UNLIMITED")]
    [5400, 5430, 3630, 172800, 95400, 86401, None]
    """
    if text.lower() in NO_LIMIT:
        return None
    if (found := TIME.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no time: give {TIMES}")
    days, first, second, third = (int(found[name] or 0) for name in ("days", "first", "second", "third"))
    if found["days"] is not None or found["third"] is not None:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second


def limit_s(entry: Entry) -> int | None:
    """A time limit. slurmctld rounds its seconds up to the next minute, and so do we."""
    seconds = duration_s(entry)
    if seconds is None:
        return None
    if seconds == 0:
        raise entry.error("at least a minute")
    return -(-seconds // LEAST_S) * LEAST_S


def over_time_limit_s(entry: Entry) -> int | None:
    """OverTimeLimit in minutes; None: a partition that sets none (scontrol says NONE)."""
    if entry.value.lower() in UNSET:
        return None
    if entry.value.lower() in NO_LIMIT:
        return YEAR_S
    return LEAST_S * integer(dataclasses.replace(entry, value=entry.value.removesuffix(" min")), 0, 65533)


def duration_s(entry: Entry) -> int | None:
    """As `parse_time_s`, with an error that says where."""
    try:
        seconds = parse_time_s(entry.value)
    except ValueError:
        raise entry.error(TIMES) from None
    if seconds is not None and seconds > LONGEST_S:
        raise entry.error(f"at most {LONGEST_S // 86400} days, or UNLIMITED")
    return seconds


def integer(entry: Entry, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range."""
    if not re.fullmatch(r"-?\d{1,18}", entry.value, re.ASCII) or not least <= int(entry.value) <= most:
        raise entry.error(f"a whole number from {least} to {most}")
    return int(entry.value)


def fraction(entry: Entry, most: int) -> float:
    """A number that may have a fraction, not below 0."""
    if not re.fullmatch(r"\d+(\.\d*)?", entry.value, re.ASCII) or float(entry.value) > most:
        raise entry.error(f"a number from 0 to {most}")
    return float(entry.value)


def count_or_none(entry: Entry) -> int | None:
    """A whole number, or None for UNLIMITED."""
    return None if entry.value.lower() in NO_LIMIT else integer(entry)


def memory_mib(entry: Entry) -> int | None:
    """DefMemPerCPU and its like, in MiB; None: 0 or UNLIMITED, which ask for nothing."""
    return count_or_none(entry) or None


def yes(entry: Entry) -> bool:
    """YES or NO, also in the other words that Slurm takes."""
    word = entry.value.lower()
    if word not in ("yes", "no", "up", "down", "true", "false", "1", "0"):
        raise entry.error("YES or NO")
    return word in ("yes", "up", "true", "1")


def is_unset(value: str) -> bool:
    """Whether scontrol shows that nothing is set."""
    return value.lower() in UNSET


def words(entry: Entry) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(word.strip() for word in entry.value.split(",") if word.strip())


def expand_hosts(text: str) -> tuple[str, ...]:
    """The nodes of ``n[1-3,07],x``, in its order, each once. Raises ValueError.

    >>> expand_hosts("a[1-2]b[08-09],x")
    ('a1b08', 'a1b09', 'a2b08', 'a2b09', 'x')
    """
    try:
        names = hostlist.expand_hostlist(re.sub(r"\s*,\s*", ",", text.strip()).strip(","))
    except hostlist.BadHostlist as error:
        raise ValueError(f"{text!r} is no list of nodes ({error})") from None
    if bad := [name for name in names if re.search(r"[\s\[\],]", name)]:
        raise ValueError(f"{text!r} is no list of nodes ({bad[0]!r} is no name)")
    return tuple(names)


def hosts(entry: Entry) -> tuple[str, ...]:
    """As `expand_hosts`, with an error that says where."""
    try:
        return expand_hosts(entry.value)
    except ValueError as error:
        raise entry.error(f"a list of nodes such as n[1-16] or n[01-04,9],login1 ({error})") from None


def compress_hosts(names: Iterable[str]) -> str:
    """The shortest list that `expand_hosts` turns into these names, in this order, if runs count up at the end.

    >>> compress_hosts(["n1", "n2", "n3", "x", "n08", "n09", "n10"])
    'n[1-3],x,n[08-10]'
    """
    parts: list[tuple[str, list[str]]] = []
    for name in names:
        found = re.fullmatch(r"(.*?)(\d+)", name, re.ASCII | re.DOTALL)
        stem, digits = (found[1], found[2]) if found else (name, "")
        if parts and digits and parts[-1][0] == stem and _follows(parts[-1][1][-1], digits):
            parts[-1][1].append(digits)
        else:
            parts.append((stem, [digits]))
    return ",".join(_run(stem, digits) for stem, digits in parts)


def _follows(last: str, digits: str) -> bool:
    return bool(last) and str(int(last) + 1).zfill(len(last)) == digits


def _run(stem: str, digits: list[str]) -> str:
    return f"{stem}[{digits[0]}-{digits[-1]}]" if len(digits) > 1 else stem + digits[0]
