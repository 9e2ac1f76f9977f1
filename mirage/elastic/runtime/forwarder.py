"""A member's thread for the coordinator: registers, beats, and passes messages on.

The main thread computes, or reads a large snapshot, for minutes perhaps; the member must not seem
dead. Both threads talk by an in-process socket, since a ZeroMQ socket belongs to one thread.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq

from mirage.elastic.runtime import addresses, protocol, wire
from mirage.elastic.runtime.folder import Keys
from mirage.elastic.runtime.protocol import Message, ProtocolError
from mirage.errors import MirageError

log = logging.getLogger(__name__)

_CLOSE = b"close"


class Forwarder:
    """Used by the main thread; the thread is its own."""

    def __init__(
        self, context: zmq.Context[Any], path: Path, keys: Keys, *, name: str, orphan_s: float
    ) -> None:
        self._link = wire.CoordinatorLink(context, path=path, keys=keys)
        self._path, self._name, self._orphan_s = path, name, orphan_s
        self.session = self._link.identity
        self.step = self.incarnation = self.layout = self.roster = 0
        """What the next beats say; the main thread sets them."""
        self.asked_to_end = False
        """By SIGTERM: the member gives away what it has before it ends."""
        self.beat_s = 1.0
        self._beaten, self._heard = 0.0, time.monotonic()
        self.socket = context.socket(zmq.PAIR)
        self._inner = context.socket(zmq.PAIR)
        address = f"inproc://forwarder-{self.session}"
        self.socket.bind(address)
        self._inner.connect(address)
        self._registration: protocol.Register | None = None
        self._thread = threading.Thread(target=self._run, name="mirage-elastic", daemon=True)

    def start(
        self, role: str, *, endpoints: Sequence[str] = (), job: protocol.TrainingJob | None = None
    ) -> None:
        """Registers as soon as there is a coordinator, and with each one that follows."""
        self._registration = protocol.Register(
            role=role,
            name=self._name,
            session=self.session,
            host=socket.gethostname(),
            boot_id=addresses.boot_id(),
            endpoints=tuple(endpoints),
            job=job,
        )
        self._thread.start()

    def send(self, message: Message) -> None:
        """To the coordinator."""
        self.socket.send_multipart(protocol.encode(message))

    def receive(self) -> Message | None:
        """From the coordinator; None: nothing now. Raises MirageError: this member must end."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        message = protocol.decode(frames)
        if isinstance(message, protocol.Refusal):
            raise MirageError(message.reason)
        return message

    def close(self) -> None:
        """Says goodbye to the coordinator."""
        if self._thread.ident is not None:
            self.socket.send(_CLOSE)
            self._thread.join()
        else:
            self._link.close()
            self._inner.close(linger=0)
        self.socket.close(linger=0)

    # --- the thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._link.send(protocol.Leave())
            self._link.close(wire.LINGER_MS)
            self._inner.close(linger=0)

    def _turn(self) -> bool:
        poller = zmq.Poller()
        poller.register(self._inner, zmq.POLLIN)
        if self._link.connection is not None:
            poller.register(self._link.connection.socket, zmq.POLLIN)
        poller.poll(max(1, int(1000 * (self._beaten + self.beat_s - time.monotonic()))))
        with contextlib.suppress(zmq.Again):
            while True:
                frames = self._inner.recv_multipart(zmq.NOBLOCK)
                if frames[0] == _CLOSE:
                    return False
                if self._link.connection is not None:
                    self._link.connection.send_parts(frames)
        while self._take():
            pass
        if time.monotonic() - self._beaten >= self.beat_s:
            self._beat()
        return True

    def _take(self) -> bool:
        try:
            message = self._link.receive()
        except ProtocolError as error:
            log.warning("a message was dropped: %s", error)
            return True
        if message is None:
            return False
        self._heard = time.monotonic()
        if isinstance(message, protocol.Welcome):
            self.beat_s = message.beat_s
        if isinstance(message, protocol.Refusal) and message.reason == "Register first.":
            self._register()
        elif not isinstance(message, protocol.HeartbeatSeen):
            self._inner.send_multipart(protocol.encode(message))
        return True

    def _beat(self) -> None:
        self._beaten = time.monotonic()
        if self._link.refresh():
            self._register()
        if time.monotonic() - self._heard > self._orphan_s:
            reason = f"no coordinator in {self._path} for {self._orphan_s:.0f} s."
            self._inner.send_multipart(protocol.encode(protocol.Refusal(reason=reason)))
        if self.asked_to_end:
            self.asked_to_end = False
            self._link.send(protocol.DrainRequest(name=self._name))
        self._link.send(
            protocol.Heartbeat(
                step=self.step,
                incarnation=self.incarnation,
                layout=self.layout,
                roster=self.roster,
            )
        )

    def _register(self) -> None:
        assert self._registration is not None
        self._link.send(self._registration)
