"""A night's forecaster as a model folder, and its nightly training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import About, Recipe
from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.starts.keeping import kept_files
from mirage.provision.starts.queue_log import FEATURES, read_queue_log, with_starts
from mirage.provision.starts.slurms_plan import LIKE, PLAN, TREES
from mirage.provision.starts.wait_trees import SEED, WaitTrees
from mirage.provision.starts.walk import LEVELS, NightlyWaits, Walk

BURSTS, JOBS = "bursts.safetensors", "jobs.safetensors"
PLANNED = "planned-"
"""Before the names of the trees of jobs with a plan."""
METHOD = "wait-trees"
_JUDGED = ("off", "errors", "judged", "covered")


@dataclass(frozen=True, kw_only=True)
class WaitsAbout(About):
    """What a recipe says of it. Times are Unix seconds."""

    SYSTEM: ClassVar[str] = "starts"
    learnt_s: int
    rows: int
    off: Mapping[str, float]
    """This and the next as in `NightlyWaits`."""
    errors: tuple[float, ...]
    judged: int
    covered: float
    planned_off: Mapping[str, float] = field(default_factory=dict)
    """The same of jobs with a plan of Slurm; empty: too few had one."""
    planned_errors: tuple[float, ...] = ()
    planned_judged: int = 0
    planned_covered: float = 0.0

    def problem(self) -> str:
        for errors in (self.errors, self.planned_errors or self.errors):
            if len(errors) != len(LEVELS) or list(errors) != sorted(errors):
                return f"errors: expected {len(LEVELS)} rising numbers, got {errors}"
        rules = {TREES, LIKE, PLAN}
        if not self.off or not {*self.off, *self.planned_off} <= rules or PLAN in self.off:
            return f"off: expected numbers of {', '.join(sorted(rules))}, got {dict(self.off)}"
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
    of_plans = {f"planned_{name}": getattr(planned, name) for name in _JUDGED if planned}
    of_all: dict[str, Any] = {name: getattr(learned, name) for name in _JUDGED}
    about = WaitsAbout(learnt_s=now_s, rows=rows, **of_all, **of_plans)
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
        planned = NightlyWaits(trees=_trees(folder, PLANNED), **_judged(about, "planned_"))
    learned = NightlyWaits(trees=_trees(folder, ""), planned=planned, **_judged(about, ""))
    return learned, about


def _judged(about: WaitsAbout, prefix: str) -> dict[str, Any]:
    return {name: getattr(about, prefix + name) for name in _JUDGED}


def _trees(folder: Path, prefix: str) -> WaitTrees:
    names = (f"{prefix}{BURSTS}", f"{prefix}{JOBS}")
    of_bursts, of_jobs = (BoostedTrees.load(folder / name, len(FEATURES), 1) for name in names)
    return WaitTrees(of_bursts, of_jobs, by_plan=bool(prefix))


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
        return f"{len(log)} rows in {kept}: too few jobs have started yet to learn and to check"
    for folder in folders:
        write_learned(folder, learned, len(log), now_s)
    return f"{len(log)} rows of the queue log: {'. '.join(told(learned))}"


def told(learned: NightlyWaits) -> list[str]:
    """Which rule answers and why, and whether its range has held; one sentence each."""
    nights = {"new jobs": learned, "jobs with a plan of Slurm": learned.planned}
    found = []
    for whose, night in nights.items():
        if night is not None:
            found.append(f"of {whose} {night.rule} answer: {night.words}")
            if night.has_drifted:
                found.append(
                    f"only {night.covered:.0%} of their last days' waits were in the range, so it is"
                    " wider"
                )
    return found
