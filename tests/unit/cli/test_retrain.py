"""`mirage retrain` with the real machinery: from what sacct prints to the model at work, and what
may fail.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xgboost", reason="the extra `train` is not installed")

from mirage.apps import retraining
from mirage.cli import retrain
from mirage.cli.main import main
from mirage.config import PolicyConfig
from mirage.figures.estimate import Estimate
from mirage.models.folder import read_recipe
from mirage.models.shipped import shipped
from mirage.models.versions import Versions
from mirage.provision.evaluation.metrics import Difference
from mirage.provision.evaluation.verdict import _judged
from mirage.provision.learn import TrainingInterrupted, TrainingPlan
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.accounting import import_records
from mirage.provision.policies.reloading import Reloading
from tests.fakes.fake_slurm import FakeSlurm
from tests.slurm.site import until
from tests.small_cluster import small_cluster

HOUR, DAY = 3600, 86_400
DAYS = 75
NOW_S = 1_700_000_000
CLUSTER = small_cluster("06:00:00")
SACCT = """#!{python} -S
import sys
from datetime import UTC, datetime
def at(name):
    return datetime.fromisoformat(sys.argv[sys.argv.index(name) + 1]).replace(tzinfo=UTC).timestamp()
start, end = at("-S"), at("-E")
open({folder!r} + "/asked", "a").write("x")
for line in open({folder!r} + "/records"):
    fields = line.split("|")
    if int(fields[6]) < end and int(fields[8]) >= start:
        print(line, end="")
"""
QUICK = ("--episodes", "60", "--judged", "60", "--workers", "1", "--set", "boosting.rounds=20")


@pytest.fixture(scope="module")
def history() -> str:
    """Four nodes, wanted by day and hardly by night, as sacct prints it."""
    random = np.random.default_rng(1)
    count = DAYS * 24
    submit_s = NOW_S - DAYS * DAY + np.sort(random.integers(0, DAYS * DAY - 12 * HOUR, count))
    submit_s = submit_s[(submit_s % DAY < 14 * HOUR) | (random.random(count) < 0.1)]
    lines = []
    for number, at_s in enumerate(submit_s, start=1):
        start_s = at_s + int(random.integers(0, 2 * HOUR))
        end_s, nodes = start_s + int(random.integers(HOUR, 6 * HOUR)), int(random.integers(1, 3))
        about = f"{number}|{at_s}|u{number % 7}|research|gpu|COMPLETED|{at_s}|{start_s}|{end_s}"
        lines.append(f"{about}|360|{nodes}|cpu=4,node={nodes}|cpu=4,node={nodes}|0:0\n")
    return "".join(lines)


def furnish(folder: Path, history: str) -> None:
    """Fake commands, a configuration that leaves the model's place to us, and no model yet."""
    FakeSlurm.create(folder, 4, NOW_S)
    (folder / "bin" / "sacct").write_text(SACCT.format(python=sys.executable, folder=str(folder)))
    (folder / "records").write_text(history)
    (folder / "c.toml").write_text(CLUSTER)
    (folder / "mirage.toml").write_text(
        f'[cluster]\nbin_dir = "{folder}/bin"\n[daemon]\nstore = "sqlite:///{folder}/mirage.db"\n'
    )


@pytest.fixture
def site(tmp_path: Path, history: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path, history)
    monkeypatch.setenv("FAKE_SLURM_DIR", str(tmp_path))
    monkeypatch.setenv("FAKE_SLURM_USER", "root")
    monkeypatch.setattr(retraining.time, "time", lambda: NOW_S)
    return tmp_path


def run(site: Path, *words: str) -> int:
    return main(
        [
            "retrain",
            "--config",
            str(site / "mirage.toml"),
            "--cluster",
            str(site / "c.toml"),
            *QUICK,
            *words,
        ]
    )


def model(site: Path) -> Versions:
    return Versions(site / "models" / "quantile")


def left(site: Path) -> set[str]:
    return {path.name for path in (site / "models").rglob("*") if path.name.startswith(".")}


