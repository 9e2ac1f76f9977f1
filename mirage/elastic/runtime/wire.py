"""Sockets of the runtime: ZeroMQ over TCP, encrypted and authenticated by the job's CURVE keys.

A peer without the job's keys does not get past the handshake, so port scanners and other jobs reach
no code of the runtime. What holders of the keys send is checked by `protocol.decode`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from mirage.elastic.runtime import addresses, folder, protocol
from mirage.elastic.runtime.folder import Keys
from mirage.elastic.runtime.protocol import Message, Peer, ProtocolError
from mirage.errors import MirageError

LINGER_MS = 2000
"""How long a closing socket still sends: the last word to a member must arrive."""


class _MembersOnly:
    """Lets only the job's members through the handshake."""

    def __init__(self, keys: Keys) -> None:
        self._key = keys.member_public.encode()

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether a peer with this public key may connect."""
        return key == self._key


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
        self.endpoints = addresses.endpoints(self.port)

    def send(self, peer: bytes, message: Message, buffers: Sequence[Any] = ()) -> None:
        """To a peer by its identity; a peer that is gone gets nothing."""
        self.socket.send_multipart([peer, *protocol.encode(message, buffers)], copy=False)

    def receive(self) -> tuple[bytes, Message, list[memoryview]] | None:
        """The next message: sender, message, buffers. None: nothing is there now.

        Raises ProtocolError for a message to drop.
        """
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        peer, *rest = (frame.buffer for frame in frames)
        return bytes(peer), protocol.decode(rest), rest[1:]

    def close(self) -> None:
        """Sends what is waiting, for `LINGER_MS` at most."""
        self.socket.close(linger=LINGER_MS)
        self._guard.stop()


def _bind(socket: zmq.Socket[Any]) -> int:
    try:
        socket.ipv6 = True
        return socket.bind_to_random_port("tcp://*")
    except zmq.ZMQError:  # a kernel without IPv6
        socket.ipv6 = False
        return socket.bind_to_random_port("tcp://*")


def _set_options(socket: zmq.Socket[Any]) -> None:
    socket.sndhwm = socket.rcvhwm = 0  # never drop: requests and answers keep queues short
    socket.heartbeat_ivl, socket.heartbeat_timeout = 2000, 15000  # notice a machine that vanished
    socket.linger = LINGER_MS


class PeerConnection:
    """A DEALER socket to one listener. Its identity is the member's session."""

    def __init__(
        self, context: zmq.Context[Any], keys: Keys, *, endpoint: str, identity: str
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.curve_serverkey = keys.listener_public.encode()
        self.socket.curve_publickey = keys.member_public.encode()
        self.socket.curve_secretkey = keys.member_secret.encode()
        self.socket.identity = identity.encode()
        _set_options(self.socket)
        self.socket.ipv6 = "[" in endpoint
        self.socket.reconnect_ivl, self.socket.reconnect_ivl_max = 50, 1000
        self.socket.connect(endpoint)

    def send(self, message: Message, buffers: Sequence[Any] = ()) -> None:
        """Queues it; a listener that is gone gets nothing."""
        self.socket.send_multipart(protocol.encode(message, buffers), copy=False)

    def receive(self) -> tuple[Message, list[memoryview]] | None:
        """The next message and its buffers. None: nothing is there now. Raises ProtocolError."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        parts = [frame.buffer for frame in frames]
        return protocol.decode(parts), parts[1:]

    def close(self, linger_ms: int = 0) -> None:
        """Drops what is waiting, unless given time to send it."""
        self.socket.close(linger=linger_ms)


def connect_peer(
    context: zmq.Context[Any], keys: Keys, peer: Peer, identity: str
) -> PeerConnection:
    """Raises MirageError: none of its addresses answers."""
    endpoint = addresses.reachable(peer.endpoints, peer.boot_id)
    if endpoint is None:
        raise MirageError(
            f"{peer.name}: no answer at {', '.join(peer.endpoints)}. Let members reach each other"
            " on all ports, or look whether it still runs."
        )
    return PeerConnection(context, keys, endpoint=endpoint, identity=identity)


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
