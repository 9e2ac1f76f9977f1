"""HAProxy, kept in step by its runtime API (docs.haproxy.org, Management Guide, 9.3): a backend has
slots for servers, which get an address, are drained, and are freed.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from mirage.errors import MirageError
from mirage.gateway.counts import RequestCounts
from mirage.gateway.endpoints import Endpoint
from mirage.gateway.proxy_log import counted
from mirage.gateway.streams import addresses_of

SLOT = "mirage"
_ANSWER_S = 5.0
_MAINTENANCE, _DRAINED = 0x01 | 0x02 | 0x20, 0x08 | 0x10
"""Bits of srv_admin_state. 0x04 stays for ever: the slot was disabled in the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A server of the backend."""

    name: str
    address: tuple[str, int]
    is_free: bool
    drains: bool
    requests: int


class HAProxy:
    """The servers of one backend."""

    def __init__(self, socket_path: str, backend: str, log_port: int) -> None:
        self._path, self._backend, self._log_port = socket_path, backend, log_port
        self._resolved: dict[str, str] = {}

    def listen(self, counts: RequestCounts) -> AbstractAsyncContextManager[None]:
        return counted(self._log_port, counts)

    async def follow(self, up: Sequence[Endpoint]) -> None:
        slots = await self._slots()
        wanted = [(await self._resolve(endpoint.host), endpoint.port) for endpoint in up]
        for command in commands(self._backend, slots, wanted):
            said = (await self._ask(command)).strip()
            if said and not said.startswith(("IP changed", "port changed", "no need to change")):
                raise MirageError(f"HAProxy refused `{command}`: {said}")

    async def busy(self, of: Sequence[Endpoint]) -> dict[str, int]:
        by_address = {slot.address: slot.requests for slot in await self._slots() if slot.requests}
        found = {
            endpoint.address: by_address.get((await self._resolve(endpoint.host), endpoint.port), 0)
            for endpoint in of
        }
        return {address: count for address, count in found.items() if count}

    async def _slots(self) -> list[Slot]:
        state = await self._ask(f"show servers state {self._backend}")
        stat = csv.DictReader((await self._ask("show stat -1 4 -1")).lstrip("# ").splitlines())
        requests = {row["svname"]: row["scur"] for row in stat if row["pxname"] == self._backend}
        head, *rows = [line.split() for line in state.splitlines()[1:] if line.strip()] or [[]]
        found = [dict(zip(head[1:], row, strict=False)) for row in rows]
        return [
            Slot(
                name=row["srv_name"],
                address=(row["srv_addr"], int(row["srv_port"])),
                is_free=bool(int(row["srv_admin_state"]) & _MAINTENANCE),
                drains=bool(int(row["srv_admin_state"]) & _DRAINED),
                requests=int(requests.get(row["srv_name"]) or 0),
            )
            for row in found
            if row["srv_name"].startswith(SLOT)
        ]

    async def _resolve(self, host: str) -> str:
        """HAProxy takes addresses only."""
        if host not in self._resolved:
            self._resolved[host] = (await addresses_of(host))[0]
        return self._resolved[host]

    async def _ask(self, command: str) -> str:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            writer.write(f"{command}\n".encode())
            answer = await asyncio.wait_for(reader.read(-1), _ANSWER_S)
            writer.close()
        except (OSError, TimeoutError) as error:
            raise MirageError(
                f"HAProxy does not answer at {self._path} ({error or 'no answer in time'}): requests"
                " still go where it last knew"
            ) from error
        text = answer.decode(errors="replace")
        if "Can't find backend" in text or "No such backend" in text or "No such server" in text:
            raise MirageError(
                f"HAProxy has no backend {self._backend}: `mirage gateway --print-config haproxy`"
                " shows what belongs into its configuration"
            )
        return text


def commands(backend: str, slots: Sequence[Slot], wanted: Iterable[tuple[str, int]]) -> list[str]:
    """What brings the backend's slots in step with the servers that are wanted. Pure. Raises
    MirageError: there are too few slots.
    """
    missing = set(wanted)
    found, free = [], []
    for slot in slots:
        server = f"set server {backend}/{slot.name}"
        if slot.is_free:
            free.append(server)
        elif slot.address in missing:
            missing.remove(slot.address)
            found += [f"{server} state ready"] if slot.drains else []
        elif slot.requests:
            found += [] if slot.drains else [f"{server} state drain"]
        else:
            found.append(f"{server} state maint")
    if len(missing) > len(free):
        raise MirageError(
            f"HAProxy's backend {backend} has {len(slots)} slots, too few: raise the number in its"
            f" line `server-template {SLOT}`"
        )
    for server, (host, port) in zip(free, sorted(missing), strict=False):
        found += [f"{server} addr {host} port {port}", f"{server} state ready"]
    return found
