"""Forecasts from live snapshots, as `mirage.provision.learn.forecast` makes them in training."""

from __future__ import annotations

import time
from collections.abc import Callable

from mirage.domain import Snapshot
from mirage.errors import InputError
from mirage.ports import Observation
from mirage.provision.learn.forecast import forecast_s
from mirage.slurm.lookahead import simulator_from
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig

CYCLE_S = 60
"""For all forecasts of a cycle; one takes 40 ms with 1,000 jobs in the queue, and two seconds with
20,000.
"""


class LiveForecast:
    """The cluster's description, and the simulation of the last snapshot: a cycle's pairs share it,
    and the time.
    """

    def __init__(self, cluster: ClusterConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._until = 0.0
        self._of: Snapshot | None = None
        self._simulator: Simulator | None = None

    def of(self, observation: Observation) -> int:
        """Seconds: the wait of a release now. Raises InputError, SimulationError."""
        if observation.snapshot is None:
            raise InputError("there is no snapshot to look ahead from")
        simulator = self._at(observation.snapshot)
        if self._clock() > self._until:
            raise InputError(f"the {CYCLE_S} s for a cycle's forecasts are over")
        return forecast_s(simulator, observation.successor.job_id)

    def _at(self, snapshot: Snapshot) -> Simulator:
        if self._simulator is None or snapshot is not self._of:
            self._until = self._clock() + CYCLE_S
            self._simulator, self._of = simulator_from(snapshot, self._cluster), snapshot
        return self._simulator
