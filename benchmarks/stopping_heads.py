"""What heads that learn to stop bring over the exact rule on a law of the wait, by cross-validation.

    python -m benchmarks.stopping_heads --samples DIR [--law mlp-law] [--heads pg,dqn,equation4]
        [--seeds 1,2,3,4,5]

DIR is `mirage train --samples`'s. A head is a small network over twelve numbers of a decision point:
what a law of the wait says of it. Every law is of networks that never saw the episode's
block, and each block is judged by heads of the other blocks. `pg` climbs the exact expected reward
of a stopping policy that begins as the rule. `dqn` corrects the rule's two Q-values by the Bellman
target, looking two hours ahead along the present policy; `equation4` looks one step ahead. The laws
are `benchmarks.learning_cv`'s; the summary goes to benchmarks/stopping_heads.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.learning_cv import Case, chances, folds, has_points, summary
from mirage.provision.learn.card import TASTES
from mirage.provision.learn.episode import Episode, Floats, Vectors
from mirage.provision.learn.law import Law, assess
from mirage.provision.learn.model import DEFAULT_TRAITS, States, would_start_now
from mirage.provision.learn.samples import Samples
from mirage.rl.fit import cosine, descend, seeded, set_rate
from slurm_sim.seconds import HOUR_S

RESULT = Path("benchmarks/stopping_heads.json")
STEPS, BATCH, RATE, DECAY = 300, 32, 3e-3, 1e-3
"""Gradient steps, episodes a step; AdamW's learning rate and weight decay."""
SHARPER = 3.0
"""A policy's logits grow so many times in its training, so that it ends near the likelier action."""
AHEAD, SYNC = 12, 30
"""Decisions that the Bellman target looks ahead; gradient steps between its renewals."""


class Padded:
    """Decision points of some episodes, at both ratios of penalties; T: of the longest episode."""

    def __init__(self, episodes: Sequence[Episode], laws: Sequence[Floats]) -> None:
        most = max(map(len, episodes))
        shape = (len(episodes), len(TASTES), most)
        self.lengths = torch.tensor([len(each) for each in episodes])
        self.inputs = torch.zeros(*shape, 12)
        self.gain = torch.full(shape, -9.0)
        """(N, 2, T): hours that the rule says a release saves."""
        self.now = torch.zeros(shape)
        """(N, 2, T): hours that the rule says a release costs."""
        self.held = torch.ones(shape, dtype=torch.bool)
        """(N, 2, T): whether the guard of every model holds a release, or there is no point."""
        self.cost = torch.zeros(shape[0], shape[1], most + 1)
        """(N, 2, T + 1): hours that a release cost; the last: none."""
        for i, (episode, law) in enumerate(zip(episodes, laws, strict=True)):
            for j, taste in enumerate(TASTES):
                n, total_s = len(episode), (taste.interruption + taste.overlap) * HOUR_S
                states = States.of(episode, taste.interruption, taste.overlap)
                inputs, gain_h, now_h = _of_law(Law.of_chances(law), states)
                self.inputs[i, j, :n] = torch.from_numpy(inputs)
                self.gain[i, j, :n] = torch.from_numpy(gain_h)
                self.now[i, j, :n] = torch.from_numpy(now_h)
                self.held[i, j, :n] = torch.from_numpy(would_start_now(_GUARDED, states))
                costs_h = episode.costs_s(taste) / total_s
                self.cost[i, j, :n] = torch.from_numpy(costs_h[:-1])
                self.cost[i, j, most] = float(costs_h[-1])
        self.there = torch.arange(most) < self.lengths[:, None, None]

    def spent_h(self, release: Tensor) -> Floats:
        """(2, N): of a policy that wants to release at these points, (N, 2, T)."""
        chosen = release & ~self.held & self.there
        never = torch.full_like(chosen[..., :1], True)
        first = torch.cat([chosen, never], -1).int().argmax(-1, keepdim=True)
        return self.cost.gather(2, first)[..., 0].T.double().numpy()


