"""Online reinforcement learning (section 4.3): actor-critic on a replay of the latest slots.

The critic learns by temporal difference, a job at a time (`critic.py`):

    v_j(tasks all given)  = reward of j in the slot + discount * v_j(next slot begins)
    v_j(slot begins)      = v_j(tasks all given in it)

The actor learns from all actions of a state, not only from the one that was taken (Allen et al.
2017, Mean Actor Critic). What an action does to the state is known: its job has one task more. So
its advantage is what the critic says that this task adds, and void adds nothing:

    A(s, a) = V(tasks with a's) - V(tasks as they are)

The policy moves towards p exp(A / temperature), where p is the present policy with a small share for
all possible actions (Abdolmaleki et al. 2018, MPO). So it stays near the copy where the critic is
undecided, and an action that the copy never takes can win. States are replayed without importance
weights, since no action was drawn.

`critic = mean` is the ablation of Table 2: the actions that were taken, the reward of their slot
less its moving mean, and PPO's clipped ratio.

A critic must see tasks that the policy would not give. So half of the clusters act at random now
and then, each in its own share of the decisions. Job-aware exploration: in one of three poor
states, with probability `exploration`, the action is the one that mends it (section 4.3).

The network has weights of its own for each place of a batch. So jobs are in a random order here,
as in the supervised phase. An episode ends as half of its clusters are over: what is
left then has few jobs, and little to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.baselines import give_tasks
from mirage.elastic.critic import JobsCritic
from mirage.elastic.network import Networks
from mirage.elastic.observation import EMPTY, KINDS, ElasticObservation, PaperEncoder
from mirage.elastic.policy import BatchAllocator, as_tensors, log_probs_of
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints, TaskKind
from mirage.rl.fit import FitResult, Report, Stop, apply_gradients, fit, linear, set_rate
from mirage.rl.options import Count, Fraction, MethodOptions, Rate, Weight
from mirage.rl.policy import entropy, log_policy, log_prob_of
from mirage.rl.ppo import normalised, ppo_loss
from mirage.rl.reinforce import MovingMean
from mirage.rl.replay import Column, ReplayMemory
from mirage.rl.targets import td_targets

POOR_RATIO = 10
"""Workers and PSs of a job that differ by more than this factor are a poor state."""
Sequences = Callable[[int], Sequence[ElasticJobs]]
"""A number -> so many new sequences, of one length."""


@dataclass(frozen=True, kw_only=True)
class OnlineOptions(MethodOptions):
    """What the text leaves open is chosen here."""

    slots: Count = 300
    """Slots of training."""
    clusters: Count = 96
    """Clusters that decide side by side."""
    updates: Count = 10
    """Gradient steps after each slot."""
    value_updates: Count = 5
    """Further gradient steps of the value network after each slot."""
    batch: Count = 256
    """Samples of a gradient step."""
    replay: Count = 60
    """Latest slots whose samples are kept."""
    kept: Count = 8
    """Decisions of a slot that are kept in each cluster, on average."""
    rate: Rate = 0.0005
    """Learning rate of Adam for the policy; falls to a tenth."""
    value_rate: Rate = 0.002
    """Falls to a tenth."""
    warm_up: Count = 20
    """First slots, in which only the value network learns."""
    warm_up_updates: Count = 20
    """Further gradient steps of the value network after each of them."""
    discount: Fraction = 0.9
    """Of rewards, a slot."""
    temperature: Rate = 0.3
    """In units of the reward: how large an advantage is much in one step."""
    smoothing: Fraction = 0.02
    """Share of all possible actions in that step; falls to a tenth."""
    entropy: Weight = 0.003
    """Weight of the entropy in the loss; falls to 0."""
    exploration: Fraction = 0.4
    """Probability that a poor state is mended by rule."""
    random: Fraction = 0.3
    """Largest share of decisions at random of a cluster in a slot."""
    critic: Literal["jobs", "mean"] = "jobs"
    """`mean`: the moving mean of rewards instead of a value network (Table 2)."""
    reward: Literal["time", "all", "own"] = "time"
    """`time`: -1 a slot for each job; `all`: equation 1; `own`: of the action's job (section 6.5)."""


