"""`mirage when [SCRIPT | sbatch's options | JOB...]`: when would this job start?"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.chain.durations import format_duration, parse_duration
from mirage.chain.tag import MAX_JOB_ID
from mirage.cli.table import console, when
from mirage.errors import InputError, system_says
from mirage.slurm.fields import array_tasks
from mirage.user.slurm_access import adapter_config, slurm_of, slurm_user, survey_of

if TYPE_CHECKING:  # the simulator's records take a while to import
    from mirage.provision.starts.answer import (
        ShapeForecast,
        SlurmsPlan,
        StartAnswer,
        StartQuestion,
        StartSources,
    )
    from mirage.provision.starts.forecast import StartForecast

Json = dict[str, Any]
_JOB = re.compile(r"\d{1,15}(_(\d{1,9}|\[.*\]))?", re.ASCII)
_ALMOST_A_JOB = re.compile(r"\d+[_+].*|\d+|_\d+", re.ASCII)
_PLANNED = re.compile(r"to start at (\d+|\d{4}-[-\d]*T[:\d]+) (using .*)", re.ASCII)
"""`Job 7 to start at 2026-11-28T20:40:00 using 4 processors on nodes n1 in partition gpu`."""
WORTH_S = 600
"""Smaller differences between shapes are not told."""
OWN = dict.fromkeys(("--before", "--lines", "--speeds"), True)
OWN |= dict.fromkeys(("--choose", "--plot", "--json", "-h", "--help"), False)
"""Options of `mirage when` itself, and whether a value follows; all others are sbatch's."""


