"""From trials to figures: by size, mode and method, over begins. Pure.

Chains that begin days apart live through the same weeks, so intervals are those of
`mirage.figures.resample.Blocks`: consecutive begins are drawn together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirage.figures.estimate import Estimate
from mirage.figures.resample import Blocks
from mirage.provision.chains.trial import ChainCase, ChainTrial
from mirage.provision.evaluation.protocol import REACTIVE
from mirage.provision.learn.episode import Floats
from slurm_sim.seconds import HOUR_S

RESAMPLES = 2000
WORK_H = 100
"""Handovers are counted for so many hours of work."""


@dataclass(frozen=True, kw_only=True)
class ChainSummary:
    """One method in one mode on chains of one size."""

    nodes: int
    mode: str
    method: str
    begins: int
    goodput: Estimate
    """Share of the wall clock in which a chain makes progress, net of handovers; of a service its
    up-time.
    """
    interrupted: Estimate
    """Share in which nothing of it ran, or no link of a service was ready."""
    handovers: Estimate
    """For 100 hours of work."""
    held_twice: Estimate
    """Node-hours held twice for a node-hour of work."""
    held_twice_node_h: float
    """All begins together."""
    times_the_least: float
    """Handovers, for one of a chain whose links all run to their limits."""
    longest_gap_h: float
    """The longest interruption of all begins."""
    link_h: Estimate
    """Mean run of a link."""
    wait_h: Estimate
    """Interruption for each handover: with `reactive` the wait of a successor."""
    work_node_h: float
    """Node-hours of work, all begins together."""
    gain: Estimate | None
    """Goodput less that of reactive on the same begins."""


@dataclass(frozen=True, kw_only=True)
class OthersWait:
    """Waits of the other users' jobs beside a number of chains."""

    chains: int
    nodes: int
    """Of each chain's jobs."""
    mode: str
    """Empty: without chains."""
    method: str
    most_ahead: int
    """The site's bound on links of a chain that compete at once."""
    begins: int
    jobs: int
    mean_h: Estimate
    p95_h: float
    more_h: Estimate | None
    """Mean wait less that without chains, on the same begins."""
    more_per_node_h: float | None
    """Hours that others waited longer for a node-hour of the chains' work."""
    goodput: float | None
    """Of these chains."""


@dataclass(frozen=True, kw_only=True)
class ChainFigures:
    summary: tuple[ChainSummary, ...]
    others_wait: tuple[OthersWait, ...]

    def row(self, nodes: int, mode: str, method: str) -> ChainSummary:
        wanted = nodes, mode, method
        return next(row for row in self.summary if (row.nodes, row.mode, row.method) == wanted)


