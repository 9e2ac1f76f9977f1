"""The REST adapter on a real slurmrestd: the contract, and that it sees what the commands see."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mirage.domain import ClusterNode, Job, JobState
from mirage.errors import ClusterError, Refused
from mirage.slurm.commands import CommandCluster
from mirage.slurm.rest_client import RestClient
from mirage.slurm.rest_cluster import RestCluster
from mirage.slurm.rest_server import RestServer
from mirage.slurm.rest_survey import RestSurvey
from mirage.slurm.runner import Runner
from mirage.slurm.survey import Survey
from tests.contract.cluster_contract import ClusterContract
from tests.contract.test_cluster_slurm import RealSite

pytestmark = pytest.mark.slurm
TAG = "mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=0.5"


class RestSite(RealSite):
    def __init__(self, slurm: Path, scratch: Path) -> None:
        super().__init__(slurm, scratch)
        self.url = f"http://127.0.0.1:{int((slurm / 'etc' / 'port-base').read_text()) + 3}"
        self.server = RestServer(self.url, user="nobody")  # as whom scripts/slurm-up starts it
        self.tokens = {user: self.token(user) for user in (self.alice, self.bob, self.operator)}

    def token(self, user: str, lifespan_s: int = 3600) -> str:
        command = ["scontrol", "token", f"username={user}", f"lifespan={lifespan_s}"]
        done = subprocess.run(command, env=self.env(self.conf), capture_output=True, check=True)
        return done.stdout.decode().strip().removeprefix("SLURM_JWT=")

    def cluster(self, user: str, version: str = "") -> RestCluster:  # type: ignore[override]
        return self.with_token(self.tokens[user], version)

    def with_token(self, token: str, version: str = "") -> RestCluster:
        return RestCluster(RestClient(self.server, lambda: token, retries=0, version=version))

    def client(self, user: str) -> RestClient:
        return RestClient(self.server, lambda: self.tokens[user], retries=0)

    def commands(self) -> CommandCluster:
        return super().cluster(self.alice)

    def down(self) -> RestCluster:  # type: ignore[override]
        client = RestClient("http://127.0.0.1:9", lambda: self.tokens[self.alice], retries=0)
        return RestCluster(client)

    def script(self, run_s: int, exit_code: int) -> str:
        script = Path(super().script(run_s, exit_code))
        head, rest = script.read_text().split("\n", 1)
        script.write_text(f"{head}\n#SBATCH --output=/dev/null\n{rest}")
        return str(script)

    @property
    def newest_version(self) -> str:
        """Of the API, in this release."""
        release = (self.slurm / "etc" / "version").read_text().strip()
        return {"22.05": "v0.0.38", "24.11": "v0.0.42", "26.05": "v0.0.45"}[release]

    def recorded_exit_code(self, exit_code: int) -> int:
        return 1 if exit_code and self.newest_version == "v0.0.38" else exit_code


@pytest.fixture(scope="module")
def rest_site(real_slurm: Path) -> Iterator[RestSite]:
    chosen = real_slurm / "etc" / "rest"
    if not chosen.exists() or chosen.read_text().strip() != "on":
        pytest.skip(f"{real_slurm} has no slurmrestd: start it with scripts/slurm-up --rest on")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        Path(scratch).chmod(0o755)
        yield RestSite(Path(real_slurm), Path(scratch))


@pytest.fixture
def site(rest_site: RestSite) -> Iterator[RestSite]:
    rest_site.clean()
    yield rest_site
    rest_site.clean()


class TestRestOnSlurm(ClusterContract):
    pass


def jobs_of_every_kind(site: RestSite) -> list[int]:
    """By the commands, as alice."""
    short = site.script(1, 3)
    commands, script = site.commands(), site.script(600, 0)

    def submit(*args: str) -> int:
        return commands.submit(args, script)

    failed = commands.submit(["--nodes=1"], short)
    running = submit("--nodes=3", "--gres=gpu:1", "--time=1-0")
    site.reaches(running, JobState.RUNNING)
    site.reaches(failed, JobState.FAILED)
    array = submit(f"--nodes={site.nodes}", "--array=1-7:2%1", f"--comment={TAG} -- a|b é")
    return [
        failed,
        running,
        array,
        submit(f"--nodes={site.nodes}", "--time=90", "--comment=first\n1|x|PENDING\n\té"),
        submit("--partition=gpu,debug", f"--dependency=afterany:{running}?afterok:{array}"),
        submit("--begin=now+1hour", "--nodes=2", "--ntasks-per-node=1", "--mem=100M"),
        submit("--hold", "--job-name=tab\there"),
    ]


def settled(job: Job) -> Job:
    """Without what a scheduling pass between two questions may change."""
    return replace(job, priority=0)


def test_both_adapters_see_the_same(site: RestSite) -> None:
    started_s = int(time.time())
    ours = site.cluster(site.operator, site.newest_version)
    submitted = jobs_of_every_kind(site)
    theirs = site.commands()

    def queue(cluster: RestCluster | CommandCluster) -> set[Job]:
        return {settled(job) for job in cluster.snapshot().jobs}

    site.until(lambda: queue(ours) == queue(theirs), lambda: f"{queue(ours) ^ queue(theirs)}")
    assert len(queue(ours)) == len(submitted) - 1 + 3  # an array of four tasks; one job is over

    def nodes(cluster: RestCluster | CommandCluster) -> list[ClusterNode]:
        return [  # flags of the state come and go
            replace(node, state="", partitions=tuple(sorted(node.partitions)))
            for node in cluster.snapshot().nodes
        ]

    def jobs(cluster: RestCluster | CommandCluster) -> dict[int, Job]:
        return {each: settled(job) for each, job in cluster.jobs(submitted).items()}

    site.until(lambda: nodes(ours) == nodes(theirs), lambda: f"{nodes(ours)}, {nodes(theirs)}")
    site.until(lambda: jobs(ours) == jobs(theirs), lambda: f"{jobs(ours)}, {jobs(theirs)}")
    window = (started_s, int(time.time()) + 60)

    def records(cluster: RestCluster | CommandCluster, ids: list[int] | None) -> set[Job]:
        found = cluster.accounting(*window, ids)
        mine = [job for job in found if job.job_id >= submitted[0]]
        return {replace(settled(job), exit_code=bool(job.exit_code)) for job in mine}

    for ids in (None, submitted):
        site.until(
            lambda ids=ids: records(ours, ids) == records(theirs, ids),
            lambda ids=ids: f"no difference: {records(ours, ids) ^ records(theirs, ids)}",
        )


def test_the_survey_says_what_the_commands_say(site: RestSite) -> None:
    """Limits, rights and the live cluster, for `mirage doctor` and `mirage when`."""
    ours, theirs = RestSurvey(site.client(site.operator)), Survey(Runner(site.env(site.conf)))
    account(site, "modify", "user", site.bob, "set", "MaxJobs=3", "MaxSubmitJobs=5", "GrpJobs=7")
    account(site, "modify", "qos", "normal", "set", "MaxJobsPerUser=9", "MaxSubmitJobsPerUser=11")
    try:
        name = theirs.about().settings.cluster  # type: ignore[union-attr]
        assert ours.about().settings.cluster == name  # type: ignore[union-attr]
        key = repr
        assert sorted(ours.limits(name, None), key=key) == sorted(
            theirs.limits(name, None), key=key
        )
        assert ours.limits(name, site.bob)[0].max_submit == 5
        assert ours.qos() == theirs.qos()
        assert ours.qos()[0].max_submit == 11
        for user in (site.alice, site.operator, "nobody-here"):
            assert ours.admin_level(user) == theirs.admin_level(user)
    finally:
        account(
            site, "modify", "user", site.bob, "set", "MaxJobs=-1", "MaxSubmitJobs=-1", "GrpJobs=-1"
        )
        account(
            site, "modify", "qos", "normal", "set", "MaxJobsPerUser=-1", "MaxSubmitJobsPerUser=-1"
        )
    found, expected = ours.cluster(), theirs.cluster()
    assert found.nodes == expected.nodes
    assert found.scheduler_is_assumed
    # Whether jobs have nodes to themselves is not told by every version.
    assert found.partitions == tuple(
        replace(each, exclusive=other.exclusive)
        for each, other in zip(expected.partitions, found.partitions, strict=True)
    )
    assert ours.has_records(int(time.time()) - 3600) == theirs.has_records(int(time.time()) - 3600)


def account(site: RestSite, *words: str) -> None:
    subprocess.run(
        ["sacctmgr", "-i", *words], env=site.env(site.conf), check=True, capture_output=True
    )


def test_verbs_need_none_of_slurms_commands(site: RestSite, tmp_path: Path) -> None:
    """`status`, `explain`, `when`, `doctor` and `cancel` of root's chain, with an empty PATH."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(site.token("root"))
    chain = {
        "MIRAGE__CLUSTER__ADAPTER": "rest",
        "MIRAGE__CLUSTER__REST_URL": site.url,
        "MIRAGE__CLUSTER__REST_USER": "nobody",
    }
    chain |= {"MIRAGE__CLUSTER__REST_TOKEN_FILE": str(token), "HOME": str(tmp_path)}
    chain |= {"PATH": "/nowhere", "MIRAGE_SOCKET": str(tmp_path / "none.sock")}

    def mirage(*words: str) -> str:
        program = Path(sys.executable).with_name("mirage")
        done = subprocess.run(
            [sys.executable, program, *words], env=chain, capture_output=True, text=True
        )
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    cluster = site.with_token(token.read_text())
    first = cluster.submit([f"--nodes={site.nodes}", f"--comment={TAG}"], site.script(600, 0))
    site.reaches(first, JobState.RUNNING)
    second = TAG.replace("seg=1/5", f"seg=2/5 pred={first}")
    waits = cluster.submit(
        ["--nodes=1", f"--comment={second}", f"--dependency=afterany:{first}"], site.script(60, 0)
    )
    assert str(waits) in mirage("status", "--json")
    assert str(waits) in mirage("explain", str(waits))
    assert f"job {waits}" in mirage("when", str(waits))
    assert "slurmrestd" in mirage("doctor", "--all", "--for", "agent")
    assert f"{waits}, {first}" in mirage("cancel", "k3m9pq2xha")
    site.until(lambda: not cluster.queue_of("root").jobs, lambda: "an empty queue")


