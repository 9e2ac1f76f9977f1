"""The law of a wait, worked out once for many chains, is that of the straightforward computation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from mirage.config import GoodputConfig
from mirage.domain import ClusterNode, Job, JobState, Mode, Penalties, Snapshot, WaitSample
from mirage.ports import Observation
from mirage.provision.policies import goodput, quantile
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.quantile import Quantile
from mirage.provision.policies.queue_state import QueueState
from mirage.provision.policies.wait_law import (
    ENOUGH,
    TAIL,
    Begun,
    Floats,
    WaitLaw,
    mixed,
    nearest,
    wait_changes,
)
from mirage.state.likeness import Alike, Waits

HOUR = 3600
NOW = 1_800_000_000
PARTITIONS = ("gpu", "long", "gpu,long", "debug", "cpu", "long,debug")
NODES = tuple(
    ClusterNode(name=name, partitions=partitions, up=True, idle=False)
    for name, partitions in (
        ("n1", ("gpu", "long")),
        ("n2", ("long", "debug")),
        ("n3", ("cpu",)),
    )
)


def is_like(alike: Alike, job: Job) -> bool:
    partitions, nodes, limit_s = alike.likeness
    return (
        (partitions is None or not partitions.isdisjoint(job.partition.split(",")))
        and (nodes is None or near(job.nodes, nodes))
        and (limit_s is None or near(job.time_limit_s or 0, limit_s))
    )


def near(one: int, other: int) -> bool:
    return one <= 2 * other and other <= 2 * one


def plain_law(ended_s: Floats, under_way_s: Floats) -> WaitLaw:
    """The product-limit estimate, wait by wait in the order of time."""
    entries = sorted(
        [(wait_s, 0) for wait_s in ended_s.tolist()]
        + [(wait_s, 1) for wait_s in under_way_s.tolist()]
    )
    waits_s, shares, left = [], [], 1.0
    for index, (wait_s, is_open) in enumerate(entries):
        if not is_open:
            after = left * (1 - 1 / (len(entries) - index))
            waits_s.append(wait_s)
            shares.append(left - after)
            left = after
    if left > 1e-9:
        waits_s.append(TAIL * entries[-1][0])
        shares.append(left)
    return WaitLaw(np.array(waits_s), np.array(shares))


class PlainState:
    """For one chain, by a look at each job of the queue."""

    def __init__(self, observation: Observation, alike: Alike, last: int) -> None:
        snapshot = observation.snapshot
        assert snapshot is not None
        pool = snapshot.pool_of(observation.successor.partition)
        jobs = sorted(
            (
                job
                for job in snapshot.jobs
                if job.is_queueing
                and job.eligible_s is not None
                and snapshot.pool_of(job.partition) == pool
            ),
            key=lambda job: job.eligible_s or 0,
        )
        began_s = np.array([job.eligible_s for job in jobs], dtype=float)
        work = np.array([job.nodes * (job.time_limit_s or 0) for job in jobs], dtype=float)
        like_s = np.array([job.eligible_s for job in jobs if is_like(alike, job)], dtype=float)
        self.ended = Begun(alike.eligible_s[-last:], alike.wait_s[-last:])
        self.under_way = Begun(like_s, observation.now_s - like_s)
        both_s = np.concatenate([self.ended.began_s, like_s])
        total = np.concatenate([[0.0], np.cumsum(work)])
        queued = total[np.searchsorted(began_s, both_s, side="right")]
        self.found = observation.waits.backlog(both_s) + queued
        self.work = float(work.sum())

    @property
    def exceeds_known(self) -> bool:
        return self.work > float(self.found[: len(self.ended.began_s)].max())

    @property
    def law_of_backlog(self) -> WaitLaw:
        count, near_ = len(self.ended.began_s), nearest(self.found, self.work)
        of_ended, of_open = near_[near_ < count], near_[near_ >= count]
        if len(of_ended) < ENOUGH:
            return plain_law(self.ended.waits_s, self.under_way.waits_s)
        return plain_law(self.ended.waits_s[of_ended], self.under_way.waits_s[of_open - count])

    def law(self, observation: Observation) -> WaitLaw:
        changes_s, last_s = wait_changes(self.ended, self.ended), observation.predecessor.wait_s
        if last_s is None or len(changes_s) < ENOUGH:
            return self.law_of_backlog
        growing_s = wait_changes(self.ended, self.under_way)
        changed = plain_law(np.maximum(last_s + changes_s, 0), np.maximum(last_s + growing_s, 0))
        return mixed([self.law_of_backlog, changed])


class Plainly:
    """Stands for `QueueState`."""

    of: Callable[[Observation, Alike, int], PlainState] = PlainState


def a_job(rng: random.Random, job_id: int, **changes: object) -> Job:
    since_s = NOW - 600 * rng.randrange(1, 400)
    made = Job(
        job_id=job_id,
        user=f"user{rng.randrange(5)}",
        partition=rng.choice(PARTITIONS),
        state=JobState.PENDING,
        nodes=rng.choice([1, 2, 4, 8]),
        submit_s=since_s,
        time_limit_s=rng.choice([None, HOUR, 24 * HOUR, 48 * HOUR]),
        reason=rng.choice(["Priority", "Resources", "Dependency", "JobHeldUser"]),
        eligible_s=rng.choice([None, since_s, since_s, since_s]),
        time_min_s=rng.choice([0, 0, HOUR]),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_start(rng: random.Random, start_s: int) -> WaitSample:
    return WaitSample(
        job_id=start_s,
        partition=rng.choice(("gpu", "long", "debug")),
        nodes=rng.choice([1, 2, 4]),
        time_limit_s=rng.choice([None, HOUR, 24 * HOUR, 48 * HOUR]),
        start_s=start_s,
        wait_s=rng.choice([0, 0, 60, 600, 7200, 90_000]),
    )


def observations(seed: int) -> list[Observation]:
    """Pairs of one queue, as in one cycle."""
    rng = random.Random(seed)
    queue = [a_job(rng, job_id) for job_id in range(rng.choice([0, 5, 300]))]
    snapshot = Snapshot(at_s=NOW, jobs=tuple(queue), nodes=NODES)
    starts = sorted(NOW - 300 * rng.randrange(2000) for _ in range(rng.choice([3, 40, 700])))
    waits = Waits([a_start(rng, start_s) for start_s in starts], snapshot.sharing)
    return [
        Observation(
            now_s=NOW,
            step_s=600,
            predecessor=a_job(
                rng,
                10_000 + number,
                state=JobState.RUNNING,
                time_limit_s=48 * HOUR,
                start_s=NOW - rng.randrange(48 * HOUR),
                eligible_s=NOW - (48 + rng.randrange(30)) * HOUR,
            ),
            successor=a_job(rng, 20_000 + number, eligible_s=None, time_limit_s=48 * HOUR),
            penalties=Penalties(1 + rng.randrange(4), 1),
            mode=rng.choice(list(Mode)),
            waits=waits,
            snapshot=snapshot,
        )
        for number in range(12)
    ]


def answers(seed: int) -> Sequence[object]:
    policies = (Goodput(GoodputConfig(at_least=5)), Quantile(400, 5))
    return [policy.decide(each) for each in observations(seed) for policy in policies]


@pytest.mark.parametrize("seed", range(40))
def test_every_advice_is_that_of_a_look_at_each_job(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, reasons included."""
    found = answers(seed)
    for module in (goodput, quantile):
        monkeypatch.setattr(module, "QueueState", Plainly)
    assert found == answers(seed)


@pytest.mark.parametrize("seed", range(40))
def test_laws_are_equal_to_the_last_bit(seed: int) -> None:
    for each in observations(seed):
        alike = each.waits.like(each.successor, 5)
        if len(alike.wait_s):
            state, plain = QueueState.of(each, alike, 100), PlainState(each, alike, 100)
            assert (state.exceeds_known, state.work) == (plain.exceeds_known, plain.work)
            for law, other in zip(state.law(each), plain.law(each), strict=True):
                assert law.tolist() == other.tolist()
