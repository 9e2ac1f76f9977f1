"""`mirage when [-N N] [-t TIME] [-p PARTITION] | JOB`: when would this job start?"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.chain.durations import format_duration, parse_time_limit
from mirage.chain.tag import MAX_JOB_ID
from mirage.cli.table import console, when
from mirage.errors import InputError
from mirage.slurm.fields import array_tasks
from mirage.user.slurm_access import adapter_config, slurm_of, slurm_user, survey_of
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:  # numpy and the simulator take a second to import
    from mirage.provision.starts.answer import StartAnswer

Json = dict[str, Any]
_JOB = re.compile(r"\d{1,15}(_(\d{1,9}|\[.*\]))?", re.ASCII)
WORTH_S = 600
"""Smaller differences between shapes are not told."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        nargs="?",
        type=job_name,
        metavar="JOB",
        help="id of a job in the queue, as squeue prints it: 60, of array tasks 60_2 or 60_[3-9]",
    )
    shape = parser.add_argument_group("shape of a job that is not in the queue")
    shape.add_argument("-N", "--nodes", type=positive, metavar="N", help="nodes (default: 1)")
    shape.add_argument(
        "-t",
        "--time",
        type=_limit,
        metavar="TIME",
        help="time limit, in one of sbatch's forms (default: the partition's)",
    )
    shape.add_argument(
        "-p", "--partition", metavar="P", help="partition (default: the cluster's default)"
    )
    ahead = parser.add_argument_group("look-ahead")
    ahead.add_argument(
        "--model",
        metavar="FOLDER",
        help="model folder with a cluster.toml (default: policy.model of the configuration)",
    )
    ahead.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="results.json of mirage evaluate waits on this cluster (default: none)",
    )
    ahead.add_argument(
        "--futures",
        type=positive,
        default=64,
        metavar="N",
        help="number of futures to simulate at most (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def job_name(text: str) -> tuple[int, str]:
    """For argparse: a job's id and an array task's index, as squeue prints them; the first of several
    tasks.
    """
    try:
        if not _JOB.fullmatch(text) or not 0 < int(text.partition("_")[0]) <= MAX_JOB_ID:
            raise ValueError
        return int(text.partition("_")[0]), array_tasks(text)[0]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a job id as squeue prints it (60, 60_2, 60_[3-9]), got {text!r}"
        ) from None


def _limit(text: str) -> int:
    try:
        limit_s = parse_time_limit(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if limit_s is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time above 0, such as 48:00:00")
    return limit_s


def run(args: argparse.Namespace) -> int:
    has_shape = (args.nodes, args.time, args.partition) != (None, None, None)
    if args.job is not None and has_shape:
        raise InputError(f"give either job {args.job[0]} or a shape (-N, -t, -p), not both.")
    if args.job is None and not has_shape:
        raise InputError("give a job id, or a shape: -N 8 -t 48:00:00 -p PARTITION.")
    found = _answer(args)
    if args.json:
        print(json.dumps(_record(found), indent=2))
    else:
        _show(found)
    return 0


def _answer(args: argparse.Namespace) -> StartAnswer:
    from mirage.cli.groups import errors
    from mirage.config_sources import SITE_FILE, is_there, load, user_file
    from mirage.provision.starts.answer import StartQuestion, StartSources
    from mirage.provision.starts.forecast import AS_IT_IS, read_calibration
    from mirage.provision.starts.regression import read_regression

    usual = SITE_FILE if not user_file().exists() and is_there(SITE_FILE) else user_file()
    config = load(None, usual).config
    reach = adapter_config()
    survey = survey_of(reach)
    sources = StartSources(
        cluster=slurm_of(reach),
        describe=survey.cluster,
        reservations=survey.reservations,
        user=slurm_user(reach),
        model=args.model or config.policy.model,
        calibration=read_calibration(args.calibration) if args.calibration else AS_IT_IS,
        regression=read_regression(args.calibration) if args.calibration else None,
        futures=args.futures,
        warn=lambda text: errors.print(f"mirage when: {text}", markup=False),
    )
    if args.job is not None:
        return sources.of_job(*args.job)
    return sources.of_shape(StartQuestion(args.nodes or 1, args.time, args.partition))


def _record(found: StartAnswer) -> Json:
    return {
        "at": found.at_s,
        "job": found.job_id,
        "method": found.forecasts[0].forecast.method,
        "forecasts": [
            {
                "nodes": each.shape.nodes,
                "time_limit_s": each.shape.time_limit_s,
                "partition": each.shape.partition,
                "wait_p10_s": round(each.forecast.wait_s[0]),
                "wait_p50_s": round(each.forecast.wait_s[1]),
                "wait_p90_s": round(each.forecast.wait_s[2]),
                "reason": each.forecast.reason,
            }
            for each in found.forecasts
        ],
    }


def _show(found: StartAnswer) -> None:
    first = found.forecasts[0]
    low_s, middle_s, high_s = first.forecast.wait_s
    name = f"job {found.job_id}{found.task and '_' + found.task}"
    what = f"{name} ({first.shape})" if found.job_id else str(first.shape)
    console.print(
        f"{what}: starts in {_range(low_s, high_s)} (80 %), as likely before as after"
        f" {when(found.at_s + round(middle_s))} (in {format_duration(middle_s)})",
        markup=False,
    )
    console.print(f"Why: {first.forecast.reason}.", markup=False)
    for other in found.forecasts[1:]:
        sooner_s = middle_s - other.forecast.wait_s[1]
        change = (
            f"{format_duration(abs(sooner_s))} {'sooner' if sooner_s > 0 else 'later'}"
            if abs(sooner_s) >= WORTH_S
            else "no difference to speak of"
        )
        range_s = _range(other.forecast.wait_s[0], other.forecast.wait_s[2])
        console.print(f"{other.shape.instead_of(first.shape)}: {change} ({range_s})", markup=False)


def _range(low_s: float, high_s: float) -> str:
    low, high = format_duration(low_s), format_duration(high_s)
    return low if low == high else f"{low} to {high}"
