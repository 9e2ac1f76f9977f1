"""What `slurm-sim run` and `compare` tell of input that is odd: nothing passes silently."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim.cli.main import main
from slurm_sim.dependency import check_no_cycle
from slurm_sim.errors import InvalidJob
from slurm_sim.jobfile.dependencies import circles, wishes_of
from slurm_sim.jobfile.jobs import Jobs, _by_number

HEADER = "job_id,submit_s,nodes,timelimit_min,runtime_s"
TRACE = "job_id,user,partition,submit,start,end,state,nodes,cpus,gpus,timelimit_s,dependency\n"
LINEAR = '[[nodes]]\nname = "n[1-4]"\n%s\n[[partitions]]\nname = "p"\nnodes = "ALL"\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulate(jobs: str, *words: str, header: str = HEADER, cluster: str = "") -> int:
    Path("jobs.csv").write_text(f"{header}\n{jobs}")
    Path("c.toml").write_text(cluster)
    where = ["--cluster", "c.toml"] if cluster else ["--nodes", "4"]
    return main(["run", "--jobs", "jobs.csv", *where, "--out", "r.csv", *words])


# --- what the cluster does not count
# -----------------------------------------------------------------------------


def test_select_linear_says_once_what_it_does_not_look_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header = f"{HEADER},cpus,gpus_per_node,mem_mib"
    assert simulate("1,0,1,10,5,8,0,\n2,0,1,10,5,8,,0\n", header=header) == 0
    shown = capsys.readouterr().err
    assert shown.count("not used") == 1
    assert (
        "note: not used: cpus (select/linear gives whole nodes and does not look at what they"
        " have)\n" in shown
    )


def test_jobs_that_want_more_than_any_linear_node_has_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header = f"{HEADER},gpus_per_node,mem_mib"
    jobs = "1,0,1,10,5,3,100\n2,0,1,10,5,2,100\n3,0,2,10,5,,999\n"
    assert simulate(jobs, header=header, cluster=LINEAR % "gpus = 2") == 0
    assert "not used: gpus_per_node, mem_mib" in (shown := capsys.readouterr().err)
    assert "; 1 jobs ask for more than any node has, like job 1\n" in shown


@pytest.mark.parametrize(("consumable", "told"), [("true", False), ("false", True)])
def test_memory_that_is_not_counted(
    consumable: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = (
        f'[scheduler]\nselect_type = "select/cons_tres"\nmemory_is_consumable = {consumable}\n'
    )
    cluster = scheduler + LINEAR % "memory_mib = 500\ncpus = 8"
    assert simulate("1,0,1,10,5,8,100\n", header=f"{HEADER},cpus,mem_mib", cluster=cluster) == 0
    assert (
        "not used: mem_mib (SelectTypeParameters without memory" in capsys.readouterr().err
    ) == told


@pytest.mark.parametrize(
    ("default", "second", "starts", "told"),
    [
        ("", "", ["0", "0"], "note: memory is not counted: no job of the file names any\n"),
        ("", "100", ["0", "5"], "note: 1 jobs name no memory: each gets all of its nodes'"),
        (
            "400",
            "100",
            ["0", "0"],
            "note: 1 jobs name no memory: each gets what DefMemPerCPU or DefMemPerNode say",
        ),
    ],
)
def test_jobs_that_name_no_memory(
    default: str, second: str, starts: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm gives them the default or all of their nodes'; where no job names any, nothing is known
    of it.
    """
    default = default and f", default_memory_per_node_mib = {default}"
    cluster = f"""
        scheduler = {{ select_type = "select/cons_tres", memory_is_consumable = true{default} }}
        nodes = [{{ name = "n1", memory_mib = 500, cpus = 8 }}]
        partitions = [{{ name = "p", nodes = "ALL" }}]
    """
    assert (
        simulate(
            f"1,0,1,10,5,1,\n2,0,1,10,5,1,{second}\n",
            header=f"{HEADER},cpus,mem_mib",
            cluster=cluster,
        )
        == 0
    )
    assert told in capsys.readouterr().err
    with Path("r.csv").open() as file:
        assert [row["start_s"] for row in csv.DictReader(file)] == starts