def mending_action(seen: ElasticObservation) -> Ints:
    """The rule's action in each poor state, [B]; -1: the state is not poor, or it can't be done.

    Poor: a job with several workers and no PS; with several PSs and no worker; or with more than
    `POOR_RATIO` times as many of one as of the other.
    """
    workers, ps = seen.workers, seen.ps
    add_ps = ((workers > 1) & (ps == 0)) | ((ps > 0) & (workers > POOR_RATIO * ps))
    add_worker = ((ps > 1) & (workers == 0)) | ((workers > 0) & (ps > POOR_RATIO * workers))
    places = workers.shape[1]
    possible = seen.possible[:, :-1].reshape(-1, places, KINDS)
    wanted = np.zeros_like(possible)
    wanted[..., TaskKind.PS] = add_ps
    wanted[..., TaskKind.WORKER] = add_worker
    flat = (wanted & possible).reshape(len(workers), -1)
    return np.where(flat.any(axis=1), flat.argmax(axis=1), -1)


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Of n clusters in one inference."""

    rows: Ints
    """[n]: the clusters."""
    jobs: Ints
    """[n, J]: the job in each place; -1: none."""
    state: Floats
    possible: Bools
    action: Ints
    log_prob: Floats
    """[n]: of the action, as it was taken."""

    @property
    def there(self) -> Bools:
        """[n, J]: places with a job."""
        return self.jobs >= 0


class ExploringAct:
    """Acts by the policy and by the exploration rules; notes each decision. See `Act`."""

    def __init__(
        self, networks: Networks, clusters: int, *, exploration: float, random: float, seed: int
    ) -> None:
        self._networks, self._exploration, self._random = networks, exploration, random
        self._rng = np.random.default_rng(seed)
        self._clusters = clusters
        self.begin_slot()

    def begin_slot(self) -> None:
        """Draws each cluster's share of decisions at random; forgets the decisions."""
        drawn = self._rng.uniform(0, self._random, self._clusters)
        self._share = np.where(self._rng.random(self._clusters) < 0.5, drawn, 0.0)
        self.decisions: list[Decisions] = []

    @property
    def steady(self) -> Bools:
        """Clusters without decisions at random, [B]."""
        return np.asarray(self._share == 0, dtype=np.bool_)

    def __call__(self, seen: ElasticObservation, rows: Ints) -> Ints:
        """See `Act`."""
        possible, share = seen.possible[rows], self._share[rows, None]
        probs = log_probs_of(self._networks, *as_tensors(seen, rows)).exp().numpy()
        probs = (1 - share) * probs + share * possible / possible.sum(axis=1, keepdims=True)
        draws = self._rng.random((len(rows), 1)) * probs.sum(axis=1, keepdims=True)
        chosen = (probs.cumsum(axis=1) <= draws).sum(axis=1)
        chosen = np.minimum(chosen, probs.shape[1] - 1)
        mending = mending_action(seen)[rows]
        epsilon = np.where(mending >= 0, self._exploration, 0.0)
        chosen = np.where(self._rng.random(len(rows)) < epsilon, mending, chosen)
        probability = (1 - epsilon) * probs[np.arange(len(rows)), chosen]
        probability = probability + epsilon * (chosen == mending)
        self.decisions.append(
            Decisions(
                rows=rows,
                jobs=seen.jobs[rows],
                state=seen.state[rows],
                possible=possible,
                action=chosen,
                log_prob=np.log(np.maximum(probability, 1e-12)),
            )
        )
        return chosen


@dataclass(kw_only=True)
class EndedSlot:
    """Batches of a slot, from its first state to its last."""

    rows: Ints
    """[n]: the clusters."""
    jobs: Ints
    """[n, J]."""
    first: Floats
    """[n, J, F]: before a task is given."""
    last: Floats
    """[n, J, F]: all tasks are given."""
    reward: Floats
    """[n, J]: of each job."""
    steady: Bools
    """[n]: no decision was drawn at random."""


