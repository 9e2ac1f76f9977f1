"""What a training script uses: `Elastic`.

    elastic = Elastic(model, torch.optim.Adam(model.parameters()), data, batch_size=96, epochs=20)
    while elastic.running:
        elastic.step(lambda model, batch: loss(model(batch[0]), batch[1]))

Started by `python -m mirage.elastic.runtime.worker --folder F --name w1 -- SCRIPT ARGUMENTS`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import zmq

from mirage.elastic.runtime import folder, layout, protocol, snapshots, wire
from mirage.elastic.runtime.batches import Batches, seed_generators
from mirage.elastic.runtime.flat import FlatModel
from mirage.elastic.runtime.forwarder import Forwarder
from mirage.elastic.runtime.protocol import Message, Node, Peer, ProtocolError, TrainingJob, View
from mirage.elastic.runtime.replica import ReplicaPlane
from mirage.elastic.runtime.slices import options_of
from mirage.errors import InputError, MirageError

log = logging.getLogger(__name__)

LossFunction = Callable[[torch.nn.Module, Any], torch.Tensor]
WAIT_MS = 1000


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """Which job the worker's script belongs to."""

    folder: Path
    name: str
    orphan_s: float
    plane: str = protocol.SERVERS
    """One of `protocol.PLANES`."""


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """A finished training step."""

    number: int
    """From 0. After the loss of a parameter server some numbers come again, with the same bits."""
    epoch: int
    loss: float | None
    """The mean over the whole batch; None: not known here."""


_worker_context: WorkerContext | None = None


def set_worker_context(context: WorkerContext) -> None:
    """Called by the worker's process before it runs the script."""
    global _worker_context
    _worker_context = context


def _required_context() -> WorkerContext:
    if _worker_context is None:
        raise InputError(
            "Start the script by `python -m mirage.elastic.runtime.worker --folder FOLDER --"
            " SCRIPT ARGUMENTS`."
        )
    return _worker_context


class _ShareChanged(Exception):
    """Other micro-shards are this worker's now, or none."""


