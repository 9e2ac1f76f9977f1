"""When a backfill pass is a reason for the next one, as slurmctld sees it (`_attempt_backfill`,
`_handle_planned`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import slurm_sim
from slurm_sim.config import Params, whole_nodes
from slurm_sim.jobs import JobSpec
from slurm_sim.state import RunningJob
from tests.reference.simulator import ReferenceSimulator as Reference

QUIET = Params(
    priority_calc_period_s=100_000, priority_weight_age=0, priority_weight_job_size=0, bf_cycle_us=0
)
"""First come, first served; no priority is recalculated meanwhile, and passes take no time."""
LONG_S = 3000


@pytest.fixture(params=[Reference, slurm_sim.Simulator], ids=["reference", "core"])
def kind(request: pytest.FixtureRequest) -> type[Reference]:
    return request.param  # type: ignore[no-any-return]


def job(nodes: int, limit_s: int = LONG_S, runtime_s: int | None = None, **more: object) -> JobSpec:
    return JobSpec(nodes, limit_s, limit_s if runtime_s is None else runtime_s, **more)  # type: ignore[arg-type]


def passes(sim: Reference, until_s: int) -> list[int]:
    """When backfill ran, from now on."""
    found = []
    while sim.now_s < until_s:
        before_us = sim.timers().last_backfill_us
        sim.step(1)
        if sim.timers().last_backfill_us != before_us:
            found.append(sim.now_s)
    return found


def test_a_pass_that_changes_nothing_is_the_last(kind: type[Reference]) -> None:
    # The waiting job would have nodes that another one has now.
    assert passes(kind(whole_nodes(2, QUIET), [job(2), job(2)]), 2000) == [30]


def test_a_started_job_is_news(kind: type[Reference]) -> None:
    # The third job starts beside the second, and leaves no node idle.
    sim = kind(whole_nodes(3, QUIET), [job(2), job(3), job(1, LONG_S - 500)])
    assert passes(sim, 2000) == [30, 60]
    assert sim.job(3).start_s == 30


def test_an_expected_start_that_moves_is_news(kind: type[Reference]) -> None:
    # The third job can't begin with the second, so it is tried at that one's end; select finds the
    # first job's end.
    sim = kind(whole_nodes(2, QUIET), [job(2), job(2, 600), job(2, 600)])
    assert passes(sim, 150) == [30, 60, 90, 120, 150]


def test_a_reason_of_its_own_is_news_once_as_a_pass_notes_it(kind: type[Reference]) -> None:
    # The hold is noticed at 60, where the pass notes JobHeldUser; that is a change in the second in
    # which it ends.
    sim = kind(whole_nodes(2, QUIET), [job(2), job(2)])
    assert passes(sim, 40) == [30]
    sim.hold(2)
    assert passes(sim, 300) == [60, 90]


def test_jobs_behind_one_that_waits_are_news_of_the_main_passes_only(kind: type[Reference]) -> None:
    # The third job has no place in bf_window, so nothing moves; main passes come at 60, 120, ...
    sim = kind(whole_nodes(2, QUIET), [job(2), job(2, 90_000), job(2, 600)])
    assert passes(sim, 200) == [30, 61, 121, 181]


def test_an_idle_node_that_a_job_is_expected_on_is_news(kind: type[Reference]) -> None:
    sim = kind(whole_nodes(2, QUIET), [job(1), job(2)])
    assert passes(sim, 300) == list(range(30, 301, 30))
    assert sim.timers().planned


def test_the_end_of_a_plan_is_news_once(kind: type[Reference]) -> None:
    sim = kind(whole_nodes(2, QUIET), [job(1), job(2)])
    sim.step(1000)
    sim.hold(2)
    assert passes(sim, 2000) == [1020, 1050]
    assert not sim.timers().planned


def test_without_a_plan_that_ends_a_hold_makes_two_passes_the_first_in_its_second(
    kind: type[Reference],
) -> None:
    sim = kind(whole_nodes(2, QUIET), [job(2), job(2)])
    sim.step(1000)
    sim.hold(2)
    assert passes(sim, 2000) == [1001, 1030]


def test_with_nothing_to_come_there_are_no_passes_for_ever(kind: type[Reference]) -> None:
    # Nobody knows when the first job will end.
    sim = kind(whole_nodes(2, QUIET), [JobSpec(1, None), job(2)])
    assert [record.job_id for record in sim.run()] == [2]


def test_the_plan_is_one_of_the_timers(kind: type[Reference]) -> None:
    sim = kind(whole_nodes(2, QUIET), [job(1, job_id=1), job(2, job_id=2)])
    sim.step(1000)
    timers = sim.timers()
    running = [RunningJob(job(1, job_id=1), 3, sim.job(1).node_names)]
    twin = kind.from_state(whole_nodes(2, QUIET), 1000, running, timers=timers)
    assert passes(twin, 2000) == [1020, 1050]


@pytest.mark.parametrize(
    ("min_job_age_s", "last"), [(300, [361]), (200, [301]), (15, [90]), (0, [])]
)
def test_a_deleted_record_is_news(
    kind: type[Reference], min_job_age_s: int, last: list[int]
) -> None:
    # The first job ends at 43. Its record goes at the first full minute at which it is old enough,
    # or at the first quarter of one where MinJobAge is 15: at 360, 300 and 60, after that second's
    # look.
    params = replace(QUIET, min_job_age_s=min_job_age_s)
    sim = kind(whole_nodes(2, params), [job(1, runtime_s=40), job(1, submit_s=5000)])
    assert passes(sim, 600) == [30, 60, *last]


def test_recalculated_priorities_are_news_also_of_jobs_that_may_not_start_yet(
    kind: type[Reference],
) -> None:
    params = replace(QUIET, priority_calc_period_s=300)
    assert passes(kind(whole_nodes(2, params), [job(1, begin_s=5000)]), 700) == [30, 301, 601]
    assert passes(
        kind(whole_nodes(2, params), [job(1, held=True), job(1, submit_s=5000)]), 700
    ) == [30]


def test_what_was_to_be_deleted_while_nothing_was_to_come_is_deleted_now(
    kind: type[Reference],
) -> None:
    sim = kind(whole_nodes(1, QUIET), [JobSpec(1, 600, None)])  # its kill is the last event
    sim.run_until(8000)
    sim.submit(job(1, submit_s=9000))
    assert sim.next_event_s() == 8000
    assert passes(sim, 8900) == [8001]
