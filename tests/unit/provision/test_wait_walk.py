"""What a night learns of a queue log: no future, a range that holds, and an alarm where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.provision.starts.learned_folder import read_learned, told, write_learned
from mirage.provision.starts.queue_log import FEATURES, Floats, QueueLog, planned_log
from mirage.provision.starts.queue_scores import score_log
from mirage.provision.starts.walk import Walk
from slurm_sim.seconds import DAY_S, HOUR_S
from tests.queue_logs import FIRST_S, log_of

END_S = FIRST_S + 9 * DAY_S


def with_plans(log: QueueLog, planned_s: Floats) -> QueueLog:
    features = log.features.copy()
    features[:, -1] = planned_log(planned_s - log.poll_s)
    return replace(log, planned_s=planned_s, features=features)


def test_starts_that_come_later_change_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, days=10)
    later = np.where(log.start_s >= END_S, log.start_s + 5 * DAY_S, log.start_s)
    later = np.where(log.poll_s >= END_S, np.nan, later)
    now, other = (Walk(each).night(END_S) for each in (log, replace(log, start_s=later)))
    assert now is not None
    assert other is not None
    assert now.errors == other.errors
    rows = log.rows(log.poll_s >= END_S).features
    assert now.logs(rows).tolist() == other.logs(rows).tolist()


def test_waits_that_double_widen_the_range_and_are_said(tmp_path: Path) -> None:
    steady = Walk(log_of(tmp_path)).night(FIRST_S + 8 * DAY_S)
    changed = dict.fromkeys((9, 10, 11), 12.0)
    drifted = Walk(log_of(tmp_path, 12, changed)).night(FIRST_S + 14 * DAY_S)
    assert steady is not None
    assert drifted is not None
    assert not steady.has_drifted
    assert steady.errors[-1] - steady.errors[0] < drifted.errors[-1] - drifted.errors[0]


def test_like_jobs_answer_where_they_were_nearer_on_the_days_held_back(tmp_path: Path) -> None:
    """What is ahead says nothing here: jobs of a size wait for equally long."""
    log = log_of(tmp_path)
    waits_s = 3600.0 + 60 * log.column("req_cpus").astype(float)
    features = np.random.default_rng(2).normal(size=log.features.shape).astype(np.float32)
    own = [FEATURES.index(name) for name in ("req_cpus", "time_limit_sec", "planned_log")]
    features[:, own] = log.features[:, own]
    alike = replace(log, start_s=log.poll_s + waits_s, features=features)
    night = Walk(alike).night(FIRST_S + 8 * DAY_S)
    assert night is not None
    assert night.rule == "like jobs"
    assert night.off["like jobs"] < night.off["trees"]
    write_learned(tmp_path / "waits", night, len(log), FIRST_S)
    assert read_learned(tmp_path / "waits")[0].rule == "like jobs"
    assert told(night)[0].startswith("of new jobs like jobs answer: on days held back (")
    today = alike.rows(alike.day == alike.day[-1])
    assert np.allclose(Walk(alike).logs(today)[:, 2], np.log(today.wait_s), atol=0.1)


def test_slurms_plan_times_constants_answers_where_waits_follow_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    generator, rows = np.random.default_rng(3), len(log)
    planned_s = generator.lognormal(9.0, 1.0, rows)
    log = replace(log, start_s=log.poll_s + planned_s / 2 * generator.lognormal(0.0, 0.1, rows))
    night = Walk(with_plans(log, log.poll_s + planned_s)).night(FIRST_S + 8 * DAY_S)
    assert night is not None
    assert night.planned is not None
    assert night.planned.rule == "Slurm's plan"
    assert night.planned.errors[2] == pytest.approx(np.log(0.5), abs=0.05)


def test_too_few_starts_teach_nothing(tmp_path: Path) -> None:
    assert Walk(log_of(tmp_path, 3)).night(FIRST_S + 3 * DAY_S) is None


def test_slurms_own_plan_is_a_rule_where_the_log_has_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    found = score_log(
        with_plans(log, log.start_s + HOUR_S), FIRST_S + 7 * DAY_S, FIRST_S + 8 * DAY_S
    )
    assert [score.method for score in found.scores][-1] == "3 x squeue --start"
    assert found.scores[-1].covered is not None


def test_jobs_with_a_plan_are_forecast_by_what_waits_were_to_it(tmp_path: Path) -> None:
    plain = log_of(tmp_path)
    log = with_plans(plain, plain.poll_s + 3 * plain.wait_s)
    now_s = FIRST_S + 7 * DAY_S
    learned, before = Walk(log).night(now_s), Walk(plain).night(now_s)
    assert learned is not None
    assert before is not None
    assert learned.planned is not None
    write_learned(tmp_path / "waits", learned, len(log), int(now_s))
    again = read_learned(tmp_path / "waits")[0]
    today = log.rows(log.poll_s >= now_s)
    logs, without = (again.for_job(has_plan=each).logs(today.features) for each in (True, False))
    assert np.array_equal(logs, learned.planned.logs(today.features))
    assert np.array_equal(without, before.logs(today.features)), "no plan, no change"
    error, error_before = (
        np.abs(each[:, 2] - np.log(today.wait_s)).mean() for each in (logs, without)
    )
    assert error < error_before / 2