class Elastic:
    """Trains `model` together with all other members of the job.

    Every worker runs the same script. The first one's initial parameters count. A step trains on
    `batch_size` samples, whatever the number of workers, so the result is the same to the last bit
    (on machines of one kind).

    - `optimizer`: SGD, Adam, AdamW, Adagrad or RMSprop of torch.optim. Its parameters and options
      count; the updates are the servers' work, so do not call its `step`.
    - `dataset[i]` gives sample i, as for `torch.utils.data.DataLoader`; `collate` joins samples.
    - `rate(step)` gives what learning rates are multiplied by; without it they stay as they are.
    - `micro_shards`: equal parts of each batch, at most `batch_size`. More workers than micro-shards
      are of no use.

    Raises InputError: wrong values, or a script that was started without the worker's command.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        micro_shards: int = 12,
        seed: int = 0,
        threads: int = 1,
        rate: Callable[[int], float] | None = None,
        collate: Callable[[list[Any]], Any] = torch.utils.data.default_collate,
    ) -> None:
        worker = _required_context()
        torch.set_num_threads(threads)
        self._model, self._dataset, self._collate = model, dataset, collate
        self._rate = rate or (lambda _step: 1.0)
        self._flat = FlatModel(model, optimizer)
        self.job = TrainingJob(
            parameters=self._flat.parameters,
            optimizer=type(optimizer).__name__,
            groups=options_of(optimizer),
            samples=len(dataset),
            batch_size=batch_size,
            micro_shards=micro_shards,
            steps=_steps(len(dataset), batch_size, epochs, steps),
            seed=seed,
            plane=worker.plane,
        )
        if not 0 < micro_shards <= batch_size:
            raise InputError(f"micro_shards: {micro_shards}; give 1 to batch_size ({batch_size}).")
        self._slices = layout.cut(self.job)
        self._batches = Batches(self.job)
        self._nodes: dict[tuple[int, int], tuple[torch.Tensor, float]] = {}
        self._plane = self._new_plane(worker)
        _active.append(self._plane)
        self._over = ""

    def _new_plane(self, worker: WorkerContext) -> _ServerPlane | ReplicaPlane:
        if worker.plane == protocol.SERVERS:
            return _ServerPlane(worker, self)
        return ReplicaPlane(
            worker.folder, worker.name, worker.orphan_s, job=self.job, flat=self._flat
        )

    @property
    def running(self) -> bool:
        """False once the training is finished or stopped, or this worker was drained."""
        if not self._over and self.step_number >= self.job.steps:
            self._plane.finish()
            self._stop("finished")
        return not self._over

    @property
    def step_number(self) -> int:
        """Finished steps of the parameters that the model has now."""
        return max(self._plane.version, 0)

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self.step_number // self.job.epoch_steps

    @property
    def end(self) -> str:
        """`finished`, `stopped`, `drained` or `replaced`; empty while running."""
        return self._over

    def step(self, loss: LossFunction) -> TrainingStep | None:
        """One step on the whole batch, of which this worker computes its share.

        `loss(model, batch)` gives the mean loss of a batch, a scalar. None: the training ended
        meanwhile. Raises MirageError: this worker cannot take part.
        """
        while self._has_parameters():
            version, incarnation = self._plane.version, self._plane.incarnation
            self._nodes = {}
            self._work(loss)
            if self._is_at(version, incarnation):  # else a new view has asked for what is needed
                self._plane.wait_for(version + 1)
                while self._turn() and self._is_at(version, incarnation):
                    self._work(loss)
            if not self._over and self._plane.incarnation == incarnation:
                return self._finished_step(version)
        return None

    def _finished_step(self, version: int) -> TrainingStep:
        epoch = version // self.job.epoch_steps
        return TrainingStep(number=version, epoch=epoch, loss=self._plane.last_loss)

    def close(self) -> None:
        """Leaves the job; the others work on."""
        if not self._over:
            self._over = "closed"
            _close(self._plane)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # --- work

    def _has_parameters(self) -> bool:
        """Waits for them. False: the training ended."""
        while self.running and self._plane.version < 0:
            self._turn()
        return self.running

    def _is_at(self, version: int, incarnation: int) -> bool:
        return (self._plane.version, self._plane.incarnation) == (version, incarnation)

    def _turn(self) -> bool:
        """Waits for a message. False: the training ended."""
        self._plane.turn(WAIT_MS)
        if self._plane.end:
            self._stop(self._plane.end)
        return not self._over

    def _stop(self, reason: str) -> None:
        if reason == "finished" and self.step_number < self.job.steps:
            self._flat.set_values(snapshots.read_model(self._plane.path, self.job))
        self._over = reason
        _close(self._plane)

    def _work(self, loss: LossFunction) -> None:
        """Computes and pushes this worker's share at the current version, as far as it is not done.

        A view that arrives meanwhile counts from the next micro-shard on: it may give the worker
        more of them, or take them all away.
        """
        at = (self._plane.version, self._plane.incarnation)
        while self._is_at(*at) and not self._plane.end:
            first, last = self._plane.share
            try:
                for node in layout.cover(first, last, micro_shards=self.job.micro_shards):
                    if node not in self._nodes:
                        self._nodes[node] = self._sum(*node, loss)
            except _ShareChanged:
                continue
            self._plane.push(self._nodes, self._rate(self._plane.version))
            return

    def _sum(self, first: int, last: int, loss: LossFunction) -> tuple[torch.Tensor, float]:
        if (first, last) in self._nodes:
            return self._nodes[first, last]
        if last - first == 1:
            return self._shard(first, loss)
        middle = (first + last) // 2
        left, right = self._sum(first, middle, loss), self._sum(middle, last, loss)
        return left[0] + right[0], left[1] + right[1]

    def _shard(self, shard: int, loss: LossFunction) -> tuple[torch.Tensor, float]:
        """Gradients and loss of one micro-shard, as its part of the batch's mean.

        Raises _ShareChanged: a message that has arrived makes it needless.
        """
        step = self._plane.version
        before = (self._plane.share, step, self._plane.incarnation)
        self._plane.turn(0)
        after = (self._plane.share, self._plane.version, self._plane.incarnation)
        if before != after or self._plane.end:
            raise _ShareChanged
        indices = self._batches.indices(step, shard)
        seed_generators(self.job, step, shard)
        batch = self._collate(_samples(self._dataset, indices))
        self._flat.clear_gradients()
        mean = loss(self._model, batch)
        if not isinstance(mean, torch.Tensor) or mean.numel() != 1:
            raise InputError("step: the loss function must return a scalar tensor.")
        part = mean * (len(indices) / self.job.batch_size)
        part.backward()  # type: ignore[no-untyped-call]
        return self._flat.take_gradients(), float(part.detach())


class _ServerPlane:
    """The worker's side of the messages: views from the coordinator, parameters from servers."""

    def __init__(self, worker: WorkerContext, owner: Elastic) -> None:
        keys = folder.load_keys(worker.folder)
        self.path, self._keys = worker.folder, keys
        self._flat, self._job, self._slices = owner._flat, owner.job, owner._slices
        self._context: zmq.Context[Any] = zmq.Context()
        self._forwarder = Forwarder(
            self._context, worker.folder, keys, name=worker.name, orphan_s=worker.orphan_s
        )
        self._name = worker.name
        self._view: View | None = None
        self._servers: dict[str, wire.PeerConnection] = {}
        """By session."""
        self.version = -1
        """Of the parameters in the model; -1: none yet."""
        self._wanted, self._exact = 0, False
        self._replies: dict[str, tuple[int, memoryview]] = {}
        self._pushed: set[tuple[str, tuple[int, int]]] = set()
        self._acknowledged = True
        self._scaling: protocol.Prepare | None = None
        self._idle_since = 0.0
        self.last_loss: float | None = None
        self.end = ""
        self._forwarder.start(protocol.WORKER, job=self._job)

    @property
    def incarnation(self) -> int:
        """Of the view."""
        return self._view.incarnation if self._view is not None else 0

    @property
    def share(self) -> tuple[int, int]:
        """Its micro-shards, from the first to before the last."""
        shares = self._view.shares if self._view is not None else ()
        mine = [(each.first, each.last) for each in shares if each.worker == self._name]
        return mine[0] if mine else (0, 0)

    def ask_to_end(self) -> None:
        """Gives up its share as soon as the others have it."""
        self._forwarder.asked_to_end = True

    def close(self) -> None:
        """Ends all connections."""
        self._forwarder.close()
        for connection in self._servers.values():
            connection.close()
        self._context.term()

    def finish(self) -> None:
        """Nothing to wait for: the servers save what they have."""

    # --- sending

    def wait_for(self, version: int) -> None:
        """Asks all servers for this version; `turn` receives it."""
        self._wanted, self._exact = version, False
        self._idle_since = time.monotonic()
        self._pull()

    def _pull(self, only: Sequence[str] | None = None) -> None:
        if self._view is None:
            return
        for peer in self._reached():
            if only is None or peer.session in only:
                self._replies.pop(peer.session, None)
                self._servers[peer.session].send(
                    protocol.Pull(
                        incarnation=self._view.incarnation,
                        layout=self._view.layout,
                        version=self._wanted,
                        exact=self._exact,
                        slices=self._of(peer),
                    )
                )

    def _reached(self) -> list[Peer]:
        """The servers that it is connected to."""
        servers = self._view.servers if self._view is not None else ()
        return [peer for peer in servers if peer.session in self._servers]

    def _of(self, peer: Peer) -> tuple[int, ...]:
        assert self._view is not None
        return tuple(i for i, owner in enumerate(self._view.owners) if owner == peer.name)

    def push(self, nodes: dict[tuple[int, int], tuple[torch.Tensor, float]], rate: float) -> None:
        """Sends each server what it does not have of these sums."""
        if self._view is None:
            return
        for peer in self._reached():
            new = [key for key in nodes if (peer.session, key) not in self._pushed]
            if not new:
                continue
            slices = self._of(peer)
            buffers = [_gather(nodes[key][0], self._slices, slices) for key in new]
            self._servers[peer.session].send(
                protocol.Push(
                    incarnation=self._view.incarnation,
                    layout=self._view.layout,
                    version=self.version,
                    slices=slices,
                    nodes=tuple(
                        Node(first=first, last=last, loss=nodes[first, last][1])
                        for first, last in new
                    ),
                    rate=rate,
                ),
                buffers,
            )
            self._pushed |= {(peer.session, key) for key in new}

    # --- receiving

    def turn(self, wait_ms: int) -> None:
        """Waits for a message, and handles all that are there."""
        poller = zmq.Poller()
        poller.register(self._forwarder.socket, zmq.POLLIN)
        for connection in self._servers.values():
            poller.register(connection.socket, zmq.POLLIN)
        poller.poll(wait_ms)
        while (message := self._forwarder.receive()) is not None:
            self._obey(message)
        self._reach_the_rest()
        for session, connection in list(self._servers.items()):
            try:
                while session in self._servers and (got := connection.receive()) is not None:
                    self._take(session, got[0], got[1])
            except ProtocolError as error:
                log.warning("a message was dropped: %s", error)

    def _reach_the_rest(self) -> None:
        """Tries again to connect to servers that did not answer, until a view is without them."""
        before = self._reached()
        if self._view is not None and len(before) < len(self._view.servers):
            self._connect(self._view.servers)
            self._pull([peer.session for peer in self._reached() if peer not in before])

    def _obey(self, message: Message) -> None:
        if isinstance(message, protocol.Welcome):
            if message.write_initial:
                self._write_initial()
        elif isinstance(message, protocol.Prepare):
            self._scaling = message
            self._connect(message.servers)
            self._forwarder.send(
                protocol.Ready(scaling=message.scaling, accepted=True, step=max(0, self.version))
            )
        elif isinstance(message, View):
            self._take_view(message)
        elif isinstance(message, protocol.End):
            self.end = message.reason

    def _write_initial(self) -> None:
        values = self._flat.get_values()
        slices = {
            index: {snapshots.PARAMETER: values[each.first : each.last]}
            for index, each in enumerate(self._slices)
        }
        file = snapshots.new_file_name(0)
        part = snapshots.write_part(self.path, file, slices)
        self._forwarder.send(protocol.Saved(incarnation=0, version=0, part=part))

    def _take_view(self, view: View) -> None:
        old, self._view = self._view, view
        self._connect(view.servers)
        for session in self._servers.keys() - {peer.session for peer in view.servers}:
            self._servers.pop(session).close()
        if old is None or view.incarnation != old.incarnation:
            self.version, self._wanted, self._exact = -1, view.version, False
        moved = old is None or (view.incarnation, view.layout) != (old.incarnation, old.layout)
        if moved:
            self._pushed, self._replies = set(), {}
            self._pull()
        self._forwarder.incarnation, self._forwarder.layout = view.incarnation, view.layout
        self._forwarder.roster = view.roster
        if self.version >= 0:
            self._acknowledge()
        else:
            self._acknowledged = False  # only with parameters it can take a share

    def _acknowledge(self) -> None:
        view, scaling = self._view, self._scaling
        assert view is not None
        suspended = 0.0
        if scaling is not None and scaling.scaling == view.scaling:
            waits = self.version == scaling.clock and self._wanted > self.version
            suspended = time.monotonic() - self._idle_since if waits else 0.0
            self._scaling = None
        self._acknowledged = True
        self._forwarder.send(
            protocol.InView(
                step=self.version,
                incarnation=view.incarnation,
                layout=view.layout,
                roster=view.roster,
                scaling=view.scaling,
                suspended_s=suspended,
            )
        )

    def _connect(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            if peer.session not in self._servers:
                try:
                    self._servers[peer.session] = wire.connect_peer(
                        self._context, self._keys, peer, self._forwarder.session
                    )
                except MirageError as error:
                    log.warning("%s", error)

    def _take(self, session: str, message: Message, buffers: list[memoryview]) -> None:
        view = self._view
        if not isinstance(message, protocol.Parameters) or view is None:
            raise ProtocolError(f"{message.KIND}: not for a worker.")
        peer = next((each for each in view.servers if each.session == session), None)
        if peer is None or message.incarnation != view.incarnation:
            return
        if message.slices != self._of(peer) or message.version < self._wanted:
            return
        size = sum(self._slices[index].size for index in message.slices)
        if len(buffers) != 1 or len(buffers[0]) != 4 * size:
            raise ProtocolError(f"parameters: not one buffer of {4 * size} bytes.")
        self._replies[session] = (message.version, buffers[0])
        if message.loss is not None:
            self.last_loss = message.loss
        if len(self._replies) == len(view.servers):
            self._complete(view)

    def _complete(self, view: View) -> None:
        """All servers have answered: with one version, or some have to be asked again."""
        versions = {version for version, _ in self._replies.values()}
        if len(versions) > 1:
            self._wanted, self._exact = min(versions), True
            ahead = [key for key, (version, _) in self._replies.items() if version > min(versions)]
            self._pull(ahead)
            return
        flat = np.empty(sum(each.size for each in self._slices), dtype=np.float32)
        for peer in view.servers:
            values = np.frombuffer(self._replies[peer.session][1], dtype=np.float32)
            start = 0
            for index in self._of(peer):
                each = self._slices[index]
                flat[each.first : each.last] = values[start : start + each.size]
                start += each.size
        self._flat.set_values(flat)
        self.version = versions.pop()
        self._forwarder.step = self.version
        self._replies, self._pushed = {}, set()
        if not self._acknowledged:
            self._acknowledge()


_active: list[_ServerPlane | ReplicaPlane] = []


def _close(plane: _ServerPlane | ReplicaPlane) -> None:
    if plane in _active:
        _active.remove(plane)
        plane.close()


def ask_to_end() -> None:
    """Every running `Elastic` of this process leaves without loss: the worker's SIGTERM."""
    for plane in _active:
        plane.ask_to_end()


def leave_all() -> None:
    """Ends what the script left open."""
    for plane in list(_active):
        _close(plane)


def _gather(
    flat: torch.Tensor, slices: Sequence[layout.Slice], wanted: Sequence[int]
) -> memoryview:
    """These slices of a flat vector, one after the other."""
    pieces = [flat[slices[index].first : slices[index].last] for index in wanted]
    return memoryview(torch.cat(pieces).numpy().data).cast("B")


def _samples(dataset: Any, indices: list[int]) -> list[Any]:
    """As `torch.utils.data` fetches them."""
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


def _steps(samples: int, batch_size: int, epochs: float | None, steps: int | None) -> int:
    if not 0 < batch_size <= samples:
        raise InputError(f"batch_size: {batch_size}; give 1 to the data set's {samples} samples.")
    if (epochs is None) == (steps is None):
        raise InputError("Give either epochs or steps.")
    count = steps if steps is not None else int((epochs or 0) * (samples // batch_size))
    if count < 1:
        raise InputError(f"epochs, steps: {count} steps; give at least one.")
    return count
