"""Lightning in a chain: `lightning_train.py FOLDER --steps N`. Only `one_writer`, `work_goes_on`
and the end are for Mirage.

Lightning's SLURMEnvironment does the rest: on SIGUSR1 it saves `hpc_ckpt_N.ckpt` and has Slurm
requeue the job, and at its start it goes on from the last of them. The requeued link finds that its
successor has taken over, and leaves.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from handover import note, one_writer, work_goes_on, work_is_done

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument(
    "--step-s", type=float, default=0, help="makes each step of this tiny model so much longer"
)
args = parser.parse_args()


class Tiny(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        time.sleep(args.step_s)
        return (self.model(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()

    def on_train_start(self) -> None:
        work_goes_on()  # the checkpoint has been read

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        note(args.folder, f"save-{checkpoint['global_step']}")

    def on_load_checkpoint(self, checkpoint: dict[str, object]) -> None:
        note(args.folder, f"load-{checkpoint['global_step']}")


with one_writer(args.folder):
    pl.seed_everything(1)
    data = torch.utils.data.TensorDataset(torch.randn(512, 8))
    trainer = pl.Trainer(
        max_steps=args.steps,
        accelerator="cpu",
        default_root_dir=args.folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        # your own ModelCheckpoint goes here; Lightning's on SIGUSR1 does not need it
        enable_checkpointing=False,
    )
    trainer.fit(Tiny(), torch.utils.data.DataLoader(data, batch_size=64))
    trainer.save_checkpoint(args.folder / "final.ckpt")
if trainer.global_step >= args.steps:
    work_is_done()
