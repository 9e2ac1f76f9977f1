"""A trace becomes a log that can be simulated, or is refused; its state at an instant is what was
there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.errors import InputError
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.joblog import JobLog, read_log
from mirage.provision.learn.logstate import state_at
from slurm_sim import Simulator
from slurm_sim.config import (
    ClusterConfig,
    NodeAction,
    NodeChange,
    Params,
    Partition,
    SelectType,
    make_nodes,
)
from slurm_sim.table import JobTable
from slurm_sim.traces import Trace, TraceError, make_trace
from tests.learn_site import DAY_S, DAYS, EPOCH_S, HOUR_S, background, cluster, frame, trace
from tests.reference.simulator import ReferenceSimulator as Reference

NONE = pd.array([pd.NA], dtype="Int64")


def small(*rows: dict[str, object], source: str = "small.csv") -> Trace:
    """A trace of a few jobs; times count from 0."""
    plain = {
        "user": "u",
        "partition": "",
        "timelimit_s": 3600,
        "nodes": 1,
        "gpus": 0,
        "cpus": None,
        "state": "COMPLETED",
    }
    table = pd.DataFrame(
        [
            plain | {"job_id": str(n), "start": None, "end": None} | row
            for n, row in enumerate(rows, 1)
        ]
    )
    numbers = ["submit", "start", "end", "timelimit_s", "cpus"]
    return make_trace(table.astype(dict.fromkeys(numbers, "Int64")), source)


def plain_cluster(count: int = 4, **more: object) -> ClusterConfig:
    nodes = make_nodes(count)
    names = tuple(node.name for node in nodes)
    return ClusterConfig(nodes, (Partition("all", names),), **more)  # type: ignore[arg-type]


# --- reading


def test_a_log_has_the_jobs_of_the_trace() -> None:
    log = background().log
    assert len(log) == len(frame())
    assert log.first_s == frame()["submit"].min()
    assert log.last_s == frame()["submit"].max()
    assert isinstance(log.submissions(), JobTable)


def test_between_includes_both_ends() -> None:
    log = background().log
    times_s = log.column("submit_s")
    part = log.between(int(times_s[10]), int(times_s[20]))
    assert part.column("submit_s")[[0, -1]].tolist() == times_s[[10, 20]].tolist()


def test_the_checksum_is_of_the_content() -> None:
    log = background().log
    assert log.checksum() == read_log(trace(), cluster()).checksum()
    other = frame()["nodes"].to_numpy().copy()
    other[5] += 1
    assert log.checksum() != read_log(trace(nodes=other), cluster()).checksum()


def test_no_jobs() -> None:
    with pytest.raises(InputError, match=r"toy\.csv: no jobs; give a trace"):
        read_log(trace().pick(np.zeros(len(frame()), dtype=bool)), cluster())


def test_missing_columns() -> None:
    with pytest.raises(TraceError, match="without submit"):
        make_trace(frame().drop(columns="submit"), "toy.csv")


def test_unsorted() -> None:
    shuffled = Trace(frame().iloc[::-1].reset_index(drop=True), "toy.csv")
    with pytest.raises(InputError, match="submitted before the one above it; sort"):
        read_log(shuffled, cluster())


def test_no_limits_at_all() -> None:
    unlimited = plain_cluster(12)
    with pytest.raises(
        InputError, match=r"no job has a time limit .*max_time in the cluster's file"
    ):
        read_log(
            trace(timelimit_s=pd.array([pd.NA] * len(frame()), dtype="Int64"), partition=""),
            unlimited,
        )


def test_a_job_without_a_limit_gets_its_partitions() -> None:
    limits = frame()["timelimit_s"].astype("Int64").copy()
    limits[3] = pd.NA
    assert read_log(trace(timelimit_s=limits), cluster()).column("timelimit_s")[3] == DAY_S


def test_another_clusters_trace() -> None:
    with pytest.raises(
        InputError, match=r"cluster 'toy' could never run \d+ of \d+ jobs .*partition 'other'"
    ):
        read_log(trace(partition="other"), cluster())


def test_jobs_that_could_never_run_are_left_out_and_told() -> None:
    limits = frame()["timelimit_s"].to_numpy().copy()
    limits[:3] = 5 * DAY_S
    log = read_log(trace(timelimit_s=limits), cluster())
    assert len(log) == len(frame()) - 3
    assert any("3 impossible jobs left out" in note for note in log.notes)


def test_jobs_that_depend_on_each_other_in_a_circle_are_held() -> None:
    rows = [
        {"submit": 0, "dependency": "afterany:2"},
        {"submit": 0, "dependency": "afterany:1"},
        {"submit": 9},
    ]
    times = {"start": 10, "end": 20}
    log = read_log(small(*(row | times for row in rows)), plain_cluster())
    assert [spec.held for spec in log.specs()] == [True, True, False]


def test_a_job_cancelled_in_the_queue_holds_no_nodes() -> None:
    log = read_log(
        small({"submit": 0, "start": 50, "end": 50, "state": "CANCELLED"}), plain_cluster()
    )
    spec = log.specs()[0]
    assert (spec.cancel_s, spec.runtime_s) == (50, 0)


# --- the state at an instant


def alive(log: JobLog, at_s: int) -> tuple[set[int], set[int]]:
    """Ids of (running, queued) jobs, job by job."""
    running, queued = set[int](), set[int]()
    columns = (log.column(name).tolist() for name in ("job_id", "submit_s", "start_s", "end_s"))
    for job_id, submit_s, start_s, end_s in zip(*columns, strict=True):
        if submit_s <= at_s < end_s:
            (running if start_s <= at_s else queued).add(job_id)
    return running, queued


@given(st.integers(0, DAYS * DAY_S))
def test_everyone_alive_is_there_once(seconds: int) -> None:
    log = background().log
    state = state_at(log, cluster(), EPOCH_S + seconds, ())
    running, queued = alive(log, EPOCH_S + seconds)
    assert {item.spec.job_id for item in state.running} == running
    assert {item.spec.job_id for item in state.pending} == queued
    names = [name for item in state.running for name in item.node_names]
    assert len(names) == len(set(names))
    assert state.tally.displaced == state.tally.over_limit == 0


def test_a_log_with_more_nodes_in_use_than_there_are() -> None:
    jobs = [{"submit": 10 * n, "start": 10 * n, "end": 1000, "nodes": 2} for n in range(3)]
    state = state_at(read_log(small(*jobs), plain_cluster()), plain_cluster(), 100, ())
    assert [item.spec.job_id for item in state.running] == [1, 2]
    [displaced] = state.pending
    assert (displaced.spec.job_id, displaced.submit_s, displaced.eligible_s) == (3, 20, 20)
    assert (displaced.spec.runtime_s, displaced.spec.time_limit_s) == (900, 3520)
    assert state.tally.displaced == 1


def test_a_job_of_a_circle_that_ran_all_the_same_can_be_displaced() -> None:
    """The log has its start; where its nodes are taken it waits for others, not for itself."""
    circle = [{"dependency": "afterany:3"}, {"dependency": "afterany:2"}]
    jobs = [
        {"submit": 10 * n, "start": 10 * n, "end": 1000, "nodes": 2, "dependency": ""}
        for n in range(3)
    ]
    jobs = [jobs[0], jobs[1] | circle[0], jobs[2] | circle[1]]
    state = state_at(read_log(small(*jobs), plain_cluster()), plain_cluster(), 100, ())
    [displaced] = state.pending
    assert (displaced.spec.job_id, displaced.spec.held, displaced.eligible_s) == (3, False, 20)
    sim = Reference.from_state(plain_cluster(), 100, state.running, state.pending)
    sim.run()
    assert sim.job(3).start_s is not None


def test_nodes_that_are_down_are_not_given_to_running_jobs() -> None:
    site = plain_cluster(
        node_changes=(
            NodeChange(50, "n1", NodeAction.DRAIN),
            NodeChange(200, "n1", NodeAction.RESUME),
        )
    )
    log = read_log(small({"submit": 0, "start": 0, "end": 1000, "nodes": 2}), site)
    assert state_at(log, site, 100, ["n1"]).running[0].node_names == ("n2", "n3")
    begun = Background(site, log).start_at(100, WarmUp.TRACE, log.between(0, 0))
    assert not begun.simulation.is_up("n1")
    begun.simulation.run_until(201)
    assert begun.simulation.is_up("n1")


def test_what_the_log_cannot_tell_is_counted() -> None:
    log = read_log(
        small(
            {"submit": 0, "start": 0, "end": 9000, "timelimit_s": 60},  # over its limit
            {"submit": 0, "start": 5, "timelimit_s": 60},  # no end, and it should have ended
            {"submit": 0, "start": 6, "timelimit_s": 5000},  # no end: until its limit
            {"submit": 2, "start": 9000, "end": 9999},
        ),
        plain_cluster(),
    )
    unknown = replace(
        log,
        columns=log.columns
        | {"end_s": log.columns["end_s"].copy(), "start_s": log.columns["start_s"].copy()},
    )
    unknown.columns["start_s"][3] = unknown.columns["end_s"][3] = -1
    state = state_at(unknown, plain_cluster(), 1000, ())
    assert [item.spec.job_id for item in state.running] == [1, 3]
    assert state.running[1].spec.runtime_s is None
    tally = state.tally
    assert (tally.over_limit, tally.unknown_end, tally.unknown_start, tally.queued) == (1, 1, 1, 0)


def test_what_keeps_a_queued_job_back() -> None:
    times = {"start": 5000, "end": 6000}
    log = read_log(
        small(
            {"submit": 0, "start": 0, "end": 500},
            {"submit": 0, "start": 0, "end": 2000},
            {"submit": 1, "dependency": "afterany:1", **times},  # since that one's end
            {"submit": 2, "dependency": "afterany:2", **times},  # still
            {"submit": 3, "dependency": "", "eligible": 700, **times},
            {"submit": 4, "dependency": "", "eligible": 3000, **times},  # a begin time to come
            {"submit": 5, "dependency": "", **times},
        ),
        plain_cluster(),
    )
    pending = {item.spec.job_id: item for item in state_at(log, plain_cluster(), 1000, ()).pending}
    assert {job_id: item.eligible_s for job_id, item in pending.items()} == {
        3: 500,
        4: None,
        5: 700,
        6: None,
        7: 5,
    }
    assert pending[4].spec.dependency == "afterany:2"
    assert pending[6].spec.begin_s == 3000
    assert pending[3].spec.dependency == ""


def test_shared_nodes_hold_several_running_jobs() -> None:
    nodes = make_nodes(1, cpus=8)
    site = ClusterConfig(
        nodes, (Partition("all", ("n1",)),), Params(select_type=SelectType.CONS_TRES)
    )
    jobs = [{"submit": 0, "start": n, "end": 900, "cpus": 3} for n in range(3)]
    state = state_at(read_log(small(*jobs), site), site, 100, ())
    assert [item.node_names for item in state.running] == [("n1",), ("n1",)]
    assert state.tally.displaced == 1


# --- simulations that begin in it


@pytest.mark.parametrize("warm_up", list(WarmUp))
def test_core_and_reference_go_on_alike(warm_up: WarmUp, monkeypatch: pytest.MonkeyPatch) -> None:
    at_s = EPOCH_S + 4 * DAY_S + 1234
    arrivals = background().log.between(at_s, at_s + DAY_S)
    ends = []
    for engine in (Simulator, Reference):
        monkeypatch.setattr("mirage.provision.learn.background.Simulator", engine)
        simulation = background().start_at(at_s, warm_up, arrivals).simulation
        simulation.run_until(at_s + DAY_S)
        ends.append(
            {
                (job.job_id, job.start_s)
                for job in [*simulation.running(), *simulation.finished(at_s)]
            }
        )
    assert len(ends[0]) > 20
    assert ends[0] == ends[1]


def test_the_simulation_goes_on_about_as_the_log_does() -> None:
    """Not exactly: the log does not tell the phases of the schedulers' timers."""
    log, at_s = background().log, EPOCH_S + 12 * DAY_S
    simulation = background().warm(at_s, WarmUp.TRACE, at_s + DAY_S)
    simulation.run_until(at_s + DAY_S)
    logged = dict(zip(log.column("job_id").tolist(), log.column("start_s").tolist(), strict=True))
    started = [
        job
        for job in [*simulation.running(), *simulation.finished()]
        if (job.start_s or 0) >= at_s - DAY_S
    ]
    near = [abs(logged[job.job_id] - (job.start_s or 0)) <= 120 for job in started]
    assert len(near) > 25
    assert np.mean(near) > 0.75


def test_the_papers_warm_up_begins_empty() -> None:
    at_s = EPOCH_S + 12 * DAY_S
    arrivals = background().log.between(at_s, at_s + DAY_S)
    assert background().start_at(at_s, WarmUp.PAPER, arrivals).simulation.running() == []
    assert len(background().start_at(at_s, WarmUp.TRACE, arrivals).simulation.running()) > 0


def test_too_early_to_warm_up() -> None:
    with pytest.raises(InputError, match="Begin episodes later"):
        background().warm(EPOCH_S - HOUR_S, WarmUp.PAPER, EPOCH_S)


def test_a_log_without_starts_has_no_state_to_begin_with() -> None:
    missing = pd.array([pd.NA] * len(frame()), dtype="Int64")
    log = read_log(trace(start=missing, end=missing, runtime_s=600), cluster())
    with pytest.raises(InputError, match="no job has a start"):
        Background(cluster(), log).warm(EPOCH_S + 9 * DAY_S, WarmUp.TRACE, EPOCH_S + 10 * DAY_S)
    Background(cluster(), log).warm(EPOCH_S + 9 * DAY_S, WarmUp.PAPER, EPOCH_S + 10 * DAY_S)
