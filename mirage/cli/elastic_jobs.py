"""`mirage elastic run|status|stop`: elastic training jobs on Slurm (docs/elastic-jobs.md)."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mirage.chain.durations import format_duration
from mirage.cli.groups import Verb, needs, seconds
from mirage.cli.table import console
from mirage.elastic.jobs.folder import is_controlled, reports
from mirage.errors import InputError
from mirage.user.sources import me
from slurm_sim.cli.arguments import positive, whole_number

if TYPE_CHECKING:
    from mirage.elastic.jobs.controller import ControlOptions

Json = dict[str, Any]


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
    _add_decisions(parser.add_argument_group("decisions"))


def _add_decisions(decisions: argparse._ArgumentGroup) -> None:
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
        "--slot",
        type=seconds,
        default=300,
        metavar="D",
        help="time between two decisions (default 5min)",
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
        "--poll",
        type=seconds,
        default=15,
        metavar="D",
        help="time between two looks at Slurm (default 15s)",
    )


def add_status(parser: argparse.ArgumentParser) -> None:
    """The options of `status`."""
    parser.add_argument("name", nargs="?", help="job (default: all that are not over)")
    parser.add_argument("--all", action="store_true", help="jobs that are over too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/elastic-jobs.md)")


def add_stop(parser: argparse.ArgumentParser) -> None:
    """The options of `stop`."""
    parser.add_argument("names", nargs="+", metavar="NAME", help="jobs to end")


def run(args: argparse.Namespace) -> int:
    """Registers the jobs, and controls all of them unless a controller does already."""
    needs("elastic", "zmq")
    from mirage.apps.elastic_jobs import RunPlan, run_jobs

    options = _options(args)
    plan = RunPlan(
        user=me(),
        jobs=args.jobs,
        resume=args.resume,
        policy=args.policy,
        options=options,
        poll_s=args.poll,
    )
    return run_jobs(plan, _say)


def _say(words: str) -> None:
    console.print(escape(words))


def _options(args: argparse.Namespace) -> ControlOptions:
    from mirage.elastic.jobs.controller import ControlOptions

    if 2 * args.poll > args.slot:
        raise InputError(f"--poll {args.poll} s: more than half of --slot, {args.slot} s")
    if args.reserve < 0:
        raise InputError(f"--reserve {args.reserve}: expected 0 or more")
    return ControlOptions(
        slot_s=args.slot, most_gpus=args.gpus, is_polite=args.polite, reserve=args.reserve
    )


def status(args: argparse.Namespace) -> int:
    """Shows jobs, from their folders: no controller is needed."""
    found = reports(args.name)
    if not (args.name or args.all):
        found = [report for report in found if not report["end"]]
    if args.json:
        print(json.dumps({"jobs": found, "controller": is_controlled()}, indent=2))
        return 0
    if not found:
        console.print("You have no running elastic job. Start one: mirage elastic run JOB.toml")
    for report in found:
        _show(report)
    if any(not report["end"] for report in found) and not is_controlled():
        console.print("No controller of yours is seen to run: `mirage elastic run` starts one.")
    return 0


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
        parts = [f"{seconds / 3600:.2f} GPU hours held"]
        parts += [
            f"{report[key] / 3600:.2f} {name}"
            for key, name in (
                ("gpu_seconds_trained", "trained"),
                ("gpu_seconds_extra", "of extra tasks"),
            )
            if key in report
        ]
        words.append(" / ".join(parts))
    console.print(", ".join(filter(None, words)))
    for task in report["tasks"]:
        where = ",".join(task["nodes"]) or task["reason"] or "-"
        leaving = f"leaves: {task['why']}" if task["leaving"] else ""
        console.print(
            f"  {task['task']:5} {task['role']:11} {task['share']:5} {task['job_id'] or '-':>8}"
            f" {task['state']:10} {escape(where):12} {escape(leaving)}".rstrip()
        )
    if (speeds := report.get("speeds")) and not report["end"]:
        shown = ", ".join(
            f"{it['workers']}: {it['steps_per_s']:.3g} +-{it['error']:.0%}" for it in speeds
        )
        console.print(f"  Steps/s believed by workers: {shown}")
    if report.get("held_back") and not report["end"]:
        console.print("  It does not grow: somebody queues for its nodes.")
    if (refused := report.get("refused")) and not report["end"]:
        console.print(f"  Slurm refuses a task, and is asked again: {escape(refused)}")
    if (stuck := report.get("stuck")) and not report["end"]:
        console.print(f"  Slurm can't start these tasks as they are: {escape(stuck)}")


def stop(args: argparse.Namespace) -> int:
    """Ends jobs: by the controller, or without one by itself."""
    from mirage.apps.elastic_jobs import stop_jobs

    return stop_jobs(args.names, me(), _say)


VERBS: tuple[Verb, ...] = (
    ("run", add_run, run, "elastic training jobs on Slurm, and their controller"),
    ("status", add_status, status, "your elastic jobs: tasks, sizes, progress"),
    ("stop", add_stop, stop, "end elastic jobs; their state is saved"),
)
