"""Heads that learn to stop: what a policy spends, and what waiting is worth."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.stopping_heads import Padded, _wait_values, policy_gradient
from mirage.domain import Penalties
from mirage.provision.learn.law import DURATIONS_S
from mirage.provision.learn.toy import Toy
from slurm_sim.seconds import HOUR_S

QUEUES = [Toy(limit_h=hours, most_jobs=60, predicts=True) for hours in (3, 5)]
EPISODES = [queue.episode(number) for queue in QUEUES for number in range(8)]
LAWS = [
    np.tile((float(each.forecast_s[0]) > DURATIONS_S) * 1.0, (len(each), 1)) for each in EPISODES
]
DATA = Padded(EPISODES, LAWS)
EVEN = [each.costs_s(Penalties(1, 1)) / 2 / HOUR_S for each in EPISODES]


def test_a_policy_spends_what_its_first_release_costs_that_no_guard_holds() -> None:
    never = DATA.spent_h(torch.zeros_like(DATA.held))
    assert never[0] == pytest.approx([cost[-1] for cost in EVEN], abs=1e-5)
    always = DATA.spent_h(torch.ones_like(DATA.held))
    first = [int(np.argmin(held)) for held in DATA.held[:, 0].numpy()]
    free = ~DATA.held[:, 0].numpy().all(axis=1)
    expected = [
        cost[at if open_ else -1] for cost, at, open_ in zip(EVEN, first, free, strict=True)
    ]
    assert always[0] == pytest.approx(expected, abs=1e-5)


def test_waiting_is_worth_what_the_present_policy_gets_within_the_horizon() -> None:
    q = torch.zeros(*DATA.gain.shape, 2)
    q[..., 1] = 1.0  # it never releases
    far = _wait_values(DATA, q, ahead=999)
    last = -DATA.cost[..., -1:].expand(far.shape)
    assert torch.equal(far[DATA.there.expand(far.shape)], last[DATA.there.expand(far.shape)])
    near = _wait_values(DATA, q, ahead=1)
    for i, episode in enumerate(EPISODES):
        assert (near[i, :, : len(episode) - 1] == 1.0).all()
        assert torch.equal(near[i, :, len(episode) - 1], -DATA.cost[i, :, -1])


def test_a_release_within_the_horizon_ends_the_look_ahead() -> None:
    q = torch.zeros(*DATA.gain.shape, 2)
    q[:, :, 6, 0] = 1.0
    worth = _wait_values(DATA, q, ahead=12)
    free = ~DATA.held[:, 0, 6]
    assert free.any()
    assert torch.equal(worth[free, 0, 0], -DATA.cost[free, 0, 6])


def test_the_policy_gradient_learns_to_correct_a_rule_that_is_late() -> None:
    late = Padded(EPISODES * 4, [law * 0 for law in LAWS] * 4)  # the rule thinks that nobody waits
    policy = policy_gradient(late, np.random.default_rng(0))
    with torch.no_grad():
        spent = late.spent_h(policy(late))[0].mean()
    assert spent < 0.8 * late.spent_h(late.gain > 0)[0].mean()
