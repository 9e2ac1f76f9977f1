"""Snapshots, the end of a job, and the way back to a snapshot after a loss."""

from __future__ import annotations

import time

from mirage.elastic.runtime import layout, protocol, snapshots
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.elastic.runtime.scaling import ScalingLayer
from mirage.elastic.runtime.state import FINISHED, STOPPED, Manifest
from mirage.elastic.runtime.tracking import Member, Pause

SAVE_S = 120.0
"""After which a snapshot is asked for again."""


class Saving(ScalingLayer):
    """A snapshot counts once every slice is durable in it."""

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
        if len(found) == len(layout.cut(self.state.job)):
            self._commit_snapshot(message.version, tuple(parts.values()))

    def _not_saved(self, _member: Member, message: protocol.NotSaved) -> None:
        pause = self.pause
        if pause is not None and message.incarnation == self.state.incarnation:
            pause.is_missed |= message.version == pause.version

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
        """Brings servers to one version and saves it; tries again if one was past it, or cannot get
        there without workers. Writing may take long.
        """
        retry_s = 4 * self.timing.beat_s + 3 / max(self._steps_per_s() or 1.0, 0.01)
        pause = self.pause
        if not self._settled() or (pause and now - pause.began < retry_s):
            return
        if pause and not pause.is_missed and self._step() >= pause.version:
            if now - pause.began > SAVE_S:  # an order or its answer was lost with a connection
                pause.began = now
                self._save_at(pause.version, hold=True)
            return
        workers = any(member.ready for member in self._of(WORKER))
        assert self.state.job is not None
        version = min(self._clock(), self.state.job.steps)
        if pause and not workers and pause.version == version:
            self._paused()  # slices are at different versions: the last snapshot must do
            return
        self._margin = 1 if pause is None else min(2 * self._margin, 1024)
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

    def _lost_owners(self) -> bool:
        """Whether slices are nowhere in memory. After a restart, owners get time to register."""
        if self.state.manifest is None:
            return False
        if not self.state.owners:
            return True
        missing = {n: s for n, s in self.state.sessions.items() if self._owner(n) is None}
        return any(
            not self._is_fresh() or name in self.members or session in self._known
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
