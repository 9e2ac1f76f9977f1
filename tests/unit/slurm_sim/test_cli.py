"""`slurm-sim run`, `bench` and `compare`."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

from slurm_sim.cli import engine
from slurm_sim.cli.main import main
from slurm_sim.results import compare_results, read_results
from slurm_sim.traces import make_trace, write_trace

GOLD = Path(__file__).parents[4] / "shared" / "gold"
HEADER = "job_id,submit_s,nodes,timelimit_min,runtime_s"
CLUSTER = """
[scheduler]
select_type = "select/cons_tres"
[[nodes]]
name = "n[1-4]"
cpus = 4
gpus = 2
[[partitions]]
name = "short"
nodes = "ALL"
max_time_s = 3600
[[partitions]]
name = "long"
nodes = "n[1-2]"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulate(jobs: str, *words: str, cluster: str = "--nodes=4", header: str = HEADER) -> int:
    Path("jobs.csv").write_text(f"{header}\n{jobs}")
    if cluster == "toml":
        Path("c.toml").write_text(CLUSTER)
        cluster = "--cluster=c.toml"
    return main(["run", "--jobs", "jobs.csv", cluster, "--out", "r.csv", *words])


def rows(path: str = "r.csv") -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


# --- run
# -------------------------------------------------------------------------------------------------------------


def test_the_contract_of_run() -> None:
    assert simulate("7,0,4,10,100\n8,10,4,10,60\n") == 0
    assert Path("r.csv").read_text().splitlines()[0] == "job_id,submit_s,start_s,end_s"
    first, second = rows()
    # A start takes 0-3 s from the submission; the second job waits for the first's nodes.
    assert int(first["end_s"]) - int(first["start_s"]) == 100
    assert 0 <= int(first["start_s"]) <= 3
    assert 0 <= int(second["start_s"]) - int(first["end_s"]) <= 30
    assert [first["job_id"], second["job_id"]] == ["7", "8"]


def test_jobs_in_several_partitions_show_where_they_ran() -> None:
    """The first has `long`'s nodes; of the others one can't start before the time that is simulated
    ends.
    """
    text = '1,0,2,500,30000,long,4\n2,9,1,30,60,"long,short",4\n3,9,4,30,60,"short,long",4\n'
    more = ("--columns=partition,nodelist", "--until=100")
    assert simulate(text, *more, cluster="toml", header=f"{HEADER},partition,cpus_per_node") == 0
    assert [row["partition"] for row in rows()] == ["long", "short", "short,long"]
    assert rows()[1]["nodelist"] == "n3"


def test_equal_input_gives_equal_bytes() -> None:
    jobs = "".join(
        f"{n},{7 * n},{1 + n % 4},{5 + n % 50},{(n * 137) % 4000},u{n % 3}\n" for n in range(1, 60)
    )
    assert simulate(jobs, "--columns=all", header=f"{HEADER},user") == 0
    first = Path("r.csv").read_bytes()
    assert simulate(jobs, "--columns=all", header=f"{HEADER},user") == 0
    assert Path("r.csv").read_bytes() == first


def test_all_columns() -> None:
    assert (
        simulate("1,0,2,10,100,ann\n2,0,2,1,100,bob\n", "--columns=all", header=f"{HEADER},user")
        == 0
    )
    first, second = rows()
    assert (first["state"], second["state"]) == ("COMPLETED", "TIMEOUT")
    assert (first["user"], first["partition"], first["nodes"]) == ("ann", "batch", "2")
    assert {first["nodelist"], second["nodelist"]} == {"n[1-2]", "n[3-4]"}
    assert 60 <= int(second["end_s"]) - int(second["start_s"]) < 90
    assert first["wait_s"] == str(int(first["start_s"]) - int(first["submit_s"]))


def test_parquet() -> None:
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,1,10,5\n")
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "2", "--out", "r.parquet"]) == 0
    assert len(read_results("r.parquet")) == 1


