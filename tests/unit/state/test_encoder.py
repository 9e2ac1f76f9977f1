"""A snapshot's 40 variables: who counts, and the fast percentiles against the naive definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.state.encoder import JobPair, encode, vector, vectors
from mirage.state.variables import LIMIT_CAP_S, VARIABLES, capped_limit_s

NOW = 1_700_000_000
NODES = (
    ClusterNode(name="n1", partitions=("gpu", "debug"), up=True, idle=True),
    ClusterNode(name="n2", partitions=("gpu",), up=True, idle=False),
    ClusterNode(name="n3", partitions=("gpu",), up=False, idle=False),
    ClusterNode(name="c1", partitions=("cpu",), up=True, idle=True),
    ClusterNode(name="spare", partitions=(), up=True, idle=True),
)


def pending(job_id: int, **changes: object) -> Job:
    job = Job(
        job_id=job_id,
        user="u",
        partition="gpu",
        state=JobState.PENDING,
        nodes=2,
        submit_s=NOW - 900,
        time_limit_s=3600,
        reason="Priority",
        eligible_s=NOW - 600,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def running(job_id: int, **changes: object) -> Job:
    return pending(
        job_id, **({"state": JobState.RUNNING, "reason": "None", "start_s": NOW - 100} | changes)
    )


PAIR = JobPair(
    running(1, nodes=8, time_limit_s=7200),
    pending(2, eligible_s=None, reason="Dependency", nodes=4),
)


def row(*jobs: Job, pair: JobPair = PAIR, pool: str = "debug") -> dict[str, float]:
    values = vector(encode(Snapshot(at_s=NOW, jobs=jobs, nodes=NODES), pool), pair)
    return {variable.name: float(value) for variable, value in zip(VARIABLES, values, strict=True)}


def test_queued_running_pair_and_nodes() -> None:
    shown = row(
        pending(10),
        pending(11, nodes=4, eligible_s=NOW - 200),
        running(12),
        PAIR.predecessor,
        PAIR.successor,
    )
    assert shown["queued_jobs"] == 2
    assert [shown[f"queued_nodes_p{p}"] for p in (0, 25, 50, 75, 100)] == [2, 2.5, 3, 3.5, 4]
    assert [shown[f"queued_age_s_p{p}"] for p in (0, 25, 50, 75, 100)] == [200, 300, 400, 500, 600]
    assert shown["running_jobs"] == 1
    assert shown["running_elapsed_s_p50"] == 100
    assert (shown["predecessor_nodes"], shown["predecessor_limit_s"]) == (8, 7200)
    assert (shown["predecessor_wait_s"], shown["predecessor_elapsed_s"]) == (500, 100)
    assert (shown["successor_nodes"], shown["successor_limit_s"]) == (4, 3600)
    assert (shown["idle_nodes"], shown["up_nodes"]) == (1, 2)


def test_empty_lists_are_zeros() -> None:
    assert all(
        value == 0 for name, value in row().items() if name.startswith(("queued", "running"))
    )


@pytest.mark.parametrize(
    "job",
    [
        pending(10, eligible_s=None, reason="Dependency"),
        pending(10, eligible_s=None, reason="None"),  # a job let go, before Slurm has looked at it
        pending(
            10, eligible_s=NOW + 1, reason="None"
        ),  # a requeued job: it begins two minutes later
        pending(10, reason="JobHeldUser"),
        pending(10, reason="BeginTime"),
        pending(10, reason="QOSMaxJobsPerUserLimit"),
        pending(10, reason="AssocMaxJobsLimit"),
        pending(10, partition="cpu"),
        running(10, state=JobState.COMPLETING),
        running(10, state=JobState.STAGE_OUT),
        running(10, state=JobState.COMPLETED),
        running(10, partition="cpu"),
    ],
)
def test_jobs_that_do_not_count(job: Job) -> None:
    assert row(job) == row()


@pytest.mark.parametrize(
    "state", [JobState.CONFIGURING, JobState.SUSPENDED, JobState.RUNNING, JobState.RESIZING]
)
def test_jobs_that_hold_nodes_run(state: JobState) -> None:
    assert row(running(10, state=state))["running_jobs"] == 1


def test_a_job_is_queued_from_the_second_it_is_eligible() -> None:
    assert row(pending(10, eligible_s=NOW))["queued_jobs"] == 1


def test_a_list_of_partitions_belongs_to_the_pool_of_the_first() -> None:
    assert row(pending(10, partition="gpu,cpu"))["queued_jobs"] == 1
    assert row(pending(10, partition="cpu,gpu"))["queued_jobs"] == 0


def test_unlimited_and_clock_skew() -> None:
    shown = row(running(10, time_limit_s=None, start_s=NOW + 3))
    assert shown["running_limit_s_p100"] == LIMIT_CAP_S
    assert shown["running_elapsed_s_p100"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"eligible_s": None, "start_s": None}, [0, 0, 0, 0, 0, 0]),
        ({"eligible_s": NOW + 1, "start_s": None}, [0, 0, 0, 0, 0, 0]),
        ({"eligible_s": NOW, "start_s": None}, [8, 7200, 0, 0, 4, 3600]),
        ({"eligible_s": NOW - 9, "start_s": None}, [8, 7200, 9, 0, 4, 3600]),
        ({"eligible_s": NOW - 9, "start_s": NOW}, [8, 7200, 9, 0, 4, 3600]),
        ({"eligible_s": NOW - 9, "start_s": NOW - 4, "end_s": NOW - 1}, [8, 7200, 5, 3, 4, 3600]),
        ({"eligible_s": NOW - 9, "start_s": None, "end_s": NOW - 1}, [8, 7200, 8, 0, 4, 3600]),
        ({"eligible_s": None, "start_s": NOW - 4}, [8, 7200, 0, 4, 4, 3600]),
    ],
)
def test_the_pairs_columns(changes: dict[str, int | None], expected: list[int]) -> None:
    predecessor = replace(PAIR.predecessor, **changes)  # type: ignore[arg-type]
    assert list(row(pair=JobPair(predecessor, PAIR.successor)).values())[32:38] == expected


def naive(jobs: Sequence[Job], pair: JobPair) -> list[float]:
    """The first 32 columns by their definition."""
    others = [
        job for job in jobs if job.job_id not in (pair.predecessor.job_id, pair.successor.job_id)
    ]
    columns: list[float] = []
    for kind, since in ((JobState.PENDING, "eligible_s"), (JobState.RUNNING, "start_s")):
        chosen = [job for job in others if job.state is kind]
        columns.append(len(chosen))
        for values in (
            [job.nodes for job in chosen],
            [NOW - getattr(job, since) for job in chosen],
            [capped_limit_s(job.time_limit_s) for job in chosen],
        ):
            columns.extend(np.percentile(values or [0], [0, 25, 50, 75, 100]))
    return columns


@st.composite
def crowds(draw: st.DrawFn) -> list[Job]:
    """Up to a dozen jobs with few distinct values, so that equal values meet often."""
    few = st.integers(0, 3)
    kinds = draw(st.lists(st.tuples(st.booleans(), few, few, few | st.none()), max_size=12))
    make = {True: pending, False: running}
    return [
        make[waits](
            i,
            nodes=1 + nodes,
            eligible_s=NOW - since,
            start_s=None if waits else NOW - since,
            time_limit_s=limit,
        )
        for i, (waits, nodes, since, limit) in enumerate(kinds)
    ]


@given(
    crowds(),
    st.lists(
        st.tuples(st.integers(0, 13), st.integers(0, 13)).filter(lambda p: p[0] != p[1]), min_size=1
    ),
)
def test_vectors_equal_the_naive_definition(jobs: list[Job], ids: list[tuple[int, int]]) -> None:
    pairs = [JobPair(pending(predecessor), pending(successor)) for predecessor, successor in ids]
    step = encode(Snapshot(at_s=NOW, jobs=tuple(reversed(jobs)), nodes=NODES), "debug")
    expected = np.array([naive(jobs, pair) for pair in pairs], dtype=np.float32)
    assert np.array_equal(vectors(step, pairs)[:, :32], expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_vectors_equal_the_naive_definition_with_many_values(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(1, 10**6, size=(count, 3)).tolist()
    jobs = [
        pending(i, nodes=n, eligible_s=NOW - s, time_limit_s=limit)
        for i, (n, s, limit) in enumerate(numbers)
    ]
    pair = JobPair(pending(int(rng.integers(count + 1))), pending(-1))
    shown = vector(encode(Snapshot(at_s=NOW, jobs=tuple(jobs), nodes=NODES), "debug"), pair)
    assert np.array_equal(shown[:32], np.array(naive(jobs, pair), dtype=np.float32))