def test_default_memory_refuses_no_job_if_memory_is_not_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = """
        scheduler = { select_type = "select/cons_tres", memory_is_consumable = true, default_memory_per_cpu_mib = 100 }
        nodes = [{ name = "n1", memory_mib = 500, cpus = 8 }]
        partitions = [{ name = "p", nodes = "ALL" }]
    """
    assert simulate("1,0,1,10,5,8\n", header=f"{HEADER},cpus", cluster=cluster) == 0
    assert "memory is not counted" in capsys.readouterr().err
    assert (
        simulate(
            "1,0,1,10,5,8,\n2,0,1,10,5,1,9\n", header=f"{HEADER},cpus,mem_mib", cluster=cluster
        )
        == 2
    )
    assert "have 8 CPUs, 800 MiB by default, 0 GPUs" in capsys.readouterr().err


def test_parquet_jobs_of_other_kinds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = pd.DataFrame(
        {"job_id": [1, 2], "submit_s": ["0", "x"], "nodes": 1, "timelimit_min": 5, "runtime_s": 9}
    )
    for column, message in (
        (jobs["submit_s"], "submit_s: found 'x', expected"),
        (
            pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "submit_s: found 'timestamp",
        ),
    ):
        jobs.assign(submit_s=column).to_parquet("jobs.parquet")
        assert main(["run", "--jobs", "jobs.parquet", "--nodes", "4", "--out", "r.csv"]) == 2
        assert message in capsys.readouterr().err


def test_different_throttles_in_one_array_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    header = f"{HEADER},array_job_id,array_throttle"
    assert (
        simulate("1,0,1,10,5,1,1\n2,0,1,10,5,1,2\n3,0,1,10,5,3,\n4,0,1,10,5,3,\n", header=header)
        == 0
    )
    shown = capsys.readouterr().err
    assert "note: array 1: its tasks have different throttles, and each keeps to its own" in shown
    assert "array 3" not in shown


def test_priorities_of_a_trace_order_its_jobs_and_0_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """priority/basic gives those without one more than these."""
    rows = ((0, ""), (1, 5), (2, 50), (3, 0))
    lines = (
        f"{row + 1},u,p,{at},{at},{at + 60},60,1,0,1,COMPLETED,{rank}\n"
        for row, (at, rank) in enumerate(rows)
    )
    header = "job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state,priority\n"
    Path("t.csv").write_text(header + "".join(lines))
    starts = []
    for more in ([], ["--trace-priority"]):
        words = ["run", "--trace", "t.csv", "--nodes", "1", "--out", "r.csv", *more]
        assert main(words) == 0, capsys.readouterr().err
        starts.append(pd.read_csv("r.csv").sort_values("start_s")["job_id"].tolist())
    assert starts == [[1, 2, 3, 4], [1, 4, 3, 2]]


def test_options_of_another_source_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,10,5\n", "--trace-priority") == 2
    assert "--trace-priority: expected --trace beside it" in capsys.readouterr().err
    Path("f.csv").mkdir()
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "4", "--out", "f.csv"]) == 2
    assert "f.csv: expected a file to write; this is a folder" in capsys.readouterr().err


# --- dependencies
# ------------------------------------------------------------------------------------------------


def test_dependencies_on_jobs_that_are_not_known_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = "1,0,1,10,5,\n2,5,1,10,5,afterok:1:77\n3,5,1,10,5,afterany:4\n4,9,1,10,5,afterany:78?afterany:1\n"
    header = f"{HEADER},dependency"
    assert simulate(jobs, header=header) == 0
    shown = capsys.readouterr().err
    assert (
        "2 dependencies are on jobs that are not there (job 2 on 77, job 4 on 78): fulfilled at"
        " once" in shown
    )
    assert "1 dependencies are on jobs that are submitted later (job 3 on 4)" in shown
    assert simulate(jobs, "--strict", header=header) == 2
    shown = capsys.readouterr().err
    assert (
        "jobs.csv:3: dependency: found 'afterok:1:77', expected jobs that are submitted before: 77"
        " is not" in shown
    )
    assert "3 dependencies are so" in shown


def test_dependencies_on_arrays_and_on_jobs_of_the_same_second_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = "11,0,1,10,5,,10\n12,0,1,10,5,,10\n13,0,1,10,5,afterany:10,\n14,0,1,10,5,afterany:13,\n"
    assert simulate(jobs, "--strict", header=f"{HEADER},dependency,array_job_id") == 0
    assert "dependencies" not in capsys.readouterr().err


