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
from typing import TYPE_CHECKING, Any

from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.recipe import Recipe
from mirage.provision.env.observation import Pool
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.augment import Augmentation, LoadTarget, ResampledUsers, Synthetic
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.drawing import Drawing, Mix
from mirage.provision.learn.episode import AUGMENTED_LEAD_S
from mirage.provision.learn.samples import Samples
from mirage.provision.learn.times import iso

if TYPE_CHECKING:
    from mirage.provision.learn.plan import TrainingPlan

HELD_OUT = 0.2
"""Share of the training part's fortnights by which training stops early."""
LOADS = (0.8, 0.95, 1.1)
"""What the jobs of an augmented week ask for, by what there is: quiet months tell little about a
queue.
"""
LIBRARIES = ("numpy", "scikit-learn", "torch", "xgboost")


AUGMENTATIONS = ("load", "users", "synthetic")
"""Kinds of other arrivals: `LOADS`, `ResampledUsers`, `Synthetic`."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """The parts and episodes of a training, as the recipe records them. Times are Unix seconds."""

    begin_s: int
    """Begin of the training part."""
    until_s: int
    """End of the training part, which no training episode reaches beyond; begin of the validation
    part.
    """
    end_s: int
    """End of the validation part."""
    episodes: int
    validation_episodes: int
    online_episodes: int
    seed: int
    warm_up: WarmUp
    partition: str | None
    augmented: float
    """Share of the training episodes with other arrivals; 0: only as logged."""
    kinds: tuple[str, ...]
    """Of `AUGMENTATIONS`; each load counts as one, and all come equally often."""
    tune: int | None = None
    """Random settings that were tried first."""
    fit_seed: int | None = None
    """Of the training alone, if it is not `seed`."""

    @classmethod
    def of(cls, background: Background, plan: TrainingPlan, partition: str | None = None) -> Course:
        """The plan on this job history. Without times: from the first instant with a warm-up, the
        first 80 % of the time (paper, section 6), to the end. Raises InputError.
        """
        log = background.log
        begin_s = log.first_s + AUGMENTED_LEAD_S if plan.begin_s is None else plan.begin_s
        end_s = log.last_s if plan.end_s is None else min(plan.end_s, log.last_s)
        share_s = log.first_s + int(0.8 * (end_s - log.first_s))
        until_s = share_s if plan.until_s is None else plan.until_s
        if strange := sorted(set(plan.augmentations) - set(AUGMENTATIONS)):
            raise InputError(
                f"augmentation {strange[0]!r}: there is none of this name; there are"
                f" {', '.join(AUGMENTATIONS)}."
            )
        if not begin_s < until_s <= end_s:
            raise InputError(
                f"{log.source}: the training part would be from {iso(begin_s)} to {iso(until_s)},"
                " but it must end after it begins, and before the last submission,"
                f" {iso(log.last_s)}; choose other times."
            )
        return cls(
            begin_s=begin_s,
            until_s=until_s,
            end_s=end_s,
            episodes=plan.episodes,
            validation_episodes=plan.validation_episodes,
            online_episodes=plan.online_episodes,
            seed=plan.seed,
            warm_up=plan.warm_up,
            partition=plan.partition if partition is None else partition,
            augmented=plan.augmented,
            kinds=plan.augmentations,
            tune=plan.tune,
            fit_seed=plan.fit_seed,
        )

    @property
    def training_seed(self) -> int:
        return self.seed if self.fit_seed is None else self.fit_seed

    def training(self, background: Background) -> Drawing:
        """The training episodes."""
        return self._drawing(
            background,
            begin_s=self.begin_s,
            end_s=self.until_s,
            count=self.episodes,
            seed=self.seed,
            augmented=self.augmented,
        )

    def validation(self, background: Background) -> Drawing:
        """Those of the card, as logged."""
        return self._drawing(
            background,
            begin_s=self.until_s,
            end_s=self.end_s,
            count=self.validation_episodes,
            seed=self.seed,
            augmented=0.0,
        )

    def online(self, background: Background) -> Drawing:
        """Further ones of the training part, for heads that learn online."""
        return self._drawing(
            background,
            begin_s=self.begin_s,
            end_s=self.until_s,
            count=self.online_episodes,
            seed=self.seed + 1,
            augmented=self.augmented,
        )

    def _drawing(
        self,
        background: Background,
        *,
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
            count=count,
            seed=seed,
            begin_s=begin_s,
            end_s=end_s,
            pairs=mix,
            warm_up=self.warm_up,
            partition=self.partition,
            augmentations=chosen,
            augmented=augmented,
        )

    def _augmentations(self, background: Background) -> tuple[Augmentation, ...]:
        made: list[Augmentation] = []
        if "load" in self.kinds:
            made += [LoadTarget(load, len(background.cluster.nodes)) for load in LOADS]
        if "users" in self.kinds:
            made.append(ResampledUsers())
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
