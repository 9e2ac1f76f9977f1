"""`mirage elastic run|status|stop` without a Slurm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mirage.cli.main import main
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.journal import JobJournal
from mirage.errors import InputError
from mirage.store.lock import exclusive
from tests.unit.elastic.jobs.site import NOW, REQUEST

pytest.importorskip("zmq")
JOB = """\
name = "toy"
script = "train.py"
time = "1:00:00"
epochs = 10
steps_per_epoch = 10
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path / "mirage"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "JOB.toml").write_text(JOB)
    return tmp_path


def test_without_jobs_status_says_how_to_start_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["elastic", "status"]) == 0
    assert "mirage elastic run JOB.toml" in capsys.readouterr().out


def test_status_of_a_job_that_is_over_and_of_one_that_is_not(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files.create_job(files.elastic_folder(), REQUEST, NOW)
    assert main(["elastic", "status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["controller"] is False
    assert [(job["name"], job["state"], job["tasks"]) for job in told["jobs"]] == [
        ("mnist", "waiting", [])
    ]
    assert main(["elastic", "status"]) == 0
    assert "No controller of yours is seen to run" in capsys.readouterr().out
    JobJournal(folder).write(NOW + 9, "end", state="failed", why="3 workers in a row failed")
    assert main(["elastic", "status"]) == 0
    assert "mnist" not in capsys.readouterr().out
    assert main(["elastic", "status", "mnist"]) == 0
    assert re.search(r"mnist failed \(3 workers in a row failed\)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "JOB.toml", "--poll", "10min"], "--poll 600 s: more than half of --slot, 300 s"),
        (["run", "JOB.toml", "--policy", "magic"], "--policy magic: unknown; there are greedy"),
        (["run", "JOB.toml", "JOB.toml"], "two of the files have the same name: toy, toy"),
        (["run", "none.toml"], "none.toml: can't be read"),
        (["status", "x"], "no elastic job 'x' of yours; there are: none"),
        (["stop", "x"], "no elastic job 'x' of yours; there are: none"),
    ],
)
def test_wrong_usage_starts_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(home)
    assert main(["elastic", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(files.job_folders(files.elastic_folder()))


def test_a_script_that_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "train.py").unlink()
    assert main(["elastic", "run", str(home / "JOB.toml")]) == 2
    assert f"script: {home / 'train.py'} is no file" in capsys.readouterr().err


def test_without_slurm_nothing_is_registered(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["elastic", "run", str(home / "JOB.toml")]) == 1
    assert "no such command on PATH" in capsys.readouterr().err
    assert not list(files.job_folders(files.elastic_folder()))


def test_a_worker_that_starts_before_the_coordinator_finds_the_keys(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mirage.elastic.runtime.folder import load_keys

    monkeypatch.setattr("mirage.apps.elastic_jobs._prepare", lambda *_: lambda: 0)
    assert main(["elastic", "run", str(home / "JOB.toml")]) == 0
    load_keys(files.job_folder(files.elastic_folder(), "toy") / files.RUNTIME)


def test_a_name_that_is_taken_says_how_to_free_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files.create_job(files.elastic_folder(), REQUEST, NOW)
    (home / "JOB.toml").write_text(JOB.replace("toy", "mnist"))
    assert main(["elastic", "run", str(home / "JOB.toml")]) == 2
    assert "or end it: mirage elastic stop mnist" in capsys.readouterr().err
    JobJournal(folder).write(NOW + 9, "end", state="stopped", why="its owner stopped it")
    assert main(["elastic", "run", str(home / "JOB.toml")]) == 2
    assert capsys.readouterr().err.endswith(
        "Take another name, or continue that one: mirage elastic run --resume mnist, or remove"
        f" {folder}.\n"
    )


def test_only_a_job_that_ended_unfinished_is_resumed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files.create_job(files.elastic_folder(), REQUEST, NOW)
    assert main(["elastic", "run", "--resume", "mnist"]) == 2
    assert "elastic job mnist: it is not over" in capsys.readouterr().err
    journal = JobJournal(folder)
    journal.write(NOW + 9, "end", state="done", why="the training is finished")
    assert main(["elastic", "run", "--resume", "mnist"]) == 2
    assert "it is over (done), so it can't be resumed" in capsys.readouterr().err
    journal.write(NOW + 9, "end", state="time limit", why="its time of 1:00:00 is up")
    with pytest.raises(InputError, match="mirage elastic run --resume mnist, or remove"):
        files.check_new(files.elastic_folder(), "mnist")
    files.resume_job(folder, NOW + 20)
    assert not JobJournal(folder).record.end


def test_status_separates_what_it_says_by_commas(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files.create_job(files.elastic_folder(), REQUEST, NOW)
    files.write_status(folder, {"state": "waiting", "gpu_seconds": 3600})
    assert main(["elastic", "status"]) == 0
    assert "elastic job mnist waiting, 1.00 GPU hours held\n" in capsys.readouterr().out


def test_stop_leaves_the_work_to_a_controller(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = files.elastic_folder()
    folder = files.create_job(root, REQUEST, NOW)
    with exclusive(root / files.CONTROLLER_LOCK):
        assert main(["elastic", "stop", "mnist"]) == 0
    assert (folder / files.STOP).exists()
    assert "mnist: it saves its state and ends" in capsys.readouterr().out


def test_of_several_jobs_all_are_started_or_none(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.create_job(files.elastic_folder(), REQUEST, NOW)
    (home / "OLD.toml").write_text(JOB.replace("toy", "mnist"))
    assert main(["elastic", "run", str(home / "JOB.toml"), str(home / "OLD.toml")]) == 2
    assert "elastic job mnist: there is one of this name" in capsys.readouterr().err
    assert [folder.name for folder in files.job_folders(files.elastic_folder())] == ["mnist"]


def test_the_papers_policy_asks_for_the_type_that_a_job_is_like(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from mirage.elastic.model import new_model, save_model
    from mirage.elastic.settings import read_setting

    model = new_model(read_setting("small"), "drf", hidden=(8,), seed=1)
    save_model(home / "dl2", model, summary=["x"], facts=["y"])
    words = ["elastic", "run", str(home / "JOB.toml"), "--policy", str(home / "dl2")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "JOB.toml: speed.like: --policy" in error
    assert "expected one of resnet-50, vgg-16" in error
    assert error.rstrip().endswith("got ''")
    assert error.count("\n") == 1
    (home / "JOB.toml").write_text(JOB + '[speed]\nlike = "vgg-16"\n')
    assert main(words) == 1  # no Slurm here
    assert "speed.like" not in capsys.readouterr().err
