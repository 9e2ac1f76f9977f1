"""Moving jobs: one step after the other, and whoever is killed at any point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirage.domain import ActingMode, Job, JobState
from mirage.errors import ClusterUnavailable, Refused, StoreError
from mirage.placement.live.advice import Terms
from mirage.placement.live.journal import MoveJournal, MoveOutcome
from mirage.placement.live.mover import Mover, MoverOptions
from mirage.placement.live.steps import Patience
from tests.unit.placement.live_site import NOW_S, OPT_IN, LiveSite

PATIENCE = Patience(checkpoint_s=60, start_s=100, at_most_s=600)
BEGIN_S = 20
"""After its requeue a job may start."""


class Killed(BaseException):
    pass


class SlurmOfJobs:
    """The site's jobs under signal, requeue and node lists. Each call may be the last one."""

    def __init__(self, site: LiveSite) -> None:
        self.site = site
        self.now = NOW_S
        self.calls: list[str] = []
        self.die_at: int | None = None
        self.requeues_itself = True
        self.has_handler = True
        self.free_nodes = True
        self.down = False

    # --- the ports

    def now_s(self) -> int:
        return self.now

    def jobs(self, ids) -> dict[int, Job]:
        if self.down:
            raise ClusterUnavailable
        return {job.job_id: job for job in self.site.jobs if job.job_id in ids}

    def signal(self, job_id: int, signal: str, *, batch: bool) -> None:
        self._called(f"signal {job_id}")
        if not self.has_handler:
            self._set(job_id, state=JobState.FAILED, exit_code=138)
        elif self.requeues_itself:
            self._queue(job_id)
        self._called(f"signalled {job_id}", is_after=True)

    def requeue(self, job_id: int) -> None:
        self._called(f"requeue {job_id}")
        self._queue(job_id)
        self._called(f"requeued {job_id}", is_after=True)

    def require_nodes(self, job_id: int, nodes) -> None:
        self._called(f"require {job_id} {','.join(nodes)}")
        if self.jobs([job_id])[job_id].state is not JobState.PENDING:
            raise Refused("Invalid node name specified")
        self.site.details[job_id] = replace(self.site.details[job_id], required_nodes=tuple(nodes))
        self._called(f"required {job_id}", is_after=True)

    # --- time

    def tick(self, seconds: int = 2) -> None:
        self.now += seconds
        for job in list(self.site.jobs):
            details = self.site.details.get(job.job_id)
            if job.state is not JobState.PENDING or not job.begin_s or self.now < job.begin_s:
                continue
            self._set(job.job_id, eligible_s=job.eligible_s or self.now)
            wanted = details.required_nodes
            if not wanted or self.free_nodes:
                self._start(job.job_id, wanted or ("n7", "n8"))

    def _start(self, job_id: int, nodes) -> None:
        details = self.site.details[job_id]
        shares = tuple(
            replace(share, node=node) for share, node in zip(details.shares, nodes, strict=True)
        )
        self.site.details[job_id] = replace(details, shares=shares)
        self._set(job_id, state=JobState.RUNNING, start_s=self.now, node_names=tuple(nodes))

    def _queue(self, job_id: int) -> None:
        details = self.site.details[job_id]
        self.site.details[job_id] = replace(details, restarts=details.restarts + 1)
        self._set(
            job_id,
            state=JobState.PENDING,
            start_s=None,
            node_names=(),
            eligible_s=None,
            begin_s=self.now + BEGIN_S,
            reason="BeginTime",
        )

    def _set(self, job_id: int, **changes) -> None:
        self.site.jobs = [
            replace(job, **changes) if job.job_id == job_id else job for job in self.site.jobs
        ]

    def _called(self, words: str, *, is_after: bool = False) -> None:
        if self.down:
            raise ClusterUnavailable
        if not is_after:
            self.calls.append(words)
        self.points = getattr(self, "points", 0) + 1
        if self.points == self.die_at:
            raise Killed


class DyingJournal(MoveJournal):
    """Dies before or after a line is written."""

    slurm: SlurmOfJobs

    def _write(self, events) -> None:
        self.slurm._called("write")
        self.slurm.calls.pop()
        super()._write(events)
        self.slurm._called("written", is_after=True)


def mover(slurm: SlurmOfJobs, folder: Path, **more) -> Mover:
    journal = DyingJournal.read(folder / "moves.jsonl")
    journal.slurm = slurm
    options = {"mode": ActingMode.ENFORCE, "every_s": 300, "jobs_per_hour": 4} | more
    return Mover(
        cluster=slurm,
        mover=slurm,
        clock=slurm,
        journal=journal,
        options=MoverOptions(patience=PATIENCE, **options),
        read=lambda lists: own(slurm, lists),
        details=slurm.site.details.get,
        terms=lambda moves: Terms(pause_s=moves.pause_s(60), horizon_s=14_400),
        forbidden=lambda job: "",
        restraint=lambda job: "" if options["mode"] is ActingMode.ENFORCE else "[observe]",
        show=lambda state, moves: slurm.calls.append("show"),
        as_json=lambda state, move: {},
    )


