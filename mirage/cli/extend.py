"""`mirage extend CHAIN --segments [+]N | --total-time [+]D`."""

from __future__ import annotations

import argparse
import sys

from mirage.chain.durations import parse_duration
from mirage.chain.folder import is_used_up, over_marker, read_then
from mirage.chain.length import (
    in_words,
)
from mirage.chain.tag import MAX_SEGMENTS, parse_tag
from mirage.cli.chain_argument import add_chain, for_each_replica
from mirage.domain import Job
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.lengthening import move_then, wanted
from mirage.user.steering import START_AGAIN, Steering, links


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument(
        "--segments",
        type=_count,
        metavar="[+]N",
        help="time limits that the links may use in all; +N: N more than now",
    )
    length.add_argument(
        "--total-time",
        type=_time,
        metavar="[+]D",
        help=("time that the links run in all; +D: so much more. D as for mirage-submit"),
    )


def _count(text: str) -> tuple[bool, int]:
    number = text.removeprefix("+")
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= MAX_SEGMENTS:
        raise argparse.ArgumentTypeError(
            f"expected a number of time limits from 1 to {MAX_SEGMENTS}, or +N, got {text!r}"
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


@for_each_replica("chain")
def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    chain = Steering.of(args.chain)
    over = over_marker(chain.folder)
    if over is None or not is_used_up(over):
        chain.refuse_if_over(START_AGAIN)
    jobs, before = chain.first_jobs(), in_words(chain.length, chain.segments)
    if not jobs and over is None and chain.started < chain.segments:
        raise InputError(
            f"chain {args.chain}: none of its jobs is in the queue, though it has links left: "
            f"`mirage resume {args.chain}` queues the next one"
        )
    segments, length = wanted(chain, jobs, args.segments, args.total_time)
    used = max([chain.started, *(tag.segment for job in jobs if (tag := parse_tag(job.comment)))])
    if segments < used:
        raise InputError(
            f"chain {args.chain}: link {used} has started or is queued, so it can't have"
            f" {in_words(length, segments)}"
        )
    chain.set_length(segments, length)
    queued = chain.go_on() if segments > used else {}
    if over is not None:
        for then in read_then(chain.folder):
            print(
                f"mirage extend: note: {then.script} has followed the chain, and does not again",
                file=sys.stderr,
            )
    elif chain.is_up_front and queued:
        move_then(chain, queued[max(queued)])
    now = in_words(length, segments)
    what = f"has {now} now (before: {before})" if now != before else f"has {now} already"
    print(f"chain {args.chain} {what}{_next(queued, jobs, segments > used)}")
    return 0


def _next(queued: dict[int, int], jobs: list[Job], has_more: bool) -> str:
    if queued:
        return f"; queued {links(queued)}"
    if has_more and jobs and not any(job.is_pending for job in jobs):
        return f"; job {jobs[-1].job_id} queues the next one while it runs"
    return ""
