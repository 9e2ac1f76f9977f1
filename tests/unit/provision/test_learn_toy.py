"""The toy queue: its best policy is the best."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.provision.learn.episode import HISTORY
from slurm_sim.seconds import HOUR_S
from tests.toy import HOURS_PER_JOB, Toy

TOY = Toy()
FIXED_LEADS_H = np.arange(0, 8, 0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_no_fixed_lead_and_no_other_distance_from_the_level_is_better(share: float) -> None:
    episodes = [TOY.episode(i) for i in range(600)]
    costs = [(share * e.interruption_s + (1 - share) * e.overlap_s) / HOUR_S for e in episodes]
    best = [TOY.best(e, share) for e in episodes]
    own = np.mean([cost[chosen] for cost, chosen in zip(costs, best, strict=True)])

    def at(points: list[int]) -> float:
        clipped = [min(max(k, 0), len(e)) for k, e in zip(points, episodes, strict=True)]
        return float(np.mean([cost[k] for cost, k in zip(costs, clipped, strict=True)]))

    assert (
        own
        < min(at([round(len(e) - lead_h * 6) for e in episodes]) for lead_h in FIXED_LEADS_H) / 2
    )
    assert own <= min(at([k + shift for k in best]) for shift in (-3, -2, 2, 3))


def test_the_best_lead_is_the_newsvendors() -> None:
    episode = next(e for e in map(TOY.episode, range(99)) if 40 < float(e.tags["level"]) < 80)
    wait_h = float(episode.tags["level"]) * HOURS_PER_JOB
    for share in (0.2, 0.5, 0.8):
        lead_h = (episode.predecessor_end_s - episode.decision_s[TOY.best(episode, share)]) / HOUR_S
        assert lead_h == pytest.approx(wait_h + TOY.surprise_h * (2 * share - 1), abs=0.1)


def test_an_episode_is_whole_and_repeatable() -> None:
    episode = TOY.episode(7)
    assert episode.windows.shape == (len(episode), HISTORY, 40)
    assert (np.diff(episode.decision_s) == 600).all()
    assert (episode.remaining_s == episode.predecessor_end_s - episode.decision_s).all()
    assert (episode.waits_s == episode.waits_s[0]).all()
    assert np.array_equal(episode.rows, TOY.episode(7).rows)
    assert not np.array_equal(episode.rows, TOY.episode(8).rows)