def own(slurm: SlurmOfJobs, lists):
    kept = slurm.site.details
    slurm.site.details = {
        job_id: replace(each, required_nodes=())
        if frozenset(each.required_nodes) == lists.get(job_id)
        else each
        for job_id, each in kept.items()
        if next((job.node_names for job in slurm.site.jobs if job.job_id == job_id), ())
    }
    try:
        return replace(slurm.site.state(), at_s=slurm.now)
    finally:
        slurm.site.details = kept


@pytest.fixture
def slurm() -> SlurmOfJobs:
    site = LiveSite()
    site.run(1, "n1,n5")
    return SlurmOfJobs(site)


def until_idle(service: Mover, slurm: SlurmOfJobs, looks: int = 500) -> None:
    for _ in range(looks):
        service.look()
        if service.is_idle:
            return
        slurm.tick()
    raise AssertionError("the move does not end")


def run_through(service: Mover, slurm: SlurmOfJobs) -> None:
    service.cycle()
    until_idle(service, slurm)


def outcomes(folder: Path) -> list[MoveOutcome | None]:
    return [each.outcome for each in MoveJournal.read(folder / "moves.jsonl").moves]


def nodes_of(slurm: SlurmOfJobs, job_id: int = 1) -> tuple[str, ...]:
    return slurm.jobs([job_id])[job_id].node_names


def test_a_move_from_intent_to_outcome(slurm, tmp_path):
    service = mover(slurm, tmp_path)
    assert service.cycle()
    until_idle(service, slurm)
    assert nodes_of(slurm) == ("n1", "n2")
    assert slurm.calls == ["show", "signal 1", "require 1 n1,n2"]
    (move,) = service.journal.moves
    assert move.outcome is MoveOutcome.MOVED
    assert move.pause_s == pytest.approx(BEGIN_S, abs=4)
    assert service.journal.pause_s(999) == move.pause_s
    assert MoveJournal.read(tmp_path / "moves.jsonl").moves == [move]


def kill_points(tmp_path) -> int:
    site = LiveSite()
    site.run(1, "n1,n5")
    whole = SlurmOfJobs(site)
    run_through(mover(whole, tmp_path / "whole"), whole)
    return whole.points


def test_killed_at_each_point_nothing_is_lost_or_moved_twice(tmp_path):
    points = kill_points(tmp_path)
    assert points >= 12
    ends = []
    for point in range(1, points + 1):
        site = LiveSite()
        site.run(1, "n1,n5")
        slurm = SlurmOfJobs(site)
        slurm.die_at = point
        folder = tmp_path / str(point)
        service = mover(slurm, folder)
        with pytest.raises(Killed):
            run_through(service, slurm)
        slurm.tick()
        service = mover(slurm, folder)
        until_idle(service, slurm)
        run_through(service, slurm)
        assert slurm.jobs([1])[1].state is JobState.RUNNING
        assert slurm.calls.count("signal 1") <= 1, point
        assert site.details[1].restarts <= 1, point
        ends.append((outcomes(folder), nodes_of(slurm)))
    moved = ([MoveOutcome.MOVED], ("n1", "n2"))
    stayed = ([MoveOutcome.STAYED], ("n1", "n5"))
    assert ends.count(moved) >= points - 3, ends
    assert all(end in (moved, stayed) for end in ends), ends


def test_a_job_without_a_handler_is_requeued_for_its_signal(slurm, tmp_path):
    slurm.has_handler = False
    service = mover(slurm, tmp_path)
    service.cycle()
    until_idle(service, slurm)
    assert slurm.calls[1:] == ["signal 1", "requeue 1", "require 1 n1,n2"]
    assert nodes_of(slurm) == ("n1", "n2")


def test_a_job_that_ends_for_another_reason_is_left_alone(slurm, tmp_path):
    slurm.requeues_itself = False
    service = mover(slurm, tmp_path)
    service.cycle()
    slurm._set(1, state=JobState.COMPLETED, exit_code=0)
    until_idle(service, slurm)
    assert outcomes(tmp_path) == [MoveOutcome.ENDED]
    assert "requeue 1" not in slurm.calls


def test_a_job_that_does_not_requeue_itself_stays_and_rests(slurm, tmp_path):
    slurm.requeues_itself = False
    service = mover(slurm, tmp_path)
    service.cycle()
    until_idle(service, slurm)
    assert outcomes(tmp_path) == [MoveOutcome.STAYED]
    slurm.tick(301)
    service.cycle()
    assert slurm.calls.count("signal 1") == 1
    slurm.tick(3601)
    service.cycle()
    assert slurm.calls.count("signal 1") == 2


