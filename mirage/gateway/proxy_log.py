"""What a proxy's log says of each request: HAProxy and nginx send a datagram to the relay's port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mirage.errors import InputError
from mirage.gateway.counts import RequestCounts

_LINE = re.compile(r"mirage(-ms)?:? (-?\d{1,3}) ([-\d., ]*)$", re.ASCII)
"""Status, and the parts of the time until the answer began: in seconds, or after `mirage-ms` in
milliseconds.
"""


def parse_line(text: str) -> tuple[int, float] | None:
    """(status, seconds until the answer began); None: the line is another program's."""
    if not (match := _LINE.search(text.strip())):
        return None
    parts = re.findall(r"(?<![\d.])\d+(?:\.\d+)?", match[3].replace("-1", ""))
    return int(match[2]), sum(map(float, parts)) / (1000 if match[1] else 1)


class _Log(asyncio.DatagramProtocol):
    def __init__(self, counts: RequestCounts) -> None:
        self._counts = counts

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002
        if found := parse_line(data.decode(errors="replace")):
            self._counts.note(found[1], 100 <= found[0] < 500)


@asynccontextmanager
async def counted(port: int, counts: RequestCounts) -> AsyncIterator[None]:
    """While datagrams to this port of 127.0.0.1 are counted. InputError: the port is taken."""
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Log(counts), local_addr=("127.0.0.1", port)
        )
    except OSError as error:
        raise InputError(f"can't read the proxy's log at UDP port {port}: {error}") from error
    try:
        yield
    finally:
        transport.close()
