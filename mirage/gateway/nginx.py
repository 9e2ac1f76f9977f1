"""nginx, kept in step by a file with the service's `upstream` block, and a reload: old worker
processes finish what they have begun.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from mirage.errors import MirageError
from mirage.gateway.counts import RequestCounts
from mirage.gateway.endpoints import Endpoint
from mirage.gateway.proxy_log import counted
from mirage.gateway.streams import addresses_of
from mirage.gateway.tokens import Tokens
from slurm_sim.files import write_whole

_ESTABLISHED = "01"


class Nginx:
    """The file of one service: its upstream servers, and its tokens."""

    def __init__(
        self, file: Path, name: str, port: int, tokens: Tokens | None, reload: Sequence[str]
    ) -> None:
        """``port``: of the relay, to which requests go while no replica is ready."""
        self._file, self._name, self._port = file, name, port
        self._tokens, self._reload = tokens, list(reload)
        self._written: str | None = None

    def listen(self, counts: RequestCounts) -> AbstractAsyncContextManager[None]:
        return counted(self._port, counts)

    async def follow(self, up: Sequence[Endpoint]) -> None:
        text = configuration(
            self._name, sorted(one.address for one in up), self._port, self._tokens
        )
        if text == self._written:
            return
        write_whole(self._file, text, 0o600)
        process = await asyncio.create_subprocess_exec(
            *self._reload, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise MirageError(
                f"`{' '.join(self._reload)}` failed, so nginx still sends requests where it last"
                f" knew: {said.decode(errors='replace').strip()}"
            )
        self._written = text

    async def busy(self, of: Sequence[Endpoint]) -> dict[str, int]:
        """By the kernel's table of connections: nginx keeps none to a server that has answered."""
        open_at = connections()
        found: dict[str, int] = {}
        for endpoint in of:
            addresses = await addresses_of(endpoint.host)
            if count := sum(open_at[address, endpoint.port] for address in addresses):
                found[endpoint.address] = count
        return found


def configuration(name: str, servers: Sequence[str], port: int, tokens: Tokens | None) -> str:
    """The file that belongs into nginx's block `http`."""
    waiting = f"127.0.0.1:{port}"
    lines = [f"    server {server} max_fails=1 fail_timeout=2s;" for server in servers]
    lines.append(f"    server {waiting}{' backup' if servers else ''};")
    words = tokens.words() if tokens else []
    allowed = [f'    "~^[Bb]earer {re.escape(word)}$" 1;' for word in words]
    default = 0 if tokens else 1
    return "\n".join(
        [
            f"upstream {name} {{",
            "    least_conn;",
            *lines,
            "}",
            f"map $http_authorization $mirage_{variable(name)} {{",
            f"    default {default};",
            *allowed,
            "}",
            "",
        ]
    )


def variable(name: str) -> str:
    """A service's name within the name of an nginx variable."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def connections() -> Counter[tuple[str, int]]:
    """By remote address and port: this machine's open TCP connections (proc(5), /proc/net/tcp)."""
    found: Counter[tuple[str, int]] = Counter()
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            rows = Path(path).read_text().splitlines()[1:]
        except OSError:
            continue  # without IPv6
        for row in rows:
            _, _, remote, state, *_ = row.split()
            if state == _ESTABLISHED:
                address, port = remote.split(":")
                words = [
                    bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)
                ]
                found[(socket.inet_ntop(family, b"".join(words)), int(port, 16))] += 1
    return found