def test_a_token_that_has_expired_is_refused_in_words_that_help(site: RestSite) -> None:
    token = site.token(site.alice, lifespan_s=1)
    time.sleep(2.5)
    cluster = site.with_token(token)
    for act in (cluster.snapshot, lambda: cluster.release(1), lambda: cluster.jobs([1])):
        with pytest.raises(ClusterError, match="token"):
            act()


def test_a_token_of_nobody_is_refused(site: RestSite) -> None:
    with pytest.raises(Refused, match="token"):
        site.with_token("no.such.token").snapshot()


def test_an_option_that_the_api_lacks_is_refused_and_nothing_is_submitted(site: RestSite) -> None:
    with pytest.raises(Refused, match="--switches can't be sent through Slurm's REST API"):
        site.submit("--switches=1")
    assert site.cluster(site.alice).snapshot().jobs == ()


def test_a_drained_node_is_not_up_and_leaves_an_event(site: RestSite) -> None:
    cluster, now_s = site.cluster(site.alice), int(time.time())
    name = cluster.snapshot().nodes[-1].name
    scontrol = ["scontrol", "update", f"NodeName={name}"]
    try:
        subprocess.run(
            [*scontrol, "State=DRAIN", "Reason=test"], env=site.env(site.conf), check=True
        )
        assert [node.name for node in cluster.snapshot().nodes if not node.up] == [name]
        site.until(lambda: bool(cluster.node_events(now_s, now_s + 60)), lambda: "the event")
        (event,) = cluster.node_events(now_s, now_s + 60)
        assert (event.node, event.end_s) == (name, None)
        assert now_s - 2 <= event.start_s <= now_s + 60
    finally:
        subprocess.run([*scontrol, "State=RESUME"], env=site.env(site.conf), check=True)
