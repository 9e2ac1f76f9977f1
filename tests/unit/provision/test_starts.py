"""When a job would start: by like jobs, in simulated futures, and that no forecast sees the future."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.domain import ClusterNode, Job, JobState, Snapshot, WaitSample
from mirage.errors import (
    AccountingUnavailable,
    ClusterNonsense,
    ClusterUnavailable,
    InputError,
    MirageError,
)
from mirage.provision.learn.background import Background
from mirage.provision.learn.forecast import read_cluster
from mirage.provision.learn.futures import Futures
from mirage.provision.learn.joblog import log_of
from mirage.provision.starts.ahead import StartsAhead, forecast_ahead, plan_s
from mirage.provision.starts.answer import StartQuestion, StartSources
from mirage.provision.starts.daily import daily_waits_s, latest_regression
from mirage.provision.starts.forecast import (
    AS_IT_IS,
    JobShape,
    QuantileCalibration,
    read_calibration,
)
from mirage.provision.starts.like_jobs import forecast_from_like_jobs, places, rank_in
from mirage.provision.starts.records import futures_of
from mirage.provision.starts.regression import FEATURES, fit_regression, read_regression
from mirage.provision.starts.replay import Replay, StartCase
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import ClusterConfig, Params, whole_nodes
from slurm_sim.seconds import DAY_S, HOUR_S
from slurm_sim.workload import generate, load_model
from tests.futures_folder import write_futures

MODELS = Path(__file__).parents[3] / "models" / "ls6-a100"
NOW, SIZE = 100 * DAY_S, 4
EQUAL = Params(priority_weight_fairshare=0)


def site(nodes: int = SIZE) -> ClusterConfig:
    return whole_nodes(nodes, EQUAL, max_time_s=2 * DAY_S)


def node(number: int, *, idle: bool = False) -> ClusterNode:
    return ClusterNode(name=f"n{number}", partitions=("batch",), up=True, idle=idle)


def queue(*jobs: Job, idle: int = 0) -> Snapshot:
    nodes = tuple(node(number, idle=number <= idle) for number in range(1, SIZE + 1))
    return Snapshot(at_s=NOW, jobs=jobs, nodes=nodes)


def job(number: int, state: JobState = JobState.PENDING, **more: object) -> Job:
    known = {"user": "ann", "nodes": 1, "submit_s": NOW - HOUR_S, "time_limit_s": 4 * HOUR_S}
    return Job(job_id=number, state=state, partition="batch", **{**known, **more})  # type: ignore[arg-type]


def running(number: int, **more: object) -> Job:
    start_s = NOW - HOUR_S
    return job(number, JobState.RUNNING, start_s=start_s, eligible_s=start_s, **more)


def waiting(number: int, **more: object) -> Job:
    return job(number, reason="Priority", **{"eligible_s": NOW - HOUR_S, **more})


def samples(waits_s: list[float], every_s: int = 600) -> list[WaitSample]:
    """The last one started just now."""
    return [
        WaitSample(
            job_id=number,
            partition="batch",
            nodes=1,
            time_limit_s=4 * HOUR_S,
            start_s=NOW - (len(waits_s) - number) * every_s,
            wait_s=round(wait_s),
        )
        for number, wait_s in enumerate(waits_s, start=1)
    ]


SHAPE = JobShape(nodes=1, time_limit_s=4 * HOUR_S, partition="batch")


# ---- like jobs


def test_steady_waits_come_back_as_their_own_quantiles():
    waits_s = np.random.default_rng(1).exponential(HOUR_S, 400).tolist()
    found = forecast_from_like_jobs(SHAPE.job(999, "bob", NOW), samples(waits_s), queue(waiting(1)))
    assert found is not None
    low_s, middle_s, high_s = found.wait_s
    assert low_s < 0.25 * HOUR_S
    assert middle_s == pytest.approx(0.69 * HOUR_S, rel=0.4)
    assert high_s == pytest.approx(2.3 * HOUR_S, rel=0.4)
    assert "the range is checked on the last 200 waits" in found.reason


def test_jobs_that_wait_already_lengthen_the_forecast():
    short = samples([600.0] * 50)
    few = forecast_from_like_jobs(SHAPE.job(999, "bob", NOW), short, queue(waiting(1)))
    stuck = [waiting(number, eligible_s=NOW - 8 * HOUR_S) for number in range(1, 41)]
    many = forecast_from_like_jobs(SHAPE.job(999, "bob", NOW), short, queue(*stuck))
    assert few is not None
    assert many is not None
    assert few.wait_s[2] <= 1200
    assert many.wait_s[2] >= 8 * HOUR_S


def test_what_a_job_has_waited_is_taken_off():
    found = forecast_from_like_jobs(
        waiting(999, eligible_s=NOW - 5400),
        samples([1800.0, 7200.0] * 50),
        queue(waiting(999, eligible_s=NOW - 5400)),
    )
    assert found is not None
    assert found.wait_s == (1800, 1800, 1800)
    assert "this job has waited for 1 h 30 min" in found.reason


def test_a_job_that_has_waited_longer_than_all_has_a_wide_range():
    found = forecast_from_like_jobs(
        waiting(999, eligible_s=NOW - DAY_S), samples([600.0] * 50), queue(waiting(999))
    )
    assert found is not None
    assert found.wait_s[0] < DAY_S < found.wait_s[2]


def test_free_nodes_that_nobody_waits_for_start_it_at_once():
    found = forecast_from_like_jobs(
        SHAPE.job(999, "bob", NOW), samples([DAY_S] * 50), queue(idle=2)
    )
    assert found is not None
    assert found.wait_s[2] <= 60
    busy = forecast_from_like_jobs(
        SHAPE.job(999, "bob", NOW), samples([DAY_S] * 50), queue(waiting(1), idle=2)
    )
    assert busy is not None
    assert busy.wait_s[1] == DAY_S


def test_calibration_asks_a_law_that_was_too_short_for_more():
    ranks = np.concatenate([np.linspace(0.5, 1, 100)])
    low, middle, high = QuantileCalibration.of(ranks).levels
    assert low == pytest.approx(0.55, abs=0.02)
    assert middle == pytest.approx(0.75, abs=0.02)
    assert high == pytest.approx(0.95, abs=0.02)
    assert QuantileCalibration.of(ranks[:5]) == AS_IT_IS


def test_a_calibration_comes_from_a_results_file_and_anything_else_is_refused(tmp_path):
    path = tmp_path / "result.json"
    path.write_text('{"calibration": {"levels": [0.02, 0.6, 0.99], "jobs": 50}}')
    found = read_calibration(path)
    assert found == QuantileCalibration((0.02, 0.6, 0.99), 50)
    forecast = forecast_ahead(np.arange(101.0), found)
    assert forecast.wait_s == pytest.approx((2, 60, 99))
    assert "checked on 50 past waits" in forecast.reason
    for text in ("{}", "[]", "x", '{"calibration": {"levels": [0.9, 0.5, 0.1], "jobs": 50}}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"result\.json: .*; give results\.json|no rising"):
            read_calibration(path)
    with pytest.raises(InputError, match=r"nowhere: No such file or directory; give results\.json"):
        read_calibration(tmp_path / "nowhere")


def test_ranks_of_equal_waits_are_spread_evenly():
    zeros, shares = np.zeros(4), np.full(4, 0.25)
    ranks = [rank_in(zeros, shares, 0.0, place) for place in places(1000)]
    assert np.quantile(ranks, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.01)
    assert rank_in(np.array([10.0, 7200.0]), np.array([0.5, 0.5]), 3600.0, 0.3) == 0.5


# ---- futures


def ended(number: int, runtime_s: int, **more: object) -> Job:
    start_s = NOW - (number + 1) * HOUR_S
    known = {"submit_s": start_s, "eligible_s": start_s, "start_s": start_s}
    return job(number, JobState.COMPLETED, end_s=start_s + runtime_s, **{**known, **more})


RECORDS = [ended(number, 2 * HOUR_S) for number in range(1000, 1080)]
"""Ann's jobs run for half of their limit. The last arrival was 1000 h ago: nights are quiet."""


