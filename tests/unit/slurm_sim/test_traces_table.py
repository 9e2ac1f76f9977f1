"""The table of jobs: reading, checking, writing."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from slurm_sim.traces import Trace, TraceError, make_trace, read_trace, write_trace
from slurm_sim.traces.table import numbered

HEADER = "job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"
LINE = "{id},ann,gpu,100,200,300,3600,2,8,,COMPLETED"


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def small() -> Trace:
    return make_trace(
        pd.DataFrame(
            {
                "job_id": ["7", "5_3", "9"],
                "user": ["ann", "bob", ""],
                "partition": "gpu",
                "submit": [50, 40, 60],
                "start": [55.0, np.nan, 60],
                "end": [70.0, np.nan, 60],
                "timelimit_s": [3600.0, np.nan, 60],
                "nodes": [2, 1, 1],
                "gpus": [8, 4, 4],
                "cpus": [np.nan, np.nan, np.nan],
                "state": ["COMPLETED", "PENDING", "CANCELLED"],
                "dependency": ["", "afterany:7", ""],
                "runtime_s": [np.nan, 30, np.nan],
            }
        )
    )


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_what_is_written_is_read_back_and_the_same_jobs_give_the_same_bytes(
    tmp_path: Path, name: str
) -> None:
    trace = small()
    write_trace(trace, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    again = read_trace(tmp_path / name)
    pd.testing.assert_frame_equal(again.jobs, trace.jobs)
    write_trace(again, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_unknown_times_are_missing_and_jobs_are_in_order_of_submission() -> None:
    trace = small()
    assert trace.jobs["job_id"].tolist() == ["5_3", "7", "9"]
    np.testing.assert_array_equal(trace.wait_s, [np.nan, 5, 0])
    np.testing.assert_array_equal(trace.run_s, [30, 15, 0])
    np.testing.assert_array_equal(trace.ran, [True, True, False])


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        ("1,ann,gpu,100,200,300,-5,2,8,,COMPLETED", "timelimit_s", "-5"),
        ("1,ann,gpu,soon,200,300,3600,2,8,,COMPLETED", "submit", "soon"),
        ("1,ann,gpu,,200,300,3600,2,8,,COMPLETED", "submit", "nothing"),
        ("1,ann,gpu,100,200,300,3600,2.5,8,,COMPLETED", "nodes", "2.5"),
        ("1 2,ann,gpu,100,200,300,3600,2,8,,COMPLETED", "job_id", "1 2"),
        ("1,ann,gpu,100,200,300,3600,2,8,COMPLETED", "line", "10 fields"),
        ("1,ann,gpu,100,200,300,3600,2,8,,,COMPLETED", "line", "12 fields"),
        (
            "1,ann,gpu,100,200,300,3600,99999999999999999999,8,,COMPLETED",
            "nodes",
            "99999999999999999999",
        ),
        ("1,ann,gpu,1675209600000,200,300,3600,2,8,,COMPLETED", "submit", "1675209600000"),
        ("1,ann,gpu,100,200,1675209600000,3600,2,8,,COMPLETED", "end", "1675209600000"),
    ],
)
def test_a_bad_line_gives_file_line_field_found_and_expected(
    tmp_path: Path, line: str, field: str, found: str
) -> None:
    good = [LINE.format(id=number) for number in range(10, 60)]
    path = written(tmp_path, *good, line, *good)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    error = caught.value
    assert (error.line, error.field, error.found) == (52, field, found)
    assert str(error).startswith(f"{path}:52: {field}: found '{found}', expected ")


def test_one_bad_line_in_a_long_file_is_found(tmp_path: Path) -> None:
    lines = [LINE.format(id=number) for number in range(200_000)]
    lines[150_000] = lines[150_000].replace("3600", "1h")
    with pytest.raises(
        TraceError, match=r"t\.csv:150002: timelimit_s: found '1h', expected a whole number"
    ):
        read_trace(written(tmp_path, *lines))


def test_a_wrong_header_says_which_columns(tmp_path: Path) -> None:
    path = written(tmp_path, header=HEADER.replace("nodes", "nnodes"))
    with pytest.raises(TraceError, match=r":1: header: found 'without nodes; unknown nnodes'"):
        read_trace(path)


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="readable"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(TraceError, match=r"ending in \.csv"):
        read_trace(tmp_path / "t.xlsx")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(TraceError, match="without"):
        read_trace(tmp_path / "empty.csv")
    (tmp_path / "no.parquet").write_bytes(b"PAR1 but no")
    with pytest.raises(TraceError, match="whole"):
        read_trace(tmp_path / "no.parquet")
    text = "\n".join([HEADER, *[LINE.format(id=number) for number in range(5000)]])
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(text.encode())[:-200])
    with pytest.raises(TraceError):
        read_trace(tmp_path / "cut.csv.gz")


def test_a_parquets_columns_are_numbers_or_text(tmp_path: Path) -> None:
    path, jobs = tmp_path / "t.parquet", small().jobs
    jobs.assign(timelimit_s=pd.to_timedelta([1, 2, 3], unit="s")).to_parquet(path)
    with pytest.raises(
        TraceError, match=r"timelimit_s: found 'duration.*', expected a column of numbers or text"
    ):
        read_trace(path)
    jobs.assign(nodes=["1", "two", "3"]).to_parquet(path)
    with pytest.raises(
        TraceError, match=r"t.parquet:3: nodes: found 'two', expected a whole number"
    ):
        read_trace(path)
    with pytest.raises(TraceError, match="No such file or directory"):
        read_trace(tmp_path / "absent.parquet")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_text("old")
    broken = Trace(small().jobs.assign(user=[object(), object(), object()]))
    with pytest.raises(Exception, match="object"):
        write_trace(broken, path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(TraceError, match="folder"):
        write_trace(small(), tmp_path / "absent" / "t.csv")
    (tmp_path / "there.csv").mkdir()
    with pytest.raises(TraceError, match="a file to write; this is a folder"):
        write_trace(small(), tmp_path / "there.csv")


def test_numbers_for_ids_that_are_no_numbers_are_new_ones() -> None:
    assert numbered(small()).tolist() == [10, 7, 9]
