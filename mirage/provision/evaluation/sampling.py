"""Episodes on the paper's grid of begins, each with the starts that a daemon would have seen until
then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage.provision.env.observation import Pool
from mirage.provision.evaluation.case import KEPT_S, Case, PoolStarts
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.joblog import JobLog
from mirage.provision.learn.model import Flags
from mirage.provision.learn.sampler import DropReason, LabelledEpisode, label
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.jobs import State

_CANCELLED = list(State).index(State.CANCELLED)


@dataclass(frozen=True)
class Grid:
    """Begins at a fixed distance, and at each one pair of every size (paper, section 6)."""

    start_s: int
    every_s: int
    episodes: int
    """Begins."""
    nodes: tuple[int, ...]
    limit_s: int
    warm_up: WarmUp
    partition: str | None = None

    def plans(self) -> Iterator[EpisodePlan]:
        for nodes in self.nodes:
            for index in range(self.episodes):
                begin_s = self.start_s + index * self.every_s
                yield EpisodePlan(
                    begin_s, fixed_pair(nodes, self.limit_s), self.warm_up, self.partition
                )

    @property
    def end_s(self) -> int:
        """The last begin."""
        return self.start_s + (self.episodes - 1) * self.every_s


def sample(background: Background, plan: EpisodePlan) -> Case | DropReason:
    """The labelled episode of a plan, or why there is none. Raises InputError."""
    found = label(background, plan)
    if isinstance(found, DropReason):
        return found
    return Case(found.episode, _starts(background, plan, found))


def _starts(background: Background, plan: EpisodePlan, found: LabelledEpisode) -> PoolStarts:
    """Of the pair's pool, as the log has them until the simulation begins, and then as simulated."""
    log = background.log
    pool = sorted(Pool.of(background.cluster, plan.partition).partitions)
    mine = np.isin(log.columns["partition"], pool)
    simulated_from_s = plan.begin_s - plan.lead_s
    first_s, last_s = int(found.episode.decision_s[0]) - KEPT_S, int(found.episode.decision_s[-1])
    columns = np.concatenate(
        [
            _logged(log, mine, first_s, simulated_from_s),
            _simulated(log, mine, found, simulated_from_s, last_s),
        ],
        axis=1,
    )
    return PoolStarts(*columns[:, np.argsort(columns[0], kind="stable")])


def _logged(
    log: JobLog, mine: Flags, from_s: int, until_s: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(4, jobs): start, wait, nodes, limit. Jobs cancelled in the queue never started, whatever the
    log says.
    """
    start_s, end_s = log.column("start_s"), log.column("end_s")
    ran = mine & (start_s != MISSING) & (start_s != end_s)
    rows = np.flatnonzero(ran & (start_s >= from_s) & (start_s <= until_s))
    since_s = np.maximum(log.column("eligible_s"), log.column("submit_s"))[rows]
    wait_s = np.maximum(start_s[rows] - since_s, 0)
    return np.stack([start_s[rows], wait_s, log.column("nodes")[rows], _limits_s(log)[rows]])


def _simulated(
    log: JobLog, mine: Flags, found: LabelledEpisode, from_s: int, until_s: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The same of what started in the simulation, the predecessor too."""
    jobs = found.simulation.results()
    cancelled = (jobs.state == _CANCELLED) & (jobs.start_s == jobs.end_s)
    elsewhere = np.isin(jobs.job_id, np.setdiff1d(log.column("job_id")[~mine], found.pair))
    rows = np.flatnonzero(
        (jobs.start_s > from_s) & (jobs.start_s <= until_s) & ~cancelled & ~elsewhere
    )
    wait_s = np.maximum(jobs.start_s - jobs.eligible_s, 0)[rows]
    return np.stack(
        [jobs.start_s[rows], wait_s, jobs.nodes[rows], _limits_of(log, jobs.job_id[rows], found)]
    )


def _limits_of(
    log: JobLog, job_ids: np.ndarray[Any, np.dtype[np.int64]], found: LabelledEpisode
) -> Any:
    """Limits by id; the pair's are asked for."""
    known = log.column("job_id")
    place = np.minimum(np.searchsorted(known, job_ids), len(known) - 1)
    limits_s = np.where(known[place] == job_ids, _limits_s(log)[place], 0)
    for row in np.flatnonzero((known[place] != job_ids) | np.isin(job_ids, found.pair)):
        limits_s[row] = found.simulation.job(int(job_ids[row])).time_limit_s or 0
    return limits_s


def _limits_s(log: JobLog) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.maximum(log.column("timelimit_s"), 0)
