"""Forecasts from live snapshots, as `mirage.learn.forecast` makes them in training."""

from __future__ import annotations

from mirage.domain import Snapshot
from mirage.errors import InputError
from mirage.learn.forecast import forecast_s
from mirage.ports import Observation
from mirage.slurm.lookahead import simulator_from
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig


class Foresight:
    """The cluster's description, and the simulation of the last snapshot: a cycle's pairs share it."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._cluster = cluster
        self._of: Snapshot | None = None
        self._simulator: Simulator | None = None

    def of(self, observation: Observation) -> int:
        """Seconds: the wait of a release now. Raises InputError, SimulationError."""
        if observation.forecast_s is not None:
            return observation.forecast_s
        if observation.snapshot is None:
            raise InputError("there is no snapshot to look ahead from")
        return forecast_s(self._at(observation.snapshot), observation.successor.job_id)

    def _at(self, snapshot: Snapshot) -> Simulator:
        if self._simulator is None or snapshot is not self._of:
            self._simulator, self._of = simulator_from(snapshot, self._cluster), snapshot
        return self._simulator
