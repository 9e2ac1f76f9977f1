"""From when to when a link does its chain's work. The one place that says it. Pure.

A link of a training chain works from its start; one of a service serves once it is ready.
"""

from __future__ import annotations

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


def is_starting(link: Link, start_up_s: int | None, now_s: float) -> bool:
    """Whether the link runs and does not serve yet."""
    if not link.state.has_nodes or link.start_s is None:
        return False
    served = serving(link.each_run[-1], start_up_s)
    return served is None or served[0] > now_s
