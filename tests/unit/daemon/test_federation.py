"""One report over several clusters: sums worked out by hand, and a log that is missing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mirage.cli.main import main
from mirage.daemon.federation import impacts, notes, page, rows
from mirage.figures.page import render
from mirage.store.journal import Journal
from tests.unit.daemon.test_impact import H, decision, handover, outcome


def log(folder: Path, *records: object) -> Path:
    journal = Journal(path=folder / "audit.jsonl", max_bytes=1 << 20, max_age_s=86_400, keep=2)
    folder.mkdir()
    journal.append(list(records))
    return journal.path


@pytest.fixture
def audits(tmp_path: Path) -> dict[str, Path]:
    now_s = int(time.time())
    acts = log(
        tmp_path / "a",
        decision(now_s - 4 * H),
        outcome(now_s - 4 * H),
        handover(
            released=now_s - 4 * H, entered=now_s - 4 * H, started=now_s - H, ended=now_s - 2 * H
        ),
    )
    observes = log(
        tmp_path / "b",
        decision(now_s - 5 * H, held_back="observe"),
        handover(entered=now_s - 4 * H, started=now_s - 2 * H, ended=now_s - 4 * H),
    )
    return {"acts": acts, "observes": observes}


def test_each_cluster_and_all_together(audits: dict[str, Path]) -> None:
    """acts: let in 2 h before the end, waited 3 h: an hour lost, and 3 h without Mirage. observes: 2
    h lost, and an hour with a release that came an hour earlier.
    """
    clusters = impacts(audits, 0, int(time.time()) + 1, 3 * H)
    assert rows(clusters) == [
        ("acts", "1", "1", "1.0", "3.0", "2.0", "0"),
        ("observes (would be)", "1", "0", "1.0", "2.0", "1.0", "0"),
        ("all", "2", "1", "2.0", "5.0", "3.0", "0"),
    ]
    assert notes(clusters) == [
        "observes only observes: what would have been, had the releases been carried out."
    ]
    text = render(page(clusters, 0, int(time.time())))
    assert "2 clusters: 3.0 h of interruption saved, or would have been" in text
    assert "would have saved" in text


def test_handovers_of_unknown_waits_are_said(tmp_path: Path) -> None:
    now_s = int(time.time())
    unknown = handover(entered=None, started=now_s - H, ended=now_s - 2 * H)
    clusters = impacts({"a": log(tmp_path / "a", unknown)}, 0, now_s + 1, 3 * H)
    assert rows(clusters)[0] == ("a", "1", "0", "0", "0", "0", "0")
    assert notes(clusters) == ["a: 1 handover is not in the hours: the wait is not known."]


def test_the_command_and_a_log_that_is_missing(
    audits: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text('[clusters]\nacts = "a/audit.jsonl"\ngone = "c/audit.jsonl"\n')
    out = tmp_path / "page.html"
    assert main(["report", "--federation", str(file), "--out", str(out)]) == 1
    told = capsys.readouterr().out
    assert "gone: Audit log" in " ".join(told.split())
    assert "acts" in told
    assert "1 cluster: 2.0" in out.read_text()
    assert main(["report", "--federation", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["clusters"]["acts"]["handovers"] == 1
    assert "no such file" in found["clusters"]["gone"]["problem"]


def test_a_line_of_brackets_costs_that_line(
    audits: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_file = audits["acts"]
    log_file.write_bytes(b"[" * 100_000 + b"\n" + log_file.read_bytes() + b'{"at":' * 100_000)
    file = tmp_path / "clusters.toml"
    file.write_text('[clusters]\nacts = "a/audit.jsonl"\nobserves = "b/audit.jsonl"\n')
    assert main(["report", "--federation", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found["clusters"][name]["handovers"] for name in ("acts", "observes")] == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no toml",
        "[clusters]\n",
        "clusters = 1\n",
        "[clusters]\na = 1\n",
        '[clusters]\nall = "x"\n',
    ],
)
def test_a_file_that_names_no_logs_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    assert main(["report", "--federation", str(file)]) == 2
    assert "clusters.toml" in capsys.readouterr().err
    assert main(["report", "--out", str(tmp_path / "x.html")]) == 2


def test_a_file_that_is_no_audit_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "syslog"
    other.write_text('one line\n{"at": 3}\n')
    assert main(["report", "--audit", str(other)]) == 1
    assert capsys.readouterr().err == (
        f"mirage report: {other}: no line of it is one of an audit log. Name the service's.\n"
    )
    (cluster,) = impacts({"a": other}, 0, int(time.time()), 3 * H)
    assert (cluster.found, str(other) in cluster.problem) == (None, True)
