"""Logs in other formats."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim.traces import TraceError
from slurm_sim.traces.cleaning import clean
from slurm_sim.traces.fields import memory_mib, time_limit_s, tres_gpus
from slurm_sim.traces.imports import import_csv, import_mirage_log, import_swf
from slurm_sim.traces.reading import TraceImport
from slurm_sim.traces.sacct import import_sacct, task_ranges

SACCT = """\
State|JobName|JobID|User|Submit|Eligible|Start|End|Timelimit|AllocNodes|ReqNodes|AllocTRES|ReqTRES|ExitCode|Partition
COMPLETED|train|a|5|ann|2023-01-10T12:00:00|2023-01-10T12:00:00|2023-01-10T12:10:00|2023-01-10T13:10:00|2-00:00:00|2|2|\
cpu=8,mem=64G,gres/gpu=4,gres/gpu:a100=4|cpu=8|0:0|gpu
CANCELLED by 1000|x|6_3|bob|2023-07-10T12:00:00|Unknown|Unknown|2023-07-10T13:00:00|UNLIMITED|0|1|\
|cpu=8,mem=4000M,gres/gpu:a100=1|0:0|gpu
PENDING|x|7_[2-7:5%1]|bob|2023-07-10T12:00:00|Unknown|Unknown|Unknown|30:00|0|3||cpu=8|0:0|gpu
"""

MIRAGE_LOG = """\
3
       JobID    JobName    UID       Start      Submit         End   Priority TimelimitR ExitCode   NNodes
------------ ---------- ------ ----------- ----------- ----------- ---------- ---------- -------- --------
100\tmy job\t00007\t2022-11-01T15:34:14\t2022-10-05T11:52:48\t2022-11-03T15:34:15\t1234\t2880\t0:0\t2
101\tx\t00008\t2022-12-01T01:46:13\t2022-11-30T08:45:51\t2022-12-01T01:46:13\t1365\t180\t0:0\t1
102\tx\t00009\t900123\t2023-03-12T01:00:00\t2023-03-11T08:45:51\t2023-03-12T04:00:00\t1365\t180\t1:0\t1
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "log.txt"
    path.write_text(text)
    return path


