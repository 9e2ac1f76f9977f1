"""How the templates write times, durations and shares."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from markupsafe import Markup

from mirage.chain.durations import format_duration
from mirage.chain.length import in_words
from mirage.domain import JobState
from mirage.figures import words


def when(at_s: float | None) -> Markup:
    """A time, in the zone of the daemon's machine."""
    if at_s is None:
        return Markup("-")
    at = datetime.fromtimestamp(at_s).astimezone()
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%d %b %H:%M:%S")
    )


def length(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def hours(seconds: float) -> str:
    return words.number(seconds / 3600)


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def state_words(state: JobState) -> str:
    return state.value.lower().replace("_", " ")


def percent(part: float, whole: float) -> float:
    """For drawings, 0 to 100."""
    return round(min(100.0, 100 * part / whole), 2) if whole else 0.0


ALL: dict[str, Callable[..., Any]] = {
    "when": when,
    "length_of": length,
    "length_words": in_words,
    "hours": hours,
    "several": words.several,
    "share": share,
    "state_words": state_words,
    "percent": percent,
}
