"""What `mirage train`, `evaluate` and `retrain` share: types of arguments, and what they print."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.markup import escape

from mirage.cli.groups import errors
from mirage.cli.signals import ending_on_sigterm
from mirage.provision.learn.reporter import Reporter
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from mirage.rl.fit import Progress

WARM_UPS = ("trace", "paper")
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Of the times that can be given: Python can't write all others down."""


def words_of(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise argparse.ArgumentTypeError("expected at least one method")
    return words


def sizes(text: str) -> tuple[int, ...]:
    """For argparse: numbers of nodes, as `1,8`."""
    return tuple(dict.fromkeys(positive(word.strip()) for word in text.split(",")))


def instant(text: str) -> int:
    """For argparse: Unix seconds."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a time like 2023-02-01 or 2023-02-01T06:00, got {text!r}"
        ) from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    if not EARLIEST <= when <= LATEST:
        raise argparse.ArgumentTypeError(
            f"expected a time from {EARLIEST:%Y} to {LATEST:%Y}, got {text!r}"
        )
    return int(when.timestamp())


def add_inputs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--trace",
        required=True,
        type=Path,
        metavar="FILE",
        help="job history: its format is in docs/traces.md",
    )
    group.add_argument(
        "--cluster",
        required=True,
        type=Path,
        metavar="FILE",
        help="description of the cluster: a .toml file, otherwise a slurm.conf",
    )


def add_partition(group: argparse._ArgumentGroup, default: str) -> None:
    group.add_argument(
        "--partition", metavar="NAME", help=f"partition of the simulated jobs (default: {default})"
    )


def add_warm_up(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warm-up",
        choices=WARM_UPS,
        default="trace",
        help=(
            "queue at the begin of a simulation: the jobs that the history shows, or (paper) an"
            " empty cluster two days before (default: %(default)s)"
        ),
    )


def add_workers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes on this machine (default: one a core)",
    )


def add_count(group: argparse._ArgumentGroup, name: str, default: int, about: str) -> None:
    """An option that takes a number from 1; ``about`` says of what."""
    group.add_argument(
        name, type=positive, default=default, metavar="N", help=f"{about} (default: %(default)s)"
    )


def add_minutes(group: argparse._ActionsContainer, of: str) -> None:
    """The one way to give a budget; `budget_s` has it in seconds."""
    group.add_argument(
        "--minutes",
        type=_minutes,
        metavar="N",
        help=f"budget of wall-clock time for {of}, in minutes; it ends with what there is by then",
    )


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"expected minutes above 0, got {text!r}")
    return minutes


def budget_s(args: argparse.Namespace) -> float | None:
    """Of `--minutes`; None: without bound."""
    return None if args.minutes is None else 60 * args.minutes


@contextmanager
def telling_what_is_kept(words: Callable[[], str]) -> Iterator[None]:
    """After Ctrl-C or SIGTERM ``words`` say what is there."""
    with ending_on_sigterm():
        try:
            yield
        except KeyboardInterrupt:
            errors.print(escape(f"interrupted: {words()}."))
            raise


def add_settings(group: argparse._ArgumentGroup, whose: str) -> None:
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"option of {whose}, as in recipe.toml; may be given several times",
    )


def add_seed(group: argparse._ArgumentGroup, of: str) -> None:
    group.add_argument(
        "--seed", type=int, default=1, metavar="N", help=f"seed of {of} (default: %(default)s)"
    )


def add_out(group: argparse._ArgumentGroup, about: str) -> None:
    group.add_argument("--out", required=True, type=Path, metavar="DIR", help=about)


class TerminalReporter(Reporter):
    """Prints on stderr. Cautions appear always, since the result depends on them; notes, progress
    bars and learning curves only on a terminal.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._step = ""
        self._keeps = "nothing is kept"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_bar()
        if type(error) is KeyboardInterrupt:  # a training says itself what it has written
            errors.print(escape(f"interrupted: {self._keeps}."))

    def keeps(self, words: str) -> None:
        self._keeps = words

    def note(self, text: str) -> None:
        if errors.is_terminal:
            errors.print(f"note: {escape(text)}")

    def caution(self, text: str) -> None:
        errors.print(escape(text))

    def step(self, name: str, number: int, steps: int) -> None:
        self._end_bar()
        self._step = f"step {number} of {steps}, {name}: "
        if errors.is_terminal:
            errors.print(self._step.removesuffix(": "))

    def episodes(self, part: str, done: int, total: int) -> None:
        if not errors.is_terminal:
            return
        if self._bar is None:
            self._bar = _bar()
            self._task = self._bar.add_task(f"{self._step}{part}", total=None)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, completed=done, total=total)
        if done == total:
            self._end_bar()

    def progress(self, method: str, progress: Progress) -> None:
        if errors.is_terminal:
            is_known = progress.score == progress.score  # not NaN
            penalty = f", penalty {progress.score:.2f} h" if is_known else ""
            errors.print(
                f"{method}: {progress.stage} {progress.round}/{progress.rounds}:"
                f" loss {progress.loss:.4g}{penalty}"
            )

    def written(self, method: str, folder: Path, wall_s: float) -> None:
        errors.print(f"{method}: {escape(str(folder))} ({wall_s:.0f} s)")

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


def _bar() -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=errors)
