"""The PySlurm adapter: the contract on a faithful fake, and on a real Slurm where the real PySlurm
imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest

from mirage.config import AdapterConfig
from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.errors import ClusterNonsense, ClusterUnavailable, InputError
from mirage.ports import Cluster
from mirage.slurm import adapter
from mirage.slurm.commands import CommandCluster
from mirage.slurm.pyslurm_cluster import PyslurmCluster, node, queued_jobs
from tests.contract.cluster_contract import ClusterContract
from tests.contract.test_cluster_commands import NOW, FakeSite
from tests.contract.test_cluster_slurm import RealSite, real_site  # noqa: F401 - a fixture
from tests.fakes import fake_pyslurm


def without_sizes(job: Job) -> Job:
    """The adapter leaves CPUs and memory out (docs/retraining.md)."""
    return replace(job, cpus=0, memory_mib=0)


def unordered(node: ClusterNode) -> ClusterNode:
    """Without the node's state, and with its partitions in order of name."""
    return replace(node, state="", partitions=tuple(sorted(node.partitions)))


class PyslurmOnFakes(FakeSite):
    def in_queue(self, job: Job) -> Job:
        return without_sizes(job)

    def cluster(self, user: str, timeout_s: float = 20) -> PyslurmCluster:  # type: ignore[override]
        commands = super().cluster(user, timeout_s)
        return PyslurmCluster(fake_pyslurm.module(self.slurm), commands, now_s=self.slurm.now_s)


@pytest.fixture
def site(tmp_path: Path) -> PyslurmOnFakes:
    return PyslurmOnFakes(tmp_path)


class TestPyslurmOnFakes(ClusterContract):
    pass


def test_a_snapshot_runs_no_command(site: PyslurmOnFakes) -> None:
    site.submit()
    site.called()
    assert len(site.cluster(site.alice).snapshot().jobs) == 1
    assert site.called() == []


def test_both_adapters_see_the_same_queue(site: PyslurmOnFakes) -> None:
    running = site.fill()
    site.submit(f"--dependency=afterany:{running}", "--comment=mirage chain=a", "--time=90")
    site.pause()
    site.submit("--nodes=2")
    ours, theirs = (
        site.cluster(site.alice).snapshot(),
        FakeSite.cluster(site, site.alice).snapshot(),
    )
    assert ours.jobs == tuple(map(without_sizes, theirs.jobs))
    assert [replace(each, state="") for each in ours.nodes] == [
        replace(each, state="") for each in theirs.nodes
    ]


# --- what PySlurm says, record by record
# -----------------------------------------------------------------------------

RUNNING = {
    "job_id": 7,
    "user_id": 1001,
    "user": "alice",
    "account": "research",
    "partition": "gpu",
    "job_state": "RUNNING",
    "nodes": "n[1-2]",
    "num_nodes": 2,
    "submit_time": NOW - 500,
    "eligible_time": NOW - 500,
    "start_time": NOW - 400,
    "end_time": NOW + 4000,
    "time_limit": 60,
}
PENDING = RUNNING | {
    "job_state": "PENDING",
    "nodes": None,
    "state_reason": "Resources",
    "start_time": NOW + 99,
    "priority": 1,
}


def seen(**raw: object) -> tuple[Job, ...]:
    return queued_jobs([fake_pyslurm.Job(**raw)], NOW)


def test_a_running_job() -> None:
    (job,) = seen(**RUNNING, gpus={"gpu": 4, "gpu:a100": 4}, priority=4294901700)
    assert (job.job_id, job.user, job.account, job.state) == (
        7,
        "alice",
        "research",
        JobState.RUNNING,
    )
    assert (job.node_names, job.nodes, job.gpus, job.priority) == (("n1", "n2"), 2, 4, 4294901700)
    assert (job.start_s, job.end_s, job.time_limit_s, job.limit_end_s) == (
        NOW - 400,
        None,
        3600,
        NOW + 3200,
    )
    assert (job.reason, job.dependency, job.comment, job.array_task) == ("", "", "", "")


