"""`mirage gateway`: keeps a relay, and a proxy if there is one, in step with what is ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mirage.chain.demand import write_demand
from mirage.errors import InputError, MirageError, system_says
from mirage.gateway.counts import RequestCounts
from mirage.gateway.endpoints import Endpoint, Service, not_running
from mirage.gateway.pool import LinkPool
from mirage.gateway.relay import Relay
from mirage.gateway.tokens import Tokens

LOOK_S = 1.0
LOOK_FOR_CHAINS_S = 5.0
WRITE_S = 5.0
Say = Callable[[str], None]


class Proxy(Protocol):
    """A proxy that has the clients' connections; the relay's port is its last resort."""

    async def follow(self, up: Sequence[Endpoint]) -> None:
        """Sends new requests to these alone. Raises MirageError, OSError."""

    async def busy(self, of: Sequence[Endpoint]) -> dict[str, int]:
        """By address (HOST:PORT), of those at which it has requests: how many. Raises MirageError,
        OSError.
        """

    def listen(self, counts: RequestCounts) -> contextlib.AbstractAsyncContextManager[None]:
        """While its log of requests is counted."""


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What `mirage gateway` was asked for, of one service."""

    service: Service
    folder: Path
    """Of the service (`chain/service.py`)."""
    host: str
    port: int
    tokens: Tokens | None
    is_http: bool
    wait_s: float
    drain_s: float


class Gateway:
    """One service's gateway."""

    def __init__(self, settings: GatewaySettings, proxy: Proxy | None, say: Say) -> None:
        self._settings, self._proxy, self._say = settings, proxy, say
        self._pool, self._counts = LinkPool(), RequestCounts()
        self._relay = Relay(
            pool=self._pool,
            counts=RequestCounts() if proxy else self._counts,
            tokens=settings.tokens,
            is_http=settings.is_http,
            wait_s=settings.wait_s,
        )
        self._address = f"{settings.host}:{settings.port}"
        self._busy: dict[str, int] = {}
        self._draining: set[Path] = set()
        self._shown: list[str] | None = None
        self._told: dict[str, str] = {}
        self._written_s = self._looked_s = 0.0

    async def run(self) -> None:
        """Until it is cancelled. InputError: it can't begin."""
        settings = self._settings
        self._look_for_chains()
        await self._ask_slurm(settings.service.endpoints())
        listening = self._proxy.listen(self._counts) if self._proxy else contextlib.nullcontext()
        async with await self._relay.serve(settings.host, settings.port), listening:
            self._say(f"{settings.service.name} is at {self._address}")
            while True:
                await self._look()
                await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        if time.monotonic() - self._looked_s > LOOK_FOR_CHAINS_S:
            self._attempt("chains", self._look_for_chains)
        found = self._settings.service.endpoints
        self._attempt("endpoints", lambda: self._pool.update(found(), self._busy))
        await self._pool.check()
        if self._pool.fell:
            fell = set(self._pool.fell)
            await self._ask_slurm(fell)
            self._pool.fell -= fell
        if self._proxy:
            await self._follow(self._proxy)
        self._attempt("drain", self._drain)
        if self._relay.tokens:
            self._attempt("tokens", self._relay.tokens.read)
        self._count()

    def _look_for_chains(self) -> None:
        self._looked_s = time.monotonic()
        self._settings.service.look()

    async def _ask_slurm(self, endpoints: Sequence[Endpoint] | set[Endpoint]) -> None:
        if endpoints:
            owner = self._settings.service.owner
            self._pool.drop(await asyncio.to_thread(not_running, list(endpoints), owner))

    async def _follow(self, proxy: Proxy) -> None:
        try:
            await proxy.follow(self._pool.up)
            self._busy = await proxy.busy([one.endpoint for one in self._pool.replicas])
            self._counts.open = sum(self._busy.values())
            self._tell("proxy", "")
        except (MirageError, OSError) as error:
            self._tell("proxy", str(error))

    def _drain(self) -> None:
        """Tells each leaving link's successor whether somebody is still there (`job.sh`, draining.K.G)."""
        mark = f"{os.uname().nodename}-{self._settings.port}"
        busy = {
            self._settings.service.folder(endpoint.chain_id) / f"draining.{endpoint.link}.{mark}"
            for replica in self._pool.replicas
            if replica.left_s is not None
            and ((endpoint := replica.endpoint).address in self._busy or replica.users)
        }
        for path in self._draining - busy:
            path.unlink(missing_ok=True)
        for path in busy:
            path.touch(mode=0o600)
        self._draining = busy
        if cut := self._pool.cut(self._settings.drain_s):
            self._say(
                f"{cut} connections at a leaving link were cut after {self._settings.drain_s:.0f} s"
            )

    def _count(self) -> None:
        up = self._pool.up
        self._counts.look(bool(up))
        self._counts.waiting = self._relay.counts.waiting
        shown = sorted(endpoint.address for endpoint in up)
        if shown != self._shown:
            self._say(f"ready: {' '.join(shown) or 'none; requests wait'}")
        is_new = shown != self._shown or (self._counts.waiting > 0 and not up)
        self._shown = shown
        if is_new or time.monotonic() - self._written_s > WRITE_S:
            self._written_s = time.monotonic()
            demand = self._counts.demand(len(up), self._address)
            self._attempt("demand", lambda: write_demand(self._settings.folder, demand))

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        """What fails (a full disk, a file system that is away) is told once, and tried again."""
        try:
            act()
            self._tell(what, "")
        except InputError as error:
            self._tell(what, str(error))
        except OSError as error:
            self._tell(what, system_says(error, self._settings.folder))

    def _tell(self, what: str, words: str) -> None:
        if words and words != self._told.get(what):
            self._say(words)
        self._told[what] = words
