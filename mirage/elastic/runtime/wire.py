"""Sockets of the runtime: ZeroMQ over TCP, encrypted and authenticated by the job's CURVE keys.

A peer without the job's keys does not get past the handshake, so port scanners and other jobs reach
no code of the runtime. What they may take of a listener is bounded: connections by peer and time
(`_Doorkeeper`), memory by the size of a frame. What holders of the keys send is checked by
`protocol.decode`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from mirage.elastic.runtime import addresses, folder, protocol
from mirage.elastic.runtime.folder import Keys
from mirage.elastic.runtime.protocol import Message, Peer, ProtocolError
from mirage.errors import MirageError
from mirage.peers import Connection, Connections

LINGER_MS = 2000
"""How long a closing socket still sends: the last word to a member must arrive."""
HANDSHAKE_S = 10.0
"""A connection without keys, however it trickles, is hung up on after this long."""
YOUNG, YOUNG_EACH = 256, 32
"""Connections younger than that, at a time: of all peers, of one user or address. Members older than
that are not counted.
"""


_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class _MembersOnly:
    """Lets only the job's members through the handshake."""

    def __init__(self, keys: Keys) -> None:
        self._key = keys.member_public.encode()

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether a peer with this public key may connect."""
        return key == self._key


class _Doorkeeper(threading.Thread):
    """Hangs up on who opens too many connections. ZeroMQ does not say which one has got past the
    handshake, but after `HANDSHAKE_S` it ends those that have not. So the younger ones count.
    """

    def __init__(self, listener: zmq.Socket[Any], port: int) -> None:
        super().__init__(name="mirage-door", daemon=True)
        self._port, self._young = port, deque[_Guest]()
        self._crowd = Connections(name=f"port {port}", most=YOUNG, share=YOUNG_EACH)
        self._events = listener.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_MONITOR_STOPPED)
        self.start()

    def run(self) -> None:
        """Until the listener has no monitor any more, or there is no context."""
        with contextlib.suppress(zmq.ZMQError):
            while self._next():
                self._forget(HANDSHAKE_S)
        self._forget(0)
        self._events.close()

    def _next(self) -> bool:
        if not self._events.poll(500):
            return True
        event = recv_monitor_message(self._events)
        if event["event"] == zmq.EVENT_ACCEPTED:
            self._admit(event["value"])
        return bool(event["event"] != zmq.EVENT_MONITOR_STOPPED)

    def _admit(self, descriptor: int) -> None:
        try:
            guest = _Guest(socket.socket(fileno=os.dup(descriptor)), time.monotonic())
        except OSError:  # it has left already
            return
        # It may have left already, and its number be another file's, or another connection's.
        if guest.port() != self._port or any(each.inode == guest.inode for each in self._young):
            guest.connection.close()
            return
        if len(self._young) >= YOUNG_EACH:
            self._forget_those_who_left()
        self._young.append(guest)
        if not self._crowd.admit(guest):
            guest.hang_up()

    def _forget(self, age_s: float) -> None:
        while self._young and time.monotonic() - self._young[0].since_s >= age_s:
            self._part_with(self._young.popleft())

    def _forget_those_who_left(self) -> None:
        """As members do who looked whether they are answered (`addresses.reachable`)."""
        for guest in [each for each in self._young if each.has_left()]:
            self._young.remove(guest)
            self._part_with(guest)

    def _part_with(self, guest: Connection) -> None:
        self._crowd.leave(guest.connection)
        guest.connection.close()


class _Guest(Connection):
    """Its socket is a second one of the same connection, which ZeroMQ keeps."""

    def __init__(self, connection: socket.socket, since_s: float) -> None:
        super().__init__(connection, since_s)
        self.inode = os.fstat(connection.fileno()).st_ino

    def hang_up(self) -> None:
        super().hang_up()
        self.connection.close()

    def has_left(self) -> bool:
        """The other end is closed, or it was hung up on."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def port(self) -> int | None:
        """Where it came in; None: it is no such connection."""
        try:
            return int(self.connection.getsockname()[1])
        except (OSError, IndexError, ValueError):
            return None


class Listener:
    """A ROUTER socket on a free port of all interfaces."""

    def __init__(self, context: zmq.Context[Any], keys: Keys) -> None:
        self._guard = ThreadAuthenticator(context)
        self._guard.start()
        self._guard.configure_curve_callback(domain="*", credentials_provider=_MembersOnly(keys))
        self.socket = context.socket(zmq.ROUTER)
        self.socket.curve_server = True
        self.socket.curve_publickey = keys.listener_public.encode()
        self.socket.curve_secretkey = keys.listener_secret.encode()
        self.socket.router_handover = True
        _set_options(self.socket)
        self.port = _bind(self.socket)
        self._door = _Doorkeeper(self.socket, self.port)
        self.endpoints = addresses.endpoints(self.port)

    def send(self, peer: bytes, message: Message, buffers: Sequence[Any] = ()) -> None:
        """To a peer by its identity; a peer that is gone gets nothing."""
        frames = protocol.split(protocol.encode(message, buffers))
        self.socket.send_multipart([peer, *frames], copy=False)

    def receive(self) -> tuple[bytes, Message, list[memoryview]] | None:
        """The next message: sender, message, buffers. None: nothing is there now.

        Raises ProtocolError for a message to drop.
        """
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        peer, *rest = (frame.buffer for frame in frames)
        parts = protocol.joined(rest)
        return bytes(peer), protocol.decode(parts), parts[1:]

    def close(self) -> None:
        """Sends what is waiting, for `LINGER_MS` at most."""
        self.socket.disable_monitor()
        self._door.join()
        self.socket.close(linger=LINGER_MS)
        self._guard.stop()


