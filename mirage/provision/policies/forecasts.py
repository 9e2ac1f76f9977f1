"""Who tells the law of a successor's wait: like jobs, or a trained model that knows one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from mirage.chain.durations import format_duration
from mirage.ports import Observation
from mirage.provision.policies.heuristics import nodes_are_free
from mirage.provision.policies.queue_state import QueueState
from mirage.provision.policies.wait_law import WaitLaw

AT_ONCE = WaitLaw(np.zeros(1), np.ones(1))


class Forecast(NamedTuple):
    """Of a successor's wait, were it released now."""

    law: WaitLaw
    words: str
    """Where the law comes from, for a reason: `40 like jobs waited 0 s to 3 h`."""
    exceeds_known: bool = False
    """Whether more is queued than any job found whose wait is known."""


class WaitSource(Protocol):
    """Implementations: `WaitsOfLikeJobs`, and `LearnedWaits` in `learned_waits.py`."""

    @property
    def name(self) -> str:
        """Of the model; empty: there is none."""

    def forecasts(self, observations: Sequence[Observation]) -> list[Forecast | None]:
        """One for each, in order. None: no wait is known."""


@dataclass(frozen=True, kw_only=True)
class WaitsOfLikeJobs:
    """The waits of like jobs that found about as much work queued (`queue_state.py`)."""

    last: int
    at_least: int
    name: str = ""

    def forecasts(self, observations: Sequence[Observation]) -> list[Forecast | None]:
        return [self._forecast(each) for each in observations]

    def _forecast(self, observation: Observation) -> Forecast | None:
        if words := nothing_before(observation):
            return Forecast(AT_ONCE, words)
        alike = observation.waits.like(observation.successor, self.at_least)
        if not len(alike.wait_s):
            return None
        queue = QueueState.of(observation, alike, self.last)
        law = queue.law_of_backlog
        spread = f"{format_duration(law.waits_s[0])} to {format_duration(law.waits_s[-1])}"
        words = f"{len(law.waits_s)} {alike.words} waited {spread}"
        return Forecast(law, words, queue.exceeds_known)


def nothing_before(observation: Observation) -> str:
    """Free nodes and an empty queue, in words: a release would start at once. Empty: not so."""
    latest = observation.history.latest if observation.history else None
    if latest is None or len(latest.queued) or latest.idle_nodes < observation.successor.nodes:
        return ""
    return f"{nodes_are_free(latest.idle_nodes)} and nothing is queued, so it would start at once"
