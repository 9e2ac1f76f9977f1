"""An installation without a compiler: chains lack nothing, and what simulates says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SLURM_SIM, MIRAGE = "slurm_sim.cli.main", "mirage.cli.main"
NO_CORE = "import sys; sys.modules['slurm_sim.core._core'] = None\n"
MISSING = (
    "the simulator is not installed: it is compiled, and there was no C++20 compiler. Install a wheel"
    " or a package of Mirage, or install again with a compiler (docs/install.md).\n"
)


def without_core(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command where no Python, nor one that it starts, can import the core."""
    (folder / "sitecustomize.py").write_text(NO_CORE)
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (SLURM_SIM, ["run", "--jobs", "jobs.csv", "--nodes", "4", "--out", "out.csv"]),
        (MIRAGE, ["demo", "--out", "out"]),
    ],
    ids=["run", "demo"],
)
def test_what_simulates_says_what_is_missing(module: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,nodes,timelimit_min,runtime_s\n1,0,1,9,5\n")
    done = without_core("-m", module, *words, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(MISSING)
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.glob("out/*"), *tmp_path.glob("out.csv")]


def test_all_commands_start(tmp_path: Path) -> None:
    """Those of chains, and of others what needs no simulator."""
    program = "from mirage.cli.main import VERBS, parser_of; parser_of(*VERBS)"
    done = without_core("-c", program, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
