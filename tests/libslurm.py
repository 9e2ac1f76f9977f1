"""Slurm's own library, asked for its words: the machine's, and those that scripts/slurm-release
keeps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CACHE = Path("/var/cache/mirage-slurm")


@dataclass(frozen=True)
class Release:
    name: str
    library: Path
    loader: tuple[str, ...] = ()
    """The release's own loader and libraries: it may need a newer libc than the machine's."""

    def __str__(self) -> str:
        return self.name

    def ask(self, program: str) -> Any:
        """Runs a Python program that is given the library's path; what it prints is JSON."""
        if not self.library.exists():
            pytest.skip(f"Slurm's library is not here: {self.library}")
        command = [*self.loader, sys.executable, "-I", "-c", program, str(self.library)]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        )


def _own() -> Release:
    found = sorted(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"))
    return Release("machine", found[0] if found else Path("/usr/lib/slurm-wlm/libslurmfull.so"))


def _cached(name: str) -> Release:
    folder = CACHE / name / "lib"
    loader = next(iter(sorted(folder.glob("ld-linux*.so.*"))), folder / "ld-linux.so")
    paths = f"{folder}:{folder / 'slurm-wlm'}"
    return Release(
        name, folder / "slurm-wlm" / "libslurmfull.so", (str(loader), "--library-path", paths)
    )


RELEASES = [_own(), _cached("24.11"), _cached("26.05")]
