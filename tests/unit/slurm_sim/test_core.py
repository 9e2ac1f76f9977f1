"""The C++ core and the reference agree exactly: same clusters, same jobs, same calls, same answers."""

from __future__ import annotations

import ast
import copy
import pickle
import random
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slurm_sim
from slurm_sim.config import (
    YEAR_S,
    Association,
    ClusterConfig,
    NodeSpec,
    Params,
    Partition,
    Qos,
    SelectType,
    make_nodes,
    whole_nodes,
)
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import JobRecord, JobSpec, State
from slurm_sim.workload import generate, load_model
from tests.reference.simulator import ReferenceSimulator as Reference
from tests.sim_random import (
    Dice,
    accepted,
    call,
    calls,
    config,
    episodes,
    everything,
    listen,
    long_queue,
    specs,
    table,
)

pytest.importorskip("slurm_sim.core._core", reason="the C++ core is not built")
from slurm_sim.core import _core
from slurm_sim.simulator import Simulator
from slurm_sim.table import JobTable


@pytest.mark.parametrize("select_type", list(SelectType))
@pytest.mark.parametrize("own_s", [None, 300])
def test_jobs_that_may_run_on_without_end(select_type: SelectType, own_s: int | None) -> None:
    """OverTimeLimit=UNLIMITED; no job here comes to its limit and a year."""
    params = Params(select_type=select_type, over_time_limit_s=YEAR_S, bf_resolution_s=1)
    names = ("n1", "n2", "n3", "n4")
    partitions = (Partition("all", names), Partition("own", names[2:], over_time_limit_s=own_s))
    dice = random.Random(5)
    jobs = [
        JobSpec(
            dice.randint(1, 2),
            limit_s := dice.choice([300, 600, 1800]),
            dice.choice([limit_s // 2, 3 * limit_s]),
            partition=dice.choice(["all", "own"]),
            submit_s=dice.randint(0, 5000),
        )
        for _ in range(40)
    ]
    agree(ClusterConfig(make_nodes(4), partitions, params), jobs, [(500, "sample", 0, 0)] * 30)


def dice_of(draw: st.DrawFn) -> Dice:
    return lambda least, most: draw(st.integers(least, most))


@st.composite
def situations(draw: st.DrawFn, rich: bool, exact: bool = False) -> tuple[object, ...]:
    dice = dice_of(draw)
    cluster = config(dice, rich)
    return (
        cluster,
        accepted(cluster, specs(dice, cluster, rich, exact=exact)),
        calls(dice),
    )


def both(cluster: ClusterConfig, jobs: list[JobSpec]) -> tuple[Reference, Simulator] | None:
    """A simulation by each; None if both refuse the jobs (as waiting for each other) in the same
    words.
    """
    found = []
    for simulator in (Reference, Simulator):
        try:
            found.append(simulator(cluster, jobs))
        except SimulationError as error:
            found.append((type(error), str(error)))
    if isinstance(found[0], tuple):
        assert found[0] == found[1]
        return None
    return found[0], found[1]


def agree(
    cluster: ClusterConfig, jobs: list[JobSpec], script: list[tuple[int, str, int, int]]
) -> None:
    pair = both(cluster, jobs)
    if pair is None:
        return
    pairs = [pair]
    for seconds, name, subject, number in script:
        for reference, core in pairs:
            reference.step(seconds)
            core.step(seconds)
            assert everything(reference) == everything(core)
            assert call(reference, name, subject, number) == call(core, name, subject, number)
        if name == "fork" and len(pairs) < 3:
            pairs.append((pairs[0][0].fork(), pairs[0][1].fork()))
    for reference, core in pairs:
        assert reference.run() == core.run()
        assert everything(reference) == everything(core)


@pytest.mark.parametrize(("longer_s", "start_s"), [(None, 30), (1, 630), (45, 30)])
def test_ends_that_count_as_one_grow_by_bf_window_linear(
    longer_s: int | None, start_s: int
) -> None:
    """Jobs 1 to 3 end at 603, 683 and 688 s. For job 4 that of 1 is one group, from 630 s on; the
    next, up to 690 s if the window doubles, is 2 and 3, so that it is given n1 to n3, and n4 is
    left to job 5; with 2 alone n4 is kept.
    """
    params = Params(
        select_type=SelectType.CONS_TRES,
        memory_is_consumable=False,
        bf_resolution_s=1,
        bf_window_linear_s=longer_s,
        priority_multifactor=False,
    )
    nodes = make_nodes(4, cpus=1)
    cluster = ClusterConfig(nodes, (Partition("p", tuple(node.name for node in nodes)),), params)
    jobs = [JobSpec(1, limit_s, limit_s, submit_s=0) for limit_s in (600, 680, 685)]
    jobs += [JobSpec(3, 600, 600, submit_s=1), JobSpec(1, 900, 900, submit_s=2)]
    for sim in (Reference(cluster, jobs), Simulator(cluster, jobs)):
        sim.run_until(700)
        assert [sim.job(number).start_s for number in (1, 2, 3, 5)] == [3, 3, 3, start_s]


@pytest.mark.parametrize(("busy_first", "start_s"), [(False, 603), (True, 30)])
def test_with_bf_busy_nodes_later_starts_are_planned_on_nodes_in_use(
    busy_first: bool, start_s: int
) -> None:
    """Jobs 1 and 2 have n3 and n4 until about 600 s, when job 3 can have three of the four nodes:
    the first ones, or n3 and n4 and one more, so that n2 is left to job 4.
    """
    params = Params(
        select_type=SelectType.CONS_TRES,
        memory_is_consumable=False,
        bf_busy_nodes=busy_first,
        priority_multifactor=False,
    )
    nodes = tuple(
        replace(node, features=("b",) if node.name in ("n3", "n4") else ())
        for node in make_nodes(4, cpus=1)
    )
    cluster = ClusterConfig(nodes, (Partition("p", tuple(node.name for node in nodes)),), params)
    jobs = [JobSpec(1, limit_s, limit_s, submit_s=0, constraint="b") for limit_s in (598, 597)]
    jobs += [JobSpec(3, 600, 600, submit_s=1), JobSpec(1, 900, 900, submit_s=2)]
    for sim in (Reference(cluster, jobs), Simulator(cluster, jobs)):
        sim.run_until(700)
        assert sim.job(4).start_s == start_s


@given(situations(rich=True))
@settings(max_examples=12, deadline=None)  # scripts/fuzz-core tries more
def test_all_rules(
    situation: tuple[ClusterConfig, list[JobSpec], list[tuple[int, str, int, int]]],
) -> None:
    agree(*situation)


@given(situations(rich=False))
@settings(max_examples=12, deadline=None)
def test_whole_nodes(
    situation: tuple[ClusterConfig, list[JobSpec], list[tuple[int, str, int, int]]],
) -> None:
    agree(*situation)


@given(situations(rich=False, exact=True))
@settings(max_examples=10, deadline=None)
def test_jobs_that_run_up_to_their_limits(
    situation: tuple[ClusterConfig, list[JobSpec], list[tuple[int, str, int, int]]],
) -> None:
    agree(*situation)


@pytest.mark.long
def test_a_long_queue() -> None:
    """Many jobs wait, so plans are long, and most passes can be left out."""
    rng = np.random.default_rng(7)
    jobs = [
        JobSpec(
            int(nodes),
            int(limit_s),
            int(limit_s * part),
            submit_s=int(submit_s),
            user="ab"[number % 2],
        )
        for number, (nodes, limit_s, part, submit_s) in enumerate(
            zip(
                rng.choice([1, 1, 2, 4, 9, 16], 110),
                rng.choice([300, 900, 2700, 9000], 110),
                rng.choice([0.1, 0.5, 1.0, 1.0], 110),
                np.sort(rng.integers(0, 20_000, 110)),
                strict=True,
            )
        )
    ]
    for params in (
        Params(priority_multifactor=False, bf_max_job_test=30),
        Params(bf_cycle_us=40_000),
    ):
        cluster = whole_nodes(20, params)
        reference, core = Reference(cluster, jobs), Simulator(cluster, jobs)
        for _ in range(3):
            reference.step(10_000)
            core.step(10_000)
            assert everything(reference) == everything(core)
        assert reference.run() == core.run()
        assert everything(reference) == everything(core)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 2, 3, 4, 5))]
)
def test_more_long_queues(seed: int) -> None:
    rng = random.Random(seed)
    agree(*long_queue(rng.randint), calls(rng.randint))


