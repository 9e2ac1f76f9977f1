"""A parameter server. `python -m mirage.elastic.runtime.server --folder FOLDER --name NAME`.

It holds slices of the parameters with their optimiser state, sums the gradients of all micro-shards
in the fixed order and updates a slice once all are there. It keeps nothing on disk but snapshots.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zmq

from mirage.elastic.runtime import folder, layout, process, protocol, slices, snapshots, wire
from mirage.elastic.runtime.forwarder import Forwarder
from mirage.elastic.runtime.protocol import Message, Peer, ProtocolError, TrainingJob
from mirage.elastic.runtime.slices import ServedSlice, adopted, adoption
from mirage.elastic.runtime.snapshots import Buffers
from mirage.errors import MirageError

log = logging.getLogger(__name__)


class ParameterServer:
    """One server without its process. `turn` does what has arrived and what is due."""

    def __init__(self, path: Path, name: str, orphan_s: float) -> None:
        protocol.check_name(name)
        keys = folder.load_keys(path)
        self.path, self.name, self._keys = path, name, keys
        self.context: zmq.Context[Any] = zmq.Context()
        self.listener = wire.Listener(self.context, keys)
        self.coordinator = Forwarder(self.context, path, keys, name=name, orphan_s=orphan_s)
        self.job: TrainingJob | None = None
        self.incarnation = self.layout = 0
        self.slices: dict[int, ServedSlice] = {}
        self._geometry: tuple[layout.Slice, ...] = ()
        self._incoming: dict[int, tuple[Buffers, int]] = {}
        self._scaling: protocol.Prepare | None = None
        self._sent = False
        """Whether this scaling's slices are on their way."""
        self._save: protocol.SaveAt | None = None
        self._unsaved: set[int] = set()
        self._writer: threading.Thread | None = None
        self._written: list[tuple[protocol.SaveAt, protocol.SavedSlices | MirageError]] = []
        self._pulls: dict[bytes, protocol.Pull] = {}
        """By worker: a later one replaces it."""
        self._early: list[tuple[bytes, Message, list[memoryview]]] = []
        self._losses: list[float] = []
        self._losses_from = 0
        self._last_loss = (-1, 0.0)
        self._rate = 1.0
        self._packed: tuple[tuple[int, tuple[int, ...]], bytes] = ((-1, ()), b"")
        self._peers: dict[str, wire.PeerConnection] = {}
        self._reported = 0.0
        self.over = ""
        """Why it ends; empty: it does not."""

    def run(self) -> None:
        """Returns when the coordinator says so. Raises MirageError where it must not work on."""
        self.coordinator.start(protocol.SERVER, endpoints=self.listener.endpoints)
        try:
            while not self.over:
                self.turn()
        finally:
            self.coordinator.close()
            for connection in self._peers.values():
                connection.close()
            self.listener.close()
            self.context.term()

    def turn(self) -> None:
        """One round; it waits for messages until the next beat at most."""
        poller = zmq.Poller()
        poller.register(self.listener.socket, zmq.POLLIN)
        poller.register(self.coordinator.socket, zmq.POLLIN)
        poller.poll(10 if self._writer is not None else int(1000 * self.coordinator.beat_s))
        while self._receive(self.listener.receive, self._serve):
            pass
        while self._receive(self.coordinator.receive, self._obey):
            pass
        self._finish_writing()
        self.coordinator.step = self.version
        if time.monotonic() - self._reported > self.coordinator.beat_s:
            self._report_losses()

    def _receive(self, source: Callable[[], Any], handle: Callable[[Any], None]) -> bool:
        try:
            received = source()
        except ProtocolError as error:
            log.warning("a message was dropped: %s", error)
            return True
        if received is not None:
            try:
                handle(received)
            except ProtocolError as error:
                log.warning("a message was dropped: %s", error)
        return received is not None

    # --- with the coordinator

    @property
    def version(self) -> int:
        """Of its slowest slice."""
        return min((each.version for each in self.slices.values()), default=0)

    def _obey(self, message: Message) -> None:
        if isinstance(message, protocol.View):
            self._take_view(message)
        elif isinstance(message, protocol.Prepare):
            self._take_prepare(message)
        elif isinstance(message, protocol.SaveAt):
            self._take_save(message)
        elif isinstance(message, protocol.Recorded):
            known = max(0, min(message.until - self._losses_from, len(self._losses)))
            self._losses, self._losses_from = self._losses[known:], self._losses_from + known
        elif isinstance(message, protocol.End):
            self.over = message.reason

    def _take_view(self, view: protocol.View) -> None:
        if (view.incarnation, view.layout) < (self.incarnation, self.layout):
            return
        mine = {index for index, owner in enumerate(view.owners) if owner == self.name}
        if view.incarnation > self.incarnation:
            self._load(view, mine)
        self._set_owned(mine)
        self.incarnation, self.layout = view.incarnation, view.layout
        self.coordinator.incarnation, self.coordinator.layout = view.incarnation, view.layout
        self._scaling, self._incoming, self._sent = None, {}, False
        if self._save is not None and self._save.hold:
            self._save = None
        self.coordinator.send(
            protocol.InView(
                step=self.version,
                incarnation=view.incarnation,
                layout=view.layout,
                roster=0,
                scaling=view.scaling,
            )
        )
        self._forget_peers(view)
        self._advance()
        early, self._early = self._early, []
        for received in early:
            self._serve(received)

    def _forget_peers(self, view: protocol.View) -> None:
        here = {peer.session for peer in view.servers}
        for session in self._peers.keys() - here:
            self._peers.pop(session).close()

    def _load(self, view: protocol.View, mine: set[int]) -> None:
        self.job, self._geometry = view.job, layout.cut(view.job)
        buffers = snapshots.read_parts(self.path, view.load, mine)
        self.slices = {
            index: ServedSlice(view.job, self._geometry[index], buffers[index], view.version)
            for index in sorted(mine)
        }
        self._incoming, self._save = {}, None
        self._losses, self._losses_from = [], view.version

    def _set_owned(self, mine: set[int]) -> None:
        for index in mine - self.slices.keys():
            if index not in self._incoming or self.job is None:
                raise MirageError(f"slice {index} is not here; the job goes back to its snapshot.")
            buffers, version = self._incoming[index]
            self.slices[index] = ServedSlice(self.job, self._geometry[index], buffers, version)
        for index in self.slices.keys() - mine:
            del self.slices[index]
        for each in self.slices.values():
            each.frozen = False
        if 0 not in mine:
            self._losses = []

    def _take_prepare(self, message: protocol.Prepare) -> None:
        leaving = self._leaving(message)
        late = [i for i in leaving if self.slices[i].version > message.clock]
        accepted = (not late and message.incarnation == self.incarnation) or not self.slices
        self.coordinator.send(
            protocol.Ready(scaling=message.scaling, accepted=accepted, step=self.version)
        )
        if accepted:
            self._scaling, self._sent = message, False
            for peer in message.servers:
                if peer.name != self.name and peer.session not in self._peers and leaving:
                    self._connect(peer)
            self._advance()

    def _leaving(self, message: protocol.Prepare) -> list[int]:
        return [index for index in self.slices if message.owners[index] != self.name]

    def _connect(self, peer: Peer) -> None:
        try:
            self._peers[peer.session] = wire.connect_peer(
                self.context, self._keys, peer, self.coordinator.session
            )
        except MirageError as error:
            log.warning("%s", error)

    # --- with workers and other servers

    def _serve(self, received: tuple[bytes, Message, list[memoryview]]) -> None:
        sender, message, buffers = received
        if isinstance(message, protocol.Pull | protocol.Push) and self._is_early(message):
            self._early.append(received)
        elif isinstance(message, protocol.Pull):
            self._pulls[sender] = message
            self._answer_pulls()
        elif isinstance(message, protocol.Push):
            self._take_push(message, buffers)
        elif isinstance(message, protocol.Adopt):
            self._take_adopt(message, buffers)
        else:
            raise ProtocolError(f"{message.KIND}: not for a server.")

    def _is_early(self, message: protocol.Pull | protocol.Push) -> bool:
        """Whether its worker has a view that this server does not have yet."""
        return (message.incarnation, message.layout) > (self.incarnation, self.layout)

    def _take_push(self, message: protocol.Push, buffers: list[memoryview]) -> None:
        if message.incarnation != self.incarnation or self.job is None:
            return
        sizes = layout.sizes_of(self._geometry, message.slices)
        self._check_nodes(message, buffers, sum(sizes))
        for node, buffer in zip(message.nodes, buffers, strict=True):
            pieces = torch.split(torch.frombuffer(buffer, dtype=torch.float32), sizes)
            for index, piece in zip(message.slices, pieces, strict=True):
                held = self.slices.get(index)
                if held is not None and held.version == message.version:
                    held.add(node, piece)
        self._rate = message.rate
        self._advance()

    def _check_nodes(self, message: protocol.Push, buffers: list[memoryview], size: int) -> None:
        assert self.job is not None
        if len(buffers) != len(message.nodes) or any(len(each) != 4 * size for each in buffers):
            raise ProtocolError(f"push: not {len(message.nodes)} buffers of {4 * size} bytes.")
        shards = self.job.micro_shards
        for node in message.nodes:
            if not layout.is_node(node.first, node.last, micro_shards=shards):
                raise ProtocolError(f"push: {node.first} to {node.last} is no node of the tree.")

    def _take_adopt(self, message: protocol.Adopt, buffers: list[memoryview]) -> None:
        scaling = self._scaling
        if scaling is None or message.scaling != scaling.scaling:
            return
        found = adopted(self._geometry, message, buffers)
        self._incoming |= {index: (each, message.version) for index, each in found.items()}
        if 0 in found:
            self._losses, self._losses_from = list(message.losses), message.losses_from
        self.coordinator.send(protocol.Adopted(scaling=message.scaling, slices=tuple(found)))

    # --- progress

    def _advance(self) -> None:
        """Updates what is complete, then does what waits for the new versions."""
        for index, each in self.slices.items():
            loss = None if self._is_held(each) else each.step(self._rate)
            if loss is not None and index == 0:
                self._losses.append(loss)
                self._last_loss = (each.version - 1, loss)
        self._save_reached()
        self._migrate()
        self._answer_pulls()
        if self.job is not None and self.slices and self.version == self.job.steps:
            self._save_last()

    def _answer_pulls(self) -> None:
        for sender, pull in list(self._pulls.items()):
            known = pull.slices and all(index in self.slices for index in pull.slices)
            if pull.incarnation != self.incarnation or not known:
                del self._pulls[sender]  # its worker gets a new view and asks again
            elif (version := self._version_for(pull)) is not None:
                del self._pulls[sender]
                self._answer(sender, version, pull.slices)

    def _version_for(self, pull: protocol.Pull) -> int | None:
        """The version to answer with; None: wait."""
        found = [self.slices[index] for index in pull.slices]
        slowest = min((each.version for each in found), default=0)
        if slowest < pull.version:
            return None
        exact = pull.exact and all(each.at(pull.version) is not None for each in found)
        version = pull.version if exact else slowest
        return version if all(each.at(version) is not None for each in found) else None

    def _answer(self, sender: bytes, version: int, slices: tuple[int, ...]) -> None:
        loss = self._last_loss[1] if self._last_loss[0] == version - 1 and 0 in slices else None
        self.listener.send(
            sender,
            protocol.Parameters(
                incarnation=self.incarnation, version=version, slices=slices, loss=loss
            ),
            [self._pack(version, slices)],
        )

    def _pack(self, version: int, slices: tuple[int, ...]) -> bytes:
        """The parameters as bytes; all workers get the same ones."""
        key = (version, slices)
        if self._packed[0] != key:
            values = [self.slices[index].at(version) for index in slices]
            packed = np.concatenate([each for each in values if each is not None])
            self._packed = (key, packed.tobytes())
        return self._packed[1]

    def _migrate(self) -> None:
        """Sends the moving slices once all have reached the clock (section 5, step 3)."""
        scaling = self._scaling
        if scaling is None or self._sent:
            return
        leaving = self._leaving(scaling)
        for index in leaving:
            if self.slices[index].version == scaling.clock:
                self.slices[index].frozen = True
        if not all(self.slices[index].frozen for index in leaving):
            return
        self._sent = True
        peers = {peer.name: peer for peer in scaling.servers}
        for name in sorted({scaling.owners[index] for index in leaving}):
            taken = [index for index in leaving if scaling.owners[index] == name]
            if peers[name].session not in self._peers:
                self._connect(peers[name])
            connection = self._peers.get(peers[name].session)
            if connection is not None:  # else the coordinator gives up this scaling
                self._hand_over(connection, scaling, taken)

    def _hand_over(
        self, connection: wire.PeerConnection, scaling: protocol.Prepare, taken: list[int]
    ) -> None:
        first = 0 in taken
        message, buffers = adoption(
            {index: self.slices[index].moving_buffers() for index in taken},
            scaling=scaling.scaling,
            incarnation=self.incarnation,
            version=scaling.clock,
            losses=tuple(self._losses) if first else (),
            losses_from=self._losses_from if first else 0,
        )
        connection.send(message, buffers)

    # --- snapshots

    def _take_save(self, message: protocol.SaveAt) -> None:
        if message.incarnation != self.incarnation or not self.slices:
            return
        self._save = message
        self._unsaved = set(self.slices)
        self._advance()

    def _is_held(self, each: ServedSlice) -> bool:
        save = self._save
        return save is not None and save.hold and each.version >= save.version

    def _save_reached(self) -> None:
        """Writes all its slices once they are at the version. One that passed it: no snapshot."""
        save = self._save
        if save is None or not self._unsaved or self._writer is not None:
            return
        versions = {each.version for each in self.slices.values()}
        if max(versions, default=0) > save.version or not self.slices:
            self._unsaved = set()
            self._say_not_saved(save)
        elif versions == {save.version}:
            self._unsaved = set()
            self._write(save)

    def _say_not_saved(self, save: protocol.SaveAt) -> None:
        self.coordinator.send(protocol.NotSaved(incarnation=save.incarnation, version=save.version))

    def _save_last(self) -> None:
        assert self.job is not None
        if self._save is None or self._save.version != self.job.steps:
            self._take_save(
                protocol.SaveAt(incarnation=self.incarnation, version=self.job.steps, hold=False)
            )

    def _write(self, save: protocol.SaveAt) -> None:
        """In the background, from copies."""
        copies = {index: each.buffers() for index, each in self.slices.items()}
        file = snapshots.new_file_name(save.version)

        def write() -> None:
            try:
                done: Any = snapshots.write_part(self.path, file, copies)
            except MirageError as error:
                done = error
            self._written.append((save, done))

        self._writer = threading.Thread(target=write, daemon=True)
        self._writer.start()

    def _finish_writing(self) -> None:
        if self._writer is None or self._writer.is_alive():
            return
        self._writer = None
        for save, done in self._written:
            if isinstance(done, MirageError):
                log.warning("no snapshot: %s", done)
                self._say_not_saved(save)
                continue
            self._report_losses()
            self.coordinator.send(
                protocol.Saved(incarnation=save.incarnation, version=save.version, part=done)
            )
        self._written = []
        self._advance()

    def _report_losses(self) -> None:
        self._reported = time.monotonic()
        if self._losses:
            self.coordinator.send(
                protocol.Losses(first=self._losses_from, values=tuple(self._losses))
            )


def _run(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    slices.warm_up()
    server = ParameterServer(given.folder, given.name, given.orphan)
    process.on_terminate(lambda: setattr(server.coordinator, "asked_to_end", True))
    server.run()


def main(arguments: list[str] | None = None) -> int:
    """The process."""
    parser = process.parser("server", "Holds parameters of one elastic training job.")
    process.add_member_arguments(parser, protocol.SERVER)
    return process.run("server", _run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
