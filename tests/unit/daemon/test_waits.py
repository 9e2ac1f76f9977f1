"""The service keeps the queue's log, and has it learnt from at night."""

from __future__ import annotations

import io
import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mirage.apps import learning_waits
from mirage.config import AdapterConfig, Config, DaemonConfig, RoutingConfig
from mirage.daemon.anywhere import Anywhere
from mirage.daemon.app import ServiceOptions, _Service
from mirage.daemon.observers import RoutingTable
from mirage.daemon.restraint import Acting
from mirage.daemon.waits import KEPT, LEARNT, QueueLogs
from mirage.doctor.finding import Severity
from mirage.doctor.service import check_waits
from mirage.domain import ActingMode, ClusterNode, Job, JobState, Snapshot
from mirage.provision.starts.keeping import QueueKeeper, job_key, kept_files, noted, starts_of
from mirage.provision.starts.learned_folder import read_learned, write_learned
from mirage.provision.starts.learnt import Learnt
from mirage.provision.starts.queue_log import read_queue_log, with_starts
from mirage.provision.starts.walk import NightlyWaits
from mirage.store.journal import Journal
from slurm_sim.seconds import DAY_S, HOUR_S
from tests.queue_logs import FIRST_S, learned_waits, write_log

NOW = 1_764_288_000


def job(number: int, **more: Any) -> Job:
    known = {"state": JobState.PENDING, "priority": number, "eligible_s": NOW - 60, "cpus": 2}
    known |= {"user": "zoe", "account": "lab", "partition": "gpu", "nodes": 1, "submit_s": NOW - 60}
    return Job(job_id=number, **{**known, "time_limit_s": HOUR_S, **more})  # type: ignore[arg-type]


def look(*jobs: Job, at_s: int = NOW) -> Snapshot:
    node = ClusterNode(name="n1", partitions=("gpu",), up=True, idle=False)
    return Snapshot(at_s=at_s, jobs=jobs, nodes=(node,))


def test_a_row_has_what_is_before_a_job_and_no_user():
    running = job(9, state=JobState.RUNNING, start_s=NOW - 1800, eligible_s=NOW - HOUR_S)
    other = job(8, account="else", partition="cpu", gpus=4)
    rows = noted(look(job(1), job(5), running, other), None, whole=True)
    last = next(row for row in rows if row["job_unique_id"] == "1")
    assert (last["q_jobs_above"], last["q_p_jobs_above"], last["q_p_a_jobs_above"]) == (2, 1, 1)
    assert (last["r_p_jobs_above"], last["r_p_core_hours_above"]) == (1, 1.0)
    assert (last["q_gpus_above"], last["q_p_gpus_above"]) == (4, 0)
    assert "zoe" not in str(rows)


def test_a_job_that_started_at_once_is_noted_with_its_wait(tmp_path: Path):
    quick = job(
        3, state=JobState.RUNNING, submit_s=NOW + 100, eligible_s=NOW + 100, start_s=NOW + 130
    )
    keeper = QueueKeeper(folder=tmp_path)
    for at_s, jobs in ((NOW, ()), (NOW + HOUR_S, (quick,)), (NOW + 4 * HOUR_S, (quick, job(4)))):
        keeper.note(look(*jobs, at_s=at_s))
    log = read_queue_log(kept_files(tmp_path)[-1:])
    assert log.keys.tolist() == ["3", "4"]
    assert log.wait_s.tolist()[0] == 30
    assert log.column("age_s").tolist() == [0, 4 * HOUR_S + 60]


def test_age_does_not_tell_which_new_job_has_started(tmp_path: Path):
    times = {"submit_s": NOW + 100, "eligible_s": NOW + 100}
    quick = job(3, state=JobState.RUNNING, start_s=NOW + 130, **times)
    rows = noted(look(quick, job(4, **times), at_s=NOW + 900), NOW, whole=True)
    assert [row["poll_time"] - row["submit_time"] for row in rows] == [0, 0]


def test_a_new_jobs_plan_is_the_first_one_and_one_never_seen_to_wait_has_none(tmp_path: Path):
    times = {"submit_s": NOW + 100, "eligible_s": NOW + 100}
    first, later = job(3, planned_s=NOW + 7000, **times), job(4, planned_s=NOW + 9000, **times)
    started = replace(first, state=JobState.RUNNING, start_s=NOW + 600, planned_s=None)
    quick = job(5, state=JobState.RUNNING, start_s=NOW + 130, **times)
    keeper = QueueKeeper(folder=tmp_path)
    keeper.note(look(job(1)))
    keeper.note(look(first, later, at_s=NOW + 160))
    later = replace(later, planned_s=NOW + 12_000)
    keeper.note(look(started, quick, later, at_s=NOW + HOUR_S))
    keeper.note(look(later, at_s=NOW + 4 * HOUR_S))
    log = read_queue_log(kept_files(tmp_path)[-1:])
    plans = dict(zip(log.keys.tolist()[:3], (log.planned_s - NOW).tolist()[:3], strict=True))
    assert plans == {"3": 7000, "4": 9000, "5": pytest.approx(np.nan, nan_ok=True)}


def test_of_identical_jobs_some_are_noted_and_old_files_go(tmp_path: Path):
    keeper = QueueKeeper(folder=tmp_path)
    keeper.note(look(*(job(number) for number in range(1, 101))))
    assert len(read_queue_log(kept_files(tmp_path))) == 10
    keeper.note(look(job(1), at_s=NOW + 41 * DAY_S))
    assert len(kept_files(tmp_path)) == 1
    again = QueueKeeper(folder=tmp_path)  # a service that starts anew
    again.note(look(job(1), at_s=NOW + 41 * DAY_S + 60))
    assert len(kept_files(tmp_path)) == 1