def test_a_training_that_is_interrupted_ends_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plan: TrainingPlan, *_: object) -> None:
        plan.out.mkdir()
        raise TrainingInterrupted("interrupted")

    monkeypatch.setattr("mirage.provision.learn.run.train", interrupted)
    assert run(site) == 130
    assert not model(site).link.exists()
    assert not left(site)
    assert '"why": "interrupted"' in (model(site).folder / "history.jsonl").read_text()


def test_the_first_model_takes_over_and_a_worse_one_does_not(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(site, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["action"], first["to"], first["against"]) == (
        "replaced",
        "0001",
        "recent-quantile",
    )
    assert first["differences"][0]["penalty_h"]["value"] < 0, (
        "a trained model beats the untrained one"
    )
    assert (site / "asked").read_text() == "x" * -(-180 // 7), "a call for each week"
    about = ProvisionAbout.of(read_recipe(site / "models" / "quantile"), site)
    assert (about.cluster, about.pool, about.nodes) == ("small", "gpu", 4)
    assert first["judged_on"][0] == first["learnt_from"][1] == about.train_s[1]
    policy = Reloading(PolicyConfig(name="quantile", model=str(site / "models" / "quantile")))
    old = policy.model["version"]

    before = sorted(str(path) for path in (site / "models").rglob("*"))
    # The figures are real; the judgement on them (`test_the_rule`) is made here, so that no chance
    # decides the test.
    monkeypatch.setattr(
        "mirage.provision.evaluation.verdict._judged",
        lambda rows: (False, f"worse in {len(rows)} rows"),
    )
    assert run(site, "--seed", "2", "--set", "boosting.rounds=2") == retrain.KEPT_EXIT
    words = " ".join(capsys.readouterr().out.split())
    assert "Rule: the new model takes over if" in words
    assert "Nothing was changed" in words
    row = model(site).history()[-1]
    assert (row["action"], row["against"], row["saw_these"]) == ("kept", "current", False)
    assert row["why"] == "worse in 2 rows"
    assert row["differences"][0]["penalty_h"]["value"] != 0
    assert sorted(str(path) for path in (site / "models").rglob("*")) == before
    policy.decide_all([])
    assert policy.model["version"] == old
    assert run(site, "--rollback") == 2, "nothing was there before"


def test_a_folder_that_was_there_becomes_version_one_in_one_step(site: Path) -> None:
    import shutil

    shutil.copytree(shipped("kth-sp2") / "quantile", site / "models" / "quantile")
    versions = model(site)
    with versions.locked() as work:
        shutil.copytree(shipped("ls6-a100") / "quantile", work / "fresh" / "model")
        versions.install(work / "fresh", {"method": "quantile"})
    assert (
        read_recipe(versions.link).about["cluster"]
        == read_recipe(shipped("ls6-a100") / "quantile").about["cluster"]
    )
    assert versions.current == "quantile.versions/0002/model"
    with versions.locked():
        assert versions.roll_back() == "quantile.versions/0001/model"
    assert (
        read_recipe(versions.link).about["cluster"]
        == read_recipe(shipped("kth-sp2") / "quantile").about["cluster"]
    )
    assert [row["action"] for row in versions.history()] == ["replaced", "rolled back"]
    assert left(site) == set()


def test_only_the_newest_versions_stay(site: Path) -> None:
    versions = model(site)
    for _ in range(8):
        with versions.locked() as work:
            (work / "fresh" / "model").mkdir(parents=True)
            versions.install(work / "fresh", {})
    there = sorted(path.name for path in versions.folder.iterdir() if path.is_dir())
    assert there == ["0004", "0005", "0006", "0007", "0008"]


@pytest.mark.parametrize(
    ("break_it", "code", "message"),
    [
        (lambda site: (site / "bin" / "sacct").write_text("#!/bin/sh\necho no dbd >&2; exit 1\n"), 1, "no dbd"),
        (lambda site: (site / "records").write_text(""), 1, "at least one job"),
        (lambda site: (site / "bin" / "sacct").write_text("#!/bin/sh\necho 'what|is|this'\n"), 1, "fields"),
        (lambda site: (site / "c.toml").write_text("[cluster]\nnam = 1\n"), 2, "nam"),
        (lambda site: (site / "mirage.toml").write_text('[policy]\nname = "timer"\n'), 2, "does not learn"),
        (lambda site: (site / "mirage.toml").write_text('[policy]\nmodel = "/proc/m"\n'), 2, "can't be written"),
    ],
)  # fmt: skip
def test_what_fails_is_one_clear_error_and_changes_nothing(
    site: Path, capsys: pytest.CaptureFixture[str], break_it, code: int, message: str
) -> None:
    (site / "models" / "quantile.versions" / "0001").mkdir(parents=True)
    (site / "models" / "quantile").symlink_to("quantile.versions/0001")
    break_it(site)
    assert run(site) == code
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert model(site).current == "quantile.versions/0001"
    assert left(site) == set()


def test_it_says_how_many_records_were_left_out(tmp_path: Path) -> None:
    record = "1|0|1|2|COMPLETED|1\n"
    text = "JobID|Submit|Start|End|State|NNodes\n" + record * 2 + record.replace("|0|", "|x|")
    (tmp_path / "records").write_text(text)
    history, (said,) = import_records(tmp_path / "records", "UTC")
    assert len(history) == 1
    assert "1 of 3 accounting records are left out, since they can't be read: Submit" in said
    assert "(line 4: 'x')" in said


def test_too_short_a_history_is_said_before_it_is_judged_by(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(site, "--days", "30") == 1
    assert "can be judged with 47 d 12 h" in capsys.readouterr().err
    assert not (site / "models" / "quantile").exists()


def _heeds_ctrl_c() -> None:
    """What a shell started in the background ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_the_model_alone(site: Path, number: signal.Signals) -> None:
    """While sacct is asked: it hangs until the end."""
    (site / "bin" / "sacct").write_text(f"#!/bin/sh\necho > {site}/asked\nexec sleep 600\n")
    words = ["retrain", "--config", str(site / "mirage.toml"), "--cluster", str(site / "c.toml")]
    argv = [sys.executable, "-m", "mirage.cli.main", *words]
    with subprocess.Popen(argv, stderr=-3, preexec_fn=_heeds_ctrl_c) as process:
        try:
            until(
                lambda: process.poll() is not None or (site / "asked").exists(),
                240,
                "sacct to be asked",
            )
            process.send_signal(number)
            assert process.wait(240) == (-9 if number == signal.SIGKILL else 130)
        finally:
            process.kill()
    assert not (site / "models" / "quantile").exists()
    assert left(site) == set() or number == signal.SIGKILL
    with model(site).locked() as work:
        assert left(site) == {work.name}, "what a killed one left is gone"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave files in anybody's folder")
def test_root_is_refused_in_a_folder_of_another_user(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "models").mkdir()
    os.chown(site / "models", pwd.getpwnam("nobody").pw_uid, -1)
    assert run(site) == 2
    assert "belongs to nobody: run `runuser -u nobody -- mirage retrain`" in " ".join(
        capsys.readouterr().err.split()
    )
    assert list((site / "models").iterdir()) == []


def test_two_at_a_time_are_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with model(site).locked():
        assert run(site) == 1
    assert "another `mirage retrain` is at work" in capsys.readouterr().err


def difference(penalties: str, value: float, low: float | None, high: float | None) -> Difference:
    return Difference(
        1, "all", penalties, "new", "current", Estimate(0), Estimate(0), Estimate(value, low, high)
    )


@pytest.mark.parametrize(
    ("rows", "takes_over"),
    [
        ([("1:1", -0.1, -0.3, 0.1), ("4:1", 0.1, -0.3, 0.4)], True),
        ([("1:1", 0.0, 0.0, 0.0), ("4:1", 0.0, 0.0, 0.0)], True),
        ([("1:1", 0.1, -0.3, 0.5), ("4:1", -0.1, -0.3, 0.4)], False),
        ([("1:1", -9.0, -9.0, -8.0), ("4:1", 0.2, 0.1, 0.3)], False),
        ([("1:1", -9.0, None, None), ("4:1", -9.0, None, None)], False),
        ([], False),
    ],
)
def test_the_rule(
    rows: list[tuple[str, float, float | None, float | None]], takes_over: bool
) -> None:
    assert _judged([difference(*row) for row in rows])[0] is takes_over
