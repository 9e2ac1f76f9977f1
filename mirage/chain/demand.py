"""What a service's gateway counts: `demand.json` in the service's folder, written at least every ten
seconds.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mirage.chain.service import DEMAND, service_folder
from slurm_sim.files import write_whole

STALE_S = 30
"""An older file is of a gateway that no longer runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDemand:
    """Counts since the gateway's start; ``open`` and ``waiting`` are now. Times are Unix seconds."""

    seen_s: float
    since_s: float
    """The gateway's start."""
    open: int = 0
    """Requests at a replica; of other protocols than HTTP: connections."""
    waiting: int = 0
    """Requests that wait since no replica is ready."""
    requests: int = 0
    failed: int = 0
    """Without a whole answer, or with a status from 500 on."""
    p95_s: float | None = None
    """Until the answer began, of the last thousands; None: there was no request."""
    slowest_s: float | None = None
    up_s: float = 0
    """For how long at least one replica was up."""
    replicas: int = 0
    """That are up now."""
    address: str = ""
    """HOST:PORT of the gateway."""

    @property
    def uptime(self) -> float | None:
        """Share of the gateway's time in which a replica was up; None: it has just started."""
        lived_s = self.seen_s - self.since_s
        return min(1.0, self.up_s / lived_s) if lived_s > 0 else None

    def is_fresh(self, now_s: float | None = None) -> bool:
        """Whether its gateway still runs, as far as the file tells."""
        return (time.time() if now_s is None else now_s) - self.seen_s <= STALE_S


def read_demand(service: str) -> ServiceDemand | None:
    """None: no gateway has served this service, or its file can't be read."""
    try:
        found = json.loads((service_folder(service) / DEMAND).read_text())
        return ServiceDemand(
            **{key: found[key] for key in found if key in ServiceDemand.__dataclass_fields__}
        )
    except (OSError, ValueError, TypeError):
        return None


def write_demand(folder: Path, demand: ServiceDemand) -> None:
    """Into the service's folder. Raises OSError."""
    write_whole(folder / DEMAND, json.dumps(asdict(demand)), 0o600)
