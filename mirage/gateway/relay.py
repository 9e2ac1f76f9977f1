"""The built-in relay: one port for all clients of a service, for a user without rights.

Of HTTP/1.1 it passes each request on by itself (`http.py`), so a connection that a client keeps open
moves from link to link. Anything else (HTTP/2, a database) is passed on as bytes; of a link that
leaves such a connection is closed once the link has answered and nothing more comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from mirage.errors import InputError
from mirage.gateway import http
from mirage.gateway.counts import RequestCounts
from mirage.gateway.pool import LinkPool, ServedLink
from mirage.gateway.streams import BLOCK, Streams, closed, pass_bytes
from mirage.gateway.tokens import Tokens

MOST_WAITING = 1000
"""Requests beyond these are refused while no replica is ready: the queue must not grow for ever."""
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(kw_only=True)
class Relay:
    """Passes connections on to the replicas of a pool."""

    pool: LinkPool
    counts: RequestCounts
    tokens: Tokens | None = None
    """None: everyone who reaches the port may ask."""
    is_http: bool = True
    wait_s: float = 600
    """A request waits so long for a replica to be ready."""
    most_clients: int = 1000

    def __post_init__(self) -> None:
        self._clients = 0

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Listens. InputError: the port is another program's, or none of this machine's."""
        self.most_clients = _raise_file_limit()
        try:
            return await asyncio.start_server(self._client, host, port, backlog=1024)
        except OSError as error:
            raise InputError(
                f"can't listen on {host}:{port}: {error.strerror or error}. If another program has"
                " the port, give another one: NAME:PORT"
            ) from error

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients > self.most_clients:
                await http.refuse((reader, writer), 503, "it holds as many clients as it can")
            elif self.is_http:
                await self._by_first_bytes(reader, writer)
            else:
                await self._bytes(reader, writer, b"")
        except (OSError, asyncio.CancelledError, TimeoutError):
            writer.transport.abort()  # the other side must see that the answer is not whole
        finally:
            self._clients -= 1
            await closed(writer)

    async def _by_first_bytes(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first = await asyncio.wait_for(reader.read(BLOCK), http.IDLE_S)
        while len(first) < len(_HTTP_2) and _HTTP_2.startswith(first) and first:
            more = await asyncio.wait_for(reader.read(BLOCK), http.IDLE_S)
            if not more:
                return
            first += more
        if not first.startswith(_HTTP_2):
            await http.ClientConnection(self, (reader, writer), first).serve()
        elif self.tokens is None:
            await self._bytes(reader, writer, first)
        # else: its headers are packed, and the token can't be seen. HAProxy reads them.

    async def _bytes(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes
    ) -> None:
        began = time.monotonic()
        async with self.reached(began) as reached:
            self.counts.note(time.monotonic() - began, reached is not None)
            if reached is None:
                return
            replica, there = reached
            there[1].write(first)
            await pass_bytes(
                (reader, writer), there, lambda: replica.left_s is not None, bool(first)
            )

    @contextlib.asynccontextmanager
    async def reached(self, began: float) -> AsyncIterator[tuple[ServedLink, Streams] | None]:
        """A connection to a replica, of several tried; waits for one to be ready. None: none was."""
        refused: list[ServedLink] = []
        deadline = began + self.wait_s
        while (replica := await self._pick(deadline, refused)) is not None:
            with self._at(replica):
                if (opened := await self.pool.connect(replica)) is not None:
                    try:
                        yield replica, opened
                    finally:
                        await closed(opened[1])
                    return
            refused.append(replica)
        yield None

    async def _pick(self, deadline: float, refused: list[ServedLink]) -> ServedLink | None:
        replica = await self.pool.pick(0, refused)
        if replica is not None or self.counts.waiting >= MOST_WAITING:
            return replica
        self.counts.waiting += 1
        try:
            return await self.pool.pick(deadline - time.monotonic())
        finally:
            self.counts.waiting -= 1

    @contextlib.contextmanager
    def _at(self, replica: ServedLink) -> Iterator[None]:
        """While this task has a request at the replica."""
        task = asyncio.current_task()
        assert task is not None
        replica.users.add(task)
        self.counts.open += 1
        try:
            yield
        finally:
            self.counts.open -= 1
            replica.users.discard(task)


def _raise_file_limit() -> int:
    """As many open files as this process may have; each client takes two. Returns how many clients
    that is.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return (most - 64) // 2
