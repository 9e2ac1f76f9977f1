"""From when to when a link does its chain's work. The one place that says it. Pure.

A link of a training chain works from its start; one of a service serves once it is ready.
"""

from __future__ import annotations

from enum import Enum

from mirage.domain import Link


def serving(run: Link, start_up_s: int | None) -> tuple[int, int | None] | None:
    """(since, until) of one run (`Link.each_run`), Unix seconds; ``until`` None: it has not ended.
    None: it does not serve, or did not as it ended.

    ``start_up_s``: `Chain.start_up_s`, which stands in where a link does not tell when it is ready.
    """
    if run.start_s is None or (start_up_s is not None and run.ready_s == 0):
        return None
    since_s = run.start_s
    if start_up_s is not None:
        since_s = run.start_s + start_up_s if run.ready_s is None else run.ready_s
    return None if run.end_s is not None and run.end_s <= since_s else (since_s, run.end_s)


def paused_until_s(run: Link, now_s: int) -> int | None:
    """Until when its owner kept the run from starting; None: he did not."""
    if not run.was_held:
        return None
    may_start_s = now_s if run.eligible_s is None else run.eligible_s
    return may_start_s if run.start_s is None else min(may_start_s, run.start_s)


class Readiness(str, Enum):
    """How a link of a service that has started stands."""

    STARTING = "starting"
    READY = "ready"
    NEVER = "never ready"
    """It ended before that."""


def readiness(link: Link, start_up_s: int | None, now_s: float) -> Readiness | None:
    """Of its present or last run; None: it has not started, or is no link of a service."""
    if start_up_s is None or link.start_s is None:
        return None
    served = serving(link, start_up_s)
    if served is not None and (served[1] is not None or served[0] <= now_s):
        return Readiness.READY
    return Readiness.STARTING if link.state.has_nodes else Readiness.NEVER