def test_a_dependency_on_a_job_that_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "1,0,9,10,5,\n2,5,1,10,5,afterok:1\n"
    assert simulate(jobs, "--skip-impossible", header=f"{HEADER},dependency") == 0
    assert "not there (job 2 on 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wish",
    ["afterok;1", "aftrok:1", "afterok:1_3", "afterok:1,", "afterok:1+5", "singleton,aftrok:1"],
)
@pytest.mark.parametrize("more", [[], ["--skip-impossible"]])
def test_a_slip_in_a_dependency_costs_no_job(
    wish: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = f'1,0,1,10,5,\n2,5,1,10,5,"{wish}"\n3,5,1,10,5,\n'
    assert simulate(jobs, *more, header=f"{HEADER},dependency") == 2
    shown = capsys.readouterr().err
    assert (
        f"jobs.csv:3: dependency: found '{wish}', expected a dependency that can be read" in shown
    )
    assert not Path("r.csv").exists()


def test_dependencies_that_slurm_has_and_we_do_not_can_be_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = '1,0,1,10,5,\n2,5,1,10,5,singleton\n3,5,1,10,5,"afterok:1,aftercorr:1"\n'
    assert simulate(jobs, header=f"{HEADER},dependency") == 2
    shown = capsys.readouterr().err
    assert (
        "jobs.csv:3: dependency: found 'singleton', expected a job that this cluster could ever run"
        in shown
    )
    assert (
        "2 of 3 jobs are so; --skip-impossible leaves them out, --ignore dependency the column"
        in shown
    )
    assert simulate(jobs, "--skip-impossible", header=f"{HEADER},dependency") == 0
    assert [row["job_id"] for row in _rows()] == ["1"]


def table(texts: list[str]) -> Jobs:
    ids = np.arange(1, len(texts) + 1)
    columns = {"job_id": ids, "submit_s": ids, "dependency": np.array(texts, object)}
    return Jobs("table", columns, ids, lambda _row: None)


def test_a_circle_of_many_and_many_circles_take_linear_time() -> None:
    size = 30_000
    one = table([f"afterany:{1 + number % size}" for number in range(1, size + 1)])
    pairs = table(
        [
            f"afterany:{number - 1 if number % 2 == 0 else number + 1}"
            for number in range(1, size + 1)
        ]
    )
    for jobs, shown in (
        (one, "1 -> 2 -> 3 -> 4 -> 5 -> ... (30000 jobs) -> 1"),
        (pairs, "1 -> 2 -> 1"),
    ):
        wishes = wishes_of(jobs)
        begun = time.process_time()
        found = circles(jobs, wishes)
        assert time.process_time() - begun < 5
        assert len(found) == size
        assert found[0] == shown


@given(st.lists(st.sets(st.integers(1, 9), max_size=3), min_size=1, max_size=8))
def test_without_the_circles_nothing_waits_for_itself(others: list[set[int]]) -> None:
    jobs = table([",".join(f"afterany:{other}" for other in sorted(each)) for each in others])
    wishes = wishes_of(jobs)
    found = circles(jobs, wishes)
    check_no_cycle({row + 1: wish for row, wish in wishes.items() if row not in found}, {})
    assert list(found) == [
        row for row in range(len(others)) if row + 1 in _reached(others, row + 1)
    ]
    for circle in found.values():
        members = [int(name) for name in circle.split(" -> ")]
        assert members[0] == members[-1]
        assert all(after in others[before - 1] for before, after in pairwise(members))


def test_one_way_out_of_a_circle_is_enough() -> None:
    texts = [
        "afterany:2?afterany:3",
        "afterany:1",
        "",
        "afterany:5?afterany:1",
        "afterany:5",
        "afterany:6?afterany:5",
    ]
    jobs = table(texts[:4])
    assert circles(jobs, wishes_of(jobs)) == {}
    jobs = table(
        [
            "afterany:2?afterany:3",
            "afterany:1",
            "afterany:2",
            "afterany:1?afterany:3",
            "afterany:9?afterany:6",
        ]
    )
    assert circles(jobs, wishes_of(jobs)) == dict.fromkeys(range(3), "1 -> 2 -> 1")


def test_a_circle_through_an_array_is_one() -> None:
    """Job 1 waits for the whole array 8, of tasks 8 and 9; task 9 waits for job 1, job 3 for the
    array.
    """
    jobs = Jobs(
        "table",
        {
            "job_id": np.array([1, 3, 8, 9]),
            "submit_s": np.arange(4),
            "array_job_id": np.array([-1, -1, 8, 8]),
            "dependency": np.array(["afterok:8", "afterany:8", "", "afterany:1"], object),
        },
        np.array([1, 3, 8, 9]),
        lambda _row: None,
    )
    wishes = wishes_of(jobs)
    assert circles(jobs, wishes) == {0: "1 -> 9 -> 1", 3: "1 -> 9 -> 1"}
    with pytest.raises(InvalidJob, match="jobs wait for each other: 1 -> array 8 -> 9 -> 1"):
        check_no_cycle({jobs.labels[row]: wish for row, wish in wishes.items()}, {8: [8, 9]})


def _reached(others: list[set[int]], job_id: int) -> set[int]:
    """All that a job waits for, directly or through others."""
    reached: set[int] = set()
    ahead = {job_id}
    while ahead:
        ahead = {
            other for each in ahead if each <= len(others) for other in others[each - 1]
        } - reached
        reached |= ahead
    return reached


# --- wrong names
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "partiton",
            "--ignore: found 'partiton', expected columns of the jobs (did you mean partition?)",
        ),
        ("qos,memory", "--ignore: found 'memory', expected columns of the jobs: "),
        ("nodes", "--ignore: found 'nodes', expected a column that jobs can do without"),
    ],
)
def test_wrong_names_in_ignore(
    names: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate("1,0,1,10,5,x\n", f"--ignore={names}", header=f"{HEADER},partition") == 2
    assert message in capsys.readouterr().err


def test_ignored_columns_by_the_files_names(capsys: pytest.CaptureFixture[str]) -> None:
    header, cluster = f"{HEADER},partition,gpus", LINEAR % ""
    assert simulate("1,0,1,10,5,x,9\n", header=header, cluster=cluster) == 2
    assert "jobs.csv:2: partition: found 'x'" in (shown := capsys.readouterr().err)
    assert "--skip-impossible leaves them out, --ignore partition the column" in shown
    assert (
        simulate("1,0,1,10,5,x,9\n", "--ignore=partition, gpus", header=header, cluster=cluster)
        == 0
    )
    assert "note: not used: partition, gpus (--ignore)\n" in capsys.readouterr().err


def test_a_misspelt_column_is_noted_with_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,10,5,\n", header=f"{HEADER},dependancy") == 0
    assert (
        "unknown columns, not used: dependancy (did you mean dependency?)"
        in capsys.readouterr().err
    )


def test_accounts_that_the_cluster_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = (
        LINEAR
        % ""
        + '[[associations]]\naccount = "research"\n[[associations]]\naccount = "root"\nuser ='
        ' "eve"\n'
    )
    header, jobs = (
        f"{HEADER},account",
        "1,0,1,10,5,research\n2,0,1,10,5,reserch\n3,0,1,10,5,\n4,0,1,10,5,root\n",
    )
    assert simulate(jobs, header=header, cluster=cluster) == 2
    shown = capsys.readouterr().err
    assert "jobs.csv:3: account: found 'reserch'" in shown
    assert "(account 'reserch' does not exist (did you mean research?)); the only such job" in shown
    assert simulate(jobs, "--ignore=account", header=header, cluster=cluster) == 0
    assert simulate(jobs, header=header, cluster=LINEAR % "") == 0


@pytest.mark.parametrize(
    ("more", "how"), [("", "at it"), ("over_time_limit_s = 120\n", "at it, or OverTimeLimit later")]
)
def test_who_runs_longer_than_its_limit_is_told(
    more: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        simulate("1,0,1,10,700\n2,0,1,10,9999\n", "--columns=state", cluster=LINEAR % "" + more)
        == 0
    )
    assert (
        f"2 jobs would run longer than their limit: they are killed {how}\n"
        in capsys.readouterr().err
    )
    assert [row["state"] for row in _rows()] == ["COMPLETED" if more else "TIMEOUT", "TIMEOUT"]


def test_weights_beside_priority_basic(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,1,10,5\n", "--slurm-params=PriorityWeightAge=1000") == 0
    assert (
        "PriorityWeightAge=1000: ignored: priority/basic is first come, first served"
        in capsys.readouterr().err
    )


# --- numbers out of range, and the file's own names of columns
# ---------------------------------------------------


LONG = "9" * 20


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (
            HEADER,
            "1,0,9999999999,10,5",
            "jobs.csv:2: nodes: found '9999999999', expected a whole number from 1 to 2,1",
        ),
        (
            HEADER,
            f"{2**53 + 1},0,1,10,5",
            f"jobs.csv:2: job_id: found 'about {2**53}', expected a whole number from 1 to 9,007",
        ),
        (
            HEADER,
            "1,100000000000,1,10,5",
            "jobs.csv:2: submit_s: found '100000000000', expected a whole number from 0",
        ),
        (f"{HEADER},gpus", "1,0,1,10,5,1e12", "jobs.csv:2: gpus: found '1000000000000'"),
        (f"{HEADER},dependency", f"1,0,1,10,5,afterok:{LONG}", f"not there (job 1 on {LONG})"),
    ],
)
def test_numbers_far_out(
    header: str, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(line + "\n", header=header)
    assert message in capsys.readouterr().err


def _rows() -> list[dict[str, str]]:
    with Path("r.csv").open() as file:
        return list(csv.DictReader(file))


def trace_of(**changed: object) -> None:
    import pandas as pd

    from slurm_sim.traces import make_trace, write_trace

    job = {
        "job_id": "5_1",
        "user": "u",
        "partition": "gpu",
        "submit": 100,
        "start": 110,
        "end": 120,
    }
    job |= {"timelimit_s": 3600, "nodes": 1, "gpus": 0, "cpus": 4, "state": "COMPLETED"}
    write_trace(make_trace(pd.DataFrame([job | changed])), "t.csv")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"partition": "x"},
            "t.csv:2: partition: found 'x', expected a job that this cluster could ever run",
        ),
        ({"timelimit_s": 0}, "t.csv:2: timelimit_s: found '0'"),
        ({"nodes": 0}, "t.csv:2: nodes: found '0'"),
        ({"cpus": 2**40}, "t.csv:2: cpus: found '1099511627776'"),
        ({"end": 90}, "t.csv:2: end - start: found '-20'"),
    ],
)
def test_a_traces_own_names(
    changed: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace_of(**changed)
    Path("c.toml").write_text((LINEAR % "").replace('"p"', '"gpu"'))
    assert main(["run", "--trace", "t.csv", "--cluster", "c.toml", "--out", "r.csv"]) == 2
    assert message in capsys.readouterr().err


def test_a_traces_ids_are_unique(capsys: pytest.CaptureFixture[str]) -> None:
    header = "job_id,user,partition,submit,start,end,state,nodes,cpus,gpus,timelimit_s\n"
    rows = [
        f"{number},a,p,{at},{at + 5},{at + 9},COMPLETED,1,1,0,60\n"
        for number, at in ((1, 0), (2, 0), (1, 20))
    ]
    Path("t.csv").write_text(header + "".join(rows))
    assert main(["run", "--trace", "t.csv", "--nodes", "2", "--out", "r.csv"]) == 2
    expected = (
        "t.csv:4: job_id: found '1 a second time', expected each id once; `mirage trace import`"
        " makes"
    )
    assert expected in capsys.readouterr().err
    assert not Path("r.csv").exists()


def test_files_that_are_none_and_text_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("j.csv").write_bytes(f"{HEADER},user\n1,0,1,10,5,ann\n2,0,1,10,5,\xff\n".encode("latin-1"))
    for jobs, cluster, message in (
        ("j.csv", ("--nodes", "2"), "j.csv:3: expected text in UTF-8"),
        (
            "/dev/zero",
            ("--nodes", "2"),
            "/dev/zero: expected a readable table of jobs (a device, not a file)",
        ),
        (
            "j.csv",
            ("--cluster", "/dev/zero"),
            "/dev/zero: a device, not a file; give a slurm.conf that can be read",
        ),
    ):
        assert main(["run", "--jobs", jobs, *cluster, "--out", "r.csv"]) == 2
        assert message in capsys.readouterr().err
    Path("c.toml").symlink_to("/dev/zero")
    assert main(["run", "--jobs", "j.csv", "--cluster", "c.toml", "--out", "r.csv"]) == 2
    assert (
        "c.toml: a device, not a file; give a cluster that can be read" in capsys.readouterr().err
    )
    assert main(["compare", "/dev/zero", "/dev/zero"]) == 2
    assert "/dev/zero: expected a readable table of results (a device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--nodes", "100001", "expected at most 100,000 nodes, got 100001"),
        ("--nodes", "0", "expected a number from 1, got '0'"),
        ("--slurmctld-started-s", "-" + 19 * "9", "expected a whole number of at most 15 digits"),
    ],
)
def test_numbers_of_the_command_line(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--jobs", "j.csv", "--nodes", "2", option, value, "--out", "r.csv"])
    assert message in capsys.readouterr().err


def test_more_nodes_than_the_core_has_room_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,16385,10,5\n")
    words = ["--jobs", "jobs.csv", "--nodes", "16385"]
    for verb in (["run", "--out", "r.csv"], ["bench"]):
        assert main([*verb, *words]) == 2
        expected = "the cluster has 16385 nodes, and the simulator's core has room for 16384"
        assert expected in capsys.readouterr().err
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,16384,10,5\n")
    assert main(["run", "--out", "r.csv", "--jobs", "jobs.csv", "--nodes", "16384"]) == 0


def test_bench_takes_no_more_threads_than_a_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--jobs", "j.csv", "--nodes", "2", "--threads", "1000000"])
    assert "--threads: expected at most 1,024 threads, got 1000000" in capsys.readouterr().err


def test_a_start_of_slurmctld_long_ago_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    Path("j.csv").write_text("job_id,submit_s,nodes,runtime_s,timelimit_s\n1,0,1,10,60\n")
    words = ["--slurmctld-started-s", "-500000000000", "--out", "r.csv"]
    assert main(["run", "--jobs", "j.csv", "--nodes", "2", *words]) == 2
    assert (
        "--slurmctld-started-s: found '-500000000000', expected at most 100,000,000,000 s"
        in capsys.readouterr().err
    )


# --- files
# -------------------------------------------------------------------------------------------------------


def test_a_quote_that_is_never_closed_takes_no_jobs_along(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [f"{number},{number},1,10,60,u1,a\n" for number in range(1, 40_001)]
    lines[20_000] = lines[20_000].replace("u1", '"u1')
    assert simulate("".join(lines), header=f"{HEADER},user,account") == 2
    assert "jobs.csv:20002: expected a CSV line" in capsys.readouterr().err
    lines[20_001] = lines[20_001].replace("u1", 'u1"')
    assert simulate("".join(lines), header=f"{HEADER},user,account") == 2
    assert "jobs.csv:20002: user: found 'u1,a" in (shown := capsys.readouterr().err)
    assert "a quote is not closed?" in shown


def test_what_is_gzipped_is_told_by_its_bytes_not_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("jobs.csv").write_bytes(gzip.compress(f"{HEADER}\n1,0,1,10,5\n".encode()))
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "4", "--out", "r.csv"]) == 0
    assert "1 jobs: 1 COMPLETED" in capsys.readouterr().err


