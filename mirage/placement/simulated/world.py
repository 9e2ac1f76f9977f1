"""Many clusters of simulated jobs at once, in time steps, on arrays (sections 4.3, 4.4, 4.6).

Names of axes: B clusters beside each other, K jobs of a sequence, N job slots, M GPUs.

Choices that the paper's text leaves open are parameters; the defaults are its plainest reading:

- A job that finds slots and backlog full waits outside (`overflow="wait"`); DeepRM, on which the
  paper builds, turns it away (`"dismiss"`).
- A job without any GPU costs equation 5, a job with too few costs equation 6, never both.
- Rewards are divided by the FLOPS of all GPUs without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError
from mirage.placement.simulated.jobs import PlacementJobs, check_fits
from mirage.placement.speed import MinibatchCosts, PaperLaw, SpeedLaw, SpeedModel
from mirage.placement.topology import Bools, Floats, Ints, Topology, counts, packed

Overflow = Literal["wait", "dismiss"]
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class Price:
    """Seconds of computation that a job loses, on all its GPUs. The paper's are 0."""

    pause_s: float = 0.0
    """To write a checkpoint as it is paused; charged when it runs again."""
    restart_s: float = 0.0
    """To start from a checkpoint."""
    move_s: float = 0.0
    """To go to other GPUs while it runs."""

    def __post_init__(self) -> None:
        for name in ("pause_s", "restart_s", "move_s"):
            if not getattr(self, name) >= 0:
                raise InputError(f"price: {name} must not be negative, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class PlacementConfig:
    """The rules of a cluster of simulated jobs."""

    topology: Topology
    model: SpeedModel = field(default_factory=SpeedModel)
    law: SpeedLaw | None = None
    """None: the paper's, with ``model``."""
    slots: int = 10
    """N: jobs that the scheduler may choose among."""
    leave_slots: bool = False
    """A job that a scheduler commits itself to leaves its slot, as without preemption in the paper.
    """
    backlog: int = 60
    """Jobs behind the slots that the image shows."""
    most_steps: int = 1000
    """T_max: time steps of an episode."""
    overflow: Overflow = "wait"
    price: Price = field(default_factory=Price)
    too_few_costs: bool = True
    """Equation 6's penalty; schedulers that give what is asked for have none."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.backlog < 0 or self.most_steps < 1:
            raise InputError("world: slots and most_steps must be at least 1, backlog at least 0")
        if self.overflow not in ("wait", "dismiss"):
            raise InputError(f"world: overflow {self.overflow!r}: wait or dismiss")


class PlacementWorld:
    """B clusters with a job sequence each. `reset`, then `step` until all `over`."""

    def __init__(self, config: PlacementConfig, sequences: Sequence[PlacementJobs]) -> None:
        for sequence in sequences:
            check_fits(sequence, config.topology)
        if len({len(sequence) for sequence in sequences}) != 1:
            raise InputError("world: give one or more sequences, all of the same number of jobs")
        self.config = config
        self._model = config.model
        self._topology = config.topology
        self.law: SpeedLaw = config.law or PaperLaw(config.model, config.topology)
        self.arrival: Ints = np.stack([each.arrival_step for each in sequences])
        self.length: Ints = np.stack([each.length_steps for each in sequences])
        self.gpus: Ints = np.stack([each.gpus for each in sequences])
        self.distance: Floats = np.stack([each.minibatch_distance for each in sequences])
        self.per_root_s: Floats = np.stack([each.reduction_per_root_s for each in sequences])
        self.total: Floats = np.stack([each.total_distance for each in sequences])
        self.kind: Ints = np.stack([each.kind for each in sequences])
        every = MinibatchCosts(
            minibatch_distance=self.distance, per_root_s=self.per_root_s, kind=self.kind
        )
        self.idle_cost = self.law.as_asked(self.gpus, every)
        """Equation 5 of each job, [B, K], FLOPS."""
        peak = len(config.topology) * self._model.efficiency * self._model.gpu_flops
        self.reward_scale = 1 / peak
        self._rows = np.arange(len(sequences))
        self.reset()

    @property
    def clusters(self) -> int:
        """B."""
        return len(self.arrival)

    def reset(self) -> None:
        """Back to time step 0, with the first arrivals in the slots."""
        clusters, jobs = self.arrival.shape
        rows, gpus = self.rows, len(self._topology)
        self.time = 0
        self.done = np.zeros((clusters, jobs))
        """FLOPs computed so far, [B, K]."""
        self.finish_step = np.full((clusters, jobs), NOBODY)
        self.dismissed = np.zeros((clusters, jobs), dtype=bool)
        self.slot_job = np.full((clusters, rows), NOBODY)
        """The job in each slot, [B, N]; -1: the slot is empty."""
        self.assigned = np.zeros((clusters, rows, gpus), dtype=bool)
        """The GPUs of each slot's job in the step before, [B, N, M]."""
        self.started = np.zeros((clusters, rows), dtype=bool)
        self._queue = np.full((clusters, jobs), NOBODY)
        self._head = np.zeros(clusters, dtype=np.int64)
        self._tail = np.zeros(clusters, dtype=np.int64)
        self._arrived = np.zeros(clusters, dtype=np.int64)
        self._queue_cost = np.zeros(clusters)
        self.speed = np.zeros((clusters, rows))
        """FLOPS of each slot's job in the step before, [B, N]."""
        self._admit()

    @property
    def waiting(self) -> Ints:
        """Jobs behind the slots, [B]."""
        return self._tail - self._head

    @property
    def over(self) -> Bools:
        """Clusters whose jobs have all ended, or whose time is up, [B]."""
        ended = np.all((self.finish_step >= 0) | self.dismissed, axis=1)
        late = np.full(self.clusters, self.time >= self.config.most_steps)
        return np.asarray(ended | late, dtype=np.bool_)

    @property
    def rows(self) -> int:
        """Jobs that may have GPUs: the slots, then places of jobs that left their slots."""
        return self.config.slots + (2 * len(self._topology) if self.config.leave_slots else 0)

    def commit(self, cluster: int, slot: int) -> int | None:
        """Moves a job out of its slot; returns its new row. None: no place is left.

        The slot is filled from the backlog at once. Only with `leave_slots`.
        """
        free = np.nonzero(~self.filled[cluster, self.config.slots :])[0]
        if not len(free):
            return None
        row = int(free[0]) + self.config.slots
        self.slot_job[cluster, row] = self.slot_job[cluster, slot]
        self.slot_job[cluster, slot] = NOBODY
        self._fill_slots()
        return row

    def of_slots(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """``values`` [B, K] of the jobs in the slots, [B, N]; what an empty slot has is no value."""
        places = self._rows[:, None] * values.shape[1] + np.maximum(self.slot_job, 0)
        found: npt.NDArray[np.generic] = values.take(places)
        return found

    @property
    def filled(self) -> Bools:
        """[B, N]."""
        return self.slot_job >= 0

    def remaining(self) -> Floats:
        """FLOPs that the slots' jobs still have to compute, [B, N]; 0 for empty slots."""
        total = np.asarray(self.of_slots(self.total), dtype=np.float64)
        done = np.asarray(self.of_slots(self.done), dtype=np.float64)
        return np.where(self.filled, total - done, 0.0)

    def assignment(self, actions: Ints) -> Bools:
        """``actions`` [B, M], each GPU's slot or N for none -> [B, N, M]; empty slots get none.

        Raises InputError for a slot that is not there.
        """
        rows = self.rows
        if actions.shape != (self.clusters, len(self._topology)):
            raise InputError(
                f"world: actions must be {(self.clusters, len(self._topology))},"
                f" not {actions.shape}"
            )
        if actions.min() < 0 or actions.max() > rows:
            raise InputError(f"world: an action must be a slot, 0 to {rows - 1}, or {rows}")
        chosen: Bools = actions[:, None, :] == np.arange(rows)[:, None]
        return chosen & self.filled[:, :, None]

    def speeds_of(self, assigned: Bools) -> Floats:
        """FLOPS that the slots' jobs would have on these GPUs: [..., N, M] of B clusters -> [B, N]."""
        costs = MinibatchCosts(
            minibatch_distance=np.asarray(self.of_slots(self.distance), dtype=np.float64),
            per_root_s=np.asarray(self.of_slots(self.per_root_s), dtype=np.float64),
            kind=np.asarray(self.of_slots(self.kind), dtype=np.int64),
        )
        return self.law.speeds(assigned, costs)

    def rewards_of(self, cluster: int, assigned: Bools) -> Floats:
        """Equation 4 of many assignments of one cluster in its state: [L, rows, M] -> [L]."""
        rows = np.nonzero(self.filled[cluster])[0]
        speed = np.zeros(assigned.shape[:-1])
        speed[:, rows] = self.law.speeds(
            assigned[:, rows], self.costs(cluster, self.slot_job[cluster, rows])
        )
        return self._reward(slice(cluster, cluster + 1), assigned, speed)

    def costs(self, cluster: int, jobs: Ints) -> MinibatchCosts:
        """Of some jobs of a cluster, [J]."""
        return MinibatchCosts(
            minibatch_distance=self.distance[cluster, jobs],
            per_root_s=self.per_root_s[cluster, jobs],
            kind=self.kind[cluster, jobs],
        )

    def reward_of(self, assigned: Bools) -> Floats:
        """Equation 4 of an assignment in the present state, [B]."""
        return self._reward(slice(None), assigned, self.speeds_of(assigned))

    def step(self, actions: Ints) -> Floats:
        """Runs one time step with ``actions`` [B, M]; returns the reward of equation 4, [B].

        Clusters that are over stay as they are and get 0.
        """
        was_over = self.over
        assigned = self.assignment(actions) & ~was_over[:, None, None]
        speed = self.speeds_of(assigned)
        reward = np.where(was_over, 0.0, self._reward(slice(None), assigned, speed))
        self._compute(assigned, speed)
        self.time += 1
        self._finish()
        self._admit()
        return reward

    def _reward(self, clusters: slice, assigned: Bools, speed: Floats) -> Floats:
        gpus = counts(assigned)
        costs = np.where(self.filled, self.of_slots(self.idle_cost), 0.0)[clusters]
        idle = np.where(gpus == 0, costs, 0.0).sum(axis=1)
        total = speed.sum(axis=1) - idle - self._queue_cost[clusters]
        if self.config.too_few_costs:
            asked = np.asarray(self.of_slots(self.gpus), dtype=np.int64)[clusters]
            lacking = np.maximum(asked - gpus, 0)
            each = np.divide(speed, gpus, out=np.zeros_like(speed), where=gpus > 0)
            total = total - (each * lacking).sum(axis=1)
        scaled: Floats = total * self.reward_scale
        return scaled

    def _compute(self, assigned: Bools, speed: Floats) -> None:
        held, before = packed(assigned), packed(self.assigned)
        runs, ran = held.any(axis=0), before.any(axis=0)
        price = self.config.price
        lost_s = np.where(self.started & runs & ~ran, price.pause_s + price.restart_s, 0.0)
        moved = runs & ran & (held != before).any(axis=0)
        lost_s = np.where(moved, price.move_s, lost_s)
        seconds = np.maximum(self._model.step_s - lost_s, 0.0)
        gained = np.where(self.filled, speed * seconds, 0.0)
        row, slot = np.nonzero(self.filled)
        self.done[row, self.slot_job[row, slot]] += gained[row, slot]
        self.started |= runs
        self.assigned = assigned
        self.speed = speed

    def _finish(self) -> None:
        ended = self.filled & (self.remaining() <= 1e-9 * np.asarray(self.of_slots(self.total)))
        row, slot = np.nonzero(ended)
        self.finish_step[row, self.slot_job[row, slot]] = self.time
        self.slot_job[row, slot] = NOBODY
        self.assigned[row, slot] = False
        self.started[row, slot] = False
        self.speed[row, slot] = 0.0

    def _admit(self) -> None:
        """Jobs that arrive by now go into the backlog, and from its head into empty slots."""
        jobs = self.arrival.shape[1]
        while True:
            nth = np.minimum(self._arrived, jobs - 1)
            comes = (self._arrived < jobs) & (self.arrival[self._rows, nth] <= self.time)
            if not comes.any():
                break
            self._fill_slots()
            self._enqueue(self._rows[comes], nth[comes])
            self._arrived += comes
        self._fill_slots()

    def _enqueue(self, row: Ints, job: Ints) -> None:
        if self.config.overflow == "dismiss":
            full = (self.waiting[row] >= self.config.backlog) & self.filled[
                row, : self.config.slots
            ].all(axis=1)
            self.dismissed[row[full], job[full]] = True
            row, job = row[~full], job[~full]
        self._queue[row, self._tail[row]] = job
        self._tail[row] += 1
        self._queue_cost[row] += self.idle_cost[row, job]

    def _fill_slots(self) -> None:
        while True:
            slots = slice(self.config.slots)
            row = np.nonzero((self.waiting > 0) & ~self.filled[:, slots].all(axis=1))[0]
            if not len(row):
                return
            job = self._queue[row, self._head[row]]
            self.slot_job[row, self.filled[row, slots].argmin(axis=1)] = job
            self._head[row] += 1
            self._queue_cost[row] -= self.idle_cost[row, job]

    def slowdowns(self) -> Floats:
        """Equation 17 of each job, [B, K]; jobs that have not ended count to T_max.

        Those that were turned away, too. NaN: the job would arrive after T_max.
        """
        most = self.config.most_steps
        end = np.where(self.finish_step >= 0, self.finish_step, most)
        slowdowns: Floats = np.where(
            self.arrival < most, (end - self.arrival) / self.length, np.nan
        )
        return slowdowns