class OnlineLearner:
    """One slot, then gradient steps, again and again."""

    def __init__(
        self,
        networks: Networks,
        encoder: PaperEncoder,
        config: ElasticConfig,
        sequences: Sequences,
        *,
        places: int,
        options: OnlineOptions,
        seed: int,
    ) -> None:
        self._networks, self._config, self._options = networks, config, options
        self._encoder, self._places = encoder, places
        self._sequences, self._seed = sequences, seed
        self._rng = np.random.default_rng(seed)
        self._act = ExploringAct(
            networks,
            options.clusters,
            exploration=options.exploration,
            random=options.random,
            seed=seed,
        )
        self._allocator = BatchAllocator(
            name="explorer",
            encoder=encoder,
            act=self._act,
            places=places,
            shuffle=self._rng,
        )
        features = encoder.size(len(config.types))
        slots = options.replay * options.clusters
        self._decisions = ReplayMemory(options.kept * slots, _decision_columns(places, features))
        self._slots = ReplayMemory(slots, _slot_columns(places, features))
        self._steps = NetworkSteps(networks, options)
        self._mean = MovingMean()
        self._episodes = 0
        self._done = 0
        self._begin_episode()

    def _begin_episode(self) -> None:
        sequences = self._sequences(self._options.clusters)
        self._world = ElasticWorld(self._config, sequences, seed=self._seed + self._episodes)
        self._allocator.reset(self._world)
        self._ended: EndedSlot | None = None
        self._episodes += 1

    def train_round(self, _done: int) -> float:
        """One slot of experience in each cluster, then the gradient steps; the policy's loss."""
        options = self._options
        self.run_slot()
        more = options.warm_up_updates if self._done <= options.warm_up else 0
        for _ in range(options.value_updates + more):
            self._improve_value()
        if self._done <= options.warm_up:
            return 0.0
        losses = [self.improve() for _ in range(options.updates)]
        return float(np.mean(losses))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to learn from yet."""
        return len(self._decisions) == 0 or len(self._slots) == 0

    def run_slot(self, members: int = 1) -> None:
        """One slot of experience in each cluster. ``members``: of a federation, each of which has
        run one more by then.
        """
        self._done += members
        if self._world.over.mean() >= 0.5:
            self._keep_ended()
            self._begin_episode()
        world = self._world
        self._act.begin_slot()
        world.begin_slot()
        self._keep_ended()
        give_tasks(world, self._allocator)
        if not self._act.decisions:
            world.end_slot()
            return
        columns = self._noted()
        batches, first = np.unique(
            np.column_stack([columns["rows"], columns["jobs"]]), axis=0, return_index=True
        )
        rows, jobs = batches[:, 0], batches[:, 1:]
        last = self._encode(rows, jobs)
        slot_reward = world.end_slot()
        self._ended = EndedSlot(
            rows=rows,
            jobs=jobs,
            first=columns["state"][first],
            last=last,
            reward=self._reward_of_jobs(rows, jobs),
            steady=self._act.steady[rows],
        )
        self._keep_decisions(columns, slot_reward)

    @property
    def steps_of_slot(self) -> int:
        """Gradient steps of a federation's member after this slot: as many of the value network as
        without a federation.
        """
        options = self._options
        is_warm_up = self._done <= options.warm_up
        return options.value_updates + (options.warm_up_updates if is_warm_up else options.updates)

    def _noted(self) -> dict[str, Any]:
        """The slot's decisions in one, [n, ...] each, in the order in which they were taken."""
        names = [each.name for each in fields(Decisions)]
        return {
            name: np.concatenate([getattr(each, name) for each in self._act.decisions])
            for name in names
        }

    def _encode(self, rows: Ints, jobs: Ints) -> Floats:
        """Inputs of batches of jobs [n, J] of clusters [n]; ``rows`` are in order."""
        nth_of_row = np.arange(len(rows)) - np.searchsorted(rows, rows)
        found = np.zeros((*jobs.shape, self._encoder.size(len(self._config.types))), np.float32)
        for nth in range(int(nth_of_row.max()) + 1):
            some = nth_of_row == nth
            of_all = np.full((self._world.clusters, self._places), EMPTY)
            of_all[rows[some]] = jobs[some]
            found[some] = self._encoder.encode(self._world, of_all)[rows[some]]
        return found

    def _reward_of_jobs(self, rows: Ints, jobs: Ints) -> Floats:
        """What the slot that has just run brought each job of batches [n, J]."""
        world = self._world
        if self._options.reward == "time":
            end = np.where(np.isnan(world.finish), world.slot, world.finish)
            of_all = -np.clip(end - (world.slot - 1), 0, 1)
        else:
            of_all = world.last_epochs / world.estimate
        return np.where(jobs >= 0, of_all[rows[:, None], np.maximum(jobs, 0)], 0.0)

    def _keep_ended(self) -> None:
        """Keeps the slot before for the critic, now that its next state is known.

        A job keeps its place in it, so that its values can be compared; new jobs take free ones.
        """
        ended, self._ended = self._ended, None
        if ended is None:
            return
        active = self._world.active & ~self._world.over[:, None]
        pairs = zip(ended.rows.tolist(), ended.jobs, strict=True)
        jobs = np.stack([_following(active[row], of_row) for row, of_row in pairs])
        self._slots.add_rows(
            first=ended.first,
            last=ended.last,
            there=ended.jobs >= 0,
            reward=ended.reward,
            steady=ended.steady,
            next_state=self._encode(ended.rows, jobs),
            next_there=jobs >= 0,
            continues=(jobs == ended.jobs) & (ended.jobs >= 0),
        )

    def _keep_decisions(self, columns: dict[str, Any], slot_reward: Floats) -> None:
        """Keeps some of them; ``slot_reward``: equation 1's, [B]."""
        whole = slot_reward[columns["rows"]]
        share = self._options.kept * self._options.clusters / len(whole)
        some = self._rng.random(len(whole)) < share
        self._decisions.add_rows(
            state=columns["state"][some],
            there=columns["jobs"][some] >= 0,
            possible=columns["possible"][some],
            action=columns["action"][some],
            log_prob=columns["log_prob"][some],
            advantage=(whole - self._mean.add(float(whole.mean())))[some],
        )

    def _improve_value(self) -> None:
        """One gradient step of the value network on a batch of the memory."""
        if self.is_empty or self._options.critic == "mean":
            return
        loss = self._value_loss()
        gradients = torch.autograd.grad(loss, list(self._networks.value.parameters()))
        self._steps.apply_value(gradients)

    def improve(self) -> float:
        """One gradient step on a batch of the memory; returns the policy's loss."""
        if self.is_empty:
            return 0.0
        loss, gradients = self.gradients()
        self._steps.apply(gradients, self._done)
        return loss

    def _batch(self, memory: ReplayMemory, size: int) -> dict[str, Tensor]:
        return memory.tensors(memory.sample(size, self._rng))

    def gradients(self) -> tuple[float, list[Tensor]]:
        """The policy's loss on a batch of the memory, and the gradients of all weights."""
        options = self._options
        columns = self._batch(self._decisions, options.batch)
        log_probs = log_policy(
            self._networks.logits(columns["state"], columns["there"]), columns["possible"]
        )
        if options.critic == "mean":
            value_loss = torch.zeros(())
            taken = log_prob_of(log_probs, columns["action"])
            loss = ppo_loss(taken, columns["log_prob"], normalised(columns["advantage"]))
        else:
            value_loss = self._value_loss()
            finite = log_probs.masked_fill(~columns["possible"], 0.0)
            loss = -(self._better(columns, log_probs.detach()) * finite).sum(dim=1).mean()
        loss = loss - self._fall(options.entropy, 0.0) * entropy(log_probs).mean()
        found = torch.autograd.grad(
            loss + value_loss, list(self._networks.parameters()), materialize_grads=True
        )
        return float(loss.detach()), list(found)

    def _better(self, columns: dict[str, Tensor], log_probs: Tensor) -> Tensor:
        """The policy after a step, [n, 3 J + 1]; see the top of this file."""
        options, possible = self._options, columns["possible"]
        share = self._fall(options.smoothing, options.smoothing / 10)
        probs = (1 - share) * log_probs.exp() + share * possible / possible.sum(1, keepdim=True)
        better: Tensor = probs.log() + self.advantages(columns) / options.temperature
        return better.softmax(dim=1)

    def _fall(self, begin: float, end: float) -> float:
        return linear(begin, end, min(self._done / self._options.slots, 1.0))

    def advantages(self, columns: dict[str, Tensor]) -> Tensor:
        """A(s, a) of all actions, [n, 3 J + 1]; -inf where one is not possible."""
        critic = self._networks.value
        assert isinstance(critic, JobsCritic)
        state, there = columns["state"], columns["there"]
        after = torch.from_numpy(self._encoder.after(self._config, state.numpy()))
        own = self._options.reward == "own"
        return critic.gains(state, there, after, columns["possible"], own=own)

    def _value_loss(self) -> Tensor:
        """Mean square TD error of a job, as slots begin and with their tasks given."""
        critic, size = self._networks.value, self._options.batch
        slots = self._batch(self._slots, size)
        begins, given = torch.zeros(size), torch.ones(size)
        with torch.no_grad():
            later = critic(slots["next_state"], slots["next_there"], begins)
            at_end = critic(slots["last"], slots["there"], given)
        over = ~slots["continues"]
        target = td_targets(slots["reward"], later, over, self._options.discount)
        values = critic(
            torch.cat([slots["last"], slots["first"]]),
            torch.cat([slots["there"], slots["there"]]),
            torch.cat([given, begins]),
        )
        # What follows a first state by chance is not what the policy does.
        counts = torch.cat([slots["there"], slots["there"] & slots["steady"].unsqueeze(1)])
        delta = (torch.cat([target, at_end]) - values) * counts
        loss: Tensor = delta.square().sum() / counts.sum()
        return loss


