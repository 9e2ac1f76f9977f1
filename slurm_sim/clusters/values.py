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
NO_LIMIT_16 = 2**16 - 1
"""INFINITE in 16 bits."""
UNSET = ("", "(null)", "none", "n/a", "(null type)")
LEAST_S = 60
TIMES = "minutes, m:s, h:m:s, days-h, days-h:m, days-h:m:s or UNLIMITED"
TIME = re.compile(
    r"(?:(?P<days>\d+)-(?=\d|$))?(?P<first>\d+)?(?::(?P<second>\d+))?(?::(?P<third>\d+))?", re.ASCII
)
NUMBER = re.compile(
    r"\s*(?:\+?(?:0x(?P<hexadecimal>[0-9a-f]+)|(?P<digits>\d+)))?(?P<kilo>k)?",
    re.ASCII | re.IGNORECASE,
)
WHOLE = re.compile(r"\s*([+-]?\d+)", re.ASCII)
RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
REAL = re.compile(
    r"\s*(?P<number>[+-]?(?:inf(?:inity)?|nan|0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))",
    re.ASCII | re.IGNORECASE,
)
MOST_IN_RANGE = 2**16
"""Names that slurmctld makes of one range, such as ``n[1-65536]``."""


def parse_time_s(text: str) -> int | None:
    """Slurm's durations (`slurm.conf(5)`, MaxTime) in seconds; None: no limit. Raises ValueError.

    >>> [parse_time_s(text) for text in ("90", "90:30", "1:00:30", "2-0", "2-", "1-2:30", "1-0:0:1",
    "UNLIMITED")]
    [5400, 5430, 3630, 172800, 172800, 95400, 86401, None]
    """
    if text.lower() in NO_LIMIT:
        return None
    if not text or (found := TIME.fullmatch(text)) is None or text[0] == ":":
        raise ValueError(f"{text!r} is no time: give {TIMES}")
    days, first, second, third = (
        int(found[name] or 0) for name in ("days", "first", "second", "third")
    )
    if found["days"] is not None or found["third"] is not None:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second


