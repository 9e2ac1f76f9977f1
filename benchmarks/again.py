"""Whether kept results are what the present code gives: a part of each is computed again and compared.

An entry of figures.toml says how, under `again`:

command  computes the part; it writes JSON to `{out}`, or to `{out}/results.json`, or else prints it
of, at   which part of that is compared, and where it is in the kept result, as `tables/0`; left out: the whole
but      keys that may differ, beside those of the run itself (`OF_THE_RUN`)
within   keys that hold a time or a memory, each with the greatest ratio between two runs
ci       true for the cheapest: scripts/test computes them again
slurm    true where the command needs a Slurm: it is run only if MIRAGE_SLURM_DIR names one

All that the command gives must be in the kept result, to the five digits that are kept. Each row of a list must be one
of the kept rows. Other lists must be as the kept ones begin.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TIMEOUT_S = 1800
FIVE_DIGITS = 1e-4
OF_THE_RUN = {"at", "command", "commit", "cpu_s", "date", "machine", "provenance", "wall_s"}


class Failed(RuntimeError):
    """The command gave nothing to compare."""


@dataclass(frozen=True, kw_only=True)
class Again:
    """How a part of a kept result is computed again; the module says what each field means."""

    command: str
    of: str = ""
    at: str = ""
    but: list[str] = field(default_factory=list)
    within: Mapping[str, float] = field(default_factory=dict)
    ci: bool = False
    slurm: bool = False

    def differences(self, fresh: Any, kept: Any, where: str = "") -> Iterator[str]:
        """One line for each value that the kept result does not have in its place."""
        if isinstance(fresh, dict) and isinstance(kept, dict):
            for key, value in fresh.items():
                place = f"{where}[{key}]"
                if key in self.within:
                    yield from _apart(value, kept.get(key), self.within[key], place)
                elif key not in OF_THE_RUN.union(self.but):
                    yield from self.differences(value, kept.get(key), place)
        elif fresh and kept and _are_rows(fresh) and _are_rows(kept):
            for row in fresh:
                yield from min((list(self.differences(row, each, where)) for each in kept), key=len)
        elif not _same(fresh, kept):
            yield f"{where} is {fresh!r}, kept {kept!r}"

    def computed(self, root: Path) -> Any:
        """What the command gives in this checkout.

        Raises Failed.
        """
        with TemporaryDirectory(prefix="again-") as folder:
            out = Path(folder) / "out"
            printed = run(self.command.format(out=out), root)
            written = out / "results.json" if out.is_dir() else out
            fresh = part(json.loads(written.read_text() if written.exists() else printed), self.of)
        if not fresh:
            raise Failed(f"{self.command}: gave nothing")
        return fresh

    def wrong(self, root: Path, file: str) -> list[str]:
        """In what the present code differs from benchmarks/FILE, one line a value."""
        kept = json.loads((root / "benchmarks" / file).read_text(encoding="utf-8"))
        try:
            return list(self.differences(self.computed(root), part(kept, self.at)))
        except (Failed, LookupError, ValueError) as error:
            return [str(error)]


def run(command: str, root: Path) -> str:
    """What it prints; programs of the checkout's environment come first, each with one thread.

    Raises Failed.
    """
    path = f"{root / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            shlex.split(command), cwd=root, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{command}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise Failed(f"{command}: exit {done.returncode}: {said}")
    return done.stdout


def part(record: Any, place: str) -> Any:
    """The value at a path of keys and numbers, as `tables/0`."""
    for key in filter(None, place.split("/")):
        record = record[int(key) if isinstance(record, list) else key]
    return record


def used_cpu_s() -> float:
    """CPU seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _same(fresh: Any, kept: Any) -> bool:
    if isinstance(fresh, list) and isinstance(kept, list):
        return (
            bool(fresh) == bool(kept) and len(fresh) <= len(kept) and all(map(_same, fresh, kept))
        )
    if isinstance(fresh, float) and isinstance(kept, int | float):
        return math.isclose(fresh, kept, rel_tol=FIVE_DIGITS)
    return bool(fresh == kept)


def _apart(fresh: Any, kept: Any, most: float, where: str) -> Iterator[str]:
    if not fresh or not kept or not 1 / most <= fresh / kept <= most:
        yield f"{where} is {fresh}, kept {kept}: more than {most:g} times apart"
