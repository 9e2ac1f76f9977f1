"""The process group of an all-reduce job's workers: TorchFT's Gloo group, formed again whenever the
members change, and a sum over all of them that has the same bits whoever takes part.

Who takes part is the coordinator's decision, so TorchFT's lighthouse and manager are not used
(docs/decisions/0070-all-reduce-by-torchft-groups.md).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d

from mirage.elastic.runtime import addresses, layout
from mirage.elastic.runtime.folder import Keys
from mirage.elastic.runtime.protocol import Peer
from mirage.errors import InputError, MirageError

FORM_S = 15.0
"""Until a member that does not come makes the others give up this group."""
OPERATION = timedelta(days=30)
"""Of a collective: members may compute for long, and losses are seen otherwise."""

_distributed: Any = torch.distributed
_c10d: Any = torch.distributed.distributed_c10d

Nodes = dict[tuple[int, int], tuple[torch.Tensor, float]]


class GroupBroken(MirageError):
    """A member is gone, or the group could not be formed. Nothing is lost: form it again."""


class Rendezvous:
    """Where a group meets if this worker is its first member: a store on a free port."""

    def __init__(self) -> None:
        """Raises InputError: the extra `elastic-allreduce` is not installed."""
        _torchft()
        self._store = _distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.endpoints = addresses.endpoints(self._store.port)


def _torchft() -> Any:
    try:
        return importlib.import_module("torchft.process_group")
    except ImportError as error:
        raise InputError(
            f"all-reduce needs TorchFT ({error}): pip install 'mirage-slurm[elastic-allreduce]'."
        ) from None


class ReplicaGroup:
    """The members of one roster. `rank`: this worker's place among `peers`."""

    def __init__(self, peers: Sequence[Peer], session: str, roster: int, keys: Keys) -> None:
        """Raises GroupBroken: not all members came."""
        self.peers, self.roster = tuple(peers), roster
        self.rank = [peer.session for peer in peers].index(session)
        self.size = len(self.peers)
        self._group: Any = None
        if self.size == 1:
            return
        # The secret part of the name keeps out who has no keys; see the decision for what does not.
        secret = hashlib.sha256(f"{keys.member_secret} {roster}".encode()).hexdigest()
        store = _reach(self.peers[0])
        self._group = _torchft().ProcessGroupGloo(timeout=timedelta(seconds=FORM_S))
        try:
            self._group.configure(f"{store}/{secret}", session, self.rank, self.size)
        except RuntimeError as error:
            raise GroupBroken(f"the group of roster {roster} was not formed: {error}") from None

    def close(self) -> None:
        """In the background: Gloo waits for members that hang."""
        group, self._group = self._group, None
        if group is not None:
            threading.Thread(target=group.abort, daemon=True).start()

    # --- collectives; `wait` is called with an unfinished operation until it is finished

    def gather(self, row: torch.Tensor, wait: Callable[[Any], None]) -> torch.Tensor:
        """The rows of all members, by rank. All rows have the same size."""
        if self._group is None:
            return row.reshape(1, -1)
        found = [torch.empty_like(row) for _ in range(self.size)]
        options = _c10d.AllgatherOptions()
        options.timeout = OPERATION
        _run(lambda: self._group.allgather([found], [row], options), wait)
        return torch.stack(found)

    def broadcast(self, values: torch.Tensor, root: int, wait: Callable[[Any], None]) -> None:
        """Overwrites `values` by those of the member `root`."""
        if self._group is None:
            return
        options = _distributed.BroadcastOptions()
        options.rootRank, options.timeout = root, OPERATION
        _run(lambda: self._group.broadcast([values], options), wait)

    def exchange(
        self, sent: Sequence[torch.Tensor], sizes: Sequence[int], wait: Callable[[Any], None]
    ) -> list[torch.Tensor]:
        """Sends `sent[r]` to rank r, and returns what each rank sent: `sizes[r]` elements."""
        if self._group is None:
            return list(sent)
        received = torch.empty(sum(sizes))
        options = _distributed.AllToAllOptions()
        options.timeout = OPERATION
        pieces = [len(each) for each in sent]
        _run(
            lambda: self._group.alltoall_base(
                received, torch.cat(list(sent)), list(sizes), pieces, options
            ),
            wait,
        )
        return list(torch.split(received, list(sizes)))


def _run(start: Callable[[], Any], wait: Callable[[Any], None]) -> None:
    try:
        work = start()
        wait(work)
        work.wait()
    except RuntimeError as error:
        raise GroupBroken(f"a member of the group is gone: {error}") from None


def _reach(first: Peer) -> str:
    """`HOST:PORT` of the first member's store; lets Gloo use the interface that leads there."""
    endpoint = addresses.reachable(first.endpoints, first.boot_id)
    if endpoint is None:
        raise GroupBroken(f"{first.name}: no answer at {', '.join(first.endpoints)}.")
    address = endpoint.removeprefix("tcp://")
    host, _, port = address.rpartition(":")
    with closing(socket.create_connection((host.strip("[]"), int(port)), timeout=5)) as probe:
        own = probe.getsockname()[0]
    interface = addresses.interface_of(own)
    if interface:  # else Gloo asks for the address of the host's name
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    return address


def shared_out(size: int, members: int) -> list[tuple[int, int]]:
    """The part of a vector of `size` elements that each rank sums."""
    return [(size * rank // members, size * (rank + 1) // members) for rank in range(members)]


def all_reduce(
    group: ReplicaGroup,
    covers: Sequence[Sequence[tuple[int, int]]],
    own: Nodes,
    size: int,
    micro_shards: int,
    wait: Callable[[Any], None],
) -> torch.Tensor:
    """The sum of the gradients of all micro-shards, the same bits whoever computed which.

    ``covers[r]``: the nodes of the summation tree that rank r has; ``own``: this rank's; ``size``:
    elements of a gradient. Each rank
    sums a part of the vector in the tree's order, and all gather the parts: as many bytes as a
    ring's all-reduce if each share is one node. Raises GroupBroken.
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
    widest = max(b - a for a, b in parts)
    padded = torch.zeros(widest)
    padded[:width] = total
    rows = group.gather(padded, wait)
    return torch.cat([row[: b - a] for row, (a, b) in zip(rows, parts, strict=True)])
