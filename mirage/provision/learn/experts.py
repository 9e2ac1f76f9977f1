"""Several networks of one shape on the same inputs, in one pass.

A GPU spends most of a small network's time on starting operations. Ten experts in one pass start as
many as one expert. A CPU gains nothing, so there the experts run in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap


def at_once(experts: nn.ModuleList, inputs: Sequence[object]) -> Tensor:
    """(experts, ...): what each makes of the inputs. Dropout draws for each expert."""
    each = [dict(expert.named_parameters()) for expert in experts]
    weights = {name: torch.stack([own[name] for own in each]) for name in each[0]}

    def run(own: dict[str, Tensor]) -> Tensor:
        said: Tensor = functional_call(experts[0], own, tuple(inputs))
        return said

    all_at_once: Callable[[dict[str, Tensor]], Tensor] = vmap(run, randomness="different")
    return all_at_once(weights)


def in_turn(experts: nn.ModuleList, inputs: Sequence[object]) -> Tensor:
    """(experts, ...): the same, one after the other."""
    return torch.stack([expert(*inputs) for expert in experts])
