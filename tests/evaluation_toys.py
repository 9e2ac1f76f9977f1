"""A queue whose wait is known at every instant, and episodes in it: what evaluation is tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.provision.evaluation.case import Case, PoolStarts
from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, PairJob, PairSpec
from mirage.provision.learn.model import DEFAULT_TRAITS, Assessment, States, Traits
from slurm_sim.seconds import HOUR_S

DAY_S = 86_400
LIMIT_S = 48 * HOUR_S
BEGIN_S = 1_675_209_600
"""2023-02-01 00:00 UTC."""


@dataclass(frozen=True)
class Queue:
    """The wait of a job released at a time: busy spells on a quiet cluster, the same for the same
    seed.
    """

    seed: int = 1
    days: int = 45
    spells: int = 5
    nodes_factor: float = 1.0

    def wait_s(self, at_s: np.ndarray) -> np.ndarray:
        random = np.random.default_rng(self.seed)
        day = (np.asarray(at_s) - BEGIN_S) / DAY_S
        wait_h = np.maximum(0, 1.5 * np.sin(2 * np.pi * day) + random.normal(0, 0.2))
        for middle in random.uniform(1, self.days, self.spells):
            height, width = random.uniform(6, 30), random.uniform(0.8, 3)
            wait_h = wait_h + height * np.exp(-(((day - middle) / width) ** 2))
        return np.maximum(wait_h * self.nodes_factor - 1, 0) * HOUR_S

    def start_s(self, release_s: np.ndarray) -> np.ndarray:
        """Later releases never start earlier."""
        return np.maximum.accumulate((release_s + self.wait_s(release_s)).astype(np.int64))

    def episode(self, begin_s: int, nodes: int = 1) -> Episode:
        start_s = int(begin_s + self.wait_s(np.array([begin_s]))[0])
        end_s = start_s + LIMIT_S
        first = -(-(start_s - begin_s) // STEP_S)
        decision_s = begin_s + STEP_S * np.arange(
            first, -(-(end_s - begin_s) // STEP_S), dtype=np.int64
        )
        rows = np.zeros((HISTORY - 1 + len(decision_s), 40), dtype=np.float32)
        at_s = decision_s[0] + STEP_S * np.arange(1 - HISTORY, len(decision_s))
        rows[:, 0] = np.round(self.wait_s(at_s) / HOUR_S * 4)
        rows[:, 38] = np.where(self.wait_s(at_s) > 0, 0, 6)
        rows[:, 39] = 76
        link = PairJob(nodes, LIMIT_S, LIMIT_S)
        starts_s = self.start_s(np.append(decision_s, end_s))
        return Episode(
            PairSpec(link, link),
            begin_s,
            start_s,
            end_s,
            rows,
            decision_s,
            starts_s,
            starts_s[:-1] - decision_s,
        )

    def starts(self) -> PoolStarts:
        """A job starts every twenty minutes, after the wait of its submission."""
        submit_s = np.arange(BEGIN_S - 8 * DAY_S, BEGIN_S + (self.days + 8) * DAY_S, 1200)
        wait_s = self.wait_s(submit_s).astype(np.int64)
        order = np.argsort(submit_s + wait_s, kind="stable")
        ones = np.ones(len(order), dtype=np.int64)
        return PoolStarts((submit_s + wait_s)[order], wait_s[order], ones, LIMIT_S * ones)

    def cases(self, count: int, every_s: int = 4 * HOUR_S, nodes: int = 1) -> list[Case]:
        starts = self.starts()
        return [
            Case(self.episode(BEGIN_S + index * every_s, nodes), starts) for index in range(count)
        ]


@dataclass(frozen=True)
class Foresight:
    """A trained method that knows the queue but for noise; quantiles of its error are what it
    tells.
    """

    queue: Queue
    name: str = "foresight"
    error_h: float = 1.0
    traits: Traits = DEFAULT_TRAITS

    def assess(self, states: States) -> Assessment:
        wait_s = states.matrices[:, -1, 0].astype(float) / 4 * HOUR_S
        share = states.penalties[:, 0] / states.penalties.sum(axis=1)
        spread_s = self.error_h * HOUR_S * np.minimum(1, wait_s / HOUR_S)
        lead_s = wait_s + spread_s * (2 * share - 1)
        release = (states.remaining_s <= lead_s) & (lead_s > 0)
        nan = np.full(len(states), np.nan)
        return Assessment(
            release, nan, nan, np.maximum(wait_s - spread_s, 0), wait_s, wait_s + spread_s
        )

    def write(self, folder) -> None:
        raise AssertionError("not written")