def test_where_the_nodes_do_not_become_free_it_may_start_anywhere(slurm, tmp_path):
    slurm.free_nodes = False
    service = mover(slurm, tmp_path)
    service.cycle()
    until_idle(service, slurm)
    assert slurm.calls[-1] == "require 1 "
    assert outcomes(tmp_path) == [MoveOutcome.ELSEWHERE]
    slurm.tick()
    assert nodes_of(slurm) == ("n7", "n8")


@pytest.mark.parametrize("is_asked_first", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"reason": "JobHeldUser"},
        {"reason": "Dependency"},
        {"has_zero_priority": True},
        {"begin_s": 10**10},
    ],
)
def test_a_job_that_its_owner_keeps_back_holds_up_nobody(
    slurm, tmp_path, monkeypatch, change, is_asked_first
):
    service = mover(slurm, tmp_path)
    service.cycle()
    monkeypatch.setattr(slurm, "_start", lambda *_: None)
    while slurm.jobs([1])[1].state is not JobState.PENDING:
        slurm.tick()
    if is_asked_first:
        service.look()
    slurm._set(1, **change)
    until_idle(service, slurm, looks=3)
    assert outcomes(tmp_path) == [MoveOutcome.ELSEWHERE]
    assert slurm.site.details[1].required_nodes == ()


def test_the_hour_and_the_modes_bound_what_is_done(tmp_path):
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    slurm = SlurmOfJobs(site)
    service = mover(slurm, tmp_path / "one", jobs_per_hour=1)
    for _ in range(3):
        service.cycle()
        until_idle(service, slurm)
        slurm.tick(301)
    assert len(outcomes(tmp_path / "one")) == 1
    for mode, shown in ((ActingMode.OBSERVE, []), (ActingMode.ADVISE, ["show"])):
        slurm.calls.clear()
        site = LiveSite()
        site.run(1, "n1,n5")
        slurm.site = site
        service = mover(slurm, tmp_path / mode.value, mode=mode)
        service.cycle()
        slurm.tick(301)
        service.cycle()
        assert slurm.calls == shown
        assert "propose" in (tmp_path / mode.value / "moves.jsonl").read_text()
        assert site.details[1].restarts == 0


def test_an_unopted_job_is_never_touched(tmp_path):
    site = LiveSite()
    site.run(1, "n1,n5", comment="")
    site.run(2, "n2,n6", comment="mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=1")
    slurm = SlurmOfJobs(site)
    service = mover(slurm, tmp_path)
    service.cycle()
    assert slurm.calls == ["show"]
    assert service.is_idle


def test_two_jobs_swap_and_one_that_stays_frees_the_other(tmp_path):
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    site.run(3, "n3,n4", comment="")
    site.run(4, "n7,n8", comment="")
    slurm = SlurmOfJobs(site)
    service = mover(slurm, tmp_path)
    service.cycle()
    until_idle(service, slurm)
    assert outcomes(tmp_path) == [MoveOutcome.MOVED] * 2
    assert sorted([set(nodes_of(slurm, 1)), set(nodes_of(slurm, 2))], key=min) == [
        {"n1", "n2"},
        {"n5", "n6"},
    ]


def test_a_job_that_was_requeued_since_its_move_may_start_anywhere(slurm, tmp_path):
    service = mover(slurm, tmp_path)
    service.cycle()
    until_idle(service, slurm)
    slurm._queue(1)
    slurm.tick(301 - BEGIN_S)
    slurm._set(1, state=JobState.PENDING, begin_s=slurm.now + 9, start_s=None, node_names=())
    service._decided_s = None
    service.cycle()
    assert "require 1 " in slurm.calls


def test_without_an_answer_or_a_disk_nothing_is_done(slurm, tmp_path):
    service = mover(slurm, tmp_path)
    slurm.down = True
    assert not service.cycle()
    slurm.down = False
    (tmp_path / "moves.jsonl").mkdir()
    assert not mover_on(slurm, tmp_path).cycle()
    assert slurm.calls == []
    with pytest.raises(StoreError, match="can't be read"):
        MoveJournal.read(tmp_path / "moves.jsonl")


def mover_on(slurm: SlurmOfJobs, folder: Path) -> Mover:
    service = mover(slurm, folder / "other")
    service.journal.path = folder / "moves.jsonl"
    return service


def test_who_takes_the_tag_away_in_the_last_moment_is_not_touched(slurm, tmp_path):
    service = mover(slurm, tmp_path)
    read = service.read

    def read_and_change(lists):
        state = read(lists)
        slurm._set(1, comment=OPT_IN.replace("place", "plaice"))
        return state

    service.read = read_and_change
    service.cycle()
    assert slurm.calls == ["show"]
    assert service.is_idle