def futures(records: list[Job] = RECORDS) -> Futures:
    return futures_of(records, site(), NOW)


def test_a_job_behind_others_starts_as_their_run_times_say_not_as_their_limits():
    full = queue(running(1, nodes=SIZE))
    new = SHAPE.job(99, "bob", NOW)
    (waits_s,) = StartsAhead(futures(), full, [new], count=8).waits_s().values()
    assert waits_s == pytest.approx(HOUR_S, abs=120)
    assert plan_s(full, site(), new) == pytest.approx(3 * HOUR_S, abs=120)


def test_a_shape_that_fits_a_hole_starts_at_once_and_the_others_beside_it_do_not():
    snapshot = queue(running(1, nodes=2), waiting(2, nodes=SIZE, priority=9), idle=2)
    shapes = [replace(SHAPE, time_limit_s=limit_s) for limit_s in (4 * HOUR_S, 2 * HOUR_S)]
    jobs = [shape.job(90 + n, "bob", NOW) for n, shape in enumerate(shapes)]
    whole, half = StartsAhead(futures(), snapshot, jobs, count=8).waits_s().values()
    assert half.max() <= 60
    assert whole.min() >= HOUR_S


def test_a_job_of_a_user_at_a_limit_waits_for_the_users_own_jobs():
    at_limit = job(2, reason="QOSMaxJobsPerUserLimit", eligible_s=NOW - 60, priority=5)
    snapshot = queue(running(1), at_limit, idle=3)
    (of_ann,) = (
        StartsAhead(futures(), snapshot, [SHAPE.job(99, "ann", NOW)], count=8).waits_s().values()
    )
    (of_bob,) = (
        StartsAhead(futures(), snapshot, [SHAPE.job(99, "bob", NOW)], count=8).waits_s().values()
    )
    assert of_ann.min() >= 2 * HOUR_S
    assert of_bob.max() <= 60
    left_s = StartsAhead(futures(), snapshot, count=8).left_s(2)
    assert left_s == pytest.approx(HOUR_S, abs=120)