def test_ids_need_not_be_in_the_order_of_submission() -> None:
    # Of two that are submitted together, the first of the file goes first; dependencies follow
    # their jobs.
    jobs = (
        "50,0,4,10,100,\n9,0,4,10,100,\n3,1,1,10,10,afterany:9\n4,1,1,10,10,afterok:50?afterok:9\n"
    )
    assert simulate(jobs, header=f"{HEADER},dependency") == 0
    ends = {row["job_id"]: int(row["end_s"]) for row in rows()}
    starts = {row["job_id"]: int(row["start_s"]) for row in rows()}
    assert ends["50"] <= starts["9"]
    assert ends["9"] <= starts["3"]
    assert ends["50"] <= starts["4"]


def test_a_dependency_on_an_array_waits_for_all_its_tasks() -> None:
    jobs = "11,0,1,10,100,,10,1\n12,0,1,10,100,,10,1\n20,5,1,10,5,afterok:10,,\n"
    assert simulate(jobs, header=f"{HEADER},dependency,array_job_id,array_throttle") == 0
    first, second, last = rows()
    assert int(second["start_s"]) >= int(first["end_s"])
    assert int(last["start_s"]) >= int(second["end_s"])


def test_totals_become_parts_of_a_node() -> None:
    # 8 GPUs on 4 nodes are both of each node, so a job with a GPU waits; one without goes beside.
    jobs = "1,0,4,10,100,8\n2,1,1,10,5,1\n3,1,1,10,5,0\n"
    assert simulate(jobs, cluster="toml", header=f"{HEADER},gpus") == 0
    busy, waits, goes = rows()
    assert int(waits["start_s"]) >= int(busy["end_s"])
    assert int(goes["start_s"]) < int(busy["end_s"])


def test_time_moves_with_slurmctlds_start() -> None:
    simulate("1,0,3,10,100\n2,1,2,10,50\n3,2,2,10,50\n")
    plain = rows()
    simulate("1,1000,3,10,100\n2,1001,2,10,50\n3,1002,2,10,50\n", "--slurmctld-started-s=880")
    assert [int(row["start_s"]) - 1000 for row in rows()] == [int(row["start_s"]) for row in plain]
    assert simulate("1,5,1,1,1\n", "--slurmctld-started-s=6") == 2


def test_times_of_the_cluster_are_those_of_the_jobs(tmp_path: Path) -> None:
    text = CLUSTER + '[[node_changes]]\ntime_s = 0\nnode = "n[1-4]"\naction = "DOWN"\n'
    text += '[[node_changes]]\ntime_s = 500\nnode = "n[1-4]"\naction = "RESUME"\n'
    (tmp_path / "down.toml").write_text(text)
    assert simulate("1,0,1,10,5\n", cluster=f"--cluster={tmp_path / 'down.toml'}") == 0
    assert 500 <= int(rows()[0]["start_s"]) <= 530


def test_until_leaves_times_open(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        simulate("1,0,4,10,300\n2,1,4,10,5\n3,900,1,1,1\n", "--until=200", "--columns=state") == 0
    )
    assert [row["state"] for row in rows()] == ["RUNNING", "PENDING", ""]
    assert [row["end_s"] for row in rows()] == ["", "", ""]
    assert "never" not in capsys.readouterr().err


# --- jobs that never start
# -------------------------------------------------------------------------------------------


def test_circles_end_the_run_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = (
        "1,0,1,10,5,afterany:2\n2,1,1,10,5,afterany:1\n3,2,1,10,5,afterok:3\n4,3,1,10,5,afterany:2\n5,3,1,10,5,\n"
        "6,4,1,10,5,afterany:7\n7,4,1,10,5,afterany:6\n"
    )
    assert simulate(jobs, "--columns=reason", header=f"{HEADER},dependency") == 0
    found = {row["job_id"]: row for row in rows()}
    assert all(found[job]["start_s"] == found[job]["end_s"] == "" for job in "123467")
    assert found["5"]["end_s"]
    assert "1 -> 2" in found["1"]["reason"]
    assert "3 -> 3" in found["3"]["reason"]
    assert found["4"]["reason"] == "Dependency"
    shown = capsys.readouterr().err
    assert "warning: 6 jobs never start (1 Dependency, 5 DependencyCycle)" in shown
    assert "fulfilled at once" not in shown