def test_names_of_columns_are_utf_8(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_bytes(f"{HEADER},".encode() + b"gr\xf6sse\n1,0,1,10,5,3\n")
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "4", "--out", "r.csv"]) == 2
    assert "jobs.csv:1: header: expected names in UTF-8" in capsys.readouterr().err


def test_a_table_is_no_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert main(["run", "--jobs", "pipe", "--nodes", "4", "--out", "r.csv"]) == 2
    assert "pipe: found 'a pipe', expected a file" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("slurm_sim.results.pa_csv.write_csv", full)
    assert simulate("1,0,1,10,5\n") == 1
    assert "No space left on device: 'r.csv'" in capsys.readouterr().err
    assert not Path("r.csv").exists()


def test_when_no_job_can_run_it_is_said_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("1,0,9,10,5\n", "--skip-impossible") == 2
    assert (
        "at least one job that this cluster can run; 1 impossible jobs left out: 1: "
        in capsys.readouterr().err
    )


def test_tasks_in_a_traces_dependencies_are_known_by_number() -> None:
    texts = np.array(
        ["afterany:9_1,afterok:7:5_*", "after:5.r1+30?afterany:9(unfulfilled)", "afterany:8_9", ""],
        object,
    )
    found, names = _by_number(
        texts, np.array(["9_1", "5.r1", "12"], object), np.array([50, 51, 12])
    )
    assert [text.partition(":")[2] for text in found] == [
        "50,afterok:7:5",
        "51+30?afterany:9",
        found[2][9:],
        "",
    ]
    assert names == {50: "9_1", 51: "5.r1", int(found[2][9:]): "8_9"}
    assert int(found[2][9:]) > 51


