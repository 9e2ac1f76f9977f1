"""The inner borders of slurm_sim: no file uses another's names that begin with an underscore, and
what both engines share knows neither of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_sim

ROOT = Path(slurm_sim.__file__).parent
REFERENCE = Path(__file__).parents[2] / "reference"
MODULES = sorted([*ROOT.rglob("*.py"), *REFERENCE.glob("*.py")])
OF_PYTHON = {"_asdict", "_fields", "_make", "_replace", "_ArgumentGroup"}
"""Of NamedTuple; the type of a group of options, for which argparse has no other name."""
PRIVATE_MODULES = {"_core"}
"""The compiled core, which slurm_sim/core/_core.pyi describes."""
SHARED = (
    *("admission", "config", "constants", "copies", "dependency", "jobs", "picking", "ranges"),
    *("resources", "state", "table"),
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def foreign_names(source: str) -> Iterator[str]:
    """`LINE NAME` of each private name that the file uses, and does not define."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    # A class may use the private names of another object of its own.
    own |= OF_PYTHON | {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for name in (alias.name for alias in node.names):
                if is_private(name) and name not in PRIVATE_MODULES:
                    yield f"{node.lineno} {name}"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield f"{node.lineno} {ast.unparse(node)}"


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_file_uses_the_private_names_of_another() -> None:
    found = [
        f"{path}:{place}"
        for path in MODULES
        for place in foreign_names(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = other._name", ["1 other._name"]),
        ("x = self.part._name", ["1 self.part._name"]),
        ("from slurm_sim.config import _check", ["1 _check"]),
        ("class A:\n def f(self, a):\n  return self._b, a._b, a._replace()", []),
        ("from slurm_sim.core import _core", []),
    ],
)
def test_such_names_are_found(source: str, found: list[str]) -> None:
    assert list(foreign_names(source)) == found


@pytest.mark.parametrize("name", SHARED)
def test_what_the_engines_share_imports_none_of_them(name: str) -> None:
    tree = ast.parse((ROOT / f"{name}.py").read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    engines = ("slurm_sim.core", "tests", "slurm_sim.simulator")
    assert not [module for module in imported if module.startswith(engines)]
