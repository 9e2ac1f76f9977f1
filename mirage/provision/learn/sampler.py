"""One walk through a simulation labels an episode: what was to be seen at each decision point, and
what comes of a release there.

The successor waits for its predecessor and changes nothing for anyone, so the walk without a
release passes through every decision point as it would be met. A fork there drops the dependency
and runs until the successor starts: its outcome is exact. The paper runs a simulation for each of 7
points (section 4.9.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from mirage.provision.env.observation import Pool, walk
from mirage.provision.learn.background import Background, People, people_of
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, Ints, PairJob, Vectors
from mirage.provision.learn.forecast import forecast_s
from mirage.provision.learn.joblog import JobLog
from mirage.provision.learn.logstate import Tally
from slurm_sim.jobs import JobSpec, State
from slurm_sim.seconds import DAY_S

PATIENCE_S = (3 * DAY_S, 14 * DAY_S)
"""Both jobs must have started so long after the predecessor's submission and its limit. What starts
within the shorter time does not depend on later arrivals, so most episodes are done without loading
them.
"""
USER = "mirage-chain"
"""The pair's: someone who runs nothing else."""


class DropReason(str, Enum):
    """Why an episode has no outcome."""

    PREDECESSOR_WAITS = "predecessor_waits"
    """It has not started after the longest of `PATIENCE_S`."""
    SUCCESSOR_WAITS = "successor_waits"
    """The same of the successor, released at some decision point."""
    HISTORY_ENDS = "history_ends"
    """They have not started when the log ends, beyond which nobody knows who comes."""
    NO_DECISION = "no_decision"
    """The predecessor is over before the first decision point."""


class LabelledEpisode(NamedTuple):
    """An episode and what else its simulation tells."""

    episode: Episode
    simulation: Any
    """At the start of the successor that was never released; `results()` has all jobs' times."""
    tally: Tally
    pair: tuple[int, int]
    """Job ids of predecessor and successor: free ones, which the log may have for jobs of another
    time.
    """


def label(background: Background, plan: EpisodePlan) -> LabelledEpisode | DropReason:
    """The episode of this plan, exact for every decision point.

    Raises InputError if the cluster could never run the pair, or the log does not reach back to the
    warm-up.
    """
    background.check(plan.pair, plan.partition)
    if plan.begin_s > background.log.last_s:
        return DropReason.HISTORY_ENDS
    limit_s, found = plan.begin_s + plan.pair.predecessor.time_limit_s, DropReason.HISTORY_ENDS
    arrivals = _arrivals(background, plan, min(limit_s + PATIENCE_S[-1], background.log.last_s))
    people = people_of(arrivals)
    for patience_s in PATIENCE_S:
        latest_s = min(limit_s + patience_s, background.log.last_s)
        labelled = _label(background, plan, arrivals.between(0, latest_s), people, latest_s)
        if isinstance(labelled, LabelledEpisode) or labelled is DropReason.NO_DECISION:
            return labelled
        if latest_s < limit_s + patience_s:
            return DropReason.HISTORY_ENDS
        found = labelled
    return found


def _arrivals(background: Background, plan: EpisodePlan, until_s: int) -> JobLog:
    """Who comes. Drawn for the longest time that may be needed: a shorter one must not mean others."""
    at_s = plan.begin_s - plan.lead_s
    logged = background.log.between(at_s + 1, until_s)
    return (
        logged
        if plan.augmentation is None
        else plan.augmentation.change(logged, at_s, until_s, plan.seed)
    )


