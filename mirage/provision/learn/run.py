"""`train`: from a job history to model folders with `recipe.toml`, weights and `card.md`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mirage.errors import InputError
from mirage.figures.provenance import sha256
from mirage.models.folder import check_replaceable, write_folder
from mirage.models.recipe import Recipe
from mirage.provision.learn.background import Background
from mirage.provision.learn.card import card, in_a_phrase
from mirage.provision.learn.course import Course, held_out, plain
from mirage.provision.learn.forecast import ForecastingModel
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model
from mirage.provision.learn.plan import TrainingPlan
from mirage.provision.learn.ranges import ranges_of
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.provision.learn.samples import Samples, collect
from mirage.rl.budget import at_most
from mirage.rl.options import with_settings

ALL = "all"
"""As a method: every method of which `Method.in_all` is true."""

EPISODES_SHARE = 0.5
"""Of the time, where networks are trained after the episodes."""
FOLDERS = {"training": "train", "validation": "judged", "online": "online"}
"""Of the samples of each part."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """One method's model, as it was written."""

    method: str
    folder: Path
    recipe: Recipe
    model: Model
    words: str = ""
    """How it did on the validation part, in a phrase; empty: not judged."""


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C in the training of a network whose best weights until then are written."""


def train(plan: TrainingPlan, reporter: Reporter = SILENT) -> list[TrainingResult]:
    """Writes a folder for each method. A head continues from a foundation trained in the same call,
    unless options are set.

    Raises MirageError; TrainingInterrupted after Ctrl-C, and then trains no further method.
    """
    methods = _methods(plan.methods)
    folders = _folders(plan.out, methods)
    _check_options(plan, methods)
    until_s = None if plan.at_most_s is None else time.monotonic() + plan.at_most_s
    background, chosen, notes = read_inputs(plan.trace, plan.cluster, plan.partition, reporter)
    course = Course.of(background, plan, chosen)
    with _sample_folder(plan.samples) as folder:
        reporter.keeps(
            f"{folder} has the episodes; the same call goes on from there"
            if plan.samples
            else "nothing is kept; with --samples DIR the episodes are"
        )
        parts = _Parts.collect(plan, course, background, methods, folder, reporter)
        notes += parts.notes
        run = _Run(
            plan=plan,
            background=background,
            course=course,
            parts=parts,
            notes=notes,
            reporter=reporter,
        )
        results = []
        for number, method in enumerate(methods):
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            with at_most(None if left_s is None else left_s / (len(methods) - number)):
                results.append(run.train(method, folders[method]))
        return results


def _methods(wanted: Sequence[str]) -> list[str]:
    """Heads after the foundation that they share. Raises InputError."""
    if strange := [name for name in wanted if name not in (*METHODS, ALL)]:
        raise InputError(
            f"--method {strange[0]}: there is no such method to train; there are"
            f" {', '.join(METHODS)}, {ALL}."
        )
    in_all = {name for name in METHODS if METHODS[name].in_all}
    return [name for name in METHODS if name in wanted or (ALL in wanted and name in in_all)]


def _folders(out: Path, methods: Sequence[str]) -> dict[str, Path]:
    folders = {method: out if len(methods) == 1 else out / method for method in methods}
    for folder in folders.values():
        check_replaceable(folder)
    return folders


def _check_options(plan: TrainingPlan, methods: Sequence[str]) -> None:
    """Everything that training would refuse, before hours of simulation. Raises InputError."""
    for method in methods:
        _options(method, plan.settings)


def _options(method: str, settings: Sequence[str]) -> Any:
    """The method's options. Raises InputError, also for a package that the method needs."""
    options = METHODS[method].default_options()
    try:
        return with_settings(options, settings)
    except InputError as error:
        raise InputError(f"{method}: {error}") from error


