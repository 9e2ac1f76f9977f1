"""Slurm's own plan of a start, where too few jobs have started to know better. Needs no numpy.

The plan (`squeue --start`, `sbatch --test-only`) takes all limits for run times, so most jobs start
before it; who comes later with a higher priority may put it off.
"""

from __future__ import annotations

from mirage.domain import Job, Snapshot
from mirage.provision.starts.forecast import StartForecast

TREES, LIKE, PLAN = "trees", "like jobs", "Slurm's plan"
"""Rules that may answer; the next is trees for how a wait differs from the plan."""
TREES_AND_PLAN = "trees and Slurm's plan"
SHARES = (0.1, 0.6, 1.2)
"""Of the planned wait, as p10, p50 and p90. They are assumed, not learnt."""


def forecast_from_plan(job: Job, snapshot: Snapshot) -> StartForecast | None:
    """None: Slurm has no plan for it."""
    if job.planned_s is None:
        return None
    planned_s = max(job.planned_s - snapshot.at_s, 60)
    low_s, middle_s, high_s = (share * planned_s for share in SHARES)
    return StartForecast(
        wait_s=(low_s, middle_s, high_s),
        method=PLAN,
        reason=(
            "so by Slurm's own plan, which takes all limits for run times; too few like jobs have"
            " started lately to check it"
        ),
    )
