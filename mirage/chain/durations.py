"""Durations as Slurm writes them (sbatch(1), option --time) and as people read them."""

from __future__ import annotations

import re

from slurm_sim.seconds import DAY_S

_FORMS = (
    "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,"
    " days-hours:minutes:seconds"
)
EXPECTED = f"{_FORMS} or UNLIMITED"
MAX_TIME_LIMIT_S = 0xFFFFFFFD * 60
"""Slurm keeps limits as 32-bit minutes; the two values above mean UNLIMITED and "not set"."""

_CLOCK = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_WITH_UNIT = re.compile(r"(\d+) ?(s|m|min|h|d)", re.ASCII)
_UNIT_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": DAY_S}
_NO_LIMIT = frozenset({"-1", "INFINITE", "UNLIMITED"})


def parse_time_limit(text: str) -> int | None:
    """Seconds of a limit in any of sbatch's forms; None: no limit (zero asks for none, too).
    ValueError: neither.
    """
    word = text.strip()
    if word.upper() in _NO_LIMIT:
        return None
    if (seconds := _slurm_seconds(word)) is None:
        raise ValueError(f"{text!r} is not a time limit: expected {EXPECTED}")
    return seconds or None


def parse_duration(text: str) -> int:
    """Seconds of "90s", "5min", "2h", "7d" or one of sbatch's forms (a bare number is minutes).
    ValueError: neither.
    """
    word = text.strip()
    if match := _WITH_UNIT.fullmatch(word):
        return int(match[1]) * _UNIT_S[match[2]]
    if (seconds := _slurm_seconds(word)) is None:
        raise ValueError(f"{text!r} is not a duration: expected 90s, 5min, 2h or 7d, or {_FORMS}")
    return seconds


def _slurm_seconds(word: str) -> int | None:
    seconds = _with_days(word) if "-" in word else _without_days(word)
    return None if seconds is None or seconds > MAX_TIME_LIMIT_S else seconds


def _with_days(word: str) -> int | None:
    if not (match := _DAYS.fullmatch(word)):
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _without_days(word: str) -> int | None:
    if not (match := _CLOCK.fullmatch(word)):
        return None
    numbers = [int(group) for group in match.groups() if group is not None]
    hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    return (hours * 60 + minutes) * 60 + seconds


def format_time_limit(seconds: int | None) -> str:
    """A limit as squeue shows it: [days-]hours:minutes:seconds, or UNLIMITED for None."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        raise ValueError(f"a time limit can't be negative: {seconds}")
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock


def format_duration(seconds: float) -> str:
    """For people, in the two largest units: "2 h 10 min", "3 d", "45 s"; negative durations keep
    their sign.
    """
    left = round(abs(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        parts.append((count, unit))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count] or ["0 s"]
    return ("-" if seconds < 0 and shown != ["0 s"] else "") + " ".join(shown)