def test_messages_on_a_traces_dependencies_name_its_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = (("5_1", 10, "afterok:5_2"), ("5_2", 20, ""), ("9", 30, "afterok:5_77:6"))
    rows = [f"{job},a,batch,{at},50,60,COMPLETED,1,1,0,60,{wish}\n" for job, at, wish in jobs]
    Path("t.csv").write_text(TRACE + "".join(rows))
    assert main(["run", "--trace", "t.csv", "--nodes", "2", "--out", "r.csv"]) == 0
    told = capsys.readouterr().err
    assert "not there (job 9 on 5_77, job 9 on 6)" in told
    assert "submitted later (job 5_1 on 5_2)" in told
    assert main(["run", "--trace", "t.csv", "--nodes", "2", "--out", "r.csv", "--strict"]) == 2
    assert (
        "t.csv:2: dependency: found 'afterok:5_2', expected jobs that are"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("jobs", "waits_for"),
    [
        ((("5_1", 1000, ""), ("5_2", 10, ""), ("6", 10, "afterok:5")), "5_1"),
        ((("2_1", 3000, ""), ("1_1", 10, ""), ("3_1", 10, "afterok:2_1")), "2_1"),
        (
            (
                ("100", 10, ""),
                *((f"105_{task}", 50, "") for task in range(1, 6)),
                ("105_6", 9, "afterok:105_5"),
            ),
            "105_5",
        ),
    ],
)
def test_ids_of_tasks_say_which_array_they_are_of(
    jobs: tuple[tuple[str, int, str], ...], waits_for: str
) -> None:
    rows = [
        f"{job},a,batch,{at},50,{50 + run},COMPLETED,1,1,0,6000,{wish}\n"
        for at, (job, run, wish) in enumerate(jobs)
    ]
    Path("t.csv").write_text(TRACE + "".join(rows))
    assert main(["run", "--trace", "t.csv", "--nodes", "20", "--out", "r.csv"]) == 0
    found = {row["job_id"]: row for row in _rows()}
    last, first = found[jobs[-1][0]], found[waits_for]
    assert 0 <= int(last["start_s"]) - int(first["end_s"]) <= 3


