"""Results: files and figures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim import results as r
from slurm_sim.traces.errors import TraceError

GOLD = Path(__file__).parents[4] / "shared" / "gold"
NAN = float("nan")

# Job 1 runs at once on 2 nodes, job 2 waits 50 s for 1 node, job 3 never starts.
A = "job_id,submit_s,start_s,end_s,nodes\n1,0,0,100,2\n2,50,100,150,1\n3,60,,,4\n"
B = "job_id,submit_s,start_s,end_s,nodes\n2,50,104,204,1\n1,0,0,100,2\n4,70,70,80,1\n"


def load(folder: Path, text: str, name: str = "r.csv") -> r.Results:
    path = folder / name
    path.write_text(text)
    return r.read_results(path)


def test_figures_by_hand(tmp_path: Path) -> None:
    a = load(tmp_path, A)
    found = r.figures_of(a, a.column("nodes"), 2)
    assert found["jobs"] == 2
    assert found["busy_nodes_max"] == 2
    assert found["makespan_s"] == 150
    assert found["completion_s"] == (100 + 100) / 2
    assert found["wait_s"] == pytest.approx(
        {"mean": 25, "p50": 25, "p90": 45, "p95": 47.5, "p99": 49.5}
    )
    assert found["bounded_slowdown"] == (1 + 100 / 50) / 2
    assert found["utilisation"] == (2 * 100 + 1 * 50) / (2 * 150)
    assert found["node_hours"] == 250 / 3600


def test_comparison_by_hand(tmp_path: Path) -> None:
    found = r.compare_results(load(tmp_path, A), load(tmp_path, B, "b.csv"), cluster_nodes=2)
    assert found["jobs"] == 2
    assert found["left_out"]["only_in_a"] == {"jobs": 1, "first": ["3"]}
    assert found["left_out"]["only_in_b"] == {"jobs": 1, "first": ["4"]}
    assert found["start"]["mean_s"] == 2
    assert found["start"]["max_absolute_s"] == 4
    assert [found["start"][f"within_{s}_s"] for s in (0, 5)] == [0.5, 1]
    assert found["difference"]["makespan"] == pytest.approx(54 / 150)
    assert found["difference"]["completion"] == pytest.approx(27 / 100)
    assert found["difference"]["completion_ratio"] == pytest.approx(math.sqrt(1.54))


def test_without_nodes_there_is_no_utilisation_but_the_rest(tmp_path: Path) -> None:
    plain = "job_id,submit_s,start_s,end_s\n1,0,0,100\n"
    a, b = load(tmp_path, plain), load(tmp_path, plain, "b.csv")
    found = r.compare_results(a, b)
    assert math.isnan(found["a"]["utilisation"])
    assert found["a"]["makespan_s"] == 100
    assert r.compare_results(a, b, nodes_of={"1": 3.0})["a"]["utilisation"] == 1


def test_all_figures_are_over_the_jobs_that_ran_in_both(tmp_path: Path) -> None:
    header = "job_id,submit_s,start_s,end_s,nodes\n"
    # 1 and 2 run in both; 3 to 7 are left out, each for one reason; what they'd add is seen in no
    # figure.
    a = load(
        tmp_path,
        header + "1,0,0,100,1\n2,10,10,60,1\n3,0,,,9\n4,0,,9,9\n5,0,5,900,9\n6,0,5,,9\n7,0,1,2,9\n",
    )
    b = load(
        tmp_path,
        header + "1,0,0,100,1\n2,10,20,70,1\n3,0,,,9\n4,0,5,800,9\n5,0,,,9\n6,0,5,9,9\n8,0,1,2,9\n",
        "b.csv",
    )
    found = r.compare_results(a, b)
    assert found["jobs"] == found["a"]["jobs"] == found["b"]["jobs"] == 2
    names = (
        "started_in_neither",
        "started_only_in_b",
        "started_only_in_a",
        "not_ended",
        "only_in_a",
        "only_in_b",
    )
    assert [found["left_out"][name]["first"] for name in names] == [
        ["3"],
        ["4"],
        ["5"],
        ["6"],
        ["7"],
        ["8"],
    ]
    assert (found["a"]["makespan_s"], found["b"]["makespan_s"]) == (100, 100)
    assert (found["a"]["node_hours"], found["cluster_nodes"]) == (150 / 3600, 2)
    assert found["start"]["max_absolute_s"] == 10


def test_unknown_nodes_of_one_job_leave_node_hours_open(tmp_path: Path) -> None:
    a = load(tmp_path, "job_id,submit_s,start_s,end_s,nodes\n1,0,0,100,1\n2,10,10,60,\n")
    assert math.isnan(r.compare_results(a, a)["a"]["node_hours"])
    assert r.compare_results(a, a)["a"]["completion_s"] == 75


def test_a_job_that_took_no_time_has_no_ratio(tmp_path: Path) -> None:
    a = load(tmp_path, "job_id,submit_s,start_s,end_s\n1,0,0,100\n2,10,10,10\n")
    found = r.compare_results(a, a)
    assert (found["jobs"], found["difference"]["completion_ratio_jobs"]) == (2, 1)
    assert found["difference"]["completion_ratio"] == 1


def test_only_jobs_that_waited_in_both_have_a_ratio_of_waits(tmp_path: Path) -> None:
    header = "job_id,submit_s,start_s,end_s\n"
    a = load(tmp_path, header + "1,0,10,20\n2,0,40,50\n3,0,0,5\n4,0,0,5\n5,0,7,9\n")
    b = load(tmp_path, header + "1,0,20,30\n2,0,20,30\n3,0,0,5\n4,0,9,14\n5,0,0,9\n", "b.csv")
    found = r.compare_results(a, b)["difference"]
    assert (found["wait_ratio_jobs"], found["waited_in_one_jobs"]) == (2, 2)
    assert found["wait_ratio"] == pytest.approx(1)
    assert r.compare_results(a, a)["difference"]["wait_ratio_jobs"] == 3


def test_a_traces_job_that_was_cancelled_in_the_queue_did_not_start(tmp_path: Path) -> None:
    text = "job_id,submit,start,end,state\n1,0,50,50,CANCELLED\n2,0,50,60,CANCELLED\n3,0,50,50,COMPLETED\n"
    assert np.isnan(load(tmp_path, text).column("start_s")).tolist() == [True, False, False]
    assert (
        r.compare_results(load(tmp_path, text), load(tmp_path, text))["left_out"][
            "started_in_neither"
        ]["jobs"]
        == 1
    )


def test_a_trace_is_a_result(tmp_path: Path) -> None:
    found = load(tmp_path, "job_id,user,submit,start,end\n5_1,u,10,20,30\n")
    assert list(found.column("start_s")) == [20]
    assert list(found.jobs["job_id"]) == ["5_1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job_id,submit_s,start_s\n1,0,0\n", ["r.csv:1: header", "end_s"]),
        (
            "job_id,submit_s,start_s,end_s\n1,5,4,9\n",
            ["r.csv:2: start_s", "'4'", "from submit_s on"],
        ),
        ("job_id,submit_s,start_s,end_s\n1,5,6,9\n2,5,6,5\n", ["r.csv:3: end_s"]),
        ("job_id,submit_s,start_s,end_s\n1,5,6,9\n1,5,6,9\n", ["r.csv:3: job_id", "once"]),
        ("job_id,submit_s,start_s,end_s\n1,,6,9\n", ["r.csv:2: submit_s"]),
        (
            "job_id,submit_s,start_s,end_s\n1,x,6,9\n",
            ["r.csv:2: submit_s: found 'x', expected a whole number"],
        ),
        ("job_id,submit,start,end\n1,5,6,9\n\n2,5,6,9.5\n", ["r.csv:4: end: found '9.5'"]),
        ("job_id,submit,start,end\n1,5,6,9\n\n2,7,6,9\n", ["r.csv:4: start: found '6'"]),
        ("job_id,submit_s,start_s,end_s\n1,5,6\n", ["r.csv:2: line: found '3 fields'"]),
    ],
)
def test_bad_results_are_refused_with_their_place(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    with pytest.raises(TraceError) as caught:
        load(tmp_path, text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "r.parquet"])
def test_what_is_written_is_read_and_is_the_same_bytes_again(tmp_path: Path, name: str) -> None:
    start = pd.arrays.IntegerArray(np.array([3, 0]), np.array([False, True]))
    columns = {
        "job_id": np.array([1, 2]),
        "submit_s": np.array([2, 2]),
        "start_s": start,
        "end_s": start,
        "nodelist": ["n[1-2],n4", ""],
    }
    r.write_results(columns, tmp_path / name)
    found = r.read_results(tmp_path / name)
    assert found.column("start_s")[0] == 3
    assert np.isnan(found.column("start_s")[1])
    assert found.jobs["nodelist"].fillna("").tolist() == ["n[1-2],n4", ""]
    first = (tmp_path / name).read_bytes()
    r.write_results(columns, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_wrong_name_or_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "r.txt", tmp_path / "none" / "r.csv"):
        with pytest.raises(TraceError):
            r.write_results({"job_id": np.array([1])}, path)
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(TraceError, match="a file to write; this is a folder"):
        r.check_format(tmp_path / "r.csv")


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.csv"
    path.write_text("old")

    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(r, "_write_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        r.write_results({"job_id": np.array([1])}, path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["r.csv"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 5)), max_size=20))
def test_levels_are_what_counting_gives(jobs: list[tuple[int, int, int]]) -> None:
    begin = np.array([min(a, b) for a, b, _ in jobs], float)
    end = np.array([max(a, b) for a, b, _ in jobs], float)
    amount = np.array([n for _, _, n in jobs], float)
    times, levels = r.level(begin, end, amount)
    assert (np.diff(times) > 0).all()
    for at, found in zip(times, levels, strict=True):
        assert found == sum(amount[(begin <= at) & (at < end)])


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.floats(0.1, 10))
def test_the_geometric_mean_of_a_constant_ratio_is_it(values: list[int], factor: float) -> None:
    a = np.array(values, float)
    assert r.geometric_mean_ratio(a, a * factor) == pytest.approx(factor)
    assert r.geometric_mean_ratio(
        np.append(a, [NAN, 0]), np.append(a * factor, [5, 5])
    ) == pytest.approx(factor)


def test_bounded_slowdown() -> None:
    wait, run = np.array([0.0, 90, 100, 5]), np.array([100.0, 10, 1, 0])
    assert r.bounded_slowdown(wait, run).tolist() == [1, 10, 10.1, 1]


@pytest.mark.skipif(not GOLD.is_dir(), reason="the recorded replays are not here")
def test_the_noise_of_two_identical_replays_is_what_their_notes_say() -> None:
    a, b = (r.read_results(GOLD / name / "actual_ext.csv") for name in ("syn1_r1", "syn1_r2"))
    found = r.compare_results(a, b, cluster_nodes=16)
    start = found["start"]
    # notes/slurmctld.md: 200 jobs, 39 equal, 39 within 5 s, 200 within 35 s, mean 12 s, largest 17
    # s.
    assert found["jobs"] == 200
    assert [round(200 * start[f"within_{s}_s"]) for s in (0, 5, 35)] == [39, 39, 200]
    assert round(start["mean_absolute_s"]) == 12
    assert start["max_absolute_s"] == 17
    # syn1_r1/notes.md: mean wait 103690 s, makespan 56.5 h, 817 node-hours.
    assert round(found["a"]["wait_s"]["mean"]) == 103690
    assert round(found["a"]["makespan_s"] / 3600, 1) == 56.5
    assert round(found["a"]["node_hours"]) == 817
