"""The gate of a mixture of experts: who answers for a state, and what keeps all experts in use.

A gate on the 5,760 raw inputs has as many weights as there are numbers that tell one season from
another. It then becomes a switch by season, and one expert answers for all of the next months. So
a gate here sees normalised summaries alone; its temperature keeps it soft; and the balance loss
(the importance loss of Shazeer et al. 2017, section 4) holds the experts' mean weights together.
"""

from __future__ import annotations

from torch import Tensor, nn

TEMPERATURE = 2.0
"""Logits are divided by it: one logit ahead is then a weight of 1.6 to 1, not 2.7 to 1."""
BALANCE = 0.05
"""Weight of the balance loss beside a loss of about one."""
RATE = 0.3
"""A gate's learning rate, as a share of the experts': it must not run ahead of them."""


class Gate(nn.Module):
    """Softmax weights of experts, (n, experts), of summaries, (n, inputs)."""

    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs, elementwise_affine=False)
        self.linear = nn.Linear(inputs, experts)
        # Nearly equal weights at first; not quite, since a top-1 gate must not have ties.
        nn.init.normal_(self.linear.weight, std=0.01 / inputs**0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, summaries: Tensor) -> Tensor:
        weights: Tensor = (self.linear(self.norm(summaries)) / TEMPERATURE).softmax(-1)
        return weights


def balance_loss(weights: Tensor) -> Tensor:
    """Squared coefficient of variation of the experts' mean weights over a batch, (n, experts): 0
    where all are equal, experts - 1 where one has all.
    """
    experts = weights.shape[1]
    loss: Tensor = experts * (weights.mean(0) ** 2).sum() - 1
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