def arriving(seed: int, rules: bool, tested: int) -> tuple[ClusterConfig, list[JobSpec]]:
    """Four times what 256 nodes can do in a few hours; `rules`: shared nodes, two partitions,
    fairshare, a limit.
    """
    found = generate(load_model("lublin_256"), seed, 3 * 86400, load=4.0).jobs.head(800)
    rng = np.random.default_rng(seed)
    cluster = whole_nodes(256, Params(priority_multifactor=False, bf_max_job_test=tested))
    if rules:
        nodes = make_nodes(256, cpus=48, gpus=3)
        names = tuple(node.name for node in nodes)
        cluster = ClusterConfig(
            nodes,
            (Partition("all", names), Partition("short", names[:128], priority_tier=2)),
            Params(SelectType.CONS_TRES, bf_max_job_test=tested, priority_weight_fairshare=5000),
            qos=(Qos("normal", max_jobs_per_user=20),),
            associations=tuple(Association(f"a{number}", shares=1 + number) for number in range(6)),
        )
    jobs = list[JobSpec]()
    for nodes_of, limit_s, runtime_s, submit_s in zip(
        found.nodes, found.timelimit_s, found.runtime_s, found.submit, strict=True
    ):
        user = int(min(rng.zipf(1.4) - 1, 59))
        job = JobSpec(int(nodes_of), int(limit_s), int(runtime_s), submit_s=int(submit_s))
        if rules:
            gpus = 3 if nodes_of > 1 else int(rng.integers(1, 4))
            partition = "short" if nodes_of <= 128 and rng.random() < 0.2 else "all"
            whose = {"user": f"u{user}", "account": f"a{user % 6}", "partition": partition}
            job = replace(job, cpus_per_node=16 * gpus, gpus_per_node=gpus, **whose)
        jobs.append(job)
    return cluster, jobs


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("rules", "tested"), [(False, 60), (True, 60), (True, 500)])
def test_passes_that_are_left_out_would_have_changed_nothing(
    seed: int, rules: bool, tested: int
) -> None:
    cluster, jobs = arriving(seed, rules, tested)
    quick, thorough = Simulator(cluster, jobs), Simulator(cluster, jobs)
    thorough._core.thorough = True
    for _ in range(10):
        quick.step(9_000)
        thorough.step(9_000)
        assert quick.pending() == thorough.pending()
    quick.run()
    thorough.run()
    assert np.array_equal(quick.results().start_s, thorough.results().start_s)
    assert quick.timers() == thorough.timers()


