"""Which links of a service take requests now, and who is at each of them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from mirage.gateway.endpoints import Endpoint
from mirage.gateway.streams import Streams, closed

CONNECT_S = 2.0
"""A replica that takes longer to accept a connection counts as dead."""
_KEPT_S = 3.0
"""A link that left is remembered for at least so long, until the proxy has surely heard of it."""


@dataclass(eq=False)
class ServedLink:
    """A link, as the gateway sees it."""

    endpoint: Endpoint
    is_up: bool = False
    """It accepted the last connection."""
    left_s: float | None = None
    """Since when its endpoint file is gone, monotonic; None: it is there."""
    users: set[asyncio.Task[None]] = field(default_factory=set)
    """Of connections at it."""
    used: int = 0
    """Serial number of the last request that it got."""

    @property
    def takes(self) -> bool:
        return self.is_up and self.left_s is None


class LinkPool:
    """The replicas of one service. Requests go to the one with the fewest."""

    def __init__(self) -> None:
        self._replicas: dict[Endpoint, ServedLink] = {}
        self._gone: set[Endpoint] = set()
        self._serial = 0
        self._changed = asyncio.Event()
        self.fell: set[Endpoint] = set()
        """That did not accept a connection, and of which Slurm has not been asked since."""

    @property
    def replicas(self) -> list[ServedLink]:
        """Those that leave too."""
        return list(self._replicas.values())

    @property
    def up(self) -> list[Endpoint]:
        """That take requests."""
        return [replica.endpoint for replica in self.replicas if replica.takes]

    def update(self, found: Iterable[Endpoint], busy: Container[str] = ()) -> None:
        """``found``: what the endpoint files say now. ``busy``: addresses at which a proxy has requests."""
        listed = set(found)
        self._gone &= listed
        for endpoint in listed - self._gone - self._replicas.keys():
            self._replicas[endpoint] = ServedLink(endpoint)
        for endpoint, replica in list(self._replicas.items()):
            if endpoint in listed and endpoint not in self._gone:
                replica.left_s = None  # a full disk was read as empty
            elif replica.left_s is None:
                replica.left_s = time.monotonic()
            is_in_use = bool(replica.users) or endpoint.address in busy
            if not is_in_use and time.monotonic() - (replica.left_s or math.inf) > _KEPT_S:
                del self._replicas[endpoint]

    def drop(self, endpoints: Iterable[Endpoint]) -> None:
        """Slurm does not run these jobs: nobody may be sent there, whoever answers."""
        self._gone |= set(endpoints)

    def cut(self, drain_s: float) -> int:
        """Ends the connections at links that left so long ago; how many."""
        late = time.monotonic() - drain_s
        users = [
            user
            for replica in self.replicas
            if replica.left_s is not None and replica.left_s <= late
            for user in replica.users
        ]
        for user in users:
            user.cancel()
        return len(users)

    async def pick(self, wait_s: float, without: Iterable[ServedLink] = ()) -> ServedLink | None:
        """The replica with the fewest requests; waits for one. None: there was none in time."""
        refused = set(without)
        deadline = time.monotonic() + wait_s
        while True:
            ready = [one for one in self.replicas if one.takes and one not in refused]
            if ready:
                best = min(ready, key=lambda one: (len(one.users), one.used))
                self._serial += 1
                best.used = self._serial
                return best
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
            refused = set()  # one that refused a connection is asked again by `check`

    async def connect(self, replica: ServedLink) -> Streams | None:
        """A connection to it; None: it is dead, or leaves no answer in time."""
        endpoint = replica.endpoint
        try:
            opened = await asyncio.wait_for(
                asyncio.open_connection(endpoint.host, endpoint.port), CONNECT_S
            )
        except (OSError, TimeoutError):
            if replica.is_up:
                self.fell.add(endpoint)
            replica.is_up = False
            return None
        return opened

    async def check(self) -> None:
        """Asks all replicas for a connection, so that a dead one gets no request."""
        await asyncio.gather(*(self._check(one) for one in self.replicas if one.left_s is None))

    async def _check(self, replica: ServedLink) -> None:
        opened = await self.connect(replica)
        if opened is None:
            return
        await closed(opened[1])
        if not replica.is_up and replica.endpoint not in self.fell:
            replica.is_up = True
            self._changed.set()
