"""`mirage train`: from a job history to a model folder with `recipe.toml`, weights and `card.md`."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.markup import escape

from mirage.cli.past import WARM_UPS, background_of, errors, instant, partition_of, words_of
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.provision.learn.background import Background
    from mirage.provision.learn.course import Course
    from mirage.provision.learn.model import Model
    from mirage.provision.learn.samples import Samples

INTERRUPTED_EXIT = 130
LOOKAHEAD = "lookahead"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace", required=True, type=Path, metavar="T", help="job history (docs/traces.md)"
    )
    parser.add_argument(
        "--cluster", required=True, type=Path, metavar="C", help=".toml, otherwise a slurm.conf"
    )
    parser.add_argument(
        "--method",
        required=True,
        type=words_of,
        metavar="M[,M...]",
        help=(
            "quantile, xgboost, moe-dqn, ..., lookahead; all: every one; several get a folder each"
            " in DIR"
        ),
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the model folder")
    parser.add_argument(
        "--from",
        dest="begin",
        type=instant,
        metavar="ISO",
        help="begin of the training part (a week in)",
    )
    parser.add_argument(
        "--until",
        type=instant,
        metavar="ISO",
        help="end of the training part (after 80 %% of the time)",
    )
    parser.add_argument(
        "--end",
        type=instant,
        metavar="ISO",
        help="end of the validation part (the last submission)",
    )
    parser.add_argument(
        "--episodes", type=positive, default=684, metavar="N", help="to learn from (%(default)s)"
    )
    parser.add_argument(
        "--judged",
        type=positive,
        default=200,
        metavar="N",
        help="of the validation part (%(default)s)",
    )
    parser.add_argument(
        "--online",
        type=positive,
        default=640,
        metavar="N",
        help="fresh ones, for heads that learn on (%(default)s)",
    )
    parser.add_argument(
        "--augmented",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="with other arrivals (%(default)s)",
    )
    parser.add_argument(
        "--augment",
        type=words_of,
        metavar="KIND[,KIND]",
        help="which: load, users, synthetic (load,users; docs/learning.md)",
    )
    parser.add_argument(
        "--warm-up", choices=WARM_UPS, default="trace", help="the queue at the start (%(default)s)"
    )
    parser.add_argument(
        "--partition",
        metavar="P",
        help="partition of the pairs (the one with most of the history's node-hours)",
    )
    parser.add_argument(
        "--samples",
        type=Path,
        metavar="FOLDER",
        help="keeps the episodes: a later call goes on from them",
    )
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (%(default)s)")
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count() or 1, help="processes (all cores)"
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="collects episodes on a Ray cluster instead"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of each method, as in its recipe",
    )
    parser.add_argument(
        "--tune", type=positive, metavar="N", help="tries so many settings with Ray Tune first"
    )
    parser.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="writes learning curves there"
    )


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text!r}")
    return share


@dataclass(frozen=True)
class _Lesson:
    """What all methods of one call learn from."""

    args: argparse.Namespace
    background: Background
    course: Course
    samples: Samples | None
    judged: Samples | None
    online: Samples | None
    """For the heads, if one is to be trained."""
    notes: list[str]
    """Of the job history's and the cluster's readers."""


class _Taught(NamedTuple):
    """What a head goes on from."""

    model: Model
    options: Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a training that has a model already, which is written."""


def run(args: argparse.Namespace) -> int:
    try:
        train(args)
    except Interrupted as error:
        errors.print(escape(f"mirage train: {error}"))
        return INTERRUPTED_EXIT
    return 0


