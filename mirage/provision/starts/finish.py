"""Where a job finishes first: its forecast start in a partition, and how fast it runs there."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml

SLOWEST, FASTEST = 0.001, 1000.0
SOON_S = 600
"""A wait so short counts as none."""


@dataclass(frozen=True)
class Speeds:
    """How fast jobs run, by partition or GPU type, in one unit. What is not there has speed 1."""

    of_name: Mapping[str, float]

    def of(self, partition: str, gpu_types: Iterable[str] = ()) -> float:
        """Of a partition whose nodes have these types: its own, else that of its slowest type."""
        if partition in self.of_name:
            return self.of_name[partition]
        known = [self.of_name[kind] for kind in gpu_types if kind in self.of_name]
        return min(known, default=1.0)


ALIKE = Speeds({})


def read_speeds(path: Path) -> Speeds:
    """From a TOML file, `a100 = 1.0` a line. Raises InputError."""
    try:
        tree = parse_toml(read_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"{path}: no speeds can be read ({error}); give lines as a100 = 1.0."
        ) from error
    for name, value in tree.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not SLOWEST <= value <= FASTEST:
            raise InputError(
                f"{path}: {name}: expected a number from {SLOWEST} to {FASTEST:g}, got {value!r}."
            )
    return Speeds({name: float(value) for name, value in tree.items()})


@dataclass(frozen=True, kw_only=True)
class FinishForecast:
    """One place of a job."""

    partition: str
    wait_s: tuple[float, float, float]
    """p10, p50, p90, from when it is needed on."""
    run_s: float

    @property
    def finish_s(self) -> tuple[float, float, float]:
        low_s, middle_s, high_s = self.wait_s
        return low_s + self.run_s, middle_s + self.run_s, high_s + self.run_s


def worthwhile(found: Sequence[FinishForecast]) -> list[FinishForecast]:
    """Without those in which the job would finish later, if it started there at once, than in one where
    it starts in time even by the late end (p90) of its forecast. In the rest Slurm may start it where
    it first can.
    """
    in_time = [each for each in found if each.wait_s[2] <= SOON_S]
    best_s = min((each.finish_s[2] for each in in_time), default=math.inf)
    return [each for each in found if each.run_s <= best_s]
