"""All episodes of a grid, with every method's choices: over the cores of a machine, the same for
any number of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from mirage.domain import Penalties
from mirage.errors import InputError
from mirage.provision.evaluation.kept import Place, Tried, place
from mirage.provision.evaluation.methods import MethodRequest
from mirage.provision.evaluation.protocol import Chooser, EpisodeTrial, try_all
from mirage.provision.evaluation.sampling import Grid, sample
from mirage.provision.kept import TrialFile
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.parallel import spread
from mirage.provision.learn.sampler import DropReason

Progress = Callable[[int, int], None]
"""Gets how many episodes are done, and of how many."""


@dataclass(frozen=True)
class Work:
    """What every worker needs."""

    background: Background
    methods: tuple[MethodRequest, ...]
    penalties: tuple[Penalties, ...]
    """The first ones are those of the results."""


class Trials(NamedTuple):
    trials: list[EpisodeTrial]
    dropped: dict[int, Counter[str]]
    """By size: pairs without an outcome, and why."""


def run_trials(
    work: Work,
    grid: Grid,
    workers: int,
    progress: Progress | None = None,
    kept: TrialFile[Place, Tried] | None = None,
) -> Trials:
    """``kept``: what an earlier call finished, and where this one keeps each finished episode.

    Raises InputError: the cluster could never run such a pair, or no episode has an outcome.
    """
    plans = {place(plan): plan for plan in grid.plans()}
    places = list(plans)
    missing = kept.missing(places) if kept else places
    before = [each for each in places if each not in set(missing)]
    found = dict(zip(before, kept.found(before) if kept else [], strict=True))
    with _one_thread_each(workers):
        for plan, trial in spread(_tried, work, [plans[each] for each in missing], workers):
            found[place(plan)] = trial
            if kept:
                kept.add(place(plan), trial)
            if progress is not None:
                progress(len(found), len(plans))
    dropped: dict[int, Counter[str]] = {nodes: Counter() for nodes in grid.nodes}
    for (_, nodes), trial in found.items():
        if isinstance(trial, DropReason):
            dropped[nodes][trial.value] += 1
    tried = [found[each] for each in places]
    trials = [trial for trial in tried if isinstance(trial, EpisodeTrial)]
    if not trials:
        if kept:
            kept.discard()
        raise InputError(f"none of the {len(plans)} episodes has an outcome {_reasons(dropped)}.")
    return Trials(trials, dropped)


@contextmanager
def _one_thread_each(workers: int) -> Iterator[None]:
    """Several processes whose libraries (torch, xgboost) each use all cores would be in each
    other's way.
    """
    before = os.environ.get(_THREADS)
    if workers > 1:
        os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_THREADS, None)
        else:
            os.environ[_THREADS] = before


_THREADS = "OMP_NUM_THREADS"
_TOO_LARGE = (
    "jobs of this size wait for weeks in this queue: choose smaller --nodes, or a --start in"
    " quieter weeks"
)
_ADVICE: dict[str, str] = {
    DropReason.PREDECESSOR_WAITS: _TOO_LARGE,
    DropReason.SUCCESSOR_WAITS: _TOO_LARGE,
    DropReason.HISTORY_ENDS: (
        "choose another --start, fewer --episodes or smaller --nodes, so that all end well before "
        "the job history"
    ),
    DropReason.NO_DECISION: "choose a longer --limit, so that there is time for a decision",
}


def _reasons(dropped: dict[int, Counter[str]]) -> str:
    """With what to do about each."""
    reasons = sorted(sum(dropped.values(), Counter[str]()).items())
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons)
    return f"({counts}); {'; '.join(dict.fromkeys(_ADVICE[reason] for reason, _ in reasons))}"


def _tried(work: Work, plan: EpisodePlan) -> EpisodeTrial | DropReason:
    case = sample(work.background, plan)
    if isinstance(case, DropReason):
        return case
    return try_all(case, _choosers(work.methods), work.penalties)


@lru_cache(maxsize=1)
def _choosers(methods: tuple[MethodRequest, ...]) -> Sequence[Chooser]:
    """Once a process: it takes a second to read a model."""
    return [method.chooser() for method in methods]