def _of_law(law: Law, states: States) -> tuple[Vectors, Vectors, Vectors]:
    """Inputs (n, 12), the rule's gain (n,) and cost (n,) in hours at e_I + e_O = 1."""
    said, left_s = assess(law, states), states.remaining_s.astype(np.float64)
    total_s = states.penalties.sum(axis=1) * HOUR_S
    share = states.penalties[:, 0] / states.penalties.sum(axis=1)
    gain_h = (said.cost_wait_s - said.cost_now_s) / total_s
    now_h, lead_h, left_h = (
        said.cost_now_s / total_s,
        law.quantile_s(share) / HOUR_S,
        left_s / HOUR_S,
    )
    assert states.forecast_s is not None
    forecast_h = states.forecast_s / HOUR_S
    waits_h = [part / HOUR_S for part in (said.wait_p10_s, said.wait_p50_s, said.wait_p90_s)]
    columns = [
        np.arcsinh(2 * gain_h),
        np.arcsinh(left_h - lead_h),
        *map(np.log1p, (left_h, *waits_h, lead_h)),
        law.exceeded_at(left_s),
        np.arcsinh(now_h),
        np.log1p(forecast_h),
        np.arcsinh(forecast_h - left_h),
        share,
    ]
    inputs = np.stack(columns, axis=1).astype(np.float32)
    return inputs, gain_h.astype(np.float32), now_h.astype(np.float32)


class _Guarded:
    """A model as far as the guard asks one: it uses forecasts."""

    traits = DEFAULT_TRAITS


_GUARDED: Any = _Guarded()


class Scaled(nn.Module):
    """A small network over scaled inputs, whose answer is 0 at first."""

    def __init__(self, data: Padded, width: int, outputs: int) -> None:
        super().__init__()
        rows = data.inputs[data.there.expand(data.gain.shape)]
        self.mean, self.spread = rows.mean(0), rows.std(0) + 0.05
        last = nn.Linear(width, outputs)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(
            nn.Linear(rows.shape[1], width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), last
        )

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.layers((inputs - self.mean) / self.spread)
        return found


Policy = Callable[[Padded], Tensor]


def policy_gradient(data: Padded, generator: np.random.Generator) -> Policy:
    """The logit of a release is the rule's gain, and a correction."""
    network, slope = Scaled(data, 32, 1), nn.Parameter(torch.tensor(4.0))
    optimizer = torch.optim.AdamW([*network.parameters(), slope], weight_decay=DECAY)

    def logits(of: Padded, rows: Tensor) -> Tensor:
        found: Tensor = slope * of.gain[rows].clamp(-2, 2) + network(of.inputs[rows])[..., 0]
        return found

    for step in range(STEPS):
        set_rate(optimizer, RATE * cosine(1.0, 0.1, step / STEPS))
        rows = torch.from_numpy(generator.choice(len(data.lengths), BATCH, replace=False))
        sharp = logits(data, rows) * (1 + (SHARPER - 1) * step / STEPS)
        sharp = sharp.masked_fill(data.held[rows] | ~data.there[rows], -30.0)
        waits = nn.functional.logsigmoid(-sharp).cumsum(-1)
        before = torch.cat([torch.zeros_like(waits[..., :1]), waits[..., :-1]], -1)
        ends = torch.cat([before + nn.functional.logsigmoid(sharp), waits[..., -1:]], -1).exp()
        descend(optimizer, (ends * data.cost[rows]).sum(-1).mean(), most_norm=1.0)
    return lambda other: logits(other, torch.arange(len(other.lengths))) > 0