def test_under_fair_share_a_users_record_says_whose_turn_it_is():
    """Two equal jobs at once: one of a user whose last jobs had a low priority, one of a new one."""
    fair = replace(site(), params=Params(priority_weight_fairshare=4000))
    spent = [ended(number, 60, user="bob", priority=10) for number in (5, 6)]
    snapshot = queue(
        running(1, nodes=SIZE, priority=900, time_limit_s=2 * HOUR_S),
        waiting(2, nodes=SIZE, priority=500, user="eve"),
    )
    of_bob, of_new = (
        plan_s(snapshot, fair, SHAPE.job(99, user, NOW), spent) for user in ("bob", "new")
    )
    assert of_bob > of_new == pytest.approx(HOUR_S, abs=120)


def test_too_few_records_are_refused():
    with pytest.raises(InputError, match="look-ahead needs 50"):
        futures(RECORDS[:20])


# ---- the answer


def sources(cluster: SimulatedCluster, **more: object) -> StartSources:
    def describe() -> ClusterConfig:
        raise ClusterUnavailable

    return StartSources(cluster=cluster, describe=describe, user="bob", **more)  # type: ignore[arg-type]


def busy_site() -> SimulatedCluster:
    """Four nodes, on which jobs of one hour queue for ever."""
    jobs = [
        JobSpec(2, 2 * HOUR_S, HOUR_S, user=f"u{number % 5}", submit_s=number * 1700)
        for number in range(120)
    ]
    simulation = Simulator(site(), jobs)
    simulation.run_until(110 * 1700)
    return SimulatedCluster(simulation)


