"""A worker of an all-reduce job: it has all parameters with their optimiser state, as every other
worker has, and updates them by the sum over all micro-shards.

A group of workers (`process_group.py`) belongs to one roster of the coordinator. With each step the
members tell each other the newest roster that they have heard of, so all leave the group after the
same step. Whoever is without a group says so (InView); once all of the newest roster have, the
coordinator lets them form the next group. There the newest parameters win.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import zmq

from mirage.elastic.runtime import folder, layout, protocol, snapshots
from mirage.elastic.runtime.flat import FlatModel
from mirage.elastic.runtime.forwarder import Forwarder
from mirage.elastic.runtime.process_group import (
    GroupBroken,
    Links,
    Nodes,
    ReplicaGroup,
    all_reduce,
)
from mirage.elastic.runtime.protocol import Message, ProtocolError, TrainingJob, View
from mirage.elastic.runtime.slices import ServedSlice, adopted, adoption
from mirage.elastic.runtime.snapshots import PARAMETER, Array, Buffers
from mirage.errors import MirageError

log = logging.getLogger(__name__)

STUCK_S = 10.0
"""A collective that takes longer although there is a newer roster: a member hangs."""
LOOK_MS = 100
"""Between two looks whether a member is gone, while nothing arrives."""


class Replica:
    """All slices at one version; -1: no parameters yet."""

    def __init__(self, job: TrainingJob) -> None:
        self._job, self._geometry = job, layout.cut(job)
        self._slices: list[ServedSlice] = []
        self.version = -1
        self.losses: list[float] = []
        """Of the last versions, as far as the coordinator may not have recorded them."""
        self.losses_from = 0

    def set(self, buffers: dict[int, Buffers], version: int) -> None:
        """Takes all slices with their optimiser state."""
        self._slices = [
            ServedSlice(self._job, geometry, buffers[index], version)
            for index, geometry in enumerate(self._geometry)
        ]
        self.version = version

    def values(self) -> Array:
        """All parameters as one vector."""
        return np.concatenate([each.values for each in self._slices])

    def buffers(self) -> dict[int, Buffers]:
        """All slices with their optimiser state, copied."""
        return {index: each.buffers() for index, each in enumerate(self._slices)}

    def update(self, gradient: torch.Tensor, loss: float, rate: float) -> None:
        """One step by the mean gradient and loss of the whole batch."""
        node = protocol.Node(first=0, last=self._job.micro_shards, loss=loss)
        for each, place in zip(self._slices, self._geometry, strict=True):
            each.add(node, gradient[place.first : place.last].clone())
            each.step(rate)
        self.version += 1
        self.losses.append(loss)

    def forget_losses(self, until: int) -> None:
        """Those before step `until` are on disk."""
        known = max(0, min(until - self.losses_from, len(self.losses)))
        self.losses, self.losses_from = self.losses[known:], self.losses_from + known

    def packed(self, roster: int) -> tuple[protocol.Adopt, list[Array]]:
        """All slices with their state, for members of this roster that lack them."""
        return adoption(
            self.buffers(),
            scaling=roster,
            incarnation=0,
            version=self.version,
            losses=tuple(self.losses),
            losses_from=self.losses_from,
        )

    def adopt(self, message: protocol.Adopt, buffers: Sequence[memoryview]) -> None:
        """The reverse of `packed`. Raises ProtocolError: not all slices, or other sizes."""
        found = adopted(self._geometry, message, buffers)
        if len(found) != len(self._geometry):
            raise ProtocolError("adopt: not all slices.")
        self.set(found, message.version)
        self.losses, self.losses_from = list(message.losses), message.losses_from


class ReplicaPlane:
    """The worker's side of an all-reduce job, for `trainer.Elastic`."""

    incarnation = 0
    """No loss of a member takes the others back."""

    def __init__(
        self, path: Path, name: str, orphan_s: float, *, job: TrainingJob, flat: FlatModel
    ) -> None:
        self.path, keys = path, folder.load_keys(path)
        self._job, self._flat, self._replica = job, flat, Replica(job)
        self._context: zmq.Context[Any] = zmq.Context()
        self._forwarder = Forwarder(self._context, path, keys, name=name, orphan_s=orphan_s)
        self._links = Links(self._context, keys, self._forwarder.session)
        self._poller = zmq.Poller()
        for each in (self._forwarder.socket, self._links.socket):
            self._poller.register(each, zmq.POLLIN)
        self._name = name
        self._view: View | None = None
        self._group: ReplicaGroup | None = None
        self._shares: tuple[protocol.WorkerShare, ...] = ()
        """Of the group's roster."""
        self._nodes: Nodes = {}
        self._rate = 1.0
        self._left_s = self._reported_s = time.monotonic()
        self._save: protocol.SaveAt | None = None
        self._writer: threading.Thread | None = None
        self._written: list[protocol.Saved] = []
        self.last_loss: float | None = None
        self.end = ""
        self._forwarder.start(protocol.WORKER, job=job, endpoints=self._links.endpoints)

    @property
    def version(self) -> int:
        """Of the parameters in the model; -1: none yet."""
        return self._replica.version

    @property
    def share(self) -> tuple[int, int]:
        """Its micro-shards, from the first to before the last."""
        shares = self._shares
        if self._group is None:
            shares = self._view.shares if self._view is not None else ()
        mine = [(each.first, each.last) for each in shares if each.worker == self._name]
        return mine[0] if mine else (0, 0)

    def ask_to_end(self) -> None:
        """Gives up its share as soon as the others have it."""
        self._forwarder.asked_to_end = True

    def close(self) -> None:
        """Ends all connections."""
        self._close_group()
        self._links.close()
        self._forwarder.close()
        self._context.term()

    def push(self, nodes: Nodes, rate: float) -> None:
        """This worker's sums for the step; `turn` exchanges them."""
        self._nodes, self._rate = dict(nodes), rate

    def wait_for(self, version: int) -> None:
        """Nothing to ask for: the exchange makes the next version."""

    def finish(self) -> None:
        """Stays until the trained model is saved."""
        while not self.end:
            self._listen(1000)
            if self._group is not None and self._newest() > self._group.roster:
                self._leave_group()

    def turn(self, wait_ms: int) -> None:
        """Handles what has arrived; if it may wait, exchanges what is computed."""
        self._listen(0)
        if not wait_ms or self.end:
            return
        if self._group is None:
            self._listen(wait_ms)
            return
        cover = self._covers()[self._group.rank]
        if all(node in self._nodes for node in cover):
            self._step(self._group)

    # --- one step

    def _covers(self) -> list[list[tuple[int, int]]]:
        """Which nodes of the summation tree each rank has."""
        assert self._group is not None
        spans = {each.worker: (each.first, each.last) for each in self._shares}
        return [
            layout.cover(*spans.get(peer.name, (0, 0)), micro_shards=self._job.micro_shards)
            for peer in self._group.peers
        ]

    def _step(self, group: ReplicaGroup) -> None:
        try:
            newest = self._exchange(group)
        except GroupBroken as error:
            log.warning("%s", error)
            self._leave_group()
            return
        self._report_losses(group.rank == 0)
        if newest > group.roster:
            self._leave_group()

    def _exchange(self, group: ReplicaGroup) -> int:
        """Makes the next version. The newest roster that a member has heard of."""
        covers, shards = self._covers(), self._job.micro_shards
        own = [self._nodes[node][1] for node in covers[group.rank]]
        row = torch.zeros(2 + max(map(len, covers)), dtype=torch.float64)
        row[: 2 + len(own)] = torch.tensor([self._newest(), self.version, *own], dtype=row.dtype)
        rows = group.gather(row, self._wait).tolist()
        if any(each[1] != self.version for each in rows):
            raise GroupBroken("members have different versions.")
        losses = {
            node: value
            for nodes, each in zip(covers, rows, strict=True)
            for node, value in zip(nodes, each[2:], strict=False)
        }
        loss = layout.total(losses, 0, shards, lambda left, right: left + right)
        size = self._flat.values.numel()
        total = all_reduce(group, covers, self._nodes, size, shards, self._wait)
        assert loss is not None
        self._replica.update(total, loss, self._rate)
        self._nodes, self.last_loss = {}, loss
        self._show_values()
        return int(max(each[0] for each in rows))

    def _show_values(self) -> None:
        self._flat.set_values(self._replica.values())
        self._forwarder.step = self.version

    def _newest(self) -> int:
        return self._view.roster if self._view is not None else 0

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Until it is true. Raises GroupBroken: this worker shall leave the group."""
        began = time.monotonic()
        while not is_over():
            self._listen(0)
            late = time.monotonic() - began > STUCK_S
            if self.end or (late and self._group and self._newest() > self._group.roster):
                raise GroupBroken("a member of the group hangs.")
            self._poller.poll(LOOK_MS)

    # --- the group

    def _leave_group(self) -> None:
        self._close_group()
        self._left_s = time.monotonic()
        self._say_in_view()

    def _close_group(self) -> None:
        if self._group is not None:
            self._group.close()
        self._group = None

    def _say_in_view(self) -> None:
        view = self._view
        if view is None:
            return
        self._forwarder.send(
            protocol.InView(
                step=max(self.version, 0),
                incarnation=view.incarnation,
                layout=view.layout,
                roster=view.roster,
                scaling=0,
            )
        )

    def _form(self, roster: int) -> None:
        view = self._view
        if view is None or roster != view.roster or self._group is not None:
            return
        before = self.version
        try:
            self._group = ReplicaGroup(view.servers, self._forwarder.session, roster, self._links)
            self._shares = view.shares
            self._synchronise(self._group, view)
        except GroupBroken as error:
            log.warning("%s", error)
            self._close_group()
            self._say_in_view()
            return
        if self.version != before:
            self._nodes = {}
        self._forwarder.send(
            protocol.Formed(
                roster=roster,
                step=self.version,
                suspended_s=time.monotonic() - self._left_s,
            )
        )

    def _synchronise(self, group: ReplicaGroup, view: View) -> None:
        """Everybody gets the newest parameters of the group; if there are none, the snapshot's."""
        row = torch.tensor([float(self.version)], dtype=torch.float64)
        versions = group.gather(row, self._wait)[:, 0].tolist()
        if max(versions) < 0:
            try:
                parts = snapshots.read_parts(self.path, view.load, range(len(layout.cut(view.job))))
            except MirageError as error:  # a newer one has replaced it
                raise GroupBroken(str(error)) from None
            self._replica.set(parts, view.version)
            self._replica.losses, self._replica.losses_from = [], view.version
        elif min(versions) < max(versions):
            self._give(group, versions)
        self._show_values()

    def _give(self, group: ReplicaGroup, versions: Sequence[float]) -> None:
        """The first member with the newest version gives it to those who lack it."""
        source = versions.index(max(versions))
        if group.rank == source:
            lacking = [rank for rank in group.others if versions[rank] < max(versions)]
            group.give(lacking, *self._replica.packed(group.roster))
        elif self.version < max(versions):
            message, buffers = group.take(source, protocol.Adopt, self._wait)
            try:
                self._replica.adopt(cast(protocol.Adopt, message), buffers)
            except ProtocolError as error:
                raise GroupBroken(str(error)) from None

    # --- the coordinator

    def _listen(self, wait_ms: int) -> None:
        if wait_ms:
            self._forwarder.socket.poll(wait_ms)
        while (message := self._forwarder.receive()) is not None:
            self._obey(message)
        self._save_if_due()

    def _obey(self, message: Message) -> None:
        if isinstance(message, protocol.Welcome):
            if message.write_initial:
                self._write_initial()
        elif isinstance(message, View):
            self._view = message
            self._forwarder.roster = message.roster
            if self._group is None:
                self._say_in_view()
        elif isinstance(message, protocol.Form):
            self._form(message.roster)
        elif isinstance(message, protocol.SaveAt):
            self._save = message
        elif isinstance(message, protocol.Recorded):
            self._replica.forget_losses(message.until)
        elif isinstance(message, protocol.End):
            self.end = message.reason

    def _report_losses(self, is_due: bool) -> None:
        late = time.monotonic() - self._reported_s > self._forwarder.beat_s
        if is_due and late and self._replica.losses:
            self._reported_s = time.monotonic()
            self._send_losses()

    def _send_losses(self) -> None:
        values = tuple(self._replica.losses)
        self._forwarder.send(protocol.Losses(first=self._replica.losses_from, values=values))

    def _write_initial(self) -> None:
        values = self._flat.get_values()
        slices = {
            index: {PARAMETER: values[each.first : each.last]}
            for index, each in enumerate(layout.cut(self._job))
        }
        part = snapshots.write_part(self.path, snapshots.new_file_name(0), slices)
        self._forwarder.send(protocol.Saved(incarnation=0, version=0, part=part))

    def _save_if_due(self) -> None:
        """Writes a snapshot in the background, from copies."""
        for saved in self._written:
            self._writer = None
            self._send_losses()
            self._forwarder.send(saved)
        self._written = []
        if self._save is None or self._writer is not None or self.version < self._save.version:
            return
        self._save = None
        copies, version = self._replica.buffers(), self.version
        file = snapshots.new_file_name(version)

        def write() -> None:
            try:
                part = snapshots.write_part(self.path, file, copies)
            except MirageError as error:
                log.warning("no snapshot: %s", error)
                self._writer = None
                return
            self._written.append(protocol.Saved(incarnation=0, version=version, part=part))

        self._writer = threading.Thread(target=write, daemon=True)
        self._writer.start()