def test_who_a_submit_limit_refuses_has_it_as_reason() -> None:
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,1,1,10\n2,0,1,1,10\n")
    cluster = (
        '[[nodes]]\nname = "n1"\n[[partitions]]\nname = "p"\nnodes = "ALL"\n[[qos]]\nname ='
        ' "normal"\n'
    )
    Path("c.toml").write_text(cluster + "max_submit_jobs_per_user = 1\n")
    words = [
        "run",
        "--jobs",
        "jobs.csv",
        "--cluster",
        "c.toml",
        "--out",
        "r.csv",
        "--columns",
        "state,reason",
    ]
    assert main(words) == 0
    assert [(row["state"], row["reason"]) for row in _rows()] == [
        ("COMPLETED", ""),
        ("CANCELLED", "QOSMaxSubmitJobPerUserLimit"),
    ]


def test_a_load_that_moves_times_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,1,10,5\n2,9,1,10,5\n")
    assert main(["bench", "--jobs", "jobs.csv", "--nodes", "4", "--load", "1e-300"]) == 2
    assert "--load: found '1e-300', expected a factor" in capsys.readouterr().err


# --- compare
# -----------------------------------------------------------------------------------------------------


def test_more_nodes_busy_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s,nodes\n1,0,0,100,3\n2,0,0,100,2\n")
    assert main(["compare", "a.csv", "a.csv", "--nodes", "4"]) == 0
    shown = capsys.readouterr().err
    assert (
        "warning: up to 5 nodes were busy at once, more than --nodes 4: the utilisation is too"
        " high; give" in shown
    )
    assert main(["compare", "a.csv", "a.csv", "--nodes", "5"]) == 0
    assert capsys.readouterr().err == ""


