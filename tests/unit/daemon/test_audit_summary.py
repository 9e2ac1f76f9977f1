"""The audit log is read in a process of its own, for the web page and the drift watch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mirage.daemon.audit_summary import RETRY_S, AuditSummary
from mirage.store.journal import Journal
from tests.unit.daemon.test_impact import H, decision, handover, outcome

FRESH_S = 900


def test_a_result_is_kept_until_it_is_too_old_for_who_asks(tmp_path: Path) -> None:
    now_s = 1000.0 * H
    journal = Journal(path=tmp_path / "audit.jsonl", max_bytes=1 << 20, max_age_s=86_400, keep=2)
    journal.append([
        decision(990 * H), outcome(990 * H), handover(released=990 * H, entered=990 * H, started=993 * H, ended=992 * H)
    ])  # fmt: skip
    reading = AuditSummary(journal.path, 3 * H, now_s=lambda: now_s)
    reading.latest(FRESH_S)
    reading.wait()
    told = reading.latest(FRESH_S)
    assert told.found is not None
    worth = told.found["impact"]
    assert (told.at_s, told.problem, worth["handovers"]) == (1000 * H, "", 1)
    assert worth["compared"]["interruption_s"] == 1 * H
    assert worth["sentences"][0].startswith("1 handover,")
    assert told.found["drift"]["words"] == ""
    now_s += FRESH_S - 1
    assert reading.latest(FRESH_S) is told
    now_s += 1
    assert reading.latest(FRESH_S + 1) is told
    reading.latest(FRESH_S)
    reading.wait()
    assert reading.latest(FRESH_S).at_s == int(now_s)


def test_a_log_that_comes_later_is_found_soon(tmp_path: Path) -> None:
    now_s = 1000.0 * H
    reading = AuditSummary(tmp_path / "audit.jsonl", 3 * H, now_s=lambda: now_s)
    reading.latest(FRESH_S)
    reading.wait()
    assert reading.latest(FRESH_S).problem == "Nothing is in the audit log yet."
    Journal(path=tmp_path / "audit.jsonl", max_bytes=1 << 20, max_age_s=86_400, keep=2).append(
        [decision(990 * H)]
    )
    now_s += RETRY_S
    reading.latest(FRESH_S)
    reading.wait()
    assert reading.latest(FRESH_S).problem == ""


def test_the_reader_says_what_it_can_not_read(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mirage.daemon.audit_summary", str(tmp_path), "9", "3600"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Audit log ")
    (tmp_path / "audit.jsonl").write_text("no json\n")
    words[3] = str(tmp_path / "audit.jsonl")
    assert (
        json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["impact"][
            "unreadable"
        ]
        == 1
    )


def test_no_code_of_the_working_folder_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    journal = Journal(path=tmp_path / "audit.jsonl", max_bytes=1 << 20, max_age_s=86_400, keep=2)
    journal.append([decision(990 * H)])
    reading = AuditSummary(journal.path, 3 * H, now_s=lambda: 1000.0 * H)
    reading.latest(FRESH_S)
    reading.wait()
    assert reading.latest(FRESH_S).found is not None
