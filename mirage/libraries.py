"""Versions of installed packages: what a model or a figure was made with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

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
