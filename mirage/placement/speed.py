"""How fast a job runs on given GPUs: equations 3 and 10 to 15, appendix A.

Computation is a distance: FLOPs of one forward pass (section 4.6.2). A job's speed is in FLOPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError
from mirage.placement.topology import Bools, Topology, counts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class MinibatchCosts:
    """What a law of speed needs to know of jobs; arrays of one shape, [..., J]."""

    minibatch_distance: Floats
    """d_m: FLOPs of a minibatch on one GPU."""
    per_root_s: Floats
    """c of `SpeedModel.reduction_per_root_s`."""
    kind: Ints
    """Row of a table of measurements; the paper's law does not look at it."""


class SpeedEstimate(Protocol):
    """How fast a job would run, in FLOPS, before it has any GPU."""

    def as_asked(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        """What a job counts on that asks for so many GPUs: the terms of equation 5."""


class SpeedLaw(SpeedEstimate, Protocol):
    """How fast jobs run, in FLOPS, on the GPUs of one topology."""

    def speeds(self, assigned: Bools, costs: MinibatchCosts) -> Floats:
        """Beside each other on their GPUs; 0 without any. ``assigned`` [..., J, M] -> [..., J]."""

    def packed(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        """Alone, on so many GPUs as close together as the topology allows; 0 for 0.

        ``gpus`` has a shape that broadcasts with that of ``costs``.
        """


@dataclass(frozen=True, kw_only=True)
class SpeedModel:
    """The constants of the job model. The defaults are the paper's, or, where its text lacks them,
    those that its laboratory used later.
    """

    gpu_flops: float = 10.6e12
    """v_P100, FLOPS of one GPU; not in the text (a P100's peak in single precision)."""
    efficiency: float = 0.9
    """Equation 10: the share of ``gpu_flops`` that is reached."""
    backward_factor: float = 1.0
    """FLOPs of a step over those of its forward pass. The paper's reading is 1: forward only.
    Training does about 3.
    """
    reduction_100mb_s: float = 28.29e-3
    """Ring reduction of 100 MB on n GPUs of a rack takes this times sqrt(n), seconds (Figure 3)."""
    reduction_500mb_s: float = 139.77e-3
    """The same for 500 MB."""
    rack_factor: float = 0.2
    """Equation 12: what each further rack adds to the reduction, as a share."""
    calibration_flops: float = 20e9
    """Table 2: d_ex of vgg-vd-19, FLOPs of an example."""
    calibration_minibatch: int = 256
    calibration_iterations: int = 1000
    rows: int = 10
    """Table 2: rows of the image, the horizon."""

    def __post_init__(self) -> None:
        for name in ("gpu_flops", "efficiency", "backward_factor", "calibration_flops"):
            if not getattr(self, name) > 0:
                raise InputError(f"speed model: {name} must be above 0, not {getattr(self, name)}")
        for name in ("reduction_100mb_s", "reduction_500mb_s", "rack_factor"):
            if not getattr(self, name) >= 0:
                raise InputError(f"speed model: {name} must not be negative")

    @property
    def step_s(self) -> float:
        """t_row of appendix A: seconds of a time step (483 s / 10 with the paper's values)."""
        return self._calibration_distance() / self.gpu_flops / self.rows

    @property
    def cell_distance(self) -> float:
        """d_cell of appendix A, FLOPs."""
        return self._calibration_distance() / self.rows

    def _calibration_distance(self) -> float:
        per_example = self.calibration_flops * self.backward_factor
        return self.calibration_iterations * per_example * self.calibration_minibatch

    def minibatch_distance(self, flops_per_example: Floats, minibatch: Ints) -> Floats:
        """d_m: FLOPs of a minibatch on one GPU."""
        return flops_per_example * self.backward_factor * minibatch

    def training_s(self, minibatch_distance: Floats) -> Floats:
        """tt_m, equation 10: seconds of a minibatch on one GPU."""
        return minibatch_distance / (self.efficiency * self.gpu_flops)

    def reduction_per_root_s(self, gradient_mb: Floats) -> Floats:
        """c where a reduction on n GPUs of a rack takes c sqrt(n) seconds (Figure 3).

        Linear through 0, 100 and 500 MB; above 100 MB on the line of the latter two.
        """
        below = self.reduction_100mb_s * gradient_mb / 100
        slope = (self.reduction_500mb_s - self.reduction_100mb_s) / 400
        above = self.reduction_100mb_s + slope * (gradient_mb - 100)
        return np.where(gradient_mb <= 100, below, above)

    def rack_reduction_s(self, per_root_s: Floats, gpus: Ints) -> Floats:
        """sr: seconds of a reduction of a job alone on one rack; a single GPU has none."""
        return np.where(gpus > 1, per_root_s * np.sqrt(gpus), 0.0)

    def reduction_s(self, per_root_s: Floats, assigned: Bools, topology: Topology) -> Floats:
        """rt, equation 12: ``per_root_s`` [..., J], ``assigned`` [..., J, M] -> [..., J]."""
        racks = topology.racks(assigned)
        spread = 1 + self.rack_factor * np.maximum(racks - 1, 0)
        alone = self.rack_reduction_s(per_root_s, counts(assigned))
        return alone * spread * topology.scale_factors(assigned)


def speeds(
    model: SpeedModel,
    topology: Topology,
    assigned: Bools,
    *,
    minibatch_distance: Floats,
    per_root_s: Floats,
) -> Floats:
    """v, equation 3: FLOPS of each job on its GPUs; 0 without any. All [..., J]."""
    step_s = model.training_s(minibatch_distance) + model.reduction_s(
        per_root_s, assigned, topology
    )
    gpus = counts(assigned)
    found: Floats = np.divide(
        minibatch_distance * gpus,
        step_s,
        out=np.zeros_like(step_s),
        where=(gpus > 0) & (step_s > 0),
    )
    return found


class PaperLaw:
    """Equations 3 and 10 to 15."""

    def __init__(self, model: SpeedModel, topology: Topology) -> None:
        self._model, self._topology = model, topology
        racks = np.sort(np.bincount(topology.rack_of))[::-1].cumsum()
        self._racks_of: Ints = np.searchsorted(racks, np.arange(len(topology) + 1)) + 1
        """Fewest racks that hold so many GPUs, [M + 1]."""

    def speeds(self, assigned: Bools, costs: MinibatchCosts) -> Floats:
        return speeds(
            self._model,
            self._topology,
            assigned,
            minibatch_distance=costs.minibatch_distance,
            per_root_s=costs.per_root_s,
        )

    def packed(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        model = self._model
        spread = 1 + model.rack_factor * (self._racks_of[gpus] - 1)
        reduction_s = model.rack_reduction_s(costs.per_root_s, gpus) * spread
        found: Floats = costs.minibatch_distance * gpus
        return found / (model.training_s(costs.minibatch_distance) + reduction_s)

    def as_asked(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        """On one rack, whatever its size."""
        return alone_flops(self._model, gpus, costs.minibatch_distance, costs.per_root_s)


def alone_flops(model: SpeedModel, gpus: Ints, distance: Floats, per_root_s: Floats) -> Floats:
    """FLOPS of each job alone on one rack with the GPUs that it asks for (equation 5's terms)."""
    return distance * gpus / (model.training_s(distance) + model.rack_reduction_s(per_root_s, gpus))