def fresh(cluster: ClusterConfig) -> list[Any]:
    return [Reference(cluster), Simulator(cluster)]


def test_a_job_that_asks_for_other_nodes_recalculates_no_sizes() -> None:
    """Where nodes differ in CPUs, sizes are as tests have told by the last recalculation of all
    priorities.
    """
    nodes = tuple(NodeSpec(f"n{number}", cpus=4 if number == 1 else 8) for number in range(6))
    found = []
    for sim in fresh(
        ClusterConfig(
            nodes, (Partition("p", tuple(node.name for node in nodes), default_time_s=600),)
        )
    ):
        sim.submit(JobSpec(3, 60, 60))
        other = sim.submit(JobSpec(1, held=True))
        sim.step(10)
        sim.submit(JobSpec(6, 600, 100))
        sim.resize(other, 3)
        sim.submit(JobSpec(4, runtime_s=100))
        sim.submit(JobSpec(4, runtime_s=100, cpus_per_node=4))
        sim.run()
        found.append([(job.job_id, job.start_s) for job in sim.finished()])
    assert found == [[(1, 3), (3, 63), (5, 163), (4, 263)]] * 2


def test_the_reason_of_a_job_in_two_partitions_after_a_pass_that_sees_one_of_its_turns() -> None:
    """Of two turns the pass over the whole queue tells it Resources, the others, which see one,
    Priority.
    """
    nodes = tuple(
        NodeSpec(f"n{number}", weight=weight) for number, weight in enumerate((1, 5, 5, 1))
    )
    partitions = (
        Partition("p0", ("n0", "n1", "n2", "n3"), default_time_s=600),
        Partition("p1", ("n0",)),
    )
    found = []
    for sim in fresh(ClusterConfig(nodes, partitions, Params(default_queue_depth=1))):
        sim.run_until(630)
        for spec in (JobSpec(2), JobSpec(2), JobSpec(1, partition="p0,p1")):
            sim.submit(spec)
        sim.node_down("n2")
        sim.submit(JobSpec(3, submit_s=667, begin_s=1137))
        sim.step(60)
        found.append([(job.job_id, job.reason) for job in sim.pending()])
    assert found == [[(2, "Resources"), (3, "Priority"), (4, "BeginTime")]] * 2


