"""HTTP/1.1 through the relay, one request after the other: each goes to the replica with the fewest
requests. h11 reads and writes the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11

from mirage.gateway.streams import BLOCK, Streams, pass_bytes

if TYPE_CHECKING:
    from mirage.gateway.relay import Relay

IDLE_S = 300.0
"""A client's connection without a request is closed then."""
_LINGER_S = 1.0
_LONGEST_HEAD = 65536
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection"})
_MAY_REPEAT = frozenset({b"GET", b"HEAD", b"OPTIONS"})


async def refuse(client: Streams, status: int, words: str) -> None:
    """An answer of the gateway itself, in one line of text; the connection ends with it."""
    reader, writer = client
    body = f"mirage gateway: {words}\n".encode()
    challenge = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain\r\n"
        f"{challenge}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    writer.write_eof()
    with contextlib.suppress(TimeoutError):  # what is not read would make the answer a reset
        await asyncio.wait_for(_discard(reader), _LINGER_S)


async def _discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(BLOCK):
        pass


class _Side:
    """A connection, and what h11 knows of it."""

    def __init__(
        self,
        role: type[h11.CLIENT | h11.SERVER],
        streams: Streams,
        first: bytes = b"",
    ) -> None:
        self.state = h11.Connection(role, max_incomplete_event_size=_LONGEST_HEAD)
        self.streams = streams
        self.reader, self.writer = streams
        if first:
            self.state.receive_data(first)

    async def next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self.state.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]  # mypy does not narrow h11's sentinels
            self.state.receive_data(await self.reader.read(BLOCK))

    async def send(self, event: h11.Event) -> None:
        data = self.state.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()


class ClientConnection:
    """A client's connection."""

    def __init__(
        self,
        relay: Relay,
        streams: Streams,
        first: bytes,
    ) -> None:
        self._relay = relay
        self._client = _Side(h11.SERVER, streams, first)

    async def serve(self) -> None:
        """All its requests."""
        client = self._client
        while True:
            try:
                request = await asyncio.wait_for(client.next(), IDLE_S)
            except h11.RemoteProtocolError as error:
                await refuse(client.streams, 400, f"this is not HTTP/1.1: {error}")
                return
            except TimeoutError:
                return
            if not isinstance(request, h11.Request) or not await self._serve(request):
                return
            if (client.state.our_state, client.state.their_state) != (h11.DONE, h11.DONE):
                return
            client.state.start_next_cycle()

    async def _serve(self, request: h11.Request) -> bool:
        """One request. False: the connection ends with it."""
        relay, streams = self._relay, self._client.streams
        allowed = dict(request.headers).get(b"authorization", b"")
        if relay.tokens is not None and not relay.tokens.allows(allowed):
            await refuse(streams, 401, "give a token of this service: Authorization: Bearer TOKEN")
            return False
        began = time.monotonic()
        exchange = _Exchange(relay, self._client, request)
        try:
            status = await exchange.run(began)
        except (h11.ProtocolError, OSError, asyncio.CancelledError) as error:
            relay.counts.note(exchange.answered_after(began), is_good=exchange.left_by_client)
            if isinstance(error, h11.ProtocolError):
                raise ConnectionResetError from error
            raise
        if not exchange.answered_s:
            await refuse(streams, status, _REFUSALS[status])
        relay.counts.note(exchange.answered_after(began), status < HTTPStatus.INTERNAL_SERVER_ERROR)
        return bool(exchange.answered_s)


_REFUSALS = {
    502: "the replica died before it answered",
    503: "no replica of this service is ready; `mirage status` tells when one will be",
}


class _Exchange:
    """A request and its answer."""

    def __init__(self, relay: Relay, client: _Side, request: h11.Request) -> None:
        self._relay, self._client, self._request = relay, client, request
        self.answered_s = 0.0
        """When the answer began, monotonic; 0: it has not."""
        self.left_by_client = False

    def answered_after(self, began: float) -> float:
        return (self.answered_s or time.monotonic()) - began

    async def run(self, began: float) -> int:
        """The status of the answer, or why there was none: 502, 503."""
        for _ in range(3):
            async with self._relay.reached(began) as reached:
                if reached is None:
                    return 503
                try:
                    return await self._at(_Side(h11.CLIENT, reached[1]))
                except (OSError, h11.RemoteProtocolError):
                    if self.answered_s or self.left_by_client:
                        raise ConnectionResetError from None
                    if not self._may_repeat():
                        break
        return 502

    def _may_repeat(self) -> bool:
        names = {name for name, _ in self._request.headers}
        has_body = names & {b"content-length", b"transfer-encoding"}
        return self._request.method in _MAY_REPEAT and not has_body

    async def _at(self, server: _Side) -> int:
        await server.send(self._for_server())
        sending = asyncio.ensure_future(self._send_body(server))
        answering = asyncio.ensure_future(self._answer(server))
        try:
            await asyncio.wait([sending, answering], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and self.left_by_client:
                raise ConnectionResetError
            status = await answering
        finally:
            for task in (sending, answering):
                task.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)
        if self._client.state.our_state is h11.SWITCHED_PROTOCOL:
            await self._tunnel(server)
        return status

    def _for_server(self) -> h11.Request:
        headers = self._request.headers
        upgrades = any(name == b"upgrade" for name, _ in headers)
        kept = [(name, value) for name, value in headers if upgrades or name not in _HOP_BY_HOP]
        return h11.Request(
            method=self._request.method,
            target=self._request.target,
            headers=kept if upgrades else [*kept, (b"connection", b"close")],
        )

    async def _send_body(self, server: _Side) -> None:
        """Then waits for the client to go away: a stream that nobody reads must end."""
        with contextlib.suppress(h11.ProtocolError, OSError):
            while isinstance(event := await self._client.next(), h11.Data | h11.EndOfMessage):
                with contextlib.suppress(h11.LocalProtocolError, OSError):
                    await server.send(event)  # it may have answered already
                if isinstance(event, h11.EndOfMessage):
                    break
            while data := await self._client.reader.read(BLOCK):
                self._client.state.receive_data(data)
        self.left_by_client = True

    async def _answer(self, server: _Side) -> int:
        status = 0
        while True:
            event = await server.next()
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError
            if isinstance(event, h11.Response):
                self.answered_s, status = time.monotonic(), event.status_code
                kept = [each for each in event.headers if each[0] not in _HOP_BY_HOP]
                event = h11.Response(
                    status_code=status, reason=event.reason, headers=kept, http_version=b"1.1"
                )
            assert not isinstance(event, type)
            await self._client.send(event)
            if isinstance(event, h11.EndOfMessage):
                return status
            if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                self.answered_s = time.monotonic()
                return event.status_code

    async def _tunnel(self, server: _Side) -> None:
        """After an upgrade, as of a websocket: bytes both ways."""
        client = self._client
        server.writer.write(client.state.trailing_data[0])
        client.writer.write(server.state.trailing_data[0])
        await pass_bytes(client.streams, server.streams, lambda: False, has_asked=True)