def test_a_pending_job_has_no_start_and_maybe_no_limit() -> None:
    (job,) = seen(**PENDING | {"time_limit": None, "num_nodes": 0})
    assert (job.start_s, job.end_s, job.node_names, job.time_limit_s, job.nodes) == (
        None,
        None,
        (),
        None,
        0,
    )
    assert job.is_queueing


def test_typed_gpus_are_added_up() -> None:
    assert [job.gpus for job in seen(**RUNNING, gpus={"gpu:a100": 2, "gpu:h100": 4})] == [6]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("afterany:7(unfulfilled)", "afterany:7(unfulfilled)"),
        (
            "afterany:7(unfulfilled),afterany:8(unfulfilled)",
            "afterany:7(unfulfilled),afterany:8(unfulfilled)",
        ),
        (
            "afterok:7(failed)?afterany:8_3(unfulfilled)",
            "afterany:8_3(unfulfilled)?afterok:7(failed)",
        ),
        ("singleton", "singleton"),
        ("singleton(unfulfilled)", ""),  # PySlurm does not know it
    ],
)
def test_dependencies_are_as_slurm_prints_them(text: str, shown: str) -> None:
    (job,) = seen(
        **PENDING | {"dependency": text, "state_reason": "Dependency", "eligible_time": 0}
    )
    assert (job.dependency, job.reason, job.eligible_s) == (shown, "Dependency", None)


def test_what_is_acted_on_is_read_as_slurm_prints_it(site: PyslurmOnFakes) -> None:
    """PySlurm leaves parts of a dependency out, and Mirage drops only one that is nothing but its
    own.
    """
    job_id = site.submit()
    site.called()
    assert set(site.cluster(site.alice).jobs([job_id])) == {job_id}
    assert site.called() == ["squeue"]


def test_what_is_over_is_no_longer_in_the_queue_but_what_completes_is() -> None:
    assert seen(**RUNNING | {"job_state": "COMPLETED", "end_time": NOW}) == ()
    (job,) = seen(**RUNNING | {"job_state": "COMPLETING", "end_time": NOW, "exit_code": 9})
    assert (job.state, job.end_s, job.exit_code) == (JobState.COMPLETING, NOW, 137)


@pytest.mark.parametrize(
    ("raw", "tasks"),
    [
        ({"array_job_id": 7, "array_task_str": "1,3-5%2"}, ["1", "3", "4", "5"]),
        ({"array_job_id": 6, "array_task_id": 2}, ["2"]),
        ({"array_job_id": 6, "array_task_id": 0}, ["0"]),
        ({}, [""]),
    ],
)
def test_array_tasks(raw: dict[str, object], tasks: list[str]) -> None:
    assert [job.array_task for job in seen(**PENDING, **raw)] == tasks


@pytest.mark.parametrize(
    ("state", "up", "idle"),
    [
        ("IDLE", True, True),
        ("IDLE+CLOUD+POWERED_DOWN", True, True),
        ("IDLE+PLANNED", True, True),
        ("IDLE+RESERVED", True, False),
        ("IDLE+COMPLETING", True, False),
        ("MIXED", True, False),
        ("ALLOCATED+REBOOT_REQUESTED", True, False),
        ("ALLOCATED+NOT_RESPONDING", False, False),
        ("IDLE+DRAIN", False, False),
        ("IDLE+MAINTENANCE", False, False),
        ("IDLE+A_FLAG_OF_TOMORROW", False, False),
        ("DOWN", False, False),
        ("UNKNOWN", False, False),
    ],
)
def test_node_states(state: str, up: bool, idle: bool) -> None:
    assert node(fake_pyslurm.Node("n1", state, ["gpu", "debug"])) == ClusterNode(
        name="n1", partitions=("gpu", "debug"), up=up, idle=idle, state=state.lower()
    )


