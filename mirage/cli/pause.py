"""`mirage pause CHAIN [--now]`."""

from __future__ import annotations

import argparse
import time

from mirage.chain.folder import is_paused, mark_paused, read_starts
from mirage.chain.tag import parse_tag
from mirage.cli.chain_argument import add_chain
from mirage.domain import Job, JobState, Mode
from mirage.errors import ClusterError, InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.ending import ROUNDS
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


def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    chain = Steering.of(args.chain)
    chain.refuse_if_over("there is nothing to pause")
    if not chain.first_jobs():
        raise InputError(
            f"chain {args.chain}: none of its jobs is in the queue, so there is nothing to pause"
        )
    was_paused = is_paused(chain.folder)
    if not was_paused:
        try:
            mark_paused(chain.folder, int(time.time()))
        except OSError as error:
            raise ClusterError(
                f"can't write to the chain's folder {chain.folder}: {error}; nothing was done"
            ) from error
    held = _hold(chain)
    running = [job for job in chain.jobs() if job.state is JobState.RUNNING]
    said = [f"chain {args.chain} {'was paused already' if was_paused else 'is paused'}"]
    if held:
        said.append(f"held job{'s' if len(held) > 1 else ''} {', '.join(map(str, held))}")
    said += (
        _end_now(chain, running)
        if args.now
        else [f"job {job.job_id} runs on to its end" for job in running]
    )
    print(f"{'; '.join(said)}. `mirage resume {args.chain}` lets it go on.")
    return 0


def _hold(chain: Steering) -> list[int]:
    """Holds the chain's queued jobs; a link that has just started may be queueing another."""
    held: list[int] = []
    for attempt in range(ROUNDS):
        waiting = [job.job_id for job in chain.jobs() if job.is_pending and not job.is_held]
        if waiting:
            chain.cluster.hold(waiting)
            held += [job_id for job_id in waiting if job_id not in held]
        elif attempt:
            break
        time.sleep(1)
    return sorted(held)


def _end_now(chain: Steering, running: list[Job]) -> list[str]:
    """A link that waits for its predecessor's end goes back to the queue by itself."""
    said = []
    segments = {job.job_id: tag.segment for job in running if (tag := parse_tag(job.comment))}
    works = (
        set(segments.values()) if chain.mode is Mode.SERVICE else set(list(segments.values())[:1])
    )
    if chain.segments in works:  # else the rest of its work would have no link left
        chain.set_length(chain.segments + 1, chain.length)
        said.append("it has one link more, for the rest of its work")
        chain.go_on()
    starts = read_starts(chain.folder)
    for job in running:
        segment = segments.get(job.job_id, 0)
        if segment in starts and starts[segment].job_id == job.job_id:
            chain.ask_to_end(job, segment)
            said.append(f"asked job {job.job_id} to end")
    return said
