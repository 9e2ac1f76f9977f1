"""Whole chains as tables: when a link would start, and what a policy sees, at every release time.

usage: python -m benchmarks.chain_tables --out DIR [--trace CSV --months 2022-11] [--seeds 201,202]
           [--nodes 2] [--load 1.3]

One table a background: 28 days, every 2 hours (`EVERY_S`). Forks of the simulation tell when a link
starts that enters the queue then, as `chain_waits` does for a user who holds the chain's nodes all
the time. `Moment` and `state_of` say what the rule `goodput` sees; agents see the same.

A table is an environment without chance: links do not change each other's waits, a link never
starts before one that was released earlier, and there is no bound on the links that compete. So a
chain is a path of release times, and an episode of 28 days costs a few sums (`chain_agents`).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.chain_goodput import TRACE, cases_of
from benchmarks.chain_waits import start_s, submit_links
from mirage.config import GoodputConfig, PolicyConfig
from mirage.daemon.memory import Memory
from mirage.domain import HANDOVER_S, Job, Mode, Penalties, RunLaw, Snapshot
from mirage.ports import Observation, Store
from mirage.provision.chains.decisions import DecisionStore
from mirage.provision.chains.run import USER, Scenario
from mirage.provision.policies.goodput import (
    LEAST_RUN,
    LONG,
    STAGGER,
    WORTH,
    would_start_now,
)
from mirage.provision.policies.queue_state import QueueState
from mirage.provision.policies.wait_law import (
    ENOUGH,
    Floats,
    WaitLaw,
    least_loss,
    mixed,
    wait_changes,
    wait_law,
)
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

EVERY_S = 2 * HOUR_S
"""Between two release times of a table."""
MOST = 120
"""So many release times after its predecessor's a link is let in at the latest."""
BLOCK = 4
"""Between release times so far apart starts are looked for only where they differ."""
RECENT = 20
SURE = 4.0
"""The greatest log-odds of the rule; of its hard conditions they are higher by one."""
WEEK_S = 7 * DAY_S
FEATURES = 32


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a policy sees at a time, whatever the chain does."""

    near: WaitLaw
    """Of the wait, from jobs that found as much work queued."""
    changes_s: Floats
    growing_s: Floats
    """What waits that ended, and that last, changed by within a day."""
    exceeds_known: bool
    would_start_now: bool
    general: Floats
    """Features."""

    @classmethod
    def of(cls, observation: Observation, config: GoodputConfig) -> Moment | None:
        """None: no wait is known."""
        alike = observation.waits.like(observation.successor, config.at_least)
        if not len(alike.wait_s):
            return None
        queue = QueueState.of(observation, alike, config.last)
        predecessor = replace(observation.predecessor, start_s=None)
        near = queue.law(replace(observation, predecessor=predecessor))
        return cls(
            near=near,
            changes_s=wait_changes(queue.ended, queue.ended),
            growing_s=wait_changes(queue.ended, queue.under_way),
            exceeds_known=queue.exceeds_known,
            would_start_now=would_start_now(observation) is not None,
            general=_general(observation, queue),
        )

    def law(self, last_s: float | None) -> WaitLaw:
        """`QueueState.law` of a chain whose last link waited so long; None: not known."""
        if last_s is None or len(self.changes_s) < ENOUGH:
            return self.near
        changed = wait_law(
            np.maximum(last_s + self.changes_s, 0), np.maximum(last_s + self.growing_s, 0)
        )
        return mixed([self.near, changed])


def _general(observation: Observation, queue: QueueState) -> Floats:
    latest = observation.history.latest if observation.history else None
    assert latest is not None
    ended, under_way = queue.ended.waits_s, queue.under_way.waits_s
    found = queue.found[: len(ended)]
    day = 2 * np.pi * (observation.now_s % DAY_S) / DAY_S
    week = 2 * np.pi * (observation.now_s % WEEK_S) / WEEK_S
    assert queue.work is not None
    work_h = queue.work / HOUR_S
    return np.array(
        [
            _log_ratio(queue.work, float(np.median(found))),
            _log_ratio(queue.work, float(found[-RECENT:].mean())),
            np.log1p(work_h / max(latest.up_nodes, 1) / 24),
            latest.idle_nodes / max(latest.up_nodes, 1),
            np.log1p(len(latest.queued)) / 5,
            _hours(float(under_way.mean()) if len(under_way) else 0.0),
            len(under_way) / (len(ended) + len(under_way)),
            _hours(float(np.median(ended[-RECENT:]))),
            _hours(float(ended[-RECENT:].max())),
            np.sin(day),
            np.cos(day),
            np.sin(week),
            np.cos(week),
            np.log2(observation.successor.nodes) / 5,
            float(queue.exceeds_known),
        ]
    )


def _hours(seconds: float) -> float:
    return float(np.log1p(max(seconds, 0) / HOUR_S) / 4)


def _log_ratio(one: float, other: float) -> float:
    return float(np.clip(np.log((one + HOUR_S) / (other + HOUR_S)), -SURE, SURE))


class Chain(NamedTuple):
    """What a policy knows of the chain itself."""

    length_s: int
    """Of a link."""
    waited_s: float
    """Of the predecessor, in the queue: until now, or until it started."""
    age_s: float | None
    """Of the predecessor; None: it has not started."""
    step_s: int
    """Until the next decision."""
    handover_s: int = HANDOVER_S


def state_of(moment: Moment, chain: Chain) -> Floats:
    """(FEATURES,): the first is the rule's log-odds of a release, 0 or more where it releases."""
    law = moment.law(None if chain.age_s is None else chain.waited_s)
    own = _following(law, chain) if chain.age_s is None else _running(moment, law, chain)
    levels = [_hours(law.quantile(level)) for level in (0.1, 0.5, 0.9, 0.98)]
    return np.concatenate([own, levels, [law.share_above(chain.length_s)], moment.general])


