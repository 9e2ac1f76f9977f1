"""The gate of a mixture of experts: who answers for a state, and what keeps all experts in use.

A gate on the 5,760 raw inputs has as many weights as there are numbers that tell one season from
another. It then becomes a switch by season, and one expert answers for all of the next months. So
a gate here sees normalised summaries alone. The balance loss (the importance loss of Shazeer et al.
2017, section 4) holds the experts' mean weights together; the spread loss gives a state to few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from mirage.rl.options import MethodOptions, Weight

RATE = 0.3
"""A gate's learning rate, as a share of the experts': it must not run ahead of them."""
SPREAD = 1.0
"""Standard deviation of a gate's logits at first: states differ in their experts from the start. With
nearly equal weights all experts learn the same, and the gate stays flat.
"""


@dataclass(frozen=True)
class Mixing(MethodOptions):
    """What a gate is held to, beside a loss of about one. Together the two weights make states and
    experts tell of each other: mutual information (Bridle et al. 1992).
    """

    balance: Weight = 0.1
    """Weight of `balance_loss`: over all states every expert is used."""
    focus: Weight = 0.02
    """Weight of `spread_loss`: for one state few are."""

    def loss(self, weights: Tensor) -> Tensor:
        """Of a batch's weights, (n, experts)."""
        return self.balance * balance_loss(weights) + self.focus * spread_loss(weights)


class Gate(nn.Module):
    """Softmax weights of experts, (n, experts), of summaries, (n, inputs)."""

    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs, elementwise_affine=False)
        self.linear = nn.Linear(inputs, experts)
        nn.init.normal_(self.linear.weight, std=SPREAD / inputs**0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, summaries: Tensor) -> Tensor:
        weights: Tensor = self.linear(self.norm(summaries)).softmax(-1)
        return weights


def balance_loss(weights: Tensor) -> Tensor:
    """Squared coefficient of variation of the experts' mean weights over a batch, (n, experts): 0
    where all are equal, experts - 1 where one has all.
    """
    experts = weights.shape[1]
    loss: Tensor = experts * (weights.mean(0) ** 2).sum() - 1
    return loss


def spread_loss(weights: Tensor) -> Tensor:
    """Mean entropy of one state's weights, (n, experts), as a share of the largest: 1 where all are
    equal, 0 where one expert answers.
    """
    entropy = -(weights * weights.clamp_min(1e-9).log()).sum(1)
    loss: Tensor = entropy.mean() / math.log(max(weights.shape[1], 2))
    return loss


def weight_groups(network: nn.Module) -> list[dict[str, object]]:
    """For an optimizer: a network's weights, and its gates', which learn at a share of the rate
    (`mirage.rl.fit.set_rate`).
    """
    gates = [module for module in network.modules() if isinstance(module, Gate)]
    own = [item for gate in gates for item in gate.parameters()]
    names = {id(item) for item in own}
    rest = [item for item in network.parameters() if id(item) not in names]
    parts: list[dict[str, object]] = [{"params": rest}]
    return [*parts, {"params": own, "share": RATE}] if own else parts
