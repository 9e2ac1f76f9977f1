"""What every trained method is: a function from states to decisions, that can be written to a
folder and read back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mirage.provision.learn.episode import STEP_S, Episode, Floats, Ints, Vectors

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class States:
    """n pairs at their decision points, to be decided at once."""

    matrices: Vectors
    """(n, 144, 40), raw: `Episode.windows`, or `mirage.state.history.History.matrices`."""
    remaining_s: Ints
    """(n,): until the predecessor's time limit."""
    penalties: Floats
    """(n, 2): e_I, e_O of each pair."""
    step_s: int = STEP_S
    forecast_s: Ints | None = None
    """(n,): `Episode.forecast_s`; None where nobody made one, for methods that do without."""

    def __len__(self) -> int:
        return len(self.matrices)

    def every(self, steps: int) -> States:
        """Every so many-th of them."""
        return replace(
            self,
            matrices=self.matrices[::steps],
            remaining_s=self.remaining_s[::steps],
            penalties=self.penalties[::steps],
            forecast_s=None if self.forecast_s is None else self.forecast_s[::steps],
        )

    @classmethod
    def of(cls, episode: Episode, interruption: float = 1.0, overlap: float = 1.0) -> States:
        """All decision points of an episode, with one user's penalties."""
        penalties = np.tile(
            np.array([[interruption, overlap]], dtype=np.float64), (len(episode), 1)
        )
        return cls(episode.windows, episode.remaining_s, penalties, forecast_s=episode.forecast_s)


@dataclass(frozen=True)
class Assessment:
    """What a method thinks of n states. NaN: it does not say."""

    release: Flags
    """(n,): whether to release now."""
    cost_now_s: Floats
    """(n,): expected e_I * interruption + e_O * overlap of releasing now."""
    cost_wait_s: Floats
    """(n,): the same of waiting at least one more step."""
    wait_p10_s: Floats
    wait_p50_s: Floats
    wait_p90_s: Floats
    """(n,) each: quantiles of the successor's wait if released now."""
    gain: Floats | None = None
    """(n,): how much better a release now is than waiting, in any unit, for a method with a memory.
    """

    @classmethod
    def plain(
        cls, release: Flags, cost_now_s: Floats | None = None, cost_wait_s: Floats | None = None
    ) -> Assessment:
        """Of a method that tells no quantiles."""
        unknown = np.full(len(release), np.nan)
        now_s = unknown if cost_now_s is None else cost_now_s
        wait_s = unknown if cost_wait_s is None else cost_wait_s
        return cls(release, now_s, wait_s, unknown, unknown, unknown)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a caller must know of a model. Most models have the defaults."""

    uses_forecasts: bool = True
    """Whether its states need forecasts (`forecast.py`). Its folder then has the cluster's
    description.
    """
    memory: int = 1
    """Decision points, the present one included, whose mean gain decides. The caller keeps the
    gains: `releases` for the points of an episode, the service from cycle to cycle.
    """
    share: float | None = None
    """The only penalty share e_I / (e_I + e_O) that it was trained for; None: it serves all."""
    interrupted: bool = False
    """Whether its training was cut short, so that it is the best until then."""


DEFAULT_TRAITS = Traits()


class Model(Protocol):
    """A trained method. It never changes as it is used: the same states give the same assessment."""

    @property
    def name(self) -> str:
        """The method's name in the registry."""

    @property
    def traits(self) -> Traits: ...

    def assess(self, states: States) -> Assessment: ...

    def write(self, folder: Path) -> None:
        """Its weights, as files in this folder (safetensors or a native tree format); never pickle."""


def releases(model: Model, said: Assessment, states: States) -> Flags:
    """(n,): at which of a pair's n decision points, all from the first on, a model releases that
    said this of them.
    """
    memory, chosen = model.traits.memory, said.release
    if memory != 1 and said.gain is not None:
        first = np.zeros(len(said.gain), dtype=np.int64)
        chosen = release_by_mean(said.gain[:, None], first, memory)[:, 0]
    return chosen & ~would_start_now(model, states)


def would_start_now(model: Model, states: States) -> Flags:
    """(n,): whether a release would surely start too early, so that it is not made whatever the
    model says.

    A successor whose forecast is below a step starts within it. One more step then saves a step of
    overlap, and costs 0 to 81 s of interruption in the mean. So waiting is right while as many
    steps are left as an interruption weighs more than an overlap (docs/retraining.md, "In the service").
    False for models without forecasts: the service makes none for them.
    """
    if not model.traits.uses_forecasts or states.forecast_s is None:
        return np.zeros(len(states), dtype=np.bool_)
    interruption, overlap = states.penalties.T
    least_s = states.step_s * np.maximum(interruption, overlap)
    is_early = states.remaining_s * overlap > least_s
    return np.asarray(is_early & (states.forecast_s < states.step_s))


def release_by_mean(gains: Floats, first: Ints, memory: int) -> Flags:
    """(n, m): whether the mean gain of each row and those before it is above 0.

    ``memory`` rows count, but none before row ``first`` (n,) of the series.
    """
    rows = np.arange(len(gains))
    since = np.maximum(first, rows - memory + 1)
    sums = np.concatenate([np.zeros((1, gains.shape[1])), np.cumsum(gains, axis=0)])
    means = (sums[rows + 1] - sums[since]) / (rows + 1 - since)[:, None]
    return np.asarray(means > 0)
