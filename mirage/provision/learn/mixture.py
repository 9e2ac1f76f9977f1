"""How many experts of a mixture are used, and whether states differ: three numbers for its card."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mirage.provision.learn.episode import Floats
from mirage.provision.learn.model import States


@runtime_checkable
class Mixture(Protocol):
    """A `Model` with experts."""

    def gate(self, states: States) -> Floats:
        """(n, experts): the experts' weights at these states, each row with the sum 1."""


def effective_experts(weights: Floats) -> float:
    """How many experts share the work over n states, (n, experts): the inverse of Simpson's index of
    their mean weights, from 1 to the number of experts.
    """
    return float(1 / (weights.mean(axis=0) ** 2).sum())


def experts_a_state(weights: Floats) -> float:
    """How many experts answer for one state: the exponential of the mean entropy of n states'
    weights, (n, experts).
    """
    return float(np.exp(_entropy(weights).mean()))


def expert_groups(weights: Floats) -> float:
    """How many groups of states have experts of their own, of n states' weights, (n, experts): the
    exponential of the mutual information of state and expert. 1: all states have the same weights.
    """
    return float(np.exp(_entropy(weights.mean(axis=0)) - _entropy(weights).mean()))


def _entropy(weights: Floats) -> Floats:
    return np.asarray(-(weights * np.log(np.maximum(weights, 1e-12))).sum(axis=-1))
