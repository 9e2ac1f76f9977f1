"""A night's forecaster as a model folder, and its nightly training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import About, Recipe
from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.starts.keeping import kept_files
from mirage.provision.starts.queue_log import FEATURES, read_queue_log, with_starts
from mirage.provision.starts.wait_trees import SEED, WaitTrees
from mirage.provision.starts.walk import LEVELS, NightlyWaits, Walk

BURSTS, JOBS = "bursts.safetensors", "jobs.safetensors"
PLANNED = "planned-"
"""Before the names of the trees of jobs with a plan."""
METHOD = "wait-trees"


@dataclass(frozen=True, kw_only=True)
class WaitsAbout(About):
    """What a recipe says of it. Times are Unix seconds."""

    SYSTEM: ClassVar[str] = "starts"
    learnt_s: int
    rows: int
    errors: tuple[float, ...]
    """As `NightlyWaits.errors`."""
    judged: int
    covered: float
    """-1: too few waits were judged."""
    planned_errors: tuple[float, ...] = ()
    """The same of jobs with a plan of Slurm; empty: too few had one."""
    planned_judged: int = 0
    planned_covered: float = -1.0

    def problem(self) -> str:
        for errors in (self.errors, self.planned_errors or self.errors):
            if len(errors) != len(LEVELS) or list(errors) != sorted(errors):
                return f"errors: expected {len(LEVELS)} rising numbers, got {errors}"
        return ""


@dataclass(frozen=True)
class _Weights:
    learned: NightlyWaits
    name: str = METHOD

    def write(self, folder: Path) -> None:
        parts = {"": self.learned, PLANNED: self.learned.planned}
        for prefix, learned in parts.items():
            if learned is not None:
                learned.trees.of_bursts.save(folder / f"{prefix}{BURSTS}")
                learned.trees.of_jobs.save(folder / f"{prefix}{JOBS}")


def write_learned(folder: Path, learned: NightlyWaits, rows: int, now_s: int) -> None:
    """Raises InputError, MirageError."""
    planned = learned.planned
    of_plans: dict[str, Any] = {}
    if planned is not None:
        of_plans = {
            "planned_errors": planned.errors,
            "planned_judged": planned.judged,
            "planned_covered": _shown(planned.covered),
        }
    about = WaitsAbout(
        learnt_s=now_s,
        rows=rows,
        errors=learned.errors,
        judged=learned.judged,
        covered=_shown(learned.covered),
        **of_plans,
    )
    libraries = {name: version(name) for name in ("numpy", "xgboost")}
    recipe = Recipe(
        system=WaitsAbout.SYSTEM,
        method=METHOD,
        seed=SEED,
        libraries=libraries,
        about=about.table(),
    )
    card = (
        "# Waits of this site\n\nBoosted trees for the wait, learnt from the service's own queue log"
        f" of {rows} rows (docs/when.md). The range is by the errors of {learned.judged} waits of the"
        " last days.\n"
    )
    write_folder(folder, _Weights(learned), recipe, card)


def read_learned(folder: Path) -> tuple[NightlyWaits, WaitsAbout]:
    """Raises InputError."""
    recipe = check_folder(folder, system=WaitsAbout.SYSTEM, method=METHOD)
    about = WaitsAbout.of(recipe, folder)
    planned = None
    if about.planned_errors:
        planned = NightlyWaits(
            trees=_trees(folder, PLANNED),
            errors=about.planned_errors,
            judged=about.planned_judged,
            covered=_read(about.planned_covered),
        )
    learned = NightlyWaits(
        trees=_trees(folder, ""),
        errors=about.errors,
        judged=about.judged,
        covered=_read(about.covered),
        planned=planned,
    )
    return learned, about


def _trees(folder: Path, prefix: str) -> WaitTrees:
    names = (f"{prefix}{BURSTS}", f"{prefix}{JOBS}")
    of_bursts, of_jobs = (BoostedTrees.load(folder / name, len(FEATURES), 1) for name in names)
    return WaitTrees(of_bursts, of_jobs, by_plan=bool(prefix))


def _shown(covered: float | None) -> float:
    return -1.0 if covered is None else covered


def _read(covered: float) -> float | None:
    return None if covered < 0 else covered


def learn_from_kept(
    kept: Path, folders: Sequence[Path], starts_s: Mapping[str, int], now_s: int
) -> str:
    """Trains on the service's own log, and writes into each folder. ``starts_s``: by `job_key`.

    Returns what happened, in words. Raises MirageError.
    """
    files = kept_files(kept)
    if not files:
        return f"no queue log in {kept} yet"
    log = with_starts(read_queue_log(files), starts_s)
    learned = Walk(log).night(now_s)
    if learned is None:
        return f"{len(log)} rows in {kept}: too few jobs have started yet"
    for folder in folders:
        write_learned(folder, learned, len(log), now_s)
    words = f"learnt the waits of {len(log)} rows of the queue log"
    if learned.has_drifted:
        words += f"; only {learned.covered:.0%} of the last days' waits were in the range, so it is wider"
    return words