def test_compare_with_a_trace_whose_jobs_were_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text(
        "job_id,submit,start,end,state\n1,0,5,9,COMPLETED\n2,0,7,7,CANCELLED\n"
    )
    assert main(["compare", "t.csv", "t.csv"]) == 0
    shown = capsys.readouterr()
    assert "1 jobs started and ended in both: all figures are over these\n" in shown.out
    assert "left out: 1 started in neither (job 2)\n" in shown.out
    assert "note: node-hours and utilisation need the nodes of every job" in shown.err


def test_compare_says_over_which_jobs_the_ratio_of_waits_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,10,20\n2,0,0,9\n3,0,0,9\n")
    Path("b.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,20,30\n2,0,0,9\n3,0,5,9\n")
    assert main(["compare", "a.csv", "b.csv"]) == 0
    shown = capsys.readouterr().out
    assert (
        "ratios of waits: 2.00000 (of the 1 jobs that waited in both; 1 waited in one only)\n"
        in shown
    )


def test_compare_tells_whose_nodes_are_not_known_or_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = "".join(f"{job},0,0,3600\n" for job in range(1, 9))
    Path("a.csv").write_text(f"job_id,submit_s,start_s,end_s\n{times}")
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,2,90,3600\n2,0,3,90,3600\n")
    assert main(["compare", "a.csv", "a.csv", "--jobs", "jobs.csv"]) == 0
    expected = (
        "need the nodes of every job: 6 jobs (job 3, 4, 5, 6, 7, ...) have none in A, B or --jobs"
        " jobs.csv\n"
    )
    assert expected in capsys.readouterr().err
    Path("b.csv").write_text(
        "job_id,submit_s,start_s,end_s,nodes\n1,0,0,3600,2\n2,0,0,3600,4\n3,0,0,3600,1\n"
    )
    assert main(["compare", "a.csv", "b.csv", "--jobs", "jobs.csv"]) == 0
    shown = capsys.readouterr()
    assert (
        "note: 1 jobs (job 2) have other nodes in A than in B: each result counts with its own,"
        " else" in shown.err
    )
    assert "need the nodes" not in shown.err
    assert main(["compare", "a.csv", "b.csv", "--jobs", "jobs.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["a"]["node_hours"], found["b"]["node_hours"]) == (6, 7)
    assert found["nodes"] == {
        "unknown": {"jobs": 0, "first": []},
        "differ": {"jobs": 1, "first": ["2"]},
    }


def test_compares_bad_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,0,100\n2,0,zero,100\n")
    assert main(["compare", "a.csv", "a.csv"]) == 2
    assert (
        "a.csv:3: start_s: found 'zero', expected a whole number, or nothing"
        in capsys.readouterr().err
    )


def test_compares_folder_can_be_made_or_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,0,100\n")
    assert main(["compare", "a.csv", "a.csv", "--out", "a.csv"]) == 2
    assert "--out a.csv: expected a folder to write to (File exists)" in capsys.readouterr().err
    assert main(["compare", "a.csv", "a.csv", "--out", "a.csv/d"]) == 2
    assert (
        "--out a.csv/d: expected a folder to write to (Not a directory)" in capsys.readouterr().err
    )
    Path("d/compare.png").mkdir(parents=True)
    assert main(["compare", "a.csv", "a.csv", "--out", "d"]) == 2
    assert "d/compare.png: expected a file to write; this is a folder" in capsys.readouterr().err
    assert [each.name for each in Path("d").iterdir()] == ["compare.png"]


def test_places_that_cannot_even_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is too long is one for root, too; a folder of somebody else is another."""
    folder = 300 * "x"
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,0,100\n")
    assert main(["compare", "a.csv", "a.csv", "--out", folder]) == 2
    assert (
        f"--out {folder}: expected a folder to write to (File name too long)"
        in capsys.readouterr().err
    )
    Path("jobs.csv").write_text(f"{HEADER}\n1,0,1,10,5\n")
    assert main(["run", "--jobs", "jobs.csv", "--nodes", "4", "--out", f"{folder}/r.csv"]) == 2
    assert (
        f"{folder}/r.csv: expected a file that can be written (File name too long)"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError(errno.ENOSPC, "No space left on device"), 1), (KeyboardInterrupt(), 130)],
)
def test_compare_leaves_both_files_or_nothing(
    error: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr("slurm_sim.cli.picture.Figure.savefig", full)
    Path("a.csv").write_text("job_id,submit_s,start_s,end_s\n1,0,0,100\n")
    Path("there").mkdir()
    Path("there/compare.json").write_text("old")
    for folder in ("there", "new/deep"):
        assert main(["compare", "a.csv", "a.csv", "--out", folder]) == code
        assert code == 130 or f"No space left on device: '{folder}'" in capsys.readouterr().err
    assert sorted(map(str, Path().rglob("*"))) == ["a.csv", "there", "there/compare.json"]
    assert Path("there/compare.json").read_text() == "old"
