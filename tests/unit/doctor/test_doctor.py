"""`mirage doctor`: each check on a site that is well, and on one where just that is not."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirage.cli.doctor import examine
from mirage.config import ActingConfig, Config, DaemonConfig, PolicyConfig
from mirage.doctor.finding import EXIT_CODES, Severity, ok, worst
from mirage.doctor.service import check_files, check_server, differences_of
from mirage.doctor.survey import ClockSkew, Site
from mirage.domain import ClusterNode, Settings, Snapshot
from mirage.errors import AccountingUnavailable, ClusterNonsense, ClusterUnavailable, InputError
from mirage.slurm import argv
from mirage.slurm.runner import CommandResult, Runner
from mirage.slurm.survey import JobLimits, Survey, controller_time_s
from slurm_sim.config import ClusterConfig, NodeSpec, Params, Partition, named_nodes
from tests.databases import SERVERS, database_on
from tests.unit.cli.test_cli import Shell, shell  # noqa: F401 - a fixture

NAMES = ("n1", "n2")
PARAMETERS = {
    "AccountingStorageEnforce": "associations,limits",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobSubmitPlugins": "lua",
    "MinJobAge": "300 sec",
    "OverTimeLimit": "0 min",
    "PriorityType": "priority/multifactor",
    "PrivateData": "none",
    "SlurmUser": "slurm(64030)",
}
GONE = ClusterUnavailable("no answer")
FREE = JobLimits(
    user="alice",
    account="research",
    partition="",
    qos="normal",
    max_jobs=None,
    max_submit=None,
    group_jobs=None,
    group_submit=None,
)
PARTITION = Partition("gpu", NAMES, max_time_s=86_400)
LIVE = ClusterConfig(named_nodes(NAMES), (PARTITION,), Params())
GPU_NODES = tuple(NodeSpec(name, gpus=2) for name in NAMES)
BUSY = Snapshot(
    at_s=0,
    jobs=(),
    nodes=tuple(
        ClusterNode(name=name, partitions=("gpu",), up=True, idle=False, state="allocated")
        for name in NAMES
    ),
)
LONGER = replace(LIVE, partitions=(replace(PARTITION, over_time_limit_s=300),))


def settings(version: str = "22.05.8", accrue_always: bool = False, **parameters: str) -> Settings:
    return Settings(
        version=version,
        cluster="c1",
        accrue_always=accrue_always,
        parameters=PARAMETERS | parameters,
    )


def site(**more: object) -> Site:
    nodes = tuple(ClusterNode(name=name, partitions=("gpu",), up=True, idle=True) for name in NAMES)
    well = Site(
        user="mirage",
        is_root=False,
        of_daemon=True,
        settings=settings(),
        clock=ClockSkew(0.2, 0.1),
        snapshot=Snapshot(at_s=0, jobs=(), nodes=nodes),
        live=LIVE,
        admin_level="Operator",
        limits=[FREE],
        qos=[],
        history_days=90,
    )
    return replace(well, **more)  # type: ignore[arg-type]


def config(folder: Path, **acting: object) -> Config:
    store = DaemonConfig(store=f"sqlite:///{folder}/mirage.db")
    return Config(
        daemon=store,
        acting=ActingConfig(**{"mode": "enforce", "disable_file": str(folder / "x"), **acting}),
    )  # type: ignore[arg-type]


def found(folder: Path, **more: object) -> dict[str, object]:
    """The findings that are not OK: check -> finding."""
    findings = list(examine(site(**more), config(folder)))
    return {finding.check: finding for finding in findings if finding.severity is not Severity.OK}


def test_an_adapter_that_does_not_work_is_an_error(tmp_path, monkeypatch):
    def connect(_):
        raise InputError('cluster.adapter = "pyslurm": PySlurm is not installed.')

    monkeypatch.setattr("mirage.doctor.service.connect", connect)
    assert found(tmp_path)["adapter"].what.endswith("PySlurm is not installed.")
    assert "adapter" not in found(
        tmp_path, settings=GONE
    )  # without slurmctld nothing can be said of it


def test_a_site_that_is_well(tmp_path):
    findings = list(examine(site(), config(tmp_path)))
    assert {finding.severity for finding in findings} == {Severity.OK}
    assert len(findings) >= 12


@pytest.mark.parametrize(
    ("more", "check", "severity", "words"),
    [
        ({"settings": GONE}, "slurm", Severity.ERROR, "can't be asked: no answer"),
        ({"settings": settings("25.11.1")}, "release", Severity.NOTE, "tested on 22.05"),
        ({"settings": settings("19.05.2")}, "release", Severity.WARNING, "older than any"),
        ({"clock": ClockSkew(120, 0.1)}, "clock", Severity.ERROR, "2 min ahead of"),
        ({"clock": ClockSkew(-120, 0.1)}, "clock", Severity.ERROR, "behind"),
        ({"clock": GONE}, "clock", Severity.WARNING, "not known"),
        ({"snapshot": ClusterNonsense("squeue: what?")}, "queue", Severity.ERROR, "squeue: what?"),
        ({"snapshot": BUSY}, "agreement: hidden-jobs", Severity.WARNING, "no job of squeue's has them"),
        ({"live": replace(LIVE, nodes=GPU_NODES)}, "agreement: gpus", Severity.WARNING, "AccountingStorageTRES"),
        ({"settings": settings(PrivateData="jobs"), "of_daemon": False}, "private-data", Severity.WARNING, "hides"),
        ({"settings": settings(accrue_always=True)}, "priority", Severity.WARNING, "ACCRUE_ALWAYS"),
        ({"settings": settings(PriorityType="priority/basic")}, "priority", Severity.NOTE, "first come"),
        ({"live": replace(LIVE, params=Params(backfill=False))}, "backfill", Severity.WARNING, "no backfill"),
        ({"live": replace(LIVE, params=Params(bf_window_s=3600))}, "backfill", Severity.WARNING, "bf_window is 1 h"),
        ({"live": replace(LIVE, params=Params(bf_max_job_user=3))}, "backfill-limits", Severity.NOTE, "_job_user=3"),
        ({"live": replace(LIVE, params=Params(bf_max_job_assoc=2))}, "backfill-limits", Severity.NOTE, "_job_assoc=2"),
        ({"live": GONE}, "backfill", Severity.WARNING, "not known"),
        ({"settings": settings(AccountingStorageType="(null)")}, "accounting", Severity.WARNING, "no accounting"),
        ({"settings": settings(AccountingStorageType="(null)")}, "min-job-age", Severity.WARNING, "every 600 s"),
        ({"history_days": AccountingUnavailable()}, "accounting", Severity.WARNING, "can't be read"),
        ({"history_days": 1}, "accounting", Severity.WARNING, "of the last day only"),
        ({"history_days": 0}, "accounting", Severity.WARNING, "of none of the days"),
        ({"settings": settings(OverTimeLimit="5 min")}, "time-limit", Severity.NOTE, "run on after"),
        ({"live": LONGER}, "time-limit", Severity.NOTE, "OverTimeLimit=0 min (of partition gpu: its own)"),
        ({"settings": settings(JobSubmitPlugins="(null)")}, "plugin", Severity.NOTE, "no lua"),
        ({"settings": settings("26.05.0")}, "plugin", Severity.WARNING, "rejects the job"),
        ({"admin_level": "None"}, "rights", Severity.ERROR, "mirage is no Operator"),
        ({"admin_level": GONE}, "rights", Severity.ERROR, "none known"),
        ({"limits": [replace(FREE, max_jobs=1)]}, "max-jobs", Severity.WARNING, "alice in research"),
        ({"limits": [replace(FREE, user="", group_jobs=1)]}, "max-jobs", Severity.WARNING, "all users in research"),
        ({"qos": [replace(FREE, qos="long", max_jobs=1)]}, "max-jobs", Severity.WARNING, "QOS long"),
        ({"qos": [FREE, replace(FREE, qos="short", max_jobs=1)]}, "max-jobs", Severity.NOTE, "QOS short"),
        ({"limits": [replace(FREE, max_submit=1)]}, "max-submit", Severity.ERROR, "alice in research"),
        ({"limits": [replace(FREE, max_jobs=0)]}, "no-jobs", Severity.NOTE, "alice in research"),
        ({"limits": [replace(FREE, max_jobs=1)] * 9}, "max-jobs", Severity.WARNING, "and 4 more"),
        ({"limits": GONE}, "limits", Severity.WARNING, "can't be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_reason(tmp_path, more, check, severity, words):
    finding = found(tmp_path, **more)[check]
    assert finding.severity is severity
    assert words in finding.what
    assert finding.why
    assert finding.do


@pytest.mark.parametrize(
    "more",
    [
        {"user": "slurm", "admin_level": "None"},
        {"is_root": True, "admin_level": ""},
        {"admin_level": "Administrator"},
        {"admin_level": "None", "of_daemon": False},
        {
            "settings": settings(AccountingStorageEnforce="none"),
            "limits": [replace(FREE, max_jobs=1)],
        },
    ],
    ids=[
        "SlurmUser",
        "root",
        "administrator",
        "an agent needs no rights",
        "limits that are not enforced",
    ],
)
def test_what_is_no_problem(tmp_path, more):
    assert not found(tmp_path, **more)


def test_what_the_service_may_do_is_said(tmp_path):
    (tmp_path / "x").touch()
    acting = {"mode": "observe", "partitions": ("cpu",)}
    findings = {finding.check: finding for finding in examine(site(), config(tmp_path, **acting))}
    assert "nothing is acted on" in findings["mode"].what
    assert f"{tmp_path / 'x'} exists" in findings["disable-file"].what
    assert "names cpu, which this cluster does not have" in findings["allow-lists"].what


def test_without_slurm_the_rest_is_still_checked(tmp_path):
    lost = dict.fromkeys(
        ("settings", "clock", "snapshot", "live", "admin_level", "limits", "qos", "history_days"),
        GONE,
    )
    assert set(found(tmp_path, **lost)) == {"slurm"}


def test_a_folder_that_can_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("mirage.doctor.service.os.access", lambda path, mode: False)
    assert {finding.severity for finding in check_files({"store": tmp_path / "a" / "b"})} == {
        Severity.ERROR
    }


# --- the model
# --------------------------------------------------------------------------------------------------------

MODEL = Path(__file__).parents[3] / "models" / "ls6-a100" / "quantile"


def model_findings(
    folder: Path, live: Site, model: Path = MODEL, poll_s: int = 600
) -> dict[str, object]:
    policy = PolicyConfig(name="quantile", model=str(model))
    whole = config(folder)
    daemon = replace(whole.daemon, poll_s=poll_s)
    findings = examine(live, replace(whole, policy=policy, daemon=daemon))
    return {
        finding.check: finding
        for finding in findings
        if finding.check in ("model", "model-poll", "model-fit", "cluster-toml")
    }


def lonestar(count: int = 76, partition: str = "gpu-a100", **params: object) -> Site:
    from slurm_sim.clusters import read_cluster

    described = read_cluster(MODEL.parent / "cluster.toml").cluster
    nodes = tuple(
        ClusterNode(name=f"n{number}", partitions=(partition,), up=True, idle=True)
        for number in range(count)
    )
    live = replace(described, params=replace(described.params, **params))
    return site(snapshot=Snapshot(at_s=0, jobs=(), nodes=nodes), live=live)


def test_a_store_in_a_file_has_no_server():
    assert list(check_server("sqlite:////var/lib/mirage/mirage.db")) == []


@pytest.mark.parametrize("scheme", ["postgresql", "mariadb"])
def test_a_server_that_does_not_answer_is_an_error_without_its_password(scheme):
    pytest.importorskip({"postgresql": "psycopg", "mariadb": "pymysql"}[scheme])
    with socket.socket() as taken:  # bound and not listening: whoever connects is refused
        taken.bind(("127.0.0.1", 0))
        (finding,) = check_server(
            f"{scheme}://mirage:hunter2@127.0.0.1:{taken.getsockname()[1]}/mirage"
        )
    assert (finding.check, finding.severity) == ("store", Severity.ERROR)
    assert "127.0.0.1" in finding.what
    assert "hunter2" not in finding.what + finding.why + finding.do


def test_a_server_without_its_driver_is_an_error_too(monkeypatch):
    def fail(*_words, **_options):
        raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")

    monkeypatch.setattr("mirage.store.server.create_engine", fail)
    (finding,) = check_server("postgresql://mirage:hunter2@db/mirage")
    assert finding.severity is Severity.ERROR
    assert "pip install 'mirage-slurm[postgresql]'" in finding.what
    assert "hunter2" not in finding.what


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_answers(name):
    with database_on(name) as url:
        (finding,) = check_server(url)
    assert (finding.severity, finding.check) == (Severity.OK, "store")
    assert "answers" in finding.what


def test_a_model_that_fits(tmp_path):
    assert {finding.severity for finding in model_findings(tmp_path, lonestar()).values()} == {
        Severity.OK
    }


def test_a_model_that_is_asked_too_seldom(tmp_path):
    assert model_findings(tmp_path, lonestar(), poll_s=3600)["model-poll"].severity is Severity.OK
    finding = model_findings(tmp_path, lonestar(), poll_s=3601)["model-poll"]
    assert finding.severity is Severity.ERROR
    assert finding.do == "Set daemon.poll_s to 3600 or less, best to 600."


def test_a_model_of_another_cluster(tmp_path):
    findings = model_findings(tmp_path, site())
    assert "this cluster has gpu" in findings["model-fit"].what
    assert "no partition gpu-a100 here" in findings["cluster-toml"].what
    few = model_findings(tmp_path, lonestar(count=20))
    assert "20 nodes of the pool are up" in few["model-fit"].what


def test_nodes_that_the_models_cluster_lacks_are_named(tmp_path):
    live = lonestar()
    described = live.live
    nodes = (replace(described.nodes[0], name="new7"), *described.nodes[1:])
    partition = replace(described.partitions[0], nodes=tuple(node.name for node in nodes))
    changed = replace(live, live=replace(described, nodes=nodes, partitions=(partition,)))
    finding = model_findings(tmp_path, changed)["cluster-toml"]
    assert "gpu-a100 has nodes here that are unknown there, as new7" in finding.what


def test_a_cluster_that_is_scheduled_differently(tmp_path):
    finding = model_findings(tmp_path, lonestar(bf_max_job_test=10, kill_wait_s=5))["cluster-toml"]
    assert finding.severity is Severity.WARNING
    assert "bf_max_job_test is 10 here, 3000 there" in finding.what
    assert "kill_wait" not in finding.what


def test_partitions_that_changed_are_named():
    other = replace(LIVE, partitions=(replace(PARTITION, nodes=("n1",), max_time_s=60),))
    assert differences_of(LIVE, other, "gpu") == [
        "gpu has 1 nodes here, 2 there",
        "gpu: MaxTime 60 s here, 86400 s there",
    ]


def test_a_model_that_is_not_there(tmp_path):
    findings = model_findings(tmp_path, site(), tmp_path / "none")
    assert findings["model"].severity is Severity.ERROR
    assert "no such folder" in findings["model"].what


# --- asking
# -----------------------------------------------------------------------------------------------------------


def test_the_time_of_slurmctld_is_read():
    assert controller_time_s("Configuration data as of 1795312737\nA = b\n") == 1_795_312_737
    with pytest.raises(ClusterNonsense, match="no time"):
        controller_time_s("Configuration data as of 2026-11-22T01:00:00\n")


def answering(stdout: str, code: int = 0, stderr: str = "") -> Survey:
    return Survey(
        Runner(
            execute=lambda *_: CommandResult(stdout=stdout, stderr=stderr, returncode=code),
            retries=0,
        )
    )


def test_limits_are_read():
    (limits,) = answering("research|alice||normal,long|1|-1||4\n").limits("c1", "alice")
    assert limits == JobLimits(
        user="alice",
        account="research",
        partition="",
        qos="normal,long",
        max_jobs=1,
        max_submit=None,
        group_jobs=None,
        group_submit=4,
    )
    (qos,) = answering("long|2||3|\n").qos()
    assert (qos.qos, qos.max_jobs, qos.max_submit, qos.group_jobs, qos.group_submit) == (
        "long",
        2,
        None,
        3,
        None,
    )
    with pytest.raises(ClusterNonsense, match="columns"):
        answering("what\n").qos()
    with pytest.raises(ClusterNonsense, match="limit"):
        answering("long|many|||\n").qos()


def test_the_admin_level_is_that_of_the_user_and_of_nobody_else():
    assert answering("mirage|Operator\n").admin_level("mirage") == "Operator"
    assert answering("").admin_level("nobody") == ""


def test_a_slurmdbd_that_is_down_is_told():
    with pytest.raises(ClusterUnavailable, match="slurmdbd"):
        answering("", 1, "sacctmgr: error: Unable to connect to database").qos()
    assert argv.recorded_jobs(86_400, 90_000)[-2:] == ["-o", "JobIDRaw"]


def test_doctor_on_the_command_line(shell):  # noqa: F811
    assert isinstance(shell, Shell)
    done = shell.run("doctor", "--for", "agent")
    assert done.returncode == 3, done
    assert "warning max-jobs: only one job may run at once" in done.stdout
    assert "why: A successor can't start beside its predecessor" in done.stdout
    assert "It will work, with the limits above." in done.stdout
    told = json.loads(shell.run("doctor", "--for", "agent", "--json").stdout)
    assert (told["for"], told["severity"]) == ("agent", "warning")
    checks = {finding["check"]: finding["severity"] for finding in told["findings"]}
    assert checks["accounting"] == checks["clock"] == checks["release"] == "ok"
    assert set(checks.values()) <= {"ok", "note", "warning"}
    if os.getuid():
        assert shell.run("doctor", "--for", "daemon").returncode == 4


def test_the_worst_finding_gives_the_exit_code(tmp_path):
    assert EXIT_CODES[worst(found(tmp_path, history_days=1).values())] == 3
    assert EXIT_CODES[worst([])] == 0


def test_what_the_trial_job_found_is_shown_also_where_all_is_well(shell, monkeypatch, capsys):  # noqa: F811
    from mirage.cli import doctor, main

    found = [ok("chain-folder", "it is shared with n1")]
    monkeypatch.setattr(
        doctor, "survey", lambda *_, **__: SimpleNamespace(of_daemon=False, user="ada")
    )
    monkeypatch.setattr(doctor, "examine", lambda *_: [ok("slurm", "it answers")])
    monkeypatch.setattr(doctor, "_try_job", lambda *_: found)
    monkeypatch.setenv("HOME", str(shell.folder))
    assert main.main(["doctor", "--try-job"]) == 0
    shown = capsys.readouterr().out
    assert "it is shared with n1" in shown
    assert "it answers" not in shown
