"""The simulated adapter: the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.config import Partition
from tests.contract.cluster_contract import DAY, ClusterContract
from tests.contract.site import Site
from tests.sims import fast_simulator

NOW = 1_800_000_000


def behaviour(script: str) -> tuple[int | None, int]:
    """What the site's scripts do: their names say how long they run and how they exit."""
    numbers = re.search(r"job-(\d+)-(\d+)\.sh$", script)
    return (int(numbers[1]), int(numbers[2])) if numbers else (None, 0)


class SimulatedSite(Site):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        nodes = tuple(f"n{i}" for i in range(1, self.nodes + 1))
        self.sim = fast_simulator(nodes, [Partition("gpu", nodes, max_time_s=DAY)], start_s=NOW)
        self.view = SimulatedCluster(self.sim, behaviour=behaviour)

    def cluster(self, user: str) -> SimulatedCluster:
        return self.view.as_user(user, operator=user == self.operator)

    def down(self) -> SimulatedCluster:
        self.view.down = True
        return self.cluster(self.alice)

    def script(self, run_s: int, exit_code: int) -> str:
        script = self.folder / f"job-{run_s}-{exit_code}.sh"
        script.write_text("#!/bin/sh\n")
        return str(script)

    def pause(self) -> None:
        self.sim.step(1)


@pytest.fixture
def site(tmp_path: Path) -> SimulatedSite:
    return SimulatedSite(tmp_path)


class TestSimulated(ClusterContract):
    pass
