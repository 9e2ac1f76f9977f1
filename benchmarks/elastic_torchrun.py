"""The training of elastic_training.py by DistributedDataParallel under torchrun, for comparison: it
goes on from `--checkpoint`, and writes it and ends once `--stop` exists.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.elastic_training import digits, loss, network, optimizer, options, times_file

BATCH = 96


def main() -> None:
    parser = options()
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network(given.width))
    updates = optimizer(given.optimizer, model)
    first = _load(given.checkpoint, model, updates)
    data, times = digits(), times_file(given.times if rank == 0 else None)
    generator = torch.Generator()
    for step in range(first, given.steps):
        generator.manual_seed(step)
        indices = torch.randperm(len(data), generator=generator)[:BATCH]
        batch = torch.utils.data.default_collate([data[i] for i in indices[rank::ranks].tolist()])
        updates.zero_grad()
        loss(model, batch).backward()
        updates.step()
        times.write(f"{step} {time.time()}\n")
        stop = torch.tensor(given.stop.exists())
        dist.broadcast(stop, 0)
        if stop:
            if rank == 0:
                _save(given.checkpoint, model, updates, step + 1)
            break
    dist.barrier()
    dist.destroy_process_group()


def _save(path: Path, model: Any, updates: Any, step: int) -> None:
    record = {"model": model.state_dict(), "optimizer": updates.state_dict(), "step": step}
    torch.save(record, path)


def _load(path: Path, model: Any, updates: Any) -> int:
    if not path.exists():
        return 0
    record = torch.load(path, weights_only=True)
    model.load_state_dict(record["model"])
    updates.load_state_dict(record["optimizer"])
    return int(record["step"])


if __name__ == "__main__":
    main()
