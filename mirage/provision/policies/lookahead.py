"""Look ahead: simulate the live cluster in sampled futures, releasing now or later in each, and
take what costs less.

Beyond the paper. A future is a run time for each running and queued job and a stream of arrivals,
drawn from what a model folder learnt (`mirage.provision.learn.futures`). In each future the same
simulation is forked at now and at later release points up to the predecessor's end, so the futures'
luck is common to all of them and cancels out of the comparison. The successor is released if that
is cheaper, on average over the futures, than each of the later points. Like the law-based methods
this leaves out what waiting will reveal; the question is asked again at each decision point. The
least of many noisy means is a little too low, which favours waiting; that is left so, since only a
release can't be taken back.

Most decisions are to wait, and easy, so futures are added only until that is clear (a race: Maron
and Moore, 1994). What decides near the best moment are rare futures in which waiting a little costs
hours, because many jobs come before; a few futures don't show them. So only a release hours later
that is clearly better cuts a decision short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mirage.chain.durations import format_duration
from mirage.config import LookaheadConfig
from mirage.domain import Action, Job, Penalties, Snapshot
from mirage.errors import InputError
from mirage.models.folder import check_folder
from mirage.ports import Advice, Observation, Policy
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.episode import Floats, Ints
from mirage.provision.learn.futures import NAME, Futures, read
from mirage.provision.learn.runtimes import JobQuery
from mirage.provision.policies.heuristics import end_is_away, not_yet
from mirage.provision.policies.learned import fall_back
from mirage.slurm.lookahead import Known, simulator_from
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import Params
from slurm_sim.errors import SimulationError
from slurm_sim.seconds import DAY_S

PATIENCE_S = 3 * DAY_S
"""A successor that has not started so long after its predecessor's end counts as starting then."""
GROWTH = 1.5
"""Each later release point is so many times as far away as the one before."""
FEWEST, CLEAR, FAR_S = 8, 3.0, 7200
"""After so many futures it is clear that waiting is right if a release so much later is cheaper by
so many standard errors.
"""


class Starts(NamedTuple):
    """When the successor starts in each future."""

    points_s: Ints
    """(P,): release points; the first is now, the last the predecessor's end, where nothing is
    done.
    """
    starts_s: Ints
    """(futures, P)."""
    end_s: int
    """When the predecessor is expected to end."""
    hurried: bool = False
    """Whether the time was up before the answer was clear."""

    def costs_s(self, penalties: Penalties) -> Floats:
        """(futures, P): the penalty of each release point."""
        gap_s = self.starts_s - self.end_s
        return np.where(gap_s > 0, penalties.interruption * gap_s, -penalties.overlap * gap_s)


@dataclass(frozen=True)
class Lookahead:
    """Implements `mirage.ports.BatchPolicy`: a cycle's pairs share the futures, and the time."""

    futures: Futures
    config: LookaheadConfig
    fallback: Policy
    clock: Callable[[], float] = field(default=time.monotonic)
    name: str = NAME

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        answers = [not_yet(observation) for observation in observations]
        asked = [index for index, answer in enumerate(answers) if answer is None]
        asked.sort(
            key=lambda index: observations[index].remaining_s or 0
        )  # who is pressed most goes first
        end_s = self.clock() + self.config.cycle_s
        shared = SharedFutures(self.futures, self.config, [observations[index] for index in asked])
        for done, index in enumerate(asked):
            budget_s = min(self.config.seconds, (end_s - self.clock()) / (len(asked) - done))
            answers[index] = self._decide(observations[index], shared, self.clock() + budget_s)
        return [answer for answer in answers if answer is not None]

    def _decide(self, observation: Observation, shared: SharedFutures, deadline: float) -> Advice:
        try:
            return _advice(observation, self._starts(observation, shared, deadline))
        except (InputError, SimulationError) as error:
            return fall_back(self.fallback, observation, f"no-futures: {error}")

    def _starts(self, observation: Observation, shared: SharedFutures, deadline: float) -> Starts:
        """In at least one future, and in as many more as are needed, wanted, and possible in the
        time.
        """
        if observation.snapshot is None:
            raise InputError("there is no snapshot to look ahead from")
        points_s, successor_id = release_points(observation), observation.successor.job_id
        far = np.flatnonzero(points_s >= observation.now_s + FAR_S)
        found = Starts(points_s, np.empty((0, len(points_s)), dtype=np.int64), int(points_s[-1]))
        aging = shared.aging(observation.snapshot)
        for number in range(self.config.futures):
            row = starts_in(
                shared.future(observation.snapshot, number), successor_id, points_s, aging
            )
            found = found._replace(starts_s=np.vstack([found.starts_s, row]))
            if waiting_is_clear(found.costs_s(observation.penalties)[:, [0, *far]]):
                break
            if self.clock() >= deadline and number + 1 < self.config.futures:
                return found._replace(hurried=True)
        return found


def read_lookahead(folder: Path, config: LookaheadConfig, fallback: Policy) -> Lookahead:
    """The policy of a checked model folder. Raises InputError."""
    check_folder(folder, system=ProvisionAbout.SYSTEM, method=NAME)
    return Lookahead(read(folder), config, fallback)


