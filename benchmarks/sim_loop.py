"""Where slurmctld's background loop comes within a second, in replays: how much later after each save of its state, and
how far the simulator's account of that (`SAVE_US` and others in slurm_sim/reference.py) is off.

    .venv/bin/python -m benchmarks.sim_loop [FOLDER ...]      (default: the replays of ../shared/gold)
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.sim_common import SHARED, table
from benchmarks.sim_truth import Replay
from slurm_sim.reference import SAVE_S, SAVE_STARTED_US, SAVE_SUBMITTED_US, SAVE_US, TICK_DRIFT_US, TICK_PHASE_US

Floats = NDArray[np.float64]
UNTIL_S = 20_000
"""Of a replay; later errors have added up to chance."""
CHANCE_S = 0.25
"""The mean error of who knows nothing."""


@dataclass(frozen=True)
class Loop:
    """Of a replay, in seconds since slurmctld's start: when main passes were, and windows between two saves."""

    passes: Floats
    submitted: NDArray[np.bool_]
    """By window: whether jobs were submitted in it; `started`: whether any started."""
    started: NDArray[np.bool_]

    @property
    def window(self) -> NDArray[np.int64]:
        """Of each pass. The save comes after what else the loop does in its second."""
        return ((self.passes - 0.99) // SAVE_S).astype(np.int64)

    def steps(self) -> tuple[Floats, NDArray[np.int64]]:
        """By how much the loop came later over one save, without drift, and after which window."""
        within = np.unwrap(self.passes % 1 * 2 * np.pi) / (2 * np.pi)
        later = np.diff(within) - np.diff(self.passes) * TICK_DRIFT_US * 1e-6
        over_one = np.diff(self.window) == 1
        return later[over_one], self.window[:-1][over_one]

    def error_s(self) -> float:
        """Mean distance between where the loop was and where the simulator has it, up to `UNTIL_S`."""
        save_us = SAVE_US + SAVE_SUBMITTED_US * self.submitted + SAVE_STARTED_US * self.started
        saved_us = np.concatenate([[0], np.cumsum(save_us)])
        told = (TICK_PHASE_US + TICK_DRIFT_US * self.passes + saved_us[self.window]) * 1e-6
        off = (self.passes - told + 0.5) % 1 - 0.5
        return float(np.abs(off[self.passes < UNTIL_S]).mean())


def loop_of(folder: Path) -> Loop:
    replay = Replay(folder)
    passes = np.array(replay.moments.main)
    windows = int(passes[-1] // SAVE_S) + 2

    def happened(times_s: Floats) -> NDArray[np.bool_]:
        return np.histogram(times_s[~np.isnan(times_s)], np.arange(windows + 1) * SAVE_S)[0] > 0

    return Loop(passes, happened(replay.column("submit_s")), happened(replay.column("start_s")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="replays with passes.csv.gz")
    folders = parser.parse_args().folders or sorted((SHARED / "gold").iterdir())
    rows: list[list[object]] = []
    for folder in (each for each in folders if (each / "passes.csv.gz").exists()):
        loop = loop_of(folder)
        steps, window = loop.steps()
        submitted, started = loop.submitted[window], loop.started[window]
        kinds = (~submitted & ~started, submitted & ~started, ~submitted & started, submitted & started)
        means = [f"{1000 * steps[kind].mean():.1f} ({kind.sum()})" if kind.any() else "" for kind in kinds]
        rows.append([folder.name, *means, f"{loop.error_s():.3f}"])
    more = f"{SAVE_SUBMITTED_US / 1000:g} more, {SAVE_STARTED_US / 1000:g} more"
    print("How much later the loop comes after a save, in ms (saves), by what was to be saved")
    print(f"(assumed: {SAVE_US / 1000:g}, {more}); mean error up to {UNTIL_S} s, in s (chance: {CHANCE_S})")
    print(table(("replay", "nothing new", "submitted", "started", "both", "error"), rows))
    print(f"mean error: {np.mean([float(str(row[-1])) for row in rows]):.3f}")


if __name__ == "__main__":
    main()
