"""The plugin's place in job_submit.lua, model folders, and what is published of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mirage.cli.main import main
from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.errors import ClusterNonsense, InputError
from mirage.routing.flavors import Demand, paper_partitions
from mirage.routing.model import RoutingModel, read_model, save_model
from mirage.routing.places import NodeShape
from mirage.routing.plugin import PluginOptions, install, is_installed, outdated, remove
from mirage.routing.publish import Publisher, agents_of, table_of
from mirage.routing.state import Variant
from mirage.routing.table import AGENTS, STATE, read_agents, read_state
from mirage.slurm.resources import NodeUse, parse_node_use
from mirage.slurm.runner import CommandResult, Runner
from slurm_sim import ClusterConfig, NodeSpec, Params, Partition
from slurm_sim.config import SelectType
from tests.queue_logs import SameWait
from tests.routing_tables import NOW_S, random_agent
from tests.unit.routing.test_lua import needed

HOUR = 3600
SITE = """\
-- our own rules
function slurm_job_submit(job_desc, part_list, uid)
    if job_desc.account == nil then
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, uid)
    return slurm.SUCCESS
end

slurm.log_info("loaded")
return slurm.SUCCESS
-- the end
"""


@pytest.fixture
def agents() -> tuple:
    random = np.random.default_rng(2)
    return tuple(random_agent(kind, Variant.PAPER, random) for kind in paper_partitions())


# --- job_submit.lua
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SITE, SITE.replace("return slurm.SUCCESS\n-- the end\n", "")])
def test_what_the_site_wrote_comes_back_to_the_byte(tmp_path: Path, text: str) -> None:
    script = tmp_path / "job_submit.lua"
    script.write_text(text)
    script.chmod(0o640)
    install(script, PluginOptions())
    assert is_installed(script)
    assert outdated(script) == []
    assert all(line in script.read_text() for line in text.splitlines())
    assert script.stat().st_mode & 0o777 == 0o640
    assert remove(script)
    assert script.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["job_submit.lua"]
    assert not remove(script)


def test_installing_again_changes_the_options_and_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "job_submit.lua"
    install(script, PluginOptions())
    first = script.stat().st_mtime
    install(
        script,
        PluginOptions(marker="auto", named=True, counters="/tmp/c.prom"),
    )
    text = script.read_text()
    assert text.count("mirage.wrap(") == 1
    assert 'marker = "auto", named = true, counters = "/tmp/c.prom"' in text
    assert int(script.stat().st_mtime) > int(first)  # slurmctld compares whole seconds


def test_a_changed_lua_file_is_told(tmp_path: Path) -> None:
    script = tmp_path / "job_submit.lua"
    install(script, PluginOptions())
    (tmp_path / "mirage_decide.lua").write_text("-- mine")
    assert outdated(script) == ["mirage_decide.lua"]


def test_a_script_that_is_not_understood_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "job_submit.lua"
    script.write_text("return slurm.SUCCESS\nfunction late() end\n")
    with pytest.raises(InputError, match=r"job_submit.lua:1: a `return` outside"):
        install(script, PluginOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["job_submit.lua"]
    with pytest.raises(InputError, match="without quotes"):
        install(tmp_path / "other.lua", PluginOptions(marker='a"b'))


@pytest.mark.parametrize("text", [None, SITE])
def test_lua_can_load_what_was_installed(tmp_path: Path, text: str | None) -> None:
    script = tmp_path / "job_submit.lua"
    if text:
        script.write_text(text)
    install(script, PluginOptions(run=tmp_path))
    code = f"""
    slurm = {{SUCCESS = 0, ERROR = -1, log_info = function() end, log_error = function() end}}
    assert(dofile("{script}") == slurm.SUCCESS)
    assert(slurm_job_submit({{account = "a", script = "x"}}, {{}}, 0) == slurm.SUCCESS)
    assert(slurm_job_modify({{}}, {{}}, {{}}, 0) == slurm.SUCCESS)
    print(slurm_job_submit({{script = "x"}}, {{}}, 0))
    """
    done = subprocess.run(
        [needed("lua5.1"), "-e", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == ("-1\n" if text else "0\n"), done.stderr


def test_verbs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm
    words = ["--script", str(tmp_path / "job_submit.lua")]
    assert main(["plugin", "install", *words, "--run", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["plugin", "status", *words, "--run", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["installed"]
    assert not report["routes"]
    assert report["job_submit_plugins"] == "unknown"
    assert "routing.state: can't be read" in report["problem"]
    assert main(["plugin", "remove", *words]) == 0
    assert main(["plugin", "remove", "--script", str(tmp_path / "none")]) == 2


def test_without_script_it_goes_beside_slurm_conf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "etc" / "slurm.conf"))
    (tmp_path / "etc").mkdir()
    assert main(["plugin", "install", "--run", str(tmp_path)]) == 0
    script = tmp_path / "etc" / "job_submit.lua"
    assert script.exists()
    capsys.readouterr()
    assert main(["plugin", "status", "--run", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{script}: routing is in it\n" in said
    assert "slurmctld can't be asked now" in said
    assert said.endswith("Jobs are not routed.\n")
    assert "None" not in said
    assert main(["plugin", "remove"]) == 0


def test_where_slurmctld_says_its_conf_lies_that_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    scontrol = tmp_path / "scontrol"
    answer = f"SLURM_CONF   = {tmp_path}/slurm.conf\nSLURM_VERSION  = 22.05.8\n"
    scontrol.write_text(f"#!/bin/sh\necho '{answer}'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert main(["plugin", "install", "--run", str(tmp_path)]) == 0
    assert (tmp_path / "job_submit.lua").exists()


# --- model folders
# ---------------------------------------------------------------------------------------------------


def test_a_model_reads_back_as_it_was(tmp_path: Path, agents: tuple) -> None:
    pytest.importorskip("safetensors", reason="the extra `train` is not installed")
    rounded = tuple(RoutingModel(agents).agents)
    save_model(tmp_path / "m", rounded, "nothing", 1, {"rate": 0.5})
    found = read_model(tmp_path / "m").agents
    assert [agent.kind for agent in found] == [agent.kind for agent in agents]
    for one, other in zip(found, agents, strict=True):
        for mine, theirs in zip(one.layers, other.layers, strict=True):
            assert np.allclose(mine.weights, theirs.weights)
    save_model(tmp_path / "again", found, "nothing", 1, {})
    assert read_model(tmp_path / "again").agents == found  # float32 to float32


def test_a_changed_model_is_refused(tmp_path: Path, agents: tuple) -> None:
    pytest.importorskip("safetensors", reason="the extra `train` is not installed")
    save_model(tmp_path / "m", agents, "nothing", 1, {})
    weights = tmp_path / "m" / "agents.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\xc0\x7f")
    with pytest.raises(InputError, match="truncated or changed"):
        read_model(tmp_path / "m")


def test_agents_with_nan_or_of_another_shape_are_refused(agents: tuple) -> None:
    layer = agents[0].layers[0]
    nan = replace(layer, bias=(float("nan"), *layer.bias[1:]))
    with pytest.raises(InputError, match="not a finite number"):
        replace(agents[0], layers=(nan, *agents[0].layers[1:]))
    with pytest.raises(InputError, match="a layer takes"):
        replace(agents[0], layers=agents[0].layers[1:])


def test_plugin_publish_and_status_need_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import mirage.cli.plugin, mirage.cli.route, mirage.routing.publish, mirage.routing.decide"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what is published
# -----------------------------------------------------------------------------------------------

SINFO = """\
a1|A100*|64/192/0/256|1048576|262144|gpu:a100:8(S:0-1)|gpu:a100:2(IDX:0-1)|
a2|A100*|0/256/0/256|1048576|0|gpu:a100:8(S:0-1)|gpu:a100:0(IDX:N/A)|
v1|V100|80/0/0/80|524288|524288|gpu:8|gpu:(null):8(IDX:0-7)|
v1|all|80/0/0/80|524288|524288|gpu:8|gpu:(null):8(IDX:0-7)|
v2|V100|0/0/80/80|524288|0|gpu:8|gpu:0|
"""


def job(
    job_id: int,
    partition: str,
    state: JobState,
    gpus: int,
    nodes: tuple[str, ...] = (),
    **more: int,
) -> Job:
    return Job(
        job_id=job_id,
        user="u",
        partition=partition,
        state=state,
        nodes=len(nodes) or 1,
        submit_s=NOW_S - HOUR,
        gpus=gpus,
        node_names=nodes,
        **more,
    )


@pytest.fixture
def snapshot() -> Snapshot:
    jobs = (
        job(1, "A100", JobState.RUNNING, 2, ("a1",), start_s=NOW_S - HOUR, time_limit_s=3 * HOUR),
        job(2, "V100", JobState.RUNNING, 4, ("v1",), start_s=NOW_S - HOUR, time_limit_s=5 * HOUR),
        job(3, "V100", JobState.RUNNING, 4, ("v1",), start_s=NOW_S - HOUR, time_limit_s=9 * HOUR),
        job(4, "V100,A100", JobState.PENDING, 4, time_limit_s=9 * HOUR),
        job(5, "V100", JobState.PENDING, 2, time_limit_s=9999 * HOUR),
    )
    nodes = tuple(
        ClusterNode(name=name, partitions=(name[0].upper() + "100",), up=name != "v2", idle=False)
        for name in ("a1", "a2", "v1", "v2")
    )
    return Snapshot(at_s=NOW_S, jobs=jobs, nodes=nodes)


def publisher_in(run: Path, records: Sequence[Job] = (), **more: Any) -> Publisher:
    """On the cluster of `SINFO`."""
    runner = Runner(execute=lambda *_: CommandResult(stdout=SINFO, stderr="", returncode=0))
    return Publisher(run=run, runner=runner, valid_s=60, accounting=lambda *_: records, **more)


def test_sinfo_is_read() -> None:
    nodes = parse_node_use(SINFO)
    assert nodes[0] == NodeUse(
        name="a1",
        partitions=("A100",),
        total=(8, 256, 1048576),
        free=(6, 192, 786432),
        gpu_type="a100",
    )
    assert nodes[2] == NodeUse(
        name="v1", partitions=("V100", "all"), total=(8, 80, 524288), free=(0, 0, 0)
    )
    with pytest.raises(ClusterNonsense, match="expected lines of 7 fields"):
        parse_node_use("what?\n")
    line = SINFO.splitlines()[0]
    strange = line.replace(line.split("|")[2], "all of them")
    assert parse_node_use(f"a banner\n{strange}\n{SINFO}") == nodes


def test_the_table_shows_the_cluster(snapshot: Snapshot) -> None:
    a100, v100 = table_of(paper_partitions(), snapshot, parse_node_use(SINFO), 60).partitions
    assert [server.free[0] for server in a100.servers] == [6, 8]
    assert (a100.servers[0].next_end_s, a100.servers[0].last_end_s) == (
        NOW_S + 2 * HOUR,
        NOW_S + 2 * HOUR,
    )
    assert (v100.servers[0].next_end_s, v100.servers[0].last_end_s) == (
        NOW_S + 4 * HOUR,
        NOW_S + 8 * HOUR,
    )
    assert [server.up for server in v100.servers] == [True, False]
    assert (a100.queued, v100.queued) == ([0, 1, 0, 0], [0, 1, 0, 1])
    assert a100.queued_s == 4 * 9 * HOUR / 2  # the job waits in both
    assert v100.queued_s == 4 * 9 * HOUR / 2 + 16 * 336 * HOUR


def test_a_partition_of_another_size_is_told(snapshot: Snapshot) -> None:
    kinds = [replace(kind, servers=3) for kind in paper_partitions()]
    with pytest.raises(InputError, match="2 nodes in Slurm, 3 in its flavours"):
        table_of(kinds, snapshot, parse_node_use(SINFO), 60)


def test_publisher_writes_agents_once_and_the_state_each_time(
    tmp_path: Path, agents: tuple, snapshot: Snapshot
) -> None:
    pytest.importorskip("safetensors", reason="the extra `train` is not installed")
    save_model(tmp_path / "m", agents, "nothing", 1, {})
    run = tmp_path / "run"
    run.mkdir()
    publisher = publisher_in(run, agents=agents_of(tmp_path / "m"))
    publisher.publish(snapshot)
    written = (run / AGENTS).stat().st_mtime_ns
    publisher.publish(replace(snapshot, at_s=NOW_S + 9))
    assert (run / AGENTS).stat().st_mtime_ns == written
    found, checksum = read_agents(run / AGENTS)
    table, wanted = read_state(run / STATE, [agent.kind for agent in found])
    assert (table.at_s, table.valid_s, wanted) == (NOW_S + 9, 60, checksum)


def test_it_publishes_places_without_agents(tmp_path: Path, snapshot: Snapshot) -> None:
    past = [
        job(
            100 + number,
            "A100",
            JobState.COMPLETED,
            8,
            ("a1",),
            eligible_s=NOW_S - HOUR,
            start_s=NOW_S - HOUR + 1200,
            end_s=NOW_S - 60,
            time_limit_s=HOUR,
        )
        for number in range(40)
    ]
    publisher = publisher_in(tmp_path, past, partitions=("A100", "V100"))
    publisher.publish(snapshot)
    table, checksum = read_state(tmp_path / STATE)
    assert (checksum, table.partitions, table.valid_s) == (0, (), 60)
    a100, v100 = table.places
    shape = NodeShape(count=2, cpus=256, memory_mib=1048576, gpus=8, gpu_type="a100")
    assert a100.shapes == (shape,)
    assert [(each.count, each.gpu_type) for each in v100.shapes] == [(1, "-")]  # v2 is down
    asked = Demand(nodes=1, gpus=8, limit_s=HOUR)
    assert a100.wait_s(asked) == pytest.approx(1200, abs=60)
    assert not (tmp_path / AGENTS).exists()
    with pytest.raises(InputError, match="partition none has no nodes"):
        publisher_in(tmp_path, partitions=("none",)).publish(snapshot)
    with pytest.raises(InputError, match="no partitions"):
        publisher_in(tmp_path)


def test_places_are_by_what_the_nights_learnt(tmp_path: Path, snapshot: Snapshot) -> None:
    learned = SameWait(4321.0)
    publisher_in(tmp_path, partitions=("A100", "V100"), learned=lambda: learned).publish(snapshot)
    asked = Demand(nodes=1, gpus=8, limit_s=HOUR)
    table, _ = read_state(tmp_path / STATE)
    assert [place.wait_s(asked) for place in table.places] == [4321, 4321]


def test_agents_are_given_slurms_plan(tmp_path: Path, agents: tuple, snapshot: Snapshot) -> None:
    cluster = ClusterConfig(
        tuple(
            NodeSpec(name, cpus=256 if name[0] == "a" else 80, memory_mib=2**19, gpus=8)
            for name in ("a1", "a2", "v1", "v2")
        ),
        (Partition("A100", ("a1", "a2")), Partition("V100", ("v1", "v2"))),
        Params(select_type=SelectType.CONS_TRES, memory_is_consumable=True),
    )
    publisher = publisher_in(tmp_path, agents=agents, describe=lambda: cluster)
    publisher.publish(snapshot)
    a100, _ = read_state(tmp_path / STATE, [agent.kind for agent in agents])[0].partitions
    assert a100.waits_s[0] < 60
    assert a100.waits_s[3] > HOUR  # all servers: one has a job for two hours


def test_agents_of_two_partitions_are_for_two(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    agents = tuple(random_agent(kind, Variant.CHOICE, random) for kind in paper_partitions())
    publisher_in(tmp_path, agents=agents)
    with pytest.raises(InputError, match="not trained with 1 partitions"):
        publisher_in(tmp_path, agents=agents[:1])


def test_a_failed_publication_does_not_end_a_cycle(tmp_path: Path) -> None:
    from mirage.daemon.cycle import Daemon
    from mirage.daemon.observers import RoutingTable
    from mirage.daemon.restraint import Acting
    from mirage.domain import ActingMode
    from mirage.errors import MirageError
    from mirage.provision.policies.heuristics import Reactive
    from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
    from mirage.store.repository import SqlStore
    from slurm_sim import Simulator, whole_nodes

    seen = []

    def fails(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        raise MirageError("no such folder")

    sim = Simulator(whole_nodes(2), start_s=NOW_S)
    cluster = SimulatedCluster(sim)
    with SqlStore.open(f"sqlite:///{tmp_path}/m.db") as store:
        daemon = Daemon(
            cluster,
            store,
            SimulatedClock(sim),
            Reactive(),
            poll_s=600,
            acting=Acting(mode=ActingMode.ENFORCE),
            observers=(RoutingTable(fails),),
        )
        assert daemon.run_cycle()
    assert len(seen) == 1
