"""The plugin inside a real slurmctld: it routes what it should, and whatever is wrong, every job is
accepted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from mirage.routing.agent import Agent
from mirage.routing.decide import RoutedJob, Table, corrected, decide, limit_of
from mirage.routing.flavors import Demand, Flavor, PartitionKind
from mirage.routing.plugin import LUA_FILES
from mirage.routing.state import PartitionState, Variant
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from tests.routing_tables import random_agent, with_nan
from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, ROOT, Site, until

pytestmark = pytest.mark.slurm

DAY = 86400
FLAVORS = (Flavor("s", 1, 2, 2000, DAY), Flavor("l", 2, 4, 4000, DAY))
KINDS = tuple(PartitionKind(name, 2, 2, 4, 4000, 0.0, 0.0, FLAVORS) for name in ("left", "right"))
PARTITIONS = (
    "PartitionName=left Nodes=n[1-2] MaxTime=1-0",
    "PartitionName=right Nodes=n[3-4] MaxTime=1-0",
)
SIZES = (("--gres=gpu:1", Demand(1, limit_s=600)), ("--gpus=2", Demand(2, limit_s=600)))


@dataclass
class Plugin:
    """Routing in the site's slurmctld, its published files, and what the reference would choose."""

    site: Site
    agents: list[Agent]
    routed: list[RoutedJob] = field(default_factory=list)

    @property
    def script(self) -> Path:
        return self.site.folder / "etc" / "job_submit.lua"

    @property
    def run(self) -> Path:
        return self.site.folder / "routing"

    def verb(self, *words: str) -> subprocess.CompletedProcess[str]:
        folder = self.site.folder
        more = {
            "SLURM_CONF": f"{folder}/etc/slurm.conf",
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
        }
        return subprocess.run(
            [sys.executable, "-m", "mirage.cli.main", *words],
            env=os.environ | more,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def plugin(self, what: str, *more: str) -> subprocess.CompletedProcess[str]:
        return self.verb("plugin", what, "--script", str(self.script), *more)

    def table(self, at_s: int | None = None) -> Table:
        now_s = int(time.time()) if at_s is None else at_s
        states = tuple(PartitionState.empty(kind) for kind in KINDS)
        for number, server in enumerate(server for state in states for server in state.servers):
            server.name = f"n{number + 1}"
        return Table(now_s, 3600, states)

    def publish(self, at_s: int | None = None) -> None:
        text = agents_text(self.agents)
        write(self.run, AGENTS, text)
        write(self.run, STATE, state_text(self.table(at_s), text))

    def reload(self) -> None:
        """slurmctld forgets what was routed when it reads the script again."""
        later = int(self.script.stat().st_mtime) + 1
        os.utime(self.script, (later, later))

    def submit(self, *words: str) -> tuple[dict[str, str], str]:
        """The job as slurmctld has it, and what sbatch told."""
        done = self.site.run(ALICE, "sbatch", "--parsable", "-t", "10", *words, "--wrap", "sleep 1")
        return self.site.job(int(done.stdout)), done.stderr

    def expected(self, demand: Demand) -> set[str]:
        now_s = int(time.time())
        choice = decide(
            corrected(self.table(now_s - 60), self.routed), self.agents, demand, {"left", "right"}
        )
        assert choice is not None
        self.routed.append(RoutedJob(now_s, choice, limit_of(self.table(), choice, demand)))
        return set(choice.partitions)


@pytest.fixture(scope="module")
def enabled(site: Site) -> Iterator[Plugin]:
    # Variant.PAPER sees no times: the choices depend on nothing but what is free.
    random = np.random.default_rng(9)
    plugin = Plugin(site, [random_agent(kind, Variant.PAPER, random) for kind in KINDS])
    plugin.run.mkdir(exist_ok=True)
    done = plugin.plugin("install", "--run", str(plugin.run))
    assert done.returncode == 0, done.stderr
    configure(site, "JobSubmitPlugins=lua", *PARTITIONS)
    yield plugin
    configure(site, "JobSubmitPlugins=", *(f"{line.split()[0]} =" for line in PARTITIONS))
    for name in ("job_submit.lua", *LUA_FILES):
        (site.folder / "etc" / name).unlink(missing_ok=True)


def configure(site: Site, *lines: str) -> None:
    words = [word for line in lines for word in ("--set", line)]
    done = subprocess.run(
        [str(ROOT / "scripts/slurm-up"), "--dir", str(site.folder), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def plugin(enabled: Plugin) -> Plugin:
    """Installed, published, and freshly read."""
    enabled.plugin("install", "--run", str(enabled.run))
    enabled.routed.clear()
    enabled.reload()
    enabled.publish(int(time.time()) - 60)
    return enabled


def test_jobs_go_where_the_reference_says(plugin: Plugin) -> None:
    found, expected = [], []
    for number in range(16):
        option, demand = SIZES[number % 3 % 2]
        job, told = plugin.submit(option, "--comment=mine")
        found.append(set(job["Partition"].split(",")))
        expected.append(plugin.expected(demand))
        assert f"mirage: routed to partition {job['Partition']}" in told
        text = plugin.site.run("root", "scontrol", "show", "job", job["JobId"]).stdout
        assert "Comment=mine routed_by=mirage" in text
    assert found == expected
    assert {"left"} in found
    assert {"right"} in found
    assert {"left", "right"} in found  # the plugin counts eight GPUs, and jobs that do not end


def test_without_agents_any_job_goes_everywhere_that_can_run_it(plugin: Plugin) -> None:
    words = ("--partitions", "left,right", "--run", str(plugin.run))
    assert plugin.verb("route", "publish", *words).returncode == 0
    plugin.reload()
    for options in (
        ("--gpus=2",),
        ("-a", "1-2", "--gres=gpu:1"),
        ("-N2", "--gres=gpu:2"),
        ("-p", "gpu", "--gres=gpu:1", "--comment=mirage:anywhere"),
    ):
        job, told = plugin.submit(*options)
        assert set(job["Partition"].split(",")) - {"gpu"} == {"left", "right"}, options
        assert "mirage: routed to partition" in told
    for options in (("-N3", "--gres=gpu:1"), ("--gres=gpu:other:1",), ()):
        done = plugin.site.run(ALICE, "sbatch", "-t10", *options, "--wrap", "true", check=False)
        assert "mirage" not in done.stderr, options


def test_an_anywhere_chain_leaves_a_slow_partition_before_it_is_released(
    plugin: Plugin, service: Service
) -> None:
    site = plugin.site
    for name in ("left", "right"):
        site.run(ALICE, "sbatch", "-W", "-p", name, "-t10", "--wrap", "true")
    speeds = service.folder / "speeds.toml"
    speeds.write_text("left = 1.0\nright = 0.05\n")
    service.configure()
    with (service.folder / "mirage.toml").open("a") as config:
        config.write(f'[routing]\nspeeds = "{speeds}"\n')
    script = site.script(ALICE, "anywhere.sh", "#!/bin/sh\ntrap 'exit 1' TERM\nsleep 300 &\nwait\n")
    chain, jobs = site.submit_chain(ALICE, "--segments=4", "--anywhere=left,right", "-t10", script)
    until(lambda: site.state(jobs[0]) == "RUNNING", 60, "the first link")
    assert set(site.job(jobs[1])["Partition"].split(",")) == {"left", "right"}
    service.start()
    until(lambda: site.state(jobs[1]) in ("RUNNING", "COMPLETING"), 120, "the second link")
    assert site.job(jobs[1])["Partition"] == "left"
    links = until(
        lambda: len(found := site.chain_jobs(ALICE, chain)) > 2 and found, 120, "the third link"
    )
    assert all(len(ids) == 1 for ids in links.values())  # none is doubled
    assert f"job {jobs[1]}: finishes first in left" in service.log.read_text()
    command = site.job(links[3][0])
    assert "left" in command["Partition"]  # left,right until its own release


def test_a_job_that_names_its_partition_gets_a_server_there(plugin: Plugin) -> None:
    plugin.plugin("install", "--run", str(plugin.run), "--named")
    jobs = [plugin.submit("-p", "right", "--gpus=2") for _ in range(3)]
    assert [job["Partition"] for job, _ in jobs] == ["right"] * 3
    servers = [
        plugin.site.run("root", "scontrol", "show", "job", job["JobId"]).stdout for job, _ in jobs
    ]
    assert ["ReqNodeList=n3 " in servers[0], "ReqNodeList=n4 " in servers[1]] == [True, True]
    assert "ReqNodeList=(null)" in servers[2]
    assert plugin.submit("--gpus=1")[0]["Partition"] == "left"


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "debug", "--gres=gpu:1"),
        ("-w", "n5", "--gres=gpu:1"),
        ("-H", "--gres=gpu:1"),
        ("--begin=now+1hour", "--gres=gpu:1"),
        ("-N3", "--gres=gpu:1"),
        (),
    ],
    ids=lambda words: " ".join(words) or "no GPUs",
)
def test_jobs_that_are_decided_are_left_alone(plugin: Plugin, words: tuple[str, ...]) -> None:
    job, told = plugin.submit(*words)
    assert job["Partition"] == ("debug" if "debug" in words else "gpu")
    assert told == ""


