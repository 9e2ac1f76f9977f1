"""How raw state matrices are brought near one for a neural network: learned on the training part,
kept with the model.

Counts, nodes and seconds span six orders of magnitude, so each value is first put through sign(x)
log(1 + |x| / unit), which tames outliers, and then through its column's mean and standard deviation
over the training rows.

The predecessor's elapsed time is shown as the time left to its limit. With the limit beside it that
is the same information (the map can be undone), but near the end, where decisions fall, ten minutes
stay visible in the logarithm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.episode import STEP_S, Floats, Ints, Vectors
from mirage.state.variables import VARIABLES
from slurm_sim.seconds import HOUR_S

ELAPSED = next(
    i for i, variable in enumerate(VARIABLES) if variable.name == "predecessor_elapsed_s"
)
LIMIT = next(i for i, variable in enumerate(VARIABLES) if variable.name == "predecessor_limit_s")
UNITS = np.array(
    [STEP_S if variable.unit == "seconds" else 1 for variable in VARIABLES], dtype=np.float32
)

_CLIP = 8.0
"""Standard deviations beyond which inputs are cut: no single strange value can drive the network
far away.
"""
_LEAST_SPREAD = 0.05
"""A column that hardly changed in training is not blown up: noise in it would look like news."""


@dataclass(frozen=True)
class Scaling:
    """Two arrays of shape (40,), of values after the logarithm."""

    mean: Floats
    spread: Floats
    """Standard deviation, at least 0.05."""

    def __post_init__(self) -> None:
        for item in fields(self):
            array = getattr(self, item.name)
            if array.shape != (len(VARIABLES),) or not np.isfinite(array).all():
                raise InputError(
                    f"scaling.{item.name} must be {len(VARIABLES)} finite numbers; train the model"
                    " again"
                )
        if not (self.spread > 0).all():
            raise InputError("scaling.spread must be positive; train the model again")

    @classmethod
    def fit(cls, rows: Iterable[Vectors]) -> Scaling:
        """From raw rows, arrays of (any, 40): those of the training part and no others."""
        count, total, squares = 0, np.zeros(len(VARIABLES)), np.zeros(len(VARIABLES))
        for part in rows:
            shown = _logarithm(part).astype(np.float64)
            count += len(shown)
            total += shown.sum(axis=0)
            squares += (shown**2).sum(axis=0)
        if not count:
            raise InputError(
                "there are no training rows to learn the scaling from; give at least one episode"
            )
        mean = total / count
        variance = np.maximum(squares / count - mean**2, 0)
        return cls(mean, np.maximum(np.sqrt(variance), _LEAST_SPREAD))

    def apply(self, raw: Vectors) -> Vectors:
        """Scaled values, (..., 40), of raw rows of the same shape."""
        scaled = (_logarithm(raw) - self.mean.astype(np.float32)) / self.spread.astype(np.float32)
        result: Vectors = np.clip(scaled, -_CLIP, _CLIP).astype(np.float32)
        return result


def forecast_inputs(forecast_s: Ints, remaining_s: Ints) -> Vectors:
    """(n, 2), from about -3 to 3: a forecast wait, and how far it exceeds the time left to the
    predecessor's limit.

    Like logarithms far from zero, of hours; near it, where decisions fall, steep enough that ten
    minutes are seen: with six hours as the unit instead of one, networks hardly learned to use
    them.
    """
    hours = np.stack([forecast_s, forecast_s - remaining_s], axis=-1) / HOUR_S
    result: Vectors = (np.arcsinh(hours) / 2).astype(np.float32)
    return result


def _logarithm(raw: Vectors) -> Vectors:
    shown = np.array(raw, dtype=np.float32)
    shown[..., ELAPSED] = shown[..., LIMIT] - shown[..., ELAPSED]
    result: Vectors = np.copysign(np.log1p(np.abs(shown) / UNITS), shown)
    return result