def test_an_impossible_dependency(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "1,0,1,10,5,,1\n2,1,1,10,5,afterok:1,\n3,1,1,10,5,afterany:77,\n"
    assert simulate(jobs, header=f"{HEADER},dependency,exit_code") == 0
    assert [bool(row["start_s"]) for row in rows()] == [True, False, True]
    shown = capsys.readouterr().err
    assert "2: DependencyNeverSatisfied" in shown
    assert "1 dependencies are on jobs that are not there (job 3 on 77): fulfilled at once" in shown


def test_jobs_without_an_end_do_not_run_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,,\n2,0,1,10,5\n") == 0
    assert [bool(row["end_s"]) for row in rows()] == [False, True]
    assert "never end: 1" in capsys.readouterr().err


def test_a_job_that_is_cancelled_in_the_queue_has_an_end_only() -> None:
    assert (
        simulate("1,0,4,10,300,\n2,1,4,10,5,50\n", "--columns=state", header=f"{HEADER},cancel_s")
        == 0
    )
    assert rows()[1] == {
        "job_id": "2",
        "submit_s": "1",
        "start_s": "",
        "end_s": "50",
        "state": "CANCELLED",
    }


def test_energy_is_in_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Both nodes idle from slurmctld's start (-120 s) on, one is busy for 3600 s."""
    cluster = CLUSTER.replace('n[1-4]"\n', 'n[1-2]"\nidle_w = 100\nbusy_w = 1000\n')
    Path("w.toml").write_text(cluster)
    words = ("--until=10000",)
    assert simulate("1,0,1,60,3600\n", *words, cluster="--cluster=w.toml") == 0
    energy_j = 2 * 100 * 10120 + 900 * 3600
    assert f"energy: {energy_j / 3.6e6:.3f} kWh until 10000 s\n" in capsys.readouterr().err
    assert simulate("1,0,1,60,3600\n", *words, "--json", cluster="--cluster=w.toml") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["energy_j"], found["stopped_s"], found["states"]) == (
        energy_j,
        10000,
        {"COMPLETED": 1},
    )
    assert simulate("1,0,1,60,3600\n") == 0
    assert "energy" not in capsys.readouterr().err