def local(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def rows(done: TraceImport) -> list[dict[str, object]]:
    return [dict(row) for row in done.trace.jobs.to_dict("records")]


def test_sacct(tmp_path: Path) -> None:
    done = import_sacct(file(tmp_path, SACCT), "America/Chicago")
    first, cancelled, task, last = rows(done)
    assert first["submit"] == local("2023-01-10T12:00:00", "America/Chicago")
    assert first["end"] - first["start"] == 3600  # type: ignore[operator]
    expected = {
        "job_id": "5",
        "user": "ann",
        "timelimit_s": 172800,
        "nodes": 2,
        "gpus": 4,
        "mem_mib": 65536,
    }
    assert {name: first[name] for name in expected} == expected
    assert cancelled["submit"] == local("2023-07-10T12:00:00", "America/Chicago")
    expected = {
        "job_id": "6_3",
        "state": "CANCELLED",
        "nodes": 1,
        "gpus": 1,
        "array_job_id": 6,
        "array_task_id": 3,
    }
    assert {name: cancelled[name] for name in expected} == expected
    assert np.isnan(done.trace.column("timelimit_s")[1])
    assert np.isnan(done.trace.column("start")[1])
    assert [task["job_id"], last["job_id"]] == ["7_2", "7_7"]
    assert (task["nodes"], task["array_throttle"], task["timelimit_s"]) == (3, 1, 1800)
    assert done.rows == 3


def test_sacct_with_epoch_times_and_any_delimiter(tmp_path: Path) -> None:
    text = (
        "JobIDRaw,Submit,Start,End,State,TimelimitRaw,NNodes\n12,1000,1010,Unknown,RUNNING,90,4\n"
    )
    (row,) = rows(import_sacct(file(tmp_path, text)))
    assert (row["submit"], row["start"], row["timelimit_s"], row["nodes"]) == (1000, 1010, 5400, 4)


def test_times_without_a_zone_are_noted(tmp_path: Path) -> None:
    done = import_sacct(file(tmp_path, SACCT))
    assert any("--timezone" in note for note in done.notes)
    assert done.trace.jobs["submit"][0] == local("2023-01-10T12:00:00", "UTC")


def test_times_with_and_without_an_offset_are_each_read_as_they_are(tmp_path: Path) -> None:
    stamps = ("2023-01-10T12:00:00", "2023-01-10T12:10:00Z", "2023-01-10T12:00:00-05:00")
    text = "JobID|Submit|Start|End|State|NNodes\n" + "".join(
        f"{number}|{at}|{at}|{at}|COMPLETED|1\n" for number, at in enumerate(stamps, 1)
    )
    submit = dict(
        zip(
            *import_sacct(file(tmp_path, text), "America/Chicago")
            .trace.jobs[["job_id", "submit"]]
            .T.to_numpy(),
            strict=True,
        )
    )
    noon = local("2023-01-10T12:00:00", "UTC")
    assert submit == {"1": noon + 6 * 3600, "2": noon + 600, "3": noon + 5 * 3600}


def test_hours_that_a_clock_showed_twice_or_never(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|End|State|NNodes\n"
        "1|2022-11-06T01:30:00|2022-11-06T03:00:00|2022-11-06T04:00:00|COMPLETED|1\n"
        "2|2023-03-12T02:30:00|2023-03-12T04:00:00|2023-03-12T05:00:00|COMPLETED|1\n"
    )
    done = import_sacct(file(tmp_path, text), "America/Chicago")
    assert done.trace.wait_s.tolist() == [5400, 3600]
    assert sum("twice" in note for note in done.notes) == 1
    assert sum("never" in note for note in done.notes) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "2023-01-10T13:10:00",
            "yesterday",
            r"End: expected a time like .* \(line 2: 'yesterday'\)",
        ),
        ("2-00:00:00", "two days", r"Timelimit: expected a time limit .* \(line 2: 'two days'\)"),
        ("cpu=8,mem=64G", "cpu8", r"AllocTRES: expected a list .* \(line 2: 'cpu8,gres"),
        ("|6_3|", "|six|", r"JobID: expected a job id .* \(line 3: 'six'\)"),
    ],
)
def test_one_bad_record_is_left_out_and_a_file_of_them_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = SACCT.replace("train|a|", "train|")
    done = import_sacct(file(tmp_path, text.replace(old, new)), "UTC")
    assert done.rows == 2
    [note] = [note for note in done.notes if "left out" in note]
    assert re.fullmatch(f"records left out: {message}.*", note)
    lines = text.splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if old in line)
    field, found = message.partition(":")[0], new.strip("|")
    with pytest.raises(
        TraceError, match=rf":2: {field}: found '{found}.*1 of 1 records can't be read"
    ):
        import_sacct(file(tmp_path, lines[0] + lines[at].replace(old, new)), "UTC")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SACCT.replace("|Submit|", "|Submitted|"), r":1: header: .*expected a column Submit"),
        (
            "JobID|Submit|Start|End|State\n1|1|2|3|COMPLETED\n",
            "expected a column with the job's nodes: one of ",
        ),
        ("1|9|9|9|COMPLETED|1\n", r":1: header: found '1\|9.* \(without -n\)"),
        (
            (
                "       JobID    JobName      State \n------------ ---------- ---------- \n5       "
                "      name  COMPLETED\n"
            ),
            "table of fixed width, which cuts names short: use `sacct -P`",
        ),
        (
            "JobID Submit Start End State NNodes\n1 1 2 3 COMPLETED 1\n",
            "a delimiter that times and numbers do not",
        ),
    ],
)
def test_a_header_that_can_not_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        import_sacct(file(tmp_path, text), "UTC")


def test_a_wrong_zone_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="America/Chicago"):
        import_sacct(file(tmp_path, SACCT), "Chicago/Loop")
    with pytest.raises(TraceError, match="header"):
        import_sacct(file(tmp_path, ""))
    with pytest.raises(TraceError, match="at least one job"):
        import_sacct(file(tmp_path, SACCT.splitlines()[0]))


def test_the_mirage_log(tmp_path: Path) -> None:
    done = import_mirage_log(file(tmp_path, MIRAGE_LOG), gpus_per_node=3)
    first, second, third = rows(done)
    assert (
        first["start"] == local("2022-11-01T15:34:14", "America/Chicago") == 1667334854
    )  # as the published trace has it
    expected = {
        "user": "u00007",
        "nodes": 2,
        "gpus": 6,
        "timelimit_s": 172800,
        "state": "TIMEOUT",
        "priority": 1234,
    }
    assert {name: first[name] for name in expected} == expected
    assert second["state"] == "CANCELLED"
    assert third["state"] == "FAILED"
    assert third["end"] - third["start"] == 2 * 3600  # type: ignore[operator]  # 01:00 to 04:00 across the change of clocks
    assert sum("stray" in note for note in done.notes) == 1


