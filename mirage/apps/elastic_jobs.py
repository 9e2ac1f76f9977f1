"""Elastic jobs of one user: registered, and controlled until none is left (docs/elastic-jobs.md)."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mirage.daemon.wall_clock import WallClock
from mirage.elastic.baselines import Allocator
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.controller import Controller, ControlOptions
from mirage.elastic.jobs.journal import JobJournal
from mirage.elastic.jobs.limits import JobCounts, counts_of
from mirage.elastic.jobs.members import RuntimeTraining
from mirage.elastic.jobs.request import JobRequest, read_request
from mirage.elastic.jobs.sizes import policy_named, types_known
from mirage.elastic.runtime.folder import create_folder
from mirage.errors import ClusterError, InputError, StoreError
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from mirage.slurm.survey import Survey
from mirage.store.lock import exclusive, is_held
from slurm_sim.config import ClusterConfig

Say = Callable[[str], None]
"""Gets a line for the user."""
CONFIG_S = 3600
"""Nodes and partitions are read again after so long."""
HAND_OVER_S = 120
"""A controller takes up a new job within its poll, or it has just ended."""
STOP_POLL_S = 2


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What `mirage elastic run` is to do."""

    user: str
    jobs: Sequence[Path]
    """Files of jobs to start."""
    resume: Sequence[str] = ()
    """Names of jobs to continue."""
    policy: str = "greedy"
    options: ControlOptions
    poll_s: int


def run_jobs(plan: RunPlan, say: Say) -> int:
    """Registers the jobs, and controls all of them unless a controller does already."""
    root = files.elastic_folder()
    requests = [_read(path) for path in plan.jobs]
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        raise InputError(f"two of the files have the same name: {', '.join(sorted(names))}")
    for name in names:
        files.check_new(root, name)
    resumed = [files.job_folder(root, name) for name in plan.resume]
    for folder in resumed:
        files.check_resumable(folder)
    control = _prepare(plan, root, requests, say)
    for folder in resumed:
        files.resume_job(folder, int(time.time()))
        say(f"elastic job {folder.name}: resumed")
    for request in requests:
        folder = files.create_job(root, request, int(time.time()))
        create_folder(folder / files.RUNTIME)  # so a task may start before the coordinator
        say(f"elastic job {request.name}: {folder}")
        say(_cost(request))
    return _controlled(root, [*names, *plan.resume], control, say)


def _cost(request: JobRequest) -> str:
    """What its extra tasks may cost its owner, in words."""
    extra = sum(
        max(part.max - part.min, 0) * part.gpus for part in (request.workers, request.servers)
    )
    hours = extra * request.time_s / 3600
    return (
        f"  extra tasks: up to {extra} GPUs, {hours:.0f} GPU hours, charged to your fair share as"
        " any job's, times the UsageFactor of their QOS"
    )


def _controlled(root: Path, names: Sequence[str], control: Callable[[], int], say: Say) -> int:
    lock = root / files.CONTROLLER_LOCK
    if names and _taken_up(root, names, lock):
        say(f"{', '.join(names)}: taken up by your controller, {_holder(lock)}")
        return 0
    try:
        with exclusive(lock):
            return control()
    except StoreError as error:
        if is_held(lock):
            raise InputError(f"your controller runs already, {_holder(lock)}") from error
        raise


def _read(path: Path) -> JobRequest:
    request = read_request(path)
    folder = (path.parent / request.folder).absolute()
    if not folder.is_dir():
        raise InputError(f"{path}: folder: {folder} is no folder")
    if not (folder / request.script).is_file():
        raise InputError(f"{path}: script: {folder / request.script} is no file")
    return replace(request, folder=str(folder))


def _prepare(
    plan: RunPlan, root: Path, requests: Sequence[JobRequest], say: Say
) -> Callable[[], int]:
    """Connects to Slurm, so that what is wrong shows before any job is registered."""
    policy = policy_named(plan.policy)
    types = types_known(policy)
    for request, path in zip(requests, plan.jobs, strict=True):
        if types and request.speed.like not in types:
            raise InputError(
                f"{path}: speed.like: --policy {plan.policy} knows jobs by the types of its"
                f" training: expected one of {', '.join(types)}, got {request.speed.like!r}"
            )
    controller = _controller(root, plan.user, policy, plan.options, say)
    return lambda: _control(root, controller, plan.poll_s, say)


def _controller(
    root: Path,
    user: str,
    policy: Allocator,
    options: ControlOptions,
    say: Say,
    names: Collection[str] | None = None,
) -> Controller:
    """``names``: only these jobs; None: all. Raises ClusterError."""
    runner = Runner()
    survey = Survey(runner)
    config = _Cached(survey.cluster)
    config()
    return Controller(
        root,
        CommandCluster(runner),
        WallClock(),
        user=user,
        config=config,
        counts=_counts(survey, user, say),
        policy=policy,
        training=RuntimeTraining,
        options=options,
        names=names,
    )


def _counts(survey: Survey, user: str, say: Say) -> JobCounts:
    """Of this user. A site without accounting has no limits; one that Slurm enforces all the same
    shows as a refusal.
    """
    try:
        return counts_of(user, survey.limits("", user), survey.qos())
    except ClusterError as error:
        say(f"note: your limits can't be read, so none are kept: {error}")
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


def _control(root: Path, controller: Controller, poll_s: int, say: Say) -> int:
    """Until no job is left, or a signal comes: jobs then stay as they are."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    while controller.cycle():
        if ending.wait(poll_s):
            say(
                "The controller ends. Your elastic jobs run on with their base tasks; extra tasks"
                " leave within a slot. `mirage elastic run` goes on, `mirage elastic stop NAME`"
                " ends one."
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


def stop_jobs(names: Sequence[str], user: str, say: Say) -> int:
    """Ends jobs: by the controller, or without one by itself."""
    root = files.elastic_folder()
    folders = [files.job_folder(root, name) for name in names]
    left = [folder.name for folder in _asked_to_stop(folders, say)]
    lock = root / files.CONTROLLER_LOCK
    if not left or is_held(lock):
        return 0
    with exclusive(lock):
        options = ControlOptions()
        controller = _controller(root, user, policy_named("drf"), options, say, left)
        _control(root, controller, STOP_POLL_S, say)
    return 0


def _asked_to_stop(folders: Sequence[Path], say: Say) -> Iterator[Path]:
    """Those that are not over."""
    for folder in folders:
        if end := JobJournal(folder).record.end:
            say(f"{folder.name}: it was over already ({end})")
            continue
        (folder / files.STOP).touch()
        say(
            f"{folder.name}: it saves its state and ends; it continues by"
            f" mirage elastic run --resume {folder.name}"
        )
        yield folder
