"""`mirage extend CHAIN --segments [+]N | --total-time [+]D`."""

from __future__ import annotations

import argparse
import math
import sys

from mirage.chain.durations import format_duration, parse_duration
from mirage.chain.folder import is_used_up, over_marker, read_then
from mirage.chain.tag import MAX_SEGMENTS, parse_tag
from mirage.cli.chain_names import resolve_chain
from mirage.cli.steering import Steering, links
from mirage.domain import Job
from mirage.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "chain",
        metavar="CHAIN|JOB",
        help="chain: its id, a prefix of it, or the id of one of its jobs",
    )
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument(
        "--segments",
        type=_count,
        metavar="[+]N",
        help="the chain has N links in all; +N: N more than now",
    )
    length.add_argument(
        "--total-time",
        type=_time,
        metavar="[+]D",
        help=(
            "as many links in all as D needs at their time limit; +D: as many more. D as for"
            " mirage-submit"
        ),
    )


def _count(text: str) -> tuple[bool, int]:
    number = text.removeprefix("+")
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= MAX_SEGMENTS:
        raise argparse.ArgumentTypeError(
            f"expected a number of links from 1 to {MAX_SEGMENTS}, or +N, got {text!r}"
        )
    return text.startswith("+"), int(number)


def _time(text: str) -> tuple[bool, int]:
    try:
        seconds = parse_duration(text.removeprefix("+"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not seconds:
        raise argparse.ArgumentTypeError(f"expected a duration above 0, got {text!r}")
    return text.startswith("+"), seconds


def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    chain = Steering.of(args.chain)
    over = over_marker(chain.folder)
    if over is None or not is_used_up(over):
        chain.refuse_if_over("start it again with mirage-submit")
    jobs, before = chain.first_jobs(), chain.segments
    if not jobs and over is None and chain.started < before:
        raise InputError(
            f"chain {args.chain}: none of its jobs is in the queue, though it has links left: "
            f"`mirage resume {args.chain}` queues the next one"
        )
    is_more, number = args.segments or _links_for(args.total_time, jobs)
    segments = number + before if is_more else number
    used = max([chain.started, *(tag.segment for job in jobs if (tag := parse_tag(job.comment)))])
    if segments < used:
        raise InputError(
            f"chain {args.chain}: link {used} has started or is queued, so it can't have {segments}"
            " links"
        )
    chain.set_segments(segments)
    queued = chain.go_on() if segments > used else {}
    if over is not None:
        for then in read_then(chain.folder):
            print(
                f"mirage extend: note: {then.script} has followed the chain, and does not again",
                file=sys.stderr,
            )
    elif chain.is_up_front and queued:
        _move_then(chain, queued[max(queued)])
    what = (
        f"has {segments} links now, {before} before"
        if segments != before
        else f"has {segments} links already"
    )
    print(f"chain {args.chain} {what}{_next(queued, jobs, segments > used)}")
    return 0


def _move_then(chain: Steering, last_id: int) -> None:
    """What was queued to follow the chain waits for its new last link. Raises ClusterError."""
    for then in read_then(chain.folder):
        if (
            then.job_id
            and (job := chain.cluster.jobs([then.job_id]).get(then.job_id))
            and job.is_pending
        ):
            chain.cluster.wait_for(then.job_id, last_id)


def _links_for(total_time: tuple[bool, int], jobs: list[Job]) -> tuple[bool, int]:
    is_more, seconds = total_time
    limits_s = [job.time_limit_s for job in jobs if job.time_limit_s]
    if not limits_s:
        raise InputError(
            "--total-time needs the time limit of a link, and no job with one runs or waits: use"
            " --segments"
        )
    number = math.ceil(seconds / limits_s[-1])
    if number > MAX_SEGMENTS:
        raise InputError(
            f"--total-time: {format_duration(seconds)} makes {number} links: expected 1 to"
            f" {MAX_SEGMENTS}"
        )
    return is_more, number


def _next(queued: dict[int, int], jobs: list[Job], has_more: bool) -> str:
    if queued:
        return f"; queued {links(queued)}"
    if has_more and jobs and not any(job.is_pending for job in jobs):
        return f"; job {jobs[-1].job_id} queues the next one while it runs"
    return ""
