"""What the real sacct prints of jobs whose texts hold delimiters and line ends, imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_sim.traces.sacct import import_sacct
from tests.slurm.site import ALICE, BOB, Site, until

pytestmark = pytest.mark.slurm

TEXTS = (
    "a|b",
    "sweep lr0.5\n",
    "x\ny|z",
    "||",
    "a|ann|gpu",
    "12|b",
    "CANCELLED by 1|2024-01-01T00:00:00",
    'q",\t',
)
FORMATS = {
    "names first": (
        "JobID,JobName,User,Account,Partition,Comment,Submit,Start,End,Timelimit,NNodes,State,SubmitLine"
    ),
    "names last": (
        "JobID,User,Partition,Submit,Start,End,AllocTRES,NNodes,State,Comment,JobName,SubmitLine"
    ),
    "all": "ALL",
}
OPTIONS = {
    "-P": ("-P",),
    "-p": ("-p",),
    "own delimiter": ("-P", "--delimiter=#7f#"),
    "tab": ("-P", "--delimiter=\t"),
}


def test_each_job_that_is_read_is_as_sacct_has_it_and_most_are(site: Site, tmp_path: Path) -> None:
    ids: list[str] = []
    for user, partition in ((ALICE, "gpu"), (BOB, "debug")):
        for text in (*TEXTS, "plain", "plain"):  # by these the users and partitions are known
            words = ("-J", text, "--comment", text, "-p", partition, "-t", "2", "-o", "/dev/null")
            told = site.run(
                user, "sbatch", "--parsable", *words, "--wrap", "echo one\necho two | cat"
            ).stdout
            ids.append(told.strip())
    which = ("-X", "-D", "-j", ",".join(ids))

    def sacct(*words: str) -> str:
        return site.run("root", "sacct", *which, *words).stdout

    def is_over() -> bool:
        states = sacct("-n", "-P", "-o", "State").split()
        return len(states) == len(ids) and set(states) <= {"COMPLETED", "FAILED"}

    until(is_over, 60, "all jobs to be over in accounting", 1)

    def truth_now() -> dict[str, tuple[object, ...]]:
        lines = sacct("-n", "-P", "-o", "JobID,User,Partition,Submit,Start,End").split()
        rows = [line.split("|") for line in lines]  # the tests' users have SLURM_TIME_FORMAT=%s
        return {words[0]: (words[1], words[2], *map(int, words[3:])) for words in rows}

    assert len(truth_now()) == len(ids)
    for name, columns in FORMATS.items():
        for option, words in OPTIONS.items():
            for _ in range(10):  # slurmdbd may still correct a time by a second
                truth = truth_now()
                (tmp_path / "dump").write_text(sacct(*words, f"--format={columns}"))
                if truth_now() == truth:
                    break
            done = import_sacct(tmp_path / "dump", "UTC")
            jobs = done.trace.jobs
            read = {
                row.job_id: (row.user, row.partition, row.submit, row.start, row.end)
                for row in jobs.itertuples()
            }
            wrong = {
                job: (found, truth.get(job))
                for job, found in read.items()
                if found != truth.get(job)
            }
            assert not wrong, (name, option)
            assert len(jobs) + done.left_out >= len(ids), (name, option)
            assert len(jobs) >= len(ids) * (0.5 if name == "all" else 0.8), (
                name,
                option,
                done.notes,
            )
