"""The paper's input of the network: an image of GPUs, job slots and backlog (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Floats

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Image:
    """Rows are time steps. Columns: one a GPU, then `most_gpus` a slot, then the backlog.

    A cell is 0, or the colour of its job: its slot's number from 1, the same in the GPUs' and in the
    slot's columns. A job behind the slots is one cell of the backlog, of colour `slots`.
    """

    rows: int
    gpus: int
    slots: int
    most_gpus: int
    """Columns of a slot: the greatest request."""
    backlog: int

    @property
    def backlog_columns(self) -> int:
        return -(-self.backlog // self.rows)

    @property
    def inputs(self) -> int:
        """Length of the flat image; 1,580 with the paper's figures."""
        return self.rows * (self.gpus + self.slots * self.most_gpus + self.backlog_columns)

    def colours(self, world: PlacementWorld) -> Bytes:
        """The images of all clusters, [B, inputs]: colours from 0 to `slots`."""
        return np.concatenate(
            [part.reshape(world.clusters, self.rows, -1) for part in self._parts(world)], axis=2
        ).reshape(world.clusters, self.inputs)

    def scaled(self, colours: Bytes) -> npt.NDArray[np.float32]:
        """What the network reads: 0 to 1."""
        return colours.astype(np.float32) / np.float32(self.slots)

    def _parts(self, world: PlacementWorld) -> tuple[Bytes, Bytes, Bytes]:
        slots = slice(self.slots)
        row = np.arange(self.rows)[:, None]
        left = world.remaining()[:, slots]
        model = world.config.model
        # GPUs: the steps that the job has left at its present speed.
        assigned = world.assigned[:, slots]
        held = assigned.any(axis=1)
        owner = assigned.argmax(axis=1)
        steps = _steps(left, world.speed[:, slots] * model.step_s)
        gpu_steps = np.where(held, np.take_along_axis(steps, owner, axis=1), 0)
        gpus = (owner[:, None, :] + 1) * (row < gpu_steps[:, None, :])
        # Slots: the steps that it has left alone, on what it asks for, without communication.
        wanted = np.where(world.filled[:, slots], world.of_slots(world.gpus)[:, slots], 0)
        alone = _steps(left, wanted * model.cell_distance)
        column = np.arange(self.most_gpus)
        area = (row[None, None] < alone[:, :, None, None]) & (column < wanted[:, :, None, None])
        colour = np.arange(1, self.slots + 1)[:, None, None]
        slot = (area * colour).transpose(0, 2, 1, 3)
        cell = np.arange(self.rows * self.backlog_columns)
        behind = np.where(cell < world.waiting[:, None], self.slots, 0)
        return gpus.astype(np.uint8), slot.astype(np.uint8), behind.astype(np.uint8)


def _steps(left: Floats, each_step: Floats) -> npt.NDArray[np.int64]:
    """Rounded up; 0 where nothing is left, or nothing is computed."""
    steps = np.divide(left, each_step, out=np.zeros_like(left), where=each_step > 0)
    return np.ceil(np.minimum(steps, 1e6) - 1e-9).astype(np.int64)
