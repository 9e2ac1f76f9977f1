"""`slurm-sim cluster`: TOML from a slurm.conf and from a live Slurm's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_sim.cli.main import main
from slurm_sim.clusters import read_cluster, read_live_files
from slurm_sim.errors import InvalidCluster

SMALL = Path(__file__).parents[2] / "data" / "slurm_conf" / "small"
SCONTROL = [str(SMALL / "live" / f"{name}.txt") for name in ("config", "nodes", "partitions")]
SACCTMGR = [str(SMALL / "live" / f"{name}.txt") for name in ("qos", "assoc_parents")]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_live_cluster_becomes_a_toml(capsys: pytest.CaptureFixture[str]) -> None:
    # In any order: each file is known by what is in it.
    assert (
        main(["cluster", "--scontrol", *SCONTROL[::-1], "--sacctmgr", *SACCTMGR, "--out", "c.toml"])
        == 0
    )
    assert (
        read_cluster("c.toml").cluster == read_live_files(map(Path, [*SCONTROL, *SACCTMGR])).cluster
    )
    shown = capsys.readouterr().err
    assert (
        "mirage: 8 nodes, partitions gpu, long, debug, sets, quick; 3 QOS, 9 associations: c.toml"
        in shown
    )
    assert "note: sacctmgr show qos:4: GrpTRESMins=cpu=10000: not simulated" in shown


@pytest.mark.parametrize("with_conf", [False, True])
def test_errors_name_the_users_own_files(with_conf: bool) -> None:
    Path("q.txt").write_text("Name|Priority\nnormal|0|1\n")
    with pytest.raises(InvalidCluster, match=r"^q.txt: sacctmgr show qos:2: 3 columns"):
        (
            read_cluster(SMALL / "slurm.conf", ["q.txt"])
            if with_conf
            else read_live_files(map(Path, [*SCONTROL, "q.txt"]))
        )
    Path("hello.txt").write_text("hello\n")
    with pytest.raises(InvalidCluster, match=r"^hello.txt:1: found 'hello'; give the output of"):
        read_cluster(SMALL / "slurm.conf", ["hello.txt"])
    Path("c.txt").write_text(Path(SCONTROL[0]).read_text()[:3000])
    with pytest.raises(InvalidCluster, match=r"^c.txt: scontrol show config: no SchedulerType"):
        read_live_files(map(Path, ["c.txt", *SCONTROL[1:]]))


def test_a_slurm_conf_becomes_a_toml(capsys: pytest.CaptureFixture[str]) -> None:
    conf = str(SMALL / "slurm.conf")
    assert (
        main(["cluster", "--slurm-conf", conf, "--slurm-params", "bf_window=60", "--out", "c.toml"])
        == 0
    )
    cluster = read_cluster("c.toml").cluster
    assert cluster.params.bf_window_s == 3600
    assert cluster.nodes == read_cluster(conf).cluster.nodes
    capsys.readouterr()
    assert main(["cluster", "--slurm-conf", conf, "--slurm-params", "bf_window=60"]) == 0
    assert capsys.readouterr().out == Path("c.toml").read_text()


def test_a_slurm_conf_with_what_sacctmgr_shows(capsys: pytest.CaptureFixture[str]) -> None:
    conf = Path("slurm.conf")
    conf.write_text(
        "ClusterName=mirage\nAccountingStorageEnforce=limits\nNodeName=n[1-4]\nPartitionName=all"
        " Nodes=ALL QOS=part\n"
    )
    assert (
        main(["cluster", "--slurm-conf", str(conf), "--sacctmgr", *SACCTMGR, "--out", "c.toml"])
        == 0
    )
    cluster, live = (
        read_cluster("c.toml").cluster,
        read_live_files(map(Path, [*SCONTROL, *SACCTMGR])).cluster,
    )
    assert (cluster.qos, cluster.associations) == (live.qos, live.associations)
    assert (
        main(["cluster", "--slurm-conf", str(conf), "--sacctmgr", SACCTMGR[0], "--out", "c.toml"])
        == 0
    )
    assert read_cluster("c.toml").cluster.associations == ()
    conf.write_text(conf.read_text().replace("Enforce=limits", "Enforce=associations"))
    assert (
        main(["cluster", "--slurm-conf", str(conf), "--sacctmgr", *SACCTMGR, "--out", "c.toml"])
        == 0
    )
    assert {qos.max_jobs_per_user for qos in read_cluster("c.toml").cluster.qos} == {None}
    with pytest.raises(InvalidCluster, match="TOML has its own"):
        read_cluster("c.toml", SACCTMGR)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scontrol", SCONTROL[0], SCONTROL[1]], "give also `scontrol show partition -o`"),
        (["--scontrol", *SCONTROL, SCONTROL[1]], "nodes.txt: is of `scontrol show node -o`, like"),
        (
            ["--scontrol", *SCONTROL, "odd.txt"],
            "odd.txt:1: found 'JOBID PARTITION'; give the output of",
        ),
        (["--scontrol", *SCONTROL, "none.txt"], "none.txt: No such file or directory"),
        (["--slurm-conf", "none.conf"], "none.conf: No such file or directory"),
        (
            ["--slurm-conf", str(SMALL / "slurm.conf"), "--sacctmgr", SCONTROL[0]],
            "give the output of `sacctmgr",
        ),
        (
            ["--slurm-conf", str(SMALL / "slurm.conf"), "--out", "c.txt"],
            "--out c.txt: expected a name ending in .toml",
        ),
    ],
)
def test_wrong_files(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.txt").write_text("JOBID PARTITION\n1 gpu\n")
    assert main(["cluster", "--out", "c.toml", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("slurm-sim cluster: ")
    assert not Path("c.toml").exists()
