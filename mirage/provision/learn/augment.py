"""Other arrivals than the logged ones: months of one history are few independent situations.

Each augmentation is a pure function of the arrivals, the time they are of, and a seed. The state at
the beginning stays the log's own; then other jobs come, so that after a week the queue is another
(`episode.AUGMENTED_LEAD_S`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.provision.learn.episode import JITTER_S
from mirage.provision.learn.joblog import LOGGED, Ints, JobLog, log_of
from slurm_sim.config import ClusterConfig
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.seconds import WEEK_S
from slurm_sim.traces import Trace, TraceError
from slurm_sim.traces.cleaning import Rules, clean

APART = 10**9
"""Between the ids of a job and of its copies; also the first id of synthetic jobs, so that logged
ones stay theirs.
"""
MOST_SCALED = 4.0
"""`LoadTarget` makes no week out of a quarter of one, nor of four."""
Seed = tuple[int, ...]


class Augmentation(Protocol):
    """A way to make other arrivals."""

    @property
    def name(self) -> str:
        """With all that its result depends on, but for the seed."""

    def change(self, arrivals: JobLog, from_s: int, until_s: int, seed: Seed) -> JobLog:
        """Other arrivals, submitted after `from_s` and until `until_s`. The same input gives the
        same output.
        """


@dataclass(frozen=True)
class ScaledLoad:
    """More or less load: each user's week comes `factor` times on average, whole and in its own
    rhythm.
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 10:
            raise InputError(f"load scaled by {self.factor}: give a factor above 0, at most 10.")

    @property
    def name(self) -> str:
        return f"load x{self.factor:g}"

    def change(self, arrivals: JobLog, from_s: int, until_s: int, seed: Seed) -> JobLog:
        rng = np.random.default_rng(seed)
        group, week = _user_weeks(arrivals, from_s)
        times = np.floor(self.factor + rng.random(len(week))).astype(np.int64)
        return _repeated(arrivals, group, times, from_s, until_s, rng)


@dataclass(frozen=True)
class LoadTarget:
    """Users' weeks come more or less often, as in `ScaledLoad`, so that all jobs ask for this share of
    the cluster.
    """

    load: float
    """Node-seconds that the jobs submitted in the time run, by those that there are in it; above 1
    the queue grows.
    """
    nodes: int
    """Of the cluster."""

    @property
    def name(self) -> str:
        return f"load {self.load:g}"

    def change(self, arrivals: JobLog, from_s: int, until_s: int, seed: Seed) -> JobLog:
        runtime_s = np.maximum(arrivals.column("runtime_s"), 0)
        there = float((arrivals.column("nodes") * runtime_s).sum()) / (
            self.nodes * (until_s - from_s)
        )
        factor = min(max(self.load / there, 1 / MOST_SCALED), MOST_SCALED) if there else 1.0
        return ScaledLoad(factor).change(arrivals, from_s, until_s, seed)


@dataclass(frozen=True)
class ResampledUsers:
    """Other users: as many as were there in each week, drawn from them with replacement (a
    bootstrap).
    """

    name: str = "users"

    def change(self, arrivals: JobLog, from_s: int, until_s: int, seed: Seed) -> JobLog:
        rng = np.random.default_rng(seed)
        group, week = _user_weeks(arrivals, from_s)
        first, size = (
            np.searchsorted(week, week),
            np.bincount(week, minlength=1)[week] if len(week) else week,
        )
        drawn = first + np.floor(rng.random(len(week)) * size).astype(np.int64)
        times = np.bincount(drawn, minlength=len(week))
        return _repeated(arrivals, group, times, from_s, until_s, rng)


@dataclass(frozen=True)
class Synthetic:
    """Weeks that never were: jobs drawn from a model of the workload (docs/workloads.md), fitted to
    the training range.
    """

    log: JobLog
    name: str

    @classmethod
    def fitted(
        cls,
        trace: Trace,
        cluster: ClusterConfig,
        begin_s: int,
        end_s: int,
        seed: int,
        timezone: str = "UTC",
    ) -> Synthetic:
        """As long as the range, from a model of its own submissions and nothing else.

        `timezone`: of its users' hours. A fit takes seconds. Raises InputError if the range has too
        few jobs for a model.
        """
        from slurm_sim.workload import fit, generate

        cleaned, _ = clean(trace, Rules(nodes=len(cluster.nodes)))
        submit_s = cleaned.column("submit")
        try:
            model = fit(
                cleaned.pick((submit_s >= begin_s) & (submit_s < end_s)),
                len(cluster.nodes),
                timezone=timezone,
            )
        except TraceError as error:
            raise InputError(f"no synthetic weeks: {error}") from error
        monday_s = _monday_before(begin_s - WEEK_S, timezone)
        drawn = generate(model, seed, end_s - monday_s, begin=monday_s)
        log = log_of(drawn, cluster)
        return cls(
            _renumbered(log, np.full(len(log), APART)), f"synthetic weeks {seed}, {timezone}"
        )

    def change(self, arrivals: JobLog, from_s: int, until_s: int, seed: Seed) -> JobLog:  # noqa: ARG002
        return self.log.between(from_s + 1, until_s)