@pytest.mark.parametrize("action", ["DOWN", "DRAIN"])
def test_why_nothing_starts_when_nodes_are_down(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLUSTER + f'[[node_changes]]\ntime_s = 100\nnode = "n[1-4]"\naction = "{action}"\n'
    Path("down.toml").write_text(text)
    assert simulate("1,0,1,10,5\n2,200,1,10,5\n", cluster="--cluster=down.toml") == 0
    shown = capsys.readouterr().err
    assert (
        "warning: all 4 nodes are down or drained at the end (n[1-4]), and jobs wait for nodes; a"
        " node_change" in shown
    )
    assert simulate("1,0,1,10,5\n2,200,1,10,5\n", "--json", cluster="--cluster=down.toml") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes_down"] == ["n1", "n2", "n3", "n4"]
    assert found["never_start"] == {
        "jobs": 1,
        "reasons": {"Resources": 1},
        "first": {"2": "Resources"},
    }
    assert simulate("1,0,1,10,5\n", cluster="--cluster=down.toml") == 0
    assert "down or drained" not in capsys.readouterr().err


# --- bad input
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "line", "words"),
    [
        (HEADER, "2,-5,1,10,5", ["jobs.csv:3: submit_s: found '-5'", "whole number from 0"]),
        (HEADER, "2,5,1,10,-5", ["jobs.csv:3: runtime_s: found '-5'"]),
        (HEADER, "2,5,0,10,5", ["jobs.csv:3: nodes: found '0'", "from 1"]),
        (HEADER, "2,5,1,0,5", ["jobs.csv:3: timelimit_min: found '0'", "above 0"]),
        (HEADER, "2,5,1.5,10,5", ["jobs.csv:3: nodes: found '1.5'"]),
        (HEADER, "2,x,1,10,5", ["jobs.csv:3: submit_s: found 'x'"]),
        (HEADER, "2,nan,1,10,5", ["jobs.csv:3: submit_s: found 'nan'"]),
        (HEADER, ",5,1,10,5", ["jobs.csv:3: job_id: found 'nothing'"]),
        (HEADER, "2,5,1,10", ["jobs.csv:3: line: found '4 fields', expected 5"]),
        (HEADER, "1,5,1,10,5", ["jobs.csv:3: job_id: found '1', expected each id once"]),
        (
            HEADER,
            "2,5,9,10,5",
            ["jobs.csv:3: nodes: found '9'", "partition 'short' has 4", "--skip-impossible"],
        ),
        (HEADER, "2,5,1,61,5", ["jobs.csv:3: timelimit_min: found '61'", "allows 3600"]),
        (
            f"{HEADER},partition",
            "2,5,1,10,5,none",
            ["jobs.csv:3: partition: found 'none'", "--ignore partition"],
        ),
        (f"{HEADER},qos", "2,5,1,10,5,none", ["jobs.csv:3: qos: found 'none'"]),
        (
            f"{HEADER},dependency",
            "2,5,1,10,5,before:1",
            ["jobs.csv:3: dependency: found 'before:1'"],
        ),
        (
            f"{HEADER},held",
            "2,5,1,10,5,maybe",
            ["jobs.csv:3: held: found 'maybe', expected yes or no"],
        ),
        (f"{HEADER},exit_code", "2,5,1,10,5,bad", ["jobs.csv:3: exit_code: found 'bad'"]),
        (f"{HEADER},reservation", "2,5,1,10,5,r", ["jobs.csv:3: reservation: found 'r'"]),
        (f"{HEADER},constraint", "2,5,1,10,5,a&b", ["jobs.csv:3: constraint: found 'a&b'"]),
        (
            f"{HEADER},gpus",
            "2,5,2,10,5,7",
            ["jobs.csv:3: gpus: found '7'", "have 1 CPUs, 0 MiB, 4 GPUs"],
        ),
        (f"{HEADER},cpus_per_node", "2,5,2,10,5,9", ["jobs.csv:3: cpus_per_node: found '9'"]),
        (HEADER.replace("_min", "_s"), "2,5,1,4000,5", ["jobs.csv:3: timelimit_s: found '4000'"]),
    ],
)
def test_one_clear_error(
    header: str, line: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    good = "1,0,1,10,5" + "," * (header.count(",") - 4)
    assert simulate(f"{good}\n{line}\n", cluster="toml", header=header) == 2
    shown = capsys.readouterr().err
    for word in words:
        assert word in shown
    assert shown.count("slurm-sim run: ") == 1
    assert not Path("r.csv").exists()


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("job_id,submit_s,nodes,runtime_s", "timelimit_min"),
        ("job_id,user,partition,submit,start,end", "--trace"),
        (f"{HEADER},timelimit_s", "not both"),
        (f"{HEADER},nodes", "each column once"),
    ],
)
def test_wrong_headers(header: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,10,5\n", header=header) == 2
    assert word in capsys.readouterr().err


def test_wrong_files_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--jobs", "none.csv", "--nodes", "2", "--out", "r.csv"]) == 2
    assert simulate("") == 2
    assert simulate("1,0,1,1,1\n", "--slurm-params=bf_windov=3") == 2
    assert "bf_window" in capsys.readouterr().err
    assert simulate("1,0,1,1,1\n", cluster="--cluster=none.toml") == 2
    for words in (["--columns=none"], ["--nodes=0"]):
        with pytest.raises(SystemExit) as caught:
            simulate("1,0,1,1,1\n", *words)
        assert caught.value.code == 2
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "2", "--out", "nowhere/r.csv"]) == 2


