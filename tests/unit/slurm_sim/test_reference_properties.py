"""The reference simulator on random clusters and workloads: what must hold whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_sim.admission import NodeRequest
from slurm_sim.config import ClusterConfig, Params, Partition, Qos, named_nodes
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobRecord, JobSpec, State
from slurm_sim.picking import pick_nodes, runs
from tests.reference.cluster import ClusterState
from tests.reference.passes import main_pass
from tests.reference.simulator import ReferenceSimulator
from tests.sims import simulator

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
MINUTE = 60
PARTITIONS = [
    Partition("all", NODES),
    Partition("left", NODES[:4], priority_tier=2),
    Partition("right", NODES[2:], max_time_s=120 * MINUTE),
]
SIZE = {partition.name: len(partition.nodes) for partition in PARTITIONS}

Call = tuple[int, Callable[[ReferenceSimulator, int], object], int]
CALLS: list[Callable[[ReferenceSimulator, int], object]] = [
    lambda sim, number: sim.cancel(number),
    lambda sim, number: sim.requeue(number),
    lambda sim, number: sim.hold(number),
    lambda sim, number: sim.release(number),
    lambda sim, number: sim.drop_dependency(number),
    lambda sim, number: sim.set_runtime_end(number, sim.now_s + 10 * number),
    lambda sim, number: sim.node_down(NODES[number % len(NODES)]),
    lambda sim, number: sim.node_up(NODES[number % len(NODES)]),
    lambda sim, number: sim.submit(JobSpec(1, number * MINUTE, number * 50)),
]


@st.composite
def specs(draw: st.DrawFn, most: int = 25) -> list[JobSpec]:
    jobs = []
    for number in range(1, draw(st.integers(1, most)) + 1):
        partition = draw(st.sampled_from(list(SIZE)))
        limit_s = MINUTE * draw(st.integers(1, 120))
        kind = (
            draw(st.sampled_from(["", "", "", "after", "afterany", "afterok"]))
            if number > 1
            else ""
        )
        jobs.append(
            JobSpec(
                nodes=draw(st.integers(1, SIZE[partition])),
                time_limit_s=limit_s,
                runtime_s=draw(st.one_of(st.none(), st.integers(0, limit_s + 100))),
                user=draw(st.sampled_from("abc")),
                partition=partition,
                submit_s=draw(st.integers(0, 5000)),
                dependency=f"{kind}:{draw(st.integers(1, number - 1))}" if kind else "",
                begin_s=draw(st.one_of(st.none(), st.integers(0, 9000))),
                held=draw(st.integers(0, 9)) == 0,
                requeue=draw(st.booleans()),
                exit_code=draw(st.integers(0, 1)),
            )
        )
    return jobs


params = st.builds(
    Params,
    sched_interval_s=st.sampled_from([30, 60]),
    batch_sched_delay_s=st.integers(0, 5),
    sched_min_interval_s=st.sampled_from([0, 0, 4, 70]),
    default_queue_depth=st.sampled_from([1, 100]),
    bf_interval_s=st.sampled_from([10, 30, 45]),
    bf_window_s=st.sampled_from([600, 86400]),
    bf_resolution_s=st.sampled_from([1, 60, 300]),
    bf_max_job_test=st.sampled_from([1, 5, 500]),
    bf_cycle_us=st.sampled_from([0, 700_000]),
    priority_max_age_s=st.sampled_from([3600, 7 * 86400]),
    accrue_always=st.booleans(),
    limit_check_s=st.sampled_from([0, 30]),
)
calls = st.lists(
    st.tuples(st.integers(0, 2000), st.sampled_from(CALLS), st.integers(1, 25)), max_size=12
)


def follow(sim: ReferenceSimulator, script: list[Call]) -> None:
    """Lets time pass and makes these calls; impossible ones are refused."""
    for seconds, call, number in script:
        sim.step(seconds)
        with suppress(SimulationError):
            call(sim, number)


def everything(sim: ReferenceSimulator) -> tuple[object, ...]:
    return (
        sim.now_s,
        sim.next_event_s(),
        sim.pending(),
        sim.running(),
        sim.finished(),
        sim.cut_short(),
        sim.outages(),
    )


@given(specs(), params, st.sampled_from([None, 1, 2]), calls)
@settings(max_examples=10, deadline=None)
def test_invariants(
    jobs: list[JobSpec], parameters: Params, most: int | None, script: list[Call]
) -> None:
    sim = simulator(
        NODES, PARTITIONS, parameters, jobs, qos=(Qos("normal", max_jobs_per_user=most),)
    )
    running: dict[int, JobRecord] = {}

    def started(record: JobRecord) -> None:
        assert record.start_s == sim.now_s
        assert len(record.node_names) == record.nodes
        assert all(
            name in next(p.nodes for p in PARTITIONS if p.name == record.partition)
            for name in record.node_names
        )
        assert not any(record.allocated & other.allocated for other in running.values())
        assert record.eligible_s is not None
        assert record.submit_s <= record.eligible_s <= record.start_s
        running[record.job_id] = record
        assert most is None or sum(other.user == record.user for other in running.values()) <= most

    def ended(record: JobRecord) -> None:
        running.pop(record.job_id, None)
        if (
            record.start_s is not None
            and record.limit_end_s is not None
            and record.end_s is not None
        ):
            assert (
                record.start_s
                <= record.end_s
                <= record.limit_end_s + max(parameters.limit_check_s, 30)
            )

    sim.on_start.append(started)
    sim.on_end.append(ended)
    follow(sim, script)
    sim.run()
    known = {record.job_id for record in (*sim.finished(), *sim.pending(), *sim.running())}
    assert known >= set(range(1, len(jobs) + 1))
    over = [record.job_id for record in sim.finished()]
    assert len(over) == len(set(over))
    dependency = ("Dependency", "DependencyNeverSatisfied")
    for record in sim.pending():
        assert record.reason in (
            "JobHeldUser",
            *dependency,
            "Resources",
            "Priority",
            "QOSMaxJobsPerUserLimit",
        )


@given(specs(), params, calls)
@settings(max_examples=10, deadline=None)
def test_the_same_input_gives_the_same_output(
    jobs: list[JobSpec], parameters: Params, script: list[Call]
) -> None:
    first, second = (simulator(NODES, PARTITIONS, parameters, jobs) for _ in range(2))
    for sim in (first, second):
        follow(sim, script)
        sim.run()
    assert everything(first) == everything(second)


@given(specs(), params, calls, calls)
@settings(max_examples=10, deadline=None)
def test_a_fork_is_exact(
    jobs: list[JobSpec], parameters: Params, script: list[Call], rest: list[Call]
) -> None:
    sim = simulator(NODES, PARTITIONS, parameters, jobs)
    follow(sim, script)
    before, twin = everything(sim), sim.fork()
    assert everything(twin) == before
    follow(twin, rest)
    twin.run()
    assert everything(sim) == before
    follow(sim, rest)
    sim.run()
    assert everything(sim) == everything(twin)


@given(specs(), st.integers(1, 20_000))
@settings(max_examples=10, deadline=None)
def test_steps_make_no_difference(jobs: list[JobSpec], step_s: int) -> None:
    sim, stepped = (simulator(NODES, PARTITIONS, Params(), jobs) for _ in range(2))
    sim.run()
    while stepped.now_s < sim.now_s:
        stepped.step(step_s)
    assert stepped.finished() == sim.finished()


@given(specs(), st.integers(0, 2**6 - 1), st.integers(0, 2**6 - 1))
@settings(max_examples=10, deadline=None)
def test_the_main_scheduler_is_strict(jobs: list[JobSpec], busy: int, down: int) -> None:
    cluster = ClusterState(ClusterConfig(named_nodes(NODES), tuple(PARTITIONS)), 0)
    cluster.pool.take(busy, NodeRequest(0, 0, 0, whole=True))
    cluster.up &= ~down
    for number, spec in enumerate(jobs, 1):
        cluster.queue.review(
            cluster.add(number, replace(spec, dependency="", begin_s=None, held=False), 0), 0
        )
    entries = cluster.queue.entries(0)
    main_pass(
        cluster,
        entries,
        full=True,
        now_s=0,
        start=lambda job, nodes: cluster.start(job, nodes, "main", 0),
    )
    queue = [entry.job for entry in entries]
    for place, job in enumerate(queue):
        left_waiting = [before for before in queue[:place] if before.state is State.PENDING]
        kept = 0
        for before in left_waiting:
            kept |= cluster.admission.masks[before.partition]
        if job.state is State.RUNNING:
            assert not job.allocated & kept
        else:
            taken = sum(before.allocated for before in queue[:place])
            free = cluster.admission.masks[job.partition] & ~busy & ~down & ~taken & ~kept
            assert free.bit_count() < job.nodes


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 120)), min_size=2, max_size=25))
@settings(max_examples=10, deadline=None)
def test_backfill_does_not_delay_the_head_of_the_queue(shapes: list[tuple[int, int]]) -> None:
    """With run times equal to limits: the first job that must wait starts as if nobody had come
    after it.
    """
    jobs = [
        JobSpec(nodes, minutes * MINUTE, minutes * MINUTE, submit_s=0) for nodes, minutes in shapes
    ]
    parameters = Params(priority_weight_age=0, priority_weight_job_size=0, limit_check_s=0)

    def starts(queue: list[JobSpec]) -> list[int]:
        sim = simulator(NODES, PARTITIONS[:1], parameters, queue)
        assert sim.run() == []
        return [sim.job(number).start_s or 0 for number in range(1, len(queue) + 1)]

    everybody = starts(jobs)
    head = next(
        (
            number
            for number, start_s in enumerate(everybody)
            if start_s > parameters.batch_sched_delay_s
        ),
        None,
    )
    if head is not None:
        alone = starts(jobs[: head + 1])
        assert everybody[head] <= alone[head] + parameters.batch_sched_delay_s


@given(st.integers(1, 2**20 - 1), st.data())
def test_picked_nodes_are_free_and_enough(free: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, free.bit_count()))
    picked = pick_nodes(free, count)
    assert picked & ~free == 0
    assert picked.bit_count() == count
    assert sum(((1 << length) - 1) << first for first, length in runs(free)) == free
    if any(length >= count for _, length in runs(free)):
        assert len(list(runs(picked))) == 1
