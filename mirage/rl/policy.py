"""Stochastic policies over actions of which some may be impossible.

A policy is given by log-probabilities, shape (..., actions), -inf where an action is impossible. The
joint action of several independent choices (RL-TAPS, equation 7) has the sum of its choices'
log-probabilities and of their entropies.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_policy(logits: Tensor, possible: Tensor | None = None) -> Tensor:
    """Log-probabilities of a softmax over the possible actions, same shape as the logits.

    Raises ValueError where a row has no possible action.
    """
    if possible is None:
        return logits.log_softmax(dim=-1)
    if not possible.any(dim=-1).all():
        raise ValueError("a state has no possible action")
    return logits.masked_fill(~possible, -torch.inf).log_softmax(dim=-1)


def sample_actions(log_probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(...,): an action drawn from each policy; without a generator from torch's own."""
    flat = log_probs.reshape(-1, log_probs.shape[-1]).exp()
    drawn = torch.multinomial(flat, 1, generator=generator)
    return drawn.reshape(log_probs.shape[:-1])


def log_prob_of(log_probs: Tensor, actions: Tensor) -> Tensor:
    """(...,): the log-probability of each action taken."""
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: Tensor) -> Tensor:
    """(...,): -sum over actions of p log p, in nats; an impossible action adds 0.

    Its gradient is finite where actions are impossible: their log-probability is replaced first.
    """
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * finite).sum(dim=-1)