def test_impossible_jobs_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "1,0,1,10,5\n2,0,9,10,5\n3,0,9,10,5\n4,0,1,10,5\n5,0,77,10,5\n"
    assert simulate(jobs) == 2
    assert "3 of 5 jobs are so" in capsys.readouterr().err
    assert simulate(jobs, "--skip-impossible") == 0
    assert [row["job_id"] for row in rows()] == ["1", "4"]
    shown = capsys.readouterr().err
    assert "3 impossible jobs left out: 2: 9 nodes asked for" in shown
    assert "(job 2, 3)" in shown


def test_a_bad_line_far_down_is_found_soon(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{n},{n},1,10,5" for n in range(1, 200_001)]
    lines[150_000] = "150001,150001,1,1O,5"
    begun = time.process_time()
    assert simulate("\n".join(lines)) == 2
    assert time.process_time() - begun < 5
    assert "jobs.csv:150002: timelimit_min: found '1O'" in capsys.readouterr().err


def test_nothing_is_ignored_silently(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,1,90,gpu,x\n", header=f"{HEADER},partition,colour") == 0
    shown = capsys.readouterr().err
    assert "unknown columns, not used: colour" in shown
    assert "not used: partition" in shown
    assert "1 jobs would run longer than their limit" in shown


def test_an_interrupt_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run", interrupt)
    assert simulate("1,0,1,10,5\n") == 130
    assert sorted(path.name for path in Path().iterdir()) == ["jobs.csv"]
    assert "interrupted" in capsys.readouterr().err


# --- traces and replays
# ----------------------------------------------------------------------------------------------


def trace_of(*jobs: tuple[object, ...]) -> None:
    import pandas as pd

    names = (
        "job_id",
        "user",
        "partition",
        "submit",
        "start",
        "end",
        "timelimit_s",
        "nodes",
        "gpus",
        "cpus",
        "state",
    )
    write_trace(make_trace(pd.DataFrame([(*job,) for job in jobs], columns=names)), "t.csv")


def test_a_trace_in_unix_seconds() -> None:
    begin = 1_664_988_768
    trace_of(
        ("5_1", "u", "gpu", begin, begin + 9, begin + 109, 3600, 2, 0, 8, "COMPLETED"),
        ("5_2", "u", "gpu", begin + 1, None, begin + 50, 3600, 4, 0, 8, "CANCELLED"),
        ("7", "u", "gpu", begin + 2, begin + 9, begin + 59, 3600, 3, 0, 8, "FAILED"),
    )
    assert (
        main(["run", "--trace", "t.csv", "--nodes", "4", "--out", "r.csv", "--columns", "state"])
        == 0
    )
    first, cancelled, last = rows()
    assert first["job_id"] == "5_1"
    assert 0 <= int(first["start_s"]) - begin <= 3
    assert int(first["end_s"]) - int(first["start_s"]) == 100
    assert (cancelled["start_s"], cancelled["end_s"], cancelled["state"]) == (
        "",
        str(begin + 50),
        "CANCELLED",
    )
    assert (last["state"], int(last["start_s"]) >= int(first["end_s"])) == ("FAILED", True)


@pytest.mark.skipif(not GOLD.is_dir(), reason="the recorded replays are not here")
@pytest.mark.parametrize(
    ("name", "within_60_s", "mean_s"), [("w0219", 0.99, 5), ("c0109", 0.97, 10)]
)
def test_a_real_replay_from_its_own_files(name: str, within_60_s: float, mean_s: float) -> None:
    with (GOLD / name / "actual_ext.csv").open() as file:
        jobs = [
            f"{row['job_id']},{row['submit_s']},{row['nodes']},{row['timelimit_min']},{row['runtime_real_s']}\n"
            for row in csv.DictReader(file)
        ]
    assert simulate("".join(jobs), cluster=f"--slurm-conf={GOLD / name / 'slurm.conf'}") == 0
    found = compare_results(read_results(GOLD / name / "actual.csv"), read_results("r.csv"))
    assert found["jobs"] == len(jobs)
    assert found["start"]["within_60_s"] >= within_60_s
    assert found["start"]["mean_absolute_s"] <= mean_s


# --- bench and compare
# -----------------------------------------------------------------------------------------------


def test_the_contract_of_bench(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{n} {20 * n} -1 60 1 -1 -1 1 120 -1 1 1 1 -1 1 -1 -1 -1\n" for n in range(1, 101)]
    Path("f.swf").write_text("; MaxNodes: 4\n" + "".join(lines))
    assert (
        main(
            ["bench", "--swf", "f.swf", "--nodes", "4", "--repeat", "3", "--first", "50", "--json"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == 50
    assert found["jobs_per_s"] == pytest.approx(50 / found["cpu_s"])
    assert len(found["repeats_cpu_s"]) == 3
    assert found["cpu_s"] == sorted(found["repeats_cpu_s"])[1]
    # The last of them is submitted 980 s after the first and runs 60 s on free nodes; then there is
    # a last pass.
    assert 1040 <= 86400 * found["sim_days_per_s"] * found["cpu_s"] <= 1040 + 120
    assert found["peak_mib"] >= found["before_mib"] > 10
    assert (found["nodes"], found["select_type"], found["priority_type"]) == (
        4,
        "select/linear",
        "priority/basic",
    )


def test_bench_counts_all_threads(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(HEADER + "\n" + "".join(f"{n},{n},1,10,60\n" for n in range(1, 51)))
    words = [
        "bench",
        "--jobs",
        "jobs.csv",
        "--nodes",
        "4",
        "--repeat",
        "1",
        "--threads",
        "2",
        "--load",
        "4",
    ]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs_per_s"] == pytest.approx(100 / found["cpu_s"])
    assert main(words) == 0
    assert "jobs/s" in capsys.readouterr().out


def test_compare_prints_saves_and_draws(capsys: pytest.CaptureFixture[str]) -> None:
    simulate("1,0,3,10,100\n2,1,2,10,50\n3,2,2,10,50\n")
    Path("r.csv").rename("a.csv")
    simulate("1,0,3,10,100\n2,1,2,10,90\n4,2,2,10,50\n")
    capsys.readouterr()
    assert (
        main(["compare", "a.csv", "r.csv", "--jobs", "jobs.csv", "--nodes", "4", "--out", "d"]) == 0
    )
    shown = capsys.readouterr().out
    assert "2 jobs started and ended in both" in shown
    assert "left out: 1 only in A (job 3)\nleft out: 1 only in B (job 4)\n" in shown
    assert Path("d/compare.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads(Path("d/compare.json").read_text())
    assert main(["compare", "a.csv", "r.csv", "--jobs", "jobs.csv", "--nodes", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == saved
    assert saved["b"]["completion_s"] - saved["a"]["completion_s"] == 20
    assert main(["compare", "a.csv", "r.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["a"]["utilisation"] is None


def test_results_without_a_common_job_cannot_be_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,0,1\n")
    Path("b.csv").write_text("job_id,submit_s,start_s,end_s\n2,0,0,1\n")
    assert main(["compare", "a.csv", "b.csv"]) == 2
    expected = (
        "A (a.csv) and B (b.csv): found 'none', expected jobs that started and ended in both,"
        " matched by job_id: "
    )
    assert f"{expected}1 only in A (job 1); 1 only in B (job 2)" in capsys.readouterr().err
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("job_id,submit_s,start_s,end_s\n")
    assert main(["compare", "a.csv", "b.csv"]) == 2
    assert f"{expected}both are empty" in capsys.readouterr().err


def test_the_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / "jobs.csv"
    text = "job_id,submit_s,nodes,timelimit_min,runtime_s\n1,0,1,10,5\n"
    jobs.write_text(text)
    assert main(["run", "--jobs", str(jobs), "--nodes", "4", "--out", str(jobs)]) == 2
    assert "this one is the input" in capsys.readouterr().err
    assert jobs.read_text() == text
