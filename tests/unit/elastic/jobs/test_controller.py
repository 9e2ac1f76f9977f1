"""The controller on a simulated Slurm."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mirage.domain import JobState, Snapshot
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.act import lease_watch
from mirage.elastic.jobs.journal import JobJournal
from mirage.elastic.jobs.limits import JobCounts
from mirage.elastic.jobs.request import NO_SERVERS, TaskRequest, WorkerRequest
from mirage.errors import ClusterUnavailable
from mirage.ports import Cluster
from mirage.slurm.simulated import SimulatedCluster
from tests.unit.elastic.jobs.site import ALICE, NOW, REQUEST, ElasticSite


@pytest.fixture
def site(tmp_path: Path) -> ElasticSite:
    return ElasticSite(tmp_path)


def test_a_job_starts_with_its_least_tasks_and_grows_into_idle_gpus(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    controller.cycle()
    assert [tag.task for tag in site.tasks().values()] == ["c1"]
    site.run(controller, 600)
    assert Counter(tag.task[0] for tag in site.tasks().values() if not tag.is_extra) == {
        "c": 1,
        "s": 1,
        "w": 1,
    }
    assert site.count("w") == 6
    assert sum(tag.is_extra for tag in site.tasks().values() if tag.task[0] == "w") == 5


def test_a_task_has_the_time_that_is_left_of_the_job(site: ElasticSite) -> None:
    site.add()
    site.run(site.controller(), 900)
    limits = {tag.task: site.sim.job(job_id).time_limit_s for job_id, tag in site.tasks().items()}
    started = min(job.start_s or 0 for job in site.sim.running())
    assert limits.pop("c1") == REQUEST.time_s
    for job in site.sim.running():
        assert (job.submit_s + (job.time_limit_s or 0)) <= started + REQUEST.time_s + 60


def test_extra_tasks_go_as_soon_as_somebody_queues(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    site.run(controller, 600)
    waiting = site.others_job(nodes=2)
    site.run(controller, 120)
    started = site.sim.job(waiting)
    assert started.start_s is not None
    assert started.start_s - started.submit_s <= 60
    assert 1 <= site.count("w") <= 4


def test_a_polite_job_takes_nothing_while_somebody_queues(site: ElasticSite) -> None:
    site.add()
    for _ in range(3):
        site.others_job(runtime_s=4000)
    site.others_job(nodes=4)  # can't start for long; one node stays idle but for the least worker
    site.sim.step(30)
    controller = site.controller()
    site.run(controller, 1200)
    assert site.count("w", running=False) == 1


def test_an_impolite_job_keeps_what_it_has(site: ElasticSite) -> None:
    site.add()
    controller = site.controller(is_polite=False)
    site.run(controller, 600)
    site.others_job(nodes=3)
    site.run(controller, 600)
    assert site.count("w") == 6


def test_a_worker_that_somebody_cancels_is_replaced(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    site.run(controller, 600)
    victim = next(job_id for job_id, tag in site.tasks().items() if tag.task == "w3")
    site.sim.cancel(victim)
    site.run(controller, 60)
    assert site.count("w") == 6
    assert site.trainings["mnist"].gone_names == ["w3"]
    record = JobJournal(site.root / "mnist").record
    assert record.tasks["w3"].end == "CANCELLED"
    assert not record.end


def test_a_coordinator_that_died_is_started_again(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    site.run(controller, 100)
    first = next(job_id for job_id, tag in site.tasks().items() if tag.task == "c1")
    site.sim.cancel(first)
    site.run(controller, 60)
    assert [tag.task for tag in site.tasks(running=True).values() if tag.task[0] == "c"] == ["c2"]


def test_its_owner_stops_it(site: ElasticSite) -> None:
    folder = site.add()
    controller = site.controller()
    site.run(controller, 600)
    (folder / files.STOP).touch()
    site.run(controller, 120)
    assert not site.tasks()
    assert JobJournal(folder).record.end == "stopped"
    assert site.trainings["mnist"].state == "stopped"


def test_a_job_that_ran_out_of_time_is_resumed_with_its_whole_time(site: ElasticSite) -> None:
    request = replace(REQUEST, time="30:00")
    folder = site.add(request)
    controller = site.controller()
    site.run(controller, request.time_s + 300, every_s=30)
    assert JobJournal(folder).record.end == "time limit"
    site.trainings.clear()
    files.resume_job(folder, site.sim.now_s)
    resumed_s = site.sim.now_s
    site.run(controller, 600)
    record = JobJournal(folder).record
    assert not record.end
    assert record.deadline_s is not None
    assert record.deadline_s >= resumed_s + request.time_s
    assert {task.name[0] for task in record.alive} == {"c", "s", "w"}
    assert len({task.job_id for task in record.tasks.values()}) == len(record.tasks)


def test_a_finished_training_ends_the_job(site: ElasticSite) -> None:
    folder = site.add()
    controller = site.controller()
    site.run(controller, 300)
    site.trainings["mnist"].state = "finished"
    site.run(controller, 120)
    assert not site.tasks()
    assert JobJournal(folder).record.end == "done"


def test_it_ends_in_time(site: ElasticSite) -> None:
    folder = site.add(time="00:20:00")
    site.run(site.controller(), 2000)
    record = JobJournal(folder).record
    assert record.end == "time limit"
    assert record.end_s is not None
    assert record.end_s <= NOW + 1220
    assert not site.tasks()


def test_a_worker_that_can_not_run_ends_the_job(site: ElasticSite) -> None:
    def behaviour(script: str) -> tuple[int | None, int]:
        return (2, 1) if ".worker " in Path(script).read_text() else (None, 0)

    site.cluster = SimulatedCluster(site.sim, ALICE, behaviour=behaviour)
    folder = site.add()
    site.run(site.controller(), 600)
    record = JobJournal(folder).record
    assert record.end == "failed"
    assert "3 workers in a row failed" in record.why
    assert f"logs/w6.{record.tasks['w6'].job_id}.out" in record.why
    assert not site.tasks()


def test_limits_of_slurm_and_the_users_own_cap_are_kept(site: ElasticSite) -> None:
    site.counts = JobCounts(max_jobs=5, max_submit=6)
    site.add()
    site.run(site.controller(), 900)
    assert len(site.tasks()) == 5


def test_the_cap_of_gpus_is_kept(site: ElasticSite) -> None:
    site.add()
    site.add(replace(REQUEST, name="other"))
    site.run(site.controller(most_gpus=3), 900)
    assert site.count("w", running=False) == 3


def test_two_jobs_share_the_gpus(site: ElasticSite) -> None:
    site.add()
    site.add(replace(REQUEST, name="other"))
    site.run(site.controller(policy="drf", reserve=0), 1200)
    workers = Counter(tag.job for tag in site.tasks().values() if tag.task[0] == "w")
    assert sorted(workers.values()) == [4, 4]


def test_no_answer_of_slurm_costs_only_the_cycle(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    site.run(controller, 600)
    before = site.tasks()
    site.cluster.down = True
    site.run(controller, 100)
    site.cluster.down = False
    site.cluster.empty_queue_answers = 2
    site.run(controller, 30)
    assert site.tasks() == before


def test_a_task_that_can_not_start_is_told_once(
    site: ElasticSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = site.add()
    seen = site.cluster.snapshot

    def too_long() -> Snapshot:
        jobs = [
            replace(job, state=JobState.PENDING, reason="PartitionTimeLimit", start_s=None)
            for job in seen().jobs
        ]
        return replace(seen(), jobs=tuple(jobs))

    monkeypatch.setattr(site.cluster, "snapshot", too_long)
    controller = site.controller()
    for _ in range(3):
        controller.cycle()
    stuck = files.read_status(folder)["stuck"]
    assert "(PartitionTimeLimit)" in stuck
    assert caplog.text.count("Slurm can't start as they are") == 1


def test_status_has_what_slurm_says_against_a_task(site: ElasticSite) -> None:
    folder = site.add(coordinator=TaskRequest(partition="none"))
    controller = site.controller()
    controller.cycle()
    assert "invalid partition specified: none" in files.read_status(folder)["refused"]
    other = site.add(name="other")
    controller.cycle()
    assert files.read_status(other)["refused"] is None


def test_status_tells_what_is(site: ElasticSite) -> None:
    folder = site.add()
    site.run(site.controller(), 600)
    status = files.read_status(folder)
    assert status["state"] == "running"
    assert status["wanted"] == {"workers": 6, "servers": status["wanted"]["servers"]}
    assert status["gpu_seconds"] > 6 * 200
    json.dumps(status)


def test_a_job_without_workers_waits_for_idle_gpus(site: ElasticSite) -> None:
    site.add(workers=WorkerRequest(min=0, max=4, gpus=1))
    for _ in range(4):
        site.others_job(runtime_s=900)
    site.others_job()
    controller = site.controller()
    site.run(controller, 600)
    assert site.count("w", running=False) == 0
    site.run(controller, 1200)
    assert site.count("w") == 4


# --- kill -9


class Killed(BaseException):
    """What a test raises in place of kill -9: nothing catches it."""


class KillingCluster(Cluster):
    """Dies at the n-th submission or cancellation, before it or after it."""

    def __init__(self, cluster: Cluster, at: int, *, after: bool) -> None:
        self._cluster, self._left, self._after = cluster, at, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def _maybe(self, *, after: bool) -> None:
        if after == self._after:
            self._left -= 1
            if self._left == 0:
                raise Killed

    def submit(self, args: Sequence[str], script: str) -> int:
        self._maybe(after=False)
        job_id = self._cluster.submit(args, script)
        self._maybe(after=True)
        return job_id

    def cancel(self, job_ids: Collection[int]) -> None:
        self._maybe(after=False)
        self._cluster.cancel(job_ids)
        self._maybe(after=True)


for _name in (
    "snapshot",
    "jobs",
    "accounting",
    "submissions",
    "node_events",
    "settings",
    "release",
):
    setattr(
        KillingCluster,
        _name,
        lambda self, *args, _name=_name: getattr(self._cluster, _name)(*args),
    )


@pytest.mark.parametrize("after", [False, True], ids=["before the act", "after the act"])
@pytest.mark.parametrize("at", [1, 5, 9])
def test_a_killed_controller_is_followed_by_one_that_goes_on(
    site: ElasticSite, at: int, after: bool
) -> None:
    folder = site.add()
    seen: Counter[tuple[str, int]] = Counter()
    dying = site.controller(KillingCluster(site.cluster, at, after=after))
    with pytest.raises(Killed):
        _with_traffic(site, dying, seen)
    second = site.controller()
    _with_traffic(site, second, seen)
    for (task, _), _count in seen.items():
        ids = {job_id for name, job_id in seen if name == task}
        assert len(ids) == 1, f"{task} was submitted twice: {ids}"
    site.run(second, 600)
    assert site.count("w") == 6
    assert site.count("c") == 1
    (folder / files.STOP).touch()
    site.run(second, 200)
    assert not site.tasks()
    assert JobJournal(folder).record.end == "stopped"


def _with_traffic(site: ElasticSite, controller: object, seen: Counter[tuple[str, int]]) -> None:
    """Some minutes in which others come and go."""
    for minute in range(9):
        if minute == 4:
            site.others_job(nodes=3, runtime_s=100)
        for _ in range(6):
            try:
                controller.cycle()  # type: ignore[attr-defined]
            finally:
                for job_id, tag in site.tasks().items():
                    seen[tag.task, job_id] += 1
            site.sim.step(10)


def test_a_submission_without_an_answer_is_found_by_its_tag(site: ElasticSite) -> None:
    class Mute(KillingCluster):
        def submit(self, args: Sequence[str], script: str) -> int:
            self._cluster.submit(args, script)
            raise ClusterUnavailable("sbatch: no answer")

    folder = site.add()
    site.controller(Mute(site.cluster, 0, after=True)).cycle()
    record = JobJournal(folder).record
    assert [(task.name, task.job_id) for task in record.alive] == [("c1", None)]
    controller = site.controller()
    site.run(controller, 100)
    record = JobJournal(folder).record
    assert record.tasks["c1"].job_id is not None
    assert site.count("c") == 1


def test_a_node_stays_idle_for_the_next_job_of_others(site: ElasticSite) -> None:
    site.add(workers=WorkerRequest(min=1, max=8, shards=0))
    controller = site.controller(reserve=1)
    site.run(controller, 600)
    assert site.count("w") == 6
    for _ in range(2):
        job = site.others_job(runtime_s=4000)
        site.run(controller, 60)
        found = site.sim.job(job)
        assert found.start_s is not None
        assert found.start_s - found.submit_s <= 1, "it has the idle node at once"
    assert site.count("w") == 2


def test_without_a_reserve_every_idle_gpu_is_taken(site: ElasticSite) -> None:
    site.add(workers=WorkerRequest(min=1, max=8, shards=0))
    site.run(site.controller(reserve=0), 600)
    assert site.count("w") == 8


def test_a_worker_that_has_not_registered_yet_is_cancelled_at_once(site: ElasticSite) -> None:
    site.add()
    controller = site.controller()
    site.run(controller, 600)
    site.trainings["mnist"].unregistered = {"w5", "w6"}
    waiting = site.others_job(nodes=2)
    site.run(controller, 30)
    assert site.sim.job(waiting).start_s is not None
    record = JobJournal(site.root / "mnist").record
    assert [record.tasks[name].cancelled_s for name in ("w5", "w6")] == [
        record.tasks[name].drained_s for name in ("w5", "w6")
    ]


def test_a_job_by_all_reduce_grows_without_servers(site: ElasticSite) -> None:
    site.add(plane="all-reduce", servers=NO_SERVERS)
    controller = site.controller()
    site.run(controller, 900)
    assert (site.count("w"), site.count("s"), site.count("c")) == (6, 0, 1)
    waiting = site.others_job(nodes=2)
    site.run(controller, 120)
    assert site.sim.job(waiting).start_s is not None
    assert site.count("s", running=False) == 0


def test_only_extra_tasks_need_the_lease_that_each_cycle_renews(site: ElasticSite) -> None:
    scripts: dict[str, str] = {}

    def behaviour(path: str) -> tuple[int | None, int]:
        script = Path(path).read_text()
        scripts[script.rpartition("--name ")[2].split()[0]] = script
        return None, 0

    site.cluster = SimulatedCluster(site.sim, ALICE, behaviour=behaviour)
    folder = site.add(workers=WorkerRequest(min=1, max=6, extra_options=("--qos=idle",)))
    controller = site.controller()
    site.run(controller, 300)
    assert "watch_lease" not in scripts["w1"]
    assert "-ge 225 ]" in scripts["w2"]  # three quarters of the slot of 300 s
    before = (folder / files.LEASE).read_text()
    site.cluster.down = True
    site.run(controller, 20)
    assert (folder / files.LEASE).read_text() != before


def test_a_task_whose_lease_is_not_renewed_is_asked_to_leave(tmp_path: Path) -> None:
    (tmp_path / "lease").write_text("1")
    script = f"#!/bin/sh\n{lease_watch(tmp_path / 'lease', 2)}exec sleep 600\n"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGTERM
    assert "no controller has renewed the lease for 2 s" in done.stderr


def test_time_held_and_time_trained_are_apart(site: ElasticSite) -> None:
    folder = site.add()
    controller = site.controller()
    site.run(controller, 600)
    status = files.read_status(folder)
    assert 0 < status["gpu_seconds_extra"] < status["gpu_seconds"]
    assert 0 < status["gpu_seconds_trained"] <= status["gpu_seconds"]
    site.trainings["mnist"].state = "waiting"  # it holds its GPUs and trains nothing
    site.run(controller, 300)
    later = files.read_status(folder)
    assert later["gpu_seconds_trained"] - status["gpu_seconds_trained"] <= 6 * 10
    assert later["gpu_seconds"] - status["gpu_seconds"] > 6 * 200
    assert site.controller().cycle()
    assert files.read_status(folder)["gpu_seconds_trained"] >= later["gpu_seconds_trained"]
    speeds = {row["workers"]: row for row in later["speeds"]}
    assert list(speeds) == [1, 2, 3, 4, 6]
    assert speeds[6]["measured_slots"] >= 1
    assert speeds[6]["error"] < speeds[3]["error"]
