"""`SubmitVectorEnv`: many `SubmitEnv` in one call, in C++ where the core is there, writing into the
caller's arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mirage.provision.env.episode import Facts, PairEpisode, Start, Task, last_rows
from mirage.provision.env.observation import COLUMNS, WIDTH, Vectors, core_pool
from mirage.provision.env.submit import given, given_start, observation_space, scale_of
from slurm_sim.errors import SimulationError
from slurm_sim.ranges import LAST_ID, MOST, check_kind, whole

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
GOES_ON = -1


@dataclass(frozen=True)
class Buffers:
    """What a step writes. All arrays are C-contiguous; the first axis is the environments."""

    observations: Vectors
    """(environments, history, 40)."""
    rewards: NDArray[np.float64]
    terminated: Bools
    truncated: Bools
    facts: Ints
    """(environments, fields of `Facts`)."""

    @classmethod
    def of(cls, num_envs: int, task: Task) -> Buffers:
        """New arrays."""
        return cls(*(np.zeros(shape, dtype=kind) for shape, kind in _layout(num_envs, task)))


def _layout(num_envs: int, task: Task) -> list[tuple[tuple[int, ...], type]]:
    """Shape and type of each array."""
    each = (num_envs,)
    observations, facts = (*each, task.history, WIDTH), (*each, len(Facts._fields))
    return [
        (observations, np.float32),
        (each, np.float64),
        (each, np.bool_),
        (each, np.bool_),
        (facts, np.int64),
    ]


def _fits(array: object, shape: tuple[int, ...], kind: type) -> bool:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != kind:
        return False
    return array.flags.c_contiguous and array.flags.writeable


class Lanes(Protocol):
    """Episodes side by side, without Gymnasium: `PythonLanes`, or the core's, which must do exactly
    the same.
    """

    def step(self, actions: Ints, starts: Ints, out: Buffers) -> None:
        """Where `starts` has a start's number, a new episode begins; where it has -1, the old one
        takes its action.
        """


class PythonLanes:
    """The reference: one `PairEpisode` after the other."""

    def __init__(self, num_envs: int, starts: Sequence[Start], task: Task, scale: Vectors) -> None:
        self._starts, self._task, self._scale = starts, task, scale
        self._episodes: list[PairEpisode | None] = [None] * num_envs

    def step(self, actions: Ints, starts: Ints, out: Buffers) -> None:
        for lane, (action, start) in enumerate(zip(actions, starts, strict=True)):
            episode, reward = self._episodes[lane], 0.0
            if start != GOES_ON or episode is None:
                episode = self._episodes[lane] = PairEpisode(
                    self._starts[start], self._task, self._scale
                )
            else:
                reward = episode.step(int(action))
            out.observations[lane] = episode.rows
            out.rewards[lane] = reward
            out.terminated[lane], out.truncated[lane] = episode.terminated, episode.truncated
            out.facts[lane] = episode.facts


class CoreLanes:
    """The core's: in C++, without the interpreter's lock."""

    def __init__(self, num_envs: int, starts: Sequence[Start], task: Task, scale: Vectors) -> None:
        from slurm_sim.core import _core

        nodes, partitions = core_pool(starts[0].simulation.config, starts[0].pool)
        self._lanes = _core.Lanes(
            num_envs,
            task.history,
            task.step_s,
            task.horizon_s,
            task.interruption_weight,
            task.overlap_weight,
            task.skip_to_outcome,
            COLUMNS,
            nodes,
            partitions,
            scale.tolist(),
        )
        for start in starts:
            self._lanes.add_start(
                _core_of(start),
                start.predecessor_id,
                start.successor_id,
                np.ascontiguousarray(last_rows(start, task.history - 1) * scale),
            )

    def step(self, actions: Ints, starts: Ints, out: Buffers) -> None:
        self._lanes.step(
            actions, starts, out.observations, out.rewards, out.terminated, out.truncated, out.facts
        )


def _core_of(start: Start) -> Any:
    """What `slurm_sim.Simulator` has behind it; None: it is another simulator."""
    return getattr(start.simulation, "_core", None)


def _has_core_lanes(starts: Sequence[Start]) -> bool:
    """Whether the core is there, and all the starts are simulations of it."""
    try:
        from slurm_sim.core import _core
    except ImportError:
        return False
    return all(isinstance(_core_of(start), _core.Core) for start in starts)


def _random(seed: int | None) -> np.random.Generator:
    seed = None if seed is None else whole("seed", seed, 0, LAST_ID, SimulationError)
    return seeding.np_random(seed)[0]


class SubmitVectorEnv(VectorEnv[Vectors, Ints, NDArray[Any]]):
    """`num_envs` times `SubmitEnv`: equal, step by step, to `SyncVectorEnv` of as many `SubmitEnv`.

    Gymnasium's next-step autoreset: the step after an episode's end ignores the action and begins a
    new one. `infos` has an array for each field of `Facts`, and `action_mask` (environments, 2).
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - Gymnasium's own way
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        starts: Sequence[Start] | None = None,
        task: Task | None = None,
        lanes: type[PythonLanes] | type[CoreLanes] | None = None,
    ) -> None:
        """`starts`, `task`: as of `SubmitEnv`. `lanes` None: the core's if the starts are
        simulations of the core.
        """
        self.num_envs = num_envs = whole("num_envs", num_envs, 1, MOST, SimulationError)
        self.starts, self.task = given(starts, task)
        scale = scale_of(self.starts, self.task)
        kind = lanes or (CoreLanes if _has_core_lanes(self.starts) else PythonLanes)
        self._lanes: Lanes = kind(num_envs, self.starts, self.task, scale)
        self.single_observation_space = observation_space(self.task)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._checked: Buffers | None = None
        self._layout = _layout(num_envs, self.task)
        self._random: list[np.random.Generator] = []
        self._over = np.ones(num_envs, dtype=np.bool_)
        self._begins = np.full(num_envs, GOES_ON, dtype=np.int64)
        self._no_actions = np.zeros(num_envs, dtype=np.int64)

    def buffers(self) -> Buffers:
        """Arrays that `reset` and `step` can write into again and again."""
        return Buffers.of(self.num_envs, self.task)

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
        out: Buffers | None = None,
    ) -> tuple[Vectors, dict[str, Any]]:
        """Begins an episode in each. `seed`: one for each, or one that is counted up.

        `options={"start": number}` begins all at this of the starts.
        """
        buffers = self._into(out)
        start = given_start(options, self.starts)
        self._seed(seed)
        self._draw(np.ones(self.num_envs, dtype=np.bool_), start)
        self._lanes.step(self._no_actions, self._begins, buffers)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return buffers.observations, self._infos(buffers)

    def step(
        self, actions: Ints, out: Buffers | None = None
    ) -> tuple[Vectors, NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        """One step of each. `out` None: into new arrays."""
        buffers = self._into(out)
        if not self._random:
            raise SimulationError("no episode has begun; call reset() first")
        actions = np.asarray(actions)
        fit = actions.shape == (self.num_envs,) and actions.dtype.kind in "iub"
        if not fit or not ((actions == 0) | (actions == 1)).all():
            raise SimulationError(
                f"actions must be {self.num_envs} numbers, each 0 (wait) or 1 (submit)"
            )
        actions = np.ascontiguousarray(actions, dtype=np.int64)
        self._draw(self._over, None)
        self._lanes.step(actions, self._begins, buffers)
        self._over = buffers.terminated | buffers.truncated
        infos = self._infos(buffers)
        return buffers.observations, buffers.rewards, buffers.terminated, buffers.truncated, infos

    def _into(self, out: Buffers | None) -> Buffers:
        if self.closed:
            raise SimulationError("this environment is closed; make a new one")
        if out is None:
            return self.buffers()
        if out is self._checked:
            return out
        check_kind("out", out, Buffers, SimulationError)
        arrays = (out.observations, out.rewards, out.terminated, out.truncated, out.facts)
        if not all(map(_fits, arrays, *zip(*self._layout, strict=True))):
            raise SimulationError(
                "the arrays of out have other shapes or types than this environment's; use"
                " buffers()"
            )
        self._checked = out
        return out

    def _seed(self, seed: int | list[int | None] | None) -> None:
        if seed is None and self._random:
            return
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, list):
            seeds = seed
        elif seed is not None:
            first = whole("seed", seed, 0, LAST_ID, SimulationError)
            seeds = [first + lane for lane in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise SimulationError(f"{len(seeds)} seeds for {self.num_envs} environments")
        old = self._random
        self._random = [
            old[lane] if one is None and old else _random(one) for lane, one in enumerate(seeds)
        ]

    def _draw(self, chosen: Bools, start: int | None) -> None:
        self._begins.fill(GOES_ON)
        for lane in np.flatnonzero(chosen):
            self._begins[lane] = (
                self._random[lane].integers(len(self.starts)) if start is None else start
            )

    def _infos(self, buffers: Buffers) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for column, name in enumerate(Facts._fields):
            infos[name] = buffers.facts[:, column]
        may_submit = infos["may_submit"]
        infos["action_mask"] = np.stack([np.ones_like(may_submit), may_submit], axis=1).astype(
            np.int8
        )
        every = np.ones(self.num_envs, dtype=np.bool_)
        return infos | {f"_{name}": every for name in infos}
