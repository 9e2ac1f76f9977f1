"""A value network that is a sum over jobs: each job's part is its own discounted return.

A reward that is a sum over jobs has a value that is one too (Zaheer et al. 2017):

    V(s) = sum over jobs j of v_j,      v_j = w(x_j) . h(sum over jobs k of phi(x_k))

One network gives w and phi of a job from its inputs, whatever its place; h is the context of the
others. So one slot is an example for every job in it. One more task changes one term of each sum:
the values after all actions cost little more than one.

A state is valued as the slot begins, or with its tasks all given (``given``).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from mirage.elastic.observation import KINDS

WIDTH, RANK = 96, 48
BINS = 12
"""Workers and PSs, the last two inputs of a job, are also one-hot, in so many steps up to the most
that a job may have. A speed has its bends there.
"""


class JobsCritic(nn.Module):
    """See the top of this file."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.job = nn.Sequential(
            nn.Linear(features + 1 + 2 * (BINS + 1), WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 2 * RANK),
        )
        self.context = nn.Sequential(nn.Linear(RANK, WIDTH), nn.ReLU(), nn.Linear(WIDTH, RANK))

    def forward(self, state: Tensor, there: Tensor, given: Tensor) -> Tensor:
        """v of each job, [n, J], of states [n, J, F] with jobs at ``there`` [n, J].

        ``given``, [n]: whether the slot's tasks are all given.
        """
        weight, part = self._parts(state, there, given)
        context = self.context(part.sum(dim=1))
        return cast(Tensor, (weight * context.unsqueeze(1)).sum(dim=-1))

    def _parts(self, state: Tensor, there: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """w and phi of each job, [n, J, RANK] each; zeros where there is none."""
        flag = given.to(state.dtype)[:, None].expand(there.shape)[there]
        parts = state.new_zeros(*there.shape, 2 * RANK)
        parts[there] = self.job(_inputs(state[there], flag))
        return parts[..., :RANK], parts[..., RANK:]

    @torch.no_grad()
    def gains(
        self, state: Tensor, there: Tensor, after: Tensor, possible: Tensor, *, own: bool = False
    ) -> Tensor:
        """What each action adds to V of the tasks as they are, [n, 3 J + 1]; void adds 0.

        ``after``, [n, J, 3, F]: a job's inputs with one more task of each kind. ``possible``,
        [n, 3 J + 1]: other actions have -inf. ``own``: only what the action's own job gains.
        """
        n, places = there.shape
        weight, part = self._parts(state, there, torch.ones(n))
        row, place, kind = possible[:, :-1].reshape(n, places, KINDS).nonzero(as_tuple=True)
        changed = self.job(_inputs(after[row, place, kind], torch.ones(len(row))))
        weight_after, part_after = changed[:, :RANK], changed[:, RANK:]
        whole, sums = part.sum(dim=1), weight.sum(dim=1)
        context = self.context(whole)
        context_after = self.context(whole[row] + part_after - part[row, place])
        if own:
            found = (weight_after * context_after).sum(dim=-1)
            found = found - (weight[row, place] * context[row]).sum(dim=-1)
        else:
            sums_after = sums[row] + weight_after - weight[row, place]
            found = (sums_after * context_after).sum(dim=-1) - (sums * context).sum(dim=-1)[row]
        gains = torch.full((n, places * KINDS + 1), -torch.inf)
        gains[:, -1] = 0
        gains[row, place * KINDS + kind] = found
        return gains


def _inputs(state: Tensor, given: Tensor) -> Tensor:
    """Of single jobs, [n, F] and [n] -> [n, inputs]."""
    tasks = (state[:, -2:] * BINS).round().long().clamp(0, BINS)
    bins = nn.functional.one_hot(tasks, BINS + 1).flatten(1)
    return torch.cat([state, bins, given.unsqueeze(-1)], dim=-1)
