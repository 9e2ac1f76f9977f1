"""The group of an all-reduce job's workers, formed again whenever the members change, and a sum over
all of them that has the same bits whoever takes part.

Members speak over the connections of `wire.py`: nobody without the job's keys can read, join or send,
and no more is accepted than a member of this group has to send
(docs/decisions/0123-all-reduce-over-the-jobs-own-connections.md).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import zmq

from mirage.elastic.runtime import layout, protocol, wire
from mirage.elastic.runtime.folder import Keys
from mirage.elastic.runtime.protocol import Message, Peer, ProtocolError
from mirage.errors import MirageError

FORM_S = 15.0
"""Until a member that does not come makes the others give up this group."""

Nodes = dict[tuple[int, int], tuple[torch.Tensor, float]]
Received = tuple[Message, list[memoryview]]
Wait = Callable[[Callable[[], bool]], None]
"""Returns once what it is given is true. Raises GroupBroken: this worker shall not wait longer."""


class GroupBroken(MirageError):
    """A member is gone, or the group could not be formed. Nothing is lost: form it again."""


class Links:
    """One worker's connections to the others: each sends on its own ones, and listens for all."""

    def __init__(self, context: zmq.Context[Any], keys: Keys, session: str) -> None:
        self._context, self._keys, self._session = context, keys, session
        self._listener = wire.Listener(context, keys)
        self.socket, self.endpoints = self._listener.socket, self._listener.endpoints
        self._to: dict[str, wire.PeerConnection] = {}
        self._roster = 0
        self._came: defaultdict[tuple[str, int], deque[Received]] = defaultdict(deque)
        """By who sent it, and the roster of the group that it is for."""

    def connect(self, peers: Sequence[Peer], roster: int) -> None:
        """To these and to no others. What older groups sent is forgotten. Raises GroupBroken."""
        self._roster = roster
        for key in [key for key in self._came if key[1] < roster]:
            del self._came[key]
        others = {peer.session: peer for peer in peers if peer.session != self._session}
        for session in [each for each in self._to if each not in others or self._to[each].is_lost]:
            self._to.pop(session).close(wire.LINGER_MS)
        try:
            for session in others.keys() - self._to.keys():
                self._to[session] = wire.connect_peer(
                    self._context, self._keys, others[session], self._session, reconnects=False
                )
        except MirageError as error:
            raise GroupBroken(str(error)) from None

    def send(self, session: str, message: Message, buffers: Sequence[Any] = ()) -> None:
        """Queues it; a member that is not reached gets nothing."""
        if session in self._to:
            self._to[session].send(message, buffers)

    def take(self, peer: Peer, kind: type[Message]) -> Received | None:
        """The next message of this member to the group; None: it is not there yet.

        Raises GroupBroken: the member has left, or sent another kind.
        """
        self._receive()
        came = self._came[peer.session, self._roster]
        if came and isinstance(came[0][0], kind):
            return came.popleft()
        if came:
            has_left = isinstance(came[0][0], protocol.LeftGroup)
            raise GroupBroken(f"{peer.name} {'has left' if has_left else 'says something else'}.")
        if self._to[peer.session].is_lost:
            raise GroupBroken(f"{peer.name} is gone.")
        return None

    def _receive(self) -> None:
        while True:
            try:
                received = self._listener.receive()
            except ProtocolError:
                continue
            if received is None:
                return
            peer, message, buffers = received
            roster = -1
            if isinstance(message, (protocol.Piece, protocol.LeftGroup)):
                roster = message.roster
            elif isinstance(message, protocol.Adopt):
                roster = message.scaling
            if roster >= self._roster:
                self._came[peer.decode(errors="replace"), roster].append((message, buffers))

    def close(self) -> None:
        """Ends all connections; what is under way is still sent, for a while."""
        for connection in self._to.values():
            connection.close(wire.LINGER_MS)
        self._listener.close()


