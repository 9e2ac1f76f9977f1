"""The coordinator: members, scaling, snapshots, recovery. `python -m
mirage.elastic.runtime.coordinator --folder FOLDER`.

It follows section 5 of DL2: registration, best-fit assignment, a scaling clock, migration, switch.
Each phase is durable in `state.json` before it is acted upon, and a line in `events.jsonl`.

- prepare: servers and workers learn the new owners and the clock; all answer Ready.
- migrate: at the clock, old owners send the moving slices with their optimiser state.
- switch: decided once every moving slice is at its new owner. Everyone gets the new view.
- commit: everyone acts by it; drained servers may be cancelled.

Before the switch a failure of any role leads back to the old view, and nothing has changed. From
the switch on the new view counts. A server that is lost with slices takes the job back to the last
snapshot; the steps since are computed again, with the same bits. The coordinator itself may be
killed at any time: members work on without it and register with the next one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from mirage.elastic.runtime import folder, layout, process, protocol, snapshots, wire
from mirage.elastic.runtime.protocol import (
    SERVER,
    WORKER,
    Message,
    ProtocolError,
    TrainingJob,
)
from mirage.elastic.runtime.state import (
    FINISHED,
    STOPPED,
    TRAINING,
    CoordinatorState,
    Manifest,
    StateFile,
)
from mirage.elastic.runtime.tracking import (
    ActiveScaling,
    CoordinatorTiming,
    Member,
    Pause,
    difference,
)
from mirage.elastic.runtime.training_log import TrainingLog

log = logging.getLogger(__name__)

POLL_MS = 20
SPEED_WINDOW_S = 30.0
FAREWELL_S = 5.0
"""How long an ending coordinator waits for members to leave."""


class Coordinator:
    """One job's coordinator, without its process: sockets, state, and what to do on messages."""

    def __init__(self, path: Path, timing: CoordinatorTiming) -> None:
        self.path, self.timing = path, timing
        keys = folder.create_folder(path)
        self.file = StateFile(path)
        if self.state.phase == STOPPED:
            self.file.change(phase=TRAINING)
        self.session = wire.new_session()
        self.context: zmq.Context[Any] = zmq.Context()
        self.listener = wire.Listener(self.context, keys)
        self.members: dict[str, Member] = {}
        self.scaling: ActiveScaling | None = None
        self.pause: Pause | None = None
        self.stopping = False
        self.over_s: float | None = None
        """When the end was announced."""
        self.roster = 0
        self.shares: tuple[protocol.WorkerShare, ...] = ()
        self.candidate: tuple[str, TrainingJob] | None = None
        """Session and job of the worker that saves the initial parameters."""
        self._parts: dict[tuple[int, int], dict[str, protocol.SavedSlices]] = {}
        self._drains: dict[str, list[bytes]] = {}
        self._stops: list[bytes] = []
        self._started = self._saved_at = time.monotonic()
        self._orders = 0
        self._known: set[str] = set()
        self._replaced: set[str] = set()
        """Sessions whose name a later process has."""
        self._early: list[tuple[bytes, protocol.DrainRequest]] = []
        """Drains of members that may register again with this coordinator, which was restarted."""
        """Sessions that have registered with this coordinator."""
        self._margin = 1
        self._round_trip_s = 0.05
        self._speed: deque[tuple[float, int]] = deque()
        self._suspended_s: float | None = None
        self._log = TrainingLog(path)
        if self.state.scaling_phase:
            self._abort_after_restart()

    @property
    def state(self) -> CoordinatorState:
        """As it is on disk."""
        return self.file.now

    # --- the loop

    def run(self) -> None:
        """Returns when the job is finished or stopped."""
        wire.write_address(self.path, self.session, self.listener.endpoints)
        self._event("start", session=self.session)
        try:
            while not self._done():
                self.turn(POLL_MS)
        finally:
            self.listener.close()
            self.context.term()

    def turn(self, wait_ms: int) -> None:
        """Handles what has arrived, then what is due."""
        if self.listener.socket.poll(wait_ms):
            while self._receive():
                pass
        self._tick()

    def _receive(self) -> bool:
        try:
            received = self.listener.receive()
        except ProtocolError as error:
            log.warning("a message was dropped: %s", error)
            return True
        if received is None:
            return False
        peer, message, _ = received
        self._handle(peer, message)
        return True

    def _handle(self, peer: bytes, message: Message) -> None:
        question = _QUESTIONS.get(type(message))
        if question is not None:
            question(self, peer, message)
            return
        member = self._member(peer)
        handler = _REPORTS.get(type(message))
        if member is None or handler is None:
            self.listener.send(peer, protocol.Refusal(reason="Register first."))
            return
        member.seen = time.monotonic()
        handler(self, member, message)

    def _member(self, peer: bytes) -> Member | None:
        return next((m for m in self.members.values() if m.session.encode() == peer), None)

    # --- registration

    def _register(self, peer: bytes, message: protocol.Register) -> None:
        if peer != message.session.encode():
            self.listener.send(peer, protocol.Refusal(reason="The session is not the identity."))
            return
        if self.state.phase != TRAINING:
            self.listener.send(peer, protocol.End(reason=self.state.phase))
            return
        if reason := self._problem(message):
            self.listener.send(peer, protocol.Refusal(reason=reason))
            return
        if message.session in self._replaced:
            self.listener.send(peer, protocol.End(reason="replaced"))
            return
        before = self.members.get(message.name)
        if before is not None and before.session != message.session:
            self._replaced.add(before.session)
            self._send(before, protocol.End(reason="replaced"))
            self._lose(before, "replaced")
        elif before is not None:
            self._welcome_back(before)
            return
        self._orders += 1
        self._known.add(message.session)
        member = Member(register=message, order=self._orders, seen=time.monotonic())
        self.members[message.name] = member
        self._event("register", name=member.name, role=member.role, session=member.session)
        self._welcome(member)
        self._drain_early()

    def _problem(self, message: protocol.Register) -> str:
        """Why a member cannot take part; empty: it can."""
        before = self.members.get(message.name)
        if before is not None and before.role != message.role:
            return f"{message.name} is a {before.role} already. Give it a name of its own."
        if message.role == SERVER:
            return "" if message.endpoints else "A server says where it can be reached."
        job = self.state.job or (self.candidate[1] if self.candidate else None)
        if message.job is None or (job is not None and message.job != job):
            return difference(job, message.job)
        return ""

    def _welcome_back(self, member: Member) -> None:
        """It may have missed messages while its connection was broken."""
        member.seen = time.monotonic()
        if member.role == SERVER and self._is_undecided():
            self._abort(f"{member.name} registered again")
        self._welcome(member)

    def _welcome(self, member: Member) -> None:
        if member.role == WORKER and self.state.manifest is None:
            self._choose_candidate()
        initial = self.candidate is not None and self.candidate[0] == member.session
        self._send(
            member,
            protocol.Welcome(
                coordinator=self.session, beat_s=self.timing.beat_s, write_initial=initial
            ),
        )
        if self._owner(member.name) is member:
            self._show_all()  # after a restart: perhaps the last one that was missing
        else:
            self._show(member)

    def _choose_candidate(self) -> None:
        """The oldest worker saves the parameters that it started with."""
        workers = self._of(WORKER)
        if self.state.manifest is not None or not workers:
            self.candidate = None
            return
        first = workers[0]
        assert first.register.job is not None
        if self.candidate is None or self.candidate[0] not in {w.session for w in workers}:
            self.candidate = (first.session, first.register.job)
            self._send(
                first,
                protocol.Welcome(
                    coordinator=self.session, beat_s=self.timing.beat_s, write_initial=True
                ),
            )

    # --- reports of members

    def _beat(self, member: Member, message: protocol.Heartbeat) -> None:
        member.step, member.incarnation = message.step, message.incarnation
        member.layout, member.roster = message.layout, message.roster
        late = time.monotonic() - member.viewed > 2 * self.timing.beat_s
        if late and not self._is_current(member):
            self._show(member)

    def _is_current(self, member: Member) -> bool:
        mine = (member.incarnation, member.layout)
        if mine != (self.state.incarnation, self.state.layout):
            return False
        return member.role == SERVER or member.roster == self.roster

    def _ready(self, member: Member, message: protocol.Ready) -> None:
        scaling = self.scaling
        if scaling is None or message.scaling != scaling.number or scaling.unswitched is not None:
            return
        if not message.accepted:
            member.step = message.step
            self._margin = min(2 * self._margin, 1024)
            self._abort(f"{member.name} is at version {message.step}, past {scaling.clock}")
            return
        scaling.unready.discard(member.session)
        self._round_trip_s = time.monotonic() - scaling.began
        if not scaling.unready:
            self._phase("migrate", clock=scaling.clock)

    def _adopted(self, _member: Member, message: protocol.Adopted) -> None:
        if self.scaling is not None and message.scaling == self.scaling.number:
            self.scaling.adopted |= set(message.slices)

    def _in_view(self, member: Member, message: protocol.InView) -> None:
        member.step, member.incarnation = message.step, message.incarnation
        member.layout, member.roster = message.layout, message.roster
        scaling = self.scaling
        if scaling is not None and scaling.unswitched is not None and self._is_current(member):
            if message.scaling == scaling.number and member.role == WORKER:
                scaling.suspended_s.append(message.suspended_s)
            scaling.unswitched.discard(member.session)
        if member.role == WORKER and not member.ready and member.layout == self.state.layout:
            member.ready = True
            self._share_out()
        draining = member.role == WORKER and member.name in self.state.draining
        if draining and member.roster == self.roster:
            self._dismiss(member)

    def _saved(self, member: Member, message: protocol.Saved) -> None:
        if self.state.manifest is None:
            if self.candidate and self.candidate[0] == member.session and message.version == 0:
                self.file.change(
                    job=self.candidate[1], manifest=Manifest(version=0, parts=(message.part,))
                )
                self.candidate = None
                self._event("initial", name=member.name)
            return
        if message.incarnation != self.state.incarnation or self.state.job is None:
            return
        if message.version <= self.state.manifest.version:
            self._pause_reached(message.version)
            return
        parts = self._parts.setdefault((message.incarnation, message.version), {})
        parts[message.part.file] = message.part
        found = {index for part in parts.values() for index in part.slices}
        if len(found) == len(self.state.owners):
            self._commit_snapshot(message.version, tuple(parts.values()))

    def _commit_snapshot(self, version: int, parts: tuple[protocol.SavedSlices, ...]) -> None:
        self._log.sync()
        self.file.change(manifest=Manifest(version=version, parts=parts))
        self._parts = {key: each for key, each in self._parts.items() if key[1] > version}
        snapshots.remove_old(self.path, parts, version)
        self._saved_at = time.monotonic()
        self._event("snapshot", version=version)
        self._pause_reached(version)

    def _pause_reached(self, version: int) -> None:
        if self.pause is not None and version >= self.pause.version:
            self._paused()

    def _losses(self, member: Member, message: protocol.Losses) -> None:
        self._log.losses(message.first, message.values)
        until = message.first + len(message.values)
        self._send(member, protocol.Recorded(until=until))

    def _leave(self, member: Member, _message: protocol.Leave) -> None:
        self._lose(member, "left")

    # --- members go

    def _lose(self, member: Member, why: str) -> None:
        """A removal, not an error."""
        del self.members[member.name]
        self._event("gone", name=member.name, role=member.role, why=why)
        if self.candidate and self.candidate[0] == member.session:
            self.candidate = None
            self._choose_candidate()
        self._answer_drains(member.name)
        scaling = self.scaling
        if scaling is not None:
            if member.role == SERVER and scaling.unswitched is None:
                self._abort(f"{member.name} {why}")
            else:
                scaling.unready.discard(member.session)
                (scaling.unswitched or set()).discard(member.session)
                if scaling.unswitched is None and not scaling.unready:
                    self._phase("migrate", clock=scaling.clock)
        if member.role == WORKER and not self.over_s:
            self._share_out()

    def _answer_drains(self, name: str) -> None:
        for client in self._drains.pop(name, []):
            self.listener.send(client, protocol.Drained(name=name))
        if name in self.state.draining:
            rest = tuple(each for each in self.state.draining if each != name)
            self.file.change(draining=rest)

    def _dismiss(self, member: Member) -> None:
        """A drained member has nothing of the job any more."""
        self._event("drained", name=member.name, role=member.role)
        self._send(member, protocol.End(reason="drained"))
        self._lose(member, "drained")

    def _dismiss_idle(self) -> None:
        """Draining members that the job does not need now: it is without an owner of a slice, or
        they own none.
        """
        owners = [self._owner(name) for name in self.state.sessions]
        waiting = not owners or (None in owners and self._lost_owners(time.monotonic()))
        for name in self.state.draining:
            member = self.members.get(name)
            owns = (member is not None and member.role == WORKER) or name in self.state.sessions
            if member is not None and (waiting or not owns):
                self._dismiss(member)

    def _share_out(self) -> None:
        workers = [m.name for m in self._of(WORKER) if m.ready]
        active = [name for name in workers if name not in self.state.draining]
        if self.state.job is None:
            return
        self.shares = layout.share_out(self.state.job.micro_shards, active)
        self.roster += 1
        self._event("roster", workers=active)
        for member in self._of(WORKER):
            self._show(member)

    # --- views

    def _of(self, role: str) -> list[Member]:
        """By age."""
        found = [member for member in self.members.values() if member.role == role]
        return sorted(found, key=lambda each: each.order)

    def _owner(self, name: str) -> Member | None:
        """The process that holds the slices of this owner; None: it is not here."""
        member = self.members.get(name)
        if member is not None and member.session == self.state.sessions.get(name):
            return member
        return None

    def _show(self, member: Member) -> None:
        """Sends the current view, unless an owner is missing: then there is none."""
        owners = [self._owner(name) for name in self.state.sessions]
        if self.state.job is None or not owners or not all(owners):
            return
        manifest = self.state.manifest
        assert manifest is not None
        member.viewed = time.monotonic()
        self._send(
            member,
            protocol.View(
                incarnation=self.state.incarnation,
                layout=self.state.layout,
                roster=self.roster,
                version=self.state.start,
                job=self.state.job,
                servers=tuple(owner.peer for owner in owners if owner is not None),
                owners=self.state.owners,
                shares=self.shares,
                load=manifest.parts if manifest.version == self.state.start else (),
                scaling=self.scaling.number if self.scaling is not None else 0,
            ),
        )

    def _show_all(self) -> None:
        for member in self.members.values():
            self._show(member)

    def _send(self, member: Member, message: Message) -> None:
        self.listener.send(member.session.encode(), message)

    # --- what is due

    def _tick(self) -> None:
        self._drain_early()
        now = time.monotonic()
        for member in [m for m in self.members.values() if now - m.seen > self.timing.silent_s]:
            self._send(member, protocol.Refusal(reason="Register first."))
            self._lose(member, "silent")
        if self.over_s is not None or self.state.phase != TRAINING:
            return
        self._measure(now)
        self._dismiss_idle()
        if self._is_finished():
            self._finish()
        elif self._lost_owners(now):
            self._restore()
        elif self.state.owners:
            self._scale(now)
            self._snapshot(now)
        elif self.stopping:
            self._end(STOPPED)

    def _lost_owners(self, now: float) -> bool:
        """Whether slices are nowhere in memory. After a restart, owners get time to register."""
        if self.state.manifest is None:
            return False
        if not self.state.owners:
            return True
        grace = now - self._started < self.timing.silent_s
        missing = {n: s for n, s in self.state.sessions.items() if self._owner(n) is None}
        return any(
            not grace or name in self.members or session in self._known
            for name, session in missing.items()
        )

    def _restore(self) -> None:
        """Back to the last snapshot, with the servers that are here."""
        servers = [m for m in self._of(SERVER) if m.name not in self.state.draining]
        job, manifest = self.state.job, self.state.manifest
        if self.stopping:
            self._end(STOPPED)
        if not servers or job is None or manifest is None or self.stopping:
            return
        self.scaling = self.pause = None
        slices = layout.cut(job)
        owners = layout.best_fit(
            [each.size for each in slices], [None] * len(slices), [m.name for m in servers]
        )
        self.file.change(
            incarnation=self.state.incarnation + 1,
            layout=self.state.layout + 1,
            start=manifest.version,
            owners=owners,
            sessions={m.name: m.session for m in servers if m.name in owners},
            scaling_phase="",
        )
        self._parts.clear()
        self._speed.clear()
        self._saved_at = time.monotonic()
        self._event("restore", version=manifest.version, servers=[m.name for m in servers])
        self._show_all()

    def _measure(self, now: float) -> None:
        step = self._reported_step()
        if step is not None and (not self._speed or step > self._speed[-1][1]):
            self._speed.append((now, step))
        while self._speed and now - self._speed[0][0] > SPEED_WINDOW_S:
            self._speed.popleft()

    def _reported_step(self) -> int | None:
        """Of the slowest owner; None: not all have said."""
        owners = [self._owner(name) for name in self.state.sessions]
        steps = [o.step for o in owners if o and o.incarnation == self.state.incarnation]
        return min(steps) if steps and len(steps) == len(owners) else None

    def _step(self) -> int:
        step = self._reported_step()
        return self.state.start if step is None else step

    def _steps_per_s(self) -> float | None:
        """None: there are not two reports that are some time apart."""
        if len(self._speed) < 2:
            return None
        (first_s, first), (last_s, last) = self._speed[0], self._speed[-1]
        if last_s - first_s < self.timing.beat_s:
            return None
        return (last - first) / (last_s - first_s)

    # --- scaling

    def _scale(self, now: float) -> None:
        if self.scaling is not None:
            self._continue(self.scaling)
            return
        target = [m for m in self._of(SERVER) if m.name not in self.state.draining]
        if self.stopping or not target:
            self._hold(now)
            return
        if self.pause is not None:
            self.pause = None
            self._show_all()
        settled = self._settled() and all(self._is_current(member) for member in target)
        if settled and {m.name for m in target} != set(self.state.sessions):
            self._prepare(target, now)

    def _settled(self) -> bool:
        """Whether all owners are in the current view, so have their slices in memory."""
        owners = [self._owner(name) for name in self.state.sessions]
        return all(owner is not None and self._is_current(owner) for owner in owners)

    def _clock(self) -> int:
        """A version that no slice has passed when the message arrives: section 5, step 2."""
        owners = [self._owner(name) for name in self.state.sessions]
        top = max([owner.step for owner in owners if owner], default=self.state.start)
        if not any(member.ready for member in self._of(WORKER)):
            return top
        ahead_s = self.timing.beat_s + 3 * self._round_trip_s
        return top + int((self._steps_per_s() or 0.0) * ahead_s) + self._margin

    def _prepare(self, target: list[Member], now: float) -> None:
        assert self.state.job is not None
        sizes = [each.size for each in layout.cut(self.state.job)]
        owners = layout.best_fit(sizes, self.state.owners, [m.name for m in target])
        pairs = zip(self.state.owners, owners, strict=True)
        moving = frozenset(index for index, (old, new) in enumerate(pairs) if old != new)
        if not moving:  # more servers than slices: nothing to give
            return
        names = {*self.state.sessions, *(m.name for m in target)}
        taking_part = [self.members[name] for name in sorted(names)]
        taking_part += [member for member in self._of(WORKER) if member.ready]
        number, clock = self.state.scaling + 1, self._clock()
        self.scaling = ActiveScaling(
            number=number,
            owners=owners,
            moving=moving,
            clock=clock,
            began=now,
            idle_since=now,
            unready={member.session for member in taking_part},
        )
        self.file.change(scaling=number)
        self._phase("prepare", clock=clock, target=[m.name for m in target], moving=len(moving))
        message = protocol.Prepare(
            scaling=number,
            incarnation=self.state.incarnation,
            clock=clock,
            servers=tuple(self.members[name].peer for name in sorted(names)),
            owners=owners,
        )
        for member in taking_part:
            self._send(member, message)

    def _continue(self, scaling: ActiveScaling) -> None:
        if scaling.unswitched is not None:
            if not scaling.unswitched:
                self._commit(scaling)
            return
        if not scaling.unready and scaling.adopted >= scaling.moving:
            self._switch(scaling)
            return
        working = self._step() < scaling.clock and any(m.ready for m in self._of(WORKER))
        scaling.idle_since = time.monotonic() if working else scaling.idle_since
        if time.monotonic() - scaling.idle_since > 2 * self.timing.silent_s:
            self._abort("the slices did not arrive")

    def _is_undecided(self) -> bool:
        """Whether a scaling is under way that can still be given up."""
        return self.scaling is not None and self.scaling.unswitched is None

    def _switch(self, scaling: ActiveScaling) -> None:
        """From here on the new owners count."""
        sessions = {name: self.members[name].session for name in sorted(set(scaling.owners))}
        self.file.change(
            owners=scaling.owners,
            sessions=sessions,
            layout=self.state.layout + 1,
            scaling_phase="switch",
        )
        scaling.unswitched = {
            m.session for m in self.members.values() if m.role == SERVER or m.ready
        }
        self._event("switch", scaling=scaling.number, clock=scaling.clock)
        self._show_all()

    def _commit(self, scaling: ActiveScaling) -> None:
        times = scaling.suspended_s
        self._suspended_s = sum(times) / len(times) if times else None
        self.scaling, self._margin = None, 1
        self.file.change(scaling_phase="")
        self._event(
            "commit",
            scaling=scaling.number,
            suspended_s=times,
            total_s=time.monotonic() - scaling.began,
        )

    def _abort(self, why: str) -> None:
        """The old view counts, as if nothing had been tried."""
        scaling = self.scaling
        assert scaling is not None
        self.file.change(scaling_phase="")
        self._event("abort", scaling=scaling.number, why=why)
        self._show_all()
        self.scaling = None

    def _abort_after_restart(self) -> None:
        """What was not yet switched never happened; what was switched counts."""
        self._event("recover", scaling=self.state.scaling, phase=self.state.scaling_phase)
        self.file.change(scaling_phase="")

    def _phase(self, phase: str, **facts: Any) -> None:
        assert self.scaling is not None
        self.file.change(scaling_phase=phase)
        self._event(phase, scaling=self.scaling.number, **facts)

    # --- snapshots, stop, end

    def _snapshot(self, now: float) -> None:
        due = now - self._saved_at > self.timing.snapshot_s and self._step() > self._saved_step()
        if due and self.scaling is None and self.pause is None and self._settled():
            self._saved_at = now
            self._save_at(self._clock(), hold=False)

    def _save_at(self, version: int, *, hold: bool) -> None:
        message = protocol.SaveAt(incarnation=self.state.incarnation, version=version, hold=hold)
        for name in self.state.sessions:
            owner = self._owner(name)
            if owner is not None:
                self._send(owner, message)

    def _hold(self, now: float) -> None:
        """Brings servers to one version and saves it; tries again if one was past it."""
        retry_s = 4 * self.timing.beat_s + 3 / max(self._steps_per_s() or 1.0, 0.01)
        if not self._settled() or (self.pause and now - self.pause.began < retry_s):
            return
        workers = any(member.ready for member in self._of(WORKER))
        if self.pause is not None and not workers:
            self._paused()  # slices are at different versions: the last snapshot must do
            return
        self._margin = 1 if self.pause is None else min(2 * self._margin, 1024)
        assert self.state.job is not None
        version = min(self._clock(), self.state.job.steps)
        self.pause = Pause(version=version, began=now)
        self._event("pause", version=version)
        self._save_at(version, hold=True)

    def _paused(self) -> None:
        self.pause, self._margin = None, 1
        if self.stopping:
            self._end(STOPPED)
            return
        self.file.change(owners=(), sessions={}, layout=self.state.layout + 1)

    def _is_finished(self) -> bool:
        job, manifest = self.state.job, self.state.manifest
        return job is not None and manifest is not None and manifest.version >= job.steps

    def _finish(self) -> None:
        assert self.state.job is not None
        assert self.state.manifest is not None
        snapshots.write_model(self.path, self.state.job, self.state.manifest.parts)
        self._end(FINISHED)

    def _end(self, phase: str) -> None:
        self.scaling = self.pause = None
        self.file.change(
            phase=phase, scaling_phase="", owners=(), sessions={}, layout=self.state.layout + 1
        )
        self._event(phase)
        self.over_s = time.monotonic()
        for member in self.members.values():
            self._send(member, protocol.End(reason=phase))
        for name in list(self._drains):
            self._answer_drains(name)
        for client in self._stops:
            self._answer_stop(client)

    def _done(self) -> bool:
        if self.over_s is None and self.state.phase == FINISHED:
            self.over_s = time.monotonic()  # started again after the end: tells it to members
        if self.over_s is None:
            return False
        passed = time.monotonic() - self.over_s
        return passed > FAREWELL_S or (not self.members and passed > self.timing.beat_s)

    # --- questions of clients

    def _status(self, client: bytes, _message: protocol.StatusQuery) -> None:
        job, speed = self.state.job, self._steps_per_s()
        step = self._step() if self.state.owners else self._saved_step()
        epoch_steps = job.epoch_steps if job else 1
        self.listener.send(
            client,
            protocol.Status(
                state=self._state_word(),
                members=tuple(self._row(m) for role in (SERVER, WORKER) for m in self._of(role)),
                step=step,
                steps=job.steps if job else 0,
                epoch=step / epoch_steps,
                epochs=(job.steps if job else 0) / epoch_steps,
                steps_per_s=speed,
                samples_per_s=speed * job.batch_size if speed is not None and job else None,
                loss=self._log.last_loss,
                incarnation=self.state.incarnation,
                layout=self.state.layout,
                snapshot=self.state.manifest.version if self.state.manifest else None,
                workers_wanted=self.state.workers_wanted,
                servers_wanted=self.state.servers_wanted,
                suspended_ms=None if self._suspended_s is None else 1000 * self._suspended_s,
            ),
        )

    def _saved_step(self) -> int:
        return self.state.manifest.version if self.state.manifest is not None else 0

    def _state_word(self) -> str:
        if self.state.phase != TRAINING:
            return self.state.phase
        if self.stopping:
            return "stopping"
        if self.scaling is not None:
            return "scaling"
        if not self.state.owners or not any(m.ready for m in self._of(WORKER)):
            return "waiting"
        return "training" if self._settled() else "restoring"

    def _row(self, member: Member) -> protocol.MemberStatus:
        draining = member.name in self.state.draining
        takes_part = member.ready if member.role == WORKER else self._owner(member.name) is not None
        silent = time.monotonic() - member.seen > 3 * self.timing.beat_s
        states = {"silent": silent, "draining": draining, "active": takes_part}
        shares = sum(s.last - s.first for s in self.shares if s.worker == member.name)
        return protocol.MemberStatus(
            name=member.name,
            role=member.role,
            state=next((name for name, true in states.items() if true), "joining"),
            step=member.step,
            host=member.register.host,
            slices=shares if member.role == WORKER else self.state.owners.count(member.name),
        )

    def _resize(self, client: bytes, message: protocol.Resize) -> None:
        self.file.change(
            workers_wanted=_either(message.workers, self.state.workers_wanted),
            servers_wanted=_either(message.servers, self.state.servers_wanted),
        )
        starts, leave = {}, []
        for role, wish in ((WORKER, message.workers), (SERVER, message.servers)):
            here = [m.name for m in self._of(role) if m.name not in self.state.draining]
            wish = len(here) if wish is None else wish
            starts[role] = max(0, wish - len(here))
            leave += here[wish:]
        self._drain_members(leave)
        self._event("resize", workers=message.workers, servers=message.servers, leave=leave)
        self.listener.send(
            client,
            protocol.ResizePlan(
                start_workers=starts[WORKER], start_servers=starts[SERVER], leave=tuple(leave)
            ),
        )

    def _drain_early(self) -> None:
        early, self._early = self._early, []
        for client, message in early:
            self._drain(client, message)

    def _drain(self, client: bytes, message: protocol.DrainRequest) -> None:
        member = self.members.get(message.name)
        is_fresh = time.monotonic() - self._started < self.timing.silent_s
        is_early = is_fresh and self.state.job is not None and self.over_s is None
        if member is None and not message.gone and is_early:
            self._early.append((client, message))
            return
        if member is not None and message.gone:
            self._lose(member, "gone")
            member = None
        if member is None or self.over_s is not None:
            self.listener.send(client, protocol.Drained(name=message.name))
            return
        waiting = self._drains.setdefault(message.name, [])
        if client not in waiting:
            waiting.append(client)
        self._drain_members([message.name])

    def _drain_members(self, names: list[str]) -> None:
        new = [name for name in names if name not in self.state.draining]
        if not new:
            return
        self.file.change(draining=(*self.state.draining, *new))
        self._event("drain", names=new)
        members = [self.members[name] for name in new]
        for member in members:
            if member.role == WORKER and not member.ready:
                self._dismiss(member)
        if any(member.role == WORKER for member in members):
            self._share_out()

    def _stop(self, client: bytes, _message: protocol.StopRequest) -> None:
        if client not in self._stops:
            self._stops.append(client)
        if self.over_s is not None:
            self._answer_stop(client)
        elif not self.stopping:
            self.stopping = True
            self._event("stop")

    def _answer_stop(self, client: bytes) -> None:
        manifest = self.state.manifest
        version = manifest.version if manifest is not None else None
        self.listener.send(client, protocol.Stopped(version=version))

    def _event(self, event: str, **facts: Any) -> None:
        self._log.event(event, facts)


