"""Sequences of simulated jobs (sections 4.6.2 and 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError
from mirage.placement.profiles import ProfileSet, profiles
from mirage.placement.simulated.measured import MeasuredLaw
from mirage.placement.speed import MinibatchCosts, SpeedModel, alone_flops
from mirage.placement.topology import Floats, Topology

Ints = npt.NDArray[np.int64]

MINIBATCHES = (32, 64, 128, 256, 512)
TotalWork = Literal["cells", "alone"]


@dataclass(frozen=True, kw_only=True)
class PlacementWorkload:
    """How jobs are drawn. The defaults are section 5.1's.

    "Roughly half" is read as an independent draw for length and GPUs.
    """

    jobs: int = 400
    """Jobs in a sequence."""
    arrival_probability: float = 1.0
    """That a job arrives at a chance; the paper's is one job a step."""
    chances_per_step: int = 1
    """Chances of an arrival in a time step, for more than one job a step."""
    short_steps: tuple[int, int] = (1, 3)
    """Least and greatest length of half of the jobs, time steps."""
    long_steps: tuple[int, int] = (6, 10)
    few_gpus: tuple[int, int] = (1, 7)
    """Least and greatest request of half of the jobs, GPUs."""
    many_gpus: tuple[int, int] = (8, 12)
    profiles: ProfileSet = "convnet-burden"
    total_work: TotalWork = "cells"
    """`cells`: equation 11, cells of the image. `alone`: a job alone on one rack, on the GPUs that
    it asks for, takes its length.
    """

    def __post_init__(self) -> None:
        for name in ("short_steps", "long_steps", "few_gpus", "many_gpus"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise InputError(
                    f"workload: {name} must be 1 <= least <= most, not {least}, {most}"
                )
        if not 0 < self.arrival_probability <= 1:
            raise InputError(
                f"workload: arrival_probability must be in (0, 1], not {self.arrival_probability}"
            )
        if self.total_work not in ("cells", "alone"):
            raise InputError(f"workload: total_work {self.total_work!r}: cells or alone")
        for name in ("jobs", "chances_per_step"):
            if getattr(self, name) < 1:
                raise InputError(f"workload: {name} must be at least 1, not {getattr(self, name)}")

    @property
    def most_gpus(self) -> int:
        """The greatest request, GPUs."""
        return max(self.few_gpus[1], self.many_gpus[1])


@dataclass(frozen=True, kw_only=True)
class PlacementJobs:
    """Jobs in the order of their arrival; each array has one entry a job, [K]."""

    arrival_step: Ints
    length_steps: Ints
    """len: the length that was asked for, time steps."""
    gpus: Ints
    """gpusreq: GPUs that the job asks for."""
    minibatch_distance: Floats
    """d_m: FLOPs of a minibatch on one GPU."""
    reduction_per_root_s: Floats
    """c of `SpeedModel.reduction_per_root_s`."""
    total_distance: Floats
    """d_tot, equation 11: FLOPs of the whole job."""
    kind: Ints
    """Row of a table of measurements; 0 under the paper's law."""

    def __len__(self) -> int:
        return len(self.arrival_step)


def draw(
    workload: PlacementWorkload,
    model: SpeedModel,
    rng: np.random.Generator,
    measured: MeasuredLaw | None = None,
) -> PlacementJobs:
    """One sequence of jobs. ``measured``: of its kinds, in place of the workload's profiles."""
    count = workload.jobs
    length = _halves(rng, count, workload.short_steps, workload.long_steps)
    gpus = _halves(rng, count, workload.few_gpus, workload.many_gpus)
    costs = _paper_costs(workload, model, rng) if measured is None else measured.draw(count, rng)
    gaps = rng.geometric(workload.arrival_probability, size=count)
    if workload.total_work == "cells":
        total = (length * gpus).astype(np.float64) * model.cell_distance
    elif measured is None:
        alone = alone_flops(model, gpus, costs.minibatch_distance, costs.per_root_s)
        total = length * model.step_s * alone
    else:
        total = length * model.step_s * measured.as_asked(gpus, costs)
    return PlacementJobs(
        arrival_step=(np.cumsum(gaps) - gaps[0]) // workload.chances_per_step,
        length_steps=length,
        gpus=gpus,
        minibatch_distance=costs.minibatch_distance,
        reduction_per_root_s=costs.per_root_s,
        total_distance=total,
        kind=costs.kind,
    )


def _paper_costs(
    workload: PlacementWorkload, model: SpeedModel, rng: np.random.Generator
) -> MinibatchCosts:
    count, table = workload.jobs, profiles(workload.profiles)
    chosen = rng.integers(len(table), size=count)
    flops = np.array([profile.flops_per_example for profile in table])[chosen]
    gradient_mb = np.array([profile.gradient_mb for profile in table])[chosen]
    return MinibatchCosts(
        minibatch_distance=model.minibatch_distance(flops, rng.choice(MINIBATCHES, size=count)),
        per_root_s=model.reduction_per_root_s(gradient_mb),
        kind=np.zeros(count, dtype=np.int64),
    )


def _halves(
    rng: np.random.Generator, count: int, low: tuple[int, int], high: tuple[int, int]
) -> Ints:
    first = rng.random(count) < 0.5
    return np.where(
        first, rng.integers(low[0], low[1] + 1, count), rng.integers(high[0], high[1] + 1, count)
    )


def check_fits(sequence: PlacementJobs, topology: Topology) -> None:
    """Raises InputError if a job asks for more GPUs than the topology has."""
    greatest = int(sequence.gpus.max())
    if greatest > len(topology):
        nth = int(sequence.gpus.argmax())
        raise InputError(
            f"job {nth} asks for {greatest} GPUs; topology {topology.source} has {len(topology)}"
        )
