"""Masked policies: impossible actions are never drawn and leave values and gradients finite."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch

from mirage.rl.policy import entropy, log_policy, log_prob_of, sample_actions

POSSIBLE = torch.tensor([[True, False, True], [False, True, False]])


def test_impossible_actions_have_no_chance() -> None:
    log_probs = log_policy(torch.tensor([[0.0, 99.0, 0.0], [1.0, 2.0, 3.0]]), POSSIBLE)
    assert torch.allclose(log_probs.exp(), torch.tensor([[0.5, 0, 0.5], [0, 1.0, 0]]))
    drawn = sample_actions(log_probs.expand(500, 2, 3), torch.Generator().manual_seed(0))
    assert drawn.shape == (500, 2)
    assert set(drawn[:, 0].tolist()) == {0, 2}
    assert set(drawn[:, 1].tolist()) == {1}
    assert drawn[:, 0].float().mean().item() == pytest.approx(1.0, abs=0.15)


def test_without_a_mask_it_is_the_softmax() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(log_policy(logits), logits.log_softmax(-1))


def test_entropy_counts_possible_actions_alone() -> None:
    found = entropy(log_policy(torch.zeros(2, 3), POSSIBLE))
    assert found.tolist() == pytest.approx([math.log(2), 0.0])


def test_gradients_are_finite_beside_impossible_actions() -> None:
    logits = torch.tensor([[0.3, 5.0, -0.2], [0.1, 0.2, 0.3]], requires_grad=True)
    log_probs = log_policy(logits, POSSIBLE)
    loss = entropy(log_probs).sum() + log_prob_of(log_probs, torch.tensor([0, 1])).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 1] == 0
    assert gradient[0, 0] != 0


def test_a_state_without_any_action_is_refused() -> None:
    with pytest.raises(ValueError, match="no possible action"):
        log_policy(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
