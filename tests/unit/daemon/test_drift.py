"""The drift alarm: when it must be given, when it must not, where it is told, and that it clears."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from mirage.cli.main import main
from mirage.config import PolicyConfig
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.drift import DAY_S, FEWEST_DAYS, Drift, DriftKind, drift
from mirage.daemon.drift_alarm import EVERY_S, DriftAlarm
from mirage.daemon.metrics import Metrics
from mirage.daemon.socket import Source, ask, serving
from mirage.doctor.finding import Severity
from mirage.doctor.service import check_drift
from mirage.store.journal import Journal
from mirage.store.repository import SqlStore

H = 3600
NOW_S = 20_000 * DAY_S
P10_S, P50_S, P90_S = 1 * H, 4 * H, 12 * H
MODEL = {"folder": "m", "version": "v1"}


def pair(number, at_s, wait_s, *, model=MODEL, reason="quantile: better now"):
    """A successor that was let in at this time, and waited so long."""
    about = {"user": "alice", "chain": "c", "predecessor": 1, "successor": number}
    decision = {
        "kind": "decision", "at": at_s, "model": model, "reason": reason, "remaining_s": 4 * H, "action": "release",
        "held_back": None, "wait_p10_s": P10_S, "wait_p50_s": P50_S, "wait_p90_s": P90_S,
    }  # fmt: skip
    handover = {
        "kind": "handover", "at": at_s + wait_s, "released": at_s, "entered": at_s, "started": at_s + wait_s,
        "ready": at_s + wait_s, "predecessor_ended": at_s + 4 * H, "nodes": 1, "predecessor_started": 0,
        "interruption_s": 0, "down_s": 0, "overlap_s": 0, "cut_short_s": 0,
    }  # fmt: skip
    return [about | decision, about | handover]


def weeks(wait_s, days=27, a_day=3, **more):
    """``wait_s(day)``: of each successor of that day, counted back from now."""
    rows = []
    for day in range(days, 0, -1):
        for nth in range(a_day):
            rows += pair(day * 100 + nth, NOW_S - day * DAY_S, wait_s(day), **more)
    return rows


def calibrated(seed):
    chance = random.Random(seed)
    days = [
        chance.choices((H // 2, 2 * H, 8 * H, 20 * H), (0.1, 0.4, 0.4, 0.1))[0] for _ in range(60)
    ]
    return lambda day: days[day]  # one queue a day: all of its waits are alike


def kinds(found: Drift) -> list[DriftKind]:
    return [alarm.kind for alarm in found.alarms]


def test_calibrated_predictions_give_no_alarm_though_the_waits_of_a_day_are_all_alike():
    false = [seed for seed in range(300) if drift(weeks(calibrated(seed)), NOW_S).alarms]
    assert len(false) <= 3, "FALSE_ALARM is one in a hundred"


def test_waits_beyond_the_p90_alarm_and_say_what_to_do():
    found = drift(weeks(lambda day: 20 * H if day % 3 else 8 * H), NOW_S)
    assert kinds(found) == [DriftKind.TOO_SHORT]
    assert "of 81 waits on 27 days" in found.words
    assert "33% at or below the 90% quantile" in found.words
    assert found.words.endswith("Run `mirage retrain` (docs/retraining.md).")


def test_waits_below_the_p10_alarm():
    assert kinds(drift(weeks(lambda day: 60), NOW_S)) == [DriftKind.TOO_LONG]


def test_waits_of_zero_that_were_foretold_as_zero_are_right():
    rows = weeks(lambda day: 0)
    for row in rows:
        if row["kind"] == "decision":
            row |= {"wait_p10_s": 0, "wait_p50_s": 0, "wait_p90_s": 0}
    assert drift(rows, NOW_S).alarms == ()


def test_hundreds_of_bad_waits_on_a_few_days_are_no_drift():
    found = drift(weeks(lambda day: 20 * H, days=FEWEST_DAYS - 1, a_day=90), NOW_S)
    assert found.at_most["p90"].cases == 90 * (FEWEST_DAYS - 1)
    assert found.alarms == ()


def test_a_model_in_strange_states_alarms_and_its_stand_in_is_not_judged():
    rows = weeks(lambda day: 20 * H, reason="[out-of-range: queued_jobs 9 > 3] x")
    found = drift(rows, NOW_S)
    assert kinds(found) == [DriftKind.STRANGE]
    assert found.at_most["p50"].cases == 0
    few = [
        row
        for day in range(1, 28)
        for nth in range(20)
        for row in pair(
            day * 100 + nth,
            NOW_S - day * DAY_S,
            0,
            reason="[out-of-range: x] y" if nth < 3 else "z",
        )
    ]
    assert DriftKind.STRANGE not in kinds(drift(few, NOW_S)), "15% on 27 days may be chance"


def test_the_alarm_clears_with_another_model_and_with_time():
    rows = weeks(lambda day: 20 * H)
    assert drift(rows, NOW_S).alarms
    new = pair(1, NOW_S - 60, 30, model={"folder": "m", "version": "v2"})
    assert drift([*rows, *new], NOW_S).model == "v2"
    assert drift([*rows, *new], NOW_S).alarms == ()
    assert drift(rows, NOW_S + 28 * DAY_S).alarms == ()


def test_without_a_model_nothing_is_judged():
    assert drift(weeks(lambda day: 20 * H, model=None), NOW_S) == Drift()
    assert drift([None, {"at": NOW_S, "kind": "decision"}], NOW_S) == Drift()


@pytest.fixture
def drifted(tmp_path: Path) -> Journal:
    """An audit log of the last weeks, by this machine's clock."""
    late_s = int(time.time()) - NOW_S
    rows = [
        {
            key: value + late_s if key in ("at", "released", "entered", "started") else value
            for key, value in row.items()
        }
        for row in weeks(lambda day: 20 * H)
    ]
    journal = Journal(
        path=tmp_path / "audit.jsonl", max_bytes=1 << 30, max_age_s=400 * DAY_S, keep=9
    )
    journal.append(rows)
    return journal


