"""The installed programs: each imports its own module, and Ctrl-C ends it without a traceback."""

from __future__ import annotations

from slurm_sim.cli.entry import start


def mirage() -> int:
    return start("mirage.cli.main")


def mirage_submit() -> int:
    return start("mirage.cli.submit")


def mirage_sbatch() -> int:
    return start("mirage.cli.sbatch")
