"""What agents are trained and evaluated on: topology, workload, load, rules of the world.

Sequences for training and for tests come from streams of random numbers that never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from mirage.errors import InputError
from mirage.placement.simulated.baselines import baseline
from mirage.placement.simulated.jobs import PlacementJobs, PlacementWorkload, draw
from mirage.placement.simulated.measured import MeasuredLaw, four_nodes, pollux_kinds
from mirage.placement.simulated.minsky import minsky
from mirage.placement.simulated.world import PlacementConfig, PlacementWorld, Price
from mirage.placement.speed import SpeedModel
from mirage.placement.topology import Topology

Speeds = Literal["paper", "pollux"]
PAPER_RACKS = (2, 2, 2, 2)
CAPACITY_JOBS = 120
"""Jobs of a sequence that measures what best fit can carry."""
MOST_ARRIVALS_PER_STEP = 64
_PARTS = {"train": 0, "test": 1, "capacity": 2, "validation": 3}


@dataclass(frozen=True, kw_only=True)
class PlacementSetting:
    """The defaults are the paper's."""

    racks: tuple[int, ...] = PAPER_RACKS
    """Machines of each rack (Minsky, 4 GPUs each)."""
    speeds: Speeds = "paper"
    """`paper`: equations 3 and 10 to 15. `pollux`: measured step times, on the four nodes of four
    GPUs on which they were measured; `racks` does not count.
    """
    load: float | None = None
    """Arriving jobs as a share of what `best-fit` can carry; None: the paper's one job a step,
    which is an overload.
    """
    workload: PlacementWorkload = field(default_factory=PlacementWorkload)
    slots: int = 10
    backlog: int = 60
    most_steps: int = 1000
    price: Price = field(default_factory=Price)

    def __post_init__(self) -> None:
        if self.load is not None and not 0 < self.load <= 4:
            raise InputError(f"load: give a share over 0, at most 4, not {self.load}")
        if self.speeds not in ("paper", "pollux"):
            raise InputError(f"speeds {self.speeds!r}: paper or pollux")

    @cached_property
    def topology(self) -> Topology:
        return minsky(self.racks) if self.speeds == "paper" else four_nodes()

    @cached_property
    def measured(self) -> MeasuredLaw | None:
        """None: the paper's law holds."""
        if self.speeds == "paper":
            return None
        return MeasuredLaw(SpeedModel(), pollux_kinds(), self.topology)

    @cached_property
    def config(self) -> PlacementConfig:
        return PlacementConfig(
            topology=self.topology,
            law=self.measured,
            slots=self.slots,
            backlog=self.backlog,
            most_steps=self.most_steps,
            price=self.price,
        )

    @property
    def capacity(self) -> float:
        """Jobs a step that `best-fit` carries."""
        return _capacity(self.racks, self.speeds, self.workload, self.slots)

    @cached_property
    def arriving(self) -> PlacementWorkload:
        """The workload with the arrivals of this load."""
        if self.load is None:
            return self.workload
        rate = self.load * self.capacity
        chances = int(np.ceil(rate))
        if chances > MOST_ARRIVALS_PER_STEP:
            raise InputError(f"load: {rate:.1f} jobs a step; at most {MOST_ARRIVALS_PER_STEP}")
        return replace(self.workload, arrival_probability=rate / chances, chances_per_step=chances)

    def sequences(
        self, seed: int, part: str, count: int, first: int = 0
    ) -> Sequence[PlacementJobs]:
        """``part``: train, validation or test. The same seed, part and number give the same jobs."""
        return [self._draw(self.arriving, seed, part, first + nth) for nth in range(count)]

    def _draw(self, workload: PlacementWorkload, seed: int, part: str, nth: int) -> PlacementJobs:
        rng = np.random.default_rng([seed, _PARTS[part], nth])
        return draw(workload, self.config.model, rng, self.measured)

    def facts(self) -> dict[str, Any]:
        """For recipes and results."""
        work = self.workload
        return {
            "racks": list(self.racks),
            "gpus": len(self.topology),
            "speeds": self.speeds,
            "load": self.load or 0.0,
            "arrivals_per_step": self.arriving.arrival_probability * self.arriving.chances_per_step,
            "jobs": work.jobs,
            "total_work": work.total_work,
            "profiles": work.profiles,
            "slots": self.slots,
            "backlog": self.backlog,
            "most_steps": self.most_steps,
            "pause_s": self.price.pause_s,
            "restart_s": self.price.restart_s,
            "move_s": self.price.move_s,
        }


@lru_cache(maxsize=64)
def _capacity(
    racks: tuple[int, ...], speeds: Speeds, workload: PlacementWorkload, slots: int
) -> float:
    """Jobs a step that `best-fit` ends while more wait than it can serve.

    Measured between the first and the last fifth of two sequences that arrive at once, without a
    price of pausing.
    """
    setting = PlacementSetting(racks=racks, speeds=speeds, slots=slots, most_steps=1_000_000)
    config = setting.config
    jobs = CAPACITY_JOBS * max(1, len(config.topology) // 32)
    crowd = replace(workload, jobs=jobs, arrival_probability=1.0, chances_per_step=jobs)
    generators = [np.random.default_rng([0, _PARTS["capacity"], nth]) for nth in range(2)]
    world = PlacementWorld(
        config, [draw(crowd, config.model, rng, setting.measured) for rng in generators]
    )
    scheduler = baseline("best-fit")
    scheduler.reset(world)
    while not world.over.all():
        world.step(scheduler.decide(world))
    ends = np.sort(world.finish_step, axis=1)
    first, last = jobs // 5, jobs - jobs // 5
    return float(np.mean((last - first) / (ends[:, last - 1] - ends[:, first - 1])))
