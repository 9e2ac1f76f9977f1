"""Cleaning: each rule on jobs made for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_sim.traces import Trace, make_trace
from slurm_sim.traces.cleaning import CleaningFinding, CleaningReport, Rules, clean

GOOD = {
    "user": "ann",
    "partition": "",
    "submit": 0,
    "start": 10,
    "end": 20,
    "timelimit_s": 60,
    "nodes": 1,
}
GOOD |= {"gpus": 0, "cpus": 1, "state": "COMPLETED"}


def trace(*jobs: dict[str, Any]) -> Trace:
    return make_trace(
        pd.DataFrame([GOOD | {"job_id": str(number)} | job for number, job in enumerate(jobs, 1)])
    )


def found(report: CleaningReport, rule: str) -> CleaningFinding:
    return next(each for each in report.findings if each.rule == rule)


def test_a_clean_trace_stays_as_it_is() -> None:
    before = trace({}, {})
    after, report = clean(before, Rules(nodes=4))
    pd.testing.assert_frame_equal(after.jobs, before.jobs)
    assert (report.rows_in, report.rows_out) == (2, 2)
    assert all(each.jobs == 0 for each in report.findings)
    assert len(report.findings) == 15


def test_jobs_that_can_not_be_are_dropped_and_counted() -> None:
    before = trace(
        {},
        {"job_id": "1.batch"},
        {"nodes": 0},
        {"nodes": 9},
        {"start": 30},
        {"submit": 15},
        {"start": np.nan, "end": np.nan, "state": "PENDING"},
    )
    after, report = clean(before, Rules(nodes=8))
    assert after.jobs["job_id"].tolist() == ["1"]
    dropped = {
        each.rule: each.jobs for each in report.findings if each.action == "dropped" and each.jobs
    }
    expected = (
        "steps",
        "zero nodes",
        "wider than the cluster",
        "never started",
        "end before start",
        "start before submit",
    )
    assert dropped == dict.fromkeys(expected, 1)
    assert found(report, "zero nodes").examples == ("3",)


def test_without_a_node_count_width_is_not_checked() -> None:
    after, report = clean(trace({"nodes": 10_000}))
    assert len(after) == 1
    assert found(report, "wider than the cluster").action == "not checked"


def test_parts_of_a_heterogeneous_job_become_one() -> None:
    after, report = clean(
        trace({"job_id": "5+0", "nodes": 2}, {"job_id": "5+1", "nodes": 3, "end": 25}, {})
    )
    assert after.jobs["job_id"].tolist() == ["3", "5"]
    merged = after.jobs.iloc[1]
    assert (merged["nodes"], merged["end"], merged["cpus"]) == (5, 25, 2)
    assert found(report, "job groups").jobs == 2


def test_the_memory_of_a_heterogeneous_job_is_that_of_all_parts() -> None:
    parts = ({"job_id": "5+0", "mem_mib": 1000}, {"job_id": "5+1", "mem_mib": 500})
    assert clean(trace(*parts))[0].column("mem_mib").tolist() == [1500]
    unknown = clean(trace(*parts, {"job_id": "5+2", "mem_mib": np.nan, "cpus": np.nan}))[0]
    assert np.isnan(unknown.column("mem_mib")).all()
    assert np.isnan(unknown.column("cpus")).all()
    assert unknown.jobs["nodes"].tolist() == [3]


def test_steps_without_a_row_of_their_job_become_that_job() -> None:
    steps = (
        {
            "job_id": "7.0",
            "submit": 5,
            "start": 10,
            "end": 90,
            "nodes": 4,
            "cpus": 1,
            "state": "TIMEOUT",
        },
        {
            "job_id": "7.batch",
            "submit": 5,
            "start": 8,
            "end": 60,
            "cpus": 9,
            "user": "",
            "gpus": np.nan,
        },
        {"job_id": "6_2.0"},
        {"job_id": "8"},
        {"job_id": "8.0"},
        {"job_id": "9+0"},
        {"job_id": "9.0"},
    )
    after, report = clean(trace(*steps))
    assert after.text("job_id").tolist() == ["8", "6_2", "9", "7"]
    job = after.jobs.iloc[3]
    assert job[["submit", "start", "end", "nodes", "cpus", "gpus"]].tolist() == [5, 8, 90, 4, 9, 0]
    assert job[["state", "user"]].tolist() == ["TIMEOUT", "ann"]
    assert (found(report, "steps").jobs, found(report, "steps without a job").jobs) == (2, 3)
    assert found(report, "steps without a job").examples == ("6_2.0", "7.0", "7.batch")


def test_a_job_of_which_one_step_runs_still_runs() -> None:
    after, _ = clean(trace({"job_id": "7.0"}, {"job_id": "7.1", "end": np.nan, "state": "RUNNING"}))
    assert np.isnan(after.column("end")).tolist() == [True]
    assert after.text("state").tolist() == ["RUNNING"]


def test_requeues_become_jobs_of_their_own_or_only_the_last_stays() -> None:
    runs = (
        {"job_id": "5", "end": 20, "state": "NODE_FAIL"},
        {"job_id": "5", "start": 50, "end": 90},
        {"job_id": "5", "start": 50, "end": 90},
    )
    after, report = clean(trace(*runs))
    assert after.jobs[["job_id", "submit", "start"]].to_numpy().tolist() == [
        ["5.r1", 0, 10],
        ["5", 20, 50],
    ]
    assert (found(report, "runs seen again").jobs, found(report, "duplicate ids").jobs) == (1, 1)
    last, _ = clean(trace(*runs), Rules(duplicates="last"))
    assert last.jobs[["job_id", "start"]].to_numpy().tolist() == [["5", 50]]
    again, report = clean(after)
    pd.testing.assert_frame_equal(again.jobs, after.jobs)  # a clean trace is not cleaned twice
    assert found(report, "duplicate ids").jobs == 0


PENDING = {"job_id": "5", "start": np.nan, "end": np.nan, "state": "PENDING"}
RUNNING = {"job_id": "5", "start": 10, "end": np.nan, "state": "RUNNING"}
ENDED = {"job_id": "5", "start": 10, "end": 20, "state": "NODE_FAIL"}
AGAIN = {"job_id": "5", "start": 50, "end": 90, "state": "COMPLETED"}
GIVEN_UP = {"job_id": "5", "start": np.nan, "end": 40, "state": "CANCELLED"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((PENDING, ENDED), [("5", 10, 20)]),
        ((ENDED, PENDING), [("5", 10, 20)]),
        ((PENDING, RUNNING, ENDED, ENDED), [("5", 10, 20)]),
        ((ENDED, RUNNING), [("5", 10, 20)]),
        ((RUNNING, ENDED | {"end": 30}, ENDED), [("5", 10, 30)]),
        ((PENDING, RUNNING, ENDED, AGAIN), [("5.r1", 10, 20), ("5", 50, 90)]),
        ((PENDING, GIVEN_UP), [("5", 40, 40)]),
        ((PENDING, ENDED, GIVEN_UP), [("5.r1", 10, 20), ("5", 40, 40)]),
        (
            (RUNNING, AGAIN | {"submit": 5}, AGAIN | {"submit": 5}),
            [("5.r1", 10, -1), ("5", 50, 90)],
        ),
        ((RUNNING, ENDED, {"job_id": "6"}, {"job_id": "6"}), [("5", 10, 20), ("6", 10, 20)]),
    ],
)
def test_one_run_in_several_dumps_is_one_and_requeues_are_not(
    rows: tuple[dict[str, Any], ...], expected: list[tuple[str, int, int]]
) -> None:
    after, _report = clean(trace(*rows))
    jobs = (
        after.jobs[["job_id", "start", "end"]].astype({"start": "Int64", "end": "Int64"}).fillna(-1)
    )
    assert sorted(jobs.itertuples(index=False, name=None)) == sorted(expected)


def test_the_parts_of_a_heterogeneous_job_in_two_dumps_are_counted_once() -> None:
    running = {"job_id": "5+0", "nodes": 2, "end": np.nan, "state": "RUNNING"}
    ended = {"job_id": "5+0", "nodes": 2}
    parts = (running, running | {"job_id": "5+1"}, ended, ended | {"job_id": "5+1"})
    after, report = clean(trace(*parts))
    assert after.jobs[["job_id", "nodes", "end"]].to_numpy().tolist() == [["5", 4, 20]]
    assert found(report, "runs seen again").jobs == 2


def test_a_run_gets_a_name_that_no_job_has_yet() -> None:
    runs = (
        {"job_id": "5", "end": 20},
        {"job_id": "5", "start": 50, "end": 90},
        {"job_id": "5.r1", "end": 20},
    )
    after, _ = clean(trace(*runs))
    assert sorted(after.text("job_id")) == ["5", "5.r1", "5.r2"]


def test_a_limit_of_zero_is_none() -> None:
    after, report = clean(trace({"timelimit_s": 0}, {"timelimit_s": 60}))
    assert after.jobs["timelimit_s"].isna().tolist() == [True, False]
    assert found(report, "no time limit").jobs == 1


def test_jobs_cancelled_in_the_queue_are_marked_or_dropped() -> None:
    before = trace({"state": "CANCELLED", "start": np.nan, "end": 70}, {"state": "CANCELLED"}, {})
    after, report = clean(before)
    assert after.jobs["start"].tolist() == [70, 10, 10]
    assert after.column("cancel_after_s")[0] == 70
    assert np.isnan(after.column("cancel_after_s")[1:]).all()
    assert found(report, "cancelled in the queue").jobs == 1
    assert len(clean(before, Rules(cancelled="drop"))[0]) == 2


def test_overruns_are_kept_or_clipped() -> None:
    before = trace({"end": 10 + 60 + 500}, {"end": 10 + 60 + 100})
    after, report = clean(before)
    assert found(report, "overruns").jobs == 1
    assert after.jobs["end"].tolist() == [570, 170]
    assert clean(before, Rules(overruns="clip"))[0].jobs["end"].tolist() == [70, 170]


def test_local_times_across_a_change_of_clocks_are_noticed() -> None:
    day = 86400
    across = [
        {"start": day * k, "end": day * (k + 1) + 3605, "submit": 0, "timelimit_s": day}
        for k in (10, 10, 10, 10)
    ]
    _after, report = clean(trace(*across, {"start": 5 * day, "end": 6 * day, "timelimit_s": day}))
    assert found(report, "clock changes").jobs == 4
    apart = [
        job | {"start": job["start"] * k, "end": job["start"] * k + day + 3605}
        for k, job in enumerate(across, 1)
    ]
    assert found(clean(trace(*apart))[1], "clock changes").jobs == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "job_id": st.sampled_from(["1", "2", "3", "4_1", "5+0", "5+1", "6.0"]),
                "submit": st.integers(0, 50),
                "start": st.one_of(st.just(np.nan), st.integers(0, 60)),
                "end": st.one_of(st.just(np.nan), st.integers(0, 99)),
                "nodes": st.integers(0, 5),
                "state": st.sampled_from(["COMPLETED", "CANCELLED", "NODE_FAIL"]),
            }
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_comes_in_what_comes_out_makes_sense(jobs: list[dict[str, Any]]) -> None:
    after, report = clean(trace(*jobs), Rules(nodes=4))
    assert report.rows_out == len(after)
    assert after.jobs["job_id"].is_unique
    assert not (after.wait_s < 0).any()
    assert not (after.run_s < 0).any()
    assert after.jobs["nodes"].between(1, 20).all()
