"""The service: puts the ports together and carries out what `tick` says."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from mirage.chain.handoff import Handoff
from mirage.daemon.chain_end import chain_end, chain_lost, is_long_over, latest, settled
from mirage.daemon.chain_quota import Intake
from mirage.daemon.handover_log import Moved
from mirage.daemon.missed_links import Key, missing_since_s, read_answer
from mirage.daemon.restraint import Acting
from mirage.daemon.tick import (
    DropLink,
    LookUp,
    Release,
    SaveChain,
    SaveLink,
    TickAction,
    Wait,
    observed,
    tick,
)
from mirage.domain import Chain, Decision, Job, Link, Snapshot
from mirage.errors import ClusterError, MirageError, Unreadable
from mirage.ports import ChainStore, Clock, Cluster, Policy, Store

if TYPE_CHECKING:  # numpy and the like: `mirage status` needs the Follower alone, and is to be fast
    from mirage.daemon.audit import Audit
    from mirage.daemon.execute import Executor
    from mirage.daemon.last_cycle import Board
    from mirage.daemon.memory import Memory
    from mirage.daemon.metrics import Metrics

log = logging.getLogger(__name__)

WARM_UP_AGAIN_S = 3600
"""Where accounting could not be read at the start, it is tried again after this long."""


class Daemon:
    """One service: `mirage daemon` for all users' chains, `mirage agent` for those of
    ``only_user``.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        clock: Clock,
        policy: Policy,
        *,
        poll_s: int,
        acting: Acting,
        only_user: str | None = None,
        audit: Audit | None = None,
        baselines: Sequence[Policy] = (),
        publish: Callable[[Snapshot], None] | None = None,
        metrics: Metrics | None = None,
        board: Board | None = None,
        intake: Intake | None = None,
    ) -> None:
        """``baselines``: policies whose answers the audit log has beside those of ``policy``.

        ``publish`` is given what each cycle sees of the cluster; if it fails, the cycle goes on.
        """
        self._publish = publish
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._policy = policy
        self._poll_s = poll_s
        self._only_user = only_user
        self._baselines = baselines
        self._audit = audit
        self._metrics = metrics
        self._board = board
        self._intake = intake or Intake(acting.chains_per_user_per_hour)
        self._acting = acting
        self._follower = Follower(cluster, store, clock, only_user)
        self.seen_s: int | None = None
        """When the queue was looked at last; None: not yet."""
        self._warm_up_s: float = 0
        """When to fill the memory from accounting; never again once that is done."""

    @cached_property
    def _memory(self) -> Memory:
        from mirage.daemon.memory import Memory

        return Memory(self._store)

    @cached_property
    def _executor(self) -> Executor:
        from mirage.daemon.execute import Executor

        return Executor(
            self._cluster, self._store, self._clock, self._acting, self._audit, self._metrics
        )

    def run_cycle(self) -> bool:
        """One cycle. If anything fails, that is logged and False returned: the next cycle tries
        again.
        """
        try:
            self._cycle()
        except MirageError as error:
            log.warning("cycle skipped: %s", error)
            return False
        except Exception:  # the last resort: a fault of ours must not end the service
            log.exception("cycle skipped: a fault in Mirage; please report it")
            return False
        return True

    def _cycle(self) -> None:
        snapshot = self._cluster.snapshot()
        if snapshot.at_s >= self._warm_up_s:
            self._tell_settings()
            warm = self._memory.warm_up(self._cluster, snapshot)
            self._warm_up_s = inf if warm else snapshot.at_s + WARM_UP_AGAIN_S
        self._memory.observe(snapshot)
        self._tell(snapshot)
        self._executor.resume()
        actions = self._tick(snapshot)
        self._follower.save(actions)
        decided = [action for action in actions if isinstance(action, Wait | Release)]
        self._show(snapshot, [action.decision for action in decided])
        try:
            self._executor.carry_out(decided, snapshot.at_s)
            self._follower.follow(actions, snapshot)
            self.seen_s = snapshot.at_s
        finally:
            self._tell_handovers()

    def _show(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        if self._metrics:
            self._metrics.saw(snapshot)
            self._metrics.decided(decisions)
        if self._board:
            self._board.saw(snapshot, decisions)

    def _tell(self, snapshot: Snapshot) -> None:
        if self._publish is None:
            return
        try:
            self._publish(snapshot)
        except MirageError as error:
            log.warning("routing: nothing published: %s", error)

    def _tell_settings(self) -> None:
        try:
            settings = self._cluster.settings()
        except ClusterError as error:
            log.warning("Slurm's configuration can't be read: %s", error)
            return
        log.info("Slurm %s", settings.version)
        if settings.accrue_always:
            log.warning(
                "PriorityFlags has ACCRUE_ALWAYS: a successor gains age while it waits for its"
                " predecessor, so it will start sooner than like jobs did, and the policies let it"
                " in too early rather than too late"
            )

    def _tick(self, snapshot: Snapshot) -> list[TickAction]:
        left_out = self._intake.choose(snapshot, self._store, self._clock.now_s(), self._only_user)
        return tick(
            snapshot,
            self._store,
            self._clock,
            self._policy,
            self._memory,
            step_s=self._poll_s,
            only_user=self._only_user,
            left_out=left_out,
            baselines=self._baselines,
        )

    def _tell_handovers(self) -> None:
        handovers = self._follower.handovers()
        if self._metrics:
            self._metrics.handed_over(handovers)
            self._metrics.follows(len(self._store.active_chains()))
        if self._audit:
            self._audit.handed_over(handovers, self._clock.now_s())


class Follower:
    """Keeps the store's chains and links as Slurm shows them, of all users or of ``only_user``;
    releases nothing.
    """

    def __init__(
        self, cluster: Cluster, store: ChainStore, clock: Clock, only_user: str | None = None
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._only_user = only_user
        self._moved = Moved()

    def observe(self, snapshot: Snapshot) -> None:
        """Writes what Slurm shows now into the store. Raises ClusterError, StoreError."""
        actions = observed(snapshot, self._store, self._clock, only_user=self._only_user)
        self.save(actions)
        self.follow(actions, snapshot)

    def handovers(self) -> list[Handoff]:
        """Those that became known since this was asked last."""
        moved, self._moved = self._moved, Moved()
        return moved.handovers(self._store)

    def follow(self, actions: Sequence[TickAction], snapshot: Snapshot) -> None:
        """What became of jobs that left the queue, and of their chains."""
        seen, runaway = set(snapshot.present), set[int]()
        for action in actions:
            if isinstance(action, LookUp):
                found, runs_on = self._look_up(action.links)
                seen |= found
                runaway |= runs_on
        active, alive = self._store.active_chains(), self._open_links()
        self._close_chains(
            active, alive, seen, runaway, self._fill_in(active, alive, actions, snapshot)
        )

    def save(self, actions: Sequence[TickAction]) -> None:
        """Writes chains and links down, all or none. Raises StoreError."""
        with self._store.transaction():
            for action in actions:
                match action:
                    case SaveChain(chain):
                        self._store.save_chain(chain)
                    case SaveLink(link, before):
                        self._moved.note(before, link)
                        self._store.save_link(link)
                    case DropLink(link):
                        self._store.drop_link(link)

    def _look_up(self, links: Sequence[Link]) -> tuple[set[int], set[int]]:
        """Finds out what became of jobs that left the queue: from slurmctld while it knows, else
        from accounting.

        Returns the ids of those that could be found, and of those that slurmctld has forgotten
        while accounting has them as living: it is behind, or a slurmctld that was killed took with
        it what it had not told slurmdbd yet. A job that is there and can't be read counts as found:
        it is not gone.
        """
        unreadable: set[int] = set()
        try:
            found = self._cluster.jobs([link.job_id for link in links])
        except Unreadable as error:
            found, unreadable = error.jobs, {oddity.job_id for oddity in error.oddities}
        told = set(found) | unreadable
        missing = [link for link in links if link.job_id not in told]
        if missing:
            found |= self._accounting(missing)
        with self._store.transaction():
            for link in links:
                if job := found.get(link.job_id):
                    after = settled(link, job)
                    self._moved.note(link, after)
                    self._store.save_link(after)
        runaway = {
            job_id for job_id, job in found.items() if job_id not in told and not job.state.is_over
        }
        return (set(found) | unreadable) - runaway, runaway

    def _accounting(self, links: Sequence[Link]) -> Mapping[int, Job]:
        since_s = min(link.submit_s for link in links)
        try:
            return latest(
                self._cluster.accounting(
                    since_s, self._clock.now_s(), [link.job_id for link in links]
                )
            )
        except ClusterError as error:
            log.warning(
                "%d jobs left the queue; how they ended can't be told now: %s", len(links), error
            )
            return {}

    def _open_links(self) -> Mapping[Key, Sequence[Link]]:
        found: dict[Key, list[Link]] = defaultdict(list)
        for link in self._store.open_links():
            found[link.user, link.chain_id].append(link)
        return found

    def _fill_in(
        self,
        active: Sequence[Chain],
        alive: Mapping[Key, Sequence[Link]],
        actions: Sequence[TickAction],
        snapshot: Snapshot,
    ) -> Collection[Key]:
        """Saves the links that no cycle saw. Asks accounting once for all chains that may have
        some.

        Those are chains without a living link, and chains with a new one whose predecessor nobody
        knows. Returns the chains of which it is not known yet whether there are more. ``alive``:
        the living links of each chain.
        """
        new = [
            action.link
            for action in actions
            if isinstance(action, SaveLink) and action.before is None
        ]
        in_sight = {None, *snapshot.present}
        orphaned = {
            (link.user, link.chain_id) for link in new if link.predecessor_id not in in_sight
        }
        known: dict[Key, Sequence[Link]] = {}
        since_s = []
        for chain in active:
            key = (chain.user, chain.chain_id)
            if key in alive and key not in orphaned:
                continue
            links = self._store.links(*key)
            if (missing_s := missing_since_s(chain, links)) is not None:
                known[key] = links
                since_s.append(missing_s)
        return self._unseen(min(since_s), known) if known else ()

    def _unseen(self, since_s: int, known: Mapping[Key, Sequence[Link]]) -> Collection[Key]:
        users, now_s = {user for user, _ in known}, self._clock.now_s()
        try:
            answer = read_answer(self._cluster.submissions(since_s, now_s, users), known, now_s)
        except ClusterError as error:
            log.warning(
                "whether %d chains had links that no cycle saw can't be told now: %s",
                len(known),
                error,
            )
            return known.keys()
        with self._store.transaction():
            for link in answer.links:
                self._moved.note(None, link)
                self._store.save_link(link)
        if answer.links:
            log.info(
                "%d links lived between two cycles; accounting tells of them", len(answer.links)
            )
        return answer.unsettled

    def _close_chains(
        self,
        active: Sequence[Chain],
        alive: Mapping[Key, Sequence[Link]],
        seen: Collection[int],
        runaway: Collection[int],
        unsettled: Collection[Key],
    ) -> None:
        """Ends the chains that have no living link.

        ``seen``: the jobs that Slurm has told of in this cycle. ``runaway``: those that only
        accounting has as living. ``unsettled``: chains that may have unknown links.
        """
        now_s = self._clock.now_s()
        for chain in active:
            key = (chain.user, chain.chain_id)
            left = alive.get(key, ())
            if any(link.job_id in seen for link in left):
                continue
            links = self._store.links(*key)
            if not left and key in unsettled and not is_long_over(links, now_s):
                continue
            if ended := (
                chain_lost(chain, links, runaway, now_s) if left else chain_end(chain, links, now_s)
            ):
                self._store.save_chain(ended)
                log.info(
                    "chain %s of %s is over: %s (%s)",
                    chain.chain_id,
                    chain.user,
                    ended.state.value,
                    ended.reason,
                )