def q_learning(data: Padded, generator: np.random.Generator, ahead: int = AHEAD) -> Policy:
    """Q-values in hours: the rule's, and a correction of each."""
    network = Scaled(data, 48, 2)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=DECAY)

    def values(net: nn.Module, of: Padded, rows: Tensor) -> Tensor:
        now = -of.now[rows]
        rule = torch.stack([now, now - of.gain[rows].clamp(-5, 5)], -1)
        q: Tensor = rule + net(of.inputs[rows])
        return q

    everything, wait = torch.arange(len(data.lengths)), data.gain
    for step in range(STEPS):
        if step % SYNC == 0:
            wait = _wait_values(data, values(deepcopy(network), data, everything).detach(), ahead)
        set_rate(optimizer, RATE * cosine(1.0, 0.1, step / STEPS))
        rows = torch.from_numpy(generator.choice(len(data.lengths), BATCH, replace=False))
        target = torch.stack([-data.cost[rows][..., :-1], wait[rows]], -1)
        error = nn.functional.smooth_l1_loss(values(network, data, rows), target, reduction="none")
        descend(optimizer, error[data.there[rows].expand(error.shape[:3])].mean(), most_norm=1.0)

    def releases(other: Padded) -> Tensor:
        q = values(network, other, torch.arange(len(other.lengths)))
        return q[..., 0] > q[..., 1]

    return releases


def _wait_values(data: Padded, q: Tensor, ahead: int) -> Tensor:
    """(N, 2, T): what waiting is worth along the present policy, so many decisions ahead."""
    most = q.shape[2]
    release = (q[..., 0] > q[..., 1]) & data.there & ~data.held
    best = torch.where(data.held, q[..., 1], q.amax(-1))
    stops = torch.full((*release.shape[:2], most + 1), most)
    for slot in range(most - 1, -1, -1):
        stops[..., slot] = torch.where(release[..., slot], slot, stops[..., slot + 1])
    after, horizon = stops[..., 1:], torch.arange(most) + ahead
    over = (after < horizon) | (horizon >= data.lengths[:, None, None])
    reached = horizon.clamp(max=most - 1).expand(best.shape)
    return torch.where(over, -data.cost.gather(2, after), best.gather(2, reached))


HEADS: dict[str, Callable[[Padded, np.random.Generator], Policy]] = {
    "pg": policy_gradient,
    "dqn": q_learning,
    "equation4": lambda data, generator: q_learning(data, generator, ahead=1),
}


def penalties(
    samples: Samples, laws: Sequence[Floats], head: str, seeds: Sequence[int]
) -> tuple[Floats, Floats]:
    """(2, N) of the rule, and (seeds, 2, N) of the head."""
    rule = np.empty((len(TASTES), len(samples)))
    mine = np.empty((len(seeds), *rule.shape))
    for own, others in folds(samples):
        learned, judged = (
            Padded([samples[i] for i in part], [laws[i] for i in part]) for part in (others, own)
        )
        rule[:, own] = judged.spent_h(judged.gain > 0)
        for place, seed in enumerate(seeds):
            with seeded(seed) as generator:
                policy = HEADS[head](learned, generator)
            with torch.no_grad():
                mine[place][:, own] = judged.spent_h(policy(judged))
    return rule, mine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--law", default="mlp-law", help="method whose law the heads see")
    parser.add_argument("--heads", type=lambda text: text.split(","), default=list(HEADS))
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[1, 2, 3, 4, 5],
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    samples = has_points(args.samples / "train")
    laws = chances(Case(method=args.law), args.samples, 1)
    assert laws is not None, f"{args.law} forecasts no law of the wait"
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    for head in args.heads:
        began_s = time.process_time()
        rule, mine = penalties(samples, laws, head, args.seeds)
        row = {
            "law": args.law,
            "head": head,
            "seeds": args.seeds,
            "cpu_s": round(time.process_time() - began_s),
            "load_average": round(os.getloadavg()[0], 1),
            "rule": list(summary(rule, None, samples)),
            "head, mean of seeds, to the rule": list(summary(mine.mean(axis=0), rule, samples)),
            "each seed": [list(summary(each, rule, samples)) for each in mine],
        }
        others = (each for each in rows if (each["law"], each["head"]) != (args.law, head))
        rows = [*others, row]
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
        for line in row["head, mean of seeds, to the rule"]:
            print(head, *line.values(), flush=True)


if __name__ == "__main__":
    main()