def train(args: argparse.Namespace) -> None:
    """A folder for each method. Raises MirageError, or Interrupted: then no other method is begun."""
    from mirage.provision.learn.background import WarmUp
    from mirage.provision.learn.course import Course
    from mirage.provision.learn.methods import METHODS

    methods = _methods(args.method)
    folders = _folders(args.out, methods)
    _check_options(args, methods)
    background, notes = background_of(args)
    partition, cautions = partition_of(background, args.partition)
    course = Course.of(
        background,
        args.begin,
        args.until,
        args.end,
        episodes=args.episodes,
        validation_episodes=args.judged,
        online_episodes=args.online,
        seed=args.seed,
        warm_up=WarmUp(args.warm_up),
        partition=partition,
        augmented=args.augmented,
        tune=args.tune,
        **({"kinds": tuple(args.augment)} if args.augment else {}),
    )
    with _kept(args.samples) as folder:
        learnt = any(method != LOOKAHEAD for method in methods)
        samples = (
            _collected("episodes", args, background, course.training(background), folder / "train")
            if learnt
            else None
        )
        judged = (
            _collected(
                "to judge by", args, background, course.validation(background), folder / "judged"
            )
            if learnt
            else None
        )
        online = (
            _collected("online", args, background, course.online(background), folder / "online")
            if any(method != LOOKAHEAD and METHODS[method].foundation for method in methods)
            else None
        )
        lesson = _Lesson(args, background, course, samples, judged, online, [*notes, *cautions])
        bases: dict[str, _Taught] = {}
        for method in methods:
            _teach(method, lesson, folders[method], bases)


def _methods(wanted: Sequence[str]) -> list[str]:
    """In an order in which heads find the foundation that they share. Raises InputError."""
    from mirage.provision.learn.methods import METHODS

    known = [*METHODS, LOOKAHEAD]
    if strange := [name for name in wanted if name not in (*known, "all")]:
        raise InputError(
            f"--method {strange[0]}: there is no such method to train; there are"
            f" {', '.join(known)}, all."
        )
    return [name for name in known if "all" in wanted or name in wanted]


def _folders(out: Path, methods: Sequence[str]) -> dict[str, Path]:
    from mirage.models.folder import check_replaceable

    folders = {method: out if len(methods) == 1 else out / method for method in methods}
    for folder in folders.values():
        check_replaceable(folder)
    return folders


def _check_options(args: argparse.Namespace, methods: Sequence[str]) -> None:
    """All that training would refuse, before hours of labelling. Raises InputError."""
    learnt = [method for method in methods if method != LOOKAHEAD]
    if args.set and LOOKAHEAD in methods:
        raise InputError(
            f"--set {args.set[0]}: {LOOKAHEAD} has no options; train it in a call of its own."
        )
    for method in learnt:
        _options(method, args.set)
    if learnt and args.tune:
        from mirage.provision.learn.tune import ray_tune

        ray_tune()
    if learnt and args.tensorboard:
        _summary_writer()


def _options(method: str, settings: Sequence[str]) -> Any:
    """The method's options with `--set`. Raises InputError, also for a package that the method
    needs.
    """
    from mirage.provision.learn.methods import METHODS
    from mirage.rl.options import with_settings

    options = METHODS[method].default_options()
    try:
        return with_settings(options, settings)
    except InputError as error:
        raise InputError(f"{method}: {error}") from error


@contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="mirage-samples-") as name:
        yield Path(name)


