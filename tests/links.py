"""Links of a chain, by what matters to a test."""

from __future__ import annotations

from typing import Any

from mirage.domain import JobState, Link


def link(segment: int, **values: Any) -> Link:
    """Of alice's chain `c1`: job 11 is link 1 and runs, each later one waits. ``values``: others."""
    usual: dict[str, Any] = {
        "chain_id": "c1",
        "user": "alice",
        "segment": segment,
        "job_id": 10 + segment,
        "predecessor_id": 9 + segment if segment > 1 else None,
        "state": JobState.PENDING if segment > 1 else JobState.RUNNING,
        "partition": "gpu",
        "nodes": 1,
        "time_limit_s": 3600,
        "submit_s": 100,
    }
    return Link(**usual | values)