def _monday_before(time_s: int, timezone: str) -> int:
    """Monday 00:00 there."""
    local = datetime.fromtimestamp(time_s, UTC).astimezone(ZoneInfo(timezone))
    monday = (local - timedelta(days=local.weekday())).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    return int(monday.timestamp())


def _user_weeks(log: JobLog, from_s: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each job's group, (jobs,), and each group's week, (groups,), ascending.

    A group is what one user submits in one week from `from_s` on. Where the log has no users it is
    an array, or a job.
    """
    users = log.columns["user"]
    arrays = log.column("array_job_id")
    alone = np.where(arrays != MISSING, arrays, log.columns["job_id"])
    anonymous = len(users) > 0 and bool((users == users[0]).all())
    owner = np.unique(alone if anonymous else users, return_inverse=True)[1].astype(np.int64)
    week = (log.columns["submit_s"] - from_s) // WEEK_S
    size = int(owner.max(initial=0)) + 1
    found, group = np.unique(week * size + owner, return_inverse=True)
    return group.astype(np.int64), found // size


def _repeated(
    log: JobLog,
    group: NDArray[np.int64],
    times: Ints,
    from_s: int,
    until_s: int,
    rng: np.random.Generator,
) -> JobLog:
    """Each group so many times; all but its first time as another user's, and shifted by up to
    `JITTER_S`.
    """
    shift_s = np.floor(
        (2 * rng.random((len(times), max(1, int(times.max(initial=0))))) - 1) * JITTER_S
    ).astype(np.int64)
    shift_s[:, 0] = 0
    rows = np.repeat(np.arange(len(log)), times[group])
    copy = np.arange(len(rows)) - np.repeat(np.cumsum(times[group]) - times[group], times[group])
    there = replace(
        log, columns={name: column for name, column in log.columns.items() if name not in LOGGED}
    )
    moved = _renumbered(
        _shifted(there.pick(rows), shift_s[group[rows], copy], from_s, until_s), copy * APART
    )
    other = copy > 0
    users = moved.columns["user"].astype(object)
    users[other] += np.char.mod("~%d", copy[other]).astype(object)
    moved = moved.changed(user=users.astype(np.str_))
    return moved.pick(np.argsort(moved.columns["submit_s"], kind="stable"))


def _shifted(log: JobLog, shift_s: Ints, from_s: int, until_s: int) -> JobLog:
    """What would leave the time turns back at its end: no part has less, and none moves by more
    than its shift.
    """
    submit_s, length_s = log.columns["submit_s"], until_s - from_s
    since_s = (submit_s + shift_s - from_s - 1) % (2 * length_s)
    new_s = from_s + 1 + np.minimum(since_s, 2 * length_s - 1 - since_s)
    columns = {"submit_s": new_s}
    for name in ("cancel_s", "begin_s"):
        if name in log.columns:
            old_s = log.columns[name]
            columns[name] = np.where(old_s == MISSING, MISSING, old_s + new_s - submit_s)
    return log.changed(**columns)


def _renumbered(log: JobLog, by: Ints) -> JobLog:
    """With these numbers, (jobs,), added to ids, and to the ids in arrays and dependencies: copies
    depend on copies.
    """
    columns = {"job_id": log.columns["job_id"] + by}
    if "array_job_id" in log.columns:
        arrays = log.columns["array_job_id"]
        columns["array_job_id"] = np.where(arrays == MISSING, MISSING, arrays + by)
    if "dependency" in log.columns:
        columns["dependency"] = log.columns["dependency"].copy()
        for row in np.flatnonzero((columns["dependency"] != "") & (by > 0)).tolist():
            columns["dependency"][row] = _on_copies(columns["dependency"][row], int(by[row]))
    return log.changed(**columns)


def _on_copies(dependency: str, by: int) -> str:
    return re.sub(r":(\d+)", lambda found: f":{int(found[1]) + by}", dependency)
