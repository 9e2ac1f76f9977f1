"""An installation without the C++ core: the reference takes its place, with a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mirage.provision.env import SubmitEnv, Task
from mirage.provision.env.example import example_starts
from slurm_sim import JobSpec, whole_nodes

ROOT = Path(__file__).parents[3]
NO_CORE = "import sys; sys.modules['slurm_sim.core._core'] = None\n"
JOBS = [
    JobSpec(1 + number % 3, 900, 200 + 37 * number, submit_s=20 * number) for number in range(12)
]
HEADER = "job_id,submit_s,nodes,timelimit_min,runtime_s"
TASK = Task(history=2, step_s=3600)


def without_core(code: str, *words: str, folder: Path = ROOT) -> tuple[list[str], list[str]]:
    """Lines on stdout and stderr of a Python in which the core can't be imported."""
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + NO_CORE + code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def episode() -> list[object]:
    """What a few steps of an environment show."""
    env = SubmitEnv(example_starts(count=2, task=TASK), TASK)
    seen: list[object] = [float(env.reset(seed=5)[0].sum())]
    over = False
    while not over:
        rows, reward, terminated, truncated, info = env.step(np.int64(len(seen) % 9 == 8))
        seen += [float(rows.sum()), reward, info["time_s"]]
        over = terminated or truncated
    return seen


def test_the_simulator_is_the_reference_and_warns() -> None:
    out, err = without_core(
        "import slurm_sim\n"
        "from tests.unit.slurm_sim.test_without_core import JOBS, whole_nodes\n"
        "sim = slurm_sim.Simulator(whole_nodes(4), JOBS)\n"
        "sim.run()\n"
        "print(type(sim).__module__)\n"
        "print([(job.job_id, job.start_s) for job in sim.finished()])\n"
    )
    simulator = pytest.importorskip("slurm_sim.simulator").Simulator(whole_nodes(4), JOBS)
    simulator.run()
    starts = [(job.job_id, job.start_s) for job in simulator.finished()]
    assert out == ["slurm_sim.reference.simulator", str(starts)]
    assert any(
        "RuntimeWarning: slurm_sim runs in slow Python: its C++ core is missing" in line
        for line in err
    )


def test_an_environment_shows_the_same() -> None:
    out, _ = without_core(
        "from tests.unit.slurm_sim.test_without_core import episode\nprint(episode())\n"
    )
    assert out == [str(episode())]


def test_the_commands_warn_and_do_the_same(tmp_path: Path) -> None:
    rows = "".join(
        f"{number},{7 * number},{1 + number % 4},20,{99 * number}\n" for number in range(1, 12)
    )
    (tmp_path / "jobs.csv").write_text(f"{HEADER}\n{rows}")
    main = "from slurm_sim.cli.main import main; sys.exit(main(sys.argv[1:]))"
    warning = (
        "warning: the simulator's core is not installed: this is the reference, 150 to some"
        " thousand times slower"
    )
    words = ("--jobs", "jobs.csv", "--nodes", "4")
    _, err = without_core(main, "run", *words, "--out", "slow.csv", folder=tmp_path)
    assert " ".join(err).count(warning) == 1
    _, err = without_core(main, "run", *words, "--out", "asked.csv", "--reference", folder=tmp_path)
    assert "not installed" not in " ".join(err)
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{main}",
            "run",
            *words,
            "--out",
            "r.csv",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "slow.csv").read_bytes() == (tmp_path / "r.csv").read_bytes()
    for more in ((), ("--json",)):
        out, err = without_core(main, "bench", *words, "--repeat", "1", *more, folder=tmp_path)
        assert " ".join(err).count(warning) == 1
        assert "reference" in " ".join(out)