def test_heterogeneous_and_interactive_jobs_are_left_alone(plugin: Plugin) -> None:
    job, told = plugin.submit("--gres=gpu:1", "-n1", ":", "--gres=gpu:1", "-n1")
    assert (job["Partition"], told) == ("gpu", "")
    done = plugin.site.run(
        ALICE, "srun", "-t", "1", "--gres=gpu:1", "printenv", "SLURM_JOB_PARTITION"
    )
    assert (done.stdout, "mirage" in done.stderr) == ("gpu\n", False)


def nan_weights(plugin: Plugin) -> None:
    body = with_nan(agents_text(plugin.agents).replace("-", "0.0 ", 1)).replace(" 0.", " nan 0.", 1)
    text = f"mirage-agents 3 {zlib.adler32(body.encode())} {len(body.encode())}\n{body}"
    assert "nan" in text
    write(plugin.run, AGENTS, text)
    write(plugin.run, STATE, state_text(plugin.table(), text))


def of_another_release(plugin: Plugin) -> None:
    text = (plugin.run / STATE).read_text()
    (plugin.run / STATE).write_text(text.replace("mirage-state 3", "mirage-state 2", 1))


def corrupt(plugin: Plugin) -> None:
    text = (plugin.run / STATE).read_text()
    (plugin.run / STATE).write_text(text[: len(text) // 2])


def lua_error(plugin: Plugin) -> None:
    script = plugin.script.parent / "mirage_decide.lua"
    script.write_text("return { check = function() error('a fault') end }\n")
    plugin.reload()


def no_lua_files(plugin: Plugin) -> None:
    for name in LUA_FILES:
        (plugin.script.parent / name).unlink()
    plugin.reload()


FAULTS: dict[str, Callable[[Plugin], object]] = {
    "daemon dead": lambda plugin: plugin.publish(int(time.time()) - 4000),
    "missing": lambda plugin: (plugin.run / STATE).unlink(),
    "no agents": lambda plugin: ((plugin.run / AGENTS).unlink(), plugin.reload()),
    "cut": corrupt,
    "of another release": of_another_release,
    "nan weights": nan_weights,
    "lua error": lua_error,
    "no lua files": no_lua_files,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_job_is_accepted_as_submitted(plugin: Plugin, fault: str) -> None:
    FAULTS[fault](plugin)
    for _ in range(2):
        job, told = plugin.submit("--gres=gpu:1")
        assert (job["Partition"], told) == ("gpu", "")
        assert "Comment" not in job


def test_removed_it_routes_nothing(plugin: Plugin) -> None:
    assert plugin.plugin("remove").returncode == 0
    job, told = plugin.submit("--gres=gpu:1")
    assert (job["Partition"], told) == ("gpu", "")


def test_what_is_published_of_the_real_cluster_is_routed_by(plugin: Plugin, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra `train` is not installed")
    from mirage.routing.model import save_model

    save_model(tmp_path / "m", plugin.agents, "nothing", 1, {})
    done = plugin.verb("route", "publish", "--model", str(tmp_path / "m"), "--run", str(plugin.run))
    assert done.returncode == 0, done.stderr
    report = json.loads(plugin.plugin("status", "--run", str(plugin.run), "--json").stdout)
    assert (report["routes"], report["problem"], report["partitions"]) == (
        True,
        "",
        ["left", "right"],
    )
    assert [
        line.split()[2:9]
        for line in (plugin.run / STATE).read_text().splitlines()
        if "server" in line
    ] == [["1", "2", "4", "4000", "2", "4", "4000"]] * 4
    first, _ = plugin.submit("--gres=gpu:1")
    assert first["Partition"] in ("left", "right")


def test_the_daemon_publishes_with_each_cycle(plugin: Plugin, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the extra `train` is not installed")
    from mirage.routing.model import save_model

    save_model(tmp_path / "m", plugin.agents, "nothing", 1, {})
    (plugin.run / STATE).unlink()
    config = tmp_path / "mirage.toml"
    config.write_text(
        f'[daemon]\nstore = "sqlite:///{tmp_path}/m.db"\n[routing]\nmodel = "{tmp_path}/m"\nrun ='
        f' "{plugin.run}"\n'
    )
    done = plugin.verb("daemon", "--once", "--config", str(config))
    assert done.returncode == 0, done.stderr

    assert plugin.submit("--gres=gpu:1")[0]["Partition"] in ("left", "right")
