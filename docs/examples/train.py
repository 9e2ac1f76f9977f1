"""PyTorch in a chain: `train.py FOLDER --steps N`. Whatever its links, the result is that of one
uninterrupted run.

For that the checkpoint has everything that the next step depends on: weights, optimizer, random
numbers, step. On GPUs add `torch.cuda.get_rng_state_all()` and
`torch.use_deterministic_algorithms(True)`.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import Any

import torch
from handover import StopAsked, load, one_writer, save, work_goes_on, work_is_done

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
parser.add_argument(
    "--step-s", type=float, default=0, help="makes each step of this tiny model so much longer"
)
args = parser.parse_args()
checkpoint = args.folder / "checkpoint.pt"

stop = StopAsked()
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def state(step: int) -> bytes:
    """All that the next step depends on."""
    file = io.BytesIO()
    random = torch.get_rng_state()
    content = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": random,
    }
    torch.save(content, file)
    return file.getvalue()


def resume() -> int:
    """The step to go on from."""
    payload = load(checkpoint)
    if payload is None:
        return 0
    content: dict[str, Any] = torch.load(io.BytesIO(payload), weights_only=True)
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    torch.set_rng_state(content["random"])
    return int(content["step"])


with one_writer(args.folder):
    step = resume()
    work_goes_on()
    print(f"from step {step}", flush=True)
    while step < args.steps and not stop:
        x = torch.randn(64, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(args.step_s)
        if step % args.every == 0:
            save(checkpoint, state(step))
    save(checkpoint, state(step))
    print(f"saved at step {step}", flush=True)
if step >= args.steps:
    work_is_done()
