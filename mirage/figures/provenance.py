"""Where figures come from: enough to make them again."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mirage
from mirage.libraries import library_versions

LIBRARIES = ("numpy", "torch", "xgboost", "scikit-learn")
"""Whose version can change a result."""
GIT_PATIENCE_S = 20


def provenance(
    command: Sequence[str],
    *,
    inputs: Mapping[str, Mapping[str, Any]],
    split: Mapping[str, Any],
    seed: int,
    started_s: float,
    wall_s: float,
) -> dict[str, Any]:
    """``inputs``: of each `file_record`. ``split``: which data were trained on, which evaluated.

    Beside them: versions, machine, commit of a checkout (None: there is none), and when it ran.
    """
    return {
        **{name: dict(record) for name, record in inputs.items()},
        "command": shlex.join(command),
        "seed": seed,
        "split": dict(split),
        "versions": {"python": platform.python_version(), **library_versions(LIBRARIES)},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "cpu": _cpu(), "cores": os.cpu_count()},
        "started": datetime.fromtimestamp(started_s, UTC).isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 1),
    }


def file_record(path: Path, **facts: Any) -> dict[str, Any]:
    """Name and SHA-256 of an input file, and what else there is to say of it. Raises OSError."""
    return {"file": path.name, "sha256": sha256(path), **facts}


def sha256(path: Path) -> str:
    """Of a file. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _commit() -> str | None:
    """Of the checkout that this runs from, with `-dirty` if files in it were changed."""
    checkout = Path(mirage.__file__).resolve().parents[1]
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        return None
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=GIT_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
