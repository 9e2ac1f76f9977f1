"""Inference: what was put into a trace is found, what was not is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim import Simulator
from slurm_sim.config import (
    ClusterConfig,
    NodeAction,
    Params,
    Partition,
    Qos,
    SelectType,
    named_nodes,
)
from slurm_sim.traces import Trace, TraceError, make_trace, read_trace, write_trace
from slurm_sim.traces.capacity import NodeStep, infer_nodes
from slurm_sim.traces.chains import infer_chains
from slurm_sim.traces.guess import guessed_cluster, node_changes
from slurm_sim.traces.inference import infer, node_curve, with_dependencies
from slurm_sim.traces.usage import Steps
from slurm_sim.traces.users import UserLimit, infer_limit

SHARED = Path(__file__).parents[4] / "shared" / "traces"
HOUR = 3600
DAY = 24 * HOUR


def trace(jobs: list[dict[str, Any]]) -> Trace:
    base = {
        "user": "ann",
        "partition": "",
        "timelimit_s": HOUR,
        "nodes": 1,
        "gpus": 0,
        "cpus": 1,
        "state": "COMPLETED",
    }
    return make_trace(
        pd.DataFrame([base | {"job_id": str(number)} | job for number, job in enumerate(jobs, 1)])
    )


def full_cluster(sizes: list[tuple[int, int]]) -> Trace:
    """Each (nodes, days): always full of one-node jobs of 2 hours by ten users, six of them waiting
    long each time.
    """
    jobs, now = [], 0
    for nodes, days in sizes:
        for start in range(now, now + days * DAY, 2 * HOUR):
            for node in range(nodes):
                jobs.append(
                    {
                        "user": f"u{node % 10}",
                        "submit": max(start - 5 * HOUR, 0),
                        "start": start,
                        "end": start + 2 * HOUR,
                    }
                )
        now += days * DAY
    return trace(jobs)


def test_steps_of_a_full_cluster_are_found_to_the_second() -> None:
    found = infer_nodes(full_cluster([(12, 4), (20, 5), (8, 4)]))
    assert [(step.time, step.nodes) for step in found] == [(0, 12), (4 * DAY, 20), (9 * DAY, 8)]
    assert all(step.at_level_h == step.contended_h > 0 for step in found[1:])


def test_the_guessed_cluster_has_the_steps() -> None:
    log = full_cluster([(12, 4), (20, 5), (8, 4)])
    cluster = guessed_cluster(log, infer(log))
    assert len(cluster.nodes) == 20
    assert [partition.name for partition in cluster.partitions] == ["batch"]
    sim = Simulator(cluster)
    for time_s, nodes in (
        (0, 12),
        (4 * DAY - 1, 12),
        (4 * DAY, 20),
        (9 * DAY - 1, 20),
        (9 * DAY, 8),
    ):
        sim.run_until(time_s)
        assert sim.sample().up_nodes == nodes


def test_the_guessed_cluster_has_the_logs_names_and_limit() -> None:
    names = [{"partition": "a"}, {"partition": "b"}, {"partition": "b"}, {"partition": ""}]
    jobs = [
        {"submit": 0, "start": number, "end": 5 * HOUR, "qos": "high"} | name
        for number, name in enumerate(names)
    ]
    log = trace(jobs)
    found = replace(infer(log), limit=UserLimit(3, 9, 0, 0, 0, 0.0))
    cluster = guessed_cluster(log, found)
    assert [partition.name for partition in cluster.partitions] == ["b", "a"]
    assert [(qos.name, qos.max_jobs_per_user) for qos in cluster.qos] == [("high", 3)]


def test_the_guessed_scheduler_is_what_sites_have_and_marked_as_assumed() -> None:
    log = full_cluster([(3, 1)])
    cluster = guessed_cluster(log, infer(log))
    assert cluster.scheduler_is_assumed
    assert cluster.params.priority_multifactor
    assert cluster.params.priority_weight_age == cluster.params.priority_weight_fairshare == 10_000


def test_the_sites_scheduler_and_limits_go_before_what_is_assumed() -> None:
    log = full_cluster([(3, 1)])
    nodes = named_nodes(["a", "b"])
    site = ClusterConfig(
        nodes,
        (
            Partition("other", ("a",)),
            Partition("batch", ("a", "b"), max_time_s=7200, priority_tier=3),
        ),
        Params(priority_weight_age=77, select_type=SelectType.CONS_TRES, threads_per_core=1),
        qos=(Qos("normal", max_jobs_per_user=5),),
    )
    cluster = guessed_cluster(log, infer(log), site)
    assert not cluster.scheduler_is_assumed
    assert (cluster.params.priority_weight_age, cluster.params.select_type) == (
        77,
        SelectType.LINEAR,
    )
    (batch,) = cluster.partitions
    assert (batch.name, len(batch.nodes), batch.max_time_s, batch.priority_tier) == (
        "batch",
        3,
        7200,
        3,
    )
    assert cluster.qos[0].max_jobs_per_user == 5


@pytest.mark.parametrize("source", ["/data/site.2023.csv.gz", "site.2023.parquet"])
def test_the_guessed_cluster_is_named_after_the_logs_file(source: str) -> None:
    log = replace(full_cluster([(3, 1)]), source=source)
    assert guessed_cluster(log, infer(log)).name == "site.2023"


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=6))
def test_any_steps(steps: list[tuple[int, int]]) -> None:
    times = np.cumsum([gap for gap, _ in steps]).tolist()
    found = [NodeStep(at, nodes, 0, 0) for at, (_, nodes) in zip(times, steps, strict=True)]
    names = [f"n{number}" for number in range(9)]
    for step, until in zip(found, [*times[1:], times[-1] + 1], strict=True):
        up = dict.fromkeys(names, True)
        for change in node_changes(found, names):
            if change.time_s < until:
                up[change.node] = change.action is NodeAction.RESUME
        assert [name for name in names if up[name]] == names[: step.nodes]


def test_an_idle_spell_without_a_queue_is_not_a_smaller_cluster() -> None:
    busy = full_cluster([(12, 3)]).jobs
    later = full_cluster([(12, 3)]).jobs
    later[["submit", "start", "end"]] += 8 * DAY
    later["job_id"] = "b" + later["job_id"]
    quiet = trace([{"job_id": "q", "submit": 4 * DAY, "start": 4 * DAY, "end": 7 * DAY}]).jobs
    found = infer_nodes(make_trace(pd.concat([busy, quiet, later])))
    assert [step.nodes for step in found] == [12]


def sequence(user: str, begin: int, gap: int, count: int, run: int = 5000) -> list[dict[str, Any]]:
    """Jobs submitted together that start ``gap`` s after the one before ends."""
    return [
        {
            "user": user,
            "submit": begin,
            "start": begin + k * (run + gap),
            "end": begin + k * (run + gap) + run,
        }
        for k in range(count)
    ]


def test_chains_are_found_and_chance_is_not() -> None:
    jobs = [job for k in range(40) for job in sequence(f"c{k}", k * 7000, 30, 5)]
    rng = np.random.default_rng(1)
    for number in range(400):  # jobs that wait for nobody
        begin = int(rng.integers(0, 40 * 7000))
        jobs.append(
            {"user": f"o{number % 20}", "submit": begin, "start": begin + 5, "end": begin + 4000}
        )
    done = trace(jobs)
    chains = infer_chains(done, Steps(np.array([0.0]), np.array([200.0])))
    assert chains.links == 160
    assert chains.lengths().tolist() == [5] * 40
    assert chains.by_chance == 0
    before = chains.predecessor
    linked = np.flatnonzero(before >= 0)
    assert (done.text("user")[linked] == done.text("user")[before[linked]]).all()
    filled = with_dependencies(done, infer(done))
    first = filled.jobs["job_id"][before[linked[0]]]
    assert filled.jobs["dependency"][linked[0]] == f"afterany:{first}"


def test_a_wait_for_nodes_is_no_dependency() -> None:
    """Two jobs of one user on a full cluster: the second starts when any job ends, here its user's
    own.
    """
    jobs = [
        *sequence("ann", 0, 10, 2),
        {"user": "bob", "nodes": 9, "submit": 0, "start": 0, "end": 3 * HOUR},
    ]
    assert infer_chains(trace(jobs), Steps(np.array([0.0]), np.array([10.0]))).links == 0
    assert infer_chains(trace(jobs), Steps(np.array([0.0]), np.array([20.0]))).links == 1


def limited(users: int, limit: int) -> list[dict[str, Any]]:
    """Users with 12 equal jobs each, of which only so many run at once."""
    return [
        {
            "user": f"u{user}",
            "submit": user * 100,
            "start": user * 100 + k // limit * 4000,
            "end": user * 100 + (k // limit + 1) * 4000,
        }
        for user in range(users)
        for k in range(12)
    ]


def test_a_running_limit_is_found_with_its_evidence() -> None:
    jobs = limited(8, 4) + [
        {"user": f"v{k}", "submit": k, "start": k, "end": k + 50} for k in range(30)
    ]
    limit = infer_limit(trace(jobs), Steps(np.array([0.0]), np.array([500.0])))
    assert limit is not None
    assert (limit.jobs, limit.users_at, limit.users_above) == (4, 8, 0)
    assert limit.blocked_jobs == 64
    assert limit.blocked_while_idle == 1.0
    found = infer(trace(jobs))
    assert found.max_jobs_per_user == 4
    assert found.chains.links == 0  # hand-overs at the limit are no dependencies


def test_peaks_without_a_common_value_are_no_limit() -> None:
    jobs = [
        {"user": f"u{user}", "submit": 0, "start": 0, "end": 100}
        for user in range(20)
        for _job in range(1 + user % 9)
    ]
    assert infer_limit(trace(jobs)) is None


@pytest.mark.parametrize("ids", [True, False])
def test_an_array_throttle_is_found_with_and_without_array_ids(ids: bool) -> None:
    tasks = [
        {
            "job_id": f"7_{k}" if ids else f"{k}",
            "user": "",
            "submit": 0,
            "start": k // 3 * 2000,
            "end": (k // 3 + 1) * 2000,
        }
        for k in range(30)
    ]
    other = [
        {
            "job_id": f"o{k}",
            "user": "",
            "nodes": 20,
            "submit": k * 2000,
            "start": k * 2000,
            "end": k * 2000 + 900,
        }
        for k in range(12)
    ]
    found = infer(trace(tasks + other))
    assert [(each.tasks, each.throttle) for each in found.throttles] == [(30, 3)]
    assert (found.group >= 0).sum() == 30
    assert with_dependencies(trace(tasks + other), found).column("array_throttle")[0] == 3


def test_a_trace_of_jobs_that_never_ran_tells_nothing() -> None:
    jobs = trace(
        [{"submit": k, "start": np.nan, "end": np.nan, "state": "PENDING"} for k in range(20)]
    )
    found = infer(jobs)
    assert found.as_dict()["chains"]["links"] == 0
    assert (found.max_jobs_per_user, found.node_steps, found.throttles) == (None, [], ())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "nodes",
            2_000_000_000,
            r"at most 100,000, which is more than any cluster has \(job 2\); remove its",
        ),
        ("end", 6_000_000_000, r"a time within 20 years of the log's middle, 2023-11-14 \(job 2\)"),
        ("start", 0, r"a time within 20 years"),
    ],
)
def test_one_slip_is_named_instead_of_steps_for_centuries(
    tmp_path: Path, name: str, value: int, expected: str
) -> None:
    job = {"submit": 1_700_000_000, "start": 1_700_000_010, "end": 1_700_003_600}
    log = trace([job, job | {name: value}, job])
    write_trace(log, tmp_path / "t.csv")
    with pytest.raises(TraceError, match=f"t.csv:3: {name}: found '{value}', expected {expected}"):
        infer(read_trace(tmp_path / "t.csv"))


def test_more_nodes_at_once_than_the_simulator_takes_are_no_cluster() -> None:
    job = {"submit": 0, "start": 0, "end": 5 * HOUR, "nodes": 60_000}
    log = trace([job, job])
    with pytest.raises(
        TraceError, match="found '120,000', expected jobs on at most 100,000 nodes at once"
    ):
        guessed_cluster(log, infer(log))


def test_lonestar6() -> None:
    if not (SHARED / "ls6_a100_dev.csv.gz").exists():
        pytest.skip("needs the traces in ../shared")
    found = infer(read_trace(SHARED / "ls6_a100_dev.csv.gz"))
    assert found.max_jobs_per_user == 8
    steps = dict(found.node_steps)
    nodes = node_curve(found.nodes)
    known = {1667400000: 32, 1672500000: 74, 1674000000: 80, 1676000000: 76}  # ls6_a100_dev.md
    assert {time: int(nodes.at(np.array([float(time)]))[0]) for time in known} == known
    assert 1667925908 in steps  # 2022-11-08 10:45 US/Central
    assert 1673977144 in steps  # 2023-01-17 11:39
    dimer = found.chains.predecessor[:6]  # rows of the chain that the note names
    assert dimer[3:].tolist() == [2, 3, 4]
    assert found.chains.trust > 0.8


def test_a_batch_that_was_cancelled_in_the_queue_is_no_chain() -> None:
    batch = [{"submit": 500, "start": None, "end": 900, "state": "CANCELLED"} for _ in range(10)]
    ran = [{"submit": at, "start": at + 10, "end": at + 100} for at in (1, 2000)]
    assert infer(trace([ran[0], *batch, ran[1]])).throttles == ()
