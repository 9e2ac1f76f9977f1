"""When a job would start: by like jobs, by what a site's queue log taught, and the answer's words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mirage.chain.command_line import parse_request
from mirage.domain import ClusterNode, Job, JobState, Snapshot, WaitSample
from mirage.errors import (
    AccountingUnavailable,
    ClusterNonsense,
    ClusterUnavailable,
    InputError,
    MirageError,
)
from mirage.provision.starts.answer import StartQuestion, StartSources
from mirage.provision.starts.at_once import at_once
from mirage.provision.starts.forecast import JobShape, StartForecast
from mirage.provision.starts.forecaster import QueueView, forecast_job
from mirage.provision.starts.like_jobs import (
    QuantileCalibration,
    forecast_from_like_jobs,
    places,
    rank_in,
)
from mirage.provision.starts.words import reason_words
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import ClusterConfig, Params, whole_nodes
from slurm_sim.seconds import DAY_S, HOUR_S
from tests.queue_logs import learned_waits

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


def asked(*words: str) -> StartQuestion:
    return StartQuestion(parse_request(words).options)


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
    found = at_once(SHAPE.job(999, "bob", NOW), queue(idle=2))
    assert found is not None
    assert found.wait_s[2] <= 60
    assert at_once(SHAPE.job(999, "bob", NOW), queue(waiting(1), idle=2)) is None


def test_free_nodes_that_slurm_does_not_plan_for_a_new_job_do_not_start_it():
    """Such as nodes without its feature; the plan of a job in the queue may be older than they."""
    view = QueueView(snapshot=queue(idle=4), user="bob")
    new = replace(SHAPE.job(999, "bob", NOW), planned_s=NOW + 4 * HOUR_S)
    found = forecast_job(new, view)
    assert found is not None
    assert found.method == "Slurm's plan"
    assert "but by Slurm's own plan not for this job" in found.reason
    queued = waiting(1, eligible_s=NOW - 5, planned_s=NOW + 4 * HOUR_S)
    cluster: Any = SimpleNamespace(snapshot=lambda: queue(queued, idle=4))
    sources = StartSources(cluster=cluster, describe=site, user="ann")
    answer = sources.of_job(1)
    assert answer.forecasts[0].forecast.wait_s[2] <= 60
    assert "had planned its start in 4 h, before nodes came free" in answer.slurm


def test_a_new_jobs_plan_by_sbatch_is_not_the_queues_that_nights_learn_from(tmp_path):
    learned = learned_waits(tmp_path)
    learned = replace(learned, planned=replace(learned, off={"Slurm's plan": 1.5}))
    queued = waiting(1, planned_s=NOW + 4 * HOUR_S)
    view = QueueView(snapshot=queue(queued), user="bob", learned=learned)
    new = replace(SHAPE.job(999, "bob", NOW), planned_s=NOW + 4 * HOUR_S)
    methods = [found.method for each in (new, queued) if (found := forecast_job(each, view))]
    assert methods == ["trees", "Slurm's plan"]


def test_the_chance_until_a_time_lies_between_the_levels():
    found = StartForecast(wait_s=(600.0, 3600.0, 36_000.0), method="", reason="")
    assert found.chance_within(3600) == pytest.approx(0.5)
    assert found.chance_within(600) == pytest.approx(0.1)
    assert 0.5 < found.chance_within(7200) < 0.9
    assert (found.chance_within(1), found.chance_within(10**7)) == (0.01, 0.99)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxJobsPerUserLimit", "a limit is reached: running jobs of each user"),
        ("AssocGrpCpuLimit", "a limit is reached: CPUs of the account"),
        ("QOSGrpGRES", "a limit is reached: GPUs of the QOS"),
        ("Priority", "jobs of higher priority come first"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n1",
            "nodes that it needs are down, drained or reserved",
        ),
        ("JobArrayTaskLimit", "its array may not have more tasks running at once"),
        ("Licenses", "it waits for something beside nodes, such as licences"),
    ],
)
def test_slurms_reason_is_said_in_words(reason, words):
    assert reason_words(reason) == words


def test_calibration_asks_a_law_that_was_too_short_for_more():
    ranks = np.concatenate([np.linspace(0.5, 1, 100)])
    low, middle, high = QuantileCalibration.of(ranks).levels
    assert low == pytest.approx(0.535, abs=0.01)
    assert middle == pytest.approx(0.75, abs=0.01)
    assert high == pytest.approx(0.965, abs=0.01)
    assert QuantileCalibration.of(ranks[:5]) == QuantileCalibration()


def test_ranks_of_equal_waits_are_spread_evenly():
    zeros, shares = np.zeros(4), np.full(4, 0.25)
    ranks = [rank_in(zeros, shares, 0.0, place) for place in places(1000)]
    assert np.quantile(ranks, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.01)
    assert rank_in(np.array([10.0, 7200.0]), np.array([0.5, 0.5]), 3600.0, 0.3) == 0.5


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
    found = sources(busy_site()).of_shape(asked("-N2", "-t2:00:00"))
    first, shorter, smaller = found.forecasts
    assert str(first.shape) == "2 nodes for 2 h in batch"
    assert shorter.shape.instead_of(first.shape) == "1 h instead of 2 h"
    assert smaller.shape.instead_of(first.shape) == "1 node instead of 2"
    assert 0 <= first.forecast.wait_s[0] <= first.forecast.wait_s[1] <= first.forecast.wait_s[2]
    assert first.forecast.method == "like jobs"


def test_without_accounting_the_running_jobs_are_what_is_known():
    cluster, warnings = busy_site(), list[str]()
    cluster.has_accounting = False
    found = sources(cluster, warn=warnings.append).of_shape(asked("-N2", "-pbatch"))
    assert found.forecasts[0].forecast.method == "like jobs"
    assert any("only the jobs that run now" in text for text in warnings)
    with pytest.raises(AccountingUnavailable):
        cluster.accounting(0, 1)


def test_accounting_that_answers_nonsense_is_done_without(monkeypatch):
    cluster, warnings = busy_site(), list[str]()

    def accounting(*_):
        raise ClusterNonsense("sacct, line 1: expected 16 fields, got 1")

    monkeypatch.setattr(cluster, "accounting", accounting)
    found = sources(cluster, warn=warnings.append).of_shape(asked("-N2", "-pbatch"))
    assert found.forecasts[0].forecast.method == "like jobs"
    assert any("expected 16 fields" in text for text in warnings)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            asked("-N2", "-t60", "-pdebug"),
            "partition 'debug' does not exist; this cluster has batch",
        ),
        (asked("-N9", "-t60", "-pbatch"), "9 nodes asked for; partition 'batch' has 4"),
        (
            asked("-N2", "-t3-0", "-pbatch"),
            "could never start: a limit of 3 d; partition 'batch' allows 2 d",
        ),
    ],
)
def test_what_could_never_start_is_refused(question, words):
    with pytest.raises(InputError, match=words):
        replace(sources(busy_site()), describe=site).of_shape(question)


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