def test_a_task_that_slurm_has_split_off_is_found_in_accounting(tmp_path: Path):
    task = job(60, array_task="7")
    QueueKeeper(folder=tmp_path).note(look(task))
    started = replace(task, job_id=66, state=JobState.RUNNING, start_s=NOW + 500)
    assert job_key(task) == job_key(started) != job_key(job(60))
    log = with_starts(read_queue_log(kept_files(tmp_path)), starts_of([started]))
    assert log.wait_s.tolist() == [500]


def logs(folder: Path, started: list[Any]) -> QueueLogs:
    class Kept(io.BytesIO):
        def write(self, text: Any) -> int:
            started.append(json.loads(text))
            return 0

    def start(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(stdin=Kept(), poll=lambda: 0, returncode=0)

    return QueueLogs(
        state=folder,
        published=folder / "run" / LEARNT,
        cluster=AdapterConfig(),
        local_hour=lambda at_s: int(at_s // HOUR_S % 24),
        start=start,
    )


def test_it_trains_once_a_night_and_what_is_learnt_answers(tmp_path: Path, monkeypatch):
    started: list[Any] = []
    service = logs(tmp_path, started)
    for hour in range(48):
        service.queue_read(look(job(1), at_s=NOW + hour * HOUR_S))
        service.cycle_ended(True, 1.0, NOW + hour * HOUR_S)
    assert len(started) == 2
    (order, _) = started
    kept = tmp_path / KEPT
    write_log(kept / f"queue-{FIRST_S}.csv.gz")

    class Slurm:
        def accounting(self, *_: Any) -> list[Job]:
            return []

    monkeypatch.setattr(learning_waits, "connect", lambda _: SimpleNamespace(cluster=Slurm()))
    words = learning_waits.learn(order, FIRST_S + 8 * DAY_S)
    assert "of new jobs trees answer: on days held back (" in words
    for folder in (tmp_path / LEARNT, tmp_path / "run" / LEARNT):
        assert read_learned(folder)[0].judged > 0


def test_the_doctor_tells_which_rule_answers_and_warns_of_drift(tmp_path: Path):
    folder = tmp_path / "waits"
    (finding,) = check_waits(folder)
    assert "nothing is learnt of waits yet" in finding.what
    waits = learned_waits(tmp_path)
    write_learned(folder, waits, 1000, NOW)
    (finding,) = check_waits(folder)
    assert finding.severity is Severity.OK
    assert finding.what.startswith("of new jobs trees answer: on days held back (")
    write_learned(folder, replace(waits, covered=0.4), 1000, NOW)
    (finding,) = check_waits(folder)
    assert finding.severity is Severity.WARNING
    assert "only 40% of their last days' waits were in the range" in finding.what


def test_a_missing_package_is_told_in_a_line(monkeypatch, caplog):
    def learn(*_: Any) -> str:
        raise ModuleNotFoundError(name="xgboost")

    monkeypatch.setattr(learning_waits, "learn", learn)
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    monkeypatch.setattr(learning_waits.os, "nice", lambda _: 0)
    assert learning_waits.main() == 1
    assert "package xgboost is not installed: pip install 'mirage-slurm[train]'" in caplog.text


def test_a_restart_publishes_what_was_learnt(tmp_path: Path):
    (tmp_path / LEARNT).mkdir()
    (tmp_path / LEARNT / "recipe.toml").write_text("x")
    logs(tmp_path, []).queue_read(look(job(1)))
    assert (tmp_path / "run" / LEARNT / "recipe.toml").is_file()


def test_what_a_night_learnt_is_read_again_and_a_broken_one_is_told_once(tmp_path: Path):
    said: list[str] = []
    own, site = tmp_path / "own", tmp_path / "site"
    learnt = Learnt(folders=[own, site], warn=said.append)
    assert learnt.waits() is None
    waits = learned_waits(tmp_path)
    write_learned(site, waits, 1000, NOW)
    first = learnt.waits()
    assert first is not None
    assert learnt.waits() is first
    write_learned(own, waits, 1000, NOW)
    again = learnt.waits()
    assert again is not None
    assert again is not first
    write_learned(own, waits, 1000, NOW + 1)
    (own / "jobs.safetensors").write_bytes(b"{}")
    assert [learnt.waits(), learnt.waits()] == [None, None]
    assert len(said) == 1
    assert "changed since it was written" in said[0]


def test_the_service_gives_what_was_learnt_to_the_plugins_table_and_to_anywhere(tmp_path: Path):
    speeds = tmp_path / "speeds.toml"
    speeds.write_text("v100 = 0.5\n")
    config = Config(
        daemon=DaemonConfig(store=f"sqlite:///{tmp_path}/mirage.db"),
        routing=RoutingConfig(partitions="gpu", speeds=str(speeds)),
    )
    journal = Journal(path=tmp_path / "audit.jsonl", max_bytes=1 << 20, max_age_s=DAY_S, keep=1)
    options = ServiceOptions(
        config=config,
        acting=Acting(mode=ActingMode.OBSERVE),
        journal=journal,
        only_user=None,
        socket="",
        open_page=None,
        once=True,
    )
    write_learned(tmp_path / LEARNT, learned_waits(tmp_path), 1000, NOW)
    with ExitStack() as stack:
        observers = {type(each): each for each in _Service(options, stack)._observers}
        anywhere: Any = observers[Anywhere]
        table: Any = observers[RoutingTable]
        learned = anywhere.learned()
        assert isinstance(learned, NightlyWaits)
        assert table.publish.__self__.learned() is learned