def in_front(words: Sequence[str]) -> list[str]:
    """The words with Mirage's own options first, and then `--`: all others are sbatch's."""
    own, others, rest = [], [], list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if name not in OWN:
            others.append(word)
            continue
        own.append(word)
        if OWN[name] and not value and rest:
            own.append(rest.pop(0))
    return [*own, "--", *others]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "mirage when [options] [sbatch options] [SCRIPT | JOB ...]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SCRIPT | JOB",
        help=(
            "a batch script, sbatch's options (-N 2 -t 4:00:00 --gres=gpu:2), or ids of pending jobs"
            " as squeue prints them: 60, 60_2, 60_[3-9]"
        ),
    )
    parser.add_argument(
        "--before",
        metavar="TIME",
        help="time, as 2026-02-01T08:00, or time from now, as 6h: the chance of a start until then",
    )
    parser.add_argument(
        "--lines",
        metavar="FILE",
        help="file with one question a line, in the words above; - is standard input",
    )
    parser.add_argument(
        "--choose",
        action="store_true",
        help="start, finish and cost in each partition, GPU type, account and QOS of one's own",
    )
    parser.add_argument(
        "--speeds",
        type=Path,
        metavar="FILE",
        help="speeds of partitions or GPU types, as a100 = 1.0 a line (default: all are equal)",
    )
    parser.add_argument(
        "--plot",
        action="store_true",
        help="coloured table of median waits by number of nodes and time limit",
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    questions = [args.words] if args.words else []
    if args.lines:
        questions += _lines(args.lines)
    if not questions:
        raise InputError(
            "give a script, sbatch's options, or a job id: mirage when -N 8 -t 48:00:00."
        )
    if args.choose:
        from mirage.cli import choose

        learned, reach = learned_here(), adapter_config()
        return choose.run(
            _question(args.words).options, args.speeds, reach, learned, as_json=args.json
        )
    sources, before = _sources(), _before(args.before)
    if args.plot:
        return _plot(sources.by_size(_question(args.words)), as_json=args.json)
    asked = [one for words in questions for one in _single(words)]
    if len(asked) == 1:
        found: list[StartAnswer | Unanswered] = [_answer(asked[0], sources)]
    else:
        found = [_attempt(words, sources) for words in asked]
    if args.json:
        records = [_record(each, before) for each in found]
        print(json.dumps(records[0] if len(records) == 1 else records, indent=2))
    else:
        for each in found:
            _show(each, before)
    return 2 if any(isinstance(each, Unanswered) for each in found) else 0


@dataclass(kw_only=True)
class Unanswered:
    """One of several questions that has no answer."""

    question: str
    error: str


def _lines(file: str) -> list[list[str]]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise InputError(f"--lines: {system_says(error)}") from error
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def _before(text: str | None) -> float | None:
    """Seconds since 1970, or from now where below a billion; None: not asked."""
    from datetime import datetime

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(
            f"--before: expected a time as 2026-02-01T08:00, or 6h, got {text!r}"
        ) from error


def _single(words: Sequence[str]) -> list[Sequence[str]]:
    """Ids of jobs one by one; else the words are one question."""
    if all(_ALMOST_A_JOB.fullmatch(word) for word in words):
        return [[word] for word in words]
    return [words]


def _attempt(words: Sequence[str], sources: StartSources) -> StartAnswer | Unanswered:
    try:
        return _answer(words, sources)
    except InputError as error:
        return Unanswered(question=shlex.join(words), error=str(error))


def _answer(words: Sequence[str], sources: StartSources) -> StartAnswer:
    if _ALMOST_A_JOB.fullmatch(words[0]) and len(words) == 1:
        return sources.of_job(*job_name(words[0]))
    if jobs := [word for word in words if _JOB.fullmatch(word) and words[0] == word]:
        raise InputError(f"give either job {jobs[0]} or a script and sbatch's options, not both.")
    return sources.of_shape(_question(words))


def job_name(text: str) -> tuple[int, str]:
    """A job's id and an array task's index, as squeue prints them; the first of several tasks.
    Raises InputError.
    """
    try:
        if not _JOB.fullmatch(text) or not 0 < int(text.partition("_")[0]) <= MAX_JOB_ID:
            raise ValueError
        return int(text.partition("_")[0]), array_tasks(text)[0]
    except ValueError:
        raise InputError(
            f"expected a job id as squeue prints it (60, 60_2, 60_[3-9]), got {text!r}"
        ) from None


def _question(words: Sequence[str]) -> StartQuestion:
    from mirage.chain.batch_script import parse_script
    from mirage.chain.command_line import parse_request
    from mirage.chain.request import find_script
    from mirage.provision.starts.answer import StartQuestion

    request = parse_request(words)
    if request.own:
        raise InputError(f"--{next(iter(request.own))} says nothing to when; leave it out.")
    options, script = list(request.options), []
    if request.script:
        path = find_script(request, str(Path.cwd()), os.environ.get("PATH", ""))
        try:
            options = [*parse_script(path.read_bytes()).options, *options]
        except OSError as error:
            raise InputError(f"{system_says(error)}; give a batch script.") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        script = [str(path)]
    given = [word for option in request.options for word in option.words]
    return StartQuestion(options, partial(_test_only, [*given, *(script or ["--wrap=true"])]))


def _test_only(words: Sequence[str]) -> SlurmsPlan:
    """What `sbatch --test-only` says of a start; nothing where there is no sbatch. Raises InputError with
    sbatch's own words where it refuses.
    """
    from mirage.errors import ClusterError
    from mirage.provision.starts.answer import SlurmsPlan
    from mirage.slurm.runner import Runner

    config = adapter_config()
    try:
        runner = Runner(bin_dir=config.bin_dir, timeout_s=config.timeout_s, retries=0)
        result = runner.run(["sbatch", "--test-only", *words])
    except ClusterError:
        return SlurmsPlan()
    lines = [line.removeprefix("sbatch: ") for line in result.stderr.splitlines() if line.strip()]
    if result.returncode:
        said = " ".join(line.removeprefix("error: ") for line in lines) or "no reason"
        raise InputError(f"sbatch refuses such a job: {said}")
    match = _PLANNED.search(lines[-1] if lines else "")
    return SlurmsPlan(_instant(match[1]), match[2]) if match else SlurmsPlan()


def _instant(text: str) -> int:
    """sbatch prints UTC here, as the runner sets TZ."""
    from datetime import UTC, datetime

    if text.isdecimal():
        return int(text)
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _sources() -> StartSources:
    from mirage.cli.groups import errors
    from mirage.provision.starts.answer import StartSources

    reach = adapter_config()
    survey = survey_of(reach)
    return StartSources(
        cluster=slurm_of(reach),
        describe=survey.cluster,
        reservations=survey.reservations,
        user=slurm_user(reach),
        learned=learned_here,
        warn=lambda text: errors.print(f"mirage when: {text}", markup=False),
    )


def learned_here() -> Any:
    """What one's own agent learnt, else what the site's service did; None: nothing yet."""
    from mirage.provision.starts.learnt import Learnt
    from mirage.user.waits_folder import waits_folders

    return Learnt(folders=waits_folders()).waits()


def _record(found: StartAnswer | Unanswered, before: float | None) -> Json:
    if isinstance(found, Unanswered):
        return asdict(found)
    return {
        "at": found.at_s,
        "job": found.job_id,
        "task": found.task,
        "method": found.forecasts[0].forecast.method,
        "ahead": found.ahead,
        "slurm": found.slurm,
        **_chance(found, before),
        "forecasts": _forecasts(found.forecasts),
    }


def _forecasts(found: Sequence[ShapeForecast]) -> list[Json]:
    return [
        {
            "nodes": each.shape.nodes,
            "time_limit_s": each.shape.time_limit_s,
            "partition": each.shape.partition,
            "cpus": each.shape.cpus,
            "gpus": each.shape.gpus,
            "wait_p10_s": round(each.forecast.wait_s[0]),
            "wait_p50_s": round(each.forecast.wait_s[1]),
            "wait_p90_s": round(each.forecast.wait_s[2]),
            "reason": each.forecast.reason,
        }
        for each in found
    ]


def _plot(found: Sequence[ShapeForecast], *, as_json: bool) -> int:
    from mirage.cli.when_plot import wait_table

    if as_json:
        print(json.dumps({"forecasts": _forecasts(found)}, indent=2))
    else:
        console.print(wait_table(found))
    return 0


def _chance(found: StartAnswer, before: float | None) -> Json:
    if before is None:
        return {}
    at_s = before if before > 1e9 else found.at_s + before
    chance = (
        found.forecasts[0].forecast.chance_within(at_s - found.at_s) if at_s > found.at_s else 0.0
    )
    return {"before": round(at_s), "chance_before": round(chance, 2)}


def _show(found: StartAnswer | Unanswered, before: float | None) -> None:
    if isinstance(found, Unanswered):
        print(f"mirage when: {found.question}: {found.error}", file=sys.stderr)
        return
    first = found.forecasts[0]
    low_s, middle_s, high_s = first.forecast.wait_s
    name = f"job {found.job_id}{found.task and '_' + found.task}"
    what = f"{name} ({first.shape})" if found.job_id else str(first.shape)
    say = partial(console.print, markup=False)
    say(
        f"{what}: starts in {_range(low_s, high_s)} (80 %), as likely before as after"
        f" {when(found.at_s + round(middle_s))} (in {format_duration(middle_s)})"
    )
    if asked := _chance(found, before):
        say(f"Chance of a start before {when(asked['before'])}: {asked['chance_before']:.0%}.")
    say(f"Why: {first.forecast.reason}.")
    say(f"Ahead: {found.ahead}.")
    if found.slurm:
        say(f"Slurm: {found.slurm}.")
    for other in found.forecasts[1:]:
        say(f"{other.shape.instead_of(first.shape)}: {_change(middle_s, other.forecast)}")


def _change(middle_s: float, other: StartForecast) -> str:
    sooner_s = middle_s - other.wait_s[1]
    words = "no difference to speak of"
    if abs(sooner_s) >= WORTH_S:
        words = f"{format_duration(abs(sooner_s))} {'sooner' if sooner_s > 0 else 'later'}"
    return f"{words} ({_range(other.wait_s[0], other.wait_s[2])})"


def _range(low_s: float, high_s: float) -> str:
    low, high = format_duration(low_s), format_duration(high_s)
    return low if low == high else f"{low} to {high}"
