"""What a gateway has seen of a service's requests."""

from __future__ import annotations

import time
from collections import deque

from mirage.chain.demand import ServiceDemand

_RECENT = 4096


class RequestCounts:
    """Counts since the gateway's start. ``open`` and ``waiting`` are now."""

    def __init__(self) -> None:
        self.since_s = time.time()
        self.open = self.waiting = self.requests = self.failed = 0
        self._slowest_s = 0.0
        self._recent_s: deque[float] = deque(maxlen=_RECENT)
        self._up_s = 0.0
        self._looked_s = self.since_s

    def note(self, seconds: float, is_good: bool) -> None:
        """A request has its answer, or none. ``seconds``: until the answer began."""
        self.requests += 1
        self.failed += not is_good
        self._slowest_s = max(self._slowest_s, seconds)
        self._recent_s.append(seconds)

    def look(self, is_up: bool) -> None:
        """Adds the time since the last look to that in which a replica was up."""
        now_s = time.time()
        self._up_s += is_up * max(0.0, now_s - self._looked_s)
        self._looked_s = now_s

    def demand(self, replicas: int, address: str) -> ServiceDemand:
        """For `demand.json`."""
        recent = sorted(self._recent_s)
        return ServiceDemand(
            seen_s=time.time(),
            since_s=self.since_s,
            open=self.open,
            waiting=self.waiting,
            requests=self.requests,
            failed=self.failed,
            p95_s=recent[int(0.95 * (len(recent) - 1))] if recent else None,
            slowest_s=self._slowest_s if recent else None,
            up_s=self._up_s,
            replicas=replicas,
            address=address,
        )
