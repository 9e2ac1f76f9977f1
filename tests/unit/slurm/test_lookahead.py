"""A snapshot put back into a simulator goes on as the cluster that it was taken from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.daemon.tick import with_leads
from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.errors import InputError
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.config import (
    ClusterConfig,
    NodeAction,
    NodeChange,
    Params,
    Partition,
    Qos,
    SelectType,
    make_nodes,
    whole_nodes,
)
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.state import PendingJob, RunningJob
from tests.reference.simulator import ReferenceSimulator
from tests.unit.slurm_sim.test_reference_properties import MINUTE, params

SIZE = 5
EACH_SECOND = Params(
    sched_interval_s=1,
    batch_sched_delay_s=0,
    bf_interval_s=1,
    bf_resolution_s=1,
    limit_check_s=1,
    priority_calc_period_s=1,
)
"""Timers without phases: with these, a snapshot tells everything."""


@st.composite
def workloads(draw: st.DrawFn, longest_min: int, last_s: int) -> list[JobSpec]:
    jobs = []
    for number in range(1, draw(st.integers(1, 18)) + 1):
        limit_s = MINUTE * draw(st.integers(1, longest_min))
        kind = draw(st.sampled_from(["", "", "after", "afterany"])) if number > 1 else ""
        jobs.append(
            JobSpec(
                nodes=draw(st.integers(1, SIZE)),
                time_limit_s=limit_s,
                runtime_s=draw(st.one_of(st.none(), st.integers(1, limit_s))),
                user=draw(st.sampled_from("ab")),
                submit_s=draw(st.integers(0, last_s)),
                dependency=f"{kind}:{draw(st.integers(1, number - 1))}" if kind else "",
                held=draw(st.integers(0, 7)) == 0,
                begin_s=draw(st.one_of(st.none(), st.integers(0, 2 * last_s))),
            )
        )
    return jobs


def known_of(sim: ReferenceSimulator, jobs: list[JobSpec], *, timers: bool) -> Known:
    there = [*sim.running(), *sim.pending()]
    return Known(
        runtimes={
            job.job_id: job.spec.runtime_s for job in there if job.spec.runtime_s is not None
        },
        begins_s={job.job_id: job.begin_s for job in sim.pending() if job.begin_s is not None},
        priorities=False,
        timers=sim.timers() if timers else None,
    )


def put_back(sim: ReferenceSimulator, jobs: list[JobSpec], *, timers: bool) -> ReferenceSimulator:
    again = simulator_from(
        SimulatedCluster(sim).snapshot(), sim.config, known_of(sim, jobs, timers=timers)
    )
    for number, spec in enumerate(jobs, start=1):
        if (spec.submit_s or 0) > sim.now_s:
            again.submit(replace(spec, job_id=number))
    return again


def fates(sim: ReferenceSimulator, since_s: int) -> list[tuple[object, ...]]:
    jobs = [*sim.finished(since_s), *sim.running()]
    return sorted(
        (job.job_id, job.start_s, job.end_s, job.state.value, job.node_names) for job in jobs
    )


def after(sim: ReferenceSimulator, since_s: int) -> list[tuple[object, ...]]:
    """Jobs that were not over then."""
    return [fate for fate in fates(sim, since_s) if fate[2] is None or int(str(fate[2])) > since_s]


@given(workloads(60, 4000), params, st.integers(0, 8000))
@settings(max_examples=40, deadline=None)
def test_a_state_with_its_timers_goes_on_exactly(
    jobs: list[JobSpec], parameters: Params, at_s: int
) -> None:
    # A snapshot has no jobs that are over. That slurmctld forgets them is news for backfill.
    parameters = replace(parameters, min_job_age_s=0)
    sim = ReferenceSimulator(whole_nodes(SIZE, parameters), jobs)
    sim.run_until(at_s)
    again = put_back(sim, jobs, timers=True)
    assert [job.job_id for job in again.running()] == [job.job_id for job in sim.running()]
    for copy in (sim, again):
        copy.run_until(at_s + 40_000)
    assert after(again, at_s) == after(sim, at_s)


@given(workloads(5, 600), st.integers(0, 800))
@settings(max_examples=20, deadline=None)
def test_without_phases_the_snapshot_is_enough(jobs: list[JobSpec], at_s: int) -> None:
    sim = ReferenceSimulator(whole_nodes(SIZE, EACH_SECOND), jobs)
    sim.run_until(at_s)
    again = put_back(sim, jobs, timers=False)
    for copy in (sim, again):
        copy.run_until(at_s + 3000)
    assert after(again, at_s) == after(sim, at_s)


NODES = tuple(
    ClusterNode(name=f"n{number}", partitions=("batch",), up=True, idle=False)
    for number in range(1, SIZE + 1)
)


def live(job_id: int, state: JobState = JobState.PENDING, **more: object) -> Job:
    return Job(
        job_id=job_id,
        user="alice",
        partition="batch",
        state=state,
        nodes=1,
        submit_s=0,
        time_limit_s=3600,
        **more,
    )  # type: ignore[arg-type]


def test_nodes_are_as_the_snapshot_has_them_whatever_the_timetable_says() -> None:
    changes = [NodeChange(50, "n1", NodeAction.DOWN), NodeChange(200, "n2", NodeAction.DOWN)]
    sim = simulator_from(
        Snapshot(at_s=100, jobs=(), nodes=NODES),
        replace(whole_nodes(SIZE), node_changes=tuple(changes)),
    )
    sim.run_until(300)
    assert all(sim.is_up(node.name) for node in NODES)


def test_what_keeps_jobs_back_stays() -> None:
    jobs = (
        live(1, JobState.RUNNING, start_s=100, eligible_s=0),
        live(2, reason="Dependency", dependency="afterany:1(unfulfilled)"),
        live(3, reason="Dependency", dependency="singleton(unfulfilled)"),
        live(4, reason="JobHeldUser"),
        live(5, reason="BeginTime"),
        live(6, reason="AssocGrpCPUMinutesLimit", eligible_s=50),
        live(7, reason="DependencyNeverSatisfied", dependency="afterok:1(failed)"),
        live(8, reason="Resources", eligible_s=60, priority=500),
    )
    sim = simulator_from(
        Snapshot(at_s=1000, jobs=jobs, nodes=NODES),
        whole_nodes(SIZE),
        Known(runtimes={1: 2000}, begins_s={5: 3000}),
    )
    sim.run_until(20_000)
    started = {job.job_id: job.start_s for job in (*sim.finished(), *sim.running())}
    assert set(started) == {1, 2, 5, 8}
    assert started[1] == 100
    assert 1000 <= (started[8] or 0) <= 1060
    assert 2100 <= (started[2] or 0) <= 2160
    assert 3000 <= (started[5] or 0) <= 3060
    assert sim.job(8).priority == 500
    assert {job.job_id for job in sim.pending()} == {3, 4, 6, 7}


def test_unknown_run_times_last_until_the_limit_and_nodes_that_clean_up_come_free() -> None:
    wide = replace(live(3, reason="Resources", eligible_s=10), nodes=SIZE)
    jobs = (
        live(1, JobState.RUNNING, start_s=100, eligible_s=0),
        live(2, JobState.COMPLETING, start_s=100, eligible_s=0, end_s=900),
        wide,
    )
    sim = simulator_from(Snapshot(at_s=1000, jobs=jobs, nodes=NODES), whole_nodes(SIZE))
    sim.run_until(9000)
    assert sim.job(2).end_s == 1000
    assert 3700 <= (sim.job(1).end_s or 0) <= 3730
    assert sim.job(1).end_s == sim.job(3).start_s


def shared() -> ClusterConfig:
    """Two nodes of 8 CPUs and 1000 MiB, of which jobs take what they ask for."""
    nodes = make_nodes(2, cpus=8, memory_mib=1000, gpus=2)
    names = tuple(node.name for node in nodes)
    params = Params(SelectType.CONS_TRES, memory_is_consumable=True)
    return ClusterConfig(nodes, (Partition("batch", names),), params)


@pytest.mark.parametrize(("cpus", "memory_mib"), [(6, 100), (1, 600)])
def test_jobs_take_the_cpus_and_the_memory_that_slurm_shows(cpus: int, memory_mib: int) -> None:
    """Both of the first would fit beside the one that runs if nodes and GPUs alone were counted."""
    asked = {"cpus": cpus, "memory_mib": memory_mib}
    jobs = (
        live(1, JobState.RUNNING, start_s=100, eligible_s=0, node_names=("n1",), **asked),
        live(2, JobState.RUNNING, start_s=100, eligible_s=0, node_names=("n2",), **asked),
        live(3, reason="Resources", eligible_s=10, priority=9, **asked),
        live(4, reason="Resources", eligible_s=10, priority=8, cpus=2, memory_mib=100),
    )
    sim = simulator_from(Snapshot(at_s=1000, jobs=jobs, nodes=NODES[:2]), shared())
    sim.run_until(2000)
    assert [job.job_id for job in sim.pending()] == [3]
    sim.run_until(4000)
    assert (sim.job(3).start_s or 0) >= (sim.job(1).end_s or 0) == 3700


def test_where_jobs_share_cpus_nodes_and_gpus_alone_are_counted() -> None:
    jobs = (
        live(1, JobState.RUNNING, start_s=100, eligible_s=0, node_names=("n1",), cpus=8, gpus=1),
        live(2, JobState.RUNNING, start_s=100, eligible_s=0, node_names=("n1",), cpus=8, gpus=1),
        replace(
            live(3, reason="Resources", eligible_s=10, cpus=99, memory_mib=10**6, gpus=4), nodes=2
        ),
    )
    sim = simulator_from(Snapshot(at_s=1000, jobs=jobs, nodes=NODES[:2]), shared())
    sim.run_until(9000)
    assert (sim.job(3).start_s or 0) >= 3700


def test_array_tasks_that_share_an_id_are_jobs_of_their_own() -> None:
    jobs = tuple(
        live(7, reason="Resources", eligible_s=5, array_task=str(task)) for task in (0, 1, 2)
    )
    sim = simulator_from(Snapshot(at_s=100, jobs=jobs, nodes=NODES), whole_nodes(SIZE))
    assert [job.job_id for job in sim.pending()] == [7, 8, 9]


def test_a_job_in_several_partitions_waits_in_each() -> None:
    names = tuple(node.name for node in NODES)
    cluster = replace(
        whole_nodes(SIZE), partitions=(Partition("batch", names[:2]), Partition("other", names[2:]))
    )
    busy = live(1, JobState.RUNNING, start_s=0, eligible_s=0, node_names=names[:2])
    jobs = (
        replace(busy, nodes=2),
        replace(live(2, reason="Resources", eligible_s=10), partition="batch,other"),
    )
    sim = simulator_from(Snapshot(at_s=100, jobs=jobs, nodes=NODES), cluster)
    sim.run_until(200)
    assert (sim.job(2).partition, sim.job(2).node_names) == ("other", names[2:3])


def test_nodes_that_are_down_take_no_jobs() -> None:
    nodes = (replace(NODES[0], up=False), *NODES[1:])
    sim = simulator_from(Snapshot(at_s=100, jobs=(), nodes=nodes), whole_nodes(SIZE))
    assert not sim.is_up("n1")
    job_id = sim.submit(JobSpec(SIZE, 60))
    sim.run_until(5000)
    assert sim.job(job_id).start_s is None
    sim.node_up("n1")
    sim.run_until(5100)
    assert sim.job(job_id).start_s is not None


@pytest.mark.parametrize(
    ("jobs", "nodes", "words"),
    [
        (
            (),
            (*NODES, ClusterNode(name="x1", partitions=("batch",), up=True, idle=True)),
            "no node 'x1'",
        ),
        ((replace(live(1), partition="other"),), NODES, "partition 'other'"),
        (
            (live(1, JobState.RUNNING, start_s=200),),
            NODES,
            "job 1 was submitted or started at 200, after now, 100",
        ),
        (
            tuple(
                live(number, JobState.RUNNING, start_s=5, node_names=("n1",)) for number in (1, 2)
            ),
            NODES,
            "not all of n1 have room",
        ),
        ((live(1, JobState.RUNNING, start_s=5, node_names=("n1", "n2")),), NODES, "has 1 nodes"),
        ((replace(live(1, JobState.RUNNING, start_s=5), nodes=9),), NODES, "only 5 in use"),
    ],
)
def test_what_does_not_fit_is_refused(
    jobs: tuple[Job, ...], nodes: tuple[ClusterNode, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        simulator_from(Snapshot(at_s=100, jobs=jobs, nodes=nodes), whole_nodes(SIZE))


def test_a_state_before_its_timers_is_refused() -> None:
    timers = ReferenceSimulator(whole_nodes(1), start_s=50).timers()
    with pytest.raises(SimulationError, match="before the start of the timers"):
        ReferenceSimulator.from_state(whole_nodes(1), 20, timers=timers)


def test_a_state_needs_ids() -> None:
    with pytest.raises(SimulationError, match="needs an id of its own"):
        ReferenceSimulator.from_state(
            whole_nodes(2),
            20,
            [RunningJob(JobSpec(1, 60), 5, ("n1",))],
            [PendingJob(JobSpec(1), 5)],
        )


def test_a_link_with_a_signal_runs_until_that() -> None:
    running = live(1, JobState.RUNNING, start_s=0, eligible_s=0, lead_s=300)
    sim = simulator_from(Snapshot(at_s=60, jobs=(running,), nodes=NODES), whole_nodes(SIZE))
    sim.run_until(2 * 3600)
    assert sim.job(1).end_s == 3600 - 300 - 60


def waits_at(limit: str, job_id: int, **more: object) -> Job:
    return live(job_id, reason=limit, eligible_s=50, **more)


def runs_until(job_id: int, end_s: int, **more: object) -> tuple[Job, int]:
    return live(job_id, JobState.RUNNING, start_s=100, eligible_s=0, **more), end_s - 100


@pytest.mark.parametrize(
    ("limit", "theirs", "others"),
    [
        ("QOSMaxJobsPerUserLimit", {}, {"user": "bob"}),
        ("AssocMaxJobsLimit", {}, {"user": "bob"}),
        ("QOSMaxNodePerUserLimit", {}, {"user": "bob"}),
        ("QOSMaxCpuPerUserLimit", {"cpus": 4}, {"user": "bob"}),
        ("AssocGrpJobsLimit", {"account": "a"}, {"account": "b"}),
        ("MaxGRESPerAccount", {"account": "a", "gpus": 2}, {"account": "b"}),
        ("QOSGrpNodeLimit", {}, {"user": "bob"}),
        ("JobArrayTaskLimit", {"array_task": "1"}, {"array_task": ""}),
    ],
)
def test_jobs_at_a_limit_come_in_as_those_that_reach_it_end(
    limit: str, theirs: dict[str, object], others: dict[str, object]
) -> None:
    """One node is free all the time, and another's job ends early: neither lets them in."""

    def of_others(job: Job) -> Job:
        return replace(job, **others)  # type: ignore[arg-type]

    first, second = runs_until(1, 3000, **theirs), runs_until(2, 5000, **theirs)
    stranger = runs_until(3, 2000, **theirs)
    jobs = (
        first[0],
        second[0],
        of_others(stranger[0]),
        waits_at(limit, 11, priority=9, **theirs),
        waits_at(limit, 12, priority=8, **theirs),
        of_others(live(13, reason="Resources", eligible_s=60, priority=1, **theirs)),
    )
    runtimes = {1: first[1], 2: second[1], 3: stranger[1], 11: 9000, 12: 10, 13: 10}
    jobs = tuple(replace(job, time_limit_s=10_000) for job in jobs)
    sim = simulator_from(
        Snapshot(at_s=1000, jobs=jobs, nodes=NODES), whole_nodes(SIZE), Known(runtimes=runtimes)
    )
    sim.run_until(20_000)
    starts = {number: sim.job(number).start_s or 0 for number in (11, 12, 13)}
    assert 3000 <= starts[11] <= 3060
    assert 5000 <= starts[12] <= 5060
    assert 1000 <= starts[13] <= 1060