def _following(active: Bools, jobs: Ints) -> Ints:
    """Those of a batch's jobs [J] that are still active, in their places; others in free ones."""
    found = np.where((jobs >= 0) & active[np.maximum(jobs, 0)], jobs, EMPTY)
    others = np.setdiff1d(np.nonzero(active)[0], found)
    free = np.nonzero(found < 0)[0][: len(others)]
    found[free] = others[: len(free)]
    return found


class NetworkSteps:
    """Adam on both networks; in the first slots of a training on the value network alone."""

    def __init__(self, networks: Networks, options: OnlineOptions) -> None:
        self._networks, self._options = networks, options
        self._policy = torch.optim.Adam(networks.policy.parameters(), lr=options.rate)
        self._value = torch.optim.Adam(networks.value.parameters(), lr=options.value_rate)

    def apply_value(self, gradients: Sequence[Tensor]) -> None:
        """A step of the value network alone."""
        for weight, gradient in zip(self._networks.value.parameters(), gradients, strict=True):
            weight.grad = gradient
        apply_gradients(self._value, most_norm=1.0)

    def apply(self, gradients: Sequence[Tensor], done: int) -> None:
        """A step along the gradients of all weights, after ``done`` slots of training."""
        for weight, gradient in zip(self._networks.parameters(), gradients, strict=True):
            weight.grad = gradient
        options = self._options
        part = min(done / options.slots, 1.0)
        set_rate(self._value, linear(options.value_rate, options.value_rate / 10, part))
        apply_gradients(self._value, most_norm=1.0)
        if done > options.warm_up:
            set_rate(self._policy, linear(options.rate, options.rate / 10, part))
            apply_gradients(self._policy, most_norm=1.0)


def _decision_columns(places: int, features: int) -> dict[str, Column]:
    return {
        "state": Column((places, features)),
        "there": Column((places,), np.bool_),
        "possible": Column((places * KINDS + 1,), np.bool_),
        "action": Column((), np.int64),
        "log_prob": Column(),
        "advantage": Column(),
    }


def _slot_columns(places: int, features: int) -> dict[str, Column]:
    state, there = Column((places, features)), Column((places,), np.bool_)
    return {
        "first": state,
        "last": state,
        "there": there,
        "reward": Column((places,)),
        "steady": Column((), np.bool_),
        "next_state": state,
        "next_there": there,
        "continues": there,
    }


def learn_online(
    learner: OnlineLearner,
    networks: Networks,
    options: OnlineOptions,
    *,
    score: Callable[[], float] | None = None,
    score_every: int = 50,
    progress: Report | None = None,
) -> FitResult:
    """Trains for `options.slots` slots; leaves the networks with the weights of the best score.

    ``score``: lower is better, on sequences of its own that are used for nothing else.
    """
    return fit(
        networks,
        learner.train_round,
        Stop(rounds=options.slots),
        score=score,
        is_scored=lambda done: done % score_every == 0,
        score_first=True,
        stage="online",
        progress=progress,
    )
