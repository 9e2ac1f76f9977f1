"""The records of `sacct -P`: free text holds delimiters and line ends. Read for sure, or left out
and counted.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_sim.traces import TraceError
from slurm_sim.traces.cleaning import clean
from slurm_sim.traces.reading import TraceImport
from slurm_sim.traces.sacct import import_sacct
from slurm_sim.traces.sacct_layout import parse_header

END = "2024-03-09T10:00:00|2024-03-09T10:00:05|2024-03-09T12:00:05|02:00:00|2|64|COMPLETED"
HEADER = "JobID|JobName|User|Partition|Submit|Start|End|Timelimit|NNodes|NCPUS|State"


def read(folder: Path, *lines: str) -> TraceImport:
    path = folder / "sacct.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return import_sacct(path, "UTC")


def users(done: TraceImport) -> dict[str, tuple[str, str]]:
    return {row.job_id: (row.user, row.partition) for row in done.trace.jobs.itertuples()}


def left_out(done: TraceImport) -> int:
    assert done.left_out == sum(count for note, count in done.notes.items() if "left out:" in note)
    return done.left_out


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            (HEADER, "11|sweep lr0.5", f"|ann|gpu|{END}", f"12|b|bob|gpu|{END}"),
            {"11": "ann", "12": "bob"},
        ),
        (
            (HEADER, "11|one", "two", "", f"three|x|ann|gpu|{END}", f"12|b|bob|gpu|{END}"),
            {"11": "ann", "12": "bob"},
        ),
        (
            (
                f"{HEADER}|SubmitLine",
                f"11|a|ann|gpu|{END}|sbatch x",
                "echo",
                f"12|b|bob|gpu|{END}|y",
            ),
            {"11": "ann", "12": "bob"},
        ),
        (
            (
                f"{HEADER}|SubmitLine",
                f"11|a|ann|gpu|{END}|env | wc",
                "x|y",
                "|",
                f"12|b|bob|gpu|{END}|y",
            ),
            {"11": "ann", "12": "bob"},
        ),
        ((f"{HEADER}|SubmitLine", f"11|a\nb|ann|gpu|{END}|env | wc\nx|y"), {"11": "ann"}),
        (
            (f"{HEADER}|Comment|", f"11|a|ann|gpu|{END}|c|d|", f"12|b|bob|gpu|{END}|x", "y|"),
            {"11": "ann", "12": "bob"},
        ),
        (
            (f"SubmitLine|{HEADER}", f"env | wc|11|a|ann|gpu|{END}", "x", f"y|12|b|bob|gpu|{END}"),
            {"11": "ann", "12": "bob"},
        ),
        ((f"WorkDir|AdminComment|{HEADER}", f"/a|b|c|11|a|ann|gpu|{END}"), {"11": "ann"}),
        (
            (HEADER.replace("|", "\t"), f"11\ta\tb\tann\tgpu\t{END}".replace("|", "\t")),
            {"11": "ann"},
        ),
        (
            (HEADER.replace("|", "@x7@"), f"11|a|b|ann|gpu|{END}".replace("|", "@x7@")),
            {"11": "ann"},
        ),
        (
            (
                HEADER,
                f"11_[1-2%1]|a|ann|gpu|{END}",
                f"12+1|a|ann|gpu|{END}",
                f"13.extern|a|ann|gpu|{END}",
            ),
            {"11_1": "ann", "11_2": "ann", "12+1": "ann", "13.extern": "ann"},
        ),
    ],
)
def test_text_with_delimiters_and_line_ends(
    tmp_path: Path, lines: tuple[str, ...], expected: dict[str, str]
) -> None:
    done = read(tmp_path, *lines)
    assert users(done) == {job: (user, "gpu") for job, user in expected.items()}
    assert left_out(done) == 0
    assert set(done.trace.jobs["submit"]) == {1709978400}


CONSTRAINTS = HEADER.replace("Partition", "Partition|Constraints")


def test_a_constraint_is_told_from_a_name_where_the_partition_is_known(tmp_path: Path) -> None:
    job = f"11|train|ann|gpu|haswell|broadwell|{END}"
    done = read(tmp_path, CONSTRAINTS, job, f"12|train|bob|gpu|v100|{END}")
    assert users(done) == {"11": ("ann", "gpu"), "12": ("bob", "gpu")}


@pytest.mark.parametrize(
    "job",
    [
        # or: user gpu, partition haswell, if nothing else is known
        f"11|train|ann|gpu|haswell|broadwell|{END}",
        f"11|x|ann|gpu|bob|debug||{END}",
        f"11|x\n12|b|ann|gpu||{END}",
        f"11|x|ann|gpu||{END}\ny|eve|cpu||{END}",
        f"11|x|{END[:60]}",
    ],
)
def test_what_can_be_read_in_several_ways_is_left_out(tmp_path: Path, job: str) -> None:
    others = (f"{number}|a|cy|debug||{END}" for number in range(21, 24))
    done = read(tmp_path, CONSTRAINTS, *others, job)
    assert users(done) == {str(number): ("cy", "debug") for number in range(21, 24)}
    assert left_out(done) in (1, 2)
    assert any("left out" in note and "(line 5" in note for note in done.notes)


def test_a_name_that_looks_like_the_columns_behind_it(tmp_path: Path) -> None:
    """Columns of words only: "a" seems to be the partition, until the next lines come."""
    header = "Submit|Start|End|State|NNodes|User|JobID|JobName|Partition"
    job = "2024-03-09T10:00:00|Unknown|Unknown|PENDING|1|ann|{}|{}|gpu"
    for name in ("a|a\n", "a|a\na\n", "a|cpu\nx\ny"):
        others = (job.format(number, "x") for number in range(21, 23))
        done = read(tmp_path, header, job.format(20, "x"), job.format(11, name), *others)
        assert set(users(done).values()) == {("ann", "gpu")}
        assert "11" not in users(done)


def test_an_account_with_a_delimiter_does_not_make_another_user(tmp_path: Path) -> None:
    """Sites without accounting limits take any text as an account."""
    header = HEADER.replace("Partition", "Account|Partition")
    clean = (f"{number}|a|ann|lab|gpu|{END}" for number in range(21, 24))
    done = read(
        tmp_path, header, *clean, f"11|train|ann|my|acct|gpu|{END}", f"12|a|b|ann|lab|gpu|{END}"
    )
    assert users(done)["12"] == ("ann", "gpu")
    assert "11" not in users(done)
    assert left_out(done) == 1


def test_one_bad_record_costs_that_record(tmp_path: Path) -> None:
    lines = [f"{number}|a|ann|gpu|{END}" for number in range(1, 21)]
    lines[4] = lines[4].replace("02:00:00", "soon")
    lines[9] = lines[9].replace("2024-03-09T10:00:00", "2024-02-30T10:00:00")
    lines[14] = "sacct: error: slurmdbd: connection lost"
    done = read(tmp_path, HEADER, *lines)
    assert sorted(users(done), key=int) == [
        str(number) for number in range(1, 21) if number not in (5, 10, 15)
    ]
    assert left_out(done) == 3
    shown = "".join(done.notes)
    assert "(line 6: 'soon')" in shown
    assert "(line 11: '2024-02-30T10:00:00')" in shown
    assert "(line 16: '1 fields')" in shown


def test_a_file_of_which_most_is_no_record_is_refused(tmp_path: Path) -> None:
    rubbish = [f"this is line {number}|of something else" for number in range(3)]
    bad = f"2|a|ann|gpu|{END.replace('02:00:00', 'soon')}"
    with pytest.raises(
        TraceError,
        match=r"sacct\.txt:2: .*2 of 3 records can't be read; give what `sacct -P` prints",
    ):
        read(tmp_path, HEADER, *rubbish, f"1|a|ann|gpu|{END}", bad)
    with pytest.raises(TraceError, match=r"sacct\.txt:2: "):
        read(tmp_path, HEADER, *rubbish)


def test_an_empty_state_is_called_empty(tmp_path: Path) -> None:
    stateless = END.replace("COMPLETED", "")
    with pytest.raises(TraceError, match="State: found 'an empty field', expected a state like"):
        read(tmp_path, HEADER, *(f"{number}|a|ann|gpu|{stateless}" for number in (1, 2)))
    done = read(
        tmp_path, HEADER, *(f"{n}|a|ann|gpu|{END}" for n in (1, 2)), f"3|a|ann|gpu|{stateless}"
    )
    assert "(line 4: empty)" in "".join(done.notes)


def test_headers_of_monthly_loops(tmp_path: Path) -> None:
    other = "JobIDRaw|State|Submit|Start|End|User|Account|Partition|NNodes"
    done = read(
        tmp_path,
        HEADER,
        f"1|a|ann|gpu|{END}",
        HEADER,
        f"2|a|b|ann|gpu|{END}",
        "",
        other,
        "3|FAILED|2024-04-09T10:00:00|2024-04-09T10:00:00|2024-04-09T10:00:00|bob|lab|cpu|1",
        HEADER + "|",
        f"4|a|ann|gpu|{END}|",
    )
    assert users(done) == {
        "1": ("ann", "gpu"),
        "2": ("ann", "gpu"),
        "3": ("bob", "cpu"),
        "4": ("ann", "gpu"),
    }
    assert left_out(done) == 0
    assert done.notes["header lines within the file, left out"] == 3


def test_a_header_in_a_name_does_not_swap_columns(tmp_path: Path) -> None:
    forged = HEADER.replace("User|Partition", "Partition|User") + "|SubmitLine"
    lines = [f"{number}|a|ann|gpu|{END}|x" for number in range(1, 9)]
    with pytest.raises(TraceError, match="one header that fits"):
        read(tmp_path, f"{HEADER}|SubmitLine", lines[0], forged, *lines[1:])
    done = read(tmp_path, f"{HEADER}|SubmitLine", *lines, forged, f"9|a|ann|gpu|{END}|x")
    assert "9" not in users(done)
    assert left_out(done) == 1
    shorter = "JobID|Partition|User|Submit|Start|End|State|NNodes"
    done = read(tmp_path, f"{HEADER}|SubmitLine", lines[0], shorter, *lines[1:])
    assert set(users(done).values()) == {("ann", "gpu")}
    assert len(users(done)) == 8


@pytest.mark.parametrize(
    ("column", "other"),
    [("Submit", "Eligible"), ("NNodes", "NTasks"), ("NCPUS", "NewOne"), ("NCPUS", "NTasks")],
)
def test_columns_below_another_header_are_not_read_by_the_one_before(
    tmp_path: Path, column: str, other: str
) -> None:
    """It lacks a column that is needed, or has one of a newer release: its records count, at least,
    as left out.
    """
    swapped = HEADER.replace("User|Partition", "Partition|User").replace(column, other)
    lines = [HEADER, f"1|a|ann|gpu|{END}", f"2|a|ann|gpu|{END}", swapped, f"3|a|gpu|ann|{END}"]
    done = read(tmp_path, *lines, HEADER + "|", f"4|a|ann|gpu|{END}|")
    assert users(done) == {"1": ("ann", "gpu"), "2": ("ann", "gpu"), "4": ("ann", "gpu")}
    assert left_out(done) == 1


@pytest.mark.parametrize("delimiter", ["|", ","])
def test_names_of_columns_in_a_text_cost_at_most_that_record(
    tmp_path: Path, delimiter: str
) -> None:
    text = delimiter.join(("JobID", "JobName", "Submit", "Start", "End", "State"))
    lines = [f"{number}|a|ann|gpu|{END}|x" for number in range(3, 9)]
    header = f"{HEADER}|SubmitLine"
    done = read(
        tmp_path, header, f"1|a|ann|gpu|{END}|x", f"2|a|ann|gpu|{END}|sacct -o", text, "y", *lines
    )
    assert {"1", *"345678"} <= users(done).keys()
    assert set(users(done).values()) == {("ann", "gpu")}


@pytest.mark.parametrize(
    "bad", ["2|bob|gp", f"2|bob|gpu|{END}".replace("2024", "20x4"), "2|bob|gpu|2024-03-09T10:0"]
)
def test_a_bad_record_counts_though_it_may_be_the_end_of_a_text(tmp_path: Path, bad: str) -> None:
    header = HEADER.replace("JobName|", "") + "|SubmitLine"
    for more in ([], [f"3|bob|gpu|{END}|sbatch y"]):
        done = read(tmp_path, header, f"1|ann|gpu|{END}|sbatch x", bad, *more)
        assert users(done).get("1") == ("ann", "gpu")
        assert left_out(done) == 1


def test_a_good_record_that_a_cut_one_draws_in_counts_as_left_out(tmp_path: Path) -> None:
    done = read(
        tmp_path,
        HEADER,
        f"1|a|ann|gpu|{END}",
        "2|x|an",
        *(f"{job}|y|bob|cpu|{END}" for job in (3, 4, 5)),
    )
    assert users(done) == {"1": ("ann", "gpu"), "4": ("bob", "cpu"), "5": ("bob", "cpu")}
    assert left_out(done) == 2


def test_steps_of_heterogeneous_jobs(tmp_path: Path) -> None:
    """sacct writes a step that ran on one part only as `7.0+1`."""
    lines = [f"{job}|a|ann|gpu|{END}" for job in ("7+0", "7+0.batch", "7.0+0", "7+1", "7.0+1")]
    done = read(tmp_path, HEADER, *lines)
    assert left_out(done) == 0
    cleaned, _report = clean(done.trace)
    assert cleaned.jobs["job_id"].tolist() == ["7"]


def test_tables_with_fields_in_quotes(tmp_path: Path) -> None:
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow([*HEADER.split("|"), "ReqTRES"])
    names = ("a,b", 'q"uote', "one\ntwo", "plain")
    for number, name in enumerate(names, 1):
        out.writerow([number, name, "ann", "gpu", *END.split("|"), "cpu=8,gres/gpu=4"])
    done = read(tmp_path, text.getvalue().replace("\r\n", "\n").rstrip("\n"))
    assert users(done) == {str(number): ("ann", "gpu") for number in range(1, 5)}
    assert done.trace.jobs["gpus"].tolist() == [4] * 4
    broken = text.getvalue().replace("\r\n", "\n").replace("plain", '"plain').rstrip("\n")
    done = read(tmp_path, broken)
    assert set(users(done)) == {"1", "2", "3"}
    assert left_out(done) == 1


def test_the_comma_as_a_delimiter_and_lists_with_commas(tmp_path: Path) -> None:
    header = "JobID,User,Submit,Start,End,NNodes,AllocTRES,Timelimit,Partition,State"
    job = "5_[1,3],ann,1700000000,1700000100,1700000200,2,cpu=8,gres/gpu=4,02:00:00,gpu,debug,COMPLETED"
    done = read(tmp_path, header, job)
    assert users(done) == {"5_1": ("ann", "gpu,debug"), "5_3": ("ann", "gpu,debug")}
    assert left_out(done) == 0


@pytest.mark.parametrize("release", ["17.11", "20.11", "25.05"])
def test_columns_of_other_releases(tmp_path: Path, release: str) -> None:
    extra = {
        "17.11": {
            "ReqMem": "4Gn",
            "ReqGRES": "gpu:2",
            "Reserved": "00:00:05",
            "TimelimitRaw": "120",
        },
        "20.11": {
            "ReqMem": "1000Mc",
            "Reserved": "00:00:05",
            "Timelimit": "Partition_Limit",
            "Flags": "SchedMain",
        },
        "25.05": {
            "ReqMem": "8G",
            "Planned": "00:00:05",
            "QOSREQ": "a,b",
            "StdOut": "/x|y",
            "Restarts": "1",
            "New": "|",
        },
    }[release]
    columns = {
        "JobID": "5",
        "User": "ann",
        "Submit": "2024-03-09T10:00",
        "Start": "2024-03-09T10:00:05.123Z",
    }
    columns |= {
        "End": "Unknown",
        "State": "CANCELLED by 1001",
        "AllocTRES": "cpu=4,node=2",
        "NCPUS": "4",
        **extra,
    }
    done = read(tmp_path, "|".join(columns), "|".join(columns.values()))
    [row] = done.trace.jobs.to_dict("records")
    memory = {"17.11": 8192, "20.11": 4000, "25.05": 8192}[release]
    expected = {
        "job_id": "5",
        "submit": 1709978400,
        "start": 1709978405,
        "nodes": 2,
        "state": "CANCELLED",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["mem_mib"] == memory


def test_the_delimiter_is_found_by_the_names() -> None:
    for delimiter in ("|", ",", "\t", ";", "||", "@|@", "#7f#", " ; ", "x7f"):
        layout = parse_header(delimiter.join(("JobID", "User", "State")))
        assert layout is not None
        assert (layout.names, layout.delimiter) == (("JobID", "User", "State"), delimiter)
    assert parse_header("11|a|ann") is None


@pytest.mark.parametrize(
    "text", ["|" * 60_000, "x\n" * 30_000, "5|\n" * 20_000, "5|a|" * 90_000, "a" * 500_000]
)
def test_a_long_text_takes_no_long_time(tmp_path: Path, text: str) -> None:
    """A command line has up to 64 KiB in Slurm's database."""
    others = [f"{number}|a|ann|gpu|{END}" for number in range(20, 29)]
    begin = process_time()
    done = read(tmp_path, HEADER, *others, f"11|{text}|ann|gpu|{END}", f"12|a|ann|gpu|{END}")
    assert process_time() - begin < 20
    assert set(users(done).values()) == {("ann", "gpu")}
    assert len(users(done)) in (9, 10, 11)