def _following(law: WaitLaw, chain: Chain) -> Floats:
    """The predecessor waits itself (`Goodput._follow`)."""
    beyond, least = (
        law.share_above(LONG * chain.length_s),
        WORTH * chain.handover_s / chain.length_s,
    )
    margin = _margin(beyond, least)
    late = (chain.waited_s - STAGGER * chain.length_s) / chain.length_s
    odds = min(margin, float(np.clip(20 * late, -SURE - 1, SURE)))
    still = law.share_above(chain.waited_s)
    soon = 1 - law.share_above(chain.waited_s + chain.length_s / 4) / still if still > 0 else 1.0
    waited = chain.waited_s / chain.length_s
    return np.array(
        [odds, 1, margin, late, waited, 0, 0, beyond, soon, 0, 0, _hours(chain.waited_s)]
    )


def _running(moment: Moment, law: WaitLaw, chain: Chain) -> Floats:
    """The predecessor runs (`Goodput._weigh`)."""
    assert chain.age_s is not None
    remaining_s = max(chain.length_s - chain.age_s, 0.0)
    loss = least_loss(law, RunLaw((chain.length_s,), (1.0,)), chain.handover_s)
    share = law.share_above(remaining_s)
    margin = _margin(share, PolicyConfig().goodput.caution * loss)
    least_s = remaining_s - (1 - LEAST_RUN) * chain.length_s
    old = law.share_above(least_s) - 0.5 if least_s > 0 else 0.5
    late_s = float(np.maximum(law.waits_s - remaining_s, 0) @ law.shares)
    odds = SURE if moment.exceeds_known else margin
    # The rule waits below a half, so a half itself is a release.
    odds = min(odds, float(np.clip(10 * old, -SURE - 1, SURE))) if least_s > 0 else odds
    if moment.would_start_now and remaining_s > chain.step_s:
        odds = -SURE - 1
    age, waited_s = chain.age_s / chain.length_s, chain.waited_s
    empty = float(moment.would_start_now)
    return np.array(
        [odds, 0, margin, 0, 0, age, old, share, 20 * loss, _hours(late_s), empty, _hours(waited_s)]
    )


def _margin(share: float, least: float) -> float:
    """Of a share over the least one at which the rule releases: 0 or more from there on."""
    return float(np.clip(3 * np.log(max(share, 1e-9) / least), -SURE, SURE))


class Table(NamedTuple):
    """An environment. Times are numbered from 0; time i lies at ``times_s[i]``."""

    name: str
    nodes: int
    times_s: NDArray[np.int64]
    """(T,)."""
    starts_s: NDArray[np.int64]
    """(T,): of a link that is released then, ascending."""
    end_s: int
    limit_s: int
    offsets: NDArray[np.int64]
    """(T + 1,): where the states of each predecessor's release time begin."""
    states: NDArray[np.float16]
    """(offsets[-1], FEATURES): of the times after the predecessor's release, one after the other."""

    def save(self, folder: Path) -> None:
        values = self._asdict()
        path = folder / f"{self.name.replace(' ', '-')}-{self.nodes}.npz"
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **values)
        part.rename(path)

    @classmethod
    def load(cls, path: Path) -> Table:
        with np.load(path) as file:
            values = {name: file[name] for name in cls._fields}
        for name in ("name", "nodes", "end_s", "limit_s"):
            values[name] = values[name].item()
        return cls(**values)


def last_times(starts_s: NDArray[np.int64], times_s: NDArray[np.int64], limit_s: int) -> list[int]:
    """Of each predecessor's release time: at which time its successor is let in at the latest."""
    ends = np.round((starts_s + limit_s - times_s[0]) / EVERY_S).astype(int)
    at = np.arange(len(times_s))
    return [int(last) for last in np.clip(ends, at + 1, at + MOST)]


