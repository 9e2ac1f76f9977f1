"""`mirage pause CHAIN [--now]`."""

from __future__ import annotations

import argparse

from mirage.cli.chain_argument import add_chain, for_each_replica
from mirage.domain import JobState
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.pausing import end_now, hold, mark
from mirage.user.steering import Steering


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser)
    parser.add_argument(
        "--now",
        action="store_true",
        help=(
            "ask the running link to checkpoint and end, as a handover does (default: it runs to"
            " its end)"
        ),
    )


@for_each_replica("chain")
def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    chain = Steering.of(args.chain)
    chain.refuse_if_over("there is nothing to pause")
    if not chain.first_jobs():
        raise InputError(
            f"chain {args.chain}: none of its jobs is in the queue, so there is nothing to pause"
        )
    was_paused = not mark(chain)
    held = hold(chain)
    running = [job for job in chain.jobs() if job.state is JobState.RUNNING]
    said = [f"chain {args.chain} {'was paused already' if was_paused else 'is paused'}"]
    if held:
        said.append(f"held job{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}")
    said += (
        end_now(chain, running)
        if args.now
        else [f"job {job.job_id} runs on to its end" for job in running]
    )
    print(f"{'; '.join(said)}. `mirage resume {args.chain}` lets it go on.")
    return 0
