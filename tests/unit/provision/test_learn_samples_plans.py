"""What is drawn: pairs, begins, other arrivals. The same seed gives the same, whoever asks and in
which order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.errors import InputError
from mirage.provision.learn.augment import APART, LoadTarget, ResampledUsers, ScaledLoad, Synthetic
from mirage.provision.learn.drawing import Drawing, Mix, fixed_pair
from mirage.provision.learn.episode import AUGMENTED_LEAD_S
from mirage.provision.learn.joblog import LOGGED, JobLog, read_log
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Partition, make_nodes
from slurm_sim.traces import Trace, make_trace
from slurm_sim.workload import WorkloadModel, load_model
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, background, cluster, frame, trace

BEGIN_S, END_S = EPOCH_S + 8 * DAY_S, EPOCH_S + 30 * DAY_S
PAPER = (fixed_pair(1, 6 * HOUR_S), fixed_pair(8, 6 * HOUR_S))


def drawing(**more: object) -> Drawing:
    mix = Mix.of(background().log, cluster())
    given_ = {"count": 50, "seed": 1, "begin_s": BEGIN_S, "end_s": END_S, "pairs": mix} | more
    return Drawing(**given_)  # type: ignore[arg-type]


# --- pairs


def test_pairs_are_of_the_sites_own_sizes_and_limits() -> None:
    mix = Mix.of(background().log, cluster())
    assert {nodes for nodes, _ in mix.nodes} == {1, 2}  # a quarter of 12 nodes, at most
    assert {limit_s // HOUR_S for limit_s, _ in mix.limits_s} == {3, 8, 24}
    assert dict(mix.limits_s)[24 * HOUR_S] == pytest.approx(0.5 + 0.5 / 3)
    for shares in (mix.nodes, mix.limits_s):
        assert sum(share for _, share in shares) == pytest.approx(1)


def test_a_limit_above_the_partitions_is_never_drawn() -> None:
    nodes = make_nodes(12)
    short = ClusterConfig(
        nodes, (Partition("gpu", tuple(node.name for node in nodes), max_time_s=8 * HOUR_S),)
    )
    mix = Mix.of(background().log, short)
    assert {limit_s // HOUR_S for limit_s, _ in mix.limits_s} == {3, 8}


def test_the_longest_pair_is_no_longer_than_five_days() -> None:
    nodes = make_nodes(12)
    endless = ClusterConfig(
        nodes, (Partition("gpu", tuple(node.name for node in nodes), max_time_s=14 * DAY_S),)
    )
    limits_s = frame()["timelimit_s"].to_numpy().copy()
    limits_s[::2], limits_s[1::4] = 14 * DAY_S, 3 * DAY_S
    mix = Mix.of(read_log(trace(timelimit_s=limits_s), endless), endless)
    assert max(mix.limits_s) == (3 * DAY_S, pytest.approx(0.5 + 0.5 / len(mix.limits_s)))


def test_no_limits_for_chains() -> None:
    nodes = make_nodes(12)
    endless = ClusterConfig(nodes, (Partition("gpu", tuple(node.name for node in nodes)),))
    with pytest.raises(InputError, match="no chains to learn"):
        Mix.of(read_log(trace(timelimit_s=3600), endless), endless)


def test_an_unknown_partition() -> None:
    with pytest.raises(InputError, match="has no partition 'cpu'; it has gpu"):
        Mix.of(background().log, cluster(), "cpu")


@given(st.integers(0, 2**63), st.integers(0, 10**6))
def test_every_plan_is_one_that_can_be(seed: int, number: int) -> None:
    drawn = drawing(seed=seed, count=10**6 + 1, augmentations=(ScaledLoad(0.9), ResampledUsers()))
    plan = drawn.plan(number)
    assert plan == drawn.plan(number)
    first, second = plan.pair
    assert BEGIN_S <= plan.begin_s <= plan.begin_s + first.time_limit_s <= END_S
    assert first.time_limit_s / 4 - 1 <= first.runtime_s <= first.time_limit_s <= DAY_S
    assert second.runtime_s == second.time_limit_s
    assert plan.lead_s == (DAY_S if plan.augmentation is None else AUGMENTED_LEAD_S)


def test_a_mix_has_all_kinds() -> None:
    plans = [drawing(count=400).plan(number) for number in range(400)]
    pairs = [plan.pair for plan in plans]
    assert (
        0.1
        < np.mean([pair.predecessor.runtime_s < pair.predecessor.time_limit_s for pair in pairs])
        < 0.3
    )
    assert 0.05 < np.mean([pair.predecessor[:2] != pair.successor[:2] for pair in pairs]) < 0.25
    assert len({plan.begin_s % 600 for plan in plans}) > 150
    assert len({pair.predecessor.time_limit_s for pair in pairs}) == 3


def test_the_papers_grid_of_fixed_pairs() -> None:
    drawn = drawing(count=6, pairs=PAPER, every_s=4 * HOUR_S)
    plans = [drawn.plan(number) for number in range(6)]
    assert [plan.pair.predecessor.nodes for plan in plans] == [1, 8] * 3
    assert [(plan.begin_s - BEGIN_S) // HOUR_S for plan in plans] == [0, 0, 4, 4, 8, 8]


def test_a_range_without_room() -> None:
    with pytest.raises(InputError, match="no room for a job of 24 h"):
        drawing(end_s=BEGIN_S + 20 * HOUR_S)
    with pytest.raises(InputError, match="fewer or shorter pairs"):
        drawing(count=2000, pairs=PAPER, every_s=4 * HOUR_S)


def test_neither_episodes_nor_a_seed() -> None:
    with pytest.raises(InputError, match="0 episodes, seed 1: give"):
        drawing(count=0)
    with pytest.raises(InputError, match="seed from 0 on"):
        drawing(seed=-1)


# --- other arrivals

FROM_S, UNTIL_S = EPOCH_S + 3 * DAY_S, EPOCH_S + 24 * DAY_S


def arrivals() -> JobLog:
    return background().log.between(FROM_S + 1, UNTIL_S)


def work(log: JobLog) -> int:
    return int((log.column("nodes") * log.column("runtime_s")).sum())


def same(one: JobLog, other: JobLog) -> bool:
    names = set(one.columns) - LOGGED
    return names == set(other.columns) - LOGGED and all(
        np.array_equal(one.columns[name], other.columns[name]) for name in names
    )


def test_a_factor_of_one_changes_nothing() -> None:
    assert same(ScaledLoad(1.0).change(arrivals(), FROM_S, UNTIL_S, (1, 2)), arrivals())


@pytest.mark.parametrize(
    "change", [ScaledLoad(0.7), ScaledLoad(1.6), ScaledLoad(2.0), ResampledUsers()]
)
def test_other_arrivals_can_be_simulated(change: ScaledLoad | ResampledUsers) -> None:
    log = change.change(arrivals(), FROM_S, UNTIL_S, (1, 2))
    times_s = log.column("submit_s")
    assert (np.diff(times_s) >= 0).all()
    assert FROM_S < times_s[0] <= times_s[-1] <= UNTIL_S
    assert len(np.unique(log.column("job_id"))) == len(log)
    assert not set(log.columns) & LOGGED
    assert same(log, change.change(arrivals(), FROM_S, UNTIL_S, (1, 2)))
    assert not same(
        log, change.change(arrivals(), FROM_S, UNTIL_S, (1, 3))
    ) or change == ScaledLoad(2.0)
    simulation = Simulator(cluster(), log.submissions(), FROM_S)
    simulation.run_until(UNTIL_S)


@pytest.mark.parametrize("change", [ScaledLoad(1.6), ResampledUsers()])
def test_no_job_moves_by_more_than_a_day(change: ScaledLoad | ResampledUsers) -> None:
    """Else an episode would know of jobs outside of the time that it is said to tell something of."""
    was_s = dict(
        zip(
            arrivals().columns["job_id"].tolist(),
            arrivals().column("submit_s").tolist(),
            strict=True,
        )
    )
    log = change.change(arrivals(), FROM_S, UNTIL_S, (1, 2))
    moved_s = log.column("submit_s") - [
        was_s[job_id % APART] for job_id in log.columns["job_id"].tolist()
    ]
    assert DAY_S / 2 < np.abs(moved_s).max() <= DAY_S


@pytest.mark.parametrize("factor", [0.5, 1.25, 2.0])
def test_load_is_scaled_on_average(factor: float) -> None:
    done = [
        work(ScaledLoad(factor).change(arrivals(), FROM_S, UNTIL_S, (seed,))) for seed in range(40)
    ]
    assert np.mean(done) == pytest.approx(factor * work(arrivals()), rel=0.06)


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_a_week_is_filled_to_a_load(load: float) -> None:
    nodes = work(arrivals()) // (UNTIL_S - FROM_S) + 1
    done = [
        work(LoadTarget(load, nodes).change(arrivals(), FROM_S, UNTIL_S, (seed,)))
        for seed in range(40)
    ]
    assert np.mean(done) == pytest.approx(load * nodes * (UNTIL_S - FROM_S), rel=0.06)


def test_no_arrivals_stay_none() -> None:
    assert len(LoadTarget(0.9, 10).change(arrivals().between(0, 1), FROM_S, UNTIL_S, (1,))) == 0


def test_a_bootstrap_keeps_each_weeks_number_of_users() -> None:
    original, log = arrivals(), ResampledUsers().change(arrivals(), FROM_S, UNTIL_S, (5,))
    row_of = {job_id: row for row, job_id in enumerate(original.columns["job_id"].tolist())}
    copy, job_id = np.divmod(log.columns["job_id"], APART)
    rows = [row_of[number] for number in job_id.tolist()]
    week = ((original.column("submit_s") - FROM_S) // (7 * DAY_S)).tolist()
    user = original.columns["user"].tolist()
    drawn = {
        (week[row], user[row], number) for row, number in zip(rows, copy.tolist(), strict=True)
    }
    assert Counter(which for which, _, _ in drawn) == Counter(
        which for which, _ in set(zip(week, user, strict=True))
    )
    renamed = [
        user[row] + (f"~{number}" if number else "")
        for row, number in zip(rows, copy.tolist(), strict=True)
    ]
    assert log.columns["user"].tolist() == renamed
    assert copy.max() > 0


def test_copies_depend_on_copies() -> None:
    columns = {
        "job_id": ["1", "2"],
        "submit": [10, 20],
        "dependency": ["", "afterany:1"],
        "start": 30,
        "end": 40,
    }
    log = read_log(make_trace(frame().head(2).assign(**columns), "two.csv"), cluster())
    twice = ScaledLoad(2.0).change(log, 0, DAY_S, (0,))
    found = dict(
        zip(twice.columns["job_id"].tolist(), twice.columns["dependency"].tolist(), strict=True)
    )
    assert found == {1: "", 2: "afterany:1", 1 + APART: "", 2 + APART: f"afterany:{1 + APART}"}


def test_cancellations_move_with_their_job() -> None:
    late = frame().assign(
        state="CANCELLED", start=frame()["submit"] + 50, end=frame()["submit"] + 50
    )
    log = read_log(make_trace(late, "toy.csv"), cluster()).between(FROM_S + 1, UNTIL_S)
    moved = ResampledUsers().change(log, FROM_S, UNTIL_S, (1,))
    assert (moved.column("cancel_s") - moved.column("submit_s") == 50).all()


def test_a_log_without_users_is_drawn_job_by_job() -> None:
    nobody = read_log(trace(user=""), cluster()).between(FROM_S + 1, UNTIL_S)
    log = ResampledUsers().change(nobody, FROM_S, UNTIL_S, (1,))
    assert len(log) == len(nobody)
    assert (
        0.5 < len(np.unique(log.columns["job_id"] % APART)) / len(nobody) < 0.75
    )  # 1 - 1/e of them are drawn


@pytest.mark.parametrize("factor", [0, -1, 11, float("nan")])
def test_a_factor_that_is_none(factor: float) -> None:
    with pytest.raises(InputError, match="give a factor above 0"):
        ScaledLoad(factor)


def test_synthetic_weeks_are_fitted_to_their_range_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Trace] = []

    def fit(trace: Trace, *args: object, **more: object) -> WorkloadModel:
        fitted.append(trace)
        return load_model("kth_sp2")

    monkeypatch.setattr("slurm_sim.workload.fit", fit)
    nodes = make_nodes(100)
    wide = ClusterConfig(
        nodes, (Partition("gpu", tuple(node.name for node in nodes), max_time_s=2 * HOUR_S),)
    )
    log = Synthetic.fitted(trace(), wide, BEGIN_S, END_S, seed=4).change(
        arrivals(), FROM_S, UNTIL_S, (1,)
    )
    submit_s = fitted[0].column("submit")
    assert BEGIN_S <= submit_s.min() <= submit_s.max() < END_S
    assert len(log) > 300
    assert FROM_S < log.first_s <= log.last_s <= UNTIL_S
    assert log.column("job_id").min() > APART
    again = Synthetic.fitted(trace(), wide, BEGIN_S, END_S, seed=4).change(
        arrivals(), FROM_S, UNTIL_S, (9,)
    )
    assert same(log, again)


def test_too_few_jobs_for_synthetic_weeks() -> None:
    with pytest.raises(InputError, match=r"no synthetic weeks: .*at least 200 jobs"):
        Synthetic.fitted(trace(), cluster(), EPOCH_S, EPOCH_S + DAY_S, seed=1)


def test_the_record_tells_drawings_apart() -> None:
    records = [drawing().record(), drawing(seed=2).record(), drawing(pairs=PAPER).record()]
    records.append(drawing(augmentations=(ScaledLoad(1.1),)).record())
    assert all(one != other for place, one in enumerate(records) for other in records[:place])
    assert drawing().record() == replace(drawing()).record()
