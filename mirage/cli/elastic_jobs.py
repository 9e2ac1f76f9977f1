"""`mirage elastic run|status|stop`: elastic training jobs on Slurm (docs/elastic-jobs.md)."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mirage.chain.durations import format_duration, parse_duration
from mirage.cli.table import console
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.journal import JobJournal
from mirage.errors import ClusterError, InputError, StoreError
from mirage.store.lock import exclusive, is_held
from mirage.user.sources import me
from slurm_sim.cli.arguments import positive, whole_number

if TYPE_CHECKING:
    from mirage.elastic.baselines import Allocator
    from mirage.elastic.jobs.controller import Controller, ControlOptions
    from mirage.elastic.jobs.limits import JobCounts
    from mirage.elastic.jobs.request import JobRequest
    from mirage.slurm.survey import Survey
    from slurm_sim.config import ClusterConfig

Json = dict[str, Any]
AddArguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]
CONFIG_S = 3600
"""Nodes and partitions are read again after so long."""
HAND_OVER_S = 120
"""A controller takes up a new job within its poll, or it has just ended."""


def add_run(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument(
        "jobs",
        nargs="*",
        type=Path,
        metavar="JOB.toml",
        help="elastic jobs to start (default: none; those that are not over are continued)",
    )
    parser.add_argument(
        "--resume",
        action="append",
        default=[],
        metavar="NAME",
        help="job that was stopped, failed or ran out of time; continues from its saved state",
    )
    decisions = parser.add_argument_group("decisions")
    decisions.add_argument(
        "--policy",
        default="greedy",
        metavar="P",
        help=(
            "rule that gives each job its workers and PSs: greedy, drf, fifo, srtf, tetris,"
            " optimus, or the folder of a trained model (default %(default)s)"
        ),
    )
    decisions.add_argument(
        "--slot", default="5min", metavar="D", help="time between two decisions (default 5min)"
    )
    decisions.add_argument(
        "--gpus", type=positive, metavar="N", help="GPUs of all your elastic jobs together, at most"
    )
    decisions.add_argument(
        "--polite",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=(
            "extra tasks only on nodes that nobody queues for, and given back when somebody"
            " does (default)"
        ),
    )
    decisions.add_argument(
        "--reserve",
        type=whole_number,
        default=1,
        metavar="N",
        help=(
            "nodes of the workers' partition that extra tasks leave idle, for the next job of"
            " others (default %(default)s)"
        ),
    )
    decisions.add_argument(
        "--poll", default="15s", metavar="D", help="time between two looks at Slurm (default 15s)"
    )


def add_status(parser: argparse.ArgumentParser) -> None:
    """The options of `status`."""
    parser.add_argument("name", nargs="?", help="job (default: all that are not over)")
    parser.add_argument("--all", action="store_true", help="jobs that are over too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def add_stop(parser: argparse.ArgumentParser) -> None:
    """The options of `stop`."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="jobs to end")


# --- run


def run(args: argparse.Namespace) -> int:
    """Registers the jobs, and controls all of them unless a controller does already."""
    elastic_or_error()
    from mirage.elastic.runtime.folder import create_folder

    options = _options(args)
    root = files.elastic_folder()
    requests = [_read(path) for path in args.jobs]
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        raise InputError(f"two of the files have the same name: {', '.join(sorted(names))}")
    for name in names:
        files.check_new(root, name)
    resumed = [files.job_folder(root, name) for name in args.resume]
    for folder in resumed:
        files.check_resumable(folder)
    control = _prepare(args, root, options, requests)
    for folder in resumed:
        files.resume_job(folder, int(time.time()))
        console.print(f"elastic job {folder.name}: resumed")
    names += args.resume
    for request in requests:
        folder = files.create_job(root, request, int(time.time()))
        create_folder(folder / files.RUNTIME)  # so a task may start before the coordinator
        console.print(f"elastic job {request.name}: {folder}")
    lock = root / files.CONTROLLER_LOCK
    if names and _taken_up(root, names, lock):
        console.print(f"{', '.join(names)}: taken up by your controller, {_holder(lock)}")
        return 0
    try:
        with exclusive(lock):
            return control()
    except StoreError as error:
        if is_held(lock):
            raise InputError(f"your controller runs already, {_holder(lock)}") from error
        raise


def elastic_or_error() -> None:
    """Raises InputError without the packages of the extra `elastic`."""
    try:
        import zmq  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise InputError(
            f"elastic jobs need pyzmq ({error}): pip install 'mirage-slurm[elastic]'."
        ) from error