# --- whatever users write
# --------------------------------------------------------------------------------------------

LOOKS_LIKE = """a b ann gpu debug 5 5_1 12 2024-03-09T10:00:00
02:00:00 COMPLETED 0:0 cpu=4 Unknown JobID State 1.batch"""
PIECES = st.sampled_from(
    [
        *LOOKS_LIKE.split(),
        "",
        " ",
        '"',
        "CANCELLED by 1",
        "\u00e9",
        "\t",
        "\r",
        "\x85",
        "\u2028",
        "sbatch -n 1",
    ]
)
TEXTS = st.lists(st.tuples(PIECES, st.sampled_from(["", "|", "|", "\n"])), max_size=5).map(
    lambda parts: "".join(piece + end for piece, end in parts)
)
FREE = ("JobName", "Comment", "Constraints", "SubmitLine", "WorkDir", "Extra")
FIXED = (
    "JobID",
    "User",
    "Partition",
    "Submit",
    "Start",
    "End",
    "Timelimit",
    "NNodes",
    "State",
    "ExitCode",
    "ReqTRES",
)


def stamp(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@st.composite
def dumps(pick: st.DrawFn) -> tuple[list[str], list[dict[str, str]], str]:
    """Columns in any order, jobs, and what ends a line."""
    free = pick(st.lists(st.sampled_from(FREE), unique=True, min_size=1, max_size=3))
    columns = pick(st.permutations([*FIXED, *free]))
    jobs = []
    for number in range(pick(st.integers(1, 6))):
        begin = pick(st.integers(1_700_000_000, 1_700_100_000))
        job = {
            "JobID": pick(st.sampled_from([f"{number}", f"9{number}_3", f"9{number}+0"])),
            "User": pick(st.sampled_from(["ann", "bob", "a"])),
            "Partition": pick(st.sampled_from(["gpu", "debug"])),
            "Submit": stamp(begin),
            "Start": stamp(begin + 60),
            "End": stamp(begin + 600),
            "Timelimit": "02:00:00",
            "NNodes": str(pick(st.integers(1, 4))),
            "State": pick(st.sampled_from(["COMPLETED", "CANCELLED by 7", "FAILED"])),
            "ExitCode": "0:0",
            "ReqTRES": pick(st.sampled_from(["", "cpu=4,node=1"])),
        }
        jobs.append(job | {name: pick(st.one_of(st.just("plain"), TEXTS)) for name in free})
    return list(columns), jobs, pick(st.sampled_from(["", "|"]))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dumps())
