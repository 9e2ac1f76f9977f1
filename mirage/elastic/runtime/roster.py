"""Members that leave or vanish, and who computes which micro-shards then."""

from __future__ import annotations

from mirage.elastic.runtime import layout, protocol
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.elastic.runtime.saving import Saving
from mirage.elastic.runtime.tracking import Member


class Roster(Saving):
    """A member that is gone is a removal, not an error."""

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

    def _leave(self, member: Member, _message: protocol.Leave) -> None:
        self._lose(member, "left")

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
        waiting = not owners or (None in owners and self._lost_owners())
        for name in self.state.draining:
            member = self.members.get(name)
            owns = (member is not None and member.role == WORKER) or name in self.state.sessions
            if member is not None and (waiting or not owns):
                self._dismiss(member)
