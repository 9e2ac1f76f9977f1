"""`mirage when` on fake Slurm commands: ranges, JSON, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from mirage.cli import main as cli
from mirage.provision.starts.learned_folder import write_learned
from tests.fakes.fake_slurm import FakeSlurm
from tests.queue_logs import learned_waits


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Two nodes; twelve jobs of ten minutes on both have run one after the other."""
    now_s = int(time.time())
    slurm = FakeSlurm.create(tmp_path, 2, now_s)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM_DIR", str(tmp_path))
    monkeypatch.setenv("FAKE_SLURM_USER", "ann")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    common = {"partition": "gpu", "user": "ann", "nodes": 2, "dependency": [], "comment": ""}
    common |= {"limit": 1200, "run": 600, "exit": 0, "status": 0, "line": "sbatch", "name": "job"}
    with slurm.state() as state:
        for number in range(1, 13):
            start = now_s - (14 - number) * 600
            times = {"submit": start - 300 * number, "eligible": start - 300 * number}
            ended = {"start": start, "end": start + 600, "state": "COMPLETED", "on": ["n1", "n2"]}
            state["jobs"].append({"id": number} | common | times | ended)
        busy = {"submit": now_s - 60, "eligible": now_s - 60, "start": now_s - 30, "end": None}
        state["jobs"].append({"id": 13} | common | busy | {"state": "RUNNING", "on": ["n1", "n2"]})
        waits = {"submit": now_s - 20, "eligible": now_s - 20, "start": None, "end": None}
        state["jobs"].append({"id": 14} | common | waits | {"state": "PENDING", "on": []})
    return slurm


def test_a_shape_gets_a_range_a_reason_and_what_is_ahead(slurm, capsys):
    assert cli.main(["when", "-N", "2", "-t", "40"]) == 0
    out = capsys.readouterr().out
    assert "2 nodes for 40 min in gpu: starts in " in out
    assert "Why: so by Slurm's own plan" in out
    assert "Ahead: 1 job with 2 cores waits before it in gpu; 1 job with 2 cores runs there." in out
    assert "Slurm: plans a start in " in out
    assert " using 4 processors on nodes n1 in partition gpu" in out


def more_waits(slurm: FakeSlurm) -> None:
    """Twice as many have started: enough for like jobs."""
    with slurm.state() as state:
        state["jobs"] += [job | {"id": job["id"] + 100} for job in state["jobs"][:12]]


def test_with_waits_of_like_jobs_the_shapes_beside_it_are_told(slurm, capsys):
    more_waits(slurm)
    assert cli.main(["when", "-N", "2", "-t", "40"]) == 0
    out = capsys.readouterr().out
    assert "Why: the last 25 " in out
    assert "20 min instead of 40 min: " in out
    assert "1 node instead of 2: " in out


def test_a_pending_job_gets_its_own_as_json(slurm, capsys):
    assert cli.main(["when", "14", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["method"]) == (14, "Slurm's plan")
    (forecast,) = found["forecasts"]
    assert (forecast["nodes"], forecast["time_limit_s"], forecast["partition"]) == (2, 1200, "gpu")
    low, middle, high = (forecast[f"wait_{name}_s"] for name in ("p10", "p50", "p90"))
    assert 0 <= low < middle < high <= 3 * 3600


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a script, sbatch's options, or a job id"),
        (["14", "-N", "2"], "give either job 14 or a script and sbatch's options, not both"),
        (["99"], "job 99 is not in the queue"),
        (["13"], "job 13 is RUNNING already"),
        (["14_3"], "task 3 of job array 14 does not wait in the queue"),
        (["-p", "debug"], "sbatch refuses such a job: invalid partition specified: debug"),
        (["-N", "3"], "refuses such a job: allocation failure: Requested node configuration is"),
        (["--gres=gpu:x:y"], "--gpus: expected 4, a100:4 or gpu:a100:4, got 'gpu:x:y'"),
        (["nowhere.sbatch"], "nowhere.sbatch: no such batch script"),
        (["14", "--before", "noon"], "--before: expected a time as 2026-02-01T08:00, or 6h"),
        (["-t", "0"], "--time: '0': expected a time above 0, such as 48:00:00"),
        (["--lines", "nowhere"], "--lines: nowhere"),
        *(
            ([words], "expected a job id as squeue prints it (60, 60_2, 60_[3-9])")
            for words in ("60_x", "60_", "_3", "60_[", "60_[]", "60+1", "0", "9" * 16)
        ),
    ],
)
def test_bad_input_is_one_clear_line(slurm, capsys, words, said):
    assert cli.main(["when", *words]) == 2
    *warnings, error = capsys.readouterr().err.strip().splitlines()
    assert said in error
    # The fake scontrol does not say enough of the cluster.
    assert all("limits are not checked" in line for line in warnings)


@pytest.mark.parametrize("words", ["14_7", "14_[7-9,12%2]", "14_[7-9]"])
def test_a_task_of_an_array_as_squeue_prints_it(slurm, capsys, words):
    with slurm.state() as state:
        waiting = state["jobs"].pop()
        state["jobs"] += [waiting | {"task": str(task)} for task in (7, 8, 9, 12)]
    assert cli.main(["when", words]) == 0
    assert "job 14_7 (2 nodes for 20 min in gpu): starts in " in capsys.readouterr().out