def _collected(
    what: str, args: argparse.Namespace, background: Background, drawing: Any, folder: Path
) -> Samples:
    from mirage.provision.learn.samples import collect

    with _bar(what) as progress:
        return collect(background, drawing, folder, args.workers, args.ray, progress)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, nothing otherwise."""
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=errors
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _teach(method: str, lesson: _Lesson, folder: Path, bases: dict[str, _Taught]) -> None:
    from mirage.figures.provenance import sha256
    from mirage.models.folder import write_folder
    from mirage.provision.learn.card import card
    from mirage.provision.learn.forecast import ForecastingModel
    from mirage.provision.learn.ranges import ranges_of

    began = time.monotonic()
    args, course, background = lesson.args, lesson.course, lesson.background
    about = course.about(background, args.trace, sha256(args.trace))
    if method == LOOKAHEAD:
        from mirage.provision.learn.futures import train_lookahead

        futures = train_lookahead(
            background.log, background.cluster, course.begin_s, course.until_s
        )
        recipe = course.recipe(method, about, {})
        page = card(recipe, about, None, notes=lesson.notes)
        write_folder(folder, futures, recipe, page)
    else:
        assert lesson.samples is not None
        assert lesson.judged is not None
        model, options = _learnt(method, lesson, bases)
        about = replace(about, ranges=ranges_of(lesson.samples))
        recipe = course.recipe(method, about, options)
        facts = {name: _words_of(value) for name, value in lesson.samples.summary().items()}
        uses_forecasts = model.traits.uses_forecasts
        written = ForecastingModel(model, background.cluster) if uses_forecasts else model
        page = card(recipe, about, model, episodes=lesson.judged, facts=facts, notes=lesson.notes)
        write_folder(folder, written, recipe, page)
        if model.traits.interrupted:
            raise Interrupted(f"interrupted; {folder} holds the best {method} until then.")
    errors.print(f"{method}: {folder} ({time.monotonic() - began:.0f} s)")


def _words_of(value: Any) -> str:
    return (
        ", ".join(f"{name} {count:,}" for name, count in value.items())
        if isinstance(value, dict)
        else f"{value:,}"
    )


def _learnt(
    method: str, lesson: _Lesson, bases: dict[str, _Taught]
) -> tuple[Model, dict[str, Any]]:
    """The trained model, and its options for the recipe. Heads go on from a foundation trained in
    the same call.
    """
    from mirage.provision.learn.course import held_out, plain
    from mirage.provision.learn.method import TrainingData
    from mirage.provision.learn.methods import METHODS

    assert lesson.samples is not None
    learnt_from, stop_by = held_out(lesson.samples, lesson.course.seed)
    options = _options(method, lesson.args.set)
    data = TrainingData(episodes=learnt_from, held_out=stop_by, seed=lesson.course.seed)
    if METHODS[method].foundation:
        assert lesson.online is not None
        data = replace(data, fresh=lesson.online.apart_from(stop_by))
        base = bases.get(METHODS[method].foundation)
        if base and not lesson.args.set:
            data = replace(data, base=base.model)
            options = replace(options, pretrain=base.options)
    if lesson.args.tune:
        from mirage.provision.learn.tune import tuned

        fixed = [setting.partition("=")[0].strip() for setting in lesson.args.set]
        options = tuned(method, options, data, lesson.args.tune, fixed)
    if not METHODS[method].stops_early:
        data = replace(data, episodes=lesson.samples)
    with _told(method, lesson.args.tensorboard) as progress:
        model = METHODS[method].train(replace(data, progress=progress), options)
    bases[method] = _Taught(model, options)
    return model, plain(options)


@contextmanager
def _told(method: str, tensorboard: Path | None) -> Iterator[Callable[[Any], None]]:
    """Learning curves: one line a round on a terminal, and TensorBoard's files if they are wanted."""
    with contextlib.ExitStack() as stack:
        writer = (
            stack.enter_context(_summary_writer()(str(tensorboard / method)))
            if tensorboard
            else None
        )

        def told(progress: Any) -> None:
            if errors.is_terminal:
                judged = (
                    "" if progress.score != progress.score else f", penalty {progress.score:.2f} h"
                )
                errors.print(
                    f"{method}: {progress.stage} {progress.round}/{progress.rounds}: loss"
                    f" {progress.loss:.4g}{judged}"
                )
            if writer is not None:
                writer.add_scalar(f"{progress.stage}/loss", progress.loss, progress.round)
                writer.add_scalar(f"{progress.stage}/validation_h", progress.score, progress.round)

        yield told


def _summary_writer() -> Any:
    """TensorBoard's. Raises InputError if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            f"--tensorboard needs the packages torch and tensorboard ({error}); install them."
        ) from error
    return SummaryWriter
