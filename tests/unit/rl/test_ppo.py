"""PPO's loss and its batches."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mirage.rl.ppo import minibatches, ppo_loss


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