_QUESTIONS: dict[type[Message], Callable[[Coordinator, bytes, Any], None]] = {
    protocol.Register: Coordinator._register,
    protocol.StatusQuery: Coordinator._status,
    protocol.Resize: Coordinator._resize,
    protocol.DrainRequest: Coordinator._drain,
    protocol.StopRequest: Coordinator._stop,
}
_REPORTS: dict[type[Message], Callable[[Coordinator, Member, Any], None]] = {
    protocol.Heartbeat: Coordinator._beat,
    protocol.Ready: Coordinator._ready,
    protocol.Adopted: Coordinator._adopted,
    protocol.InView: Coordinator._in_view,
    protocol.Saved: Coordinator._saved,
    protocol.Losses: Coordinator._losses,
    protocol.Leave: Coordinator._leave,
}


def _either(new: int | None, old: int | None) -> int | None:
    return old if new is None else new


def _run(given: argparse.Namespace) -> None:
    timing = CoordinatorTiming(beat_s=given.beat, silent_s=given.silent, snapshot_s=given.snapshot)
    folder.create_folder(given.folder)
    with folder.coordinator_lock(given.folder):
        Coordinator(given.folder, timing).run()


def main(arguments: list[str] | None = None) -> int:
    """The process."""
    parser = process.parser("coordinator", "Coordinates one elastic training job.")
    parser.add_argument("--beat", type=float, default=1.0, help="seconds between signs of life")
    parser.add_argument("--silent", type=float, default=15.0, help="seconds until silence is loss")
    parser.add_argument("--snapshot", type=float, default=30.0, help="seconds between snapshots")
    return process.run("coordinator", _run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
