"""Services of several replicas as one row each: the same for `mirage status`, `top` and the page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mirage.chain.runs import each_run
from mirage.chain.serving import Readiness, readiness, serving
from mirage.chain.together import together
from mirage.domain import Chain, ChainState, Link

Json = dict[str, Any]


def replica_json(chain: Chain, links: Sequence[Link], now_s: int) -> Json | None:
    """How a chain stands as a replica of its service; None: it is none."""
    if chain.service is None:
        return None
    found = [serving(run, chain.start_up_s) for run in each_run(links)]
    served = sorted(span for span in found if span)
    running = [link for link in links if link.state.has_nodes]
    stands = {readiness(link, chain.start_up_s, now_s) for link in running}
    ends = [link.expected_end_s for link in running if link.expected_end_s]
    return {
        "service": chain.service,
        "user": chain.user,
        "number": chain.replica,
        "chain": chain.chain_id,
        "state": chain.state.value,
        "stands": _stands(chain, stands),
        "jobs": [link.job_id for link in running],
        "next_handover": max(ends, default=None),
        "served": [list(span) for span in served],
    }


def _stands(chain: Chain, stands: set[Readiness | None]) -> str:
    if chain.state is not ChainState.ACTIVE and Readiness.READY not in stands:
        return str(chain.state.value)
    if Readiness.READY in stands:
        return str(Readiness.READY.value)
    return str(Readiness.STARTING.value) if Readiness.STARTING in stands else "waiting"


def service_rows(
    replicas: Iterable[Json | None],
    now_s: int,
    wanted: Mapping[str, int] | None = None,
    since_s: int | None = None,
) -> list[Json]:
    """A row for each service that has a replica which is not over, or is in ``wanted``: by name, how
    many replicas its owner wants, where that is known.

    ``since_s``: up-time is of the time since then, and services that are over by now have a row too.
    """
    groups: dict[tuple[str, str], list[Json]] = {}
    for each in replicas:
        if each is not None:
            groups.setdefault((each["user"], each["service"]), []).append(each)
    rows = [_row(every, now_s, wanted or {}, since_s or 0) for _, every in sorted(groups.items())]
    was_up = "wall_s" if since_s is not None else "replicas"
    return [
        row for row in rows if row["replicas"] or row[was_up] or row["service"] in (wanted or {})
    ]


def no_replica(service: str, user: str, wanted: int) -> Json:
    """The row of a service that no chain is known of."""
    row = _row([{"service": service, "user": user, "state": "done", "served": []}], 0, {})
    return row | {"wanted": wanted}


def _row(every: Sequence[Json], now_s: int, wanted: Mapping[str, int], since_s: int = 0) -> Json:
    living = [each for each in every if not ChainState(each["state"]).is_over]
    up = together(
        (_life(each, now_s, since_s), _cut(each["served"], now_s, since_s)) for each in every
    )
    name, ready = every[0]["service"], [each for each in living if each["stands"] == "ready"]
    ends = [each["next_handover"] for each in living if each["next_handover"]]
    return {
        "service": name,
        "user": every[0]["user"],
        "ready": len(ready),
        "wanted": wanted.get(name, len(living)),
        "uptime": up.one,
        "uptime_all": up.all,
        "wall_s": up.wall_s,
        "next_handover": min(ends, default=None),
        "replicas": sorted(
            ({key: each[key] for key in each if key != "served"} for each in living),
            key=lambda each: each["number"],
        ),
    }


def _life(replica: Json, now_s: int, from_s: int) -> tuple[int, int] | None:
    """When it was to serve: from when it was ready first, until its owner or the scaler ended it; of
    that the part from ``from_s`` on.
    """
    served, state = replica["served"], ChainState(replica["state"])
    if not served:
        return None
    ended = state.is_over and not state.is_bad
    ends = [now_s if until_s is None else until_s for _, until_s in served]
    since_s, until_s = max(served[0][0], from_s), max(ends) if ended else now_s
    return (since_s, until_s) if since_s < until_s else None


def _cut(served: Sequence[Sequence[int | None]], now_s: int, from_s: int) -> list[tuple[int, int]]:
    spans = [
        (max(since_s or 0, from_s), now_s if until_s is None else until_s)
        for since_s, until_s in served
    ]
    return [span for span in spans if span[0] < span[1]]


def in_words(row: Json) -> str:
    """`3 of 3 replicas ready, up 99.98% (all of them: 97.20%), next handover 14:05`."""
    if not row["replicas"]:
        return "no replica runs: nobody asks" if not row["wanted"] else "no replica is left"
    said = [f"{row['ready']} of {row['wanted']} replicas ready"]
    if row["uptime"] is not None:
        said.append(f"up {row['uptime']:.2%} (all of them: {row['uptime_all']:.2%})")
    if row["next_handover"]:
        at = time.strftime("%m-%d %H:%M", time.localtime(row["next_handover"]))
        said.append(f"next handover by {at}")
    return ", ".join(said)