def test_a_new_user_changes_the_priority_of_who_waits() -> None:
    found = []
    for sim in fresh(whole_nodes(8, Params(priority_weight_fairshare=1000))):
        sim.submit(JobSpec(5, 60, user="u"))
        sim.run_until(105)
        waits = sim.submit(JobSpec(1, 600, user="u", begin_s=605))
        before = sim.job(waits).priority
        sim.submit(JobSpec(4, 600, held=True))
        sim.run_until(105)
        found.append((before, sim.job(waits).priority))
    assert found == [(1125, 625)] * 2


def test_wide_jobs_that_have_no_place() -> None:
    """Six jobs ask for all nodes while one is down; the next one's reservation decides what the
    last one gets.
    """
    jobs = [
        JobSpec(4, 90_000, 80_000),
        JobSpec(3, 40_000, 40_000),
        *(JobSpec(10, 3600, 60, submit_s=100) for _ in range(6)),
        JobSpec(5, None, 500, submit_s=200),
        JobSpec(1, 50_000, 500, submit_s=300),
    ]
    cluster = whole_nodes(10, Params(priority_multifactor=False, bf_cycle_us=0))
    reference, core = Reference(cluster, jobs), Simulator(cluster, jobs)
    for sim in (reference, core):
        sim.step(50)
        sim.node_down("n10")
        sim.run()
    assert everything(reference) == everything(core)


def test_hooks_hear_the_same() -> None:
    def listen(sim: Reference | Simulator) -> list[tuple[int, JobRecord]]:
        heard = list[tuple[int, JobRecord]]()

        def started(job: JobRecord) -> None:
            heard.append((sim.now_s, job))
            if job.job_id == 1:
                sim.submit(JobSpec(2, 600, 60))
                sim.cancel(2)

        sim.on_start.append(started)
        sim.on_end.append(lambda job: heard.append((sim.now_s, job)))
        sim.run()
        return heard

    jobs = [JobSpec(1, 600, 100), JobSpec(1, 600, 100), JobSpec(4, 600, 700, submit_s=50)]
    assert listen(Reference(whole_nodes(4), jobs)) == listen(Simulator(whole_nodes(4), jobs))


@pytest.mark.parametrize("seed", range(3))
def test_hooks_that_call_the_simulator_and_jobs_of_a_table(seed: int) -> None:
    """More of these: tests/fuzz_core.py."""
    dice = random.Random(seed).randint
    cluster = config(dice)
    jobs = table(cluster, accepted(cluster, specs(dice, cluster, most=40)))
    reference, core = Reference(cluster, jobs), Simulator(cluster, jobs)
    heard, other = listen(reference), listen(core)
    assert reference.run() == core.run()
    assert everything(reference) == everything(core)
    assert len(heard) > 3
    assert heard == other


@pytest.mark.parametrize("seed", range(3))
def test_episodes_on_random_clusters(seed: int) -> None:
    dice = random.Random(seed).randint
    cluster = config(dice)
    jobs = table(cluster, accepted(cluster, specs(dice, cluster)))
    shown = episodes(Reference, cluster, jobs, seed)
    assert isinstance(shown, list)
    assert episodes(Simulator, cluster, jobs, seed) == shown


