"""Priorities and limits of time as a real slurmctld 22.05.8 had them (`sprio -l`, sacct)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import slurm_sim
from slurm_sim.config import (
    YEAR_S,
    ClusterConfig,
    Params,
    Partition,
    Qos,
    SelectType,
    make_nodes,
    whole_nodes,
)
from slurm_sim.errors import InvalidCluster
from slurm_sim.jobs import JobSpec, State
from slurm_sim.state import PendingJob
from tests.reference.simulator import ReferenceSimulator

PLAIN = Params(
    select_type=SelectType.CONS_TRES,
    priority_weight_age=0,
    priority_weight_job_size=0,
    priority_weight_cpus=1000,
    priority_weight_memory=2000,
    priority_weight_gpus=3000,
    priority_weight_nodes=500,
)
RELATIVE = Params(
    select_type=SelectType.CONS_TRES,
    priority_weight_age=0,
    priority_weight_job_size=1_000_000,
    priority_weight_partition=10,
    priority_weight_qos=7,
    priority_weight_cpus=1,
    priority_weight_memory=2,
    priority_weight_gpus=30,
    priority_weight_nodes=500,
    small_relative_to_time=True,
    no_normal_part=True,
    no_normal_qos=True,
    no_normal_tres=True,
)


def four_nodes(params: Params) -> ClusterConfig:
    """As scripts/slurm-up makes them."""
    nodes = make_nodes(4, cpus=4, memory_mib=4000, gpus=2)
    gpu = Partition("gpu", ("n1", "n2", "n3", "n4"), exclusive=True)
    debug = Partition("debug", ("n1", "n2"), priority_job_factor=3, exclusive=True)
    return ClusterConfig(nodes, (gpu, debug), params, qos=(Qos("normal", priority=5),))


def asks(
    nodes: int, minutes: int, cpus: int = 1, mib: int = 0, gpus: int = 0, **more: object
) -> JobSpec:
    asked = {"cpus_per_node": cpus, "memory_mib_per_node": mib, "gpus_per_node": gpus, **more}
    return JobSpec(nodes, 60 * minutes, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "job", "priority"),
    [
        (PLAIN, asks(1, 60, 2, 1000, 1), 750),
        (PLAIN, asks(2, 60, 1, 4000), 1375),
        (PLAIN, asks(2, 60, 1, 500, nice=77), 423),
        (PLAIN, asks(3, 60, 4, 4000, 2), 4875),
        (PLAIN, asks(1, 20, 1, 500, partition="debug"), 500),
        (RELATIVE, asks(4, 60, 1, 4000), 50715),
        (RELATIVE, asks(1, 60, 2, 1000, 1), 6743),
        (RELATIVE, asks(2, 30, 1, 4000), 33713),
        (RELATIVE, asks(3, 4, 4, 4000, 2), 213237),
        (RELATIVE, asks(1, 20, 1, 500, partition="debug"), 14066),
    ],
)
def test_as_sprio_showed_it(params: Params, job: JobSpec, priority: int) -> None:
    sim = ReferenceSimulator(
        four_nodes(params), [JobSpec(4, 3600, priority=10**6), replace(job, submit_s=5)]
    )
    sim.run_until(900)
    assert sim.job(2).priority == priority


def test_small_jobs_first_relative_to_time_and_without_a_limit() -> None:
    params = replace(
        RELATIVE, priority_favor_small=True, priority_weight_gpus=0, priority_weight_cpus=0
    )
    params = replace(params, priority_weight_memory=0, priority_weight_nodes=0)
    sim = ReferenceSimulator(four_nodes(params), [JobSpec(4, 3600), asks(2, 30), JobSpec(1)])
    sim.run_until(1)
    assert [sim.job(job_id).priority - 45 for job_id in (2, 3)] == [983_333, 999_999]


def test_nice_does_not_change_a_given_priority_or_make_one_zero() -> None:
    jobs = [
        JobSpec(4, 3600),
        asks(1, 1, nice=10**9),
        JobSpec(1, 60, priority=7, nice=5),
        JobSpec(1, 60, nice=-20),
    ]
    sim = ReferenceSimulator(
        four_nodes(replace(PLAIN, priority_weight_cpus=0, priority_weight_nodes=0)), jobs
    )
    sim.run_until(1)
    assert [sim.job(job_id).priority for job_id in (2, 3, 4)] == [1, 7, 20]


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "1", None, True, 1e10])
def test_a_weight_that_is_none(weight: object) -> None:
    with pytest.raises(
        InvalidCluster, match=r"priority_weight_gpus is .*; give a number from 0 to"
    ):
        replace(PLAIN, priority_weight_gpus=weight)  # type: ignore[arg-type]


# --- OverTimeLimit


def over(of_all_s: int, own_s: int | None, *jobs: JobSpec, **more: object) -> ReferenceSimulator:
    partition = Partition("gpu", ("n1", "n2"), over_time_limit_s=own_s)
    params = replace(Params(), over_time_limit_s=of_all_s, **more)  # type: ignore[arg-type]
    return ReferenceSimulator(ClusterConfig(make_nodes(2), (partition,), params), jobs)


@pytest.mark.parametrize(
    ("of_all_s", "own_s", "runtime_s", "state", "end_s"),
    [
        (0, None, 700, State.TIMEOUT, 630),  # started at 3, killed at the next check
        (60, None, 700, State.TIMEOUT, 690),
        (60, None, 640, State.COMPLETED, 643),
        (60, 0, 640, State.TIMEOUT, 630),
        (0, 180, 775, State.COMPLETED, 778),
        (0, 180, 1000, State.TIMEOUT, 810),
        (0, 0, 601, State.TIMEOUT, 604),  # over its limit, and no check comes before its end
        (0, YEAR_S, 10**6, State.COMPLETED, 10**6 + 3),
    ],
)
def test_how_long_after_its_limit_a_job_may_run(
    of_all_s: int, own_s: int | None, runtime_s: int, state: State, end_s: int
) -> None:
    sim = over(of_all_s, own_s, JobSpec(1, 600, runtime_s))
    sim.run()
    assert (sim.job(1).state, sim.job(1).end_s) == (state, end_s)


@pytest.mark.parametrize(
    ("over_s", "passes_by", "would_delay"),
    [(60, 40, 100), (1200, 1100, 1300), (YEAR_S, 540, 660)],
)
def test_where_cons_tres_expects_a_job_over_its_limit_to_end(
    over_s: int, passes_by: int, would_delay: int
) -> None:
    """It counts KillWait and OverTimeLimit on from the limit's end (603), or, UNLIMITED, the limit
    on from now.

    So from then on a job of two nodes is expected, and at 610 or soon after one that is over before
    may pass it.
    """
    for limit_s, starts in ((passes_by, True), (would_delay, False)):
        jobs = (JobSpec(1, 600), JobSpec(2, 600, submit_s=10), JobSpec(1, limit_s, submit_s=610))
        sim = over(
            over_s,
            None,
            *jobs,
            select_type=SelectType.CONS_TRES,
            limit_check_s=0,
            bf_resolution_s=1,
        )
        sim.run_until(645)
        assert (sim.job(3).start_s is not None) == starts


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_what_one_check_ends_goes_together(kind: Any) -> None:
    """Two jobs of a user at its limit are killed at 630; nobody passes the user's next job, which
    needs both nodes.
    """
    nodes = make_nodes(2)
    cluster = ClusterConfig(
        nodes, (Partition("gpu", ("n1", "n2")),), Params(), qos=(Qos("q", max_nodes_per_user=2),)
    )
    wide = JobSpec(2, 600, 100, user="u", submit_s=5, priority=10**6)
    jobs = [JobSpec(1, 600, 9999, user="u"), JobSpec(1, 600, 9999, user="u"), wide]
    sim = kind(cluster, [*jobs, JobSpec(1, 6000, 5000, user="v", submit_s=6, priority=5)])
    sim.run()
    assert [sim.job(job_id).end_s for job_id in (1, 2)] == [630, 630]
    assert sim.job(3).start_s == 630
    assert sim.job(4).start_s == 730


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_priorities_have_32_bits(kind: Any) -> None:
    params = replace(PLAIN, priority_weight_memory=2.0**32 - 1, no_normal_tres=True)
    sim = kind(four_nodes(params), [JobSpec(4, 3600), asks(1, 60, 1, 4000)])
    sim.run_until(1)
    assert sim.job(2).priority == 2**32 - 1


def test_with_defer_the_main_pass_of_a_check_does_not_see_what_it_frees() -> None:
    """A full pass and a check come at 60, a minute's limit was over at 33; the next pass is
    batch_sched_delay later.
    """
    for defer, start_s in ((False, 60), (True, 63)):
        params = Params(defer=defer, backfill=False, over_time_limit_s=27)
        sim = ReferenceSimulator(ClusterConfig(make_nodes(1), (Partition("gpu", ("n1",)),), params))
        sim.submit(JobSpec(1, 30, 10**6))
        sim.submit(JobSpec(1, 60, 10))
        sim.run()
        assert (sim.job(1).end_s, sim.job(2).start_s) == (60, start_s)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize(
    ("interval_s", "starts_s"), [(0, (3, 60, 70)), (2, (3, 62, 72)), (10, (3, 70, 80))]
)
def test_sched_min_interval_puts_main_passes_off(
    kind: Any, interval_s: int, starts_s: tuple[int, ...]
) -> None:
    """The check at 60 ends the first job just after a full pass; who ends by itself asks later than
    that anyway.
    """
    sim = kind(whole_nodes(1, Params(backfill=False, sched_min_interval_s=interval_s)))
    for limit_s, runtime_s in ((30, 10**6), (60, 10), (60, 10)):
        sim.submit(JobSpec(1, limit_s, runtime_s))
    sim.run()
    assert tuple(job.start_s for job in sim.finished()) == starts_s


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize(
    ("interval_s", "runs_s", "served"), [(50, 53, 2), (57, 60, 3), (70, 73, 3)]
)
def test_a_pass_that_is_put_off_serves_all_that_were_asked_for(
    kind: Any, interval_s: int, runs_s: int, served: int
) -> None:
    """After that at 3, one over two jobs was asked for at 10, and at 60 one over the whole queue."""
    sim = kind(
        whole_nodes(
            4, Params(backfill=False, sched_min_interval_s=interval_s, default_queue_depth=1)
        )
    )
    sim.submit(JobSpec(1, 6000, 3000))
    sim.run_until(10)
    for _ in range(3):
        sim.submit(JobSpec(1, 6000, 3000))
    sim.run_until(runs_s - 1)
    for each in (sim.fork(), sim):
        each.run_until(runs_s)
        assert [job.start_s for job in each.running()] == [3] + [runs_s] * served


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_a_dependencys_kind_is_read_in_any_case(kind: Any) -> None:
    """slurmctld 22.05.8 shows this one as afterok:1."""
    sim = kind(whole_nodes(2), [JobSpec(1, 600, 100), JobSpec(1, 600, 100, dependency="AfterOK:1")])
    sim.run_until(50)
    assert [(item.kind, item.job_id) for item in sim.job(2).dependencies.items] == [("afterok", 1)]
    sim.run()
    assert sim.job(2).start_s >= 100


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_without_main_passes_backfill_starts_all(kind: Any) -> None:
    sim = kind(whole_nodes(1, Params(main=False)))
    for _ in range(2):
        sim.submit(JobSpec(1, 600, 100))
    sim.run()
    assert [(job.start_s, job.scheduler) for job in sim.finished()] == [
        (30, "backfill"),
        (130, "backfill"),
    ]


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_priority_basic_counts_down(kind: Any) -> None:
    """As squeue showed it, with jobs submitted, released, held and released, requeued in this
    order.
    """
    sim = kind(whole_nodes(2, Params(priority_multifactor=False)))
    first, plain, held, later, nice = ({}, {}, {"held": True}, {}, {"nice": 100})
    for more in (first, plain, held, later, nice, {}):
        sim.submit(JobSpec(2, 600, 500, **more))
        sim.step(4)
    assert [job.priority for job in sim.pending()] == [
        4294901758,
        0,
        4294901757,
        4294901656,
        4294901755,
    ]
    sim.release(3)
    assert sim.job(3).priority == 4294901754
    sim.hold(4)
    sim.release(4)
    assert sim.job(4).priority == 4294901753
    assert sim.submit(JobSpec(2, 600, 500)) == 7
    assert sim.job(7).priority == 4294901752
    sim.requeue(1)
    assert sim.job(1).priority == 4294901759
    sim.run()
    assert [job.job_id for job in sorted(sim.finished(), key=lambda job: job.start_s)] == [
        2,
        1,
        6,
        3,
        4,
        7,
        5,
    ]


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_with_priority_basic_new_jobs_come_after_those_of_a_live_cluster(kind: Any) -> None:
    pending = [
        PendingJob(JobSpec(2, 600, 500, job_id=number, priority=5 - number), 0, 0)
        for number in (1, 2, 3)
    ]
    sim = kind.from_state(whole_nodes(2, Params(priority_multifactor=False)), 0, [], pending)
    new = sim.submit(JobSpec(2, 600, 500))
    assert sim.job(new).priority == 1
    sim.run()
    assert [job.job_id for job in sorted(sim.finished(), key=lambda job: job.start_s)] == [
        1,
        2,
        3,
        new,
    ]


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize(("multifactor", "looks"), [(True, 3), (False, 1)])
def test_priority_basic_makes_no_news_for_backfill(
    kind: Any, multifactor: bool, looks: int
) -> None:
    """Nothing happens from 30 s on but that priorities are recalculated, if there are any to
    recalculate.
    """
    params = Params(
        priority_multifactor=multifactor,
        priority_weight_age=0,
        sched_interval_s=10**6,
        bf_cycle_us=0,
    )
    sim = kind(whole_nodes(2, params), [JobSpec(2, 9000, 9000), JobSpec(2, 600, 500)])
    seen = set[int]()
    for _ in range(700):
        sim.step(1)
        seen.add(sim.timers().last_backfill_us)
    assert len(seen) == 1 + looks


def two_kinds(params: Params) -> ClusterConfig:
    """Four nodes of 32 CPUs and GPUs, which are lighter, and four of 16 without."""
    large, small = make_nodes(4, cpus=32, gpus=4, weight=1), make_nodes(4, cpus=16, weight=3)
    nodes = (*large, *(replace(node, name=f"s{number}") for number, node in enumerate(small)))
    return ClusterConfig(nodes, (Partition("all", tuple(node.name for node in nodes)),), params)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize("incr_only", [False, True])
def test_priorities_fall_with_fair_share_unless_incr_only(kind: Any, incr_only: bool) -> None:
    """Of two users the one who used less has the factor 1, the other 1/2."""
    params = Params(
        priority_weight_age=0,
        priority_weight_job_size=0,
        priority_weight_fairshare=10_000,
        incr_only=incr_only,
    )
    sim = kind(whole_nodes(2, params), [JobSpec(2, 2000, 2000, user="before")])
    sim.run_until(2100)
    sim.submit(JobSpec(2, 9000, 9000))
    waits = sim.submit(JobSpec(2, 9000, 9000))
    sim.run_until(2500)
    assert sim.job(waits).priority == 10_000
    sim.run_until(6000)
    assert sim.job(waits).priority == (10_000 if incr_only else 5000)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize(
    ("select_type", "bf_max_job_test", "cpus"),
    [
        (SelectType.LINEAR, 500, 8),
        (SelectType.LINEAR, 1, 8),
        (SelectType.CONS_TRES, 500, 8),
        (SelectType.CONS_TRES, 1, 2),
    ],
)
def test_a_size_counts_from_the_first_test_on(
    kind: Any, select_type: SelectType, bf_max_job_test: int, cpus: int
) -> None:
    """In parts of two nodes of 8 CPUs. As it is submitted, a job is tested for select/linear only."""
    params = Params(
        select_type,
        bf_max_job_test=bf_max_job_test,
        priority_weight_age=0,
        priority_weight_job_size=100_000,
    )
    nodes = make_nodes(2, cpus=8)
    sim = kind(ClusterConfig(nodes, (Partition("all", ("n1", "n2")),), params))
    sim.submit(JobSpec(2, 7200, 7200, exclusive=True))
    sim.step(10)
    sim.submit(JobSpec(2, 7200, 7200, exclusive=True, priority=10**8))
    waits = sim.submit(JobSpec(1, 7200, 7200, cpus_per_node=2, exclusive=True))
    sim.run_until(1000)
    assert sim.job(waits).priority == int(100_000 * (1 / 2 + cpus / 16) / 2)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize("select_type", list(SelectType))
def test_a_whole_nodes_size_is_that_of_the_nodes_it_was_tested_on(
    kind: Any, select_type: SelectType
) -> None:
    """In parts of eight nodes and 192 CPUs; as of the last recalculation, which comes each 300 s.

    With select/linear weights do not count when backfill plans, but the large nodes come first
    there, too.
    """
    params = Params(
        select_type, priority_weight_age=0, priority_weight_job_size=100_000, sched_interval_s=10**6
    )
    sim = kind(two_kinds(params))
    sim.submit(JobSpec(8, 400, 400, cpus_per_node=2, exclusive=True))
    sim.step(10)
    waits = sim.submit(JobSpec(1, 7200, 100, cpus_per_node=2, exclusive=True))
    held = sim.submit(JobSpec(1, 7200, 100, cpus_per_node=2, exclusive=True, held=True))
    asked, large, small = (int(100_000 * (1 / 8 + cpus / 192) / 2) for cpus in (2, 32, 16))
    assert sim.job(waits).priority == asked
    sim.run_until(299)
    assert sim.job(waits).priority == asked
    sim.run_until(310)
    assert sim.job(waits).priority == large
    sim.release(held)
    sim.run_until(399)
    assert sim.job(held).priority == asked
    for node in sim.node_names[:4]:
        sim.node_drain(node)
    sim.submit(JobSpec(4, 7200, 7200, priority=10**8))
    sim.run_until(660)
    assert (sim.job(waits).state, sim.job(held).state) == (State.PENDING, State.PENDING)
    assert sim.job(held).priority == sim.job(waits).priority == small
