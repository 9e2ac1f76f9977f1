"""From a job history to a model folder: what is drawn, which part is learnt from, what the card
says.

All that decides the result is in a `Course` and ends up in the recipe. Training and validation
months never mix: models learn, stop early and are calibrated within the training part; the card's
figures are of the validation part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.recipe import Recipe
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.augment import Augmentation, Loaded, Resampled, Synthetic
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.drawing import Drawing, Mix
from mirage.provision.learn.episode import AUGMENTED_LEAD_S
from mirage.provision.learn.samples import Samples
from mirage.provision.learn.times import iso
from slurm_sim.envs.observation import Pool

HELD_OUT = 0.2
"""Share of the training part's fortnights by which training stops early."""
LOADS = (0.8, 0.95, 1.1)
"""What the jobs of an augmented week ask for, by what there is: quiet months tell little about a
queue.
"""
LIBRARIES = ("numpy", "scikit-learn", "torch", "xgboost")


KINDS = ("load", "users", "synthetic")
"""Of augmentation: `LOADS`, `Resampled`, `Synthetic`."""


@dataclass(frozen=True)
class Course:
    """What is learnt from."""

    begin_s: int
    until_s: int
    """The training part: no training episode reaches beyond it."""
    end_s: int
    """The validation part goes from `until_s` to here."""
    episodes: int = 684
    validation_episodes: int = 200
    online_episodes: int = 640
    seed: int = 1
    warm_up: WarmUp = WarmUp.TRACE
    partition: str | None = None
    augmented: float = 0.5
    """Share of the episodes with other arrivals; 0: only as logged."""
    kinds: tuple[str, ...] = KINDS[:2]
    """Of augmentation; each load counts as one, and all come equally often."""
    tune: int | None = None
    """Random settings that were tried first."""

    @classmethod
    def of(
        cls,
        background: Background,
        begin_s: int | None,
        until_s: int | None,
        end_s: int | None,
        **more: Any,
    ) -> Course:
        """None: from the first instant with a warm-up, the first 80 % of the time (paper, section
        6), to the end.
        """
        log = background.log
        begin_s = log.first_s + AUGMENTED_LEAD_S if begin_s is None else begin_s
        end_s = log.last_s if end_s is None else min(end_s, log.last_s)
        until_s = log.first_s + int(0.8 * (end_s - log.first_s)) if until_s is None else until_s
        if strange := sorted(set(more.get("kinds", ())) - set(KINDS)):
            raise InputError(
                f"augmentation {strange[0]!r}: there is none of this name; there are"
                f" {', '.join(KINDS)}."
            )
        if not begin_s < until_s <= end_s:
            raise InputError(
                f"{log.source}: the training part would be from {iso(begin_s)} to {iso(until_s)},"
                " but it must end after it begins, and before the last submission,"
                f" {iso(log.last_s)}; choose other times."
            )
        return cls(begin_s, until_s, end_s, **more)

    def training(self, background: Background) -> Drawing:
        """The episodes that are learnt from."""
        return self._drawing(
            background, self.begin_s, self.until_s, self.episodes, self.seed, self.augmented
        )

    def validation(self, background: Background) -> Drawing:
        """Those of the card, as logged."""
        return self._drawing(
            background, self.until_s, self.end_s, self.validation_episodes, self.seed, 0.0
        )

    def online(self, background: Background) -> Drawing:
        """Fresh ones of the training part, for the heads that go on learning online."""
        return self._drawing(
            background,
            self.begin_s,
            self.until_s,
            self.online_episodes,
            self.seed + 1,
            self.augmented,
        )

    def _drawing(
        self,
        background: Background,
        begin_s: int,
        end_s: int,
        count: int,
        seed: int,
        augmented: float,
    ) -> Drawing:
        mix = Mix.of(
            background.log.between(self.begin_s, self.until_s), background.cluster, self.partition
        )
        chosen = self._augmentations(background) if augmented else ()
        return Drawing(
            count, seed, begin_s, end_s, mix, None, self.warm_up, self.partition, chosen, augmented
        )

    def _augmentations(self, background: Background) -> tuple[Augmentation, ...]:
        made: list[Augmentation] = []
        if "load" in self.kinds:
            made += [Loaded(load, len(background.cluster.nodes)) for load in LOADS]
        if "users" in self.kinds:
            made.append(Resampled())
        if "synthetic" in self.kinds:
            if background.trace is None:
                raise InputError("synthetic weeks are fitted to a trace, and there is none at hand")
            made.append(
                Synthetic.fitted(
                    background.trace, background.cluster, self.begin_s, self.until_s, self.seed
                )
            )
        return tuple(made)

    def about(self, background: Background, trace: Path, sha256: str) -> ProvisionAbout:
        """But for the ranges of the inputs."""
        pool = Pool.of(background.cluster, self.partition)
        return ProvisionAbout(
            cluster=background.cluster.name,
            pool=min(pool.partitions),
            nodes=len(pool.nodes),
            trace=trace.name,
            trace_sha256=sha256,
            train_s=(self.begin_s, self.until_s),
            validation_s=(self.until_s, self.end_s),
        )

    def recipe(self, method: str, about: ProvisionAbout, options: Mapping[str, Any]) -> Recipe:
        """But for the weights."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return Recipe(
            system=ProvisionAbout.SYSTEM,
            method=method,
            seed=self.seed,
            options={"course": own | {"warm_up": self.warm_up.value}, **options},
            libraries=library_versions(LIBRARIES),
            about=about.table(),
        )


def held_out(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """(to learn from, to stop early by): whole fortnights of the training part."""
    return samples.hold_out(HELD_OUT, seed)


def plain(options: Any) -> dict[str, Any]:
    """Options for a recipe."""
    return asdict(options)