def _bind(made: zmq.Socket[Any]) -> int:
    try:
        made.ipv6 = True
        return made.bind_to_random_port("tcp://*")
    except zmq.ZMQError:  # a kernel without IPv6
        made.ipv6 = False
        return made.bind_to_random_port("tcp://*")


def _set_options(made: zmq.Socket[Any]) -> None:
    made.sndhwm = made.rcvhwm = 0  # never drop: requests and answers keep queues short
    made.heartbeat_ivl, made.heartbeat_timeout = 2000, 15000  # notice a machine that vanished
    made.linger = LINGER_MS
    made.handshake_ivl = int(1000 * HANDSHAKE_S)
    made.maxmsgsize = protocol.FRAME_BYTES + 1024  # CURVE adds 33 bytes to a frame


class PeerConnection:
    """A DEALER socket to one listener. Its identity is the member's session.

    ``reconnects``: by itself; what was under way is gone then. If not, `is_lost` tells.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        keys: Keys,
        *,
        endpoint: str,
        identity: str,
        reconnects: bool = True,
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.curve_serverkey = keys.listener_public.encode()
        self.socket.curve_publickey = keys.member_public.encode()
        self.socket.curve_secretkey = keys.member_secret.encode()
        self.socket.identity = identity.encode()
        _set_options(self.socket)
        self.socket.ipv6 = "[" in endpoint
        self._losses = None
        if reconnects:
            self.socket.reconnect_ivl, self.socket.reconnect_ivl_max = 50, 1000
        else:
            self.socket.reconnect_ivl = -1
            self._losses = self.socket.get_monitor_socket(_LOST)
        self.socket.connect(endpoint)

    def send(self, message: Message, buffers: Sequence[Any] = ()) -> None:
        """Queues it; a listener that is gone gets nothing."""
        self.send_parts(protocol.encode(message, buffers))

    def send_parts(self, parts: Sequence[Any]) -> None:
        """The same of an encoded message."""
        with contextlib.suppress(zmq.Again):  # lost, and not to connect again
            self.socket.send_multipart(protocol.split(parts), zmq.NOBLOCK, copy=False)

    def receive(self) -> tuple[Message, list[memoryview]] | None:
        """The next message and its buffers. None: nothing is there now. Raises ProtocolError."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        parts = protocol.joined([frame.buffer for frame in frames])
        return protocol.decode(parts), parts[1:]

    @property
    def is_lost(self) -> bool:
        """Of one that does not connect again."""
        return self._losses is not None and bool(self._losses.poll(0))

    def close(self, linger_ms: int = 0) -> None:
        """Drops what is waiting, unless given time to send it."""
        if self._losses is not None:
            self.socket.disable_monitor()
            self._losses.close()
        self.socket.close(linger=linger_ms)


def connect_peer(
    context: zmq.Context[Any], keys: Keys, peer: Peer, identity: str, *, reconnects: bool = True
) -> PeerConnection:
    """Raises MirageError: none of its addresses answers."""
    endpoint = addresses.reachable(peer.endpoints, peer.boot_id)
    if endpoint is None:
        raise MirageError(
            f"{peer.name}: no answer at {', '.join(peer.endpoints)}. Let members reach each other"
            " on all ports, or look whether it still runs."
        )
    return PeerConnection(
        context, keys, endpoint=endpoint, identity=identity, reconnects=reconnects
    )


class CoordinatorLink:
    """A member's connection to the coordinator, which may be restarted at another address."""

    def __init__(
        self, context: zmq.Context[Any], *, path: Path, keys: Keys, identity: str = ""
    ) -> None:
        self._context, self._path, self._keys = context, path, keys
        self.identity = identity or new_session()
        self.coordinator = ""
        """The session of the coordinator that it is connected to; empty: none."""
        self.connection: PeerConnection | None = None

    def refresh(self) -> bool:
        """Reads where the coordinator is. True: a new connection, so register."""
        address = read_address(self._path)
        if address is None or address.session == self.coordinator:
            return False
        endpoint = addresses.reachable(address.endpoints, address.boot_id)
        if endpoint is None:
            return False
        self.close()
        self.connection = PeerConnection(
            self._context, self._keys, endpoint=endpoint, identity=self.identity
        )
        self.coordinator = address.session
        return True

    def send(self, message: Message) -> None:
        """Dropped while there is no coordinator: it asks again for what it needs."""
        if self.connection is not None:
            self.connection.send(message)

    def receive(self) -> Message | None:
        """None: nothing is there now. Raises ProtocolError."""
        received = self.connection.receive() if self.connection is not None else None
        return received[0] if received is not None else None

    def close(self, linger_ms: int = 0) -> None:
        """Ends the connection."""
        if self.connection is not None:
            self.connection.close(linger_ms)
        self.connection = None


def new_session() -> str:
    """A random name of a process."""
    return secrets.token_hex(8)


def write_address(path: Path, session: str, endpoints: Sequence[str]) -> None:
    """Publishes where the coordinator listens."""
    peer = Peer(
        name="coordinator",
        session=session,
        endpoints=tuple(endpoints),
        boot_id=addresses.boot_id(),
    )
    folder.write_json(path / folder.ADDRESS, protocol.to_record(peer))


def read_address(path: Path) -> Peer | None:
    """None: no coordinator has been there, or its file is unreadable just now."""
    try:
        record = folder.read_json(path / folder.ADDRESS)
        peer = None if record is None else protocol.from_record(Peer, record, folder.ADDRESS)
    except (MirageError, ProtocolError):
        return None
    return peer if isinstance(peer, Peer) else None