def test_a_shape_is_answered_from_records_alone():
    found = sources(busy_site()).of_shape(StartQuestion(2, 2 * HOUR_S, None))
    asked, shorter, smaller = found.forecasts
    assert str(asked.shape) == "2 nodes for 2 h in batch"
    assert shorter.shape.instead_of(asked.shape) == "1 h instead of 2 h"
    assert smaller.shape.instead_of(asked.shape) == "1 node instead of 2"
    assert 0 <= asked.forecast.wait_s[0] <= asked.forecast.wait_s[1] <= asked.forecast.wait_s[2]
    assert asked.forecast.method == "like jobs"


@pytest.mark.parametrize("method", ["futures", "quantile"])
def test_a_model_folder_makes_it_look_ahead_with_learnt_or_recorded_habits(method, tmp_path):
    cluster = read_cluster(MODELS / "quantile")
    folder = MODELS / method if method == "quantile" else tmp_path / method
    if method != "quantile":
        write_futures(folder, cluster)
    begin_s = NOW - 3 * DAY_S
    jobs = [
        JobSpec(40, 8 * HOUR_S, HOUR_S, user=f"u{number % 5}", submit_s=begin_s + 3000 * number)
        for number in range(86)
    ]
    simulation = Simulator(cluster, jobs, start_s=begin_s)
    simulation.run_until(NOW)
    answering = sources(SimulatedCluster(simulation), model=str(folder), futures=2)
    answering = replace(answering, describe=lambda: cluster)
    asked, shorter, *_ = answering.of_shape(StartQuestion(40, 8 * HOUR_S, None)).forecasts
    assert asked.forecast.method == shorter.forecast.method == "look-ahead"
    assert "simulated futures" in asked.forecast.reason
    by_regression = replace(answering, regression=fit_regression(*past_jobs(120)))
    asked, *_ = by_regression.of_shape(StartQuestion(40, 8 * HOUR_S, None)).forecasts
    assert asked.forecast.method == "plan and like jobs"
    assert 0 < asked.forecast.wait_s[0] < asked.forecast.wait_s[1] < asked.forecast.wait_s[2]
    last_id = max(job.job_id for job in simulation.pending())
    of_last = answering.of_job(last_id).forecasts[0].forecast
    assert of_last.method == "look-ahead"
    assert of_last.wait_s[1] > 0


def test_without_enough_records_for_look_ahead_like_jobs_answer():
    warnings = list[str]()
    answering = sources(busy_site(), model=str(MODELS / "quantile"), warn=warnings.append)
    cluster = answering.cluster
    cluster.has_accounting = False  # type: ignore[attr-defined]
    found = answering.of_shape(StartQuestion(2, 2 * HOUR_S, None))
    assert found.forecasts[0].forecast.method == "like jobs"
    assert any("look-ahead needs 50" in text for text in warnings)


def test_without_accounting_the_running_jobs_are_what_is_known():
    cluster, warnings = busy_site(), list[str]()
    cluster.has_accounting = False
    found = sources(cluster, warn=warnings.append).of_shape(StartQuestion(2, None, "batch"))
    assert found.forecasts[0].forecast.method == "like jobs"
    assert any("only the jobs that run now" in text for text in warnings)
    with pytest.raises(AccountingUnavailable):
        cluster.accounting(0, 1)


def test_accounting_that_answers_nonsense_is_done_without(monkeypatch):
    cluster, warnings = busy_site(), list[str]()

    def accounting(*_):
        raise ClusterNonsense("sacct, line 1: expected 16 fields, got 1")

    monkeypatch.setattr(cluster, "accounting", accounting)
    found = sources(cluster, warn=warnings.append).of_shape(StartQuestion(2, None, "batch"))
    assert found.forecasts[0].forecast.method == "like jobs"
    assert any("expected 16 fields" in text for text in warnings)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            StartQuestion(2, 3600, "debug"),
            "partition 'debug' does not exist; this cluster has batch",
        ),
        (StartQuestion(9, 3600, "batch"), "9 nodes asked for; partition 'batch' has 4"),
        (
            StartQuestion(2, 3 * DAY_S, "batch"),
            "could never start: a limit of 3 d; partition 'batch' allows 2 d",
        ),
    ],
)
def test_what_could_never_start_is_refused(question, words):
    with pytest.raises(InputError, match=words):
        replace(sources(busy_site()), describe=site).of_shape(question)