def test_every_job_read_is_as_it_was_or_is_counted_as_left_out(
    tmp_path: Path, dump: tuple[list[str], list[dict[str, str]], str]
) -> None:
    columns, jobs, end = dump
    lines = [
        "|".join(columns) + end,
        *("|".join(job[name] for name in columns) + end for job in jobs),
    ]
    try:
        done = read(tmp_path, *lines)
    except TraceError as error:
        assert "records can't be read" in str(error)  # noqa: PT017
        return
    truth = {job["JobID"]: job for job in jobs}
    found: list[dict[str, Any]] = done.trace.jobs.to_dict("records")
    for row in found:
        job = truth.pop(row["job_id"])
        seen = {"User": row["user"], "Partition": row["partition"], "Submit": stamp(row["submit"])}
        seen |= {
            "Start": stamp(row["start"]),
            "End": stamp(row["end"]),
            "NNodes": str(row["nodes"]),
        }
        seen |= {"State": row["state"]}
        assert seen == {name: job[name].split(" ")[0] for name in seen}
    assert not truth or left_out(done)


def in_json(new: bool, **more: object) -> dict[str, object]:
    """A job as v0.0.38 or v0.0.42 has it, of those that real sacct printed."""

    def value(number: int) -> object:
        return {"set": True, "infinite": False, "number": number} if new else number

    tres = [("cpu", "", 4), ("energy", "", -2), ("node", "", 2), ("gres", "gpu", 4)]
    counts = [{"type": kind, "name": name or None, "count": count} for kind, name, count in tres]
    job = {
        "account": "lab",
        "allocation_nodes": 2,
        "array": {"job_id": 0, "task": None if not new else "", "task_id": None},
        "association": {"user": "ann"},
        "time": {
            "eligible": 1_710_000_000,
            "end": 1_710_003_600,
            "start": 1_710_000_010,
            "submission": 1_710_000_000,
            "limit": value(1440),
        },
        "exit_code": {"return_code": value(1)},
        "job_id": 7,
        "nodes": "n[1-2]",
        "partition": "gpu",
        "priority": value(156),
        "qos": "normal",
        "state": {"current": ["FAILED"] if new else "FAILED"},
        "tres": {"allocated": counts, "requested": [{"type": "mem", "name": "", "count": 4000}]},
        "user": "ann",
    }
    return job | more


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_sacct_json_is_read_as_its_text(tmp_path, new, indent):
    waiting = {"time": in_json(new)["time"] | {"start": 0, "end": 0}, "allocation_nodes": 0}
    states = {"state": {"current": ["PENDING"] if new else "PENDING"}}
    tasks = {"array": {"job_id": 8, "task": "1-3", "task_id": None}, "job_id": 8}
    jobs = [in_json(new), in_json(new, **tasks, **waiting, **states)]
    path = tmp_path / "sacct.json"
    path.write_text("\n" + json.dumps({"meta": {}, "jobs": jobs, "errors": []}, indent=indent))
    done = import_sacct(path)
    first, *others = done.trace.jobs.to_dict("records")
    assert (first["user"], first["account"], first["qos"]) == ("ann", "lab", "normal")
    assert (first["start"], first["end"], first["timelimit_s"]) == (
        1_710_000_010,
        1_710_003_600,
        86_400,
    )
    assert (first["nodes"], first["gpus"], first["cpus"], first["mem_mib"]) == (2, 4, 4, 4000)
    assert (first["state"], first["exit_code"], first["priority"]) == ("FAILED", "1:0", 156)
    assert [each["job_id"] for each in others] == ["8_1", "8_2", "8_3"]
    assert {each["state"] for each in others} == {"PENDING"}


