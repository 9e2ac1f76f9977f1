"""Distributions as short tables of quantiles: fitted from samples, drawn from by one uniform number
each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVELS = np.concatenate(
    [
        [0, 0.005, 0.02, 0.05],
        np.arange(0.1, 0.901, 0.05).round(2),
        [0.925, 0.95, 0.975, 0.99, 0.997, 1],
    ]
)
"""At which shares a table has its values; denser where jobs differ most in node-hours."""


def table(values: Floats, digits: int = 4) -> tuple[float, ...]:
    """The sample's quantiles at `LEVELS`; a table of one value if they are all equal, () if there
    are none.

    Lines between the last points overstate a long tail, so the last points are lowered until the
    table has the sample's mean: jobs an hour and node-hours come out right, the greatest values
    don't.
    """
    if not len(values):
        return ()
    points = np.quantile(values, LEVELS, method="linear")
    if points[0] == points[-1]:
        return (_rounded(points[0], digits),)
    return tuple(_rounded(point, digits) for point in _with_mean(points, float(values.mean())))


def _with_mean(points: Floats, mean: float) -> Floats:
    points = points.copy()
    weights = (np.diff(LEVELS, prepend=0.0) + np.diff(LEVELS, append=1.0)) / 2
    for last in range(len(points) - 1, len(points) // 2, -1):
        excess = float(points @ weights) - mean
        if excess <= 0:
            break
        points[last:] = max(points[last - 1], points[last] - excess / weights[last:].sum())
    return points


def draw(points: tuple[float, ...], uniform: Floats) -> Floats:
    """Inverse transform: the table's value at each uniform number, linear between its points; shape
    as ``uniform``.
    """
    if len(points) == 1:
        return np.full(uniform.shape, points[0])
    return np.asarray(np.interp(uniform, LEVELS, np.asarray(points)), dtype=np.float64)


def pick(points: tuple[float, ...], uniform: Floats) -> Floats:
    """One of the table's own values, never one between them: for node counts and limits, which have
    favourites.
    """
    if len(points) == 1:
        return np.full(uniform.shape, points[0])
    middle = (LEVELS[1:] + LEVELS[:-1]) / 2
    return np.asarray(points)[np.searchsorted(middle, uniform, side="right")]


def mean(points: tuple[float, ...], least: float = 0.0) -> float:
    """Of what `draw` draws, as nothing below `least`."""
    return float(np.maximum(draw(points, (np.arange(1000) + 0.5) / 1000), least).mean())


def _rounded(value: float, digits: int) -> float:
    return float(f"{float(value):.{digits}g}")
