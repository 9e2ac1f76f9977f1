"""Sequences of simulated jobs (sections 4.6.2 and 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError
from mirage.placement.profiles import ProfileSet, profiles
from mirage.placement.speed import SpeedModel
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
    gradient_mb: Floats
    total_distance: Floats
    """d_tot, equation 11: FLOPs of the whole job."""

    def __len__(self) -> int:
        return len(self.arrival_step)


def draw(workload: PlacementWorkload, model: SpeedModel, rng: np.random.Generator) -> PlacementJobs:
    """One sequence of jobs."""
    count = workload.jobs
    length = _halves(rng, count, workload.short_steps, workload.long_steps)
    gpus = _halves(rng, count, workload.few_gpus, workload.many_gpus)
    table = profiles(workload.profiles)
    chosen = rng.integers(len(table), size=count)
    flops = np.array([profile.flops_per_example for profile in table])[chosen]
    gradient_mb = np.array([profile.gradient_mb for profile in table])[chosen]
    distance = model.minibatch_distance(flops, rng.choice(MINIBATCHES, size=count))
    per_root_s = model.reduction_per_root_s(gradient_mb)
    gaps = rng.geometric(workload.arrival_probability, size=count)
    return PlacementJobs(
        arrival_step=(np.cumsum(gaps) - gaps[0]) // workload.chances_per_step,
        length_steps=length,
        gpus=gpus,
        minibatch_distance=distance,
        reduction_per_root_s=per_root_s,
        gradient_mb=gradient_mb,
        total_distance=_total(workload.total_work, model, length, gpus, distance, per_root_s),
    )


def _halves(
    rng: np.random.Generator, count: int, low: tuple[int, int], high: tuple[int, int]
) -> Ints:
    first = rng.random(count) < 0.5
    return np.where(
        first, rng.integers(low[0], low[1] + 1, count), rng.integers(high[0], high[1] + 1, count)
    )


def _total(
    reading: TotalWork,
    model: SpeedModel,
    length: Ints,
    gpus: Ints,
    distance: Floats,
    per_root_s: Floats,
) -> Floats:
    if reading == "cells":
        return (length * gpus).astype(np.float64) * model.cell_distance
    if reading != "alone":
        raise InputError(f"workload: total_work {reading!r}: cells or alone")
    return length * model.step_s * alone_flops(model, gpus, distance, per_root_s)


def alone_flops(model: SpeedModel, gpus: Ints, distance: Floats, per_root_s: Floats) -> Floats:
    """FLOPS of each job alone on one rack with the GPUs that it asks for (equation 5's terms)."""
    return distance * gpus / (model.training_s(distance) + model.rack_reduction_s(per_root_s, gpus))


def check_fits(sequence: PlacementJobs, topology: Topology) -> None:
    """Raises InputError if a job asks for more GPUs than the topology has."""
    greatest = int(sequence.gpus.max())
    if greatest > len(topology):
        nth = int(sequence.gpus.argmax())
        raise InputError(
            f"job {nth} asks for {greatest} GPUs; topology {topology.source} has {len(topology)}"
        )
