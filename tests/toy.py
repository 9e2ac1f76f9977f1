"""A toy queue whose best policy is known exactly: by it a learner is seen to learn, in seconds.

Each episode has a level, seen (with noise from row to row) as the number of queued jobs. The
successor's wait is `HOURS_PER_JOB` * level, plus a part that nobody can see, uniform between
-`surprise_h` and +`surprise_h`; at least 0. It does not depend on when the successor is released,
so the best policy for a penalty share s = e_I / (e_I + e_O) aims at the wait's s-quantile (the
newsvendor rule): it releases at the decision point nearest in expected cost to

    HOURS_PER_JOB * level + surprise_h * (2 s - 1)     hours before the predecessor's end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, Floats, PairJob, PairSpec
from mirage.state.variables import VARIABLES
from slurm_sim.seconds import HOUR_S

HOURS_PER_JOB = 0.05
_COLUMN = {variable.name: column for column, variable in enumerate(VARIABLES)}
_BEGIN_S = 1_600_000_000


@dataclass(frozen=True)
class Toy:
    """A queue; `episode` is a `Source`."""

    limit_h: int = 8
    """The predecessor's limit, to which it runs."""
    most_jobs: int = 100
    """Levels are uniform from 0 to here."""
    surprise_h: float = 1.0
    jitter: float = 5.0
    """Standard deviation, in jobs, of what is seen about the level."""
    predicts: bool = False
    """Whether the forecast says what the level means; else it is always 0."""
    seed: int = 0

    def episode(self, index: int) -> Episode:
        """The same for the same index; later indices are later in time."""
        generator = np.random.default_rng([self.seed, index])
        level = generator.uniform(0, self.most_jobs)
        wait_s = max(
            0, round((HOURS_PER_JOB * level + generator.uniform(-1, 1) * self.surprise_h) * HOUR_S)
        )
        return self.make(_BEGIN_S + index * 4 * HOUR_S, level, wait_s, generator)

    def make(
        self, begin_s: int, level: float, wait_s: int, generator: np.random.Generator
    ) -> Episode:
        limit_s = self.limit_h * HOUR_S
        decision_s = begin_s + STEP_S * np.arange(1, limit_s // STEP_S, dtype=np.int64)
        rows = np.zeros((HISTORY - 1 + len(decision_s), len(VARIABLES)), dtype=np.float32)
        rows[:, _COLUMN["queued_jobs"]] = np.maximum(
            0, level + generator.normal(0, self.jitter, len(rows))
        )
        first_s = decision_s[0] - (HISTORY - 1) * STEP_S
        elapsed_s = first_s + STEP_S * np.arange(len(rows)) - begin_s
        there = elapsed_s >= 0
        rows[there, _COLUMN["predecessor_nodes"]] = 1
        rows[there, _COLUMN["predecessor_limit_s"]] = limit_s
        rows[there, _COLUMN["predecessor_elapsed_s"]] = elapsed_s[there]
        rows[:, _COLUMN["successor_limit_s"]] = limit_s
        link = PairJob(1, limit_s, limit_s)
        released_s = np.append(decision_s, begin_s + limit_s)
        return Episode(
            pair=PairSpec(link, link),
            begin_s=begin_s,
            predecessor_start_s=begin_s,
            predecessor_end_s=begin_s + limit_s,
            rows=rows,
            decision_s=decision_s,
            successor_start_s=released_s + wait_s,
            forecast_s=np.full_like(
                decision_s, HOURS_PER_JOB * level * HOUR_S if self.predicts else 0
            ),
            tags={"level": f"{level:.6f}"},
        )

    def best(self, episode: Episode, share: float) -> int:
        """The decision point at which the best policy releases; T: never."""
        leads_h = (
            episode.predecessor_end_s - np.append(episode.decision_s, episode.predecessor_end_s)
        ) / HOUR_S
        costs_h = self.expected_costs_h(float(episode.tags["level"]), leads_h, share)
        return len(costs_h) - 1 - int(np.argmin(costs_h[::-1]))

    def expected_costs_h(self, level: float, leads_h: Floats, share: float) -> Floats:
        """(n,): mean of share * interruption + (1 - share) * overlap of releases so long before the
        end, (n,).
        """
        waits_h = np.maximum(HOURS_PER_JOB * level + np.linspace(-1, 1, 501) * self.surprise_h, 0)
        late_h = waits_h - leads_h[:, None]
        costs_h: Floats = np.mean(
            share * np.maximum(late_h, 0) + (1 - share) * np.maximum(-late_h, 0), axis=1
        )
        return costs_h
