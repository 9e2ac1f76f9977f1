"""What a training is to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from mirage.provision.learn.background import WarmUp


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What to train, and on what. Times are Unix seconds."""

    trace: Path
    """The job history (docs/traces.md)."""
    cluster: Path
    """Its cluster: .toml, otherwise a slurm.conf (docs/clusters.md)."""
    methods: tuple[str, ...]
    """Names in `METHODS`, or `all`."""
    out: Path
    """The model folder; with several methods the folder of their folders."""
    begin_s: int | None = None
    """Begin of the training part; None: a week after the first submission."""
    until_s: int | None = None
    """End of the training part; None: after 80 % of the time."""
    end_s: int | None = None
    """End of the validation part; None: the last submission."""
    partition: str | None = None
    """Of the pairs; None: the one with most of the history's node-hours."""
    episodes: int = 684
    """Training episodes."""
    validation_episodes: int = 200
    """Episodes of the validation part, for the card's figures."""
    online_episodes: int = 640
    """Further training episodes, for methods with a head that learns online."""
    augmented: float = 0.5
    """Share of the training episodes with arrivals other than the logged ones."""
    augmentations: tuple[str, ...] = ("load", "users")
    """Kinds of other arrivals, of `course.AUGMENTATIONS`."""
    warm_up: WarmUp = WarmUp.TRACE
    """The queue in which a simulation begins."""
    samples: Path | None = None
    """Folder that keeps the episodes, so that a later call continues; None: a temporary one."""
    settings: tuple[str, ...] = ()
    """Options of each method, as NAME=VALUE."""
    tune: int | None = None
    """Random settings to try first; None: none."""
    at_most_s: float | None = None
    """Later no further episode is simulated and no further round of a network trained; the methods
    learn from what there is. Networks get half of it. None: no bound.
    """
    seed: int = 1
    """Of everything that is drawn."""
    fit_seed: int | None = None
    """Of the training alone, on the same episodes; None: `seed`."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that simulate. The result does not depend on it."""