def test_of_several_partitions_without_a_known_default_one_must_be_named():
    class Two(SimulatedCluster):
        def snapshot(self) -> Snapshot:
            nodes = (node(1), replace(node(2), partitions=("debug",)))
            return Snapshot(at_s=NOW, jobs=(), nodes=nodes)

    with pytest.raises(InputError, match="give a partition, -p: this cluster has batch, debug"):
        sources(Two(Simulator(site()))).of_shape(StartQuestion(1, 3600, None))


@pytest.mark.parametrize(
    ("pending", "words"),
    [
        ([], "job 7 is not in the queue"),
        ([running(7)], "job 7 is RUNNING already"),
        ([job(7, reason="PartitionTimeLimit")], "Slurm says PartitionTimeLimit. Change it"),
        ([job(7, reason="DependencyNeverSatisfied")], "can't ever start"),
        ([job(7, reason="JobHeldUser")], "scontrol release 7"),
    ],
)
def test_jobs_that_do_not_start_by_waiting_are_refused(pending, words):
    class Still(SimulatedCluster):
        def snapshot(self) -> Snapshot:
            return queue(*pending)

    with pytest.raises(InputError, match=words):
        sources(Still(Simulator(site()))).of_job(7)


def test_where_nothing_is_known_it_says_so():
    class Still(SimulatedCluster):
        def snapshot(self) -> Snapshot:
            return queue(waiting(7))

    with pytest.raises(MirageError, match="no wait is known"):
        sources(Still(Simulator(site()))).of_job(7)


# ---- the replay of a history


def history(seed: int = 1) -> Background:
    """24 days on 24 nodes."""
    model = load_model("ls6_a100")
    trace = generate(model, seed, 24 * DAY_S, nodes=24, load=1.1, begin=NOW)
    cluster = whole_nodes(24, EQUAL, max_time_s=2 * DAY_S)
    jobs = trace.jobs.assign(partition="batch", start=trace.column("submit"))
    return Background(cluster, log_of(replace(trace, jobs=jobs, _cache={}), cluster))


def test_forecasts_of_a_replay_know_nothing_of_what_comes_later():
    """One history ends as the sampled jobs do. The waits may differ then, the forecasts not."""
    background = history()
    learnt = replace(futures(), cluster=background.cluster)
    begin_s, end_s = NOW + 9 * DAY_S, NOW + 9 * DAY_S + DAY_S // 2
    log = background.log
    early = Background(background.cluster, log.between(log.first_s, end_s))
    found = [
        Replay(background=each, partition="batch", futures=learnt, count=4).cases(begin_s, end_s, 2)
        for each in (background, early)
    ]
    assert len(found[0]) == 2
    for whole, cut in zip(*found, strict=True):
        assert whole.job_id == cut.job_id
        assert whole.like_jobs_s == cut.like_jobs_s
        assert (whole.mean_s, whole.plan_s) == (cut.mean_s, cut.plan_s)
        assert whole.futures_s.tolist() == cut.futures_s.tolist()
    assert [case.features.tolist() for case in found[0]] == [
        case.features.tolist() for case in found[1]
    ]


# ---- quantile regression on the plan and like jobs


