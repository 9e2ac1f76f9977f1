"""Does a return of training tell of slowdown? Both readings of a job's work, several discounts.

    python -m benchmarks.placement_returns [--sequences N] [--out FILE]

The untrained paper's agent runs 20 episodes of each training sequence, as algorithm 1 does. Of each
sequence: the correlation of the episodes' first returns G_1 with minus their mean slowdown. Near 1,
what REINFORCE learns from is what equation 17 asks for; near 0, it is something else. Returns are of
equation 4, and of equation 4 without equation 6. `ended`: share of the jobs.
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

from mirage.figures.provenance import provenance
from mirage.figures.resample import mean_interval
from mirage.placement.jobs import PlacementJobs, PlacementWorkload
from mirage.placement.paper import PaperNetwork, paper_image
from mirage.placement.setting import PlacementSetting
from mirage.placement.topology import Floats
from mirage.placement.world import PlacementWorld
from mirage.rl.fit import seeded
from mirage.rl.reinforce import discounted_returns

EPISODES, SEED = 20, 9
CASES = (("alone", 150), ("cells", 150), ("cells", 1000))
"""Total work, time steps of an episode."""
DISCOUNTS = (0.9, 0.97, 0.99, 1.0)
Json = dict[str, Any]


@torch.no_grad()
def episodes(
    network: PaperNetwork, setting: PlacementSetting, sequence: PlacementJobs
) -> tuple[dict[str, Floats], PlacementWorld]:
    """Rewards [E, steps] with and without equation 6; the world at the end."""
    world = PlacementWorld(setting.config, [sequence] * EPISODES)
    plain = replace(setting.config, too_few_costs=False)
    rewards: dict[str, list[Floats]] = {"equation 4": [], "without equation 6": []}
    while not world.over.all():
        image = torch.from_numpy(network.image.scaled(network.image.colours(world)))
        logits = network(image)
        choice = (logits - torch.empty_like(logits).exponential_().log()).argmax(dim=-1).numpy()
        world.config = plain
        rewards["without equation 6"].append(world.reward_of(world.assignment(choice)))
        world.config = setting.config
        rewards["equation 4"].append(world.step(choice))
    return {name: np.array(each).T for name, each in rewards.items()}, world


def measure(total_work: Any, steps: int, sequences: int) -> Json:
    setting = PlacementSetting(workload=PlacementWorkload(total_work=total_work), most_steps=steps)
    found: dict[str, list[float]] = {}
    ended = []
    with seeded(SEED):
        network = PaperNetwork(paper_image(setting))
        for sequence in setting.sequences(SEED, "train", sequences):
            rewards, world = episodes(network, setting, sequence)
            slowdown = np.nanmean(world.slowdowns(), axis=1)
            ended.append(float((world.finish_step >= 0).mean()))
            for name, table in rewards.items():
                for discount in DISCOUNTS:
                    first = discounted_returns(table, discount)[:, 0]
                    own = found.setdefault(f"{name}, discount {discount:g}", [])
                    own.append(float(np.corrcoef(first, -slowdown)[0, 1]))
    rows: Json = {
        name: [float(np.mean(values)), *mean_interval(np.array(values))]
        for name, values in found.items()
    }
    return rows | {"ended": float(np.mean(ended))}


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
        ["python", "-m", "benchmarks.placement_returns", "--sequences", str(args.sequences)],
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
