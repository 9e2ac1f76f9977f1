"""What tree methods see of a state: some 70 numbers instead of the paper's 5760.

The paper flattens the 144 x 40 matrix (section 4.3). Trees split on one number at a time: they
cannot add up 144 rows as attention does, each row more is one more chance to fit noise, and 200,000
decision points of 5760 numbers are 4.6 GB. So here are the present row, how the queue has changed
over an hour, six hours and a day, its mean over the day, and a few products and differences that a
tree would need many splits for. And the forecast that the present queue gives for this very
successor (`forecast.py`), which the matrix cannot tell.
"""

from __future__ import annotations

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY, STEP_S, Ints, Vectors
from mirage.provision.learn.model import States
from mirage.state.variables import PERCENTILES, VARIABLES
from slurm_sim.seconds import HOUR_S

_COLUMN = {variable.name: index for index, variable in enumerate(VARIABLES)}
_BACK = {"1h": 3_600 // STEP_S, "6h": 21_600 // STEP_S, "24h": HISTORY - 1}
"""How many rows back the row stands that the present one is compared with."""
_CHANGING = (
    "queued_jobs",
    "queued_nodes_p50",
    "queued_age_s_p50",
    "queued_age_s_p100",
    "queued_limit_s_p50",
    "running_jobs",
    "running_elapsed_s_p50",
    "idle_nodes",
)
_AVERAGED = ("queued_jobs", "queued_age_s_p50", "idle_nodes")
_AHEAD = ("queued_hours", "running_hours", "idle_beyond_successor", "successor_of_up")

NAMES = (
    *_COLUMN,
    *(f"{name}_since_{ago}" for ago in _BACK for name in _CHANGING),
    *(f"{name}_day_mean" for name in _AVERAGED),
    *_AHEAD,
    "forecast_h",
)


def features(matrices: Vectors, forecast_s: Ints) -> Vectors:
    """Of raw state matrices, (n, 144, 40), and forecasts, (n,): (n, len(NAMES))."""
    now = matrices[:, -1]
    changing, averaged = _columns(_CHANGING), _columns(_AVERAGED)
    changes = [
        now[:, changing] - matrices[:, HISTORY - 1 - back][:, changing] for back in _BACK.values()
    ]
    means = [matrices[:, :, column].mean(axis=1, keepdims=True) for column in averaged]
    forecast_h = forecast_s[:, None] / HOUR_S
    return np.concatenate(
        [now, *changes, *means, _ahead(now), forecast_h], axis=1, dtype=np.float32
    )


def features_of(states: States) -> Vectors:
    """(n, len(NAMES)). Raises InputError if the states come without forecasts."""
    if states.forecast_s is None:
        raise InputError("This method needs a forecast from the present queue with each state.")
    return features(states.matrices, states.forecast_s)


def _ahead(now: Vectors) -> Vectors:
    """Node-hours asked for by queued jobs and left to running ones, over the nodes up; how the
    successor fits.
    """
    up = np.maximum(now[:, _COLUMN["up_nodes"]], 1)
    queued = (
        now[:, _COLUMN["queued_jobs"]] * _mean(now, "queued_nodes") * _mean(now, "queued_limit_s")
    )
    left_s = np.maximum(_mean(now, "running_limit_s") - _mean(now, "running_elapsed_s"), 0)
    running = now[:, _COLUMN["running_jobs"]] * _mean(now, "running_nodes") * left_s
    successor = now[:, _COLUMN["successor_nodes"]]
    columns = [
        queued / up / HOUR_S,
        running / up / HOUR_S,
        now[:, _COLUMN["idle_nodes"]] - successor,
        successor / up,
    ]
    return np.stack(columns, axis=1)


def _mean(now: Vectors, name: str) -> Vectors:
    """About the mean of what the percentiles describe, (n,): that of the straight lines between
    them.
    """
    low, high = _COLUMN[f"{name}_p{PERCENTILES[0]}"], _COLUMN[f"{name}_p{PERCENTILES[-1]}"]
    points = now[:, low : high + 1]
    return np.asarray((points[:, 1:] + points[:, :-1]).mean(axis=1) / 2, dtype=np.float32)


def _columns(names: tuple[str, ...]) -> list[int]:
    return [_COLUMN[name] for name in names]