def chain_figures(
    trials: Iterable[ChainTrial], methods: Sequence[str], limit_s: int, seed: int
) -> ChainFigures:
    """``methods``: in the order in which they are shown. ``limit_s``: of a link."""
    single: dict[tuple[int, str], dict[str, list[ChainTrial]]] = {}
    crowds: dict[tuple[int, str, str, int], list[ChainTrial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda trial: trial.chains.begin_s):
        chains = trial.chains
        if chains.is_for_others:
            mode = chains.mode.value if chains.count else ""
            crowds[chains.count, mode, chains.method, chains.most_ahead].append(trial)
        else:
            group = single.setdefault((chains.nodes, chains.mode.value), {})
            group.setdefault(chains.method, []).append(trial)
    return ChainFigures(
        summary=tuple(
            row for group in single.values() for row in _summaries(group, methods, limit_s, seed)
        ),
        others_wait=tuple(_others_waits(list(crowds.values()), seed)),
    )


def _column(trials: Sequence[ChainTrial], value: Callable[[ChainTrial], float]) -> Floats:
    return np.array([value(trial) for trial in trials], dtype=np.float64)


def _work_s(trial: ChainTrial) -> float:
    return trial.progress.wall_s * trial.progress.goodput


def _summaries(
    group: dict[str, list[ChainTrial]], methods: Sequence[str], limit_s: int, seed: int
) -> Iterator[ChainSummary]:
    reactive = group[REACTIVE]
    interrupted_s = _column(reactive, lambda trial: trial.progress.interrupted_s)
    begin_s = np.array([trial.chains.begin_s for trial in reactive], dtype=np.int64)
    blocks = Blocks.of(begin_s, interrupted_s, RESAMPLES, seed)
    for method in methods:
        yield _summary(group[method], reactive, limit_s, blocks)


def _summary(
    trials: Sequence[ChainTrial], reactive: Sequence[ChainTrial], limit_s: int, blocks: Blocks
) -> ChainSummary:
    chains = trials[0].chains
    wall_s = _column(trials, lambda trial: trial.progress.wall_s)
    work_s = _column(trials, _work_s)
    handovers = _column(trials, lambda trial: trial.progress.handovers)
    held_twice_s = _column(trials, lambda trial: trial.progress.held_twice_s)
    least = np.maximum(np.ceil(wall_s / limit_s) - 1, 0)
    ran_s = _column(trials, lambda trial: trial.ran_s)
    interrupted_s = _column(trials, lambda trial: trial.progress.interrupted_s)
    gain = work_s / np.maximum(wall_s, 1) - _shares(reactive)
    return ChainSummary(
        nodes=chains.nodes,
        mode=chains.mode.value,
        method=chains.method,
        begins=len(trials),
        goodput=_ratio(work_s, wall_s, blocks),
        interrupted=_ratio(interrupted_s, wall_s, blocks),
        handovers=_ratio(WORK_H * HOUR_S * handovers, work_s, blocks),
        held_twice=_ratio(held_twice_s, work_s, blocks),
        held_twice_node_h=float(held_twice_s.sum() * chains.nodes / HOUR_S),
        times_the_least=float(handovers.sum() / max(least.sum(), 1)),
        longest_gap_h=max(trial.progress.longest_gap_s for trial in trials) / HOUR_S,
        wait_h=_ratio(interrupted_s / HOUR_S, np.maximum(handovers, 1), blocks),
        link_h=_ratio(ran_s / HOUR_S, handovers + 1, blocks),
        work_node_h=float(work_s.sum() * chains.nodes / HOUR_S),
        gain=None if chains.method == REACTIVE else _ratio(gain, np.ones_like(gain), blocks),
    )


def _shares(trials: Sequence[ChainTrial]) -> Floats:
    return _column(trials, lambda trial: trial.progress.goodput)


def _ratio(above: Floats, below: Floats, blocks: Blocks) -> Estimate:
    if not below.sum():
        return Estimate(0.0)
    interval = blocks.interval(above, below, np.ones(len(above), bool))
    return Estimate(float(above.sum() / below.sum()), *(interval or (None, None)))


def _others_waits(crowds: Sequence[list[ChainTrial]], seed: int) -> Iterator[OthersWait]:
    alone = next((trials for trials in crowds if not trials[0].chains.count), [])
    if not alone:
        return
    begin_s = np.array([trial.chains.begin_s for trial in alone], dtype=np.int64)
    blocks = Blocks.of(begin_s, _column(alone, _mean_h), RESAMPLES, seed)
    for trials in crowds:
        yield _others_wait(trials, alone, blocks)


def _mean_h(trial: ChainTrial) -> float:
    return float(_waits_s(trial).mean()) / HOUR_S


def _waits_s(trial: ChainTrial) -> Floats:
    assert trial.others_wait_s is not None
    return trial.others_wait_s


def _others_wait(
    trials: Sequence[ChainTrial], alone: Sequence[ChainTrial], blocks: Blocks
) -> OthersWait:
    chains: ChainCase = trials[0].chains
    jobs = _column(trials, lambda trial: len(_waits_s(trial)))
    sum_h, alone_h = (
        _column(each, lambda trial: _waits_s(trial).sum() / HOUR_S) for each in (trials, alone)
    )
    work_h = float(_column(trials, _work_s).sum() * chains.nodes / HOUR_S)
    wall_s = sum(trial.progress.wall_s for trial in trials)
    return OthersWait(
        chains=chains.count,
        nodes=chains.nodes,
        mode=chains.mode.value if chains.count else "",
        method=chains.method if chains.count else "",
        most_ahead=chains.most_ahead,
        begins=len(trials),
        jobs=int(jobs.sum()),
        mean_h=_ratio(sum_h, jobs, blocks),
        p95_h=float(np.quantile(np.concatenate(list(map(_waits_s, trials))), 0.95)) / HOUR_S,
        more_h=_ratio(sum_h - alone_h, jobs, blocks) if chains.count else None,
        more_per_node_h=float((sum_h - alone_h).sum() / work_h) if work_h else None,
        goodput=sum(map(_work_s, trials)) / wall_s if wall_s else None,
    )