def test_a_table_is_as_its_jobs() -> None:
    cluster = ClusterConfig(
        make_nodes(8),
        (
            Partition("a", ("n1", "n2", "n3", "n4")),
            Partition("b", ("n3", "n4", "n5", "n6", "n7", "n8")),
        ),
    )
    rng = np.random.default_rng(3)
    table = JobTable(
        submit_s=rng.integers(0, 9000, 60),
        nodes=rng.integers(1, 4, 60),
        time_limit_s=rng.choice([600, 3600, -1], 60),
        runtime_s=rng.choice([60, 1200, 5000], 60),
        user=[f"u{number % 5}" for number in range(60)],
        partition=list(rng.choice(["a", "b"], 60)),
        cancel_s=rng.choice([-1, -1, 9000], 60),
    )
    reference, core = Reference(cluster, table), Simulator(cluster, table)
    assert reference.run() == core.run()
    assert reference.finished() == core.finished()
    results = core.results()
    by_id = {job.job_id: job for job in reference.finished()}
    assert results.end_s.tolist() == [by_id[int(job_id)].end_s for job_id in results.job_id]
    assert [list(State)[state] for state in results.state] == [
        by_id[int(job_id)].state for job_id in results.job_id
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": [1, 0, 1]}, "job 1 of the table: nodes is 0; give at least 1"),
        ({"nodes": [1, 1, 5]}, "job 2 of the table: 5 nodes asked for; partition 'batch' has 4"),
        ({"runtime_s": [1, 1]}, r"runtime_s: \(2,\) values; give 3, as submit_s"),
        ({"submit_s": [0, -5, 0]}, "job 1 of the table: submit_s is -5; give at least 0"),
        ({"job_id": [4, 5, 4]}, "job_id 4 is there more than once"),
        ({"nodes": [1.0, 1.0, 1.0]}, "nodes: a column of float64; give integers"),
        (
            {"partition": ["batch", "x", "batch"]},
            "job 1 of the table: partition 'x' does not exist",
        ),
    ],
)
def test_impossible_tables(change: dict[str, object], message: str) -> None:
    columns = {
        "submit_s": [0, 1, 2],
        "nodes": [1, 1, 1],
        "time_limit_s": [60] * 3,
        "runtime_s": [9] * 3,
    }
    with pytest.raises(InvalidJob, match=message):
        Simulator(whole_nodes(4), JobTable(**{**columns, **change}))  # type: ignore[arg-type]


def test_results_before_the_end() -> None:
    sim = Simulator(
        whole_nodes(1), [JobSpec(1, 600, 100), JobSpec(1, 600, 100), JobSpec(1, 600, submit_s=9000)]
    )
    sim.step(50)
    results = sim.results()
    assert results.start_s.tolist() == [3, -1, -1]
    assert results.end_s.tolist() == [-1, -1, -1]
    assert results.state.tolist() == [1, 0, -1]


def test_forks_of_forks_share_nothing_that_changes() -> None:
    jobs = [JobSpec(1 + number % 3, 900, 600, submit_s=20 * number) for number in range(40)]
    sim, whole = Simulator(whole_nodes(4), jobs), Simulator(whole_nodes(4), jobs)
    whole.run()
    branches = []
    while sim.next_event_s() is not None:
        sim.step(700)
        branch = sim.fork()
        branch.submit(JobSpec(4, 600, 600))
        branches.append((branch, sim.fork()))
    for branch, twin in branches:
        twin.run()
        branch.run()
        assert twin.finished() == whole.finished()
        assert branch.job(41).state is State.COMPLETED
    assert sim.finished() == whole.finished()


@pytest.mark.parametrize("kind", [Simulator, Reference])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_fork(kind: type[Reference], copied: Callable[[Reference], Reference]) -> None:
    sim = kind(whole_nodes(2), [JobSpec(1, 600, 300)])
    sim.on_start.append(lambda _job: None)
    twin = copied(sim)
    assert type(twin) is kind
    assert twin.on_start == []
    sim.run()
    assert (sim.now_s > 0, twin.now_s) == (True, 0)
    twin.run()
    assert everything(twin) == everything(sim)


