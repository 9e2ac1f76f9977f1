"""The training of the benchmarks of the elastic runtime: a network on scikit-learn's digits, with
dropout. `--width` sets its size, `--pace` makes each micro-shard take longer.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TextIO

import torch
from sklearn.datasets import load_digits

from mirage.elastic.runtime.trainer import Elastic


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="adam")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=128, help="hidden units")
    parser.add_argument("--pace", type=float, default=0.0, help="extra seconds a micro-shard")
    parser.add_argument("--hurry", type=Path, help="file that ends the pace once it exists")
    parser.add_argument("--times", type=Path, help="folder for the time of every step")
    return parser


def digits() -> torch.utils.data.TensorDataset:
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    return torch.utils.data.TensorDataset(images.float() / 16, labels)


def network(width: int) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )


def optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def times_file(times: Path | None) -> TextIO:
    """One file a process; a line a step: its number and when it ended."""
    return Path(os.devnull if times is None else times / f"{os.getpid()}.txt").open(
        "a", buffering=1
    )


def main() -> None:
    given = options().parse_args()
    model = network(given.width)
    elastic = Elastic(
        model,
        optimizer(given.optimizer, model),
        digits(),
        batch_size=96,
        steps=given.steps,
    )

    def paced(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        if given.hurry is None or not given.hurry.exists():
            time.sleep(given.pace)
        return loss(model, batch)

    times = times_file(given.times)
    while elastic.running:
        step = elastic.step(paced)
        if step is not None:
            times.write(f"{step.number} {time.time()}\n")
    print(elastic.end, elastic.step_number, flush=True)


if __name__ == "__main__":
    main()
