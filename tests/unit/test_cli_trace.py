"""`mirage trace ...` from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mirage.cli.main import main
from slurm_sim.traces import read_trace

SWF = "; UnixStartTime: 0\n" + "".join(
    f"{k} {k * 400} {k % 50} {30 + k % 600} {1 + k % 4} -1 -1 {1 + k % 4} 900 -1 1 {k % 17} 1 -1 1 -1 -1 -1\n"
    for k in range(1, 600)
)


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "log.swf").write_text(SWF)
    assert main(["trace", "import", "--swf", str(tmp_path / "log.swf"), "--out", str(tmp_path / "t.csv.gz")]) == 0
    capsys.readouterr()
    return tmp_path / "t.csv.gz"


def test_import_reports_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    words = ["trace", "import", "--swf", str(tmp_path / "log.swf"), "--out", str(tmp_path / "t.csv"), "--nodes", "3"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    found = {each["rule"]: each for each in record["cleaning"]["findings"]}
    assert found["wider than the cluster"]["jobs"] == 150
    assert record["cleaning"]["rows_out"] == 449 == len(read_trace(tmp_path / "t.csv"))
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "wider than the cluster" in text
    assert "cancelled in the queue" in text


def test_stats(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "stats", str(trace), "--nodes", "8", "--out", str(tmp_path / "out"), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((tmp_path / "out" / "stats.json").read_text())
    assert figures["jobs"] == 599
    assert {path.name for path in (tmp_path / "out").glob("*.png")} >= {"waits.png", "load.png", "users.png"}
    assert main(["trace", "stats", str(trace)]) == 0
    assert "by month" in capsys.readouterr().out


def test_infer_fit_synth_check(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, drawn = str(tmp_path / "m.toml"), str(tmp_path / "s.parquet")
    assert main(["trace", "infer", str(trace), "--out", str(tmp_path / "i.csv")]) == 0
    assert "dependency" in read_trace(tmp_path / "i.csv").jobs.columns
    assert main(["trace", "infer", str(trace), "--json"]) == 0
    assert main(["trace", "fit", str(trace), "--nodes", "8", "--out", model, "--licence", "mine"]) == 0
    assert main(["trace", "synth", "--model", model, "--days", "7", "--seed", "4", "--out", drawn]) == 0
    assert len(read_trace(drawn)) > 100
    capsys.readouterr()
    for other in (model, drawn):
        assert main(["trace", "check", str(trace), other, "--json"]) == 0
        quantities = [each["quantity"] for each in json.loads(capsys.readouterr().out)["distances"]]
        assert quantities[0] == "inter-arrival time"
    assert main(["trace", "check", str(trace), model]) == 0
    assert "floor" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["stats", "absent.csv"],
        ["import", "--swf", "absent.swf", "--out", "t.csv"],
        ["import", "--csv", "bad.csv", "--out", "t.csv", "--column", "nonsense"],
        ["import", "--swf", "bad.csv", "--out", "t.csv"],
        ["synth", "--model", "absent", "--days", "1", "--out", "t.csv"],
        ["synth", "--model", "ls6_a100", "--days", "1", "--out", "t.xlsx"],
        ["fit", "bad.csv", "--nodes", "4", "--out", "m.json"],
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    assert main(["trace", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mirage trace: ")
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]


@pytest.mark.parametrize("words", [["stats", "t", "--timezone", "Moon"], ["synth", "--days", "-1"], ["import"], []])
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trace", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize("module", ["mirage.cli.submit", "mirage.cli.main", "mirage.cli.trace", "slurm_sim"])
def test_pandas_is_not_imported_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in ('pandas', 'scipy', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
