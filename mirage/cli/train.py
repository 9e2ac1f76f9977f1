"""`mirage train`: from a job history to a model folder with `recipe.toml`, weights and `card.md`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mirage.cli.groups import errors
from mirage.cli.learning import (
    TerminalReporter,
    add_count,
    add_inputs,
    add_minutes,
    add_out,
    add_partition,
    add_seed,
    add_settings,
    add_warm_up,
    add_workers,
    budget_s,
    instant,
    words_of,
)
from mirage.cli.signals import ending_on_sigterm
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.provision.learn import TrainingPlan
    from mirage.rl.fit import Progress

INTERRUPTED_EXIT = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_input(parser.add_argument_group("input"))
    _add_episodes(parser.add_argument_group("episodes (simulated pairs of jobs)"))
    _add_training(parser.add_argument_group("training"))
    _add_output(parser.add_argument_group("output"))


def _add_input(group: argparse._ArgumentGroup) -> None:
    add_inputs(group)
    add_partition(group, "the one with most node-hours in the history")
    for name, dest, about, default in (
        ("--from", "begin", "begin of the training part", "a week after the first submission"),
        ("--until", "until", "end of the training part", "after 80 %% of the time"),
        ("--end", "end", "end of the validation part", "the last submission"),
    ):
        group.add_argument(
            name,
            dest=dest,
            type=instant,
            metavar="TIME",
            help=f"{about}, as 2023-02-01T06:00, UTC (default: {default})",
        )


def _add_episodes(group: argparse._ArgumentGroup) -> None:
    add_count(group, "--episodes", 684, "number of training episodes")
    add_count(group, "--judged", 200, "number of validation episodes, for the figures of card.md")
    add_count(
        group, "--online", 640, "number of further training episodes for -dqn and -pg methods"
    )
    _add_arrivals(group)
    group.add_argument(
        "--samples",
        type=Path,
        metavar="DIR",
        help="folder that keeps the episodes; a later call continues from them (default: none)",
    )
    add_workers(group)


def _add_arrivals(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--augmented",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="share of training episodes with changed arrivals, 0 to 1 (default: %(default)s)",
    )
    group.add_argument(
        "--augment",
        type=words_of,
        default=("load", "users"),
        metavar="KIND[,KIND]",
        help="kinds of changed arrivals: load, users, synthetic (default: load,users)",
    )
    add_warm_up(group)


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--method",
        required=True,
        type=words_of,
        metavar="NAME[,NAME]",
        help="methods: quantile, xgboost, moe-dqn, ..., or all (docs/learning.md)",
    )
    add_settings(group, "each method")
    group.add_argument(
        "--tune",
        type=positive,
        metavar="N",
        help="number of random settings to try before the training (default: none)",
    )
    add_minutes(group, "episodes and training")
    add_seed(group, "the episodes and of the training")


def _add_output(group: argparse._ArgumentGroup) -> None:
    add_out(group, "model folder; with several methods the folder of their folders")
    group.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="folder for learning curves (default: none)"
    )


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to 1, got {text!r}")
    return share


def run(args: argparse.Namespace) -> int:
    reporter = CurveReporter(args.tensorboard) if args.tensorboard else TerminalReporter()
    plan = _plan(args)
    from mirage.provision.learn import TrainingInterrupted, train

    try:
        with ending_on_sigterm(), reporter:
            results = train(plan, reporter)
    except TrainingInterrupted as error:
        errors.print(escape(f"mirage train: {error}"))
        return INTERRUPTED_EXIT
    for result in results:
        if result.words:
            errors.print(escape(f"{result.method}: {result.words}"))
    models = [f"{each.method}={each.folder}" for each in results]
    following = (
        f"mirage evaluate pairs --trace {plan.trace} --cluster {plan.cluster} --methods"
        f" {','.join(models)} --start TIME --episodes 40 --out results"
    )
    errors.print(escape(f"Figures: card.md in each folder. Next: {following}"))
    return 0


def _plan(args: argparse.Namespace) -> TrainingPlan:
    from mirage.provision.learn import TrainingPlan
    from mirage.provision.learn.background import WarmUp

    return TrainingPlan(
        trace=args.trace,
        cluster=args.cluster,
        methods=args.method,
        out=args.out,
        begin_s=args.begin,
        until_s=args.until,
        end_s=args.end,
        partition=args.partition,
        episodes=args.episodes,
        validation_episodes=args.judged,
        online_episodes=args.online,
        augmented=args.augmented,
        augmentations=args.augment,
        warm_up=WarmUp(args.warm_up),
        samples=args.samples,
        settings=tuple(args.set),
        tune=args.tune,
        at_most_s=budget_s(args),
        seed=args.seed,
        workers=args.workers,
    )


class CurveReporter(TerminalReporter):
    """Also writes learning curves in TensorBoard's format, a folder a method."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError if TensorBoard is not installed."""
        super().__init__()
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                f"--tensorboard needs the packages torch and tensorboard ({error}); install them."
            ) from error
        self._folder = folder
        self._writer = SummaryWriter
        self._writers: dict[str, Any] = {}

    def progress(self, method: str, progress: Progress) -> None:
        super().progress(method, progress)
        if method not in self._writers:
            self._writers[method] = self._writer(str(self._folder / method))
        for name, value in (("loss", progress.loss), ("validation_h", progress.score)):
            self._writers[method].add_scalar(f"{progress.stage}/{name}", value, progress.round)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for writer in self._writers.values():
            writer.close()