@pytest.mark.parametrize("kind", [Simulator, Reference])
def test_pickling_says_what_to_do_instead(kind: type[Reference]) -> None:
    with pytest.raises(
        TypeError,
        match=r"a simulation can't be pickled; make it again .* or within this process fork",
    ):
        pickle.dumps(kind(whole_nodes(2)))


def test_threads_do_not_disturb_each_other() -> None:
    jobs = [JobSpec(1 + number % 5, 900, 600, submit_s=20 * number) for number in range(300)]
    alone = Simulator(whole_nodes(8), jobs)
    warm = alone.fork()
    warm.step(3000)
    alone.run()
    twins = [warm.fork() for _ in range(4)]
    threads = [threading.Thread(target=twin.run) for twin in twins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(twin.finished() == alone.finished() for twin in twins)


def test_more_nodes_than_a_word_has_bits() -> None:
    """Each engine has sets of nodes of another size."""
    for count in (64, 65, 128, 129, 256, 257, 1024, 1025, 4096, 4097):
        many = 12 if count < 1000 else 4
        jobs = [
            JobSpec(1 + 737 * number % count, 900, 60 * number, submit_s=9 * number)
            for number in range(many)
        ]
        cluster = whole_nodes(count, replace(Params(), bf_interval_s=50))
        reference, core = Reference(cluster, jobs), Simulator(cluster, jobs)
        assert reference.run() == core.run()
        assert reference.finished() == core.finished()


def test_the_stub_has_what_the_core_has() -> None:
    """mypy's stubtest says more, but of nanobind's classes and functions as such."""
    stub = ast.parse(Path(slurm_sim.__file__).parent.joinpath("core", "_core.pyi").read_text())
    told = {
        item.name: item for item in stub.body if isinstance(item, (ast.ClassDef, ast.FunctionDef))
    }
    assert set(told) == {name for name in vars(_core) if not name.startswith("_")}
    for name, item in told.items():
        if isinstance(item, ast.ClassDef):
            fields = {each.target.id for each in item.body if isinstance(each, ast.AnnAssign)}  # type: ignore[union-attr]
            methods = {each.name for each in item.body if isinstance(each, ast.FunctionDef)} - {
                "__init__"
            }
            assert fields | methods == {
                each for each in vars(getattr(_core, name)) if not each.startswith("_")
            }, name


def crowded(count: int) -> Simulator:
    """Takes a while."""
    return Simulator(
        whole_nodes(64),
        [JobSpec(1 + n % 40, 7200, 3000 + n % 977, submit_s=n) for n in range(count)],
    )


def test_another_thread_can_not_use_a_running_simulation() -> None:
    sim = crowded(2_000)
    runner = threading.Thread(target=sim.run)
    runner.start()
    refused = ""
    while runner.is_alive() and not refused:
        try:
            sim.pending()
        except SimulationError as error:
            refused = str(error)
    runner.join()
    assert "running in another thread" in refused
    assert not sim.pending()


def test_ctrl_c_ends_a_run_between_two_events() -> None:
    sim, whole = crowded(4_000), crowded(4_000)
    whole.run()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            sim.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sim.now_s < whole.now_s
    sim.run()
    assert np.array_equal(sim.results().start_s, whole.results().start_s)


WORKED_OUT_IN_PYTHON = {
    "default_memory_per_cpu_mib",
    "default_memory_per_node_mib",
    "bf_node_space_size",
    "priority_weight_partition",
    "priority_weight_qos",
    "no_normal_part",
    "no_normal_qos",
    "priority_decay_half_life_s",
}
"""Parameters whose effect both engines get with each job or under another name."""


def test_the_core_reads_every_parameter_and_the_random_clusters_draw_it():
    """A new one would else be silently without effect in the core."""
    root = Path(slurm_sim.__file__).parents[1]
    names = {field.name for field in fields(Params)}
    read = (root / "slurm_sim" / "core" / "bindings.cpp").read_text()
    assert {name for name in names if f'"{name}"' not in read} == WORKED_OUT_IN_PYTHON
    drawn = (root / "tests" / "sim_random.py").read_text()
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", drawn)] == []
