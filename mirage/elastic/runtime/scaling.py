"""Scaling of parameter servers: DL2, section 5.

- prepare: servers and workers learn the new owners and the clock; all answer Ready.
- migrate: at the clock, old owners send the moving slices with their optimiser state.
- switch: decided once every moving slice is at its new owner. Everyone gets the new view.
- commit: everyone acts by it; drained servers may be cancelled.

Before the switch a failure of any role leads back to the old view, and nothing has changed. From
the switch on the new view counts.
"""

from __future__ import annotations

import time
from typing import Any

from mirage.elastic.runtime import layout, protocol
from mirage.elastic.runtime.membership import Membership
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.elastic.runtime.tracking import ActiveScaling, Member


class ScalingLayer(Membership):
    """One scaling at a time, in four phases, each durable before it is acted upon."""

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
            for member in self.members.values():
                if member.session in scaling.unswitched:
                    self._show_again(member)
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