def test_log_metrics_and_status_tell_and_take_it_back(
    drifted: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    metrics, now_s = Metrics("enforce", "quantile"), int(time.time())
    reading = AuditSummary(drifted.path, H, now_s=lambda: now_s)
    alarm = DriftAlarm(reading, (metrics,))

    def gauge():
        return metrics.registry.get_sample_value("mirage_drift", {"why": DriftKind.TOO_SHORT.value})

    def look():
        alarm.check()
        reading.wait()
        alarm.check()

    alarm.check()
    assert (alarm.words, gauge()) == ("", 0), "a cycle does not wait for the reading"
    look()
    assert gauge() == 1
    with (
        SqlStore.open("sqlite://") as store,
        serving(tmp_path / "s", Source(store=store, notice=lambda: alarm.words)),
    ):
        assert ask(tmp_path / "s", {"ask": "chains", "chain": None})["notice"] == alarm.words != ""
    drifted.path.unlink()
    drifted.append(pair(1, now_s - 60, 30))
    now_s += EVERY_S - 1
    look()
    assert alarm.words, "it looks now and then, not in each cycle"
    now_s += 1
    look()
    assert (alarm.words, gauge()) == ("", 0)
    assert [record.levelname for record in caplog.records if "fits" in record.message] == [
        "WARNING"
    ]


def test_a_log_that_is_not_there_is_no_drift(tmp_path: Path):
    reading = AuditSummary(tmp_path / "none.jsonl", H, now_s=lambda: NOW_S)
    alarm = DriftAlarm(reading)
    for _ in range(2):
        alarm.check()
        reading.wait()
    assert alarm.words == ""


def test_report_and_doctor_tell(
    drifted: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["report", "--weeks", "4", "--audit", str(drifted.path)]) == 0
    assert "mirage retrain" in " ".join(capsys.readouterr().out.split())
    assert main(["report", "--audit", str(drifted.path), "--json"]) == 0
    (alarm,) = json.loads(capsys.readouterr().out)["drift"]["alarms"]
    assert alarm["kind"] == "waits-longer-than-predicted"
    (finding,) = check_drift(drifted.path, PolicyConfig(model="m"))
    assert (finding.severity, finding.do) == (
        Severity.WARNING,
        "Run `mirage retrain` (docs/retraining.md).",
    )
    drifted.path.unlink()
    assert list(check_drift(drifted.path, PolicyConfig(model="m"))) == []
    drifted.append(pair(1, int(time.time()) - 60, 30))
    (finding,) = check_drift(drifted.path, PolicyConfig(model="m"))
    assert finding.severity is Severity.OK
    assert list(check_drift(drifted.path, PolicyConfig())) == []
