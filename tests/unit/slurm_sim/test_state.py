"""A simulation that begins in the middle: core and reference agree, and both go on as the one it
was taken from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_sim.config import (
    ClusterConfig,
    NodeSpec,
    Params,
    Partition,
    Qos,
    SelectType,
    whole_nodes,
)
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.state import REASONS, PendingJob, RunningJob
from tests.reference.simulator import ReferenceSimulator as Reference
from tests.sim_random import Dice, call, calls, everything, middle

pytest.importorskip("slurm_sim.core._core", reason="the C++ core is not built")
from slurm_sim.simulator import Simulator
from slurm_sim.table import JobTable


def dice_of(draw: st.DrawFn) -> Dice:
    return lambda least, most: draw(st.integers(least, most))


@st.composite
def middles(draw: st.DrawFn, rich: bool) -> tuple[Any, ...]:
    dice = dice_of(draw)
    return *middle(dice, rich), calls(dice)


def started(simulator: type, *state: object, **more: object) -> Any:
    try:
        return simulator.from_state(*state, **more)  # type: ignore[attr-defined]
    except SimulationError as error:
        return type(error)


def agree(*given: Any) -> None:
    *state, script = given
    reference, core = (started(kind, *state) for kind in (Reference, Simulator))
    if isinstance(reference, type):
        assert core is reference
        return
    assert everything(reference) == everything(core)
    for seconds, name, subject, number in script:
        reference.step(seconds)
        core.step(seconds)
        assert everything(reference) == everything(core)
        assert call(reference, name, subject, number) == call(core, name, subject, number)
    reference.step(40_000)
    core.step(40_000)
    assert everything(reference) == everything(core)
    assert reference.timers() == core.timers()


@given(middles(rich=False))
@settings(max_examples=12, deadline=None)
def test_whole_nodes(given: tuple[Any, ...]) -> None:
    agree(*given)


@given(middles(rich=True))
@settings(max_examples=12, deadline=None)
def test_shared_nodes_limits_and_fair_share(given: tuple[Any, ...]) -> None:
    agree(*given)


def test_later_jobs_may_come_as_a_table() -> None:
    late = [
        JobSpec(1, 600, 300, submit_s=500 + 10 * number, job_id=10 + number) for number in range(5)
    ]
    table = JobTable(
        [job.submit_s or 0 for job in late], [1] * 5, [600] * 5, [300] * 5, job_id=range(10, 15)
    )
    running = [RunningJob(JobSpec(2, 3600, 900, job_id=3), 50, ("n1", "n2"))]
    pending = [PendingJob(JobSpec(2, 3600, 900, job_id=4), 80, 80)]
    sims = [
        kind.from_state(whole_nodes(2), 400, running, pending, jobs=jobs)
        for kind, jobs in ((Reference, late), (Simulator, late), (Simulator, table))
    ]
    for sim in sims:
        sim.run()
    fates = [[(job.job_id, job.start_s, job.node_names) for job in sim.finished()] for sim in sims]
    assert len(fates[0]) == 7
    assert fates[0] == fates[1] == fates[2]
    with pytest.raises(InvalidJob, match="job_id 10 is taken"):
        Simulator.from_state(
            whole_nodes(2), 400, [RunningJob(replace(late[0]), 50, ("n1",))], jobs=table
        )


@pytest.mark.parametrize("kind", [Simulator, Reference])
@pytest.mark.parametrize(
    ("running", "pending", "message"),
    [
        (
            [RunningJob(JobSpec(2, 60, job_id=1), 5, ("n1", "n1"))],
            [],
            "job 1 has 2 nodes, but .* name each of them once",
        ),
        ([RunningJob(JobSpec(2, 60, job_id=1), 5, ("n1", "n2", "n2"))], [], "job 1 has 2 nodes"),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1, dependency="afterany:2"), 5, 5)],
            "so its dependency 'afterany:2' is",
        ),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1, dependency="afterok:1"), 5)],
            "job 1 would wait for itself",
        ),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1, held=True), 5, 5)],
            "job 1 competes since 5, so its hold is over",
        ),
        ([], [PendingJob(JobSpec(1, 60, job_id=1, begin_s=50), 5, 5)], "so its begin_s 50 is over"),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1, qos="x"), 5)],
            "qos 'x' does not exist; this cluster has normal",
        ),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1, reservation="x"), 5)],
            "reservation 'x' does not exist",
        ),
        (
            [],
            [PendingJob(JobSpec(1, 60, job_id=1), -(10**12))],
            "job 1: submit_s is -1000000000000; give at least",
        ),
        ([RunningJob(JobSpec(1, 60, job_id=1), 41, ("n1",))], [], "started at 41, after now, 40"),
    ],
)
def test_states_that_can_not_be(
    kind: type[Reference], running: list[RunningJob], pending: list[PendingJob], message: str
) -> None:
    with pytest.raises(SimulationError, match=message):
        kind.from_state(whole_nodes(2), 40, running, pending)


@pytest.mark.parametrize("kind", [Simulator, Reference])
def test_a_begin_time_that_is_over_does_not_matter(kind: type[Reference]) -> None:
    sim = kind.from_state(
        whole_nodes(2), 40, [], [PendingJob(JobSpec(1, 60, 30, job_id=1, begin_s=40), 5, 40)]
    )
    sim.run()
    assert sim.job(1).start_s is not None


def test_unknown_reasons_become_known_ones() -> None:
    assert (
        PendingJob(JobSpec(1, 60, job_id=1), 0, reason="QOSMaxMemoryPerUser").known_reason
        in REASONS
    )
    assert PendingJob(JobSpec(1, 60, job_id=1), 0, reason="Weird").known_reason == "None"
    from slurm_sim.core import _core

    assert list(REASONS) == _core.reasons()


@pytest.mark.parametrize("kind", [Reference, Simulator])
@pytest.mark.parametrize("select_type", list(SelectType))
def test_a_job_for_which_there_are_too_few_nodes_waits(kind: type, select_type: SelectType) -> None:
    """A live cluster's queue may have one: its nodes may have been renamed, or taken out for good."""
    nodes = (
        *(NodeSpec(f"n{number}", cpus=4) for number in (1, 2, 3)),
        NodeSpec("big", cpus=8, features=("big",)),
    )
    partition = Partition("p", tuple(node.name for node in nodes))
    cluster = ClusterConfig(
        nodes, (partition,), Params(select_type), qos=(Qos("normal", grp_cpus=12, grp_nodes=3),)
    )
    asks = [
        JobSpec(2, 600, 60, job_id=1, constraint="big", exclusive=True),
        JobSpec(1, 600, 60, job_id=2),
    ]
    sim = kind.from_state(cluster, 0, [], [PendingJob(spec, 0) for spec in asks])  # type: ignore[attr-defined]
    sim.run_until(600)
    assert [(job.job_id, job.reason) for job in sim.pending()] == [(1, "ReqNodeNotAvail")]
    assert [job.job_id for job in sim.finished()] == [2]