@pytest.mark.parametrize(
    "job", [{"comment": b"caf\xe9"}, {"array_job_id": 1, "array_task_str": "1-9,..."}]
)
def test_what_pyslurm_can_not_say_is_asked_of_the_commands(
    site: PyslurmOnFakes, job: dict[str, object]
) -> None:
    """Anybody may submit such a job: it must not blind the service."""
    job_id = site.submit()
    cluster = site.cluster(site.alice)
    module = fake_pyslurm.module(site.slurm)
    module.Jobs.load = lambda: {1: fake_pyslurm.Job(**PENDING | job)}
    site.called()
    answer = PyslurmCluster(module, cluster, now_s=site.slurm.now_s).snapshot()
    assert [job.job_id for job in answer.jobs] == [job_id]


def test_a_cluster_without_nodes_is_nonsense(site: PyslurmOnFakes) -> None:
    with site.slurm.state() as state:
        state["nodes"] = {}
    with pytest.raises(ClusterNonsense, match="no nodes"):
        site.cluster(site.alice).snapshot()


def test_slurms_words_come_with_advice(site: PyslurmOnFakes) -> None:
    with pytest.raises(
        ClusterUnavailable, match=r"PySlurm: Unable to contact .*Retry later; is slurmctld up"
    ):
        site.down().snapshot()


# --- which adapter
# ---------------------------------------------------------------------------------------------------


def version(text: str) -> Callable[[], str]:
    return lambda: text


def missing() -> str:
    raise InputError("PySlurm is not installed.")


@pytest.fixture
def connected(
    site: PyslurmOnFakes, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., adapter.Adapter]:
    """`connect` on the fake Slurm, which is 22.05.8."""
    monkeypatch.setattr(CommandCluster, "from_config", lambda _: FakeSite.cluster(site, site.alice))

    def connect(choice: str, probe: Callable[[], str]) -> adapter.Adapter:
        config = AdapterConfig(adapter=choice)
        return adapter.connect(config, probe=probe, load=lambda: fake_pyslurm.module(site.slurm))

    return connect


@pytest.mark.parametrize("choice", ["auto", "pyslurm"])
def test_pyslurm_of_the_running_release_is_taken(
    connected: Callable[..., adapter.Adapter], choice: str
) -> None:
    chosen = connected(choice, version("22.05.3"))
    assert type(chosen.cluster) is PyslurmCluster
    assert "PySlurm 22.05.3 for the queue" in chosen.why


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (missing, "PySlurm is not installed"),
        (version("25.11.2"), r"PySlurm 25\.11\.2 is not for Slurm 22\.05\.8"),
    ],
)
def test_else_auto_takes_the_commands_and_pyslurm_is_an_error(
    connected: Callable[..., adapter.Adapter], probe: Callable[[], str], why: str
) -> None:
    chosen = connected("auto", probe)
    assert type(chosen.cluster) is CommandCluster
    with pytest.raises(
        InputError, match=rf'cluster\.adapter = "pyslurm": {why}.*set it to "commands"'
    ):
        connected("pyslurm", probe)
    assert chosen.why.startswith("the commands: PySlurm")


def test_without_slurmctld_auto_takes_the_commands(
    connected: Callable[..., adapter.Adapter], site: PyslurmOnFakes
) -> None:
    site.slurm.misbehave("scontrol", "down")
    assert type(connected("auto", version("22.05.3")).cluster) is CommandCluster


