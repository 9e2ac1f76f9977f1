"""The second half of a cycle: the store's chains and links become what Slurm shows.

Each vanished job is looked up. Links that no cycle saw are added. Chains without a living link
end. What is decided on the way is pure: `chain_end.py`, `missed_links.py`, `handover_log.py`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirage.chain.handoff import Handoff
from mirage.chain.runs import by_job, is_requeued, link_of_runs
from mirage.chain.tag import parse_tag
from mirage.daemon.chain_end import (
    LOST_AFTER_S,
    chain_end,
    is_job_of,
    is_long_over,
    is_lost,
    lost_chain_end,
    lost_link,
)
from mirage.daemon.handover_log import HandoverLog
from mirage.daemon.missed_links import Key, missing_since_s, read_answer
from mirage.daemon.tick import (
    DropLink,
    LookUp,
    SaveChain,
    SaveLink,
    TickAction,
    is_present,
    observed,
)
from mirage.domain import Chain, Job, Link, Snapshot
from mirage.errors import ClusterError, Unreadable
from mirage.ports import ChainStore, Clock, Cluster

log = logging.getLogger(__name__)


@dataclass
class _Sightings:
    """Jobs of links, by what Slurm says of them in this cycle."""

    present: set[int]
    """In the queue, or known to slurmctld or accounting as over or unreadable."""
    runaway: set[int] = field(default_factory=set)
    """Forgotten by slurmctld, while accounting has them as living."""


class Reconciler:
    """Of all users' chains, or of those of ``only_user``. Releases nothing."""

    def __init__(
        self, cluster: Cluster, store: ChainStore, clock: Clock, only_user: str | None = None
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._only_user = only_user
        self._handovers = HandoverLog()
        self._missing_s: dict[int, int] = {}
        """Since when nobody knows these jobs."""
        self._lost: list[Link] = []

    def observe(self, snapshot: Snapshot) -> None:
        """Writes what Slurm shows now into the store. Raises ClusterError, StoreError."""
        actions = observed(snapshot, self._store, self._clock, only_user=self._only_user)
        self.save(actions)
        self.reconcile(actions, snapshot)

    def save(self, actions: Sequence[TickAction]) -> None:
        """Writes chains and links down, all or none. Raises StoreError."""
        with self._store.transaction():
            for action in actions:
                match action:
                    case SaveChain(chain):
                        self._store.save_chain(chain)
                    case SaveLink(link, before):
                        self._handovers.note(before, link)
                        self._store.save_link(link)
                    case DropLink(link):
                        self._store.drop_link(link)
                        self._note_lost(link)

    def reconcile(self, actions: Sequence[TickAction], snapshot: Snapshot) -> None:
        """Settles what became of jobs that left the queue, and of their chains.

        ``actions``: saved ones of this cycle's tick. Raises ClusterError, StoreError.
        """
        if not any(isinstance(action, LookUp) for action in actions):
            self._missing_s = {}
        known = self._store.open_links()
        sightings = _Sightings({link.job_id for link in known if is_present(link, snapshot)})
        for action in actions:
            if isinstance(action, LookUp):
                self._look_up(action, sightings)
        # Only now: a link that was just looked up may be over, and its chain with it.
        active, living = self._store.active_chains(), self._living_links()
        new = [each.link for each in actions if isinstance(each, SaveLink) and each.before is None]
        incomplete = self._add_missed_links(active, living, new, snapshot)
        self._close_chains(active, living, sightings, incomplete)

    def handovers(self) -> list[Handoff]:
        """Those that became known since the last call."""
        handovers, self._handovers = self._handovers, HandoverLog()
        return handovers.handovers(self._store)

    def lost(self) -> list[Link]:
        """Those that were found lost since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def _look_up(self, action: LookUp, sightings: _Sightings) -> None:
        """Asks slurmctld, and for what it has forgotten accounting, what became of these."""
        unreadable: set[int] = set()
        links = (*action.links, *action.requeued)
        try:
            found = self._cluster.jobs([link.job_id for link in links])
        except Unreadable as error:
            # A job that is there and can't be read is not gone: its chain must not end for that.
            found, unreadable = error.jobs, {oddity.job_id for oddity in error.oddities}
        shown = found.keys()
        found = {job_id: lives[-1] for job_id, lives in _own(links, found.values()).items()}
        of_slurmctld = set(found) | unreadable
        gone = [each for each in links if _is_untold(each, found.get(each.job_id), of_slurmctld)]
        told = self._accounting([*gone, *(each for each in action.requeued if each not in gone)])
        with self._store.transaction():
            for link in links:
                records = _records((told or {}).get(link.job_id, ()), found.get(link.job_id))
                if records:
                    found[link.job_id] = records[-1]
                    self._note_length(link, records[-1])
                    chain = self._store.links(link.user, link.chain_id)
                    after = link_of_runs(link, records, chain)
                    self._handovers.note(link, after)
                    self._store.save_link(after)
        # Accounting is behind, or a slurmctld that was killed took with it what it had not sent to
        # slurmdbd yet. So "living" there proves nothing, and such a job does not keep its chain.
        runaway = {
            job_id
            for job_id, job in found.items()
            if job_id not in of_slurmctld and not job.state.is_over
        }
        if told is not None:
            unknown = (runaway | {link.job_id for link in gone} - found.keys()) - of_slurmctld
            self._forget([link for link in gone if link.job_id in unknown], shown)
        sightings.runaway |= runaway
        sightings.present |= (set(found) | unreadable) - runaway

    def _note_length(self, link: Link, job: Job) -> None:
        """Takes over that a link is the last one, which it may find as it starts or ends."""
        tag, chain = parse_tag(job.comment), self._store.chain(link.user, link.chain_id)
        if tag and chain and tag.segment == tag.segments < chain.segments:
            self._store.save_chain(replace(chain, segments=tag.segments))

    def _accounting(self, links: Sequence[Link]) -> Mapping[int, Sequence[Job]] | None:
        """Job id -> its records. None while accounting can't be asked: a later cycle asks again,
        and no chain ends on a guess.
        """
        if not links:
            return {}
        # Of a link that was requeued unseen, what is known of its chain is as old as its first run.
        chains = {(link.user, link.chain_id) for link in links}
        since_s = min(
            run.submit_s
            for key in chains
            for link in self._store.links(*key)
            for run in link.each_run
        )
        try:
            jobs = [link.job_id for link in links]
            records = self._cluster.accounting(since_s, self._clock.now_s(), jobs)
            return _own(links, map(_without_old_comment, records))
        except ClusterError as error:
            log.warning(
                "%d jobs left the queue or were requeued; how they ended is not known now: %s",
                len(links),
                error,
            )
            return None

    def _living_links(self) -> Mapping[Key, Sequence[Link]]:
        living: dict[Key, list[Link]] = defaultdict(list)
        for link in self._store.open_links():
            living[link.user, link.chain_id].append(link)
        return living

    def _forget(self, unknown: Sequence[Link], shown: Collection[int]) -> None:
        """Drops links that a slurmctld took with it as it crashed. ``unknown``: nobody knows their
        end. ``shown``: ids that slurmctld has jobs of.
        """
        now_s, ids = self._clock.now_s(), {link.job_id for link in unknown}
        self._missing_s = {each: at_s for each, at_s in self._missing_s.items() if each in ids}
        for link in unknown:
            others = [each for each in self._store.links(link.user, link.chain_id) if each != link]
            since_s = self._missing_s.setdefault(link.job_id, now_s)
            missing_s = LOST_AFTER_S if link.job_id in shown else now_s - since_s
            if not is_lost(link, others, now_s, missing_s):
                continue
            where = f"chain {link.chain_id} of {link.user}: {lost_link(link.segment)}"
            log.warning("%s (job %d)", where, link.job_id)
            with self._store.transaction():
                if link.runs:  # what it ran before Slurm requeued it stays
                    self._store.save_link(replace(link.each_run[-2], runs=link.runs[:-1]))
                else:
                    self._store.drop_link(link)
                self._note_lost(link)
            self._lost.append(link)

    def _note_lost(self, link: Link) -> None:
        if chain := self._store.chain(link.user, link.chain_id):
            self._store.save_chain(replace(chain, reason=lost_link(link.segment)))

    def _add_missed_links(
        self,
        active: Sequence[Chain],
        living: Mapping[Key, Sequence[Link]],
        new: Sequence[Link],
        snapshot: Snapshot,
    ) -> Collection[Key]:
        """Saves the links that no cycle saw. Returns the chains that may have further ones.

        ``living``: links of each chain that are not over. ``new``: links first seen in this cycle.
        """
        # A job that starts and ends between two cycles leaves two traces: its chain has no living
        # link though it should go on, or the next link names a predecessor that nobody knows. All
        # other chains are complete, and accounting is not asked about them.
        known_ids = {None, *snapshot.present}
        orphaned = {
            (link.user, link.chain_id) for link in new if link.predecessor_id not in known_ids
        }
        suspects: dict[Key, Sequence[Link]] = {}
        since_s = []
        for chain in active:
            key = (chain.user, chain.chain_id)
            if key in living and key not in orphaned:
                continue
            links = self._store.links(*key)
            if (missing_s := missing_since_s(chain, links)) is not None:
                suspects[key] = links
                since_s.append(missing_s)
        # One question for all: sacct's cost is that of the call, hardly that of its window.
        return self._ask_for_missed_links(min(since_s), suspects) if suspects else ()

    def _ask_for_missed_links(
        self, since_s: int, suspects: Mapping[Key, Sequence[Link]]
    ) -> Collection[Key]:
        users, now_s = {user for user, _ in suspects}, self._clock.now_s()
        try:
            jobs = self._cluster.submissions(since_s, now_s, users)
        except ClusterError as error:
            log.warning(
                "whether %d chains had links that no cycle saw is not known now: %s",
                len(suspects),
                error,
            )
            return suspects.keys()
        answer = read_answer(jobs, suspects, now_s)
        with self._store.transaction():
            for link in answer.links:
                self._handovers.note(None, link)
                self._store.save_link(link)
        if answer.links:
            log.info(
                "%d links lived between two cycles; accounting tells of them", len(answer.links)
            )
        return answer.incomplete

    def _close_chains(
        self,
        active: Sequence[Chain],
        living: Mapping[Key, Sequence[Link]],
        sightings: _Sightings,
        incomplete: Collection[Key],
    ) -> None:
        """Ends the chains that have no living link. ``incomplete``: may have unknown links."""
        now_s = self._clock.now_s()
        for chain in active:
            key = (chain.user, chain.chain_id)
            unfinished = living.get(key, ())
            if any(link.job_id in sightings.present for link in unfinished):
                continue
            links = self._store.links(*key)
            # A link that accounting does not tell of yet could turn "failed" into "done". After a
            # day no record comes any more, and the chain ends on what is known.
            may_lack = key in incomplete
            if not unfinished and may_lack and not is_long_over(links, now_s):
                continue
            ended = (
                lost_chain_end(chain, links, sightings.runaway, now_s)
                if unfinished
                else chain_end(chain, links, now_s, may_lack=may_lack)
            )
            if ended:
                self._store.save_chain(ended)
                log.info(
                    "chain %s of %s is over: %s (%s)",
                    chain.chain_id,
                    chain.user,
                    ended.state.value,
                    ended.reason,
                )


def _is_untold(link: Link, job: Job | None, of_slurmctld: Collection[int]) -> bool:
    """Whether only accounting can tell what became of it: slurmctld has forgotten the job, or has
    requeued it and shows the present run alone.
    """
    return link.job_id not in of_slurmctld if job is None else is_requeued(link, job)


def _records(told: Sequence[Job], shown: Job | None) -> Sequence[Job]:
    """Of one job, oldest first. What slurmctld shows of the present run goes before its record."""
    if shown is None:
        return told
    return [*(job for job in told if job.submit_s < shown.submit_s), shown]


def _without_old_comment(record: Job) -> Job:
    """A comment in accounting may be that of the submission, which its owner has changed since. One
    that tells when the job was ready is newer.
    """
    tag = parse_tag(record.comment)
    return record if tag and tag.ready_s else replace(record, comment="")


def _own(links: Sequence[Link], jobs: Iterable[Job]) -> Mapping[int, Sequence[Job]]:
    """Job id -> the records of the link's own job among these, oldest first."""
    by_id = {link.job_id: link for link in links}
    return by_job(job for job in jobs if job.job_id in by_id and is_job_of(by_id[job.job_id], job))
