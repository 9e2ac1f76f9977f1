"""The coordinator: members, scaling, snapshots, recovery. `python -m
mirage.elastic.runtime.coordinator --folder FOLDER`.

It follows section 5 of DL2: registration, best-fit assignment, a scaling clock, migration, switch.
Each phase is durable in `state.json` before it is acted upon, and a line in `events.jsonl`.

A server that is lost with slices takes the job back to the last snapshot; the steps since are
computed again, with the same bits. The coordinator itself may be killed at any time: members work
on without it and register with the next one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mirage.elastic.runtime import folder, process, protocol, wire
from mirage.elastic.runtime.protocol import (
    ALL_REDUCE,
    PLANES,
    SERVER,
    WORKER,
    Message,
    ProtocolError,
)
from mirage.elastic.runtime.questions import Questions
from mirage.elastic.runtime.state import FINISHED, STOPPED, TRAINING
from mirage.elastic.runtime.tracking import CoordinatorTiming, Member, difference

log = logging.getLogger(__name__)

POLL_MS = 20
FAREWELL_S = 5.0
"""How long an ending coordinator waits for members to leave."""


class Coordinator(Questions):
    """One job's coordinator, without its process: what to do on messages, and what is due."""

    def __init__(self, path: Path, timing: CoordinatorTiming) -> None:
        super().__init__(path, timing)
        if self.state.scaling_phase:
            self._abort_after_restart()

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
        if message.role == SERVER and self._is_replicated:
            return "This job trains by all-reduce; it has no parameter servers."
        if message.role == SERVER:
            return "" if message.endpoints else "A server says where it can be reached."
        job = self.state.job or (self.candidate[1] if self.candidate else None)
        if message.job is None or (job is not None and message.job != job):
            return difference(job, message.job)
        if message.job.plane not in PLANES:
            return f"plane: {message.job.plane[:40]!r}; it is one of {', '.join(PLANES)}."
        if message.job.plane == ALL_REDUCE and not message.endpoints:
            return "A worker that reduces says where it can be reached."
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

    def _note_place(self, member: Member, message: protocol.Heartbeat | protocol.InView) -> None:
        member.step, member.incarnation = message.step, message.incarnation
        member.layout, member.roster = message.layout, message.roster
        member.has_told = True

    def _beat(self, member: Member, message: protocol.Heartbeat) -> None:
        self._note_place(member, message)
        self._send(member, protocol.HeartbeatSeen())
        if self._is_replicated:
            self._reports_step(member)
        late = time.monotonic() - member.viewed > 2 * self.timing.beat_s
        if late and not self._is_current(member):
            self._show(member)

    def _in_view(self, member: Member, message: protocol.InView) -> None:
        self._note_place(member, message)
        if self._is_replicated:
            self._waits(member, message)
            return
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

    def _losses(self, member: Member, message: protocol.Losses) -> None:
        until = message.first + len(message.values)
        if self.state.job is None or until > self.state.job.steps:
            return  # of no step of this job
        self._log.losses(message.first, message.values)
        receivers = self._of(WORKER) if self._is_replicated else [member]
        for each in receivers:
            self._send(each, protocol.Recorded(until=until))

    def _tick(self) -> None:
        self._drain_early()
        self._forget_drained()
        now = time.monotonic()
        for member in [m for m in self.members.values() if now - m.seen > self.timing.silent_s]:
            self._send(member, protocol.Refusal(reason="Register first."))
            self._lose(member, "silent")
        if self.over_s is not None or self.state.phase != TRAINING:
            return
        self._measure(now)
        if self._is_replicated:
            self._finish() if self._is_finished() else self._replicate(now)
            return
        self._dismiss_idle()
        if self._is_finished():
            self._finish()
        elif self._lost_owners():
            self._restore()
        elif self.state.owners:
            self._scale(now)
            self._snapshot(now)
        elif self.stopping:
            self._end(STOPPED)

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

    def _done(self) -> bool:
        if self.over_s is None and self.state.phase == FINISHED:
            self.over_s = time.monotonic()  # started again after the end: tells it to members
        if self.over_s is None:
            return False
        passed = time.monotonic() - self.over_s
        return passed > FAREWELL_S or (not self.members and passed > self.timing.beat_s)


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
    protocol.NotSaved: Coordinator._not_saved,
    protocol.Formed: Coordinator._formed,
    protocol.Losses: Coordinator._losses,
    protocol.Leave: Coordinator._leave,
}


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