@pytest.mark.parametrize("odd", [None, "x", 5, ["cpu"], {"type": 5, "name": ["gpu"], "count": 1}])
def test_a_resource_of_a_form_that_is_not_known_costs_no_trace(tmp_path, odd):
    jobs = [
        in_json(new=True, tres={"allocated": [odd], "requested": [odd]}, job_id=8),
        in_json(True),
    ]
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": jobs}))
    assert [each["job_id"] for each in import_sacct(path).trace.jobs.to_dict("records")] == [
        "8",
        "7",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"jobs": [', "what `sacct --json` prints, whole"),
        ('{"meta": {}}', "a list `jobs`"),
        ('{"jobs": [1]}', "a list `jobs`"),
    ],
)
def test_json_of_something_else_is_refused(tmp_path, text, words):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        import_sacct(path)


def test_gpus_of_dumps_from_before_tres_had_them(tmp_path):
    """AllocGRES counts those of the whole job, ReqGRES those of a node."""
    head = "JobID|Submit|Start|End|State|AllocNodes|ReqNodes|ReqGRES|AllocGRES|AllocTRES\n"
    times = "2019-03-09T10:00:00|2019-03-09T10:00:05|2019-03-09T11:00:00|COMPLETED"
    rows = [
        f"1|{times}|2|2|gpu:2|gpu:4|cpu=4,node=2",
        f"2|{times}|2|2|gpu:tesla:2,craynetwork:1||cpu=4,node=2",
        f"3|{times}|1|1|gpu|7696487:1|cpu=4,node=1",
        f"4|{times}|1|1|craynetwork:1||cpu=4,node=1",
        f"5|{times}|1|1|gpu:8|gpu:8|cpu=4,node=1,gres/gpu=3",
        f"6|{times}|1|1|(null)|(null)|cpu=4,node=1",
    ]
    path = tmp_path / "old.txt"
    path.write_text(head + "\n".join(rows) + "\n")
    done = import_sacct(path)
    assert done.trace.jobs["gpus"].tolist() == [4, 4, 1, 0, 3, 0]
    assert done.notes["jobs whose GPUs are those of AllocGRES"] == 2
    assert done.notes["jobs whose GPUs are those of ReqGRES"] == 1