def _label(
    background: Background, plan: EpisodePlan, arrivals: JobLog, people: People, latest_s: int
) -> LabelledEpisode | DropReason:
    begun = background.start_at(plan.begin_s - plan.lead_s, plan.warm_up, arrivals, people)
    simulation, pool = begun.simulation, Pool.of(background.cluster, plan.partition)
    simulation.run_until(plan.begin_s - (HISTORY - 1) * STEP_S)
    before = simulation.fork()
    simulation.run_until(plan.begin_s)
    pair = submit_pair(simulation, plan)
    after = simulation.fork()
    outcome = _outcome(simulation, pair, plan.begin_s, latest_s)
    if isinstance(outcome, DropReason):
        return outcome
    times_s = np.arange(
        outcome.decision_s[0] - (HISTORY - 1) * STEP_S, outcome.decision_s[-1] + 1, STEP_S
    )
    early = times_s < plan.begin_s
    rows = np.concatenate(
        [walk(before, pool, None, times_s[early]), walk(after, pool, pair, times_s[~early])]
    )
    return LabelledEpisode(_episode(background, plan, outcome, rows), simulation, begun.tally, pair)


def submit_pair(simulation: Any, plan: EpisodePlan) -> tuple[int, int]:
    """Submits the pair now; the ids of predecessor and successor."""
    first = simulation.submit(_spec(plan.pair.predecessor, plan))
    return first, simulation.submit(_spec(plan.pair.successor, plan, f"afterany:{first}"))


def _spec(link: PairJob, plan: EpisodePlan, dependency: str = "") -> JobSpec:
    """Whole nodes. Not requeued when a node fails, so that each job has one start and one end."""
    return JobSpec(
        link.nodes,
        link.time_limit_s,
        link.runtime_s,
        user=USER,
        partition=plan.partition,
        dependency=dependency,
        requeue=False,
        exclusive=True,
    )


@dataclass(frozen=True)
class _Outcome:
    start_s: int
    end_s: int
    """Of the predecessor."""
    decision_s: Ints
    successor_s: Ints
    forecast_s: Ints


def _outcome(
    simulation: Any, pair: tuple[int, int], begin_s: int, latest_s: int
) -> _Outcome | DropReason:
    """Runs the simulation until the successor starts without a release, and a fork from each
    decision point.
    """
    predecessor, successor = pair
    start_s = simulation.run_until_start(predecessor, latest_s)
    if start_s is None:
        return DropReason.PREDECESSOR_WAITS
    at_s = begin_s + STEP_S * max(1, -(-(start_s - begin_s) // STEP_S))
    decisions, starts, forecasts = list[int](), list[int](), list[int]()
    while at_s < latest_s and _runs_at(simulation, predecessor, at_s):
        fork = simulation.fork()
        fork.drop_dependency(successor)
        successor_s = fork.run_until_start(successor, latest_s)
        if successor_s is None:
            return DropReason.SUCCESSOR_WAITS
        decisions.append(at_s)
        starts.append(successor_s)
        forecasts.append(forecast_s(simulation, successor))
        at_s += STEP_S
    successor_s = simulation.run_until_start(successor, latest_s)
    if successor_s is None:
        return DropReason.SUCCESSOR_WAITS
    if not decisions:
        return DropReason.NO_DECISION
    end_s = simulation.job(predecessor).end_s
    return _Outcome(
        start_s, end_s, np.array(decisions), np.array([*starts, successor_s]), np.array(forecasts)
    )


def _runs_at(simulation: Any, job_id: int, at_s: int) -> bool:
    simulation.run_until(at_s)
    return bool(simulation.job(job_id).state is State.RUNNING)


def _episode(
    background: Background, plan: EpisodePlan, outcome: _Outcome, rows: Vectors
) -> Episode:
    augmentation = plan.augmentation
    return Episode(
        pair=plan.pair,
        begin_s=plan.begin_s,
        predecessor_start_s=outcome.start_s,
        predecessor_end_s=outcome.end_s,
        rows=rows,
        decision_s=outcome.decision_s,
        successor_start_s=outcome.successor_s,
        forecast_s=outcome.forecast_s,
        tags={
            "trace": background.log.source,
            "cluster": background.cluster.name,
            "warm_up": plan.warm_up.value,
            "augmentation": "" if augmentation is None else augmentation.name,
        },
    )