def test_swf(tmp_path: Path) -> None:
    text = (
        "; UnixStartTime: 1000\n"
        "1 10 5 60 4 -1 -1 8 120 -1 1 3 1 -1 2 -1 -1 -1\n"
        "2 20 -1 7 -1 -1 -1 3 120 -1 5 3 1 -1 2 -1 1 30\n"
    )
    done = import_swf(file(tmp_path, text), cpus_per_node=2)
    first, second = rows(done)
    assert (first["submit"], first["start"], first["end"], first["nodes"], first["cpus"]) == (
        1010,
        1015,
        1075,
        2,
        4,
    )
    assert (second["runtime_s"], second["nodes"], second["state"], second["dependency"]) == (
        7,
        2,
        "CANCELLED",
        "afterany:1",
    )
    assert np.isnan(done.trace.column("start")[1])
    assert done.notes["think times after the job before, left out: there is only afterany"] == 1
    with pytest.raises(
        TraceError, match="UnixStartTime: found 'soon', expected seconds since 1970"
    ):
        import_swf(file(tmp_path, text.replace("1000", "soon")))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2 5 ", "2 x ", "submit: expected seconds from 0 on (line 3: 'x')"),
        ("2 5 ", "2 -5 ", "submit: expected seconds from 0 on (line 3: '-5')"),
        ("2 5 1 60", "2 5 1 x", "run: expected a number, -1 for unknown (line 3: 'x')"),
        ("2 5 ", "2 5 9 ", "line: expected 18 numbers (SWF) (line 3: '19 fields')"),
        ("2 5 ", "2 9e11 ", "submit: expected Unix seconds before the year 2200 (line 3: "),
        ("-1 -1\n3", "-1\n3", "line: expected 18 numbers (SWF) (line 3: '17 fields')"),
        ("-1 77\n", "-1 7", "line: expected a line end; the file is cut off"),
        ("-1 77\n", "-1 -1", ""),
        ("-1 77\n", "", "line: expected 18 numbers (SWF) (line 5: '16 fields')"),
    ],
)
def test_one_bad_or_cut_line_of_an_swf_file_is_left_out(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    jobs = (f"{job} 5 1 60 4 -1 -1 4 600 -1 1 1 1 1 1 1 -1 -1\n" for job in (1, 2, 3))
    text = (
        "; UnixStartTime: 1000\n" + "".join(jobs) + "4 5 1 60 4 -1 -1 4 600 -1 1 1 1 1 1 1 -1 77\n"
    )
    assert text.count(old) == 1
    done = import_swf(file(tmp_path, text.replace(old, new)))
    assert (done.rows, done.left_out) == ((3, 1) if said else (4, 0))
    assert any(f"records left out: {said}" in note for note in done.notes) is bool(said)


def test_one_bad_line_of_a_csv_file_is_left_out(tmp_path: Path) -> None:
    text = "submit,nodes,user\n1,2,a\n1,2\n1,x,a\n1,-3,a\n1,2,a\n1,2,a\n"
    done = import_csv(file(tmp_path, text))
    assert (done.rows, done.left_out) == (3, 3)
    with pytest.raises(TraceError, match=r":2: line: found '2 fields'.*3 of 4 records"):
        import_csv(file(tmp_path, text.replace("1,2,a\n", "", 2)))


def swf(folder: Path, *lines: str, header: str = "; UnixStartTime: 1000\n") -> TraceImport:
    return import_swf(file(folder, header + "".join(f"{line}\n" for line in lines)))


def figures(done: TraceImport) -> list[tuple[object, ...]]:
    jobs = done.trace.jobs[["job_id", "submit", "start", "end", "state"]].astype(
        {"start": "Int64", "end": "Int64"}
    )
    return list(jobs.fillna(-1).itertuples(index=False, name=None))


def test_a_job_of_an_swf_that_was_swapped_out_is_one_job(tmp_path: Path) -> None:
    """The line that sums it up comes first; the others have no submit time."""
    rest = "4 -1 -1 4 120 -1 {} 3 1 -1 2 -1 -1 -1"
    done = swf(
        tmp_path,
        "1 10 5 100 " + rest.format(1),
        "1 10 5 60 " + rest.format(2),
        "1 -1 50 40 " + rest.format(3),
        "2 20 5 30 " + rest.format(2),
        "2 -1 50 10.5 " + rest.format(2),
        "2 -1 5 20 " + rest.format(4),
        "3 30 5 7 " + rest.format(0),
    )
    assert figures(done) == [
        ("1", 1010, 1015, 1115, "COMPLETED"),
        ("2", 1020, 1025, 1085, "FAILED"),
        ("3", 1030, 1035, 1042, "FAILED"),
    ]
    assert done.rows == 3
    assert (
        done.notes[
            "lines of single executions of jobs that were swapped out; one line a job is kept"
        ]
        == 5
    )


def test_what_an_swf_does_not_know(tmp_path: Path) -> None:
    done = swf(
        tmp_path,
        "1 10 90 -1 -1 -1 -1 4 120 -1 5 3 1 -1 2 -1 -1 -1",  # cancelled in the queue, after 90 s
        "2 20 30 0 0 -1 -1 4 -1 -1 5 -1 1 -1 -1 -1 -1 -1",
        "3 30 -1 -1 -1 -1 -1 4 120 -1 5 3 1 -1 2 -1 -1 -1",
        "4 40 5 50 4 -1 -1 -1 -1 -1 -1 3 1 -1 2 -1 -1 -1",
        "5 50 5 50 4 -1 -1 -1 -1 -1 9 3 1 -1 2 -1 -1 -1",
        "6 60 5 50 -1 -1 -1 -1 60 -1 1 3 1 -1 2 -1 -1 -1",
        "7 70 5 50 8 -1 -1 4 60 -1 5 3 1 -1 2 -1 -1 -1",  # cancelled while it ran
    )
    assert figures(done) == [
        ("1", 1010, -1, 1100, "CANCELLED"),
        ("2", 1020, -1, 1050, "CANCELLED"),
        ("3", 1030, -1, -1, "CANCELLED"),
        ("4", 1040, 1045, 1095, ""),
        ("5", 1050, 1055, 1105, ""),
        ("6", 1060, 1065, 1115, "COMPLETED"),
        ("7", 1070, 1075, 1125, "CANCELLED"),
    ]
    assert done.trace.jobs["nodes"].tolist() == [4, 4, 4, 4, 4, 0, 8]
    assert np.isnan(done.trace.column("timelimit_s")[[1, 3, 4]]).all()
    assert done.trace.text("user").tolist()[:2] == ["u3", ""]
    assert done.notes["jobs whose status is unknown, or none of the format's"] == 2
    assert done.notes["jobs whose processors are unknown"] == 1
    cleaned = clean(done.trace)[0]
    assert cleaned.column("cancel_after_s")[:2].tolist() == [90, 30]


def test_an_swf_header_says_what_times_and_processors_are(tmp_path: Path) -> None:
    line = "1 10 5 50 4 -1 -1 -1 -1 -1 1 3 1 -1 2 -1 -1 -1"
    header = ";\tUnixStartTime: 5000\n; MaxNodes: 10 (of two kinds)\n;MaxProcs: 80\n; Note: a: b\n"
    done = swf(tmp_path, line, header=header)
    assert done.trace.jobs["submit"].tolist() == [5010]
    assert done.notes == {
        "a processor taken for a node: the header has 8 a node (--cpus-per-node)": 1
    }
    assert (
        "times from 1970 on: the header has no UnixStartTime"
        in swf(tmp_path, line, header="").notes
    )


def test_any_csv(tmp_path: Path) -> None:
    text = 'who,submitted,waited,ran,walltime,n\n"a, b",2020-01-01T00:00:00,60,120,30,4\n'
    mapping = {
        "user": "who",
        "submit": "submitted",
        "wait_s": "waited",
        "runtime_s": "ran",
        "nodes": "n",
    }
    done = import_csv(file(tmp_path, text), mapping | {"timelimit_s": "walltime:min"}, "UTC")
    (row,) = rows(done)
    assert row["user"] == "a, b"
    assert row["start"] - row["submit"] == 60  # type: ignore[operator]
    assert row["end"] - row["start"] == 120  # type: ignore[operator]
    assert (row["timelimit_s"], row["nodes"]) == (1800, 4)
    with pytest.raises(TraceError, match="--column: found 'nix'"):
        import_csv(file(tmp_path, text), mapping | {"gpus": "nix"})
    with pytest.raises(TraceError, match="submit=NAME"):
        import_csv(file(tmp_path, text), {"nodes": "n"})


def test_values_of_slurm() -> None:
    limits = {
        "2-00:00:00": 172800,
        "2-01": 176400,
        "1:30:00": 5400,
        "30:00": 1800,
        "90": 5400,
        "00:00:10": 10,
    }
    assert {text: time_limit_s(text) for text in limits} == limits
    assert np.isnan(time_limit_s("UNLIMITED"))
    assert [memory_mib(text) for text in ("64G", "4000M", "1Tn", "512K", "2.5G")] == [
        65536,
        4000,
        1048576,
        1,
        2560,
    ]
    assert tres_gpus("cpu=1,gres/gpu:a100=2,gres/gpu:v100=1") == 3
    assert tres_gpus("billing=9,cpu=1,gres/gpu=4,gres/gpu:a100=4") == 4
    ranges = task_ranges("1-3,7,10-20:5%4")
    assert [task for each in ranges for task in each] == [1, 2, 3, 7, 10, 15, 20]
    for text in ("1-999999999", "2-1", "1-5:0"):
        with pytest.raises(ValueError, match="an array's tasks"):
            task_ranges(text)


def test_a_file_has_room_for_so_many_tasks_of_pending_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_sim.traces.sacct.MAX_TASKS_OF_FILE", 5)
    header = "JobID|Submit|Start|End|State|Timelimit|NNodes"
    rest = "|2023-02-01T00:00:00|Unknown|Unknown|PENDING|1:00:00|1"
    ids = ("1_[1-3]", "2_[0-1000000]", "3", "4_[7,8]", "5_[1]")
    done = import_sacct(file(tmp_path, header + "".join(f"\n{job}{rest}" for job in ids) + "\n"))
    assert done.trace.text("job_id").tolist() == ["1_1", "1_2", "1_3", "3", "4_7", "4_8"]
    assert done.left_out == 2
    [note] = [note for note in done.notes if "left out" in note]
    assert "JobID: expected at most 5 tasks of pending arrays a file (line 3: '2_[0-1" in note


@pytest.mark.parametrize(
    ("columns", "last", "is_kept"),
    [
        ("NNodes|Priority", "12|345", False),
        ("NNodes|ExitCode", "12|0:1", False),
        ("Priority|NNodes", "345|12", False),
        ("NNodes|Eligible", "12|2023-02-01T00:00:00", True),
        ("NNodes|Eligible", "12|2023-02-01", False),
        ("NNodes|Eligible", "12|Unknown", True),
        ("NNodes|JobName", "12|tra", True),
        ("NNodes|", "12|", True),
    ],
)
def test_a_last_value_without_a_line_end_may_be_cut_off(
    tmp_path: Path, columns: str, last: str, is_kept: bool
) -> None:
    """`sacct` ends every line; a name that no import reads, and a time, need no end."""
    text = f"JobID|Submit|Start|End|State|{columns}\n" + "".join(
        f"{job}|0|1|2|COMPLETED|{last}\n" for job in (1, 2, 3)
    )
    assert import_sacct(file(tmp_path, text)).rows == 3
    done = import_sacct(file(tmp_path, text[:-1]))
    assert done.rows == 2 + is_kept
    assert any("cut off within its last value (line 4)" in note for note in done.notes) is (
        not is_kept
    )


def test_an_array_that_counts_down_is_left_out_with_its_line(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|State|Timelimit|NNodes"
    line = "5_[2-1]|2023-02-01T00:00:00|Unknown|Unknown|PENDING|1:00:00|1"
    log = file(tmp_path, f"{header}\n{line}\n")
    with pytest.raises(
        TraceError, match=rf"{log}:2: JobID: found '5_\[2-1\]', expected an array's tasks"
    ):
        import_sacct(log)
    done = import_sacct(file(tmp_path, f"{header}\n{line}\n{line.replace('2-1', '1-2')}\n"))
    assert done.trace.text("job_id").tolist() == ["5_1", "5_2"]


def test_a_range_that_sacct_cut_short_is_told(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|State|Timelimit|NNodes"
    line = "5_[1-2,1...]|2023-02-01T00:00:00|Unknown|Unknown|PENDING|1:00:00|1"
    done = import_sacct(file(tmp_path, f"{header}\n{line}\n"))
    assert done.trace.text("job_id").tolist() == ["5_1", "5_2"]
    assert [count for note, count in done.notes.items() if "cut short" in note] == [1]
    with pytest.raises(
        TraceError, match=r"JobID: found '5_\[1-2,3.4\]', expected tasks of an array"
    ):
        import_sacct(file(tmp_path, f"{header}\n{line.replace('1...', '3.4')}\n"))


def test_a_range_cut_in_the_middle_is_told_and_a_long_one_has_its_line(tmp_path: Path) -> None:
    text = "JobID|Submit|Start|End|State|NNodes\n4|0|1|2|COMPLETED|1\n5_[1-3|0|Unknown|Unknown|PENDING|1\n"
    done = import_sacct(file(tmp_path, text))
    assert done.trace.text("job_id").tolist() == ["4", "5_1", "5_2", "5_3"]
    assert [count for note, count in done.notes.items() if "cut short" in note] == [1]
    whole = import_sacct(file(tmp_path, text.replace("1-3", "1-3%1]")))
    assert not any("cut short" in note for note in whole.notes)
    long = import_sacct(file(tmp_path, text.replace("1-3", "0-99999999]")))
    assert long.trace.text("job_id").tolist() == ["4"]
    assert [
        note
        for note in long.notes
        if "JobID: expected an array's tasks" in note and "line 3: '5_[0-9" in note
    ]


def test_strange_states_and_limits_are_told(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|State|NNodes|Timelimit\n"
    states = ("FOO", "FOO", "CD", "SPECIAL_EXIT", "A", "B", "C", "D", "G", "H")
    lines = (f"{number}|0|1|2|{state}|1|INVALID\n" for number, state in enumerate(states, 1))
    done = import_sacct(file(tmp_path, header + "".join(lines)))
    assert done.notes["Timelimit INVALID, taken as unknown"] == 10
    assert done.notes["state FOO, none of Slurm's, kept"] == 2
    assert done.notes["more states that are none of Slurm's, kept"] == 2
    assert not any("SPECIAL" in note or "COMPLETED" in note for note in done.notes)
    assert done.trace.text("state")[0] == "FOO"


@pytest.mark.parametrize("stamp", ["-5", "253402300799", "0001-01-01T00:00:00"])
def test_times_that_can_not_be_are_shown_as_the_file_has_them(tmp_path: Path, stamp: str) -> None:
    text = f"JobID|Submit|Start|End|State|NNodes\n1|{stamp}|1|2|COMPLETED|1\n"
    with pytest.raises(TraceError, match=f":2: Submit: found '{stamp}', expected a time"):
        import_sacct(file(tmp_path, text))


def test_the_memory_of_an_swf_file_is_that_of_all_processors(tmp_path: Path) -> None:
    jobs = (
        "1 10 5 60 4 -1 -1 8 120 2048 1 3 1 -1 2 -1 -1 -1\n",
        "2 10 5 60 4 -1 -1 8 120 -1 1 3 1 -1 2 -1 -1 -1\n",
    )
    memory = import_swf(file(tmp_path, "".join(jobs)), cpus_per_node=2).trace.column("mem_mib")
    assert memory[0] == 8
    assert np.isnan(memory[1])
    assert "mem_mib" not in import_swf(file(tmp_path, jobs[1])).trace.jobs.columns


def test_columns_that_are_left_out_are_told_once(tmp_path: Path) -> None:
    done = import_csv(
        file(tmp_path, "submit,n,colour,size\n1,4,red,9\n2,4,blue,9\n"), {"nodes": "n"}
    )
    assert done.notes == {"columns left out, since no --column names them: colour, size": 2}


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_limits_are_read_as_slurm_prints_them(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    text = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert time_limit_s(text) == days * 86400 + hours * 3600 + minutes * 60 + seconds
    assert time_limit_s(text.partition("-")[2]) == hours * 3600 + minutes * 60 + seconds


def test_what_a_job_cancelled_in_the_queue_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "sacct.txt"
    file.write_text(
        "JobID|Submit|Start|End|Timelimit|AllocNodes|ReqNodes|AllocCPUS|AllocTRES|ReqTRES|State\n"
        "7|1700000000|None|1700000100|01:00:00|0|2|0||cpu=256,node=2|CANCELLED by 1000\n"
        "8|1700000000|None|1700000100|01:00:00|0|2|0|||CANCELLED by 1000\n"
    )
    cpus = import_sacct(file).trace.column("cpus")
    assert cpus[0] == 256
    assert np.isnan(cpus[1])


def test_memory_of_old_releases_is_a_node_or_a_cpu(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|State|NNodes|NCPUS|ReqMem|ReqTRES\n"
    jobs = (
        ("4000Mc", "8", ""),
        ("4Gn", "8", ""),
        ("4G", "8", ""),
        ("4000Mc", "0", ""),
        ("4Gn", "8", "cpu=8,mem=1G"),
    )
    lines = (
        f"{number}|0|1|2|COMPLETED|2|{cpus}|{mem}|{tres}\n"
        for number, (mem, cpus, tres) in enumerate(jobs, 1)
    )
    memory = import_sacct(file(tmp_path, header + "".join(lines))).trace.column("mem_mib")
    assert memory.tolist()[:3] == [32000, 8192, 4096]
    assert np.isnan(memory[3])
    assert memory[4] == 1024


def test_lines_that_are_not_utf_8_are_counted(tmp_path: Path) -> None:
    header = b"JobID|User|Submit|Start|End|State|Timelimit|NNodes\n"
    line = b"5|j\xf6rg|2023-02-01T00:00:00Z|2023-02-01T00:00:01Z|2023-02-01T00:01:00Z|COMPLETED|1:00:00|1\n"
    (tmp_path / "log").write_bytes(header + line)
    [count] = [
        count for what, count in import_sacct(tmp_path / "log").notes.items() if "not UTF-8" in what
    ]
    assert count == 1


def test_a_table_of_slurmdbd_as_csv(tmp_path):
    """States by number, INFINITE and NO_VAL as they are stored, and 0 for a time to come."""
    head = (
        "id_job,timelimit,time_submit,time_eligible,time_start,time_end,state,nodes_alloc,cpus_req"
        ",exit_code\n"
    )
    rows = [
        "100,1440,1609459200,1609459200,1609459260,1609462860,3,1,40",
        "101,4294967295,1609459200,1609459200,1609459260,1609462860,5,2,4294967294",
        "104,10,1609459200,1609459200,1609459260,1609459872,6,1,40",
        "105,60,1609459200,1609459200,1609459260,0,1,1,40",
        "106,60,1609459200,0,0,0,0,1,40",
        "107,60,1609459200,1609459200,0,1609459900,4,1,40",
        "108,60,1609459200,1609459200,1609459260,1609462860,77,1,40",
    ]
    path = tmp_path / "job_table.csv"
    codes = ["0", "256", "15", "0", "0", "0", "0"]
    lines = [f"{row},{code}\n" for row, code in zip(rows, codes, strict=True)]
    path.write_text(head + "".join(lines))
    names = {"job_id": "id_job", "cpus": "cpus_req", "nodes": "nodes_alloc"}
    names["timelimit_s"] = "timelimit:min"
    names |= {name: f"time_{name}" for name in ("submit", "eligible", "start", "end")}
    done = import_csv(path, names)
    jobs = done.trace.jobs.set_index("job_id")
    assert jobs["state"].tolist() == [
        "COMPLETED",
        "FAILED",
        "TIMEOUT",
        "RUNNING",
        "PENDING",
        "CANCELLED",
    ]
    assert jobs["timelimit_s"].fillna(-1).tolist() == [86_400, -1, 600, 3600, 3600, 3600]
    assert np.isnan(jobs["cpus"].to_numpy(float, na_value=np.nan)[1])
    assert jobs[["start", "end"]].isna().sum().tolist() == [2, 2]
    assert jobs["exit_code"].tolist()[:3] == ["0:0", "1:0", "0:15"]
    assert done.left_out == 1
    assert any("a state like COMPLETED, or its number" in note for note in done.notes)
    assert done.notes["end 0, taken as not yet"] == 2
    assert done.notes["states by number, read as slurmdbd's (3: COMPLETED)"] == 7
    cleaned, _ = clean(done.trace)
    assert "105" in cleaned.jobs["job_id"].tolist()  # it runs


def test_times_that_begin_at_0_stay(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("submit,start,end,nodes,state\n0,0,60,1,Completed\n0,60,120,1,Odd\n")
    done = import_csv(path)
    assert done.trace.jobs["start"].tolist() == [0, 60]
    assert done.trace.jobs["state"].tolist() == ["COMPLETED", "ODD"]
    assert done.notes["state ODD, none of Slurm's, kept"] == 1