def past_jobs(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Waits are 0.6 times the plan, times chance that depends on nothing: features and waits."""
    random = np.random.default_rng(seed)
    rows = np.log(random.uniform(600, 90_000, (count, len(FEATURES))))
    rows[:, 0] = 1
    waits_s = 0.6 * np.exp(rows[:, FEATURES.index("log_plan")] + 0.5 * random.normal(size=count))
    return rows, waits_s


def test_a_regression_finds_what_the_plan_is_off_by():
    regression = fit_regression(*past_jobs(400))
    assert regression is not None
    rows, waits_s = past_jobs(400, seed=2)
    low_s, middle_s, high_s = regression.waits_s(rows).T
    covered = ((waits_s >= low_s) & (waits_s <= high_s)).mean()
    assert 0.75 <= covered <= 0.87
    ratios = middle_s / np.exp(rows[:, FEATURES.index("log_plan")])
    assert 0.5 < np.median(ratios) < 0.7
    quartiles = np.quantile(middle_s / waits_s, (0.25, 0.75))
    assert 0.5 < quartiles[0] < 1 < quartiles[1] < 2


def test_a_regression_is_read_as_it_was_written(tmp_path):
    regression = fit_regression(*past_jobs(120))
    assert regression is not None
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"regression": regression.as_json()}))
    read = read_regression(path)
    rows, _ = past_jobs(5, seed=3)
    assert read is not None
    assert read.waits_s(rows).tolist() == regression.waits_s(rows).tolist()
    path.write_text(json.dumps({"regression": regression.as_json() | {"features": ["one"]}}))
    with pytest.raises(InputError, match="no readable regression of waits"):
        read_regression(path)
    path.write_text("{}")
    assert read_regression(path) is None
    assert fit_regression(*past_jobs(20)) is None


def test_what_starts_at_once_by_the_plan_is_in_no_doubt():
    regression = fit_regression(*past_jobs(120))
    assert regression is not None
    rows, _ = past_jobs(1)
    rows[:, FEATURES.index("log_plan")] = np.log(60)
    assert regression.waits_s(rows).tolist() == [[60, 60, 60]]


# ---- the regression day by day


def cases_over(days: int, spread: float, seed: int = 1, begin_s: int = NOW) -> list[StartCase]:
    """20 jobs a day that wait 0.6 times the plan, times chance of this spread."""
    random, count = np.random.default_rng(seed), 20 * days
    rows = np.log(random.uniform(600, 90_000, (count, len(FEATURES))))
    rows[:, 0] = 1
    chance = np.exp(spread * random.normal(size=count))
    waits_s = 0.6 * np.exp(rows[:, FEATURES.index("log_plan")]) * chance
    return [
        StartCase(
            job_id=number,
            submit_s=begin_s + number * DAY_S // 20,
            nodes=1,
            limit_s=HOUR_S,
            wait_s=waits_s[number],
            like_jobs_s=(0.0, 0.0, 0.0),
            mean_s=0.0,
            plan_s=0.0,
            features=rows[number],
            true_runs_s=0.0,
        )
        for number in range(count)
    ]


def share_inside(waits_s: np.ndarray, cases: list[StartCase]) -> float:
    truth_s = np.array([case.wait_s for case in cases])
    return float(((truth_s >= waits_s[:, 0]) & (truth_s <= waits_s[:, 2])).mean())


def test_the_range_follows_waits_that_spread_more():
    calm, wild = cases_over(4, 0.2), cases_over(26, 1.5, seed=2, begin_s=NOW + 4 * DAY_S)
    late = wild[-200:]
    by_calm = latest_regression(calm)
    assert by_calm is not None
    by_calm_s = by_calm.waits_s(np.array([case.features for case in late]))
    assert share_inside(by_calm_s, late) < 0.4
    assert 0.7 < share_inside(daily_waits_s([*calm, *wild])[-200:], late) < 0.9


def test_a_days_ranges_know_no_wait_that_ends_later():
    cases = cases_over(12, 0.5)
    day_s = NOW + 10 * DAY_S
    later = [replace(case, wait_s=9e5) if case.submit_s >= day_s else case for case in cases]
    until = [case.submit_s < day_s + DAY_S for case in cases]
    found_s, changed_s = daily_waits_s(cases), daily_waits_s(later)
    assert found_s[until].tobytes() == changed_s[until].tobytes()
    assert np.isfinite(found_s[-20:]).all()
    assert np.isnan(found_s[:20]).all()