def release_points(observation: Observation) -> Ints:
    """Now, later decision points, ever sparser, and the predecessor's end; Unix seconds, (P,)."""
    remaining_s, steps = observation.remaining_s or 0, list[int]()
    step = 0
    while step * observation.step_s < remaining_s:
        steps.append(step)
        step = max(step + 1, int(step * GROWTH))
    return observation.now_s + np.array(
        [*(step * observation.step_s for step in steps), remaining_s], dtype=np.int64
    )


def waiting_is_clear(costs: Floats) -> bool:
    """Whether more futures would hardly make it right to release now: (futures, 1 + later points),
    now first.
    """
    count = len(costs)
    if count < FEWEST:
        return False
    gains = costs[:, :1] - costs[:, 1:]  # of each later point against now, in the same future
    return bool((gains.mean(axis=0) > CLEAR * gains.std(axis=0, ddof=1) / np.sqrt(count)).any())


class Aging(NamedTuple):
    """Priorities under fair-share. A snapshot doesn't tell what users have used, so that they can't
    be calculated.

    Jobs in the queue keep theirs: they age alike. Whoever comes later has that much less as those
    have aged until then. Without it a release now would be worth no more than a later one, and the
    successor would never be released.
    """

    since_s: int
    """The snapshot's time."""
    a_second: float
    """By which a job in the queue ages, up to PriorityMaxAge; what users do meanwhile is left out.
    """
    raised: int
    """What all priorities of the snapshot are raised by, so that none of those who come later falls
    to 0.
    """
    fresh: Ints
    """Those of the jobs in the queue, and of running ones as they were at their start, without
    their age. The queue alone would stand for a cluster where nobody's jobs start soon.
    """

    @classmethod
    def of(cls, snapshot: Snapshot, params: Params, horizon_s: int) -> Aging:
        a_second = params.priority_weight_age / max(params.priority_max_age_s, 1)
        known = [
            job
            for job in snapshot.jobs
            if job.priority and (job.is_queueing or job.state.has_nodes)
        ]
        fresh = [
            max(1, job.priority - round(a_second * _age_s(job, snapshot.at_s, params)))
            for job in known
        ]
        return cls(
            snapshot.at_s,
            a_second,
            int(a_second * horizon_s) + 1,
            np.array(fresh or [1], dtype=np.int64),
        )

    def at(self, fresh: int, time_s: int) -> int:
        """The priority of a job that begins to compete then, and would have this one without any
        age.
        """
        return max(1, self.raised + fresh - round(self.a_second * (time_s - self.since_s)))

    def raise_all(self, snapshot: Snapshot) -> Snapshot:
        jobs = (
            replace(job, priority=job.priority + self.raised) if job.priority else job
            for job in snapshot.jobs
        )
        return replace(snapshot, jobs=tuple(jobs))


def _age_s(job: Job, now_s: int, params: Params) -> int:
    """For how long its age has counted; of a running job until it started, as its priority has not
    changed since.
    """
    until_s = job.start_s if job.state.has_nodes and job.start_s is not None else now_s
    since_s = now_s if job.eligible_s is None else job.eligible_s
    return min(max(until_s - since_s, 0), params.priority_max_age_s)


def starts_in(
    future: Simulator, successor_id: int, points_s: Ints, aging: Aging | None = None
) -> Ints:
    """When the successor starts if it is released at each point; at the last: if it never is.
    Leaves `future` alone.
    """
    base, latest_s, starts_s = future.fork(), int(points_s[-1]) + PATIENCE_S, list[int]()
    for point_s in points_s[:-1].tolist():
        base.run_until(max(point_s, base.now_s))
        fork = base.fork()
        starts_s.append(_start_s(fork, _let_in(fork, successor_id, aging), latest_s))
    if aging is not None:
        base.run_until(int(points_s[-1]))
        successor_id = _let_in(base, successor_id, aging)
    return np.array([*starts_s, _start_s(base, successor_id, latest_s)], dtype=np.int64)


def _let_in(simulation: Simulator, successor_id: int, aging: Aging | None) -> int:
    """Lets the successor, or with `aging` a job like it of the right priority, into the queue; its
    id.
    """
    successor = simulation.job(successor_id)
    if aging is None:
        simulation.drop_dependency(successor_id)
    elif successor.start_s is None:
        given = successor.spec.priority
        fresh = int(np.median(aging.fresh)) if given is None else given - aging.raised
        priority = aging.at(fresh, simulation.now_s)
        simulation.cancel(successor_id)
        spec = replace(
            successor.spec,
            job_id=None,
            submit_s=None,
            dependency="",
            begin_s=None,
            priority=priority,
        )
        return simulation.submit(spec)
    return successor_id


def _start_s(simulation: Simulator, job_id: int, latest_s: int) -> int:
    start_s = simulation.run_until_start(job_id, latest_s)
    return latest_s if start_s is None else start_s


