"""The reference simulator, rule by rule. Times are seconds from the simulator's start unless said
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import slurm_sim
from slurm_sim.admission import NodeRequest
from slurm_sim.config import (
    Association,
    NodeAction,
    NodeChange,
    NodeSpec,
    Params,
    Partition,
    Qos,
    Reservation,
    SelectType,
    make_nodes,
    whole_nodes,
)
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, State
from slurm_sim.picking import Picker, pick_nodes
from slurm_sim.resources import FreeResources
from tests.reference.passes import most_tested
from tests.reference.queue import QueueEntry
from tests.reference.simulator import ReferenceSimulator
from tests.sims import simulator

HOUR = 3600
FIFO = Params(priority_weight_age=0, priority_weight_job_size=0)
EXACT = replace(FIFO, limit_check_s=0)


def make(nodes: int = 4, params: Params = FIFO, *specs: JobSpec) -> ReferenceSimulator:
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    return simulator(names, [Partition("gpu", names)], params, specs)


def limited(qos: tuple[Qos, ...], *specs: JobSpec) -> ReferenceSimulator:
    """Four nodes, and these QOS."""
    names = ("n1", "n2", "n3", "n4")
    return simulator(names, [Partition("gpu", names)], FIFO, specs, qos=qos)


def job(
    nodes: int = 1, limit_s: int = HOUR, runtime_s: int | None = None, **more: object
) -> JobSpec:
    return JobSpec(nodes, limit_s, limit_s if runtime_s is None else runtime_s, **more)  # type: ignore[arg-type]


def starts(sim: ReferenceSimulator) -> dict[int, int | None]:
    return {
        record.job_id: record.start_s
        for record in (*sim.finished(), *sim.running(), *sim.pending())
    }


# --- nodes


@pytest.mark.parametrize(
    ("free", "count", "picked"),
    [
        (0b1111, 2, 0b0011),
        (0b0111_0110, 2, 0b0000_0110),  # the shortest run that is long enough
        (0b0110_0111, 2, 0b0110_0000),
        (0b0111_0111, 3, 0b0000_0111),  # of equals the first
        (
            0b1101_1011,
            4,
            0b0001_1011,
        ),  # none is enough: the longest first, then the rest by the same rule
        (
            0b1011_0111,
            4,
            0b1000_0111,
        ),  # after the longest one node is missing: the shortest run has it
    ],
)
def test_select_linear(free: int, count: int, picked: int) -> None:
    assert pick_nodes(free, count) == picked


def test_select_linear_takes_nodes_of_one_weight_kind_by_kind() -> None:
    """Kinds by features, CPUs and so on are slurmctld's config records; run lengths count within
    those tried so far.
    """
    nodes = tuple(
        NodeSpec(f"n{number}", weight=2, features=("big",) if number < 5 else ("new",))
        for number in range(8)
    )
    nodes = (*nodes, NodeSpec("light"))
    pick, pool = Picker(SelectType.LINEAR, nodes), FreeResources(nodes)
    request = NodeRequest(1, 0, 0, False)

    def two(free: int, *, starts: bool = True) -> int:
        return pick(free, 2, pool, request, starts=starts)

    assert two(0b0_1100_1110) == 0b0_0000_0110  # not the shorter run, which is of the second kind
    assert two(0b0_1100_1110, starts=False) == 0b0_1100_0000
    assert two(0b0_1100_1000) == 0b0_1100_0000  # one of the first kind is not enough; then of all
    assert two(0b1_1100_0000) == 0b0_1100_0000  # nor is the lightest
    assert (
        Picker(SelectType.CONS_TRES, nodes)(0b0_1100_1110, 2, pool, request, starts=True)
        == 0b0_1100_0000
    )


def test_tests_of_jobs_with_gpus_draw_those_without_along() -> None:
    """What slurmctld 22.05 does (sched_weight): tried on one, `shared_gpus` of
    tests/conformance/sim_replays.py.
    """
    nodes = make_nodes(4, cpus=8, gpus=4)
    pick, pool = Picker(SelectType.CONS_TRES, nodes), FreeResources(nodes)
    without, two, three = (
        NodeRequest(1, 0, 0, False),
        NodeRequest(1, 0, 2, False),
        NodeRequest(1, 0, 3, False),
    )

    def one(request: NodeRequest, free: int = 0b1111, *, starts: bool = False) -> int:
        return pick(free, 1, pool, request, starts=starts)

    assert one(without) == 0b0001
    pick.tested(0b0110, two)
    assert one(without) == 0b0010
    pick.tested(0b1000, three)
    assert one(without) == 0b1000
    assert one(without, 0b0111) == 0b0010
    assert pick(0b1111, 2, pool, without, starts=False) == 0b1010
    assert one(two) == 0b0001
    assert one(without, starts=True) == 0b0001
    pick.tested(0b1111, without)
    assert one(without) == 0b1000
    pick.attempt(0b1100, 0)
    assert one(without) == 0b0010


def test_nodes_that_a_limit_counts_already_come_first() -> None:
    """Of each kind that has such nodes the others weigh 1 more (`_build_node_list`), until the next
    attempt.
    """
    nodes = (
        *(NodeSpec(f"a{number}", cpus=4) for number in (1, 2)),
        *(NodeSpec(f"b{number}", cpus=4, features=("big",)) for number in (1, 2)),
        *(NodeSpec(f"c{number}", cpus=4, weight=2, features=("new",)) for number in (1, 2)),
    )
    pool, request = FreeResources(nodes), NodeRequest(1, 0, 0, False)
    pick = Picker(SelectType.CONS_TRES, nodes)
    assert pick(0b111111, 2, pool, request, starts=True) == 0b000011
    pick.attempt(0b111111, 0b000010)
    assert pick(0b111111, 1, pool, request, starts=True) == 0b000010
    assert pick(0b111111, 3, pool, request, starts=True) == 0b001110  # a1 is as heavy as c1
    assert pick(0b110001, 2, pool, request, starts=True) == 0b110000
    pick.attempt(0b111111, 0b000011)  # none is left that could weigh more
    assert pick(0b111101, 2, pool, request, starts=True) == 0b001100
    linear, whole = Picker(SelectType.LINEAR, nodes), NodeRequest(0, 0, 0, True)
    assert linear(0b111101, 2, pool, whole, starts=True) == 0b001100
    linear.attempt(0b111111, 0b000010)
    assert linear(0b111101, 1, pool, whole, starts=True) == 0b000100


def test_a_run_of_nodes_that_is_too_short_may_replace_one_that_is_long_enough() -> None:
    """Free CPUs of suitable nodes, and what slurmctld 22.05 chose: job 129 of `sim_replays --kind
    shared --seed 4`.
    """
    free_cpus = [2, 16, 0, 3, 1, 0, 10, 0, 16, 13, 7, 0, 3, 3, 7, 7, 0, 8, 16, 16]
    nodes = tuple(
        NodeSpec(f"n{number}", cpus=max(1, cpus)) for number, cpus in enumerate(free_cpus)
    )
    free = sum(1 << number for number, cpus in enumerate(free_cpus) if cpus)
    pick, pool = Picker(SelectType.CONS_TRES, nodes), FreeResources(nodes)
    assert pick(free, 2, pool, NodeRequest(1, 0, 0, False), starts=True) == 0b11 << 12


def test_an_exclusive_job_with_gpus_goes_where_most_are() -> None:
    nodes = (*make_nodes(2, cpus=8, gpus=2), *make_nodes(2, prefix="big", cpus=8, gpus=8))
    pick, pool = Picker(SelectType.CONS_TRES, nodes), FreeResources(nodes)
    for starts in (False, True):
        assert pick(0b1111, 1, pool, NodeRequest(1, 0, 1, True), starts=starts) == 0b0100
        assert pick(0b1111, 1, pool, NodeRequest(1, 0, 1, False), starts=starts) == 0b0001


def test_nodes_have_names() -> None:
    sim = make(4, FIFO, job(3), job(1))
    sim.run_until(10)
    assert [record.node_names for record in sim.running()] == [("n1", "n2", "n3"), ("n4",)]
    assert [sim.is_idle(name) for name in sim.node_names] == [False] * 4


# --- when


def test_a_submission_waits_for_the_next_main_pass() -> None:
    sim = make(4, FIFO, job(submit_s=100), job(submit_s=101))
    sim.run_until(200)
    # Backfill looks each second once bf_interval is over, so it takes the first; the second is 3 s
    # after a main pass.
    assert [(record.start_s, record.scheduler) for record in sim.running()] == [
        (100, "backfill"),
        (103, "main"),
    ]


def test_a_job_that_ends_makes_room_within_batch_sched_delay() -> None:
    sim = make(1, EXACT, job(runtime_s=1001), job())
    sim.run_until(2000)
    first, second = sim.job(1), sim.job(2)
    assert first.end_s == (first.start_s or 0) + 1001
    assert second.start_s is not None
    assert 0 <= second.start_s - first.end_s <= 3


@pytest.mark.parametrize(
    ("limit_s", "check_s", "end_s"), [(600, 30, 630), (600, 0, 603), (617, 30, 630), (628, 30, 660)]
)
def test_a_job_is_killed_at_the_first_check_after_its_limit(
    limit_s: int, check_s: int, end_s: int
) -> None:
    sim = make(1, replace(FIFO, limit_check_s=check_s), job(limit_s=limit_s, runtime_s=10**6))
    sim.run()
    assert sim.job(1).start_s == 3
    assert (sim.job(1).state, sim.job(1).end_s) == (State.TIMEOUT, end_s)


def test_who_ends_by_itself_after_the_limit_is_a_time_out_too() -> None:
    sim = make(
        3,
        FIFO,
        job(limit_s=600, runtime_s=600),
        job(limit_s=600, runtime_s=601),
        job(runtime_s=9, exit_code=1),
    )
    sim.run()
    states = {
        record.job_id: (record.state, record.end_s, record.exit_code) for record in sim.finished()
    }
    assert states == {
        1: (State.COMPLETED, 603, 0),
        2: (State.TIMEOUT, 604, 0),
        3: (State.FAILED, 12, 1),
    }


def test_the_check_ends_a_job_that_has_run_for_its_limit_in_that_second() -> None:
    """The loop that checks limits comes late in a second, so what else happens in it does not see
    the end yet.
    """
    for runtime_s, seen in ((626, []), (627, [2])):
        sim = make(1, FIFO, job(limit_s=627, runtime_s=runtime_s), job(submit_s=3 + runtime_s))
        waiting = list[list[int]]()
        sim.on_end.append(
            lambda _, sim=sim, waiting=waiting: waiting.append(
                [each.job_id for each in sim.pending()]
            )
        )
        sim.run_until(700)
        assert (sim.job(1).state, sim.job(1).end_s) == (State.COMPLETED, 3 + runtime_s)
        assert waiting == [seen]


def test_a_job_without_a_limit_runs_until_somebody_ends_it() -> None:
    sim = make(1, FIFO, JobSpec(1))
    assert sim.run() == []
    assert [record.job_id for record in sim.running()] == [1]
    sim.set_runtime_end(1, 5000)
    sim.run()
    assert (sim.job(1).state, sim.job(1).end_s) == (State.COMPLETED, 5000)


def test_a_job_ends_earlier_when_told() -> None:
    sim = make(1, FIFO, job(limit_s=HOUR))
    sim.run_until(100)
    sim.set_runtime_end(1, 200)
    sim.run()
    assert (sim.job(1).state, sim.job(1).end_s) == (State.COMPLETED, 200)
    with pytest.raises(SimulationError, match="COMPLETED"):
        sim.set_runtime_end(1, 10**6)


def test_a_later_end_replaces_the_earlier_one() -> None:
    sim = make(1, FIFO, job(runtime_s=200))
    sim.run_until(100)
    sim.set_runtime_end(1, 500)
    sim.run()
    assert sim.job(1).end_s == 500


def test_the_limit_of_an_earlier_run_is_forgotten() -> None:
    sim = make(1, FIFO, job(limit_s=600, runtime_s=10**6))
    sim.run_until(100)
    sim.requeue(1)
    sim.run()
    assert ((sim.job(1).end_s or 0) - (sim.job(1).start_s or 0)) >= 600


def test_a_kill_asks_for_a_main_pass_at_once() -> None:
    # The submission at 629 has just had its main pass.
    sim = make(1, FIFO, job(limit_s=600, runtime_s=10**6), job(), job(submit_s=629))
    sim.run_until(700)
    assert (sim.job(2).start_s, sim.job(2).scheduler) == (630, "main")


def test_backfill_notices_a_kill_a_second_later() -> None:
    # So its next pass is 31 s after the kill. The head needs both nodes; the other waits for
    # backfill.
    sim = make(
        2,
        FIFO,
        job(),
        job(limit_s=600, runtime_s=10**6),
        job(2, submit_s=640),
        job(1, 60, submit_s=640),
    )
    sim.run_until(700)
    assert (sim.job(2).end_s, sim.job(4).start_s, sim.job(4).scheduler) == (630, 661, "backfill")


def test_backfill_does_not_start_at_once_again() -> None:
    cycles = {
        cycle_us: make(
            2, replace(FIFO, bf_cycle_us=cycle_us), job(), job(2), job(1, 60, submit_s=35)
        )
        for cycle_us in (0, 900_000)
    }
    for sim in cycles.values():
        sim.run_until(100)
    assert [sim.job(3).start_s for sim in cycles.values()] == [60, 61]


@pytest.mark.parametrize(
    ("limits", "tested"),
    [
        ({}, 7),
        ({"bf_max_job_test": 5}, 5),
        ({"bf_max_job_user": 2}, 4),
        ({"bf_max_job_user": 2, "bf_max_job_assoc": 4}, 6),
        ({"bf_max_job_user": 3, "bf_max_job_part": 4}, 4),
        ({"bf_max_job_user_part": 1, "bf_max_job_test": 1}, 1),
    ],
)
def test_limits_on_counts_make_backfill_passes_short(limits: dict[str, Any], tested: int) -> None:
    params = replace(FIFO, **limits)
    sim = make(1, params, *(job(user=user) for user in "aaaaaabb"))
    sim.run_until(60)
    turns = [QueueEntry(waiting, waiting.partition, waiting.priority) for waiting in sim.pending()]
    assert most_tested(turns, params) == tested
    # 9.4 us and more for one that is tested beside a running job, 1 us for one that is only passed
    # over.
    assert params.cycle_us(7, tested, 1) == tested * (9400 + 5 * tested) // 1000 + 7 - tested


# --- order


def test_the_main_scheduler_is_strict() -> None:
    # The second does not fit, so the third must wait for backfill, although a node is free.
    sim = make(2, FIFO, job(1), job(2), job(1, 60))
    sim.run_until(29)
    assert [record.reason for record in sim.pending()] == ["Resources", "Priority"]
    sim.run_until(31)
    assert sim.job(3).scheduler == "backfill"


def test_backfill_respects_the_reservation() -> None:
    # Job 1 ends at about 3600, so job 2 is reserved for then: the hour of job 3 is too long, ten
    # minutes are not.
    sim = make(2, FIFO, job(1), job(2), job(1, HOUR), job(1, 600))
    sim.run_until(1000)
    assert (sim.job(3).state, sim.job(4).state) == (State.PENDING, State.COMPLETED)


def test_beyond_the_window_there_is_no_reservation() -> None:
    blocked = (job(1, 3 * HOUR), job(2, HOUR), job(1, 4 * HOUR))
    assert starts(_after(make(2, replace(FIFO, bf_window_s=4 * HOUR), *blocked)))[3] is None
    assert starts(_after(make(2, replace(FIFO, bf_window_s=2 * HOUR), *blocked)))[3] == 30


def _after(sim: ReferenceSimulator) -> ReferenceSimulator:
    sim.run_until(100)
    return sim


def test_a_reservation_that_begins_at_a_jobs_end_is_in_its_way() -> None:
    # Job 1 ends at 3603; its successor's reservation begins at 3600, the full minute.
    limits = {limit_s: job(1, limit_s) for limit_s in (3540, 3570, 3600)}
    for limit_s, candidate in limits.items():
        sim = make(2, FIFO, job(1), job(2), candidate)
        sim.run_until(40)
        assert (sim.job(3).start_s == 30) == (30 + limit_s < 3600)


def test_bf_max_job_test() -> None:
    queue = (job(1), job(2), job(1, 7200), job(1, 60))
    assert (
        starts(_after(make(2, replace(FIFO, bf_max_job_test=2, bf_node_space_size=9), *queue)))[4]
        is None
    )
    assert (
        starts(_after(make(2, replace(FIFO, bf_max_job_test=3, bf_node_space_size=9), *queue)))[4]
        == 30
    )


def test_backfills_table_keeps_the_records_of_merged_steps() -> None:
    # Job 1 holds a node; jobs 2 and 3 are to follow one another on both, so that their steps merge:
    # four records, three steps. Full at four, the pass ends with job 4, before job 5, which could
    # start.
    queue = (job(1), job(2), job(2), job(2), job(1, 600))
    assert starts(_after(make(2, replace(FIFO, bf_node_space_size=4), *queue)))[5] is None
    assert starts(_after(make(2, replace(FIFO, bf_node_space_size=5), *queue)))[5] == 30


def test_default_queue_depth() -> None:
    # Two partitions; with a depth of 1 an event pass looks at two jobs, the full pass at all of
    # them.
    names = ("n1", "n2")
    partitions = [Partition("a", ("n1",)), Partition("b", ("n2",))]
    params = replace(FIFO, default_queue_depth=1, bf_interval_s=10**6)
    specs = [*(job(partition="a") for _ in range(3)), job(partition="b")]
    sim = simulator(names, partitions, params, specs)
    sim.run()
    assert starts(sim)[4] == 60


def test_tiers_come_before_priority_and_older_jobs_before_younger() -> None:
    partitions = [Partition("low", ("n1",)), Partition("high", ("n1",), priority_tier=2)]
    sim = simulator(
        ("n1",),
        partitions,
        Params(),
        [job(submit_s=5), job(submit_s=6), job(partition="high", submit_s=50)],
    )
    sim.run()
    order = sorted(starts(sim).items(), key=lambda item: item[1] or 0)
    assert [job_id for job_id, _ in order] == [1, 3, 2]


def test_of_equal_priority_the_earlier_submission_comes_first() -> None:
    sim = make(1, replace(FIFO, requeue_delay_s=0), job(limit_s=600), job(), job(submit_s=50))
    sim.run_until(100)
    sim.requeue(1)
    sim.run()
    assert (
        (sim.job(2).start_s, sim.job(2).end_s)
        < (sim.job(3).start_s, sim.job(3).end_s)
        < (sim.job(1).start_s, 10**9)
    )


def test_overlapping_partitions_keep_their_nodes_for_the_job_that_waits() -> None:
    partitions = [
        Partition("all", ("n1", "n2", "n3")),
        Partition("few", ("n2", "n3")),
        Partition("own", ("n4",)),
    ]
    specs = [
        job(2, partition="all"),
        job(3, 600, partition="all"),
        job(1, partition="few"),
        job(1, partition="own"),
    ]
    sim = simulator(("n1", "n2", "n3", "n4"), partitions, FIFO, specs)
    sim.run_until(20)
    assert starts(sim) == {1: 3, 2: None, 3: None, 4: 3}
    assert sim.job(3).reason == "Resources"


def test_priority_is_truncated_and_refreshed_each_period() -> None:
    params = Params(priority_max_age_s=HOUR, priority_weight_age=100, priority_calc_period_s=300)
    sim = make(16, params, job(16), job(1, submit_s=10))
    seen = []
    for time_s in (10, 299, 301, 1199, 1201):
        sim.run_until(time_s)
        seen.append(sim.job(2).priority)
    assert seen == [62, 62, 70, 87, 95]  # 1000 / 16 + 100 * (age at 300, 900, 1200) / 3600


def test_passes_see_priorities_that_were_recalculated_before_them_in_the_second() -> None:
    # 0.55 s within it, where main passes come, too.
    params = replace(
        FIFO,
        priority_weight_age=10 * HOUR,
        priority_max_age_s=10 * HOUR,
        priority_calc_period_s=300,
    )
    sim = make(1, params, job(1, 5 * HOUR), job())
    ages_s = []
    for time_s in (299, 300, 2999, 3000, 3001):
        sim.run_until(time_s)
        ages_s.append(sim.job(2).priority)
    assert ages_s == [1, 300, 2700, 3000, 3000]


def test_age_is_capped() -> None:
    sim = make(
        1, replace(FIFO, priority_weight_age=1000, priority_max_age_s=HOUR), job(1, 5 * HOUR), job()
    )
    sim.run_until(4 * HOUR)
    assert sim.job(2).priority == 1000


@pytest.mark.parametrize(("accrue_always", "priority"), [(False, 1), (True, 250)])
def test_a_dependent_jobs_age(accrue_always: bool, priority: int) -> None:
    params = replace(
        FIFO, priority_weight_age=1000, priority_max_age_s=4 * HOUR, accrue_always=accrue_always
    )
    sim = make(1, params, job(1, 5 * HOUR), job(), job(dependency="afterany:1"))
    sim.run_until(HOUR + 1)  # priorities are calculated within the second of an hour
    sim.drop_dependency(3)
    assert sim.job(3).priority == priority


def test_favor_small_and_the_partition_factor() -> None:
    params = replace(
        FIFO,
        priority_weight_job_size=100,
        priority_favor_small=True,
        priority_weight_partition=1000,
    )
    partitions = [Partition("a", ("n1", "n2", "n3", "n4"), priority_job_factor=10)]
    partitions.append(Partition("b", ("n1",), priority_job_factor=5))
    sim = simulator(
        ("n1", "n2", "n3", "n4"),
        partitions,
        params,
        [job(4), job(3), job(1), job(1, partition="b")],
    )
    sim.run_until(5)
    assert [sim.job(job_id).priority for job_id in (1, 2, 3, 4)] == [1000, 1025, 1075, 575]


# --- what keeps jobs back


@pytest.mark.parametrize(
    ("kind", "first", "expected"),
    [
        ("afterany", job(runtime_s=50), "starts"),
        ("afterany", job(runtime_s=50, exit_code=1), "starts"),
        ("afterok", job(runtime_s=50), "starts"),
        ("afterok", job(runtime_s=50, exit_code=1), "DependencyNeverSatisfied"),
        (
            "afterok",
            job(limit_s=60, runtime_s=999),
            "DependencyNeverSatisfied",
        ),  # TIMEOUT is not OK
        ("afternotok", job(runtime_s=50), "DependencyNeverSatisfied"),
        ("afternotok", job(limit_s=60, runtime_s=999), "starts"),
    ],
)
def test_dependencies(kind: str, first: JobSpec, expected: str) -> None:
    sim = make(4, FIFO, first, job(dependency=f"{kind}:1"))
    sim.run_until(40)
    assert (sim.job(2).reason, sim.job(2).dependency) == ("Dependency", f"{kind}:1(unfulfilled)")
    assert sim.job(2).eligible_s is None
    left = sim.run()
    second = sim.job(2)
    if expected == "starts":
        assert left == []
        assert second.dependency == ""
        assert second.start_s is not None
        assert second.eligible_s is not None
        assert 0 <= second.start_s - second.eligible_s <= 3
        assert 0 <= second.eligible_s - (sim.job(1).end_s or 0) <= 3
    else:
        assert [(record.reason, record.dependency) for record in left] == [
            (expected, f"{kind}:1(failed)")
        ]


def test_after_is_met_when_the_other_has_started() -> None:
    sim = make(4, FIFO, job(begin_s=500), job(dependency="after:1"))
    sim.run_until(499)
    assert sim.job(2).reason == "Dependency"
    sim.run_until(700)
    assert sim.job(2).state is State.RUNNING


def test_all_or_any() -> None:
    pair = (job(runtime_s=100), job(runtime_s=1000))
    sim = make(
        4,
        FIFO,
        *pair,
        job(dependency="afterany:1,afterany:2"),
        job(dependency="afterok:1?afternotok:2"),
    )
    sim.run_until(500)
    assert sim.job(3).dependency == "afterany:2(unfulfilled)"
    assert sim.job(4).state is State.RUNNING
    sim.run()
    assert (sim.job(3).start_s or 0) >= 1000


def test_a_dependency_on_an_unknown_job_is_silently_fulfilled() -> None:
    sim = make(1, FIFO, job(dependency="afterok:77"))
    sim.run()
    assert sim.job(1).start_s == 3


def test_a_requeue_does_not_fire_afterany() -> None:
    sim = make(2, FIFO, job(runtime_s=500), job(dependency="afterany:1"))
    sim.run_until(100)
    sim.requeue(1)
    first = sim.job(1)
    assert (first.state, first.reason, first.submit_s, first.restarts) == (
        State.PENDING,
        "BeginTime",
        100,
        1,
    )
    sim.run_until(200)
    assert sim.job(2).reason == "Dependency"
    sim.run()
    first = sim.job(1)
    assert first.eligible_s == 221
    assert (first.end_s or 0) <= (sim.job(2).start_s or 0)
    assert [(run.state, run.start_s, run.end_s) for run in sim.cut_short()] == [
        (State.REQUEUED, 3, 100)
    ]


def test_dropping_a_dependency() -> None:
    sim = make(2, FIFO, job(1), job(1, dependency="afterany:1"))
    sim.run_until(1000)
    sim.drop_dependency(2)
    assert (sim.job(2).dependency, sim.job(2).eligible_s, sim.job(2).reason) == ("", 1000, "None")
    sim.drop_dependency(2)
    sim.run_until(1010)
    assert sim.job(2).start_s == 1000
    sim.drop_dependency(2)
    with pytest.raises(UnknownJob, match="77"):
        sim.drop_dependency(77)


def test_hold_and_release() -> None:
    sim = make(1, FIFO, job(runtime_s=2000), job())
    sim.run_until(100)
    sim.hold(2)
    held = sim.job(2)
    assert (held.reason, held.priority, held.eligible_s) == ("JobHeldUser", 0, None)
    sim.run_until(3000)
    assert sim.job(2).start_s is None
    sim.release(2)
    sim.run_until(3010)
    assert (sim.job(2).eligible_s, sim.job(2).start_s) == (3000, 3000)
    with pytest.raises(SimulationError, match="RUNNING"):
        sim.hold(2)


def test_held_at_submission() -> None:
    sim = make(1, FIFO, job(held=True))
    assert [record.reason for record in sim.run()] == ["JobHeldUser"]


def test_begin_time() -> None:
    sim = make(1, FIFO, job(begin_s=1000))
    sim.run_until(999)
    assert (sim.job(1).reason, sim.job(1).eligible_s) == ("BeginTime", None)
    sim.run()
    assert sim.job(1).eligible_s == 1000
    assert 1000 <= (sim.job(1).start_s or 0) <= 1060


def test_the_limit_of_jobs_per_user() -> None:
    qos = (Qos("normal", max_jobs_per_user=1),)
    sim = limited(qos, job(runtime_s=100), job(), job(user="other"))
    sim.run_until(90)
    assert sim.job(2).reason == "QOSMaxJobsPerUserLimit"
    assert sim.job(3).start_s == 3
    assert sim.run() == []


def test_cancel() -> None:
    sim = make(1, FIFO, job(), job(), job(dependency="afterany:1"))
    sim.run_until(100)
    sim.cancel(2)
    sim.cancel(1)
    sim.cancel(1)
    assert [(record.state, record.start_s, record.end_s) for record in sim.finished()] == [
        (State.CANCELLED, None, 100),
        (State.CANCELLED, 3, 100),
    ]
    sim.run()
    assert sim.job(3).start_s == 100


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_a_job_that_may_not_be_requeued(kind: Any) -> None:
    sim = kind(whole_nodes(1, FIFO), [job(requeue=False)])
    sim.run_until(10)
    with pytest.raises(
        SimulationError, match="job 1 was submitted with requeue=False; leave it, or cancel it"
    ):
        sim.requeue(1)
    assert sim.job(1).state is State.RUNNING


@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_that_fails(requeue: bool) -> None:
    sim = make(2, FIFO, job(2, requeue=requeue), job(1, runtime_s=10))
    sim.run_until(100)
    sim.node_down("n2")
    assert (sim.is_up("n2"), sim.is_idle("n2"), sim.is_idle("n1")) == (False, False, True)
    left = sim.run()
    if requeue:
        assert [(record.job_id, record.reason) for record in left] == [(1, "Resources")]
        assert [run.state for run in sim.cut_short()] == [State.NODE_FAIL]
    else:
        assert left == []
        assert sim.job(1).state is State.NODE_FAIL
    assert sim.job(2).node_names == ("n1",)
    came_back_s = sim.now_s
    sim.node_up("n2")
    assert sim.run() == []
    assert [(outage.node, outage.start_s, outage.end_s) for outage in sim.outages()] == [
        ("n2", 100, came_back_s)
    ]


# --- input


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"nodes": 5}, "5 nodes asked for; partition 'gpu' has 4"),
        ({"nodes": 0}, "nodes is 0; give at least 1"),
        ({"limit_s": 0}, "time_limit_s is 0"),
        ({"runtime_s": -1}, "runtime_s is -1"),
        ({"submit_s": -5}, "submit_s is -5"),
        ({"begin_s": -5}, "begin_s is -5"),
        ({"partition": "cpu"}, "partition 'cpu' does not exist; this cluster has gpu"),
        ({"dependency": "afterany"}, "'afterany' is not KIND:ID"),
        ({"dependency": "singleton"}, "not KIND:ID"),
        ({"dependency": "afterany:1,after:2?after:3"}, "mixes"),
        ({"job_id": 7, "dependency": "afterany:7"}, "wait for itself"),
        ({"job_id": 0}, "job_id is 0"),
    ],
)
def test_impossible_jobs(request_: dict[str, object], message: str) -> None:
    sim = make(4)
    with pytest.raises(InvalidJob, match=message):
        sim.submit(job(**request_))
    assert sim.next_event_s() is None


def test_a_limit_above_the_partitions() -> None:
    sim = simulator(("n1",), [Partition("short", ("n1",), max_time_s=HOUR)])
    with pytest.raises(InvalidJob, match="allows 3600 s"):
        sim.submit(job(limit_s=HOUR + 1))
    assert sim.job(sim.submit(JobSpec(1))).time_limit_s == HOUR


def test_jobs_that_wait_for_each_other() -> None:
    circle = [
        job(job_id=1, dependency="after:2"),
        job(job_id=2, dependency="after:3"),
        job(job_id=3, dependency="after:1"),
    ]
    with pytest.raises(InvalidJob, match="1 -> 2 -> 3 -> 1"):
        make(1, FIFO, *circle)
    make(1, FIFO, circle[0], circle[1], job(job_id=3))


def test_the_past_is_over() -> None:
    sim = make()
    sim.run_until(100)
    with pytest.raises(InvalidJob, match="past"):
        sim.submit(job(submit_s=99))
    with pytest.raises(SimulationError, match="fork"):
        sim.run_until(99)


@pytest.mark.parametrize(
    ("nodes", "partitions", "message"),
    [
        ((), [], "nodes"),
        (("a", "a"), [Partition("p", ("a",))], "'a' is there more than once"),
        (("a",), [], "partitions"),
        (("a",), [Partition("p", ("a", "b"))], "unknown: b"),
        (("a",), [Partition("p", ())], "at least one"),
        (("a",), [Partition("p", ("a",)), Partition("p", ("a",))], "'p' is there more than once"),
    ],
)
def test_impossible_clusters(
    nodes: tuple[str, ...], partitions: list[Partition], message: str
) -> None:
    with pytest.raises(InvalidCluster, match=message):
        simulator(nodes, partitions)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Params(bf_interval_s=10**13),
            "Params.bf_interval_s is 10000000000000; give seconds, at most 1,000,000",
        ),
        (lambda: Params(bf_interval_s=2.5), "Params.bf_interval_s is 2.5; give a whole number"),  # type: ignore[arg-type]
        (lambda: Params(bf_interval_s=None), "Params.bf_interval_s is None; give"),  # type: ignore[arg-type]
        (
            lambda: Params(priority_weight_qos=2**32),
            "priority_weight_qos is 4294967296; give at most 4,294,967,295",
        ),
        (lambda: Params(select_type="x"), "select_type is 'x'; give select/linear or"),  # type: ignore[arg-type]
        (
            lambda: NodeSpec("n", gpus=2**63),
            "node 'n'.gpus is 9223372036854775808; give at most 2,147,483,647",
        ),
        (
            lambda: NodeSpec("n", idle_w=float("inf")),
            "node 'n'.idle_w is inf; give a number from 0",
        ),
        (
            lambda: Partition("p", ("n",), max_time_s=0),
            "partition 'p'.max_time_s is 0; give at least 1",
        ),
        (
            lambda: Partition("p", ("n",), 60, 120),
            "'p'.default_time_s is 120; give at most its max_time_s, 60",
        ),
        (
            lambda: Partition("p", ("n",), min_nodes=5, max_nodes=2),
            "'p'.min_nodes is 5; give at most its max_nodes, 2",
        ),
        (
            lambda: Qos("q", max_jobs_per_user=-1),
            "qos 'q'.max_jobs_per_user is -1; give at least 0",
        ),
        (
            lambda: Association("a", "ann", shares=-1),
            "account 'a', user 'ann'.shares is -1; give at least 0",
        ),
        (
            lambda: Reservation("r", 0, 2**63, ("n",)),
            "reservation 'r'.end_s is 9223372036854775808; give seconds",
        ),
        (lambda: NodeChange(2**63, "n", NodeAction.DOWN), "change of node 'n'.time_s is"),
        (lambda: NodeChange(5, "n", "OFF"), "change of node 'n'.action is 'OFF'; give DOWN or"),  # type: ignore[arg-type]
        (lambda: Params(backfill="no"), "backfill is 'no'; give True or False"),  # type: ignore[arg-type]
        (lambda: whole_nodes(100_001), "100,001 nodes; give at most 100,000"),
        (
            lambda: replace(whole_nodes(2), reservations=2 * (Reservation("r", 0, 9, ("n1",)),)),
            "reservations: 'r' is there more than once",
        ),
    ],
)
def test_numbers_that_can_not_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidCluster, match=re.escape(message)):
        make()


def test_numbers_of_numpy_and_words_become_pythons() -> None:
    params = Params(bf_interval_s=np.int32(40), select_type="select/cons_tres")  # type: ignore[arg-type]
    assert type(params.bf_interval_s) is int
    assert params.select_type is SelectType.CONS_TRES


@pytest.mark.parametrize("time_s", [-1, 10.5, 10**30, None])
def test_times_that_can_not_be(time_s: Any) -> None:
    sim = make(1, FIFO, job())
    sim.run_until(100)
    for go in (
        sim.run_until,
        lambda until_s: sim.run_until_start(1, until_s),
        lambda end_s: sim.set_runtime_end(1, end_s),
        lambda start_s: ReferenceSimulator(whole_nodes(1), (), start_s),
    ):
        with pytest.raises(SimulationError, match="_s is "):
            go(time_s)
    assert sim.now_s == 100


@pytest.mark.parametrize(
    "name", ["bf_interval_s", "sched_interval_s", "priority_calc_period_s", "bf_max_job_user"]
)
def test_impossible_parameters(name: str) -> None:
    with pytest.raises(InvalidCluster, match=name):
        Params(**{name: 0})


# --- interface


def test_ids() -> None:
    sim = make(1, FIFO, job(job_id=40), job())
    assert sim.submit(job()) == 42
    with pytest.raises(InvalidJob, match="40"):
        sim.submit(job(job_id=40))
    with pytest.raises(UnknownJob, match="43"):
        sim.job(43)


@pytest.mark.parametrize("go_on", ["step", "run_until", "run", "run_until_start"])
@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_hooks_may_not_let_time_pass(kind: Any, go_on: str) -> None:
    arguments = {"step": (60,), "run_until": (9000,), "run": (), "run_until_start": (1, 9000)}[
        go_on
    ]
    sim = kind(whole_nodes(2), [job(2, 600, 300), job(2, 600, 300)])
    sim.on_start.append(lambda _job: getattr(sim, go_on)(*arguments))
    with pytest.raises(SimulationError, match="can't let time pass"):
        sim.run_until(700)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_steps_of_small_numpy_integers(kind: Any) -> None:
    sim = kind(whole_nodes(2), start_s=1_700_000_000)
    sim.step(np.int16(600))
    sim.step(np.uint8(200))
    assert sim.now_s == 1_700_000_800
    with pytest.raises(SimulationError, match=r"seconds is 1.5; give a whole number"):
        sim.step(1.5)


def test_hooks_may_call_the_simulator() -> None:
    sim = make(2, EXACT)
    seen: list[tuple[str, int, int]] = []

    def prologue(record: JobRecord) -> None:
        seen.append(("start", record.job_id, sim.now_s))
        if record.job_id < 3:
            sim.submit(job(1, 600, dependency=f"afterany:{record.job_id}"))
        if record.job_id == 2:
            sim.cancel(2)

    sim.on_start.append(prologue)
    sim.on_end.append(lambda record: seen.append((record.state.value, record.job_id, sim.now_s)))
    sim.submit(job(1, 600))
    sim.run()
    assert [(what, job_id) for what, job_id, _ in seen] == [
        ("start", 1),
        ("COMPLETED", 1),
        ("start", 2),
        ("CANCELLED", 2),
        ("start", 3),
        ("COMPLETED", 3),
    ]
    assert all(
        time_s == sim.job(job_id).start_s for what, job_id, time_s in seen if what == "start"
    )


def test_records_are_copies() -> None:
    sim = make(1, FIFO, job())
    sim.run_until(10)
    sim.job(1).state = State.FAILED
    sim.running()[0].start_s = 0
    assert (sim.job(1).state, sim.job(1).start_s) == (State.RUNNING, 3)


def test_a_fork_goes_its_own_way() -> None:
    sim = make(1, FIFO, job(), job(), job(1, 60))
    sim.run_until(1000)
    twin = sim.fork()
    twin.cancel(2)
    twin.run()
    assert sim.now_s == 1000
    sim.run()
    assert (sim.job(2).state, twin.job(2).state) == (State.COMPLETED, State.CANCELLED)
    assert (twin.job(3).start_s or 0) < (sim.job(3).start_s or 0)


def test_finished_since() -> None:
    sim = make(2, EXACT, job(runtime_s=100), job(runtime_s=200), job(runtime_s=300, submit_s=500))
    sim.run()
    assert [record.job_id for record in sim.finished(since_s=203)] == [2, 3]
    assert [record.job_id for record in sim.finished()] == [1, 2, 3]


def test_nothing_happens_in_an_empty_cluster() -> None:
    sim = make()
    assert sim.next_event_s() is None
    sim.step(10**9)
    assert (sim.now_s, sim.run()) == (10**9, [])
