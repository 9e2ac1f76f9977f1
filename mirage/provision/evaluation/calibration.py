"""Whether the waits that a method predicts come true: of a calibrated p90, nine in ten real waits
stay at or below.

Many waits are exactly zero, and a quantile can then only be right as a range: P(wait < q) <= level
<= P(wait <= q). Both ends are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mirage.figures.estimate import Estimate
from mirage.figures.resample import Mask
from mirage.provision.evaluation.metrics import Group
from mirage.provision.evaluation.protocol import EpisodeTrial
from mirage.provision.learn.episode import Floats
from slurm_sim.seconds import HOUR_S

LEVELS = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
BINS_H = (0.0, 1 / 6, 1.0, 4.0, 12.0, 24.0, np.inf)
"""Edges of the bins of predicted medians."""
FEWEST = 50
"""Decision points in a bin worth showing."""


@dataclass(frozen=True)
class Coverage:
    """One quantile of one method, over all decision points (which count alike) of a load class."""

    nodes: int
    load: str
    method: str
    quantile: str
    level: float
    points: int
    below: Estimate
    """Share of real waits below the predicted quantile."""
    at_most: Estimate
    """Share at or below it."""


@dataclass(frozen=True)
class Bin:
    """Decision points at which the method predicted about the same median."""

    nodes: int
    method: str
    from_h: float
    to_h: float | None
    """None: no upper end."""
    points: int
    predicted_h: tuple[float, float, float]
    """Mean of the predicted p10, p50, p90."""
    real_h: tuple[float, float, float]
    """p10, p50, p90 of the real waits."""


def coverages(group: Group, method: str) -> Iterator[Coverage]:
    """For each load class and quantile; nothing if the method tells none."""
    if not any(method in trial.wait_quantiles_s for trial in group.trials):
        return
    for index, (name, level) in enumerate(LEVELS.items()):
        tallies = np.array(
            [_tally(trial, method, index) for trial in group.trials], dtype=np.float64
        )
        for load in group.present:
            mask = group.mask(load)
            if tallies[mask, 0].sum():
                yield _coverage(group, load, mask, method, name, level, tallies)


def _coverage(
    group: Group, load: str, mask: Mask, method: str, name: str, level: float, tallies: Floats
) -> Coverage:
    points, below, at_most = tallies.T
    shares = group.ratio(below, points, mask), group.ratio(at_most, points, mask)
    return Coverage(
        nodes=group.nodes,
        load=load,
        method=method,
        quantile=name,
        level=level,
        points=int(points[mask].sum()),
        below=shares[0],
        at_most=shares[1],
    )


def _tally(trial: EpisodeTrial, method: str, index: int) -> tuple[int, int, int]:
    """Decision points with a predicted quantile; of these, real waits below it; at or below it."""
    wait_quantiles_s = trial.wait_quantiles_s.get(method)
    if wait_quantiles_s is None:
        return 0, 0, 0
    quantile_s, wait_s = wait_quantiles_s[:, index], trial.episode.waits_s[:-1]
    return (
        int(np.isfinite(quantile_s).sum()),
        int((wait_s < quantile_s).sum()),
        int((wait_s <= quantile_s).sum()),
    )


def bins(group: Group, method: str) -> Iterator[Bin]:
    """The predicted against the real waits, by the predicted median."""
    predicted_h, real_h = _pairs(group.trials, method)
    for low, high in pairwise(BINS_H):
        inside = (predicted_h[:, 1] >= low) & (predicted_h[:, 1] < high)
        if inside.sum() >= FEWEST:
            known = predicted_h[inside].mean(axis=0)
            real = np.quantile(real_h[inside], list(LEVELS.values()))
            end = None if high == np.inf else high
            yield Bin(
                nodes=group.nodes,
                method=method,
                from_h=low,
                to_h=end,
                points=int(inside.sum()),
                predicted_h=_three(known),
                real_h=_three(real),
            )


def _pairs(trials: Sequence[EpisodeTrial], method: str) -> tuple[Floats, Floats]:
    """Predicted quantiles (n, 3) and real waits (n,) in hours, where all three are there."""
    known = [
        (trial.wait_quantiles_s[method], trial.episode.waits_s[:-1])
        for trial in trials
        if method in trial.wait_quantiles_s
    ]
    if not known:
        return np.empty((0, 3)), np.empty(0)
    wait_quantiles_s, wait_s = (np.concatenate(parts) for parts in zip(*known, strict=True))
    whole = np.isfinite(wait_quantiles_s).all(axis=1)
    return wait_quantiles_s[whole] / HOUR_S, wait_s[whole] / HOUR_S


def _three(values: Floats) -> tuple[float, float, float]:
    low, middle, high = (float(value) for value in values)
    return low, middle, high
