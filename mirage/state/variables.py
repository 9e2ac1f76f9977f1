"""The 40 variables of the paper's state vector (section 4.1), as one table: the only place that
says what they are.

The paper names 38. Idle nodes and nodes up are added: both change with time, and neither can be
distinguished from the rest. Values are raw: nodes, seconds and counts, not scaled. `docs/state.md` shows
this table; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass

PERCENTILES = (0, 25, 50, 75, 100)
"""With linear interpolation, as `numpy.percentile`. Of no jobs at all, every percentile is 0."""

LIMIT_CAP_S = 30 * 86_400
"""Limits above 30 days, and UNLIMITED, count as 30 days: longer than any job runs, short enough to
keep the scale.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One row of the table. ``how`` says how it is computed at the row's instant t."""

    name: str
    unit: str
    how: str
    why: str


def capped_limit_s(time_limit_s: int | None) -> int:
    """A time limit as the state shows it, in seconds; None is UNLIMITED."""
    return LIMIT_CAP_S if time_limit_s is None else min(time_limit_s, LIMIT_CAP_S)


def _percentiles(name: str, unit: str, how: str, why: str) -> tuple[Variable, ...]:
    return tuple(
        Variable(name=f"{name}_p{p}", unit=unit, how=f"percentile {p} of {how}", why=why)
        for p in PERCENTILES
    )


VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="queued_jobs",
        unit="jobs",
        how="number of jobs that queue for nodes",
        why="how many compete with the successor",
    ),
    *_percentiles(
        "queued_nodes",
        "nodes",
        "nodes asked for by queued jobs",
        "wide jobs drain nodes, narrow ones fill gaps",
    ),
    *_percentiles(
        "queued_age_s",
        "seconds",
        "t - eligible time of queued jobs",
        "how long jobs wait at present",
    ),
    *_percentiles(
        "queued_limit_s",
        "seconds",
        "time limit of queued jobs",
        "how long the work ahead may hold nodes",
    ),
    Variable(
        name="running_jobs",
        unit="jobs",
        how="number of jobs that hold nodes",
        why="each will free nodes by its limit",
    ),
    *_percentiles(
        "running_nodes", "nodes", "nodes of running jobs", "how many nodes come free at a time"
    ),
    *_percentiles(
        "running_elapsed_s", "seconds", "t - start time of running jobs", "how soon jobs will end"
    ),
    *_percentiles(
        "running_limit_s", "seconds", "time limit of running jobs", "by when jobs end at the latest"
    ),
    Variable(
        name="predecessor_nodes",
        unit="nodes",
        how="nodes of the predecessor",
        why="what its end gives back",
    ),
    Variable(
        name="predecessor_limit_s",
        unit="seconds",
        how="time limit of the predecessor",
        why="with its elapsed time: when it ends",
    ),
    Variable(
        name="predecessor_wait_s",
        unit="seconds",
        how="min(t, start time) - eligible time of the predecessor",
        why="what a job just like the successor had to wait",
    ),
    Variable(
        name="predecessor_elapsed_s",
        unit="seconds",
        how="min(t, end time) - start time of the predecessor; 0 until it starts",
        why="with its limit: the time left to get the successor started",
    ),
    Variable(
        name="successor_nodes",
        unit="nodes",
        how="nodes of the successor",
        why="wide jobs wait longer",
    ),
    Variable(
        name="successor_limit_s",
        unit="seconds",
        how="time limit of the successor",
        why="long jobs are backfilled less",
    ),
    Variable(
        name="idle_nodes",
        unit="nodes",
        how="nodes that are up and empty",
        why="added: what could start at once",
    ),
    Variable(
        name="up_nodes",
        unit="nodes",
        how="nodes that Slurm can use",
        why="added: the size of the cluster changes with time",
    ),
)

QUEUED = slice(0, 16)
"""Columns of the queued jobs: count, then five percentiles each of nodes, age, limit."""
RUNNING = slice(16, 32)
"""Columns of the running jobs: count, then five percentiles each of nodes, elapsed time, limit."""
PAIR = slice(32, 38)
NODES = slice(38, 40)
