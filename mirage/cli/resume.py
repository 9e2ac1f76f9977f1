"""`mirage resume CHAIN`."""

from __future__ import annotations

import argparse
import itertools
import time

from mirage.chain.folder import is_paused, is_used_up, mark_resumed, over_marker
from mirage.cli.chain_argument import add_chain, for_each_replica
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.ending import ROUNDS
from mirage.user.steering import LAST_LINK_S, START_AGAIN, Steering, links


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser)


@for_each_replica("chain")
def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    chain = Steering.of(args.chain)
    over = over_marker(chain.folder)
    more = f"more links: mirage extend {args.chain} --segments +1"
    chain.refuse_if_over(more if over and is_used_up(over) else START_AGAIN)
    jobs, was_paused = chain.first_jobs(), is_paused(chain.folder)
    if not jobs and chain.started >= chain.segments:
        raise InputError(
            f"chain {args.chain}: all {chain.segments} links have run. More: mirage extend"
            f" {args.chain} --segments +1"
        )
    mark_resumed(chain.folder, int(time.time()))
    released = _release(chain) if was_paused or any(job.is_held for job in jobs) else []
    queued = chain.go_on()
    if not (was_paused or released or queued):
        print(f"chain {args.chain} is not paused: nothing to do")
        return 0
    said = (
        [f"released job{'s' if len(released) > 1 else ''} {', '.join(map(str, released))}"]
        if released
        else []
    )
    said += [f"queued {links(queued)}"] if queued else []
    print("; ".join([f"chain {args.chain} goes on", *said]))
    return 0


def _release(chain: Steering) -> list[int]:
    """Releases the chain's held jobs; a link may just be queueing one, or be on its way back to the
    queue.
    """
    released: list[int] = []
    begun_s = time.monotonic()
    for attempt in itertools.count(1):
        jobs = chain.jobs()
        held = [job.job_id for job in jobs if job.is_held]
        if held:
            chain.cluster.unhold(held)
            released += [job_id for job_id in held if job_id not in released]
        returns = (
            any(chain.goes_back(job) for job in jobs) and time.monotonic() - begun_s < LAST_LINK_S
        )
        if not returns and not held and (released or attempt >= ROUNDS):
            break
        time.sleep(1)
    return sorted(released)
