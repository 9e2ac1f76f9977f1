"""What a model has seen in training, so that a state far from all of it can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode, Floats, Ints, Vectors
from mirage.state.variables import VARIABLES

Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value by the input's name: the 40 variables of the present row, and
`remaining_s`.
"""
NAMES = (*(variable.name for variable in VARIABLES), "remaining_s")


def ranges_of(episodes: Sequence[Episode]) -> dict[str, tuple[float, float]]:
    """Over all decision points. Raises InputError if there is none."""
    seen = [
        _inputs(episode.windows[:, -1], episode.remaining_s) for episode in episodes if len(episode)
    ]
    if not seen:
        raise InputError(
            "no episode has a decision point; give longer predecessors or more episodes."
        )
    low = np.min([inputs.min(axis=0) for inputs in seen], axis=0)
    high = np.max([inputs.max(axis=0) for inputs in seen], axis=0)
    return {
        name: (float(least), float(most))
        for name, least, most in zip(NAMES, low, high, strict=True)
    }


def outside(ranges: Ranges, matrices: Vectors, remaining_s: Ints) -> list[str | None]:
    """Of each state, (n, 144, 40) and (n,), what is farthest out of range (`queued_jobs 4,000 >
    310`), or None. Whether that changes a model's answer only the model can tell (`clipped`).

    A quarter of the range, or a tenth of its greatest value where that is more, is allowed on
    either side: between a busy training month and a busier one trees repeat their edge, and
    networks go on nearly straight.
    """
    names = [name for name in NAMES if name in ranges]
    low, high = np.array([ranges[name] for name in names]).reshape(-1, 2).T
    inputs = _inputs(matrices[:, -1], remaining_s)[:, [NAMES.index(name) for name in names]]
    allowed = np.maximum((high - low) / 4, np.maximum(np.abs(low), np.abs(high)) / 10)
    excess = np.maximum(inputs - high, low - inputs) / np.maximum(allowed, 1e-9)
    excess[np.isnan(inputs)] = np.inf
    return [_words(names, row, worst, low, high) for row, worst in zip(inputs, excess, strict=True)]


def clipped(ranges: Ranges, matrices: Vectors, remaining_s: Ints) -> tuple[Vectors, Ints]:
    """The same states, whose values beyond the ranges are at their edges.

    A row of the past may be below them: before the predecessor became eligible its columns are 0.
    """
    low, high = np.full(len(NAMES), -np.inf), np.full(len(NAMES), np.inf)
    for index, name in enumerate(NAMES):
        if name in ranges:
            low[index], high[index] = ranges[name]
    result = np.minimum(matrices, high[:-1].astype(np.float32))
    result[:, -1] = np.maximum(result[:, -1], low[:-1].astype(np.float32))
    if "remaining_s" not in ranges:
        return result, remaining_s
    return result, np.clip(remaining_s, int(low[-1]), int(high[-1]))


def _inputs(now: Vectors, remaining_s: Ints) -> Floats:
    return np.column_stack([now.astype(np.float64), remaining_s])


def _words(
    names: Sequence[str], row: Floats, excess: Floats, low: Floats, high: Floats
) -> str | None:
    if not len(excess) or excess.max() <= 1:
        return None
    worst = int(excess.argmax())
    value, is_low = row[worst], row[worst] < low[worst]
    bound = low[worst] if is_low else high[worst]
    return f"{names[worst]} {value:,.0f} {'<' if is_low else '>'} {bound:,.0f}"
