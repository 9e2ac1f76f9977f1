"""When a service's successor enters the queue: as late as keeps the service up.

A service is up while a link is ready to serve. A link is ready some time S after its start, and its
predecessor serves until then, or to its limit. Let W be the successor's wait, and r what its
predecessor has left. A release now leaves the service down for (W + S - r)+ seconds.

The owner says which share of the time a service is to be up. What that costs is handovers, and
nodes that are held twice meanwhile. Both are least where links run longest, so the latest release
that keeps the share is right. It is made as soon as one at the next decision point would be
expected to leave the service down for more than a link's part of the time that the owner allows, or
would more likely than not be late at all.

A burst makes waits grow beyond all that the forecast knows. So where waits are long beside the time
that a link may lose (`MANY`), the successor enters the queue when its predecessor has `LATEST` of its
run left, at the latest. Before that, one that would more likely than not start before its predecessor
has run for `LEAST_RUN` is not released: each handover then costs a link, and the next one may wait as
long.

A replica of a service aims at an earlier end than its predecessor's, where another replica's link
ends at about that time (`mirage/chain/spread.py`).

Where waits are about as long as links no release keeps the share. While the predecessor waits
itself, a further successor follows it after `STAGGER`, so that starts come about that often. If one
wait in ten is longer than a link, it follows though it may start soon after its predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirage.chain.durations import format_duration
from mirage.domain import Action
from mirage.ports import Advice, Observation
from mirage.provision.policies.forecasts import Forecast, WaitSource
from mirage.provision.policies.goodput import follow
from mirage.provision.policies.heuristics import end_is_away, no_wait_known, not_yet
from mirage.provision.policies.wait_law import WaitLaw

LEAST_RUN = 1 / 2
"""Of a link's length: a successor that would more likely start before its predecessor is that old
is not released.
"""
LATEST = 3 / 5
"""Of a link's length: with so much left the successor enters the queue, where waits are long."""
MANY = 20
"""Waits are long where one in ten is longer than so many times what a link may lose."""
MARGIN = 1.2
"""Waits come in bursts, so the next one is taken to last so many times as long as the law says."""
STAGGER = 2 / 5
"""Of a link's length: so long after its predecessor entered the queue the next one follows. Training
chains have `goodput.SPACING`: at 2/5 they hand over 15 % more often, for no more goodput. Services
lose by that one: 1.4 points of up-time at half a link and 2.8 at 3/5 (the demo's seeds 11 to 13).
"""
NAME = "uptime"

_Left = tuple[float, float]
"""Seconds, and the share of the cases."""


@dataclass(frozen=True)
class Uptime:
    """Decides about services whose owners set no penalties. Implements `mirage.ports.BatchPolicy`."""

    waits: WaitSource
    name: str = NAME

    @property
    def words(self) -> str:
        """Its name, and that of the model whose waits it takes."""
        return f"{self.name} by {self.waits.name}" if self.waits.name else self.name

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        answers = [_undecided(each) for each in observations]
        asked = [each for each, answer in zip(observations, answers, strict=True) if not answer]
        found = iter(self.waits.forecasts(asked))
        return [
            answer or _weighed(each, next(found))
            for each, answer in zip(observations, answers, strict=True)
        ]


def _undecided(observation: Observation) -> Advice | None:
    """Why nothing is to be weighed yet; None: it is."""
    if observation.predecessor.is_queueing:
        following = follow(observation, STAGGER)
        return None if following.action is Action.RELEASE else following
    return not_yet(observation)


def _weighed(observation: Observation, forecast: Forecast | None) -> Advice:
    if forecast is None:
        return no_wait_known(observation)
    length_s = observation.predecessor.expected_limit_s
    assert length_s is not None
    until_s = observation.handover_s + observation.earlier_s
    # A predecessor that waits itself has its whole run before it, if it starts now.
    ends = observation.ends or ((length_s, 1.0),)
    lefts_s = [(end_s - until_s, share) for end_s, share in ends]
    release, why = _choice(observation, forecast, lefts_s, length_s)
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=". ".join([forecast.words, why, _end(observation)]),
        wait_p10_s=forecast.law.quantile(0.1),
        wait_p50_s=forecast.law.quantile(0.5),
        wait_p90_s=forecast.law.quantile(0.9),
        expected_interruption_s=_down_s(forecast.law, lefts_s),
        expected_overlap_s=float(observation.handover_s),
    )


def _choice(
    observation: Observation, forecast: Forecast, lefts_s: Sequence[_Left], length_s: int
) -> tuple[bool, str]:
    """Whether it is released now, and why. ``lefts_s``: until it must have started."""
    law = WaitLaw(MARGIN * forecast.law.waits_s, forecast.law.shares)
    if observation.remaining_s is None and forecast.law.quantile(0.9) >= length_s:
        return True, "One wait in ten is longer than a link, and its predecessor waits itself"
    remaining_s = length_s if observation.remaining_s is None else observation.remaining_s
    remaining_s -= observation.earlier_s
    allowed_s = (1 - (observation.uptime or 0)) * length_s
    if remaining_s <= LATEST * length_s and forecast.law.quantile(0.9) > MANY * allowed_s:
        return True, f"Waits may grow, and its predecessor has {LATEST:.0%} of its run left at most"
    early_s = remaining_s - (1 - LEAST_RUN) * length_s
    if early_s > 0 and law.share_above(early_s) < 0.5:
        early = format_duration(early_s)
        return False, (
            "A release now would probably come too soon: its predecessor should first run for another"
            f" {early}"
        )
    if forecast.exceeds_known:
        return True, "More work is queued than any of them found, so it may wait longer than all"
    later_s = [(left_s - observation.step_s, share) for left_s, share in lefts_s]
    chance = sum(share * law.share_above(left_s) for left_s, share in later_s)
    down_s = _down_s(law, later_s)
    return down_s > allowed_s or chance > 0.5, (
        f"A release {format_duration(observation.step_s)} from now would leave the service down"
        f" for {format_duration(down_s)} on average. The wanted up-time allows each link"
        f" {format_duration(allowed_s)}. The chance of being down at all would be {chance:.0%}"
    )


def _down_s(law: WaitLaw, lefts_s: Sequence[_Left]) -> float:
    """The mean time by which a wait exceeds what is left, over ``lefts_s``, each with its share."""
    return sum(
        share * float(np.maximum(law.waits_s - left_s, 0) @ law.shares) for left_s, share in lefts_s
    )


def _end(observation: Observation) -> str:
    """How far the end is, and when after its start a successor serves, as sentences."""
    start_up = format_duration(observation.handover_s)
    known = "" if observation.is_handover_known else " (assumed)"
    end = end_is_away(observation).replace("its", "Its", 1)
    apart = format_duration(observation.earlier_s)
    earlier = f". It is to hand over {apart} earlier, apart from other replicas"
    moved = earlier if observation.earlier_s else ""
    return f"{end}{moved}. A link is ready {start_up} after its start{known}"
