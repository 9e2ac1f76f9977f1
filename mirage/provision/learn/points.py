"""Many episodes as flat arrays, so that nothing loops over episodes or steps: what the neural
methods train on.

A *slot* is one way an episode can go: a decision point, where a release is possible, or the one
after them, "never". Episode e has T_e + 1 slots in a row; the next slot is the next decision.
Waiting changes nothing but time, so a policy's whole rollout is the first slot at which it
releases, found for all episodes in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, Floats, Ints, Vectors
from mirage.provision.learn.model import Flags
from mirage.provision.learn.scaling import Scaling, forecast_inputs
from slurm_sim.seconds import HOUR_S


@dataclass(frozen=True)
class PreparedEpisode:
    """An episode as the networks see it."""

    rows: Vectors
    """(HISTORY - 1 + T, 40), scaled."""
    interruption_h: Floats
    """(T + 1,)."""
    overlap_h: Floats
    forecast: Vectors
    """(T, 2): `forecast_inputs`."""
    start_point: Ints
    """(T + 1,): the last decision point before the successor's start, for each way the episode can
    go.
    """

    @classmethod
    def of(cls, episode: Episode, scaling: Scaling) -> PreparedEpisode:
        start_point = (episode.successor_start_s - episode.decision_s[0]) // STEP_S
        return cls(
            scaling.apply(episode.rows),
            episode.interruption_s / HOUR_S,
            episode.overlap_s / HOUR_S,
            forecast_inputs(episode.forecast_s, episode.remaining_s),
            np.clip(start_point, 0, len(episode) - 1),
        )


def questions(shares: Floats, forecast: Vectors) -> Vectors:
    """(n, m, 3), of m penalty shares, (n, m), and the `forecast_inputs`, (n, 2), of each state."""
    of_share = np.broadcast_to(forecast[:, None], (*shares.shape, forecast.shape[1]))
    return np.concatenate([shares[..., None], of_share], axis=-1, dtype=np.float32)


def prepare(episodes: Sequence[Episode], scaling: Scaling) -> list[PreparedEpisode]:
    """Those of the episodes that have a decision point at all."""
    return [PreparedEpisode.of(episode, scaling) for episode in episodes if len(episode)]


def _windows(rows: list[Vectors], device: torch.device) -> Tensor:
    """A view of all rows, (rows - HISTORY + 1, HISTORY * 40): each window is whole."""
    joined = torch.from_numpy(np.concatenate(rows)).to(device)
    return joined.flatten().unfold(0, HISTORY * joined.shape[1], joined.shape[1])


class Points:
    """The slots of some episodes. S: slots, N: episodes, P: slots that are decision points."""

    def __init__(self, episodes: Sequence[PreparedEpisode], device: torch.device) -> None:
        if not episodes:
            raise InputError(
                "there is no episode with a decision point; give longer predecessors or more"
                " episodes"
            )
        sizes = np.array([len(episode.interruption_h) for episode in episodes])
        ends = np.cumsum(sizes)
        self.first: Ints = ends - sizes
        """(N,): each episode's first slot."""
        self.last_decision: Ints = ends - 2
        """(N,): each episode's last decision point."""
        self.episode: Ints = np.repeat(np.arange(len(sizes)), sizes)
        """(S,): whose slot it is."""
        self.never: Flags = np.zeros(ends[-1], dtype=np.bool_)
        """(S,): no decision point, but the reactive outcome."""
        self.never[ends - 1] = True
        self.decisions: Ints = np.flatnonzero(~self.never)
        """(P,): the slots that are decision points."""
        self.interruption_h: Floats = np.concatenate(
            [episode.interruption_h for episode in episodes]
        )
        self.overlap_h: Floats = np.concatenate([episode.overlap_h for episode in episodes])
        self.at_start: Ints = (
            np.concatenate([episode.start_point for episode in episodes]) + self.first[self.episode]
        )
        """(S,): the decision point at which the successor starts, or the episode's last one if it
        starts later.
        """
        nothing = np.zeros_like(
            episodes[0].forecast[:1]
        )  # "never" is no state that anything is asked about
        self._forecast = np.concatenate(
            [part for episode in episodes for part in (episode.forecast, nothing)]
        )
        # An episode has HISTORY - 2 rows more than slots.
        row = np.arange(ends[-1]) + self.episode * (HISTORY - 2)
        self._row = torch.from_numpy(row).to(device)
        self._windows = _windows([episode.rows for episode in episodes], device)
        self.device = device

    def __len__(self) -> int:
        return len(self.first)

    def on_device(self, array: NDArray[Any]) -> Tensor:
        """A copy on the device. One for all batches of a round: each copy waits for the GPU."""
        return torch.from_numpy(array).to(self.device)

    def states(self, slots: Ints | Tensor) -> Tensor:
        """Scaled state matrices, (n, 144, 40), of decision points; a tensor is on the device."""
        at = slots if isinstance(slots, Tensor) else self.on_device(slots)
        return self._windows[self._row[at]].view(len(slots), HISTORY, -1)

    def asked(self, shares: Floats, slots: Ints) -> Tensor:
        """(n, m, 3): what decision points are asked with: their episodes' penalty shares, (N, m),
        and forecasts.
        """
        of_slots = questions(shares[self.episode[slots]], self._forecast[slots])
        return self.on_device(of_slots)

    def costs_h(self, of_episodes: Floats) -> Floats:
        """(S, m): share * interruption + (1 - share) * overlap for shares (N, m): equation 8
        negated, e_I + e_O = 1.
        """
        share = of_episodes[self.episode]
        return share * self.interruption_h[:, None] + (1 - share) * self.overlap_h[:, None]

    def stops(self, release: Flags) -> Ints:
        """(S, m): the first slot from each slot on, itself included, where a policy releases;
        `never` if nowhere.

        ``release``: (S, m), what m policies decide at each slot.
        """
        slots = np.arange(len(self.never))[:, None]
        here = np.where(release | self.never[:, None], slots, len(slots))
        first: Ints = np.minimum.accumulate(here[::-1], axis=0)[::-1]
        return first

    def evenly(self, probes: int) -> Ints:
        """The slots of ``probes`` evenly split decision points of each episode (paper, section
        4.9.1), ascending.
        """
        split = np.linspace(self.first, self.last_decision, probes)
        return np.unique(np.rint(split).astype(np.int64))

    def clock(self, every: int, generator: np.random.Generator) -> Ints:
        """The slots of every so many-th decision point of each episode, from a random one of its
        first on.
        """
        phase = generator.integers(0, np.minimum(every, self.last_decision - self.first + 1))
        since = self.decisions - (self.first + phase)[self.episode[self.decisions]]
        chosen: Ints = self.decisions[since % every == 0]
        return chosen

    def split(self, of_slots: Flags) -> list[Flags]:
        """An array over all slots, cut into the episodes' parts."""
        return np.split(of_slots, self.first[1:])

    def later(self, of_slots: Floats) -> Floats:
        """(S, m): of each slot, the sum over the later slots of its episode."""
        summed = np.cumsum(of_slots[::-1], axis=0)[::-1]  # from each slot to the very last
        following = np.append(summed[1:], np.zeros_like(summed[:1]), axis=0)
        result: Floats = following - following[self.last_decision + 1][self.episode]
        return result

    def ends(self, chances: Floats) -> Floats:
        """(S, m): the chance that a rollout ends at each slot, of a policy that releases with these
        chances, (S, m), where it is asked; 1 at `never`. Of each episode they sum to 1.
        """
        waits = np.log1p(-np.minimum(chances, 1 - 1e-12))
        before = np.cumsum(waits, axis=0) - waits
        reached = np.exp(before - before[self.first][self.episode])
        result: Floats = reached * chances
        return result
