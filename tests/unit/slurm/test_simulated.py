"""The simulated cluster beyond its contract (`tests/contract`): sbatch options, faults, what it
forgets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirage.domain import JobState, NodeEvent
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused
from mirage.ports import Clock, Cluster
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from slurm_sim import Simulator
from slurm_sim.config import Params, Partition
from slurm_sim.jobs import JobSpec
from tests.sims import fast_simulator

NOW = 1_800_000_000
HOUR = 3600


@pytest.fixture
def sim() -> Simulator:
    partitions = [
        Partition("gpu", ("n1", "n2", "n3"), max_time_s=48 * HOUR),
        Partition("debug", ("n3",), max_time_s=1800),
    ]
    return fast_simulator(("n1", "n2", "n3"), partitions, start_s=NOW)


@pytest.fixture
def alice(sim: Simulator) -> SimulatedCluster:
    return SimulatedCluster(sim, user="alice")


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n")
    return str(path)


def test_it_is_a_port(sim: Simulator, alice: SimulatedCluster) -> None:
    cluster: Cluster = alice
    clock: Clock = SimulatedClock(sim)
    sim.step(10)
    assert clock.now_s() == cluster.snapshot().at_s == NOW + 10


# --- sbatch's options


@pytest.mark.parametrize(
    ("args", "field", "value"),
    [
        (["--nodes=2"], "nodes", 2),
        (["-N2"], "nodes", 2),
        (["-N", "2-3"], "nodes", 2),
        ([], "time_limit_s", 48 * HOUR),
        (["--time=0"], "time_limit_s", 48 * HOUR),
        (["-t", "90"], "time_limit_s", 5400),
        (["--time=1-1:30"], "time_limit_s", 25 * HOUR + 1800),
        (["-t", "0:30"], "time_limit_s", 60),
        (["-p", "debug"], "partition", "debug"),
        (["--partition=debug"], "time_limit_s", 1800),
        (["--comment=a b"], "comment", "a b"),
        (["-d", "afterany:1"], "dependency", "afterany:1(unfulfilled)"),
        (["--begin=now+2hours"], "reason", "BeginTime"),
        (["--begin", "2027-01-15T08:00:01"], "reason", "BeginTime"),
        (["--begin", "2027-01-15T08:00:00"], "reason", ""),
        (["-H"], "reason", "JobHeldUser"),
        (["--parsable", "--job-name=x", "-o", "/dev/null", "--gres", "gpu:8"], "user", "alice"),
    ],
)
def test_options(
    alice: SimulatedCluster, script: str, args: list[str], field: str, value: object
) -> None:
    alice.submit(["--hold"], script)
    job_id = alice.submit(args, script)
    assert getattr(alice.jobs([job_id])[job_id], field) == value


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--partition=nowhere"],
            "invalid partition specified: nowhere\n.*Invalid partition name specified",
        ),
        (["--nodes=4"], "Batch job submission failed: 4 nodes asked for"),
        (["--nodes=many"], "Invalid node count: many"),
        (["--time=soon"], "Invalid --time specification"),
        (["--time=72:00:00"], "Batch job submission failed: limit of 259200 s"),
        (["--dependency=singleton"], "Batch job submission failed: dependency"),
        (["--begin=teatime"], "Invalid --begin specification: teatime"),
        (["--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["--time"], "expected one argument"),
    ],
)
def test_refused_submissions(
    alice: SimulatedCluster, script: str, args: list[str], message: str
) -> None:
    with pytest.raises(Refused, match=f"(?s)sbatch: error: .*{message}"):
        alice.submit(args, script)
    assert alice.snapshot().jobs == ()


def test_sbatch_lines_of_the_script_count_less_than_the_arguments(
    alice: SimulatedCluster, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --nodes=2 --time=60 # two\n\n#SBATCH --comment='from script'\nsleep"
        " 1\n#SBATCH --nodes=3\n"
    )
    job_id = alice.submit(["--time=30"], str(script))
    job = alice.jobs([job_id])[job_id]
    assert (job.nodes, job.time_limit_s, job.comment) == (2, 1800, "from script")


def test_jobs_run_to_their_limit_unless_their_behaviour_is_given(
    sim: Simulator, script: str
) -> None:
    default = SimulatedCluster(sim, user="alice")
    brief = SimulatedCluster(sim, user="alice", behaviour=lambda _script: (100, 7))
    long_id, brief_id = default.submit(["-t", "10"], script), brief.submit([], script)
    sim.run()
    records = {job.job_id: job for job in default.accounting(NOW, sim.now_s)}
    assert (records[long_id].state, records[brief_id].state) == (JobState.TIMEOUT, JobState.FAILED)
    assert records[brief_id].exit_code == 7
    assert (records[brief_id].end_s or 0) - (records[brief_id].start_s or 0) == 100


# --- what is seen


def test_a_job_is_forgotten_some_minutes_after_its_end(
    sim: Simulator, alice: SimulatedCluster, script: str
) -> None:
    job_id = alice.submit([], script)
    alice.cancel([job_id])
    sim.step(299)
    assert alice.jobs([job_id])[job_id].state is JobState.CANCELLED
    sim.step(1)
    assert alice.jobs([job_id]) == {}
    with pytest.raises(Refused, match="Invalid job id specified"):
        alice.release(job_id)
    alice.cancel([job_id])


def test_nodes(sim: Simulator, alice: SimulatedCluster, script: str) -> None:
    alice.submit(["--nodes=1"], script)
    sim.step(10)
    sim.node_down("n2")
    nodes = {node.name: node for node in alice.snapshot().nodes}
    assert {name: node.state for name, node in nodes.items()} == {
        "n1": "allocated",
        "n2": "down",
        "n3": "idle",
    }
    assert [(node.up, node.idle) for node in nodes.values()] == [
        (True, False),
        (False, False),
        (True, True),
    ]
    assert nodes["n3"].partitions == ("gpu", "debug")
    assert len(set(alice.snapshot().pools.values())) == 1


def test_node_events(sim: Simulator, alice: SimulatedCluster) -> None:
    sim.step(100)
    sim.node_down("n2")
    sim.step(100)
    sim.node_up("n2")
    sim.node_down("n1")
    assert alice.node_events(NOW, NOW + 500) == [
        NodeEvent("n2", NOW + 100, NOW + 200),
        NodeEvent("n1", NOW + 200, None),
    ]
    assert alice.node_events(NOW + 201, NOW + 500) == [NodeEvent("n1", NOW + 200, None)]
    assert alice.node_events(NOW, NOW + 99) == []


def test_a_requeued_job_has_two_records(
    sim: Simulator, alice: SimulatedCluster, script: str
) -> None:
    job_id = alice.submit([], script)
    sim.step(50)
    sim.requeue(job_id)
    assert alice.jobs([job_id])[job_id].is_pending
    sim.step(300)
    first, second = alice.accounting(NOW, sim.now_s)
    assert (first.state, first.start_s, first.end_s) == (JobState.REQUEUED, NOW + 3, NOW + 50)
    assert (second.state, second.submit_s, second.eligible_s) == (
        JobState.RUNNING,
        NOW + 50,
        NOW + 171,
    )


def test_accounting_leaves_out_what_never_competed(
    sim: Simulator, alice: SimulatedCluster, script: str
) -> None:
    first = alice.submit([], script)
    dependent = alice.submit([f"--dependency=afterany:{first}"], script)
    sim.step(100)
    assert [job.job_id for job in alice.accounting(NOW, sim.now_s)] == [first]
    (record,) = alice.accounting(NOW, sim.now_s, [dependent])
    assert (record.state, record.reason, record.dependency) == (JobState.PENDING, "", "")


def test_settings_follow_the_parameters() -> None:
    sim = fast_simulator(("n1",), [Partition("gpu", ("n1",))], Params(accrue_always=True))
    settings = SimulatedCluster(sim).settings()
    assert (settings.version, settings.accrue_always) == ("simulated", True)


# --- who may do what


def test_everybodys_view_is_of_one_cluster(alice: SimulatedCluster, script: str) -> None:
    bob, operator = alice.as_user("bob"), alice.as_user("root", operator=True)
    first = alice.submit([], script)
    mine, theirs = (
        bob.submit(["-H"], script),
        alice.submit([f"--dependency=afterany:{first}"], script),
    )
    with pytest.raises(
        Refused,
        match=f"^scancel: error: Kill job error on job id {theirs}: Access/permission denied$",
    ):
        bob.cancel([theirs, mine])
    assert bob.jobs([mine])[mine].state is JobState.CANCELLED
    assert alice.jobs([theirs])[theirs].is_pending
    with pytest.raises(Refused, match="Invalid user id"):
        bob.release(theirs)
    operator.release(theirs)
    assert alice.jobs([theirs])[theirs].is_queueing
    operator.cancel([first, theirs])
    assert {job.state for job in alice.jobs([first, theirs]).values()} == {JobState.CANCELLED}


# --- faults


def test_a_cluster_that_is_down_does_nothing(
    sim: Simulator, alice: SimulatedCluster, script: str
) -> None:
    job_id = alice.submit([], script)
    alice.as_user("bob").down = True
    calls: list[Callable[[], object]] = [
        lambda: alice.submit([], script),
        lambda: alice.release(job_id),
        lambda: alice.cancel([job_id]),
        alice.snapshot,
    ]
    for call in calls:
        with pytest.raises(ClusterUnavailable):
            call()
    sim.step(10)
    alice.down = False
    assert [job.state for job in alice.snapshot().jobs] == [JobState.RUNNING]


def test_a_site_without_accounting(alice: SimulatedCluster) -> None:
    alice.has_accounting = False
    for call in (alice.accounting, alice.node_events):
        with pytest.raises(AccountingUnavailable):
            call(NOW, NOW + 1)
    assert alice.snapshot().nodes


def test_empty_answers_of_a_slurmctld_that_restarts(alice: SimulatedCluster, script: str) -> None:
    job_id = alice.submit([], script)
    alice.empty_queue_answers = 2
    assert [len(alice.snapshot().jobs) for _ in range(3)] == [0, 0, 1]
    assert job_id in alice.jobs([job_id])


def test_other_jobs_come_from_the_simulator(sim: Simulator, alice: SimulatedCluster) -> None:
    sim.submit(JobSpec(3, HOUR, HOUR, user="carol", comment="hers"))
    sim.step(10)
    (job,) = alice.snapshot().jobs
    assert (job.user, job.comment, job.start_s, job.wait_s) == ("carol", "hers", NOW + 3, 3)
