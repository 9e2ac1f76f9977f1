"""Does the gradient of equation 4's return point to a lower slowdown? Both readings of a job's work.

    python -m benchmarks.placement_gradients [--sequences N] [--out FILE]

The untrained paper's agent runs 20 episodes of each training sequence, as algorithm 1 does. From the
same episodes REINFORCE's gradient of the output layer is taken for several returns: equation 4 with
a discount; the same without equation 6; and `slowdown`, minus the sum of equation 17's growth in
each step, whose return is what equation 17 asks for.

`itself`: cosine of the gradients of the two halves of the sequences, which is 0 for noise alone.
`slowdown`: cosine of one half's gradient with the other half's of `slowdown`: below 0, a step of
training makes slowdown worse. `correlation`: of the episodes' returns with minus their slowdown.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mirage.figures.provenance import provenance
from mirage.placement.jobs import PlacementJobs, PlacementWorkload
from mirage.placement.paper import PaperNetwork, paper_image
from mirage.placement.setting import PlacementSetting
from mirage.placement.topology import Floats
from mirage.placement.world import PlacementWorld
from mirage.rl.fit import seeded
from mirage.rl.policy import log_policy, log_prob_of
from mirage.rl.reinforce import discounted_returns, step_baseline

EPISODES, SEED = 20, 9
CASES = (("alone", 150), ("cells", 150), ("cells", 1000))
"""Total work, time steps of an episode."""
RETURNS = (
    ("equation 4", 0.9),
    ("equation 4", 0.97),
    ("equation 4", 1.0),
    ("without equation 6", 0.97),
    ("without equation 6", 1.0),
    ("slowdown", 1.0),
)
"""Reward, discount."""
Json = dict[str, Any]


def episodes(
    network: PaperNetwork, setting: PlacementSetting, sequence: PlacementJobs
) -> tuple[Tensor, Tensor, dict[str, Floats], Floats]:
    """Images [steps, E, inputs], choices [steps, E, M], rewards [E, steps], slowdown [E]."""
    world = PlacementWorld(setting.config, [sequence] * EPISODES)
    plain = replace(setting.config, too_few_costs=False)
    seen, taken = [], []
    rewards: dict[str, list[Floats]] = {name: [] for name, _ in RETURNS}
    while not world.over.all():
        image = torch.from_numpy(network.image.scaled(network.image.colours(world)))
        with torch.no_grad():
            logits = network(image)
        choice = (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=-1)
        there = (world.arrival <= world.time) & (world.finish_step < 0)
        rewards["slowdown"].append(-(there / world.length).sum(axis=1))
        world.config = plain
        rewards["without equation 6"].append(world.reward_of(world.assignment(choice.numpy())))
        world.config = setting.config
        rewards["equation 4"].append(world.step(choice.numpy()))
        seen.append(image)
        taken.append(choice)
    table = {name: np.array(each).T for name, each in rewards.items()}
    slowdown = np.asarray(np.nanmean(world.slowdowns(), axis=1))
    return torch.stack(seen), torch.stack(taken), table, slowdown


def gradients(
    network: PaperNetwork, seen: Tensor, taken: Tensor, advantages: list[Floats]
) -> list[Tensor]:
    """Of the output layer's weights, for each table of advantages [E, steps], scaled to 1."""
    found = [torch.zeros_like(network.output.weight) for _ in advantages]
    weights = [torch.from_numpy((each / each.std()).T.copy()).float() for each in advantages]
    for begin in range(0, len(seen), 100):
        part = slice(begin, begin + 100)
        log_probs = log_policy(network(seen[part].flatten(0, 1)))
        joint = log_prob_of(log_probs, taken[part].flatten(0, 1)).sum(dim=-1)
        for nth, weight in enumerate(weights):
            loss = (joint * weight[part].flatten()).sum() / taken.shape[0]
            found[nth] += torch.autograd.grad(loss, network.output.weight, retain_graph=True)[0]
    return found


def measure(total_work: Any, steps: int, sequences: int) -> Json:
    setting = PlacementSetting(workload=PlacementWorkload(total_work=total_work), most_steps=steps)
    with seeded(SEED):
        network = PaperNetwork(paper_image(setting))
        halves = [[torch.zeros(1) for _ in RETURNS] for _ in range(2)]
        alike: list[list[float]] = [[] for _ in RETURNS]
        for nth, sequence in enumerate(setting.sequences(SEED, "train", sequences)):
            seen, taken, rewards, slowdown = episodes(network, setting, sequence)
            returns = [discounted_returns(rewards[name], discount) for name, discount in RETURNS]
            advantages = [each - step_baseline(each) for each in returns]
            found = gradients(network, seen, taken, advantages)
            half = halves[nth % 2]
            half[:] = [old + new for old, new in zip(half, found, strict=True)]
            for own, each in zip(alike, advantages, strict=True):
                own.append(float(np.corrcoef(each[:, 0], -slowdown)[0, 1]))
    target = [half[RETURNS.index(("slowdown", 1.0))] for half in halves]
    rows = {}
    for nth, (name, discount) in enumerate(RETURNS):
        one, other = halves[0][nth], halves[1][nth]
        rows[f"{name}, discount {discount:g}"] = {
            "itself": _cosine(one, other),
            "slowdown": (_cosine(one, target[1]) + _cosine(other, target[0])) / 2,
            "correlation": float(np.mean(alike[nth])),
        }
    return rows


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(functional.cosine_similarity(one.flatten(), other.flatten(), dim=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=8, help="of 400 jobs (default 8)")
    parser.add_argument("--out", type=Path, help="JSON file (default: standard output)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    began_s = time.time()
    content: Json = {
        f"{total_work}, {steps} steps": measure(total_work, steps, args.sequences)
        for total_work, steps in CASES
    }
    content["provenance"] = provenance(
        ["python", "-m", "benchmarks.placement_gradients", "--sequences", str(args.sequences)],
        inputs={},
        split={"train": f"seed {SEED}, part `train`"},
        seed=SEED,
        started_s=began_s,
        wall_s=time.time() - began_s,
    )
    text = json.dumps(content, indent=1) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
