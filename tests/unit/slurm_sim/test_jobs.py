"""What a job may ask for, one by one and as columns: anything else is one clear error, in either
simulator.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim import Simulator, whole_nodes
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import WHOLE, JobSpec
from slurm_sim.table import JobTable

FLAGS = ("held", "requeue", "exclusive")
TEXTS = (
    "user",
    "partition",
    "dependency",
    "comment",
    "account",
    "qos",
    "constraint",
    "reservation",
)


def spec(**given: Any) -> JobSpec:
    return JobSpec(**({"nodes": 1} | given))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    "value", [1.0, 2.5, float("nan"), np.float64(3), True, False, "3", b"3", [1], np.array([1, 2])]
)
def test_only_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=f"^{name} is .*; give a whole number from"):
        spec(**{name: value})


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("far", [1, 10**30])
def test_only_numbers_in_range(name: str, far: int) -> None:
    least, most = WHOLE[name]
    with pytest.raises(InvalidJob, match=f"^{name} is {least - far}; give at least {least}"):
        spec(**{name: least - far})
    with pytest.raises(
        InvalidJob, match=f"^{name} is {most + far}; give (seconds, )?at most {most:,}"
    ):
        spec(**{name: most + far})


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("end", [0, 1])
def test_the_ends_of_the_range_can_be_simulated(name: str, end: int) -> None:
    """The core takes them, too: no cast fails, whatever becomes of the job."""
    sim = Simulator(whole_nodes(2))
    too_wide = (
        pytest.raises(InvalidJob, match="nodes asked for")
        if (name, end) == ("nodes", 1)
        else nullcontext()
    )
    with too_wide:
        sim.submit(spec(**{name: WHOLE[name][end]}))
    sim.run_until(1000)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint16, np.int64, np.uint64])
def test_numbers_of_numpy_become_pythons(kind: type[np.integer[Any]]) -> None:
    job = spec(nodes=kind(2), time_limit_s=kind(60), priority=kind(7), held=np.bool_(True))
    assert (type(job.nodes), type(job.time_limit_s), type(job.priority), job.held) == (
        int,
        int,
        int,
        True,
    )
    assert job == spec(nodes=2, time_limit_s=60, priority=7, held=True)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [1, 0, None, "yes", 1.0])
def test_flags_are_true_or_false(name: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=f"^{name} is .*; give True or False"):
        spec(**{name: value})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [1, b"x", ("x",), "\udc80"])
def test_texts_are_text(name: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=f"^{name} is "):
        spec(**{name: value})


@pytest.mark.parametrize("name", ["user", "dependency", "comment", "account", "constraint"])
def test_texts_that_must_be_there(name: str) -> None:
    with pytest.raises(InvalidJob, match=f"^{name} is None; give a string"):
        spec(**{name: None})


def test_ids_in_dependencies_are_bounded_too() -> None:
    with pytest.raises(InvalidJob, match="at most 15 digits"):
        spec(dependency="afterany:99999999999999999999")


odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)
)


@given(st.sampled_from([*WHOLE, *FLAGS, *TEXTS]), odd)
def test_whatever_is_given_is_simulated_or_refused(name: str, value: object) -> None:
    try:
        job = spec(**{name: value})
        sim = Simulator(whole_nodes(2), [job])
    except InvalidJob:
        return
    sim.run_until(100)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nodes", [2**40], "at most 2,147,483,647"),
        ("nodes", [1.0], "a column of float64; give integers"),
        ("nodes", [True], "a column of bool"),
        ("runtime_s", np.array([2**64 - 1], np.uint64), "18446744073709551615; give at most"),
        ("runtime_s", [2**70], "a column of object"),
        ("exit_code", [-1], "at least 0"),
        ("exclusive", [2], "at most 1"),
        ("cpus_per_node", [0], "at least 1"),
        ("user", ["a", None], "None among the values"),
        ("qos", [5], "5 among the values"),
    ],
)
def test_columns(name: str, value: Any, words: str) -> None:
    columns: dict[str, Any] = {
        "submit_s": [0],
        "nodes": [1],
        "time_limit_s": [60],
        "runtime_s": [5],
    }
    with pytest.raises(InvalidJob, match=words) as caught:
        JobTable(**(columns | {name: value}))
    assert name in str(caught.value)


def test_a_million_jobs_are_checked_in_seconds() -> None:
    job = spec(time_limit_s=3600, runtime_s=5, submit_s=9, job_id=3, partition="p")
    begun = time.process_time()
    for _ in range(20_000):
        job.__post_init__()
    assert time.process_time() - begun < 1.2