class SharedFutures:
    """The futures of one cycle: simulations that begin now. They are made when first asked for.

    ``beyond_s``: arrivals are drawn until so long after the last predecessor's end.
    """

    def __init__(
        self,
        futures: Futures,
        config: LookaheadConfig,
        observations: Collection[Observation] = (),
        beyond_s: int = PATIENCE_S,
    ) -> None:
        self._futures = futures
        self._config = config
        self._horizon_s = (
            max((each.remaining_s or 0 for each in observations), default=0) + beyond_s
        )
        self._predecessors = {each.predecessor.job_id for each in observations}
        self._made: dict[tuple[int, int], Simulator] = {}

    def future(self, snapshot: Snapshot, number: int) -> Simulator:
        """The same for the same snapshot, number and seed. Raises InputError, SimulationError."""
        key = id(snapshot), number
        if key not in self._made:
            generator = np.random.default_rng([self._config.seed, snapshot.at_s, number])
            self._made[key] = self._simulation(snapshot, generator)
        return self._made[key]

    def aging(self, snapshot: Snapshot) -> Aging | None:
        """None without fair-share: then the simulator calculates priorities."""
        params = self._futures.cluster.params
        return (
            Aging.of(snapshot, params, self._horizon_s)
            if params.priority_weight_fairshare > 0
            else None
        )

    def _simulation(self, snapshot: Snapshot, generator: np.random.Generator) -> Simulator:
        arrivals, aging = self._futures.arrivals, self.aging(snapshot)
        known = Known(runtimes=self._drawn(snapshot, generator), priorities=aging is not None)
        begun = snapshot if aging is None else aging.raise_all(snapshot)
        simulation = simulator_from(begun, self._futures.cluster, known)
        rows, times_s = arrivals.drawn(snapshot.at_s, self._horizon_s, generator)
        fresh = (
            generator.choice(aging.fresh, len(rows))
            if aging
            else np.zeros(len(rows), dtype=np.int64)
        )
        for row, time_s, its in zip(rows.tolist(), times_s.tolist(), fresh.tolist(), strict=True):
            simulation.submit(self._arrival(row, time_s, aging.at(its, time_s) if aging else None))
        return simulation

    def _drawn(self, snapshot: Snapshot, generator: np.random.Generator) -> dict[int, int]:
        """Run times by job id. Predecessors run to their expected end, at which policies aim."""
        jobs = [
            job
            for job in snapshot.jobs
            if job.time_limit_s and job.job_id not in self._predecessors
        ]
        if not jobs:
            return {}
        drawn = self._futures.runtimes.drawn(_query(jobs, snapshot.at_s), generator, 1)[0]
        return {
            job.job_id: int(runtime_s)
            for job, runtime_s in zip(jobs, drawn, strict=True)
            if runtime_s >= 0
        }

    def _arrival(self, row: int, time_s: int, priority: int | None) -> JobSpec:
        arrivals = self._futures.arrivals
        limit_s, runtime_s, patience_s = (
            int(column[row])
            for column in (arrivals.limit_s, arrivals.runtime_s, arrivals.cancel_after_s)
        )
        return JobSpec(
            int(arrivals.nodes[row]),
            limit_s if limit_s > 0 else None,
            runtime_s if runtime_s >= 0 else None,
            user=f"arrival{arrivals.user[row]}",
            partition=self._futures.partitions[arrivals.partition[row]],
            # a job that names none would get all of its nodes' (decision 0025)
            memory_mib_per_node=1,
            submit_s=time_s,
            cancel_s=time_s + patience_s if patience_s >= 0 else None,
            priority=priority,
        )


def _query(jobs: Sequence[Job], now_s: int) -> JobQuery:
    elapsed_s = [
        now_s - job.start_s if job.start_s is not None and job.state.has_nodes else 0
        for job in jobs
    ]
    return JobQuery(
        [job.user for job in jobs],
        np.array([job.nodes for job in jobs], dtype=np.int64),
        np.array([job.time_limit_s for job in jobs], dtype=np.int64),
        np.maximum(np.array(elapsed_s, dtype=np.int64), 0),
    )


def _advice(observation: Observation, found: Starts) -> Advice:
    costs_s = found.costs_s(observation.penalties)
    now_s = float(costs_s[:, 0].mean())
    later_s = float(costs_s[:, 1:].mean(axis=0).min(initial=np.inf))
    release = costs_s.shape[1] > 1 and now_s < later_s
    gap_s = found.starts_s[:, 0] - found.end_s
    waits_s = found.starts_s[:, 0] - observation.now_s
    p10, p50, p90 = (
        float(wait_s) for wait_s in np.quantile(waits_s, [0.1, 0.5, 0.9], method="inverted_cdf")
    )
    count = len(found.starts_s)
    used = f"only {count} futures, for lack of time," if found.hurried else f"{count} futures"
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=f"in {used} a release costs {format_duration(now_s)} now, {format_duration(later_s)} at the"
        f" best later moment; {end_is_away(observation)}",
        wait_p10_s=p10,
        wait_p50_s=p50,
        wait_p90_s=p90,
        expected_interruption_s=float(np.maximum(gap_s, 0).mean()),
        expected_overlap_s=float(np.maximum(-gap_s, 0).mean()),
        penalty_now_s=now_s,
        penalty_later_s=later_s if np.isfinite(later_s) else None,
    )
