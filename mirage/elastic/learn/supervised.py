"""Offline supervised learning (section 4.2): the policy copies an existing scheduler.

Each decision of the teacher is one example: state, possible actions, and the actions that the
teacher holds for equally good. DRF has many of those: which of them it takes is chance, and nothing
in a state tells it. The loss is the cross entropy of that set, -log of the sum of its
probabilities; `square` and `absolute` are section 6.5's ablation. A copy of that loss is certain
of its actions. One that is to explore online keeps a share for the others (``smoothing``).

A copy that only ever saw its teacher's states is lost after its own first mistake, such as a PS
without a worker. So where the teacher can be asked, the policy also acts itself in later rounds,
and the teacher says what it would have done (DAgger, Ross et al. 2011).

The paper's network has weights of its own for each place of a batch, and learns each place alone.
So the jobs of an example are put in another order whenever it is used, unless the teacher goes by
the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.baselines import Allocator, RankedAllocator
from mirage.elastic.network import Networks
from mirage.elastic.observation import EMPTY, KINDS, Encoder, batch_of, observe, task_of
from mirage.elastic.policy import Act, log_probs_of
from mirage.elastic.schedule_log import LogTeacher
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints
from mirage.rl.fit import FitResult, Report, Stop, cosine, descend, fit, set_rate
from mirage.rl.policy import log_policy

MOST_SLOTS = 400
"""Of a recorded episode: a bad copy may never end one."""
Loss = Literal["cross-entropy", "square", "absolute"]


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Decisions of a teacher, one a row."""

    state: Floats
    """[n, J, F]."""
    there: Bools
    """[n, J]: places with a job."""
    possible: Bools
    """[n, 3 J + 1]."""
    good: Bools
    """[n, 3 J + 1]: actions as good as the teacher's."""

    def __len__(self) -> int:
        return len(self.state)

    def __add__(self, more: Examples) -> Examples:
        return Examples(
            state=np.concatenate([self.state, more.state]),
            there=np.concatenate([self.there, more.there]),
            possible=np.concatenate([self.possible, more.possible]),
            good=np.concatenate([self.good, more.good]),
        )

    def rows(self, rows: Ints) -> Examples:
        """Some of them."""
        columns = {each.name: getattr(self, each.name)[rows] for each in fields(self)}
        return Examples(**columns)

    def shuffled(self, rng: np.random.Generator) -> Examples:
        """With the jobs of each in a random order; they still take the first places."""
        n, places = self.there.shape
        order = np.where(self.there, rng.random((n, places)), 2.0).argsort(axis=1)
        row = np.arange(n)[:, None]

        def actions(values: Bools) -> Bools:
            tasks = values[:, :-1].reshape(n, places, KINDS)[row, order]
            return np.concatenate([tasks.reshape(n, -1), values[:, -1:]], axis=1)

        return Examples(
            state=self.state[row, order],
            there=self.there[row, order],
            possible=actions(self.possible),
            good=actions(self.good),
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """State, places with a job, possible and good actions."""
        columns = (self.state, self.there, self.possible, self.good)
        state, there, possible, good = map(torch.from_numpy, columns)
        return state, there, possible, good


@dataclass(kw_only=True)
class Recorder:
    """Writes down what a teacher decides, batch by batch."""

    teacher: Allocator
    encoder: Encoder
    places: int
    """J."""
    act: Act | None = None
    """Acts in half of the slots, where the teacher only says what it would do; None: never."""

    def record(
        self, config: ElasticConfig, sequences: Sequence[ElasticJobs], *, seed: int
    ) -> Examples:
        """Runs all sequences."""
        world = ElasticWorld(config, sequences, seed=seed)
        rng = np.random.default_rng(seed)
        self.teacher.reset(world)
        self.encoder.reset(world)
        self._parts: list[tuple[Floats, Bools, Bools, Bools]] = []
        while not world.over.all() and world.slot < MOST_SLOTS:
            world.begin_slot()
            self.teacher.begin_slot(world)
            self.encoder.begin_slot(world)
            own = (rng.random(world.clusters) < 0.5) & (self.act is not None)
            count = (world.active & ~world.over[:, None]).sum(axis=1)
            for nth in range(-(-int(count.max(initial=0)) // self.places)):
                self._batch(world, batch_of(world, self.places, np.full(world.clusters, nth)), own)
            world.limit_to(None)
            world.end_slot()
        columns = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        state, there, possible, good = columns
        return Examples(state=state, there=there, possible=possible, good=good)

    def _batch(self, world: ElasticWorld, jobs: Ints, own: Bools) -> None:
        among = np.zeros(world.arrival.shape, dtype=bool)
        row, place = np.nonzero(jobs >= 0)
        among[row, jobs[row, place]] = True
        world.limit_to(among)
        void = jobs.shape[1] * KINDS
        going = (jobs >= 0).any(axis=1)
        while True:
            seen = observe(world, self.encoder, jobs)
            going &= seen.possible[:, :-1].any(axis=1)
            if not going.any():
                return
            job, kind = self.teacher.choose(world)
            good = _good_actions(world, self.teacher, jobs, job, kind) & seen.possible
            good[~good.any(axis=1), -1] = True  # what the teacher wants is not possible: void
            rows = np.nonzero(going)[0]
            self._parts.append((seen.state[rows], jobs[rows] >= 0, seen.possible[rows], good[rows]))
            job = np.where(good[:, -1], EMPTY, job)
            mine = np.nonzero(going & own)[0]
            if self.act is not None and len(mine):
                action = np.full(len(jobs), void)
                action[mine] = self.act(seen, mine)
                asked, kinds = task_of(jobs, action)
                job, kind = np.where(own, asked, job), np.where(own, kinds, kind)
            going &= world.add(np.where(going, job, EMPTY), kind)


def _good_actions(
    world: ElasticWorld, teacher: Allocator, jobs: Ints, job: Ints, kind: Ints
) -> Bools:
    """The teacher's action and those as good, [B, 3 J + 1]; none where it gives nothing."""
    good = np.zeros((len(jobs), jobs.shape[1] * KINDS + 1), dtype=bool)
    if isinstance(teacher, RankedAllocator | LogTeacher):
        equal, kinds = teacher.best(world)
    else:
        equal, kinds = np.zeros(world.arrival.shape, dtype=bool), None
    rows = np.nonzero(job >= 0)[0]
    equal[rows, job[rows]] = True
    equal[job < 0] = False
    row, place = np.nonzero(jobs >= 0)
    chosen = equal[row, jobs[row, place]]
    row, place = row[chosen], place[chosen]
    which = kind[row] if kinds is None else kinds[row, jobs[row, place]]
    good[row, place * KINDS + which] = True
    return good


def imitate(
    networks: Networks,
    examples: Examples,
    *,
    steps: int,
    batch: int,
    rate: float,
    loss: Loss = "cross-entropy",
    smoothing: float = 0.0,
    shuffle: bool,
    seed: int,
    progress: Report | None = None,
) -> FitResult:
    """Trains the policy network on a teacher's decisions; ``steps`` gradient steps with Adam.

    ``smoothing``: weight of all possible actions beside the good ones (Szegedy et al. 2016).
    ``shuffle``: jobs of an example are put in a new order whenever it is used.
    """
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(networks.policy.parameters(), lr=rate)

    def train_round(done: int) -> float:
        set_rate(optimizer, cosine(rate, rate / 20, done / steps))
        some = examples.rows(rng.integers(len(examples), size=batch))
        state, there, possible, good = (some.shuffled(rng) if shuffle else some).tensors()
        log_probs = log_policy(networks.logits(state, there), possible)
        value = (1 - smoothing) * _loss(loss, log_probs, good)
        if smoothing:
            every = log_probs.masked_fill(~possible, 0.0).sum(dim=-1) / possible.sum(dim=-1)
            value = value - smoothing * every.mean()
        descend(optimizer, value, most_norm=1.0)
        return float(value.detach())

    return fit(networks, train_round, Stop(rounds=steps), stage="supervised", progress=progress)


def _loss(kind: Loss, log_probs: Tensor, good: Tensor) -> Tensor:
    if kind == "cross-entropy":
        return -log_probs.masked_fill(~good, -torch.inf).logsumexp(dim=-1).mean()
    wanted = good.float() / good.sum(dim=-1, keepdim=True)
    off = log_probs.exp() - wanted
    return (off.square() if kind == "square" else off.abs()).sum(dim=-1).mean()


def agreement(networks: Networks, examples: Examples) -> float:
    """Share of the decisions in which the policy's first choice is as good as the teacher's."""
    state, there, possible, good = examples.tensors()
    chosen = log_probs_of(networks, state, there, possible).argmax(dim=-1, keepdim=True)
    return float(good.gather(1, chosen).float().mean())
