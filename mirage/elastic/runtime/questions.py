"""What clients ask and want: status, another size, a member or the whole job to end."""

from __future__ import annotations

import time

from mirage.elastic.runtime import protocol
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.elastic.runtime.replication import Replication
from mirage.elastic.runtime.state import TRAINING
from mirage.elastic.runtime.tracking import Member


class Questions(Replication):
    """Requests of clients."""

    def _status(self, client: bytes, _message: protocol.StatusQuery) -> None:
        job, speed = self.state.job, self._steps_per_s()
        step = self._shown_step()
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

    def _shown_step(self) -> int:
        reported = self._reported_step() if self._is_replicated else None
        if reported is not None:
            return reported
        return self._step() if self.state.owners else self._saved_step()

    def _state_word(self) -> str:
        if self.state.phase != TRAINING:
            return self.state.phase
        if self.stopping:
            return "stopping"
        if self.scaling is not None:
            return "scaling"
        if self._is_replicated:
            return "training" if self._is_formed and not self._waiting else "waiting"
        if not self.state.owners or not any(m.ready for m in self._of(WORKER)):
            return "waiting"
        return "training" if self._settled() else "restoring"

    def _row(self, member: Member) -> protocol.MemberStatus:
        draining = member.name in self.state.draining
        takes_part = self._owner(member.name) is not None
        if member.role == WORKER:
            takes_part = member.holds if self._is_replicated else member.ready
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

    def _forget_drained(self) -> None:
        """Members that ended while no coordinator ran: a later one of such a name is another one."""
        if self._is_fresh():
            return
        for name in [each for each in self.state.draining if each not in self.members]:
            self._answer_drains(name)

    def _drain(self, client: bytes, message: protocol.DrainRequest) -> None:
        member = self.members.get(message.name)
        is_early = self._is_fresh() and self.state.job is not None and self.over_s is None
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
            if member.role == WORKER and not member.ready and not self._has_replicas():
                self._dismiss(member)
        if any(member.role == WORKER for member in members):
            self._share_out()

    def _has_replicas(self) -> bool:
        """Whether a worker may have what nobody else has, though it has only just registered."""
        return self._is_replicated and self.state.manifest is not None

    def _stop(self, client: bytes, _message: protocol.StopRequest) -> None:
        if client not in self._stops:
            self._stops.append(client)
        if self.over_s is not None:
            self._answer_stop(client)
        elif not self.stopping:
            self.stopping = True
            self._event("stop")


def _either(new: int | None, old: int | None) -> int | None:
    return old if new is None else new
