"""`SubmitEnv`: when to let the successor of a job into the queue, as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mirage.provision.env.episode import Facts, PairEpisode, Start, Task
from mirage.provision.env.example import example_starts
from mirage.provision.env.observation import WIDTH, Pool, Vectors, scales
from slurm_sim.errors import SimulationError
from slurm_sim.ranges import check_kind, listed

MOST = float(2**31)
"""No value in an observation is larger."""


class SubmitEnv(gymnasium.Env[Vectors, np.int64]):
    """One pair of jobs on a cluster that others use too; docs/environments.md has the whole story.

    Action 0 waits for `task.step_s`, 1 submits: it drops the successor's dependency, once. An
    observation is the matrix (`task.history`, 40), float32, oldest row first. The episode ends when
    both the predecessor's end and the successor's start are known; the reward is 0 until then.
    `info` has the fields of `Facts` (-1: not known yet) and `action_mask`, which of the two actions
    have an effect.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(self, starts: Sequence[Start] | None = None, task: Task | None = None) -> None:
        """`starts`: where episodes may begin, one is drawn at each reset; None: those of a small
        example cluster.
        """
        self.starts, self.task = given(starts, task)
        self._scale = scale_of(self.starts, self.task)
        self.observation_space: spaces.Space[Vectors] = observation_space(self.task)
        self.action_space = spaces.Discrete(2)
        self._episode: PairEpisode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vectors, dict[str, Any]]:
        """`options={"start": number}` begins at this of the starts."""
        super().reset(seed=seed)
        given = given_start(options, self.starts)
        number = int(self.np_random.integers(len(self.starts))) if given is None else given
        self._episode = PairEpisode(self.starts[number], self.task, self._scale)
        return self._observe()

    def step(self, action: np.int64) -> tuple[Vectors, float, bool, bool, dict[str, Any]]:
        """Takes the action, then lets `task.step_s` pass."""
        episode = self._running()
        if episode.terminated or episode.truncated:
            raise SimulationError("the episode is over; call reset() first")
        if not self.action_space.contains(action):
            raise SimulationError(f"action {action}; give 0 (wait) or 1 (submit)")
        reward = episode.step(int(action))
        observation, info = self._observe()
        return observation, reward, episode.terminated, episode.truncated, info

    def action_masks(self) -> NDArray[np.int8]:
        """Which actions have an effect, (2,); after the submission only waiting does."""
        return mask(self._running().facts)

    def close(self) -> None:
        """Drops the episode; reset() begins another one."""
        self._episode = None

    def _running(self) -> PairEpisode:
        if self._episode is None:
            raise SimulationError("no episode has begun; call reset() first")
        return self._episode

    def _observe(self) -> tuple[Vectors, dict[str, Any]]:
        episode = self._running()
        return episode.rows.copy(), {**episode.facts._asdict(), "action_mask": mask(episode.facts)}


def given(starts: Sequence[Start] | None, task: Task | None) -> tuple[list[Start], Task]:
    """What an environment is made of; None: the defaults. Raises SimulationError."""
    task = Task() if task is None else task
    check_kind("task", task, Task, SimulationError)
    return (
        example_starts(task=task)
        if starts is None
        else listed("starts", starts, Start, SimulationError)
    ), task


def given_start(options: dict[str, Any] | None, starts: Sequence[Start]) -> int | None:
    """The number of the start that `reset` is to begin at; None: draw one. Raises SimulationError."""
    number = (options or {}).get("start")
    if number is None:
        return None
    if not isinstance(number, (int, np.integer)) or not 0 <= number < len(starts):
        raise SimulationError(f"start is {number!r}; there are {len(starts)}, counted from 0")
    return int(number)


def mask(facts: Facts) -> NDArray[np.int8]:
    """Which actions have an effect."""
    return np.array([1, facts.may_submit], dtype=np.int8)


def observation_space(task: Task) -> Any:
    """Of one environment."""
    return spaces.Box(0.0, MOST, (task.history, WIDTH), np.float32)


def scale_of(starts: Sequence[Start], task: Task) -> Vectors:
    """The factors of all columns. Raises SimulationError if there is no start, or they are of
    different pools.
    """
    pools = {start.pool for start in starts}
    if len(pools) != 1:
        raise SimulationError(
            f"{len(starts)} starts of {len(pools)} pools; give at least one, all of the same pool"
        )
    pool: Pool = pools.pop()
    return scales(pool) if task.scaled else np.ones(WIDTH, dtype=np.float32)