class ReplicaGroup:
    """The members of one roster. `rank`: this worker's place among `peers`."""

    def __init__(self, peers: Sequence[Peer], session: str, roster: int, links: Links) -> None:
        """Raises GroupBroken: a member can't be reached."""
        self.peers, self.roster = tuple(peers), roster
        self.sessions = [peer.session for peer in peers]
        self.rank, self.size = self.sessions.index(session), len(self.peers)
        self._links, self._began_s, self._is_formed = links, time.monotonic(), False
        try:
            links.connect(peers, roster)
        except GroupBroken:
            self.close()
            raise

    @property
    def others(self) -> list[int]:
        """Their ranks."""
        return [rank for rank in range(self.size) if rank != self.rank]

    def close(self) -> None:
        """Tells the others that nothing more comes."""
        for rank in self.others:
            self._links.send(self.sessions[rank], protocol.LeftGroup(roster=self.roster))

    # --- what all members do together, in the same order. `wait`: see Wait. Raise GroupBroken.

    def gather(self, row: torch.Tensor, wait: Wait) -> torch.Tensor:
        """The rows of all members, by rank. All rows have the same size."""
        return torch.stack(self.exchange([row] * self.size, [len(row)] * self.size, wait))

    def exchange(
        self, sent: Sequence[torch.Tensor], sizes: Sequence[int], wait: Wait
    ) -> list[torch.Tensor]:
        """Sends `sent[r]` to rank r, and returns what each rank sent: `sizes[r]` elements, of the
        same type.
        """
        message = protocol.Piece(roster=self.roster)
        for rank in self.others:
            self._links.send(self.sessions[rank], message, [sent[rank].contiguous().numpy()])
        kind = sent[self.rank].dtype
        found, none = {self.rank: sent[self.rank]}, torch.empty(0, dtype=kind)
        for rank in self.others:
            _, buffers = self.take(rank, protocol.Piece, wait)
            if [len(each) for each in buffers] != [sizes[rank] * kind.itemsize]:
                raise GroupBroken(f"{self.peers[rank].name} sent another size than its part.")
            found[rank] = torch.frombuffer(buffers[0], dtype=kind) if sizes[rank] else none
        self._is_formed = True
        return [found[rank] for rank in range(self.size)]

    def give(self, ranks: Sequence[int], message: Message, buffers: Sequence[Any]) -> None:
        """To those who `take` it."""
        for rank in ranks:
            self._links.send(self.sessions[rank], message, buffers)

    def take(self, rank: int, kind: type[Message], wait: Wait) -> Received:
        """The next message of a member."""
        found: list[Received] = []

        def came() -> bool:
            if (received := self._links.take(self.peers[rank], kind)) is not None:
                found.append(received)
            elif not self._is_formed and time.monotonic() > self._began_s + FORM_S:
                raise GroupBroken(f"{self.peers[rank].name} did not come.")
            return bool(found)

        wait(came)
        return found[0]


def shared_out(size: int, members: int) -> list[tuple[int, int]]:
    """The part of a vector of `size` elements that each rank sums."""
    return [(size * rank // members, size * (rank + 1) // members) for rank in range(members)]


def all_reduce(
    group: ReplicaGroup,
    covers: Sequence[Sequence[tuple[int, int]]],
    own: Nodes,
    size: int,
    micro_shards: int,
    wait: Wait,
) -> torch.Tensor:
    """The sum of the gradients of all micro-shards, the same bits whoever computed which.

    ``covers[r]``: the nodes of the summation tree that rank r has; ``own``: this rank's; ``size``:
    elements of a gradient. Each rank sums a part of the vector in the tree's order, and all gather
    the parts: as many bytes as a ring's all-reduce if each share is one node. Raises GroupBroken.
    """
    mine = [own[node][0] for node in covers[group.rank]]
    parts = shared_out(size, group.size)
    sent = [torch.cat([each[a:b] for each in mine]) if mine else torch.empty(0) for a, b in parts]
    first, last = parts[group.rank]
    width = last - first
    received = group.exchange(sent, [width * len(nodes) for nodes in covers], wait)
    found = {
        node: piece
        for nodes, values in zip(covers, received, strict=True)
        for node, piece in zip(nodes, values.view(len(nodes), width), strict=True)
    }
    total = layout.total(found, 0, micro_shards, torch.add)
    if total is None:
        raise GroupBroken("not all micro-shards are there.")
    return torch.cat(group.exchange([total] * group.size, [b - a for a, b in parts], wait))
