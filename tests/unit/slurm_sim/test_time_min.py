"""Jobs whose limit backfill may shorten (`--time-min`), in both engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import slurm_sim
from slurm_sim.clusters.scheduler import params_from
from slurm_sim.config import Params, Reservation, whole_nodes
from slurm_sim.errors import InvalidJob
from slurm_sim.jobfile.impossible import find_impossible
from slurm_sim.jobfile.jobs import read_jobs
from slurm_sim.jobfile.specs import specs
from slurm_sim.jobs import JobSpec, State
from slurm_sim.state import PendingJob, RunningJob
from tests.reference.simulator import ReferenceSimulator

SIMULATORS = [ReferenceSimulator, slurm_sim.Simulator]
MIN = 60
EXACT = Params(priority_multifactor=False, limit_check_s=0)
EXTENDED = replace(EXACT, time_min_extends=True)
HALF = JobSpec(2, 10 * MIN, 10 * MIN, submit_s=0)
ALL = JobSpec(4, 30 * MIN, 30 * MIN, submit_s=10)
"""Waits until HALF has ended, with all nodes kept for it."""


def flexible(least_min: int, limit_min: int | None = 20, **more: Any) -> JobSpec:
    limit_s = None if limit_min is None else limit_min * MIN
    return JobSpec(1, limit_s, time_min_s=least_min * MIN, **{"submit_s": 20, **more})


def run(make: Any, params: Params, *jobs: JobSpec, **more: Any) -> Any:
    cluster = replace(whole_nodes(4, params), **more)
    sim = make(cluster, jobs)
    sim.run_until(2 * 3600)
    return sim


@pytest.mark.parametrize("make", SIMULATORS)
def test_backfill_starts_it_in_a_hole_with_its_time_min(make: Any) -> None:
    sim = run(make, EXACT, HALF, ALL, flexible(3))
    job = sim.job(3)
    assert (job.start_s, job.scheduler, job.time_limit_s) == (30, "backfill", 3 * MIN)
    assert (job.end_s, job.state) == (30 + 3 * MIN, State.TIMEOUT)
    assert sim.job(2).start_s == 603  # not delayed


@pytest.mark.parametrize("make", SIMULATORS)
def test_extended_it_has_the_nodes_until_others_need_them(make: Any) -> None:
    job = run(make, EXTENDED, HALF, ALL, flexible(3)).job(3)
    # From 30 to 600, the step in which HALF ends, in whole minutes.
    assert (job.start_s, job.time_limit_s) == (30, 9 * MIN)


@pytest.mark.parametrize("make", SIMULATORS)
@pytest.mark.parametrize("params", [EXACT, EXTENDED])
def test_it_waits_where_not_even_its_time_min_fits(make: Any, params: Params) -> None:
    job = run(make, params, HALF, ALL, flexible(12)).job(3)
    assert job.start_s == 603 + 30 * MIN
    assert job.time_limit_s == 20 * MIN  # of the main scheduler


@pytest.mark.parametrize("make", SIMULATORS)
def test_extended_nobody_waiting_it_has_its_whole_limit(make: Any) -> None:
    alone = replace(EXTENDED, main=False)
    assert run(make, alone, flexible(3)).job(1).time_limit_s == 20 * MIN
    assert run(make, replace(EXACT, main=False), flexible(3)).job(1).time_limit_s == 3 * MIN


@pytest.mark.parametrize("make", SIMULATORS)
def test_extended_it_leaves_before_a_reservation(make: Any) -> None:
    alone = replace(EXTENDED, main=False)
    course = Reservation("course", 400, 4000, ("n1", "n2", "n3", "n4"))
    job = run(make, alone, flexible(3), reservations=(course,)).job(1)
    assert job.start_s is not None
    assert job.time_limit_s == (400 - job.start_s) // MIN * MIN


@pytest.mark.parametrize("make", SIMULATORS)
def test_without_a_limit_a_year_is_the_most(make: Any) -> None:
    alone = replace(EXACT, main=False)
    assert run(make, alone, flexible(3, None)).job(1).time_limit_s == 3 * MIN
    job = run(make, replace(EXTENDED, main=False), flexible(3, None)).job(1)
    assert job.time_limit_s == 365 * 86400


@pytest.mark.parametrize("make", SIMULATORS)
def test_a_requeued_job_keeps_the_limit_it_got(make: Any) -> None:
    sim = make(whole_nodes(4, EXACT), [HALF, ALL, flexible(3)])
    sim.run_until(60)
    sim.requeue(3)
    sim.run_until(2 * 3600)
    assert sim.job(3).time_limit_s == 3 * MIN


@pytest.mark.parametrize("make", SIMULATORS)
def test_a_time_min_above_the_limit_is_refused(make: Any) -> None:
    with pytest.raises(InvalidJob, match=r"time_min_s is 1260, above the job's limit of 1200 s"):
        make(whole_nodes(4, EXACT), [flexible(21)])


@pytest.mark.parametrize("make", SIMULATORS)
def test_a_state_has_such_jobs(make: Any) -> None:
    running = [RunningJob(replace(HALF, job_id=1, submit_s=None, runtime_s=None), 0, ("n1", "n2"))]
    pending = [
        PendingJob(replace(ALL, job_id=2, submit_s=None), 5, 5),
        PendingJob(flexible(3, job_id=3, submit_s=None), 6, 6),
    ]
    sim = make.from_state(whole_nodes(4, EXACT), 60, running, pending)
    sim.run_until(300)
    assert sim.job(3).time_limit_s == 3 * MIN


def test_a_job_file_has_a_column_for_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = "1,0,1,20,60,180\n2,5,1,20,60,\n3,9,1,20,60,1201\n"
    path.write_text(f"job_id,submit_s,nodes,timelimit_min,runtime_s,timemin_s\n{rows}")
    jobs = read_jobs(path)
    assert [spec.time_min_s for spec in specs(jobs)] == [180, None, 1201]
    (bad,) = find_impossible(whole_nodes(4), jobs)
    assert (bad.row, bad.column) == (2, "timemin_s")


def test_slurms_rule_can_be_chosen() -> None:
    assert params_from("time_min_extends=1")[0].time_min_extends is True
    assert params_from("time_min_extends=0")[0].time_min_extends is False
