"""One episode: a predecessor, its successor held back by a dependency, and when that is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mirage.provision.env.observation import WIDTH, Pool, Vectors, observe
from slurm_sim import Simulator
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import State
from slurm_sim.ranges import LONGEST_S, MOST_WEIGHT, amount, flag, whole
from slurm_sim.seconds import DAY_S, HOUR_S

WAIT, SUBMIT = 0, 1


@dataclass(frozen=True)
class Task:
    """What an episode is. The defaults are the paper's: a decision each 10 minutes on 24 hours of
    history.
    """

    step_s: int = 600
    history: int = 144
    """Rows of an observation; 1: only the present."""
    interruption_weight: float = 1.0
    """Cost of an hour without either job (the paper's e_I)."""
    overlap_weight: float = 1.0
    """Cost of an hour with both (e_O)."""
    horizon_s: int = 14 * DAY_S
    """An episode that is not over by then is truncated."""
    skip_to_outcome: bool = False
    """Whether the step in which nothing is left to decide goes on to the end of the episode."""
    scaled: bool = False
    """Whether columns are brought near 1 (`observation.scales`)."""

    def __post_init__(self) -> None:
        for name in ("step_s", "history", "horizon_s"):
            value = whole(f"Task.{name}", getattr(self, name), 1, LONGEST_S, SimulationError)
            object.__setattr__(self, name, value)
        for name in ("interruption_weight", "overlap_weight"):
            weight = amount(f"Task.{name}", getattr(self, name), MOST_WEIGHT, SimulationError)
            object.__setattr__(self, name, weight)
        for name in ("skip_to_outcome", "scaled"):
            object.__setattr__(
                self, name, flag(f"Task.{name}", getattr(self, name), SimulationError)
            )


class Start(NamedTuple):
    """Where episodes begin: the pair is submitted, nothing is decided. Make it with
    `starts.starts`.
    """

    simulation: Simulator
    """Never run any more: each episode has a fork."""
    predecessor_id: int
    successor_id: int
    pool: Pool
    history: Vectors
    """The rows before this moment, (history - 1, 40), oldest first."""


class Facts(NamedTuple):
    """How an episode stands. -1: not (yet)."""

    time_s: int
    may_submit: int
    """1: the successor's dependency is there to be dropped."""
    submitted_s: int = -1
    """When it was dropped; -1: it was not, so the successor follows the predecessor's end
    (reactive).
    """
    predecessor_start_s: int = -1
    predecessor_end_s: int = -1
    successor_start_s: int = -1
    interruption_s: int = -1
    """Successor's start - predecessor's end, where that is positive, else 0; -1: one of them is not
    known yet.
    """
    overlap_s: int = -1
    """Predecessor's end - successor's start, where that is positive, else 0."""


class PairEpisode:
    """One episode, from a fork of its start on."""

    def __init__(self, start: Start, task: Task, scale: Vectors) -> None:
        self._simulation = start.simulation.fork()
        self._task = task
        self._scale = scale
        self._pool = start.pool
        self._pair = (start.predecessor_id, start.successor_id)
        self._begin_s = self._simulation.now_s
        self._submitted_s = -1
        self.rows = np.empty((task.history, WIDTH), dtype=np.float32)
        """What is seen: oldest row first, the last is this moment's."""
        self.rows[:-1] = last_rows(start, task.history - 1) * scale
        self.rows[-1] = self._row()
        self.facts = self._facts()

    @property
    def terminated(self) -> bool:
        """The outcome is known."""
        return self.facts.interruption_s >= 0

    @property
    def truncated(self) -> bool:
        """It took too long."""
        return (
            not self.terminated and self._simulation.now_s >= self._begin_s + self._task.horizon_s
        )

    def step(self, action: int) -> float:
        """Takes the action, goes on for one step; returns the reward, which is 0 until the end."""
        if action == SUBMIT and self.facts.may_submit:
            self._simulation.drop_dependency(self._pair[1])
            self._submitted_s = self._simulation.now_s
        self._advance()
        while self._task.skip_to_outcome and not (
            self.facts.may_submit or self.terminated or self.truncated
        ):
            self._advance()
        return reward(self.facts, self._task) if self.terminated or self.truncated else 0.0

    def _advance(self) -> None:
        self._simulation.run_until(self._simulation.now_s + self._task.step_s)
        self.rows[:-1] = self.rows[1:]
        self.rows[-1] = self._row()
        self.facts = self._facts()

    def _row(self) -> Vectors:
        row: Vectors = observe(self._simulation, self._pool, self._pair) * self._scale
        return row

    def _facts(self) -> Facts:
        predecessor, successor = (self._simulation.job(job_id) for job_id in self._pair)
        end_s, start_s = _or_minus_one(predecessor.end_s), _or_minus_one(successor.start_s)
        facts = Facts(
            time_s=self._simulation.now_s,
            may_submit=int(successor.state is State.PENDING and bool(successor.dependencies)),
            submitted_s=self._submitted_s,
            predecessor_start_s=_or_minus_one(predecessor.start_s),
            predecessor_end_s=end_s,
            successor_start_s=start_s,
        )
        if end_s < 0 or start_s < 0:
            return facts
        return facts._replace(
            interruption_s=max(0, start_s - end_s), overlap_s=max(0, end_s - start_s)
        )


def last_rows(start: Start, count: int) -> Vectors:
    """So many rows before the start. Raises SimulationError if it has fewer."""
    if len(start.history) < count:
        raise SimulationError(
            f"this start has {len(start.history)} rows of history, the task needs {count}; make"
            " it so"
        )
    return start.history[len(start.history) - count :]


def reward(facts: Facts, task: Task) -> float:
    """Minus the cost of interruption and overlap, in hours (the paper, eq. 8); of a truncated
    episode: so far.
    """
    interruption_s, overlap_s = facts.interruption_s, facts.overlap_s
    if interruption_s < 0:
        interruption_s = (
            facts.time_s - facts.predecessor_end_s if facts.predecessor_end_s >= 0 else 0
        )
        overlap_s = facts.time_s - facts.successor_start_s if facts.successor_start_s >= 0 else 0
    cost = task.interruption_weight * (interruption_s / HOUR_S) + task.overlap_weight * (
        overlap_s / HOUR_S
    )
    return -cost if cost else 0.0


def _or_minus_one(time_s: int | None) -> int:
    return -1 if time_s is None else time_s
