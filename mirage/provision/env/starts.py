"""Warm clusters at which episodes begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mirage.provision.env.episode import Start, Task
from mirage.provision.env.observation import WIDTH, Pool, Vectors, observe, pair_columns
from mirage.state.variables import PAIR
from slurm_sim import Simulator
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobSpec, State


@dataclass(frozen=True)
class Pair:
    """Two jobs of one chain. The predecessor is submitted as the episode begins; times and ids in
    both are ignored.
    """

    predecessor: JobSpec
    successor: JobSpec


def equal_pair(
    nodes: int,
    time_limit_s: int,
    runtime_s: int | None = None,
    user: str = "chain",
    partition: str | None = None,
) -> Pair:
    """A pair of equal jobs. `runtime_s` None: each runs until its limit."""
    spec = JobSpec(nodes, time_limit_s, runtime_s, user=user, partition=partition)
    return Pair(spec, spec)


def starts(
    simulation: Simulator, pair: Pair, at_s: Iterable[int], task: Task | None = None
) -> list[Start]:
    """Runs the simulation once through all these times, and forks it at each.

    Rows before the simulation's own beginning repeat its first one, so let it begin a day or two
    before the first start: that warms the cluster up too. Raises SimulationError for a start in the
    past, InvalidJob for a pair that the cluster could never run.
    """
    task = task or Task()
    pool = Pool.of(simulation.config, pair.predecessor.partition)
    wanted_s = sorted(set(at_s))
    if wanted_s and wanted_s[0] < simulation.now_s:
        raise SimulationError(
            f"can't start at {wanted_s[0]}: the simulation is at {simulation.now_s} already"
        )
    first_s, rows, found = simulation.now_s, dict[int, Vectors](), []
    for time_s in sorted(
        {time for begin_s in wanted_s for time in _instants(begin_s, task, first_s)}
    ):
        simulation.run_until(time_s)
        rows[time_s] = observe(simulation, pool, None)
        if time_s in wanted_s:
            history = [rows[time] for time in _instants(time_s, task, first_s)[:-1]]
            found.append(_start(simulation.fork(), pair, pool, _stack(history)))
    return found


def live_start(
    simulation: Simulator,
    predecessor_id: int,
    successor_id: int,
    task: Task | None = None,
    history: Vectors | None = None,
) -> Start:
    """An episode that begins with a pair that is there already, as in a look-ahead from a live
    cluster.

    `history`: rows before now, (any, 40), raw, oldest first. Missing ones repeat the first, or the
    present; the pair's own columns come from its jobs' times. Raises SimulationError if the
    successor has started, or `history` has another shape.
    """
    if history is not None and (history.ndim != 2 or history.shape[1] != WIDTH or not len(history)):
        raise SimulationError(
            f"history has shape {history.shape}; give (rows, {WIDTH}), at least one row, or None"
        )
    task, fork = task or Task(), simulation.fork()
    pair = fork.job(predecessor_id), fork.job(successor_id)
    if pair[1].state is not State.PENDING:
        raise SimulationError(
            f"job {successor_id} is {pair[1].state.value}; a successor must be PENDING"
        )
    pool = Pool.of(fork.config, pair[0].partition)
    known = (
        observe(fork, pool, (predecessor_id, successor_id))[None] if history is None else history
    )
    places = np.maximum(np.arange(len(known) - task.history + 1, len(known)), 0)
    rows = known[places]
    for back, row in enumerate(reversed(rows), start=1):
        row[PAIR] = pair_columns(*pair, fork.now_s - back * task.step_s)
    return Start(fork, predecessor_id, successor_id, pool, rows)


def _instants(begin_s: int, task: Task, first_s: int) -> list[int]:
    """The times of an observation's rows, oldest first."""
    return [max(first_s, begin_s - back * task.step_s) for back in range(task.history - 1, -1, -1)]


def _stack(rows: list[Vectors]) -> Vectors:
    return np.array(rows, dtype=np.float32).reshape(len(rows), WIDTH)


def _start(fork: Simulator, pair: Pair, pool: Pool, history: Vectors) -> Start:
    """A requeue would make two runs of one job, so the pair's jobs are never requeued."""
    plain = {"submit_s": None, "job_id": None, "requeue": False}
    first = fork.submit(replace(pair.predecessor, **plain))  # type: ignore[arg-type]
    second = fork.submit(replace(pair.successor, **plain, dependency=f"afterany:{first}"))  # type: ignore[arg-type]
    return Start(fork, first, second, pool, history)
