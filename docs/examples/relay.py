"""One address for a service whose replicas move: `relay.py PORT FOLDER` passes each connection on
to FOLDER/endpoint.

For a login or service node. It stands for what nginx or HAProxy do, in forty lines, and reads the
file anew for each connection, so it needs no reload.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

PATIENCE_S = 30


async def connected(endpoint: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To whoever has the name now. Waits for one that is not there yet, or has just gone; OSError
    after a while.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            host, port = endpoint.read_text().split()
            return await asyncio.open_connection(host, int(port))
        except OSError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def main(port: int, endpoint: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await connected(endpoint)
            await asyncio.gather(pump(reader, back), pump(there, writer))
            back.close()
        except OSError as error:
            print(f"relay: {error}", file=sys.stderr)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, port=port)
    async with server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]) / "endpoint"))
