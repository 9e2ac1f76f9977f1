"""The weekly report: figures from an audit log that are worked out by hand here."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mirage.cli.main import main
from mirage.daemon.impact import Calibration, Costs, impact
from mirage.daemon.impact_words import sentences
from mirage.store.journal import Journal

H = 3600
ABOUT = {"user": "alice", "chain": "c", "predecessor": 1}


def decision(at_s, action="release", *, successor=2, held_back=None, waits=(1 * H, 2 * H, 4 * H)):
    p10, p50, p90 = waits
    return ABOUT | {
        "at": at_s, "kind": "decision", "successor": successor, "action": action, "held_back": held_back,
        "wait_p10_s": p10, "wait_p50_s": p50, "wait_p90_s": p90,
    }  # fmt: skip


def handover(
    *, successor=2, released=None, entered, started, ended, overlap=0, cut_short=0, nodes=2, at=None,
    ready=None, down=0,
):  # fmt: skip
    ready = started if ready is None else ready
    return ABOUT | {
        "at": max(started, ended) if at is None else at, "kind": "handover", "successor": successor, "nodes": nodes,
        "released": released, "entered": entered, "started": started, "predecessor_started": 0,
        "ready": ready, "predecessor_ended": ended, "interruption_s": max(0, ready - ended), "overlap_s": overlap,
        "cut_short_s": cut_short, "down_s": down,
    }  # fmt: skip


def outcome(at_s, word="released", successor=2):
    return ABOUT | {"at": at_s, "kind": "outcome", "successor": successor, "outcome": word}


def of(*records, since_s=0, until_s=1000 * H, lead_s=3 * H):
    return impact(records, since_s, until_s, lead_s)


def test_a_release_that_came_an_hour_late():
    """Let in 2 h before the end at 24 h, waited 3 h: an hour interrupted, where Slurm alone would
    take 3.
    """
    found = of(
        decision(10 * H, "wait"),
        decision(22 * H),
        outcome(22 * H),
        handover(released=22 * H, entered=22 * H, started=25 * H, ended=24 * H),
    )
    assert (found.handovers, found.released, found.decisions, found.outcomes) == (
        1,
        1,
        2,
        {"released": 1},
    )
    assert found.measured == found.compared == Costs(1 * H, 0)
    assert found.reactive == Costs(3 * H, 0)
    assert found.timer == Costs(0, 0)
    assert found.policy == Costs(1 * H, 0)
    assert found.calibration == Calibration(waits=1, below_p10=0, below_p50=0, below_p90=1)


def test_training_handovers_have_a_cost_and_the_fallbacks_decisions_are_counted():
    found = of(
        decision(20 * H, "wait") | {"handover_s": 600, "reason": "[stale: old] x"},
        decision(21 * H, "wait") | {"handover_s": 600, "reason": "x"},
        decision(22 * H) | {"handover_s": 900, "reason": "[out-of-range: forecast_h] x"},
        decision(22 * H, "wait", successor=3) | {"handover_s": None, "reason": "[stale] x"},
        handover(released=22 * H, entered=22 * H, started=24 * H, ended=24 * H),
    )
    assert (found.training, found.handover_cost_s) == (1, 900)
    assert found.fallbacks == {"stale": 2, "out-of-range": 1}
    words = " ".join(sentences(found))
    assert "1 handover of training chains cost 15 min (15 min each)" in words
    assert "Time limit that a predecessor does not use costs nothing more." in words
    assert "Decisions by the fallback: 75.0% (out-of-range 25.0%, stale 50.0%)." in words


def test_a_release_that_came_too_early_cuts_its_predecessor_short():
    """Let in 4 h before the end, waited 1 h, so the predecessor gave up 3 h; the timer's lead of 3
    h overlaps for 2.
    """
    found = of(
        decision(20 * H),
        outcome(20 * H),
        handover(released=20 * H, entered=20 * H, started=21 * H, ended=21 * H, cut_short=3 * H),
    )
    assert (found.measured, found.overlap_s, found.cut_short_s) == (Costs(0, 3 * H), 0, 3 * H)
    assert found.reactive == Costs(1 * H, 0)
    assert found.timer == Costs(0, 2 * H)
    assert found.policy == Costs(0, 3 * H)
    assert found.calibration == Calibration(waits=1, below_p10=1, below_p50=1, below_p90=1)


def test_a_service_is_interrupted_until_its_link_is_ready():
    """Let in 2 h before the end at 24 h, waited 2 h, and needed half an hour to start."""
    found = of(
        decision(21 * H),
        outcome(22 * H),
        handover(
            released=22 * H, entered=22 * H, started=24 * H, ready=24 * H + 1800, ended=24 * H
        ),
    )
    assert found.measured == Costs(1800, 0)
    assert found.reactive == Costs(2 * H + 1800, 0)
    assert found.timer == Costs(0, 1 * H)
    assert found.policy == Costs(0, 1 * H)
    assert found.calibration.waits == 1


def test_services_have_an_up_time_a_longest_gap_and_node_hours_held_twice():
    """One handover in time, and one that left the service without a link for half an hour."""
    of_service = {"handover_s": None, "reason": "x"}
    found = of(
        decision(21 * H) | of_service,
        handover(
            released=21 * H, entered=21 * H, started=22 * H, ready=23 * H, ended=23 * H, overlap=H,
            down=900,
        ),
        decision(70 * H, successor=3) | of_service,
        handover(
            successor=3, released=70 * H, entered=70 * H, started=71 * H, ended=71 * H,
            ready=71 * H + 1800,
        ),
        decision(90 * H, successor=4) | {"handover_s": 600, "reason": "x"},
        handover(successor=4, released=90 * H, entered=90 * H, started=99 * H, ended=91 * H),
    )  # fmt: skip
    services = found.services
    assert (services.handovers, services.wall_s, services.down_s) == (2, 94.5 * H, 2700)
    assert services.up_time == pytest.approx(1 - 0.75 / 94.5)
    assert (services.longest_gap_s, services.twice_node_s) == (1800, 2 * H)
    assert found.as_json()["services"]["up_time"] == services.up_time
    assert (
        "2 handovers of services: up for 99.21% of the time, the longest gap 30 min;"
        " 2.0 node-hours held twice (1.1%)." in sentences(found)
    )
    assert not any("of services" in line for line in sentences(of()))


def test_overlap_is_what_both_ran_and_counts_by_nodes():
    found = of(
        handover(released=20 * H, entered=20 * H, started=21 * H, ended=24 * H, overlap=3 * H)
    )
    assert (found.measured, found.overlap_s, found.overlap_node_s) == (
        Costs(0, 3 * H),
        3 * H,
        6 * H,
    )


def test_what_a_service_that_only_observes_would_have_brought():
    held = {"held_back": "observe"}
    found = of(
        decision(19 * H, "wait", **held),
        decision(20 * H, **held),
        decision(21 * H, **held),
        handover(entered=24 * H, started=29 * H, ended=24 * H),
    )
    assert (found.released, found.held_back) == (0, {"observe": 1})
    assert found.measured == found.reactive == Costs(5 * H, 0)
    assert found.policy == Costs(1 * H, 0)
    assert found.calibration == Calibration(waits=1, below_p10=0, below_p50=0, below_p90=0)


def test_what_its_owner_let_in_is_measured_and_not_estimated():
    found = of(handover(entered=5 * H, started=25 * H, ended=24 * H))
    assert (found.measured, found.compared, found.reactive, found.not_known) == (
        Costs(H, 0),
        Costs(),
        Costs(),
        1,
    )


def test_only_the_period_counts():
    found = of(
        handover(successor=9, entered=2 * H, started=3 * H, ended=2 * H, at=3 * H),
        handover(entered=24 * H, started=25 * H, ended=24 * H),
        since_s=10 * H,
    )
    assert (found.handovers, found.measured.interruption_s) == (1, H)


def test_what_a_link_loses_as_slurm_requeues_it_is_measured_and_not_estimated():
    again = [
        handover(successor=2, entered=at_s, started=at_s + H, ended=at_s) | {"predecessor": 2}
        for at_s in (30 * H, 40 * H)
    ]
    found = of(handover(entered=24 * H, started=25 * H, ended=24 * H), *again)
    assert (found.measured.interruption_s, found.reactive.interruption_s) == (3 * H, H)
    assert found.not_known == 2


def test_a_timer_can_not_let_in_before_the_predecessor_starts():
    found = of(handover(entered=1 * H, started=2 * H, ended=1 * H), lead_s=3 * H)
    assert found.timer == Costs(0, 0)


def test_what_is_still_open_and_what_can_not_be_read_is_counted():
    found = of(decision(1), outcome(1), None, {"at": 5, "kind": "decision"}, {"at": 5, "kind": "?"})
    assert (found.handovers, found.open_releases, found.unreadable) == (0, 1, 3)


@pytest.fixture
def log(tmp_path) -> Path:
    now_s = int(time.time())
    journal = Journal(path=tmp_path / "audit.jsonl", max_bytes=1 << 20, max_age_s=1 << 40, keep=3)
    journal.append(
        [
            decision(now_s - 3 * H),
            outcome(now_s - 3 * H),
            handover(
                released=now_s - 3 * H,
                entered=now_s - 3 * H,
                started=now_s - H,
                ended=now_s - H,
                at=now_s - H,
            ),
        ]
    )
    return journal.path


def test_the_report_in_words_says_what_is_estimated(log, capsys):
    assert main(["report", "--weeks", "2", "--audit", str(log)]) == 0
    told = capsys.readouterr().out
    assert "1 handover, of which Mirage let in 1. 1 decision." in told
    assert (
        "Against reactive (estimated): 2.0 h of interruption avoided, 0 h more too early." in told
    )
    assert (
        "Against the timer (estimated): 0 h of interruption avoided, 1.0 h less too early." in told
    )
    assert "of 1 real wait 0% were below the predicted 10% quantile, 100% below the 50%" in told
    assert "Measured: from Slurm's own times. Estimated: as if" in told


def test_a_service_that_only_observes_tells_what_it_would_have_saved():
    found = of(
        decision(21 * H, held_back="observe"),
        handover(entered=24 * H, started=26 * H, ended=24 * H),
    )
    assert found.only_observed
    assert found.as_json()["only_observed"]
    words = sentences(found)
    assert words[1] == (
        "Mirage only observed. With its releases carried out it would have saved (estimated)"
        " 2.0 h of interruption, for 1.0 h more too early."
    )
    assert not any("Against" in each for each in words)
    acted = of(
        decision(21 * H, held_back="observe"),
        decision(22 * H),
        handover(released=22 * H, entered=22 * H, started=24 * H, ended=24 * H),
    )
    assert not acted.only_observed


def test_the_report_for_programs(log, capsys):
    assert main(["report", "--audit", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["handovers"], found["timer_lead_s"]) == (1, 10_800)
    assert found["reactive"] == {"interruption_s": 2 * H, "early_s": 0}


def test_without_an_audit_log_the_report_says_where_it_looked(tmp_path, capsys):
    assert main(["report", "--audit", str(tmp_path / "none.jsonl")]) == 1
    assert f"Audit log {tmp_path / 'none.jsonl'}: no such file" in capsys.readouterr().err


def test_a_log_of_somebody_else_says_who_may_read_it(log, capsys, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert main(["report", "--audit", str(log)]) == 1
    told = capsys.readouterr().err
    assert f"{log}: Permission denied. Ask as its owner or root" in told


def test_a_line_of_brackets_costs_that_line(log, capsys):
    log.write_bytes(b"[" * 100_000 + b"\n" + log.read_bytes() + b'{"at":' * 100_000)
    assert main(["report", "--audit", str(log), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["handovers"] == 1


def test_a_file_that_is_no_audit_log_is_refused(tmp_path, capsys):
    other = tmp_path / "syslog"
    other.write_text('one line\n{"at": 3}\n')
    assert main(["report", "--audit", str(other)]) == 1
    assert capsys.readouterr().err == (
        f"mirage report: {other}: no line of it is one of an audit log. Name the service's.\n"
    )
