"""submitit in a chain: `submitit_chain.py FOLDER --steps N` submits a function whose run is cut into
links, waits until the chain is over, and prints the function's result.

Two things differ from plain submitit. The executor submits by `mirage-sbatch`, and every link takes
the pickled function of the first one and writes its result. The function saves on SIGUSR1 and
leaves without a result (docs/workflows.md).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import submitit
from handover import StopAsked, load, one_writer, save, work_goes_on, work_is_done

FIRST = 'first=$(cat "$MIRAGE_CHAIN_DIR/queued.1")'


class ChainExecutor(submitit.SlurmExecutor):
    """Each function becomes a chain, by the #MIRAGE line of `setup`."""

    def __init__(self, folder: Path) -> None:
        # The job's id names the pickled function and its result: that of link 1 for all links.
        super().__init__(folder, python=f'env SLURM_JOB_ID="$first" {sys.executable}')

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["mirage-sbatch", str(submission_file_path)]


def train(folder: Path, steps: int, step_s: float) -> int:
    """Counts to ``steps``, through however many links."""
    stop, checkpoint = StopAsked(), folder / "step"
    with one_writer(folder):
        step = int(load(checkpoint) or b"0")
        work_goes_on()
        while step < steps and not stop:
            time.sleep(step_s)
            step += 1
        save(checkpoint, str(step).encode())
    if step < steps:
        os._exit(0)  # submitit would take a return, or an exception, for the function's result
    work_is_done()
    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-s", type=float, default=0.5)
    parser.add_argument("--segments", type=int, default=5)
    parser.add_argument("--minutes", type=int, default=60, help="time limit of a link")
    args = parser.parse_args()
    executor = ChainExecutor(args.folder / "submitit")
    executor.update_parameters(
        time=args.minutes,
        setup=[
            f"#MIRAGE --segments={args.segments} --mode=train",
            FIRST,
            f"export PYTHONPATH={Path(__file__).absolute().parent}:$PYTHONPATH",  # of handover.py
        ],
        additional_parameters={"signal": "USR1@60"},  # in place of submitit's USR2
    )
    job = executor.submit(train, args.folder.absolute(), args.steps, args.step_s)
    print(f"job {job.job_id} is the first link", flush=True)
    subprocess.run(["mirage", "wait", job.job_id], check=True)
    print(f"result: {job.result()}")
