"""A night's forecaster as a model folder, and its nightly training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import About, Recipe
from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.starts.keeping import kept_files
from mirage.provision.starts.queue_log import FEATURES, read_queue_log, with_starts
from mirage.provision.starts.wait_trees import SEED, WaitTrees
from mirage.provision.starts.walk import LEVELS, LearnedWaits, Walk

BURSTS, JOBS = "bursts.safetensors", "jobs.safetensors"
METHOD = "wait-trees"


@dataclass(frozen=True, kw_only=True)
class WaitsAbout(About):
    """What a recipe says of it. Times are Unix seconds."""

    SYSTEM: ClassVar[str] = "starts"
    learnt_s: int
    rows: int
    errors: tuple[float, ...]
    """As `LearnedWaits.errors`."""
    judged: int
    covered: float
    """-1: too few waits were judged."""

    def problem(self) -> str:
        is_law = len(self.errors) == len(LEVELS) and list(self.errors) == sorted(self.errors)
        return "" if is_law else f"errors: expected {len(LEVELS)} rising numbers, got {self.errors}"


@dataclass(frozen=True)
class _Weights:
    learned: LearnedWaits
    name: str = METHOD

    def write(self, folder: Path) -> None:
        self.learned.trees.of_bursts.save(folder / BURSTS)
        self.learned.trees.of_jobs.save(folder / JOBS)


def write_learned(folder: Path, learned: LearnedWaits, rows: int, now_s: int) -> None:
    """Raises InputError, MirageError."""
    covered = -1.0 if learned.covered is None else learned.covered
    about = WaitsAbout(
        learnt_s=now_s, rows=rows, errors=learned.errors, judged=learned.judged, covered=covered
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


def read_learned(folder: Path) -> tuple[LearnedWaits, WaitsAbout]:
    """Raises InputError."""
    recipe = check_folder(folder, system=WaitsAbout.SYSTEM, method=METHOD)
    about = WaitsAbout.of(recipe, folder)
    parts = [BoostedTrees.load(folder / name, len(FEATURES), 1) for name in (BURSTS, JOBS)]
    covered = None if about.covered < 0 else about.covered
    learned = LearnedWaits(
        trees=WaitTrees(*parts), errors=about.errors, judged=about.judged, covered=covered
    )
    return learned, about


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
