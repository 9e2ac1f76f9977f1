"""What the service's log looks like in the journal and elsewhere."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirage.daemon.logs import JournalFormatter, goes_to_journal, handler_for, priority
from tests.fakes.fake_slurm import FakeSlurm


def record(level: int, message: str, *args: object, exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord("mirage.x", level, "x.py", 1, message, args, exc_info)  # type: ignore[arg-type]


def failure() -> object:
    try:
        raise ValueError("wrong\n<0>forged")
    except ValueError:
        return sys.exc_info()


def test_each_line_carries_its_priority_and_no_time() -> None:
    text = JournalFormatter().format(record(logging.WARNING, "job %d\nsecond line", 7))
    assert text == "<4>mirage.x: job 7\n<4>second line"
    lines = (
        JournalFormatter().format(record(logging.ERROR, "a fault", exc_info=failure())).splitlines()
    )
    assert len(lines) > 3
    assert all(line.startswith("<3>") for line in lines), (
        "a traceback's lines, and what text from outside forges"
    )
    assert lines[-1] == "<3><0>forged"


@pytest.mark.parametrize(
    ("level", "number"),
    [
        (logging.DEBUG, 7),
        (logging.INFO, 6),
        (logging.WARNING, 4),
        (logging.ERROR, 3),
        (logging.CRITICAL, 2),
        (25, 6),
    ],
)
def test_levels_are_syslogs(level: int, number: int) -> None:
    assert priority(level) == number


def test_a_stream_that_the_journal_does_not_read_gets_times(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        found = os.fstat(stream.fileno())
        theirs = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert goes_to_journal(stream, theirs)
        assert isinstance(handler_for(stream, theirs).formatter, JournalFormatter)
        for other in ({}, {"JOURNAL_STREAM": "1:2"}, {"JOURNAL_STREAM": "nonsense"}):
            assert not goes_to_journal(stream, other)
            assert re.match(
                r"20\d\d-.* INFO mirage.x: a$", handler_for(stream, other).format(record(20, "a"))
            )
    assert not goes_to_journal(io.StringIO(), theirs), "no file at all"


def run_daemon(
    tmp_path: Path, *words: str, journal: bool = True, code: int = 0, **variables: str
) -> list[str]:
    """The log's lines of one cycle."""
    FakeSlurm.create(tmp_path, 2, int(time.time()))
    with (tmp_path / "log").open("w+") as log:
        found = os.fstat(log.fileno())
        env = os.environ | {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "FAKE_SLURM_DIR": str(tmp_path),
            "FAKE_SLURM_USER": "root",
            "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}" if journal else "",
            "MIRAGE__DAEMON__STORE": f"sqlite:///{tmp_path}/mirage.db",
            **variables,
        }
        program = [
            sys.executable,
            "-m",
            "mirage.cli.main",
            "daemon",
            "--once",
            "--config",
            os.devnull,
            *words,
        ]
        assert subprocess.run(program, env=env, stderr=log, timeout=240).returncode == code
        log.seek(0)
        return log.read().splitlines()


def test_the_daemon_writes_for_the_journal(tmp_path: Path) -> None:
    lines = run_daemon(tmp_path)
    assert "<6>mirage.daemon.cycle: Slurm 22.05.8" in lines
    assert all(re.match(r"<[46]>mirage\.", line) for line in lines), lines


def test_elsewhere_its_lines_begin_with_the_time(tmp_path: Path) -> None:
    lines = run_daemon(tmp_path, journal=False)
    assert any(
        re.match(r"20\d\d-\d\d-\d\d \S+ INFO mirage\.daemon\.cycle: Slurm 22\.05\.8", line)
        for line in lines
    )


def test_why_it_does_not_start_is_an_error_in_the_journal(tmp_path: Path) -> None:
    (line,) = run_daemon(tmp_path, code=2, MIRAGE__DAEMON__POLL_S="soon")
    assert line.startswith("<3>mirage daemon: environment variable MIRAGE__DAEMON__POLL_S: ")


def test_a_level_leaves_out_what_is_less_grave(tmp_path: Path) -> None:
    assert not any(
        line.startswith("<6>") for line in run_daemon(tmp_path, MIRAGE__DAEMON__LOG_LEVEL="warning")
    )


def test_verbose_goes_before_the_level(tmp_path: Path) -> None:
    lines = run_daemon(tmp_path, "--verbose", MIRAGE__DAEMON__LOG_LEVEL="error")
    assert any(
        re.match(r"<7>mirage\.slurm\.runner: \d+\.\d\d s, exit 0: squeue ", line) for line in lines
    ), lines


def test_a_connection_that_breaks_in_the_pool_is_no_traceback() -> None:
    script = (
        "import logging; from mirage.daemon.logs import set_up; set_up('info');"
        " logging.getLogger('sqlalchemy.pool.impl.QueuePool').error('Exception during reset or"
        " similar')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
