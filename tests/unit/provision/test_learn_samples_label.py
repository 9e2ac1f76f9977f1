"""An episode's labels are what happens in simulations that know nothing of forks; its rows are the
simulator's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.provision.env.observation import Pool, observe
from mirage.provision.learn.augment import Augmentation, ResampledUsers, ScaledLoad
from mirage.provision.learn.background import WarmUp
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.episode import AUGMENTED_LEAD_S, HISTORY, STEP_S, PairJob, PairSpec
from mirage.provision.learn.sampler import USER, DropReason, LabelledEpisode, label
from mirage.state.variables import PAIR
from slurm_sim.jobs import JobSpec
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, background, cluster, fair_background

BUSY_S = EPOCH_S + 12 * DAY_S + 77
PLAN = EpisodePlan(BUSY_S, fixed_pair(4, 6 * HOUR_S))


def labelled(plan: EpisodePlan = PLAN) -> LabelledEpisode:
    found = label(background(), plan)
    assert isinstance(found, LabelledEpisode)
    return found


def anew(plan: EpisodePlan, until_s: int) -> tuple[object, int, int]:
    """The same episode in a simulation of its own, at this time, without a release."""
    simulation = background().warm(plan.begin_s, plan.warm_up, plan.begin_s + 10 * DAY_S)
    first, second = plan.pair
    spec = {"user": USER, "requeue": False, "exclusive": True}
    one = simulation.submit(JobSpec(*first, **spec))
    other = simulation.submit(JobSpec(*second, dependency=f"afterany:{one}", **spec))
    simulation.run_until(until_s)
    return simulation, one, other


@pytest.mark.parametrize("warm_up", list(WarmUp))
def test_each_label_is_what_a_release_there_leads_to(warm_up: WarmUp) -> None:
    plan = replace(PLAN, warm_up=warm_up)
    episode = labelled(plan).episode
    assert len(episode) > 30
    assert episode.waits_s.max() > HOUR_S
    for point in range(0, len(episode), 5):
        simulation, _, successor = anew(plan, int(episode.decision_s[point]))
        simulation.drop_dependency(successor)
        simulation.run_until(plan.begin_s + 8 * DAY_S)
        assert simulation.job(successor).start_s == episode.successor_start_s[point]


def test_the_last_label_is_reactive() -> None:
    episode = labelled().episode
    simulation, predecessor, successor = anew(PLAN, BUSY_S + 8 * DAY_S)
    assert simulation.job(predecessor).start_s == episode.predecessor_start_s
    assert simulation.job(predecessor).end_s == episode.predecessor_end_s
    assert simulation.job(successor).start_s == episode.successor_start_s[-1]


def test_decision_points_are_those_at_which_the_predecessor_runs() -> None:
    episode = labelled().episode
    assert ((episode.decision_s - BUSY_S) % STEP_S == 0).all()
    assert (np.diff(episode.decision_s) == STEP_S).all()
    first_s, last_s = episode.decision_s[[0, -1]]
    assert first_s - STEP_S < episode.predecessor_start_s <= first_s or first_s == BUSY_S + STEP_S
    assert last_s < episode.predecessor_end_s <= last_s + STEP_S
    assert first_s > BUSY_S


def test_the_rows_are_those_of_the_walk() -> None:
    """The last row of window k is the sight of decision point k, the pair left out of the queue."""
    episode = labelled().episode
    assert episode.rows.shape == (HISTORY - 1 + len(episode), 40)
    assert episode.rows.dtype == np.float32
    pool = Pool.of(cluster(), None)
    for point in (0, 7, len(episode) - 1):
        simulation, *pair = anew(PLAN, int(episode.decision_s[point]))
        np.testing.assert_array_equal(
            episode.windows[point, -1], observe(simulation, pool, (pair[0], pair[1]))
        )


def test_the_rows_before_the_submission_know_nothing_of_the_pair() -> None:
    episode = labelled().episode
    times_s = episode.decision_s[0] + STEP_S * np.arange(1 - HISTORY, len(episode))
    before = times_s < BUSY_S
    assert 0 < before.sum() < HISTORY
    assert (episode.rows[before, PAIR] == 0).all()
    assert (episode.rows[~before, PAIR.start] == 4).all()
    simulation = (
        background()
        .start_at(BUSY_S - DAY_S, WarmUp.TRACE, background().log.between(0, BUSY_S))
        .simulation
    )
    simulation.run_until(int(times_s[10]))
    np.testing.assert_array_equal(
        episode.rows[10], observe(simulation, Pool.of(cluster(), None), None)
    )


@pytest.mark.parametrize("augmentation", [None, ResampledUsers()], ids=["as logged", "augmented"])
def test_later_arrivals_change_no_label(
    monkeypatch: pytest.MonkeyPatch, augmentation: Augmentation | None
) -> None:
    """Most episodes are done without loading what comes after the shorter patience; not even
    fair-share knows of it.
    """
    plan = replace(PLAN, augmentation=augmentation)
    short = label(fair_background(), plan)
    monkeypatch.setattr("mirage.provision.learn.sampler.PATIENCE_S", (14 * DAY_S,))
    full = label(fair_background(), plan)
    assert isinstance(short, LabelledEpisode)
    assert isinstance(full, LabelledEpisode)
    assert len(full.simulation.results().job_id) > len(short.simulation.results().job_id)
    np.testing.assert_array_equal(short.episode.successor_start_s, full.episode.successor_start_s)
    np.testing.assert_array_equal(short.episode.rows, full.episode.rows)


def test_an_early_end_is_seen_in_the_outcome_and_not_in_the_state() -> None:
    limit_s = 6 * HOUR_S
    early = replace(
        PLAN, pair=PairSpec(PairJob(4, limit_s, 2 * HOUR_S), PairJob(4, limit_s, limit_s))
    )
    short, full = labelled(early).episode, labelled().episode
    assert short.predecessor_end_s == short.predecessor_start_s + 2 * HOUR_S
    assert len(short) in (11, 12)
    np.testing.assert_array_equal(short.rows, full.rows[: HISTORY - 1 + len(short)])
    np.testing.assert_array_equal(short.remaining_s, full.remaining_s[: len(short)])


def test_tags_tell_where_it_comes_from() -> None:
    tags = labelled(replace(PLAN, augmentation=ScaledLoad(0.9))).episode.tags
    assert tags == {
        "trace": "toy.csv",
        "cluster": "toy",
        "warm_up": "trace",
        "augmentation": "load x0.9",
    }


def test_a_log_that_ends_too_early() -> None:
    log = background().log
    ended = replace(background(), log=log.between(log.first_s, PLAN.begin_s + 5 * HOUR_S))
    assert label(ended, PLAN) is DropReason.HISTORY_ENDS


def test_a_predecessor_that_is_over_before_the_first_decision() -> None:
    quick = PairJob(1, HOUR_S, 30)
    assert label(background(), replace(PLAN, pair=PairSpec(quick, quick))) is DropReason.NO_DECISION


def test_jobs_that_never_start_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.provision.learn.sampler.PATIENCE_S", (0,))
    tight = replace(PLAN, begin_s=EPOCH_S + 14 * DAY_S, pair=fixed_pair(4, 10 * 60))
    assert label(background(), tight) in (DropReason.PREDECESSOR_WAITS, DropReason.SUCCESSOR_WAITS)


def test_a_pair_wider_than_the_cluster() -> None:
    with pytest.raises(
        InputError, match=r"cluster 'toy' could never run a pair of 13 nodes .*has 12"
    ):
        label(background(), replace(PLAN, pair=fixed_pair(13, HOUR_S)))


def test_a_pair_longer_than_the_partition_allows() -> None:
    with pytest.raises(InputError, match="pair of 1 nodes for 48 h: limit of 172800 s"):
        label(background(), replace(PLAN, pair=fixed_pair(1)))


def test_a_job_submitted_in_the_very_first_second_comes_once() -> None:
    """It is in the state at the beginning, so it is no arrival."""
    times_s = background().log.column("submit_s")
    first_s = int(times_s[np.searchsorted(times_s, BUSY_S - AUGMENTED_LEAD_S)])
    plan = replace(PLAN, begin_s=first_s + AUGMENTED_LEAD_S, augmentation=ResampledUsers())
    assert plan.lead_s == AUGMENTED_LEAD_S
    assert isinstance(label(background(), plan), LabelledEpisode)
