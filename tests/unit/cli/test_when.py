"""`mirage when` on fake Slurm commands: ranges, JSON, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from mirage.cli import main as cli
from tests.fakes.fake_slurm import FakeSlurm


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


def test_a_shape_gets_a_range_a_reason_and_the_shapes_beside_it(slurm, capsys):
    assert cli.main(["when", "-N", "2", "-t", "40"]) == 0
    out = capsys.readouterr().out
    assert "2 nodes for 40 min in gpu: starts in " in out
    assert "Why: the last 13 " in out
    assert "20 min instead of 40 min: " in out
    assert "1 node instead of 2: " in out


def test_a_pending_job_gets_its_own_as_json(slurm, capsys):
    assert cli.main(["when", "14", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["method"]) == (14, "like jobs")
    (forecast,) = found["forecasts"]
    assert (forecast["nodes"], forecast["time_limit_s"], forecast["partition"]) == (2, 1200, "gpu")
    low, middle, high = (forecast[f"wait_{name}_s"] for name in ("p10", "p50", "p90"))
    assert 0 <= low < middle < high <= 3600


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a job id, or a shape"),
        (["14", "-N", "2"], "give either job 14 or a shape (-N, -t, -p), not both"),
        (["99"], "job 99 is not in the queue"),
        (["13"], "job 13 is RUNNING already"),
        (["-p", "debug"], "partition 'debug' does not exist; this cluster has gpu"),
        (["-N", "3"], "such a job could never start: 3 nodes asked for; partition 'gpu' has 2"),
        (["-N", "1", "--model", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_input_is_one_clear_line(slurm, capsys, words, said):
    assert cli.main(["when", *words]) == 2
    *warnings, error = capsys.readouterr().err.strip().splitlines()
    assert said in error
    # The fake scontrol does not say enough of the cluster.
    assert all("limits are not checked" in line for line in warnings)


@pytest.mark.parametrize("limit", ["0", "UNLIMITED"])
def test_no_time_limit_is_refused(slurm, capsys, limit):
    with pytest.raises(SystemExit):
        cli.main(["when", "-N", "1", "-t", limit])
    assert f"'{limit}': expected a time above 0, such as 48:00:00" in capsys.readouterr().err