def record(name: str, scenario: Scenario, simulator: Simulator) -> Table:
    """The table of a background."""
    simulator.run_until(scenario.warm_up_s)
    watch = _Watch(simulator)
    forks = [simulator.fork()]
    moments = [watch.moment_without_chain(scenario)]
    submit_links(scenario, simulator)
    while simulator.now_s + EVERY_S < scenario.end_s:
        simulator.run_until(simulator.now_s + EVERY_S)
        forks.append(simulator.fork())
        moments.append(watch.moment())
    times_s = np.array([fork.now_s for fork in forks])
    starts = np.maximum.accumulate(_starts(scenario, forks))
    lasts = last_times(starts, times_s, scenario.limit_s)
    states, offsets = [], [0]
    for at, last in enumerate(lasts):
        if starts[at] < scenario.end_s:
            for now in range(at + 1, min(last, len(times_s))):
                states.append(_state(moments[now], scenario, times_s[at], starts[at], times_s[now]))
        offsets.append(len(states))
    return Table(
        name,
        scenario.link_nodes,
        times_s,
        starts,
        scenario.end_s,
        scenario.limit_s,
        np.array(offsets),
        np.array(states, dtype=np.float16),
    )


def _state(moment: Moment, scenario: Scenario, release_s: int, begin_s: int, now_s: int) -> Floats:
    runs = begin_s <= now_s
    waited_s = (begin_s if runs else now_s) - release_s
    age_s = now_s - begin_s if runs else None
    return state_of(moment, Chain(scenario.limit_s, float(waited_s), age_s, EVERY_S))


def _starts(scenario: Scenario, forks: list[Simulator]) -> NDArray[np.int64]:
    """When a link starts that is released at each fork: looked for in the middle of two whose
    starts differ by more than their releases.
    """
    found: dict[int, int] = {}

    def look(at: int) -> int:
        if at not in found:
            found[at] = start_s(forks[at], scenario)
        return found[at]

    def fill(low: int, high: int) -> None:
        if high - low < 2:
            return
        if look(high) - look(low) <= EVERY_S:
            found.update({at: max(found[low], forks[at].now_s) for at in range(low + 1, high)})
            return
        middle = (low + high) // 2
        look(middle)
        fill(low, middle)
        fill(middle, high)

    for low in range(0, len(forks) - 1, BLOCK):
        high = min(low + BLOCK, len(forks) - 1)
        look(low), look(high)
        fill(low, high)
    return np.array([found[at] for at in range(len(forks))])


class _Watch:
    """Looks at the cluster as the daemon does, without the chain's own jobs."""

    def __init__(self, simulator: Simulator) -> None:
        self._cluster = SimulatedCluster(simulator, user="mirage", operator=True)
        self._memory = Memory(cast(Store, DecisionStore(self._cluster)))
        self._memory.warm_up(self._cluster, self._cluster.snapshot())
        self._link: Job | None = None

    def moment_without_chain(self, scenario: Scenario) -> Moment:
        """Before the chain is there: a link of it is made up."""
        snapshot = self._cluster.snapshot()
        some = next(job for job in snapshot.jobs if job.start_s is not None)
        self._link = replace(
            some,
            user=USER,
            nodes=scenario.link_nodes,
            time_limit_s=scenario.limit_s,
            start_s=snapshot.at_s,
        )
        return self._moment(snapshot)

    def moment(self) -> Moment:
        return self._moment(self._cluster.snapshot())

    def _moment(self, snapshot: Snapshot) -> Moment:
        assert self._link is not None
        others = tuple(job for job in snapshot.jobs if job.user != USER)
        snapshot = replace(snapshot, jobs=others)
        self._memory.observe(snapshot)
        link = replace(self._link, start_s=snapshot.at_s)
        pool = snapshot.pool_of(link.partition)
        observation = Observation(
            now_s=snapshot.at_s,
            step_s=EVERY_S,
            predecessor=link,
            successor=link,
            penalties=Penalties(),
            mode=Mode.TRAIN,
            waits=self._memory.waits(pool),
            history=self._memory.history(pool),
            snapshot=snapshot,
        )
        moment = Moment.of(observation, PolicyConfig().goodput)
        assert moment is not None, "a warm cluster has seen jobs start"
        return moment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--months", default="")
    parser.add_argument("--seeds", default="")
    parser.add_argument("--nodes", default="2")
    parser.add_argument("--load", type=float, default=Scenario.load)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for nodes in map(int, args.nodes.split(",")):
        base = Scenario(
            chains=1, has_one_user=True, lasts_s=28 * DAY_S, link_nodes=nodes, load=args.load
        )
        for name, (scenario, make) in cases_of(base, args.trace, args.months, args.seeds).items():
            begun_s = time.process_time()
            table = record(name, scenario, make(scenario))
            table.save(args.out)
            print(
                name, nodes, len(table.states), round(time.process_time() - begun_s, 1), flush=True
            )


if __name__ == "__main__":
    main()