def test_a_script_and_any_options_of_sbatch_are_read(slurm, capsys, tmp_path):
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH -N 2 --time=40 --gres=gpu:a100:4\n#SBATCH --mem=4G\n:\n")
    assert cli.main(["when", "-c", "2", "--array=1-9%3", str(script), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["forecasts"][0]
    assert (first["nodes"], first["time_limit_s"], first["gpus"], first["cpus"]) == (2, 2400, 8, 4)


def test_several_jobs_and_lines_at_once_and_the_chance_until_a_time(slurm, capsys, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("# jobs\n14\n-N 1 -t 30\n")
    assert cli.main(["when", "--lines", str(lines), "--before", "14d", "--json"]) == 0
    job, shape = json.loads(capsys.readouterr().out)
    assert (job["job"], shape["job"]) == (14, None)
    assert job["chance_before"] >= 0.9
    assert cli.main(["when", "14", "--before", "1"]) == 0
    assert "Chance of a start before " in capsys.readouterr().out


def test_a_plot_has_medians_by_nodes_and_limit(slurm, capsys):
    more_waits(slurm)
    assert cli.main(["when", "--plot", "-p", "gpu"]) == 0
    head, one, two = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["nodes", "1", "h"]
    assert (one.split()[0], two.split()[0]) == ("1", "2")
    assert cli.main(["when", "--plot", "-p", "gpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["forecasts"]
    assert {each["nodes"] for each in found} == {1, 2}
    assert found[0]["time_limit_s"] == 3600


def test_a_question_without_an_answer_costs_the_others_nothing(slurm, capsys, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("13\n14\n-p debug\n")
    assert cli.main(["when", "--lines", str(lines), "--json"]) == 2
    started, job, refused = json.loads(capsys.readouterr().out)
    assert started["question"] == "13"
    assert "is RUNNING already" in started["error"]
    assert job["job"] == 14
    assert job["forecasts"]
    assert refused["question"] == "-p debug"
    assert "sbatch refuses" in refused["error"]
    assert cli.main(["when", "13", "14"]) == 2
    said = capsys.readouterr()
    assert "mirage when: 13: job 13 is RUNNING already" in said.err
    assert "job 14 (2 nodes" in said.out


def test_json_names_the_task_of_an_array(slurm, capsys):
    with slurm.state() as state:
        waiting = state["jobs"].pop()
        state["jobs"] += [waiting | {"task": str(task)} for task in (7, 8)]
    assert cli.main(["when", "14_8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["task"]) == (14, "8")


def test_what_the_service_learnt_answers_first(slurm, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_SOCKET", str(tmp_path / "run" / "mirage.sock"))
    write_learned(tmp_path / "run" / "waits", learned_waits(tmp_path), 1000, int(time.time()))
    assert cli.main(["when", "14", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == "trees"
    assert "medians were off by a factor of " in found["forecasts"][0]["reason"]
    (tmp_path / "run" / "waits" / "jobs.safetensors").write_bytes(b"{}")
    assert cli.main(["when", "14"]) == 2
    assert "truncated or changed since it was written" in capsys.readouterr().err


def test_explain_sends_a_task_of_an_array_to_when(slurm, capsys):
    assert cli.main(["explain", "60_2"]) == 2
    assert "`mirage when 60_2` says when it starts" in capsys.readouterr().err


def test_nothing_starts_that_would_run_into_a_maintenance(slurm, capsys):
    now_s = int(time.time())
    more_waits(slurm)
    with slurm.state() as state:
        state["reservations"] = (
            f"ReservationName=maint1 StartTime={now_s + 1200} EndTime={now_s + 30_000}"
            " Nodes=n[1-2] Users=root"
        )
    assert cli.main(["when", "-N", "2", "-t", "60", "--json"]) == 0
    whole, half, _ = json.loads(capsys.readouterr().out)["forecasts"]
    assert 28_000 <= whole["wait_p10_s"] <= whole["wait_p90_s"] <= 30_000
    assert half["wait_p10_s"] >= 28_000
    assert "it would run into reservation maint1, which ends at " in whole["reason"]
    assert cli.main(["when", "-N", "2", "-t", "15"]) == 0
    assert "maint1" not in capsys.readouterr().out
    with slurm.state() as state:
        next(job for job in state["jobs"] if job["id"] == 14)["limit"] = 7200
    assert cli.main(["when", "14"]) == 0
    assert "starts in 8 h " in capsys.readouterr().out


def test_what_slurm_says_itself_of_the_job_is_said(slurm, capsys):
    assert cli.main(["when", "14"]) == 0
    assert "plans its start in 2 h" in capsys.readouterr().out


def test_nodes_in_use_by_nobody_are_said(slurm, capsys):
    with slurm.state() as state:
        state["jobs"] = [job for job in state["jobs"] if job["id"] != 13]
        for node in state["nodes"].values():
            node["state"] = "allocated"
    assert cli.main(["when", "-N", "2", "-t", "40"]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "Slurm's answers disagree: sinfo says that 2 nodes (n1, n2) are in use" in shown


def test_a_reservation_that_is_not_shown_is_seen_by_the_reasons_of_others(slurm, capsys):
    """PrivateData=reservations hides it."""
    with slurm.state() as state:
        state["jobs"] = [job for job in state["jobs"] if job["id"] != 13]
        state["jobs"][-1]["reason"] = "ReqNodeNotAvail, Reserved for maintenance"
    assert cli.main(["when", "-N", "2", "-t", "40"]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "a job waits for ReqNodeNotAvail, Reserved for maintenance, though enough" in shown
