"""Installed packages: what a model or a figure was made with, and what installs one that is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version

import mirage


def library_versions(names: Sequence[str]) -> dict[str, str]:
    """Name -> version of Mirage and of each package of ``names`` that is installed."""
    found = {"mirage-slurm": mirage.__version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def missing_package(name: str) -> str:
    """What is missing and what installs it, in one line. ``name``: of the module, as imported."""
    package = {"sklearn": "scikit-learn", "zmq": "pyzmq"}.get(name, name)
    says = f"the Python package {package} is not installed"
    try:
        lines = requires("mirage-slurm") or []
    except PackageNotFoundError:
        return f"{says}: mirage-slurm-client serves chains only; install mirage-slurm instead."
    needed = re.compile(rf"{re.escape(package)}\b.*extra == [\"']([a-z-]+)[\"']")
    extras = [found[1] for line in lines if (found := needed.match(line))]
    return f"{says}: pip install 'mirage-slurm{f'[{extras[0]}]' if extras else ''}'"