def test_a_limit_that_the_description_has_is_the_simulators() -> None:
    """Two run although one may, so the waiting job needs both to end, not only the first."""
    config = replace(whole_nodes(SIZE), qos=(Qos("normal", max_jobs_per_user=1),))
    first, second = runs_until(1, 3000), runs_until(2, 5000)
    jobs = (first[0], second[0], waits_at("QOSMaxJobsPerUserLimit", 11))
    sim = simulator_from(
        Snapshot(at_s=1000, jobs=jobs, nodes=NODES),
        config,
        Known(runtimes={1: first[1], 2: second[1]}),
    )
    sim.run_until(20_000)
    start_s, end_s = sim.job(11).start_s or 0, sim.job(1).end_s or 0
    assert max(end_s, sim.job(2).end_s or 0) <= start_s < 20_000


def test_jobs_that_hold_more_than_one_node_wait_for_enough_of_them() -> None:
    first, second = runs_until(1, 3000), runs_until(2, 5000)
    wide = replace(waits_at("QOSMaxNodePerUserLimit", 11), nodes=2)
    jobs = (first[0], second[0], wide)
    sim = simulator_from(
        Snapshot(at_s=1000, jobs=jobs, nodes=NODES),
        whole_nodes(SIZE),
        Known(runtimes={1: first[1], 2: second[1]}),
    )
    sim.run_until(20_000)
    assert 3000 <= (sim.job(11).start_s or 0) <= 3060


