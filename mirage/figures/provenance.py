"""Where figures come from: enough to make them again."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import mirage

LIBRARIES = ("numpy", "torch", "xgboost", "scikit-learn")
"""Whose version can change a result."""


def provenance(
    trace: Path, jobs: int, cluster: Path, command: Sequence[str], started_s: float, wall_s: float
) -> dict[str, Any]:
    """Input files with their SHA-256, versions, machine, command line, and when it ran for how
    long.
    """
    return {
        "trace": {"file": trace.name, "sha256": sha256(trace), "jobs": jobs},
        "cluster": {"file": cluster.name, "sha256": sha256(cluster)},
        "command": shlex.join(command),
        "versions": {
            "mirage": mirage.__version__,
            "python": platform.python_version(),
            **_libraries(),
        },
        "machine": {"system": platform.platform(), "cpu": _cpu(), "cores": os.cpu_count()},
        "started": datetime.fromtimestamp(started_s, UTC).isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 1),
    }


def sha256(path: Path) -> str:
    """Of a file. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
