"""The wheel for login nodes: its commands run with the two packages that it requires, and nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REQUIRED = ("h11", "hostlist", "rich", "pygments", "markdown_it", "mdurl")
"""Modules of h11, python-hostlist and rich, and of what rich requires."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files and the required modules."""
    folder = tmp_path_factory.mktemp("client")
    subprocess.run(
        [ROOT / "scripts/build-client", folder / "dist"], check=True, capture_output=True
    )
    (wheel,) = (folder / "dist").glob("mirage_slurm_client-*-py3-none-any.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    for name in REQUIRED:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        origin = origin.parent if origin.name == "__init__.py" else origin
        (site / origin.name).symlink_to(origin)
    return site


def run(client: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs an installed program with the packages of ``client`` only."""
    return run_code(
        client, f"from mirage.cli.entry import {program}; sys.exit({program}())", *words
    )


def run_code(client: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code with the packages of ``client`` only."""
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; {code}", *words],
        capture_output=True,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(client),
            "HOME": os.environ.get("HOME", "/"),
        },
        timeout=240,
        check=False,
    )


def test_is_small(client: Path) -> None:
    (wheel,) = (client.parent / "dist").glob("*.whl")
    assert wheel.stat().st_size < 2_500_000
    assert not [path for path in client.rglob("*") if path.suffix in (".so", ".cpp", ".inl")]


def test_a_chain_is_submitted(client: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --time=10\ntrue\n")
    said = run(client, "mirage_submit", "--segments", "2", "--dry-run", str(script))
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("sbatch --job-name") == 2


def test_verbs_for_chains_need_nothing_else(client: Path) -> None:
    code = "from mirage.cli.main import parser_of; parser_of(*sys.argv[1:])"
    verbs = [
        "status",
        "explain",
        "history",
        "cancel",
        "extend",
        "pause",
        "resume",
        "logs",
        "done",
        "wait",
        "web",
    ]
    said = run_code(client, code, *verbs)
    assert said.returncode == 0, said.stderr


def test_it_brings_the_examples_that_the_pages_name(client: Path) -> None:
    (folder,) = client.glob("*.data/data/share/mirage/examples")
    assert {"handover.py", "train.sbatch", "chat.py"} <= {path.name for path in folder.iterdir()}


def test_its_manual_and_completion_are_of_its_own_verbs(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['numpy'] = None",  # as in a clone without the rest
        f"sys.argv = ['build-manual', '--client', {str(tmp_path)!r}]",
        f"exec(compile(open({str(ROOT / 'scripts/build-manual')!r}).read(), 'build-manual', 'exec'))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = {path.name for path in (tmp_path / "man" / "man1").iterdir()}
    assert {"mirage.1", "mirage-submit.1", "mirage-sbatch.1", "mirage-status.1"} <= pages
    assert "mirage-train.1" not in pages
    assert (tmp_path / "bash-completion" / "completions" / "mirage-submit").is_file()


def test_status_without_slurm_says_so(client: Path) -> None:
    said = run(client, "mirage", "status")
    assert "You have no running chain" in said.stdout
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("verb", ["endpoint", "gateway"])
def test_a_service_has_its_address(client: Path, verb: str) -> None:
    said = run(client, "mirage", verb, "nobodys-service")
    assert said.returncode == 2
    assert "there is no service nobodys-service" in said.stderr


@pytest.mark.parametrize("verb", ["daemon", "agent"])
def test_other_verbs_say_what_to_install(client: Path, verb: str) -> None:
    said = run(client, "mirage", verb, "--help")
    assert said.returncode == 2
    assert said.stderr.strip().endswith(
        "is not installed: mirage-slurm-client serves chains only; install mirage-slurm instead."
    )
    assert len(said.stderr.splitlines()) == 1