def limit_s(entry: Entry) -> int | None:
    """A time limit; None: none. slurmctld rounds its seconds up to the next minute, and so do we.

    More than 31 years are no limit. 0 stays 0: see `parts.shut`.
    """
    seconds = duration_s(entry)
    if seconds is None or seconds > LONGEST_S:
        return None
    return -(-seconds // LEAST_S) * LEAST_S


def over_time_limit_s(entry: Entry) -> int | None:
    """OverTimeLimit in minutes; None: a partition that sets none (scontrol says NONE)."""
    if entry.value.lower() in UNSET:
        return None
    if entry.value.lower() in NO_LIMIT:
        return YEAR_S
    minutes = unsigned(dataclasses.replace(entry, value=entry.value.removesuffix(" min")), 16)
    return YEAR_S if minutes == NO_LIMIT_16 else LEAST_S * minutes


def duration_s(entry: Entry) -> int | None:
    """As `parse_time_s`, with an error that says where."""
    try:
        return parse_time_s(entry.value)
    except ValueError:
        raise entry.error(TIMES) from None


def kept_time(entry: Entry) -> Entry:
    """A time of a slurm.conf as slurmctld keeps it: its seconds have 32 bits with a sign, and more
    (68 years) run over.

    Raises InvalidCluster where what is left is negative: slurmctld does not start then.
    """
    seconds = duration_s(entry)
    if seconds is None or _signed(seconds + LEAST_S - 1) == seconds + LEAST_S - 1:
        return entry
    left = _signed(seconds)
    minutes = int(_signed(left + LEAST_S - 1) / LEAST_S)
    if -1 in (left, minutes):  # which stands for no limit
        return dataclasses.replace(entry, value="UNLIMITED")
    if minutes < 0 or left == -2:  # which stands for none
        raise entry.error("fewer than 24,855 days, or UNLIMITED")
    return dataclasses.replace(entry, value=str(minutes))


def _signed(number: int) -> int:
    """What 32 bits with a sign keep of it."""
    return (number + 2**31) % 2**32 - 2**31


def unsigned(entry: Entry, bits: int) -> int:
    """A number as slurmctld reads it (`strtoul(3)`): 0x is hexadecimal, a leading 0 octal; of 32
    and 64 bits also with a K for 1024. INFINITE and UNLIMITED are the largest one. Raises
    InvalidCluster, as slurmctld does not start then.

    >>> [unsigned(Entry("Weight", text, ""), 32) for text in ("12", "0x10", "010", "4K",
    "INFINITE")]
    [12, 16, 8, 4096, 4294967295]
    """
    most: int = 2**bits - 1
    if entry.value.lower() in ("infinite", "unlimited"):
        return most
    found = NUMBER.fullmatch(entry.value)
    try:
        if found is None or (found["kilo"] and bits == 16):
            raise ValueError
        digits = found["digits"] or "0"
        number = (
            int(found["hexadecimal"], 16)
            if found["hexadecimal"]
            else int(digits, 8 if digits[0] == "0" else 10)
        )
    except ValueError:
        number = most + 1
    if found is not None and found["kilo"]:
        number *= 1024
    if number > most:
        raise entry.error(f"a whole number from 0 to {most}")
    return number


def leading_whole(text: str, bits: int = 32) -> int:
    """The whole number that a text begins with, as `atoi(3)`: what 32 bits keep of it; 0 if there
    is none.

    >>> [leading_whole(text) for text in ("30s", " -5", "x", "4294967297")]
    [30, -5, 0, 1]
    """
    found = WHOLE.match(text)
    number = max(-(2**63), min(2**63 - 1, int(found[1][:20]))) if found else 0
    return _signed(number) if bits == 32 else number


def leading_real(text: str) -> tuple[float, str] | None:
    """The number that a text begins with, as `strtod(3)`, and what follows it; None: it begins with
    none.
    """
    if (found := REAL.match(text)) is None:
        return None
    number = found["number"]
    return (float.fromhex(number) if "x" in number.lower() else float(number)), text[found.end() :]


def integer(entry: Entry, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range."""
    if (
        not re.fullmatch(r"-?\d{1,18}", entry.value, re.ASCII)
        or not least <= int(entry.value) <= most
    ):
        raise entry.error(f"a whole number from {least} to {most}")
    return int(entry.value)


def fraction(entry: Entry, most: int) -> float:
    """A number that may have a fraction, not below 0."""
    if not re.fullmatch(r"\d+(\.\d*)?", entry.value, re.ASCII) or float(entry.value) > most:
        raise entry.error(f"a number from 0 to {most}")
    return float(entry.value)


def memory_mib(entry: Entry) -> int | None:
    """DefMemPerCPU and its like, in MiB; None: 0 or UNLIMITED, which ask for nothing."""
    number = unsigned(entry, 64)
    # UNLIMITED for a node loses a bit on its way: scontrol shows 2**63 - 1 for a CPU.
    return None if number == 0 or number >= 2**63 - 1 else min(number, MOST)


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
    return tuple(dict.fromkeys(expand_list(text)))


def expand_list(text: str) -> list[str]:
    """As `expand_hosts`, but what is there twice comes twice."""
    names: list[str] = []
    # A comma or a blank separates; within brackets there is no blank.
    for item in re.findall(r"(?:[^,\s\[\]]|\[[^\]]*\]|[\[\]])+", text):
        if "[" in item and not item.endswith("]"):
            raise ValueError(
                f"{text!r} is no list of nodes ({item!r}: nothing may stand behind the last"
                " bracket)"
            )
        if any(int(last) - int(first) >= MOST_IN_RANGE for first, last in RANGE.findall(item)):
            raise ValueError(f"{text!r} is no list of nodes ({item!r}: too large)")
        try:
            names += hostlist.expand_hostlist(item, allow_duplicates=True)
        except hostlist.BadHostlist as error:
            raise ValueError(f"{text!r} is no list of nodes ({error})") from None
    if bad := [name for name in names if re.search(r"[\s\[\],]", name)]:
        raise ValueError(f"{text!r} is no list of nodes ({bad[0]!r} is no name)")
    return names


def hosts(entry: Entry) -> list[str]:
    """As `expand_list`, with an error that says where."""
    try:
        return expand_list(entry.value)
    except ValueError as error:
        raise entry.error(
            f"a list of nodes such as n[1-16] or n[01-04,9],login1 ({error})"
        ) from None


def compress_hosts(names: Iterable[str]) -> str:
    """The shortest list that `expand_hosts` turns into these names, in this order, if runs count up
    at the end.

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
