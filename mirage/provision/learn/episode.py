"""One labelled episode: what was to be seen at each decision point, and the exact outcome of
releasing there.

Before its release the successor changes nothing for anyone else, so one walk through the simulation
sees every decision point, and a fork at each tells what a release there leads to
(docs/learning.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.domain import Penalties
from slurm_sim.seconds import HOUR_S

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]

STEP_S = 600
"""Seconds between two decision points (paper, section 4.4)."""
HISTORY = 144
"""Rows of the state matrix: 24 hours (paper, section 4.2)."""
AUGMENTED_LEAD_S = 7 * 24 * HOUR_S
"""Other arrivals begin so long before the episode, so that the queue it meets is theirs."""
JITTER_S = 24 * HOUR_S
"""Copies of a user's week come up to this much earlier or later."""
Span = tuple[int, int]
"""Begin and end, Unix seconds."""


class Load(str, Enum):
    """How busy the cluster is, by the wait of the reactive successor (paper, section 6)."""

    HEAVY = "heavy"
    """More than 12 hours."""
    MEDIUM = "medium"
    """2 to 12 hours."""
    LIGHT = "light"
    """Less than 2 hours."""


class PairJob(NamedTuple):
    """What one job of the pair asks for."""

    nodes: int
    time_limit_s: int
    runtime_s: int
    """How long it really runs; policies never see it."""


class PairSpec(NamedTuple):
    predecessor: PairJob
    successor: PairJob


@dataclass(frozen=True)
class Episode:
    """A pair of jobs at one time on one cluster. Times are Unix seconds; T is the number of
    decision points.

    Decision points are the multiples of STEP_S after the predecessor's submission at which it runs.
    """

    pair: PairSpec
    begin_s: int
    """The predecessor's submission."""
    predecessor_start_s: int
    predecessor_end_s: int
    rows: Vectors
    """(HISTORY - 1 + T, 40), raw, oldest first: row HISTORY - 1 + k is that of decision point k."""
    decision_s: Ints
    """(T,), one step apart."""
    successor_start_s: Ints
    """(T + 1,): when the successor starts if released at decision point k; the last: if it never is
    (reactive).
    """
    forecast_s: Ints
    """(T,): the wait of a release there as the queue of that moment tells it
    (`mirage.provision.learn.forecast`).
    """
    tags: dict[str, str] = field(default_factory=dict)
    """Where it comes from: trace, warm-up, augmentation."""

    def __len__(self) -> int:
        return len(self.decision_s)

    @property
    def windows(self) -> Vectors:
        """The state matrices of all decision points, (T, HISTORY, 40): a view of `rows`."""
        if not len(self):
            return np.empty((0, HISTORY, self.rows.shape[1]), dtype=np.float32)
        view = np.lib.stride_tricks.sliding_window_view(self.rows, HISTORY, axis=0)
        return view.transpose(0, 2, 1)

    @property
    def remaining_s(self) -> Ints:
        """(T,): seconds from each decision point to the predecessor's time limit, which is all that
        a policy knows.
        """
        return self.predecessor_start_s + self.pair.predecessor.time_limit_s - self.decision_s

    @property
    def interruption_s(self) -> Ints:
        """(T + 1,): successor's start - predecessor's end where that is positive, else 0."""
        return np.maximum(self.successor_start_s - self.predecessor_end_s, 0)

    @property
    def overlap_s(self) -> Ints:
        """(T + 1,): predecessor's end - successor's start where that is positive, else 0."""
        return np.maximum(self.predecessor_end_s - self.successor_start_s, 0)

    @property
    def waits_s(self) -> Ints:
        """(T + 1,): the successor's wait from its release at each point (the last: from the
        predecessor's end).
        """
        released_s: Ints = np.append(self.decision_s, self.predecessor_end_s)
        return self.successor_start_s - released_s

    @property
    def reactive_wait_s(self) -> int:
        return int(self.interruption_s[-1])

    @property
    def ends_early(self) -> bool:
        """Whether the predecessor ends before its time limit, by a decision step or more."""
        limit_s = self.predecessor_start_s + self.pair.predecessor.time_limit_s
        return self.predecessor_end_s <= limit_s - STEP_S

    @property
    def load(self) -> Load:
        hours = self.reactive_wait_s / HOUR_S
        return Load.HEAVY if hours > 12 else Load.MEDIUM if hours >= 2 else Load.LIGHT

    def costs_s(self, penalties: Penalties) -> Floats:
        """(T + 1,): e_I * interruption + e_O * overlap in seconds, the reward of eq. 8 negated."""
        return penalties.interruption * self.interruption_s + penalties.overlap * self.overlap_s

    def best(self, penalties: Penalties) -> int:
        """The oracle's choice: the cheapest decision point, of equals the latest; T: never."""
        costs = self.costs_s(penalties)
        return len(costs) - 1 - int(np.argmin(costs[::-1]))


def span(episode: Episode) -> Span:
    """From the first row to the last outcome: the time that an episode tells something of.

    An augmented one is made of the jobs of the weeks before, and of those that were moved to it
    from the day after.
    """
    first_s = int(episode.decision_s[0]) - (HISTORY - 1) * STEP_S
    last_s = max(episode.predecessor_end_s, int(episode.successor_start_s.max()))
    if episode.tags.get("augmentation"):
        return episode.begin_s - AUGMENTED_LEAD_S, last_s + JITTER_S
    return first_s, last_s
