"""Two connections as one: bytes from each go to the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable

from mirage.errors import MirageError

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BLOCK = 65536
QUIET_S = 2.0
"""A connection at a leaving link is at rest if nothing has come for so long since the link spoke."""


async def closed(writer: asyncio.StreamWriter) -> None:
    """Closes it, whatever became of the other side."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def pass_bytes(
    client: Streams, server: Streams, leaves: Callable[[], bool], has_asked: bool
) -> None:
    """Until one side ends; and once ``leaves()``, until the server has spoken last and is quiet.

    ``has_asked``: the client has sent something before.
    """
    now = time.monotonic()
    spoke_s = {"client": now if has_asked else 0.0, "server": 0.0 if has_asked else now}

    async def pump(name: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(BLOCK):
            spoke_s[name] = time.monotonic()
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    async def rest() -> None:
        while not (leaves() and spoke_s["client"] < spoke_s["server"] < time.monotonic() - QUIET_S):
            await asyncio.sleep(QUIET_S / 4)

    async def both() -> None:
        await asyncio.gather(
            pump("client", client[0], server[1]), pump("server", server[0], client[1])
        )

    tasks = [asyncio.ensure_future(both()), asyncio.ensure_future(rest())]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def addresses_of(host: str) -> list[str]:
    """The IP addresses of a node. Raises MirageError: it has none here."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MirageError(f"node {host} has no address here: {error}") from error
    return list(dict.fromkeys(str(one[4][0]) for one in found))
