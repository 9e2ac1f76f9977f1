"""How long a released successor would wait if nobody came any more and all jobs ran until their
limits.

That is what `squeue --start` shows, made on the simulator for a job that still has a dependency.
The state matrix tells how many jobs wait and how large they are (paper, section 4.2), not whose
turn it is: this number does. Arrivals make the real wait longer, jobs that end early make it
shorter; by how much, methods learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirage.errors import InputError
from mirage.provision.learn.model import Model
from slurm_sim import Simulator
from slurm_sim.clusters.toml import read_toml, write_toml
from slurm_sim.config import ClusterConfig
from slurm_sim.errors import InvalidCluster
from slurm_sim.seconds import DAY_S

CLUSTER = "cluster.toml"
"""In a model folder."""
LONGEST_S = 14 * DAY_S
"""A longer wait, or none that ends, is told as this one."""


def forecast_s(simulation: Simulator, successor_id: int) -> int:
    """Seconds from now to the successor's start if it were released now. Leaves `simulation` as it
    is.
    """
    ahead = simulation.fork()
    ahead.forget_future()
    ahead.drop_dependency(successor_id)
    start_s = ahead.run_until_start(successor_id, simulation.now_s + LONGEST_S)
    return LONGEST_S if start_s is None else start_s - simulation.now_s


@dataclass(frozen=True)
class ForecastingModel:
    """A model that is asked with forecasts, and the cluster on whose description they are made: one
    model folder.
    """

    model: Model
    cluster: ClusterConfig

    @property
    def name(self) -> str:
        return self.model.name

    def write(self, folder: Path) -> None:
        self.model.write(folder)
        (folder / CLUSTER).write_text(write_toml(self.cluster), encoding="utf-8")


def read_cluster(folder: Path) -> ClusterConfig:
    """Of a model folder that `ForecastingModel` wrote and `folder.check_folder` checked. Raises
    InputError.
    """
    try:
        return read_toml(folder / CLUSTER).cluster
    except (OSError, InvalidCluster) as error:
        raise InputError(
            f"{folder}: has no readable {CLUSTER} ({error}); train the model again."
        ) from error
