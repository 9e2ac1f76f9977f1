"""All-reduce jobs: which workers form a group, and who of them saves.

Every change of members is a new roster. A worker that is in no group says so (InView). Once all
workers of the newest roster have, they are let form a group (Form), and say when they have the
newest parameters (Formed). A roster whose group breaks is replaced by one without the members that
are silent.
"""

from __future__ import annotations

import time
from pathlib import Path

from mirage.elastic.runtime import layout, protocol
from mirage.elastic.runtime.protocol import ALL_REDUCE, WORKER
from mirage.elastic.runtime.roster import Roster
from mirage.elastic.runtime.saving import SAVE_S
from mirage.elastic.runtime.state import STOPPED
from mirage.elastic.runtime.tracking import CoordinatorTiming, Member

GATHER_S = 0.1
"""Several changes that come together make one roster."""
SUSPECT_S = 2.0
"""A member that is silent for so long, and for three beats, does not hold up a group."""


class Replication(Roster):
    """Of jobs whose plane is all-reduce; nothing of it happens in others."""

    def __init__(self, path: Path, timing: CoordinatorTiming) -> None:
        super().__init__(path, timing)
        self.roster = int(time.time() * 1000)
        """Higher than that of any coordinator before."""
        self._was_restarted = self.state.job is not None
        self._group: tuple[str, ...] = ()
        """Sessions of the roster's workers, in the order of their ranks."""
        self._waiting: set[str] = set()
        """Sessions that are in no group and know the roster."""
        self._is_formed = False
        self._suspensions_s: dict[str, float] = {}
        self._differs_since: float | None = None
        self._saver: tuple[str, float] | None = None
        """Session that was asked for a snapshot, and when."""

    @property
    def _is_replicated(self) -> bool:
        job = self.state.job or (self.candidate[1] if self.candidate else None)
        return job is not None and job.plane == ALL_REDUCE

    def _reported_step(self) -> int | None:
        if not self._is_replicated:
            return super()._reported_step()
        return max((worker.step for worker in self._of(WORKER) if worker.holds), default=None)

    def _share_out(self) -> None:
        if not self._is_replicated:
            super()._share_out()

    def _show(self, member: Member) -> None:
        if not self._is_replicated:
            super()._show(member)
            return
        manifest, job = self.state.manifest, self.state.job
        if manifest is None or job is None:
            return
        member.viewed = time.monotonic()
        self._send(
            member,
            protocol.View(
                incarnation=self.state.incarnation,
                layout=self.state.layout,
                roster=self.roster,
                version=manifest.version,
                job=job,
                servers=tuple(each.peer for each in self._of(WORKER) if self._is_in_group(each)),
                owners=(),
                shares=self.shares,
                load=manifest.parts,
            ),
        )

    def _is_in_group(self, member: Member) -> bool:
        return member.session in self._group

    # --- reports

    def _reports_step(self, member: Member) -> None:
        """Only who has parameters is past the snapshot. So a coordinator that was restarted knows
        who has them before a group is formed again.
        """
        if member.step > self._saved_step():
            member.holds = True

    def _waits(self, member: Member, message: protocol.InView) -> None:
        """It is in no group."""
        self._reports_step(member)
        if message.roster != self.roster:
            return
        if self._is_in_group(member):
            self._waiting.add(member.session)
        elif member.name in self.state.draining and self._group:
            self._dismiss(member)
        else:
            self._waiting.add(member.session)
        if not self._is_formed and self._group and self._waiting >= set(self._group):
            self._is_formed = True
            self._waiting.clear()
            self._suspensions_s.clear()
            for each in self._of(WORKER):
                if self._is_in_group(each):
                    self._send(each, protocol.Form(roster=self.roster))

    def _formed(self, member: Member, message: protocol.Formed) -> None:
        member.step, member.holds = message.step, True
        if message.roster != self.roster:
            return
        self._suspensions_s[member.session] = message.suspended_s
        times = [self._suspensions_s.get(session) for session in self._group]
        known = [each for each in times if each is not None]
        if len(known) == len(times):
            self._suspended_s = sum(known) / len(known)
            self._event("group", step=message.step, workers=len(known), suspended_s=known)

    # --- what is due

    def _replicate(self, now: float) -> None:
        if self.state.manifest is None:
            return
        for worker in self._of(WORKER):
            if not worker.ready and now - worker.seen < self._suspect_s():
                worker.ready = True
        self._suspect(now)
        self._regroup(now)
        self._save(now)

    def _suspect_s(self) -> float:
        return max(SUSPECT_S, 3 * self.timing.beat_s)

    def _suspect(self, now: float) -> None:
        """Members that hold up the others are asked again. Silent ones are left out until they speak."""
        if self._is_formed and not self._waiting:
            return
        for worker in self._of(WORKER):
            is_awaited = self._is_in_group(worker) and worker.session not in self._waiting
            if is_awaited and now - worker.seen > self._suspect_s():
                worker.ready = False
            elif is_awaited:
                self._show_again(worker)

    def _regroup(self, now: float) -> None:
        wanted = self._wanted()
        is_broken = self._is_formed and bool(self._group) and self._waiting >= set(self._group)
        if not is_broken and tuple(worker.session for worker in wanted) == self._group:
            self._differs_since = None
            return
        if self._differs_since is None:
            self._differs_since = now
        if now < self._differs_since + GATHER_S or self._is_gathering(now):
            return
        self._differs_since = None
        self._group = tuple(worker.session for worker in wanted)
        self._waiting.clear()
        self._is_formed = False
        self.roster += 1
        assert self.state.job is not None
        names = [worker.name for worker in wanted]
        self.shares = layout.share_out(self.state.job.micro_shards, names)
        self._event("roster", workers=names)
        self._show_all()

    def _is_gathering(self, now: float) -> bool:
        """A coordinator that was restarted first lets all workers register again."""
        return now < self._started + 3 * self.timing.beat_s

    def _wanted(self) -> list[Member]:
        """By age. Members that leave stay until another one has the parameters."""
        here = [worker for worker in self._of(WORKER) if worker.ready]
        staying = [worker for worker in here if worker.name not in self.state.draining]
        if self.stopping or not staying:
            return []
        return staying if any(worker.holds for worker in staying) else here

    # --- snapshots

    def _save(self, now: float) -> None:
        workers = self._of(WORKER)
        if self._saver is not None:
            session, since = self._saver
            if any(each.session == session for each in workers) and now - since < SAVE_S:
                return
            self._saver = None
        holders = [each for each in workers if each.holds]
        newest = max(holders, key=lambda each: each.step, default=None)
        is_paused = not self._group and self._differs_since is None
        assert self.state.job is not None
        if newest is not None and newest.step > self._saved_step():
            is_due = now - self._saved_at > self.timing.snapshot_s
            is_last = newest.step >= self.state.job.steps
            are_there = self._waiting >= {each.session for each in holders}
            if is_due or is_last or (is_paused and are_there):
                self._saver = (newest.session, now)
                order = protocol.SaveAt(
                    incarnation=self.state.incarnation, version=newest.step, hold=False
                )
                self._send(newest, order)
        elif is_paused:
            self._pause_over(holders)

    def _pause_over(self, holders: list[Member]) -> None:
        """Nobody trains, and what they have is saved."""
        if not all(worker.has_told for worker in self._of(WORKER)):
            return
        if not self._waiting >= {each.session for each in holders}:
            return
        if self.stopping:
            # One that has not yet registered again may have unsaved steps.
            if holders or not (self._was_restarted and self._is_fresh()):
                self._end(STOPPED)
            return
        for name in self.state.draining:
            if (member := self.members.get(name)) is not None:
                self._dismiss(member)

    def _saved(self, member: Member, message: protocol.Saved) -> None:
        super()._saved(member, message)
        if self._saver is not None and self._saver[0] == member.session:
            self._saver = None
            self._saved_at = time.monotonic()
