"""What a decision of each trained method costs: one pair alone, and 500 pairs of a cycle in one
pass. One core.

    OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.decision_cost --samples DIR [--models DIR]
    [--repeat 200]

DIR: of `mirage train --samples`; the states are those of its episodes to judge by. State matrices
and forecasts are ready: what they cost in service is in tick_cost.py and docs/learning.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.model import States
from mirage.provision.learn.samples import Samples
from mirage.provision.policies.learned import chosen

PAIRS = 500


def some_states(samples: Samples, count: int) -> States:
    """Decision points of all episodes, evenly spread, at 1:1."""
    each = [States.of(episode) for episode in samples if len(episode)]
    merged = States(
        np.concatenate([states.matrices[:: len(each)] for states in each]),
        np.concatenate([states.remaining_s[:: len(each)] for states in each]),
        np.concatenate([states.penalties[:: len(each)] for states in each]),
        forecast_s=np.concatenate(
            [states.forecast_s[:: len(each)] for states in each if states.forecast_s is not None]
        ),
    )
    spread = np.linspace(0, len(merged) - 1, count).astype(int).tolist()
    return chosen(merged, spread)


def milliseconds(call: Callable[[], object], repeat: int) -> list[float]:
    call()
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - began))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--models", type=Path, default=Path("models/ls6-a100"))
    parser.add_argument("--repeat", type=int, default=200)
    args = parser.parse_args()
    states = some_states(Samples.load(args.samples / "judged"), PAIRS)
    one = [chosen(states, [row]) for row in range(PAIRS)]
    print(f"{'method':<18} one pair, ms: median, 99 %   {PAIRS} pairs in one pass, ms")
    for folder in sorted(
        path.parent for path in args.models.glob("*/recipe.toml") if path.parent.name in METHODS
    ):
        model = read_model(folder).model
        turn = iter(one * (args.repeat // PAIRS + 1))
        alone = milliseconds(
            lambda model=model, turn=turn: model.assess(next(turn)), args.repeat - 1
        )
        together = milliseconds(lambda model=model: model.assess(states), max(3, args.repeat // 40))
        print(
            f"{folder.name:<18} {median(alone):10.1f} {quantiles(alone, n=100)[98]:8.1f}"
            f" {median(together):14.0f}"
        )


if __name__ == "__main__":
    main()
