"""Links that no cycle saw, since they started and ended between two of them, or while the service
was away.

Pure. Says from when on accounting is to be asked, and what its answer holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage.chain.runs import by_job, link_of_runs
from mirage.chain.tag import parse_tag
from mirage.daemon.tick import link_of
from mirage.domain import Chain, Job, Link

Key = tuple[str, str]
"""(user, chain id)."""

LATE_S = 30
"""So long after a job's end accounting may still lack what followed it."""


def missing_since_s(chain: Chain, links: Sequence[Link]) -> int | None:
    """Links of the chain that are not among these must have lived after this time; None: none is
    missing.

    A link that names an unknown predecessor has one. After the last known link, if that ran, there
    may be others: each queues the next one.
    """
    known = {link.job_id for link in links}
    orphans = [link for link in links if link.predecessor_id not in known | {None}]
    found = [_before_s(link, links) for link in orphans]
    last = max(links, key=lambda link: link.segment, default=None)
    if last and last.is_over and last.has_started and last.segment < chain.segments:
        found.append(last.each_run[0].start_s or last.submit_s)
    return min(found, default=None)


def _before_s(orphan: Link, links: Sequence[Link]) -> int:
    """Its predecessor submitted it, so it still ran then. Further ones came after the last known
    link before.
    """
    earlier = [link.start_s or link.submit_s for link in links if link.segment < orphan.segment]
    return min(orphan.submit_s, max(earlier, default=orphan.submit_s))


@dataclass(frozen=True)
class Answer:
    """What accounting knows of some chains."""

    links: Sequence[Link]
    """Those that are over and were not known."""
    incomplete: Collection[Key]
    """Chains that may have had more links: accounting is or may be behind, or has a job that is
    about to be seen.
    """


def read_answer(jobs: Sequence[Job], known: Mapping[Key, Sequence[Link]], now_s: int) -> Answer:
    """``jobs``: of `Cluster.submissions`. ``known``: the chains in question, with their links as
    the store has them.
    """
    recorded: dict[Key, list[Link]] = {key: [] for key in known}
    for link in _links(jobs, known):
        if (link.user, link.chain_id) in recorded:
            recorded[link.user, link.chain_id].append(link)
    new = [
        link
        for key, links in recorded.items()
        for link in links
        if link.is_over and not _has(known[key], link)
    ]
    return Answer(
        new, {key for key, links in recorded.items() if not _is_settled(known[key], links, now_s)}
    )


def _links(jobs: Sequence[Job], known: Mapping[Key, Sequence[Link]]) -> Iterator[Link]:
    """A known link is of the chain that it was last seen in, not of the one that it was submitted
    for.
    """
    seen = {(link.user, link.job_id): link for links in known.values() for link in links}
    chains = {key: list(links) for key, links in known.items()}
    told: list[tuple[Link, Sequence[Job]]] = []
    for records in by_job(jobs).values():
        if link := seen.get((records[0].user, records[0].job_id)) or _new_link(records[0]):
            told.append((link, records))
            chains.setdefault((link.user, link.chain_id), []).append(link)
    for link, records in told:
        yield link_of_runs(link, records, chains[link.user, link.chain_id])


def _new_link(job: Job) -> Link | None:
    tag = None if job.array_task else parse_tag(job.comment)
    return link_of(job, tag, None) if tag else None


def _has(known: Sequence[Link], link: Link) -> bool:
    return any(link.job_id == other.job_id for other in known)


def _is_settled(known: Sequence[Link], recorded: Sequence[Link], now_s: int) -> bool:
    """Accounting knows the end of the last known link or of a later one, and nothing after it that
    lives.

    That end must be some time ago: a successor that started then and ended at once may not be recorded
    of yet.
    """
    over = [link for link in recorded if link.is_over]
    ended = max((link.segment for link in over), default=0)
    alive = max((link.segment for link in recorded if not link.is_over), default=0)
    if alive > ended or ended < max(
        (link.segment for link in known if link.has_started), default=0
    ):
        return False
    return all(now_s - link.end_s >= LATE_S for link in over if link.end_s is not None)
