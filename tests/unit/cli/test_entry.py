"""The installed programs, from their first moment on."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
INTERRUPTED_IMPORT = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "argparse" or name.startswith("mirage.chain."):
            raise KeyboardInterrupt
sys.modules.pop("argparse", None)
from {module} import {function}
sys.meta_path.insert(0, Interrupt())
sys.exit({function}())
"""


BUILD = """
import sys
from scikit_build_core.build import build_wheel
print(build_wheel(sys.argv[1], {"build-dir": sys.argv[1] + "/build"}))
"""


def test_a_login_node_without_a_compiler_can_install_from_a_checkout(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path],
        cwd=ROOT,
        env={**os.environ, "CXX": str(tmp_path / "no-compiler")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("-py3-none-any.whl\n"), done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_interrupt_while_a_program_imports_prints_no_traceback(name: str) -> None:
    module, function = SCRIPTS[name].split(":")
    program = INTERRUPTED_IMPORT.format(module=module, function=function)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "name", sorted(SCRIPTS.keys() - {"mirage-sbatch"})
)  # its --version is sbatch's
def test_every_program_starts(name: str) -> None:
    module, function = SCRIPTS[name].split(":")
    program = f"import sys; sys.argv[1:] = ['--version']; from {module} import {function}; sys.exit({function}())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
