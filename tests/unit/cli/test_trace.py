"""`mirage trace ...` from end to end."""

from __future__ import annotations

import errno
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from mirage.cli.main import main
from slurm_sim.cli.main import main as simulate
from slurm_sim.clusters import read_cluster
from slurm_sim.traces import make_trace, read_trace, write_trace

SWF = "; UnixStartTime: 0\n" + "".join(
    f"{k} {k * 400} {k % 50} {30 + k % 600} {1 + k % 4} -1 -1 {1 + k % 4} 900 -1 1 {k % 17} 1 -1 1"
    " -1 -1 -1\n"
    for k in range(1, 600)
)


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "log.swf").write_text(SWF)
    assert (
        main(
            [
                "trace",
                "import",
                "--swf",
                str(tmp_path / "log.swf"),
                "--out",
                str(tmp_path / "t.csv.gz"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    return tmp_path / "t.csv.gz"


def test_import_reports_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    words = [
        "trace",
        "import",
        "--swf",
        str(tmp_path / "log.swf"),
        "--out",
        str(tmp_path / "t.csv"),
        "--nodes",
        "3",
    ]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    found = {each["rule"]: each for each in record["cleaning"]["findings"]}
    assert found["wider than the cluster"]["jobs"] == 150
    assert record["cleaning"]["rows_out"] == 449 == len(read_trace(tmp_path / "t.csv"))
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "wider than the cluster" in text
    assert "cancelled in the queue" in text


def test_an_import_that_leaves_no_job_says_which_rules_took_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text(
        "submit,nodes,state,start,end\n5,9,COMPLETED,6,7\n6,1,PENDING,,\n"
    )
    out = tmp_path / "t.csv"
    words = [
        "trace",
        "import",
        "--csv",
        str(tmp_path / "log.csv"),
        "--out",
        str(out),
        "--nodes",
        "8",
    ]
    assert main(words) == 2
    shown = capsys.readouterr()
    assert "wider than the cluster" in shown.out
    rules = (
        "wider than the cluster 1 (a greater --nodes keeps them), never started 1 (--unstarted keep"
        " keeps them)"
    )
    assert shown.err.endswith(f"log.csv: no job is left, nothing was written; dropped: {rules}\n")
    assert not out.exists()
    assert main([*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["out"] is None


@pytest.mark.parametrize("delimiter", ["", "ab", '"'])
def test_a_delimiter_is_one_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delimiter: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            [
                "trace",
                "import",
                "--csv",
                "t.csv",
                "--out",
                str(tmp_path / "o.csv"),
                "--delimiter",
                delimiter,
            ]
        )
    assert end.value.code == 2
    assert "expected one character" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["--csv", "--sacct", "--swf", "--mirage-log"])
def test_import_of_parquet_says_what_to_do(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.parquet"
    pd.DataFrame(
        {"job_id": [1], "submit_s": [0], "start_s": [0], "end_s": [9], "nodes": [1]}
    ).to_parquet(path)
    assert main(["trace", "import", source, str(path), "--out", str(tmp_path / "t.csv")]) == 2
    expected = (
        "r.parquet: expected text, not Parquet; write it as .csv instead (`slurm-sim run --out"
        " R.csv` does)"
    )
    assert expected in capsys.readouterr().err


def test_stats(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["trace", "stats", str(trace), "--nodes", "8", "--out", str(tmp_path / "out"), "--json"]
        )
        == 0
    )
    figures = json.loads(capsys.readouterr().out)
    assert figures == json.loads((tmp_path / "out" / "stats.json").read_text())
    assert figures["jobs"] == 599
    assert {path.name for path in (tmp_path / "out").glob("*.png")} >= {
        "waits.png",
        "load.png",
        "users.png",
    }
    assert main(["trace", "stats", str(trace)]) == 0
    assert "by month" in capsys.readouterr().out


def test_stats_leave_nothing_on_a_full_disk(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_figure: object, path: Path, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    out = tmp_path / "out"
    assert main(["trace", "stats", str(trace), "--nodes", "8", "--out", str(out)]) == 1
    assert not out.exists()
    assert f"{out}: No space left on device" in capsys.readouterr().err


def test_stats_warn_of_what_an_import_would_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"
    lines = ["1,a,p,100,90,190,600,1,0,,COMPLETED", "2,a,p,100,200,150,600,1,0,,COMPLETED"]
    lines += ["3,a,p,100,200,250,600,1,0,,COMPLETED"] + ["4,a,p,300,400,450,600,1,0,,COMPLETED"] * 2
    (tmp_path / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    assert main(["trace", "stats", str(tmp_path / "t.csv")]) == 0
    shown = capsys.readouterr().err
    assert "warning: end before start: 1 jobs, as 2: wrong clocks" in shown
    assert "warning: start before submit: 1 jobs, as 1: requeued after a node failure" in shown
    assert "warning: runs seen again: 1 jobs, as 4:" in shown


def test_stats_have_nothing_to_warn_of_in_what_was_imported(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "stats", str(trace)]) == 0
    assert capsys.readouterr().err == ""


def test_infer_fit_synth_check(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, drawn = str(tmp_path / "m.toml"), str(tmp_path / "s.parquet")
    assert main(["trace", "infer", str(trace), "--out", str(tmp_path / "i.csv")]) == 0
    assert "dependency" in read_trace(tmp_path / "i.csv").jobs.columns
    assert (
        main(["trace", "infer", str(trace), "--out", str(tmp_path / "i.csv")]) == 0
    )  # over the old one
    assert main(["trace", "infer", str(trace), "--out", str(trace)]) == 2
    assert main(["trace", "infer", str(trace), "--json"]) == 0
    assert (
        main(["trace", "fit", str(trace), "--nodes", "8", "--out", model, "--licence", "mine"]) == 0
    )
    assert (
        main(["trace", "synth", "--model", model, "--days", "7", "--seed", "4", "--out", drawn])
        == 0
    )
    assert len(read_trace(drawn)) > 100
    capsys.readouterr()
    for other in (model, drawn):
        assert main(["trace", "check", str(trace), other, "--json"]) == 0
        quantities = [each["quantity"] for each in json.loads(capsys.readouterr().out)["distances"]]
        assert quantities[0] == "inter-arrival time"
    assert main(["trace", "check", str(trace), model]) == 0
    assert "floor" in capsys.readouterr().out


def test_fit_warns_of_jobs_that_are_wider_than_the_cluster(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["trace", "fit", str(trace), "--nodes", "3", "--out", str(tmp_path / "m.toml")]) == 0
    )
    assert "warning: wider than the cluster: 150 jobs, as " in capsys.readouterr().err
    assert (
        main(["trace", "fit", str(trace), "--nodes", "4", "--out", str(tmp_path / "m.toml")]) == 0
    )
    assert capsys.readouterr().err == ""


def test_synth_begins_on_a_monday_and_knows_other_days(tmp_path: Path) -> None:
    def drawn(*words: str) -> pd.Series:
        out = str(tmp_path / "s.csv")
        assert (
            main(["trace", "synth", "--model", "ls6_a100", "--days", "14", "--out", out, *words])
            == 0
        )
        return pd.to_datetime(read_trace(out).jobs["submit"], unit="s", utc=True)

    assert drawn().min().strftime("%Y-%m-%d") == "1970-01-05"
    for begin in ("1704067200", "1704326400"):  # a Monday, a Thursday
        at = drawn("--begin", begin)
        assert (at.dt.day_of_week >= 5).mean() < 0.25
    late = drawn("--timezone", "Pacific/Honolulu")
    assert not late.dt.hour.equals(drawn().dt.hour)


@pytest.mark.parametrize(
    ("option", "found", "expected"),
    [
        ("--begin", "-5", "argument --begin: expected a number from 0, got '-5'"),
        ("--seed", "-1", "argument --seed: expected a number from 0, got '-1'"),
    ],
)
def test_synth_names_the_option(
    option: str, found: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(
            [
                "trace",
                "synth",
                "--model",
                "ls6_a100",
                "--days",
                "1",
                "--out",
                "t.csv",
                option,
                found,
            ]
        )
    assert expected in capsys.readouterr().err


def test_synth_begins_before_the_year_2200(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "ls6_a100", "--days", "1", "--out", "t.csv", "--begin", "1704067200000"]
    assert main(["trace", "synth", *words]) == 2
    assert (
        "--begin 1704067200000: expected Unix seconds before the year 2200"
        in capsys.readouterr().err
    )


def small_trace(path: Path, *jobs: dict[str, object]) -> str:
    plain = {
        "user": "u",
        "partition": "p",
        "submit": 0,
        "start": None,
        "end": None,
        "timelimit_s": 60,
        "nodes": 2,
    }
    plain |= {"gpus": 0, "cpus": 2, "state": "COMPLETED"}
    table = pd.DataFrame(
        [plain | {"job_id": str(number)} | job for number, job in enumerate(jobs, start=1)]
    )
    write_trace(make_trace(table), path)
    return str(path)


def test_a_log_in_which_none_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cancelled = {"start": 5, "end": 5, "state": "CANCELLED"}
    path = small_trace(tmp_path / "t.csv", cancelled, cancelled, {"state": "PENDING"})
    assert main(["trace", "stats", path, "--nodes", "4", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "3 jobs, none ran (2 CANCELLED, 1 PENDING): waits, sizes and load are not known\n"
    )
    assert main(["trace", "infer", path]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dependencies: none seen",
        "running limit: none seen",
        "array throttles: none seen",
        "nodes over time: not known, since no job has both a start and an end",
    ]
    assert main(["trace", "infer", path, "--out-cluster", str(tmp_path / "c.toml")]) == 2
    assert "expected jobs with a start and an end" in capsys.readouterr().err
    assert not (tmp_path / "c.toml").exists()


def test_a_limit_of_nothing_and_a_single_job_warn_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    ran = {"start": 5, "end": 65}
    assert (
        main(["trace", "stats", small_trace(tmp_path / "t.csv", ran | {"timelimit_s": 0}, ran)])
        == 0
    )
    assert (
        main(
            [
                "trace",
                "stats",
                small_trace(tmp_path / "t.csv", ran),
                "--out",
                str(tmp_path / "figures"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []


def test_infer_writes_neither_file_if_one_can_not_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = small_trace(tmp_path / "t.csv", {"state": "PENDING"}), tmp_path / "a.csv"
    assert (
        main(["trace", "infer", path, "--out", str(out), "--out-cluster", str(tmp_path / "c.toml")])
        == 2
    )
    assert "expected" in capsys.readouterr().err
    assert not out.exists()


def test_a_log_without_starts_and_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_trace(tmp_path / "t.csv", {"runtime_s": 3600, "timelimit_s": None})
    assert main(["trace", "stats", path, "--nodes", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[1]
        == "wait: not known, since no job has a start (`slurm-sim run --trace` gives them one)"
    )
    assert lines[2] == "nodes: mean 2.00, max 2; multi-node jobs take 100% of 2 node-hours"
    assert lines[3] == "limit: not known of any job"


def test_more_nodes_busy_than_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_trace(
        tmp_path / "t.csv",
        *({"submit": number, "start": 9, "end": 900} for number in range(0, 200, 40)),
    )
    assert main(["trace", "stats", path, "--nodes", "9"]) == 0
    shown = capsys.readouterr()
    assert (
        "warning: 10 and more nodes were busy for 1 % of the time (most: 10), more than --nodes 9: "
        in shown.err
    )
    assert main(["trace", "stats", path, "--nodes", "10"]) == 0
    assert "nodes were busy" not in capsys.readouterr().err


def test_infers_cluster_simulates_its_log(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml, result = str(tmp_path / "c.toml"), str(tmp_path / "r.csv")
    assert main(["trace", "infer", str(trace), "--out-cluster", toml]) == 0
    nodes = read_cluster(toml).cluster.nodes
    assert f": {len(nodes)} nodes, changes: 0" in capsys.readouterr().out
    assert simulate(["run", "--trace", str(trace), "--cluster", toml, "--out", result]) == 0
    assert "never" not in capsys.readouterr().err
    assert main(["trace", "infer", str(trace), "--out-cluster", str(tmp_path / "c.txt")]) == 2


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (
            "slurm_sim.traces.table",
            "_csv_bytes",
            ["synth", "--model", "ls6_a100", "--days", "1", "--out", "t.csv"],
        ),
        (
            "slurm_sim.workload",
            "generate",
            ["synth", "--model", "ls6_a100", "--days", "1", "--out", "t.csv"],
        ),
        (
            "slurm_sim.workload.model",
            "asdict",
            ["fit", "{trace}", "--nodes", "8", "--out", "m.toml"],
        ),
        ("slurm_sim.clusters", "write_toml", ["infer", "{trace}", "--out-cluster", "c.toml"]),
    ],
)
def test_an_interrupt_is_one_line_and_leaves_nothing(
    module: str,
    name: str,
    words: list[str],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_args: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module(module), name, interrupt)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["trace", *(word.format(trace=trace) for word in words)]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"mirage trace {words[0]}: interrupted; no file is half-written"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["stats", "absent.csv"],
        ["import", "--swf", "absent.swf", "--out", "t.csv"],
        ["import", "--csv", "bad.csv", "--out", "t.csv", "--column", "nonsense"],
        ["import", "--swf", "bad.csv", "--out", "t.csv"],
        ["import", "--swf", "bad.csv", "--out", "t.csv", "--column", "a=b"],
        ["import", "--csv", "bad.csv", "--out", "t.csv", "--cpus-per-node", "4"],
        ["synth", "--model", "absent", "--days", "1", "--out", "t.csv"],
        ["synth", "--model", "ls6_a100", "--days", "1", "--out", "t.xlsx"],
        ["fit", "bad.csv", "--nodes", "4", "--out", "m.json"],
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    assert main(["trace", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mirage trace: ")
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]


def test_the_bytes_of_a_binary_file_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.csv").write_bytes(
        bytes(range(1, 10)) + b"\x1b[31m," + bytes(range(128, 256)) * 40 + b"\n1,2\n"
    )
    assert (
        main(
            ["trace", "import", "--csv", str(tmp_path / "b.csv"), "--out", str(tmp_path / "t.csv")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert error.strip().isprintable()
    assert len(error) < 1000


@pytest.mark.parametrize(
    "words", [["stats", "t", "--timezone", "Moon"], ["synth", "--days", "-1"], ["import"], []]
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["trace", *words])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "module", ["mirage.cli.submit", "mirage.cli.main", "mirage.cli.trace", "slurm_sim"]
)
def test_pandas_is_not_imported_before_it_is_needed(module: str) -> None:
    code = (
        f"import sys, {module}; sys.exit(any(name in sys.modules for name in ('pandas', 'scipy',"
        " 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_infer_says_that_the_scheduler_is_assumed_and_takes_the_sites(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, site = tmp_path / "c.toml", tmp_path / "slurm.conf"
    words = ["trace", "infer", str(trace), "--out-cluster", str(out)]
    assert main(words) == 0
    assert (
        "warning: a job history does not show the scheduler's parameters" in capsys.readouterr().err
    )
    assert "scheduler_is_assumed = true" in out.read_text()
    site.write_text(
        "ClusterName=c\nPriorityType=priority/multifactor\nPriorityWeightJobSize=123\nNodeName=n1\n"
        "PartitionName=p Nodes=n1\n"
    )
    assert main([*words, "--scheduler", str(site)]) == 0
    assert "warning" not in capsys.readouterr().err
    assert "priority_weight_job_size = 123" in out.read_text()
    assert "scheduler_is_assumed" not in out.read_text()
    assert main([*words, "--scheduler", str(tmp_path / "none.conf")]) == 2
    assert "--scheduler" in capsys.readouterr().err
    assert main(["trace", "infer", str(trace), "--scheduler", str(site)]) == 2
    assert "give --out-cluster" in capsys.readouterr().err
