"""Arguments of a wrong type: the core and the reference refuse them in the same words, and take the
same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from slurm_sim import JobSpec, SimulationError, whole_nodes
from slurm_sim.state import PendingJob, RunningJob
from tests.reference.simulator import ReferenceSimulator as Reference
from tests.sim_random import everything

pytest.importorskip("slurm_sim.core._core", reason="the C++ core is not built")
from slurm_sim.simulator import Simulator

CLUSTER = whole_nodes(4)
NO_NUMBERS: list[Any] = [
    "1",
    "x",
    1.0,
    1.5,
    None,
    True,
    False,
    [],
    {},
    1j,
    b"1",
    object,
    np.float64(1),
    np.bool_(True),
]
FAR: list[Any] = [2**70, -(2**70), 2**63, -(2**63) - 1, 2**53, -1, 0]
NUMBERS: list[Any] = [kind(1) for kind in (np.int8, np.uint16, np.int32, np.int64, np.uint64)] + [
    np.array(1)
]
ODD = [*NO_NUMBERS, *FAR, -5, 3, 10**6]

Call = Callable[[Any, Any], object]
OF_A_JOB: dict[str, Call] = {
    **{
        name: lambda sim, job_id, name=name: getattr(sim, name)(job_id)
        for name in (
            "job",
            "cancel",
            "requeue",
            "hold",
            "release",
            "suspend",
            "resume",
            "drop_dependency",
        )
    },
    "resize": lambda sim, job_id: sim.resize(job_id, 2),
    "set_runtime_end": lambda sim, job_id: sim.set_runtime_end(job_id, 500),
    "run_until_start": lambda sim, job_id: sim.run_until_start(job_id, 100),
}
OF_A_NUMBER: dict[str, Call] = {
    "resize to": lambda sim, nodes: sim.resize(1, nodes),
    "ends at": lambda sim, end_s: sim.set_runtime_end(1, end_s),
    "starts by": lambda sim, latest_s: sim.run_until_start(1, latest_s),
    "finished": lambda sim, since_s: sim.finished(since_s),
    "step": lambda sim, seconds: sim.step(seconds),
    "run_until": lambda sim, time_s: sim.run_until(time_s),
    "begin at": lambda sim, start_s: type(sim)(CLUSTER, [], start_s).now_s,
    "begin in the middle at": lambda sim, now_s: type(sim).from_state(CLUSTER, now_s).now_s,
}
OF_SOMETHING_ELSE: dict[str, Call] = {
    **{
        name: lambda sim, node, name=name: getattr(sim, name)(node)
        for name in ("is_up", "is_idle", "node_down")
    },
    "node_up": lambda sim, node: sim.node_up(node),
    "submit": lambda sim, spec: sim.submit(spec),
    "cluster": lambda sim, config: type(sim)(config),
    "cluster in the middle": lambda sim, config: type(sim).from_state(config, 0),
    "jobs": lambda sim, jobs: type(sim)(CLUSTER, jobs),
    "a job": lambda sim, spec: type(sim)(CLUSTER, [JobSpec(1, 60), spec]),
    "later jobs": lambda sim, jobs: type(sim).from_state(CLUSTER, 0, jobs=jobs),
    "running": lambda sim, jobs: type(sim).from_state(CLUSTER, 0, running=jobs),
    "a running job": lambda sim, job: type(sim).from_state(CLUSTER, 0, running=[job]),
    "a running job's request": (
        lambda sim, spec: type(sim).from_state(CLUSTER, 0, [RunningJob(spec, 0, ("n1",))])
    ),
    "a running job's start": (
        lambda sim, at_s: type(sim).from_state(CLUSTER, 5, [RunningJob(SPEC, at_s, ("n1",))])
    ),
    "a running job's nodes": (
        lambda sim, names: type(sim).from_state(CLUSTER, 5, [RunningJob(SPEC, 0, names)])
    ),
    "pending": lambda sim, jobs: type(sim).from_state(CLUSTER, 0, pending=jobs),
    "a pending job": lambda sim, job: type(sim).from_state(CLUSTER, 0, pending=[job]),
    "a pending job's time": (
        lambda sim, at_s: type(sim).from_state(CLUSTER, 5, pending=[PendingJob(SPEC, at_s)])
    ),
    "nodes down": lambda sim, down: type(sim).from_state(CLUSTER, 0, down=down),
    "a node down": lambda sim, node: type(sim).from_state(CLUSTER, 0, down=[node]),
    "timers": lambda sim, timers: type(sim).from_state(CLUSTER, 0, timers=timers),
}
SPEC = JobSpec(1, 600, 300, job_id=1)


def outcome(kind: type, call: Call, value: Any) -> object:
    """What the call returns and leaves behind, or its error."""
    sim = kind(CLUSTER, [JobSpec(1, 600, 300), JobSpec(4, 600, 300)])
    sim.run_until(30)
    try:
        found = call(sim, value)
    except SimulationError as error:
        return type(error), str(error)
    return everything(sim), everything(found) if isinstance(found, kind) else found


@pytest.mark.parametrize("name", [*OF_A_JOB, *OF_A_NUMBER, *OF_SOMETHING_ELSE])
def test_both_say_the_same_of_any_argument(name: str) -> None:
    call = (OF_A_JOB | OF_A_NUMBER | OF_SOMETHING_ELSE)[name]
    for value in [*ODD, SPEC, CLUSTER, [SPEC, None], "n1"]:
        assert outcome(Simulator, call, value) == outcome(Reference, call, value), repr(value)


@pytest.mark.parametrize("kind", [Simulator, Reference])
@pytest.mark.parametrize("name", [*OF_A_JOB, *OF_A_NUMBER])
def test_only_whole_numbers_are_numbers(kind: type, name: str) -> None:
    call = (OF_A_JOB | OF_A_NUMBER)[name]
    for value in NO_NUMBERS:
        found = outcome(kind, call, value)
        assert isinstance(found, tuple)
        assert f"is {value!r}; give a whole number from" in found[1]
    for number in NUMBERS:
        assert outcome(kind, call, number) == outcome(kind, call, 1)


@pytest.mark.parametrize("kind", [Simulator, Reference])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("job", 2**70, f"UnknownJob: job_id is {2**70}; give at most 9,007,199,254,740,992"),
        (
            "job",
            9,
            (
                "UnknownJob: job 9 has not been submitted yet; look at pending(), running(),"
                " finished()"
            ),
        ),
        ("cluster", None, "InvalidCluster: config is None; give a ClusterConfig"),
        (
            "jobs",
            SPEC,
            "InvalidJob: jobs is JobSpec(nodes...me_min_s=None); give a list of JobSpec",
        ),
        ("a job", None, "InvalidJob: jobs[1] is None; give a JobSpec"),
        ("submit", {}, "InvalidJob: job is {}; give a JobSpec"),
        ("is_up", [], "SimulationError: node [] does not exist; this cluster has n1, n2, n3, n4"),
        ("a running job", None, "SimulationError: running[0] is None; give a RunningJob"),
        ("timers", 5, "SimulationError: timers is 5; give a Timers"),
    ],
)
def test_what_is_said(kind: type, name: str, value: object, message: str) -> None:
    found = outcome(kind, (OF_A_JOB | OF_SOMETHING_ELSE)[name], value)
    assert isinstance(found, tuple)
    assert f"{found[0].__name__}: {found[1]}" == message


def test_an_id_is_no_flag() -> None:
    with pytest.raises(SimulationError, match="job_id is True; give a whole number"):
        JobSpec(1, 60, job_id=True)