def test_the_commands_are_taken_without_a_look_at_pyslurm(
    connected: Callable[..., adapter.Adapter],
) -> None:
    chosen = connected("commands", lambda: pytest.fail("asked"))
    assert (type(chosen.cluster), chosen.why) == (CommandCluster, "the commands, as configured")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('__version__ = "25.11.2"', "25.11.2"),
        (
            'raise ImportError("libslurm.so.44: no such file")',
            r"can't be imported: ImportError: libslurm",
        ),
        (
            "import os; os._exit(1)",
            r"can't be imported: it ended with 1",
        ),  # as libslurm does without a slurm.conf
        ("import os; os.abort()", r"can't be imported: it ended with -6"),
    ],
)
def test_pyslurm_is_tried_where_it_can_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: str
) -> None:
    (tmp_path / "pyslurm.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if expected == "25.11.2":
        assert adapter.probed_version() == expected
        return
    with pytest.raises(InputError, match=expected):
        adapter.probed_version()


# --- the real one
# ----------------------------------------------------------------------------------------------------


class PyslurmOnSlurm(RealSite):
    """Reads as the user who runs the tests (root), acts by the commands as the user who is asked
    for.
    """

    def in_queue(self, job: Job) -> Job:
        return without_sizes(job)

    def cluster(self, user: str, conf: Path | None = None) -> Cluster:  # type: ignore[override]
        commands = super().cluster(user, conf)
        # libslurm reads its configuration once in a process, so a cluster that is down is one of
        # the commands.
        return commands if conf else PyslurmCluster(sys.modules["pyslurm"], commands)  # type: ignore[arg-type]

    def fill_rest(self, job: Job) -> int:
        """Bob takes the nodes that the job has left."""
        job_id = self.submit(f"--nodes={self.nodes - job.nodes}", user=self.bob)
        self.reaches(job_id, JobState.RUNNING)
        return job_id

    def both_when_quiet(self) -> tuple[Snapshot, Snapshot]:
        """PySlurm's snapshot and the commands', once the scheduler has been over all jobs and
        nothing changes.
        """
        pyslurm = PyslurmCluster(sys.modules["pyslurm"], self.root)  # type: ignore[arg-type]
        pairs: list[tuple[Snapshot, Snapshot]] = []

        def quiet() -> bool:
            pairs.append((pyslurm.snapshot(), self.root.snapshot()))
            settled = all(job.reason for job in pairs[-1][1].jobs if job.is_pending)
            return settled and len(pairs) > 4 and pairs[-1][1].jobs == pairs[-4][1].jobs

        self.until(quiet, lambda: "a quiet queue")
        return pairs[-1]


@pytest.mark.slurm
class TestPyslurmOnSlurm(ClusterContract):
    @pytest.fixture
    def site(self, real_site: RealSite) -> Iterator[PyslurmOnSlurm]:  # noqa: F811
        with pytest.MonkeyPatch.context() as patch:
            for name in ("SLURM_CONF", "PATH"):
                patch.setenv(name, real_site.env(real_site.conf)[name])
            try:
                adapter.connect(AdapterConfig(adapter="pyslurm"))
            except InputError as problem:
                pytest.skip(str(problem))
            site = PyslurmOnSlurm(real_site.slurm, real_site.scratch)
            site.clean()
            yield site
            site.clean()

    def test_both_adapters_see_the_same_queue_and_nodes(
        self, site: PyslurmOnSlurm, record_testsuite_property: Callable[[str, object], None]
    ) -> None:
        # scripts/test-releases reads it
        record_testsuite_property("slurm", site.root.settings().version)
        running = site.reaches(
            site.submit("--nodes=2", "--gres=gpu:2", "--time=30"), JobState.RUNNING
        )
        last = site.fill_rest(running)
        site.submit("--nodes=4", "--time=90", "--comment=a|b\nc é")
        site.submit(f"--dependency=afterany:{running.job_id}", "--partition=gpu,debug")
        site.submit(f"--dependency=afterok:{running.job_id}:{last}")
        site.submit("--nodes=4", "--array=0-9:3%2")
        site.submit("--hold")
        site.submit("--begin=now+1hour")
        ours, theirs = site.both_when_quiet()
        expected = [without_sizes(job) for job in theirs.jobs]
        by_id = attrgetter("job_id")  # squeue sorts by state and priority
        assert sorted(ours.jobs, key=by_id) == sorted(expected, key=by_id)
        assert [unordered(each) for each in ours.nodes] == [
            unordered(each) for each in theirs.nodes
        ]