@contextmanager
def _sample_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="mirage-samples-") as name:
        yield Path(name)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The episodes of a run. None: no method needs them."""

    training: Samples | None = None
    validation: Samples | None = None
    online: Samples | None = None
    """For the heads."""
    notes: tuple[str, ...] = ()

    @classmethod
    def collect(
        cls,
        plan: TrainingPlan,
        course: Course,
        background: Background,
        methods: Sequence[str],
        folder: Path,
        reporter: Reporter,
    ) -> _Parts:
        """Each part gets a share of `TrainingPlan.at_most_s` as large as its share of the episodes."""
        learning = [METHODS[method] for method in methods]
        drawings = {
            "training": course.training(background),
            "validation": course.validation(background),
        }
        if any(method.foundation for method in learning):
            drawings["online"] = course.online(background)
        most_s = plan.at_most_s
        if most_s is not None and any(method.stops_early for method in learning):
            most_s *= EPISODES_SHARE
        total, wanted, began_s = sum(it.count for it in drawings.values()), 0, time.monotonic()
        found: dict[str, Samples] = {}
        notes = []
        for name, drawing in drawings.items():
            wanted += drawing.count
            share_s = None if most_s is None else most_s * wanted / total
            found[name] = collect(
                background,
                drawing,
                folder / FOLDERS[name],
                workers=plan.workers,
                progress=partial(reporter.episodes, f"{name} episodes"),
                until_s=None if share_s is None else began_s + share_s,
            )
            if (tried := found[name].tried) < drawing.count:
                notes.append(f"the time was up after {tried} of {drawing.count} {name} episodes")
                reporter.caution(f"note: {notes[-1]}")
        return cls(**found, notes=tuple(notes))


@dataclass(kw_only=True)
class _Run:
    """One call of `train`: the methods in turn."""

    plan: TrainingPlan
    background: Background
    course: Course
    parts: _Parts
    notes: list[str]
    reporter: Reporter
    _trained: dict[str, tuple[Model, Any]] = field(default_factory=dict, init=False)
    """Model and options by method, for the heads."""

    def train(self, method: str, folder: Path) -> TrainingResult:
        """Raises TrainingInterrupted."""
        began = time.monotonic()
        result = self._write_model(method, folder)
        if result.model.traits.interrupted:
            raise TrainingInterrupted(f"interrupted; {folder} holds the best {method} until then.")
        self.reporter.written(method, folder, time.monotonic() - began)
        return result

    def _write_model(self, method: str, folder: Path) -> TrainingResult:
        training, validation = self.parts.training, self.parts.validation
        assert training is not None
        assert validation is not None
        model, options = self._fit(method, training)
        about = replace(
            self.course.about(self.background, self.plan.trace, sha256(self.plan.trace)),
            ranges=ranges_of(training),
        )
        recipe = self.course.recipe(method, about, plain(options))
        facts = {name: _count_text(value) for name, value in training.summary().items()}
        base = self._base(method)
        page = card(
            recipe, about, model, base=base, episodes=validation, facts=facts, notes=self.notes
        )
        uses_forecasts = model.traits.uses_forecasts
        written = ForecastingModel(model, self.background.cluster) if uses_forecasts else model
        write_folder(folder, written, recipe, page)
        words = in_a_phrase(model, validation) if len(validation) else ""
        return TrainingResult(method=method, folder=folder, recipe=recipe, model=model, words=words)

    def _fit(self, name: str, training: Samples) -> tuple[Model, Any]:
        """The model and the options that it was trained with."""
        method, options = METHODS[name], _options(name, self.plan.settings)
        learned, stop_by = held_out(training, self.course.training_seed)
        data = TrainingData(
            episodes=learned,
            held_out=stop_by,
            seed=self.course.training_seed,
            progress=partial(self.reporter.progress, name),
        )
        if method.foundation:
            assert self.parts.online is not None
            data = replace(data, fresh=self.parts.online.apart_from(stop_by))
            if base := self._base(name):
                foundation = self._trained[method.foundation][1]
                data, options = replace(data, base=base), replace(options, pretrain=foundation)
        if self.plan.tune:
            options = self._tuned(name, options, data)
        if not method.stops_early:
            data = replace(data, episodes=training)
        self._trained[name] = method.train(data, options), options
        return self._trained[name]

    def _base(self, name: str) -> Model | None:
        """The foundation of this call that a head continues from."""
        foundation = METHODS[name].foundation
        if foundation not in self._trained or self.plan.settings:
            return None
        return self._trained[foundation][0]

    def _tuned(self, method: str, options: Any, data: TrainingData) -> Any:
        from mirage.provision.learn.tune import Search

        fixed = [setting.partition("=")[0].strip() for setting in self.plan.settings]
        return Search.of(method, options, data, self.plan.tune or 0, fixed).best()


def _count_text(value: Any) -> str:
    return (
        ", ".join(f"{name} {count:,}" for name, count in value.items())
        if isinstance(value, dict)
        else f"{value:,}"
    )
