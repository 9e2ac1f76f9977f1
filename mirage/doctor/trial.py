"""Checks what a chain needs of the compute nodes, by a real job: the chains' folder, and Slurm's
commands.

A node may lack the home directory, so the job's answer is its exit code: one bit for each thing
that is missing. The job writes nothing but one small file into the folder, which is removed here.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mirage.doctor.finding import Diagnosis, error, ok, warning
from mirage.domain import Job, JobState
from mirage.errors import ClusterError, InputError
from mirage.ports import Cluster

PATIENCE_S = 300
"""A job that has not ended after this long is cancelled."""
POLL_S = 2
NO_FOLDER, NO_SBATCH, NO_ANSWER, NO_SUBMISSION = 1, 2, 4, 8
"""Bits of the job's exit code."""
SCRIPT = """#!/bin/sh
#SBATCH --job-name=mirage-doctor --nodes=1 --time=2 --output=/dev/null --chdir=/
folder={folder} commands={commands} missing=0
PATH="$PATH:$commands"
if ! uname -n >"$folder/.doctor.$SLURM_JOB_ID"; then missing=$((missing + {no_folder})); fi
if ! command -v sbatch >/dev/null || ! command -v scancel >/dev/null; then missing=$((missing + {no_sbatch})); fi
if ! squeue -h -j "$SLURM_JOB_ID" -o %A >/dev/null 2>&1; then missing=$((missing + {no_answer})); fi
[ "$missing" -eq 0 ] || exit "$missing"
sbatch --test-only {options} "$0" 2>>"$folder/.doctor.$SLURM_JOB_ID" || exit {no_submission}
"""
"""`commands`: the folder of sbatch here, which the links of a chain look in, too."""


@dataclass(frozen=True)
class Trial:
    """What the job found."""

    node: str
    missing: int
    """Sum of `NO_FOLDER`, `NO_SBATCH`, `NO_ANSWER`, `NO_SUBMISSION`."""
    is_shared: bool
    """The file that the job wrote is here, too."""
    words: str = ""
    """What `sbatch --test-only` said there."""


def try_job(
    cluster: Cluster,
    folder: Path,
    commands: str,
    options: Sequence[str],
    *,
    patience_s: float = PATIENCE_S,
    poll_s: float = POLL_S,
    now_s: Callable[[], float] = time.monotonic,
) -> Trial:
    """Submits the job with these sbatch options, and waits for its end.

    Raises InputError if it does not end in time, or Slurm ends it; ClusterError if sbatch refuses
    it.
    """
    bits = {"no_folder": NO_FOLDER, "no_sbatch": NO_SBATCH, "no_answer": NO_ANSWER}
    text = SCRIPT.format(
        folder=shlex.quote(str(folder)),
        commands=shlex.quote(commands),
        options=shlex.join(options),
        no_submission=NO_SUBMISSION,
        **bits,
    )
    with TemporaryDirectory(prefix="mirage-doctor-") as made:
        script = Path(made) / "doctor.sh"
        script.write_text(text)
        job_id = cluster.submit(options, str(script))
    job = _await_end(cluster, job_id, patience_s=patience_s, poll_s=poll_s, now_s=now_s)
    mark = folder / f".doctor.{job_id}"
    is_shared = _appears(mark)
    node, _, words = mark.read_text(errors="replace").partition("\n") if is_shared else ("", "", "")
    mark.unlink(missing_ok=True)
    return Trial(node or "the compute node", _missing(job), is_shared, " ".join(words.split()))


def _await_end(
    cluster: Cluster,
    job_id: int,
    *,
    patience_s: float,
    poll_s: float,
    now_s: Callable[[], float],
) -> Job:
    """The job as it ended. Cancels it if it does not end in time, or this process is interrupted."""
    until_s = now_s() + patience_s
    try:
        while (job := cluster.jobs([job_id]).get(job_id)) is None or not job.state.is_over:
            if now_s() >= until_s:
                state = (
                    f"{job.state.value}, {job.reason or 'no reason'}" if job else "not in the queue"
                )
                raise InputError(
                    f"job {job_id} has not ended after {patience_s:.0f} s ({state}); it is"
                    ' cancelled. Try options that start at once, as in --try-job "-p debug".'
                )
            time.sleep(poll_s)
    except BaseException:
        with suppress(ClusterError):
            cluster.cancel([job_id])
        raise
    return job


def _appears(path: Path) -> bool:
    """A network file system may show a new file some seconds late."""
    for _ in range(10):
        if path.exists():
            return True
        time.sleep(0.5)
    return False


def _missing(job: Job) -> int:
    if job.state is JobState.COMPLETED:
        return 0
    if job.state is JobState.FAILED and 0 < job.exit_code < 2 * NO_SUBMISSION:
        return job.exit_code
    raise InputError(
        f"job {job.job_id} ended with {job.state.value}, exit code {job.exit_code}, before it could"
        f" answer; `sacct -j {job.job_id}` says more."
    )


def check_trial(trial: Trial, folder: Path) -> Iterator[Diagnosis]:
    """What follows from it for chains."""
    yield _check_folder(trial, folder)
    yield _check_sbatch(trial)


def _check_folder(trial: Trial, folder: Path) -> Diagnosis:
    if trial.missing & NO_FOLDER:
        return error(
            "chain-folder",
            f"{folder} can't be written on {trial.node}",
            "Every link of a chain keeps its records there, so none would start its work.",
            "Set MIRAGE_HOME to a folder that all nodes share.",
        )
    if not trial.is_shared:
        return error(
            "chain-folder",
            f"{folder} on the compute node is another folder than here",
            "The links of a chain and the commands on this machine would not see each other's"
            " records.",
            "Set MIRAGE_HOME to a folder that all nodes share.",
        )
    return ok("chain-folder", f"{folder} is shared with {trial.node}")


def _check_sbatch(trial: Trial) -> Diagnosis:
    if trial.missing & NO_SBATCH:
        return warning(
            "node-sbatch",
            f"{trial.node} lacks sbatch or scancel",
            "A running link can't queue the next one, nor cancel what is left.",
            "Start chains with --up-front, or install Slurm's client commands on compute nodes.",
        )
    if trial.missing & NO_ANSWER:
        return warning(
            "node-sbatch",
            f"squeue gets no answer on {trial.node}",
            "A running link can't queue the next one, nor see whether its predecessor is gone.",
            "Let compute nodes reach slurmctld, and check munge there.",
        )
    if trial.missing & NO_SUBMISSION:
        return warning(
            "node-sbatch",
            f"jobs on {trial.node} may not submit jobs: {trial.words or 'sbatch failed'}",
            "A running link can't queue the next one; its chain stops, until somebody queues it.",
            "Start chains with --up-front, or run `mirage agent` where jobs may be submitted.",
        )
    return ok("node-sbatch", f"Slurm's commands work on {trial.node}")