def test_a_held_job_at_a_limit_stays_held() -> None:
    jobs = (waits_at("QOSMaxJobsPerUserLimit", 11, has_zero_priority=True),)
    sim = simulator_from(Snapshot(at_s=1000, jobs=jobs, nodes=NODES), whole_nodes(SIZE))
    sim.run_until(20_000)
    assert sim.job(11).start_s is None


def test_a_link_that_backfill_may_shorten_starts_as_early_as_it_will() -> None:
    """squeue does not show its --time-min; its tag does."""
    tag = "mirage/1 chain=chain1 seg=1/5 mode=train ei=1 eo=1 min=180"
    jobs = [
        JobSpec(3, 10 * MINUTE, submit_s=0),
        JobSpec(SIZE, 30 * MINUTE, submit_s=1),
        JobSpec(1, 30 * MINUTE, submit_s=2, time_min_s=180, begin_s=200, comment=tag),
    ]
    sim = ReferenceSimulator(whole_nodes(SIZE, EACH_SECOND), jobs)
    sim.run_until(100)
    snapshot = SimulatedCluster(sim).snapshot()
    known = Known(begins_s={3: 200}, priorities=False)
    starts_s = []
    for seen in (snapshot, with_leads(snapshot)):
        again = simulator_from(seen, sim.config, known)
        starts_s.append(again.run_until_start(3, 4000))
    sim.run_until(4000)
    assert starts_s == [600 + 30 * MINUTE, sim.job(3).start_s]
    assert sim.job(3).time_limit_s == 180