def _options(args: argparse.Namespace) -> ControlOptions:
    from mirage.elastic.jobs.controller import ControlOptions

    slot_s, poll_s = _seconds("--slot", args.slot), _seconds("--poll", args.poll)
    if poll_s > slot_s:
        raise InputError(f"--poll {args.poll}: more than --slot, {args.slot}")
    if args.reserve < 0:
        raise InputError(f"--reserve {args.reserve}: expected 0 or more")
    return ControlOptions(
        slot_s=slot_s, most_gpus=args.gpus, is_polite=args.polite, reserve=args.reserve
    )


def _seconds(option: str, text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
    if seconds < 1:
        raise InputError(f"{option}: expected a duration above 0, got {text!r}")
    return seconds


def _read(path: Path) -> JobRequest:
    from mirage.elastic.jobs.request import read_request

    request = read_request(path)
    folder = (path.parent / request.folder).absolute()
    if not folder.is_dir():
        raise InputError(f"{path}: folder: {folder} is no folder")
    if not (folder / request.script).is_file():
        raise InputError(f"{path}: script: {folder / request.script} is no file")
    return replace(request, folder=str(folder))


def _prepare(
    args: argparse.Namespace, root: Path, options: Any, requests: Sequence[JobRequest]
) -> Callable[[], int]:
    """Connects to Slurm, so that what is wrong shows before any job is registered."""
    from mirage.elastic.jobs.sizes import policy_named, types_known

    policy = policy_named(args.policy)
    types = types_known(policy)
    for request, path in zip(requests, args.jobs, strict=True):
        if types and request.speed.like not in types:
            raise InputError(
                f"{path}: speed.like: --policy {args.policy} knows jobs by the types of its"
                f" training: expected one of {', '.join(types)}, got {request.speed.like!r}"
            )
    poll_s = _seconds("--poll", args.poll)
    controller = _controller(root, policy, options)
    return lambda: _control(root, controller, poll_s)


def _controller(
    root: Path, policy: Allocator, options: ControlOptions, names: Collection[str] | None = None
) -> Controller:
    """``names``: only these jobs; None: all. Raises ClusterError."""
    from mirage.daemon.wall_clock import WallClock
    from mirage.elastic.jobs.controller import Controller
    from mirage.elastic.jobs.members import RuntimeTraining
    from mirage.slurm.commands import CommandCluster
    from mirage.slurm.runner import Runner
    from mirage.slurm.survey import Survey

    runner, user = Runner(), me()
    survey = Survey(runner)
    config = _Cached(survey.cluster)
    config()
    return Controller(
        root,
        CommandCluster(runner),
        WallClock(),
        user=user,
        config=config,
        counts=_counts(survey, user),
        policy=policy,
        training=RuntimeTraining,
        options=options,
        names=names,
    )


def _counts(survey: Survey, user: str) -> JobCounts:
    """Of this user. A site without accounting has no limits; one that Slurm enforces all the same
    shows as a refusal.
    """
    from mirage.elastic.jobs.limits import JobCounts, counts_of

    try:
        return counts_of(user, survey.limits("", user), survey.qos())
    except ClusterError as error:
        console.print(f"note: your limits can't be read, so none are kept: {escape(str(error))}")
        return JobCounts()


class _Cached:
    """The cluster's description, read again from time to time."""

    def __init__(self, read: Callable[[], ClusterConfig]) -> None:
        self._read, self._at_s = read, 0.0
        self._value: ClusterConfig | None = None

    def __call__(self) -> ClusterConfig:
        if self._value is None or time.monotonic() - self._at_s > CONFIG_S:
            self._value, self._at_s = self._read(), time.monotonic()
        return self._value


def _control(root: Path, controller: Controller, poll_s: int) -> int:
    """Until no job is left, or a signal comes: jobs then stay as they are."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    while controller.cycle():
        if ending.wait(poll_s):
            console.print(
                "The controller ends; your elastic jobs run on without it. `mirage elastic run`"
                " goes on, `mirage elastic stop NAME` ends one."
            )
            return 0
    bad = [
        folder.name
        for folder in files.job_folders(root)
        if JobJournal(folder).record.end in ("failed", "time limit")
        and folder.name in controller.controlled
    ]
    return 1 if bad else 0


def _taken_up(root: Path, names: Sequence[str], lock: Path) -> bool:
    """Waits until a controller that runs already has seen the jobs; False: none runs."""
    deadline = time.monotonic() + HAND_OVER_S
    while is_held(lock):
        if all(files.read_status(root / name) for name in names):
            return True
        if time.monotonic() > deadline:
            raise StoreError(
                f"{lock}: your controller, {_holder(lock)}, has not taken up {', '.join(names)}."
                " They are registered; end it, then start `mirage elastic run` again."
            )
        time.sleep(0.5)
    return False


def _holder(lock: Path) -> str:
    with suppress(OSError):
        return lock.read_text(errors="replace").strip()
    return "which did not say where it runs"


# --- status


def status(args: argparse.Namespace) -> int:
    """Shows jobs, from their folders: no controller is needed."""
    root = files.elastic_folder()
    folders = [files.job_folder(root, args.name)] if args.name else list(files.job_folders(root))
    reports = [_report(folder) for folder in folders]
    if not (args.name or args.all):
        reports = [report for report in reports if not report["end"]]
    is_controlled = is_held(root / files.CONTROLLER_LOCK)
    if args.json:
        print(json.dumps({"jobs": reports, "controller": is_controlled}, indent=2))
        return 0
    if not reports:
        console.print("You have no running elastic job. Start one: mirage elastic run JOB.toml")
    for report in reports:
        _show(report)
    if reports and not is_controlled and any(not report["end"] for report in reports):
        console.print("No controller of yours is seen to run: `mirage elastic run` starts one.")
    return 0


def _report(folder: Path) -> Json:
    record = JobJournal(folder).record
    seen = files.read_status(folder)
    return seen | {
        "name": record.name,
        "folder": str(folder),
        "state": record.end or seen.get("state", "waiting"),
        "end": record.end,
        "why": record.why,
        "tasks": [] if record.end else seen.get("tasks", []),
    }


def _show(report: Json) -> None:
    step, steps = report.get("step"), report.get("steps")
    why = escape(f" ({report['why']})") if report["why"] else ""
    words = [f"[bold]elastic job {report['name']}[/] {report['state']}{why}"]
    if step is not None and steps:
        words.append(f"step {step} of {steps}")
    if speed := report.get("steps_per_s"):
        words.append(f"{speed:.3g} steps/s")
    if deadline := report.get("deadline"):
        left_s = deadline - time.time()
        words.append(f"{format_duration(left_s)} left" if left_s > 0 and not report["end"] else "")
    if seconds := report.get("gpu_seconds"):
        words.append(f"{seconds / 3600:.2f} GPU hours")
    console.print(", ".join(filter(None, words)))
    for task in report["tasks"]:
        where = ",".join(task["nodes"]) or task["reason"] or "-"
        leaving = f"leaves: {task['why']}" if task["leaving"] else ""
        console.print(
            f"  {task['task']:5} {task['role']:11} {task['share']:5} {task['job_id'] or '-':>8}"
            f" {task['state']:10} {escape(where):12} {escape(leaving)}".rstrip()
        )
    if report.get("held_back") and not report["end"]:
        console.print("  It does not grow: somebody queues for its nodes.")
    if (refused := report.get("refused")) and not report["end"]:
        console.print(f"  Slurm refuses a task, and is asked again: {escape(refused)}")
    if (stuck := report.get("stuck")) and not report["end"]:
        console.print(f"  Slurm can't start these tasks as they are: {escape(stuck)}")


# --- stop


def stop(args: argparse.Namespace) -> int:
    """Ends jobs: by the controller, or without one by itself."""
    root = files.elastic_folder()
    folders = [files.job_folder(root, name) for name in args.names]
    for folder in folders:
        if end := JobJournal(folder).record.end:
            console.print(f"{folder.name}: it was over already ({end})")
            continue
        (folder / files.STOP).touch()
        console.print(
            f"{folder.name}: it saves its state and ends; it continues by"
            f" mirage elastic run --resume {folder.name}"
        )
    lock = root / files.CONTROLLER_LOCK
    names = [folder.name for folder in folders if not JobJournal(folder).record.end]
    if not names or is_held(lock):
        return 0
    from mirage.elastic.jobs.controller import ControlOptions
    from mirage.elastic.jobs.sizes import policy_named

    with exclusive(lock):
        _control(root, _controller(root, policy_named("drf"), ControlOptions(), names), 2)
    return 0


# --- the group


VERBS: tuple[tuple[str, AddArguments, Run, str], ...] = (
    ("run", add_run, run, "elastic training jobs on Slurm, and their controller"),
    ("status", add_status, status, "your elastic jobs: tasks, sizes, progress"),
    ("stop", add_stop, stop, "end elastic jobs; their state is saved"),
)
