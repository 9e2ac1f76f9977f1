"""The lowest layer of the coordinator: its sockets and durable state, the members and the view that
they are shown, progress, and who waits for an answer.

The layers above, each a class on the one before: `scaling.py`, `saving.py`, `roster.py`,
`replication.py` (all-reduce), `questions.py`, `coordinator.py`.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import zmq

from mirage.elastic.runtime import folder, protocol, wire
from mirage.elastic.runtime.protocol import SERVER, WORKER, Message, TrainingJob
from mirage.elastic.runtime.state import STOPPED, TRAINING, CoordinatorState, StateFile
from mirage.elastic.runtime.tracking import ActiveScaling, CoordinatorTiming, Member, Pause
from mirage.elastic.runtime.training_log import TrainingLog

SPEED_WINDOW_S = 30.0
AGAIN_S = 3.0
"""A view that is not answered for so long, and for three beats, is sent again."""


class Membership:
    """Who is there, and what they are shown."""

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
        """Sessions that have registered with this coordinator."""
        self._replaced: set[str] = set()
        """Sessions whose name a later process has."""
        self._early: list[tuple[bytes, protocol.DrainRequest]] = []
        """Drains of members that may register again with this coordinator, which was restarted."""
        self._margin = 1
        self._round_trip_s = 0.05
        self._speed: deque[tuple[float, int]] = deque()
        self._suspended_s: float | None = None
        self._log = TrainingLog(path)

    @property
    def state(self) -> CoordinatorState:
        """As it is on disk."""
        return self.file.now

    def _is_fresh(self) -> bool:
        """Whether members that have not registered again after a restart may still do so."""
        return time.monotonic() - self._started < self.timing.silent_s

    def _member(self, peer: bytes) -> Member | None:
        return next((m for m in self.members.values() if m.session.encode() == peer), None)

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

    def _show_again(self, member: Member) -> None:
        """The view or its answer may have been lost with a connection; a member answers each."""
        if time.monotonic() - member.viewed > max(AGAIN_S, 3 * self.timing.beat_s):
            self._show(member)

    def _show_all(self) -> None:
        for member in self.members.values():
            self._show(member)

    def _send(self, member: Member, message: Message) -> None:
        self.listener.send(member.session.encode(), message)

    def _event(self, event: str, **facts: Any) -> None:
        self._log.event(event, facts)

    def _is_current(self, member: Member) -> bool:
        mine = (member.incarnation, member.layout)
        if mine != (self.state.incarnation, self.state.layout):
            return False
        return member.role == SERVER or member.roster == self.roster

    def _settled(self) -> bool:
        """Whether all owners are in the current view, so have their slices in memory."""
        owners = [self._owner(name) for name in self.state.sessions]
        return all(owner is not None and self._is_current(owner) for owner in owners)

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

    def _clock(self) -> int:
        """A version that no slice has passed when the message arrives: section 5, step 2."""
        owners = [self._owner(name) for name in self.state.sessions]
        top = max([owner.step for owner in owners if owner], default=self.state.start)
        if not any(member.ready for member in self._of(WORKER)):
            return top
        ahead_s = self.timing.beat_s + 3 * self._round_trip_s
        return top + int((self._steps_per_s() or 0.0) * ahead_s) + self._margin

    def _saved_step(self) -> int:
        return self.state.manifest.version if self.state.manifest is not None else 0

    def _answer_drains(self, name: str) -> None:
        for client in self._drains.pop(name, []):
            self.listener.send(client, protocol.Drained(name=name))
        if name in self.state.draining:
            rest = tuple(each for each in self.state.draining if each != name)
            self.file.change(draining=rest)

    def _answer_stop(self, client: bytes) -> None:
        manifest = self.state.manifest
        version = manifest.version if manifest is not None else None
        self.listener.send(client, protocol.Stopped(version=version))

    def _end(self, phase: str) -> None:
        self.scaling = self.pause = None
        self.file.change(
            phase=phase,
            scaling_phase="",
            owners=(),
            sessions={},
            layout=self.state.layout + 1,
            draining=(),
        )
        self._event(phase)
        self.over_s = time.monotonic()
        for member in self.members.values():
            self._send(member, protocol.End(reason=phase))
        for name in list(self._drains):
            self._answer_drains(name)
        for client in self._stops:
            self._answer_stop(client)
