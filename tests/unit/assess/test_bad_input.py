"""What `mirage assess` says of records that are empty, cut, wrong, strange, or of one user alone."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirage.cli import assess
from mirage.errors import MirageError
from slurm_sim.seconds import DAY_S

HEADER = "JobID|User|Partition|Submit|Start|End|TimelimitRaw|NNodes|NCPUS|State|ReqTRES"
USER, SUBMIT, START, END, LIMIT, NODES, STATE = 1, 3, 4, 5, 6, 7, 9
BEGIN_S, FAR_S = 1_675_209_600, 4_070_908_800
"""2023 and 2099."""
Row = list[str]


def moment(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def rows(count: int = 120, begin_s: int = BEGIN_S, days: int = 3) -> list[Row]:
    """Of three days: no chain is simulated, so a case takes a tenth of a second."""
    draw, made = random.Random(1), []
    for number in range(1, count + 1):
        submit_s = begin_s + days * DAY_S * number // count
        start_s = submit_s + draw.randint(0, 7000)
        times = map(moment, (submit_s, start_s, start_s + draw.randint(600, 20_000)))
        nodes = str(draw.randint(1, 3))
        made.append(
            [str(number), f"u{number % 5}", "gpu", *times, "360", nodes, "8", "COMPLETED", ""]
        )
    return made


def changed(column: int, value: str, every: int = 1) -> list[Row]:
    found = rows()
    for row in found[::every]:
        row[column] = value
    return found


def text(records: list[Row]) -> str:
    return "".join("|".join(row) + "\n" for row in [[HEADER], *records])


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Assesses a file of this content; returns all that was printed."""

    def run(content: str, *words: str) -> str:
        path = tmp_path / "sacct.txt"
        path.write_text(content)
        parser = argparse.ArgumentParser()
        assess.add_arguments(parser)
        out = str(tmp_path / "out")
        given = ["--sacct", str(path), "--out", out, "--quick", "--workers", "1", *words]
        assert assess.run(parser.parse_args(given)) == 0
        return " ".join("".join(capsys.readouterr()).split())

    return run


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "an empty file"),
        (HEADER + "\n", "at least one job"),
        (text(rows()).replace("|State|", "|Stat|"), "expected a column State"),
        ("JobID  User\n-----  ----\n5      ann\n", "expected a column Submit"),
        (text(changed(SUBMIT, "#!x")), "120 of 120 records can't be read"),
        (text(changed(END, "Unknown")), "120 jobs are left out: no end is known"),
        (text(rows(begin_s=FAR_S)), "120 jobs are left out: submitted in the future"),
        (text(changed(NODES, "0")), "no job that ran"),
    ],
)
def test_records_of_which_nothing_can_be_said_are_one_clear_line(said, content, words):
    with pytest.raises(MirageError) as caught:
        said(content)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text(rows())[:-30], "119 jobs of 5 users"),
        (text(changed(SUBMIT, "#!x", 3)), "40 of 120 accounting records are left out"),
        (text(changed(USER, "名前", 2)), "120 jobs of 6 users"),
        (text(changed(STATE, "WEIRD", 2)), "120 jobs of 5 users"),
        (text(changed(END, "Unknown", 2)), "60 jobs are left out: no end is known"),
        (text([*rows(), *rows(1, FAR_S)]), "1 job is left out: submitted in the future"),
        (
            text(changed(NODES, "1000000", 50)),
            "3 jobs are left out: nodes: 1,000,000 of job 1, expected at most 100,000",
        ),
        (
            text(changed(END, "2053-01-01T00:00:00", 120)),
            "1 job is left out: end: 2053 of job 1, expected a time within 20 years",
        ),
        (text([*rows(), *rows()]), "120 jobs of 5 users"),
        (text(changed(LIMIT, "UNLIMITED")), "120 jobs of 5 users"),
        (text(rows()).replace("\n", "\r\n"), "120 jobs of 5 users"),
        (text(rows(1)), "the history has less than a day"),
        (text(rows(20, days=1)), "the history has less than a day"),
    ],
)
def test_records_with_faults_are_assessed_and_the_faults_said(said, content, words):
    assert words in said(content)


def test_an_earlier_run_of_a_requeued_job_is_a_job_of_its_own(said):
    first, second = rows(), rows()
    for before, after in zip(first, second, strict=True):
        before[STATE] = "REQUEUED"
        after[SUBMIT], after[START], after[END] = (
            moment(int(datetime.fromisoformat(each + "+00:00").timestamp()) + DAY_S)
            for each in (after[SUBMIT], after[START], after[END])
        )
    assert "240 jobs of 5 users" in said(text([*first, *second]))


def test_a_zone_that_is_assumed_is_said(said, tmp_path):
    assert "times without a zone, taken as UTC" in said(text(rows()))
    assert "taken as UTC" not in said(text(rows()), "--timezone", "Asia/Tokyo")
    assert "zone Asia/Tokyo" in (tmp_path / "out" / "assessment.html").read_text()


@pytest.mark.parametrize(
    ("wait_s", "words"),
    [
        (0, "A job waits less than a minute on average. The history"),
        (300, "A job waits 5 min on average, one in ten longer than 5 min. Jobs on"),
    ],
)
def test_short_waits_are_given_no_cause(said, wait_s, words):
    records = rows()
    for row in records:
        submit_s = int(datetime.fromisoformat(row[SUBMIT] + "+00:00").timestamp())
        row[START], row[END] = moment(submit_s + wait_s), moment(submit_s + wait_s + 900)
    assert words in said(text(records))


def test_of_one_user_alone_nothing_is_simulated(said):
    """sacct shows plain users their own jobs only (PrivateData=jobs)."""
    records = rows(days=40)
    for row in records:
        row[USER] = "ann"
    found = said(text(records))
    assert (
        "can't be told: all jobs are of one user; sacct shows others' jobs only to operators"
        in found
    )
    assert "Simulated on" not in found
