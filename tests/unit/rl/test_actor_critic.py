"""Actor-critic and PPO reach a toy's best policy and its exact values."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mirage.rl.actor_critic import (
    Advantages,
    actor_critic_loss,
    estimate_advantages,
    td_errors,
    value_loss,
)
from mirage.rl.fit import descend
from mirage.rl.policy import entropy, log_policy, log_prob_of
from mirage.rl.ppo import minibatches, normalised, ppo_loss
from tests.unit.rl.toys import GO, Batch, Corridor, one_hot, play, table

TOY = Corridor()


class Learner:
    """Tables of a policy and of a value for each state."""

    def __init__(self, trace: float, discount: float = TOY.discount) -> None:
        torch.manual_seed(0)
        self.trace, self.discount = trace, discount
        self.policy, self.value = table(TOY.length, 2), table(TOY.length, 1)
        self.optimizer = torch.optim.Adam(
            [*self.policy.parameters(), *self.value.parameters()], lr=0.1
        )
        self.states = [0] * 16

    def play(self) -> tuple[Batch, Advantages]:
        batch = play(TOY, self.policy, 8, 16, self.states)
        with torch.no_grad():
            values, later = self.values(batch.states), self.values(batch.next_states)
        errors = td_errors(batch.rewards, values, later, batch.over, self.discount)
        found = estimate_advantages(
            errors, values, batch.over, discount=self.discount, trace=self.trace
        )
        return batch, found

    def values(self, states: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.value(one_hot(states, TOY.length))[..., 0]
        return result

    def update(self) -> None:
        batch, found = self.play()
        logs = log_policy(self.policy(one_hot(batch.states, TOY.length)))
        loss = actor_critic_loss(
            log_prob_of(logs, batch.actions),
            entropy(logs),
            self.values(batch.states),
            found,
            entropy_weight=0.01,
        )
        descend(self.optimizer, loss, most_norm=1.0)

    @property
    def chance_of_going(self) -> np.ndarray:
        """(length,)."""
        chances: np.ndarray = self.policy.weight.T.softmax(-1)[:, GO].detach().numpy()
        return chances


@pytest.mark.parametrize("trace", [0.0, 0.9])
def test_actor_critic_reaches_the_best_policy_and_its_values(trace: float) -> None:
    learner = Learner(trace)
    for _ in range(150):
        learner.update()
    assert learner.chance_of_going.min() > 0.9
    found = learner.value.weight[0].detach().numpy()
    assert np.allclose(found, TOY.best_values.max(axis=1), atol=0.12)


def test_without_bootstrap_it_stops_where_it_should_go() -> None:
    learner = Learner(0.0, discount=0.0)
    for _ in range(150):
        learner.update()
    assert learner.chance_of_going[:-1].max() < 0.1


def test_ppo_reaches_the_best_policy_with_several_passes_over_each_batch() -> None:
    learner, generator = Learner(0.9), np.random.default_rng(0)
    for _ in range(20):
        batch, found = learner.play()
        states, actions = batch.states.flatten(), batch.actions.flatten()
        advantages, targets = (part.flatten() for part in found)
        with torch.no_grad():
            logs = log_policy(learner.policy(one_hot(states, TOY.length)))
            old = log_prob_of(logs, actions)
        for part in minibatches(len(states), 32, 4, generator):
            logs = log_policy(learner.policy(one_hot(states[part], TOY.length)))
            loss = ppo_loss(
                log_prob_of(logs, actions[part]), old[part], normalised(advantages[part])
            )
            critic = value_loss(
                learner.values(states[part]), Advantages(advantages[part], targets[part])
            )
            descend(learner.optimizer, loss + 0.5 * critic)
    assert learner.chance_of_going.min() > 0.9


def test_ppo_does_not_push_a_policy_out_of_its_reach() -> None:
    old = torch.zeros(4)
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5])
    logs = ratios.log().requires_grad_()
    loss = ppo_loss(logs, old, torch.tensor([1.0, -1.0, 1.0, -1.0]), reach=0.2)
    gradient = torch.autograd.grad(loss, logs)[0]
    assert gradient.tolist() == pytest.approx([0.0, 1.5 / 4, -0.5 / 4, 0.0])
    assert loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)


def test_minibatches_have_each_index_once_a_pass() -> None:
    parts = list(minibatches(10, 4, 2, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [4, 4, 2] * 2
    assert sorted(np.concatenate(parts[:3])) == sorted(np.concatenate(parts[3:])) == list(range(10))


def test_advantages_are_the_sums_of_the_paper() -> None:
    """Against GAE's definition, with an end at step 2 of the first lane."""
    generator = torch.Generator().manual_seed(0)
    rewards, values, later = torch.randn(3, 5, 2, generator=generator)
    terminated = torch.zeros(5, 2, dtype=torch.bool)
    terminated[2, 0] = True
    ended = terminated.clone()
    ended[3, 1] = True  # cut short: V(s') counts, later errors don't
    errors = td_errors(rewards, values, later, terminated, 0.9)
    found = estimate_advantages(errors, values, ended, discount=0.9, trace=0.7)
    for lane in range(2):
        for step in range(5):
            expected, weight = 0.0, 1.0
            for k in range(step, 5):
                bootstrap = 0.0 if terminated[k, lane] else 0.9 * later[k, lane]
                expected += weight * (rewards[k, lane] + bootstrap - values[k, lane])
                weight *= 0.9 * 0.7
                if ended[k, lane]:
                    break
            assert found.advantage[step, lane] == pytest.approx(float(expected), abs=1e-5)
    assert torch.allclose(found.value_target, found.advantage + values)


def test_trace_0_is_the_td_error_and_trace_1_the_return_less_the_value() -> None:
    rewards, values = torch.ones(4, 1), torch.full((4, 1), 0.5)
    later, over = torch.full((4, 1), 0.5), torch.zeros(4, 1, dtype=torch.bool)
    over[-1] = True
    errors = td_errors(rewards, values, later, over, 1.0)
    one_step = estimate_advantages(errors, values, over, discount=1.0)
    whole = estimate_advantages(errors, values, over, discount=1.0, trace=1.0)
    assert torch.equal(one_step.advantage, errors)
    assert whole.value_target[:, 0].tolist() == [4.0, 3.0, 2.0, 1.0]
