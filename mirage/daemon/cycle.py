"""One cycle of the service: read the queue, decide, carry the decisions out, reconcile the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import inf

from mirage.daemon.chain_quota import ChainQuota
from mirage.daemon.execute import Executor
from mirage.daemon.memory import Memory
from mirage.daemon.observers import Observer
from mirage.daemon.pace import Pace
from mirage.daemon.reconcile import Reconciler
from mirage.daemon.restraint import Acting
from mirage.daemon.sizes import better_sizes
from mirage.daemon.tick import Release, TickAction, Wait, tick
from mirage.domain import Snapshot
from mirage.errors import ClusterError, MirageError
from mirage.ports import Clock, Cluster, Policy, Store
from mirage.state.likeness import Waits

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
        baselines: Sequence[Policy] = (),
        observers: Sequence[Observer] = (),
        quota: ChainQuota | None = None,
        memory: Memory | None = None,
    ) -> None:
        """``baselines``: policies whose answers the audit log has beside those of ``policy``."""
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._policy = policy
        self._pace = Pace(poll_s, only_user)
        self._only_user = only_user
        self._baselines = baselines
        self._observers = tuple(observers)
        self._quota = quota or ChainQuota(acting.chains_per_user_per_hour)
        self._memory = memory or Memory(store)
        self._executor = Executor(
            cluster=cluster, store=store, clock=clock, acting=acting, observers=self._observers
        )
        self._reconciler = Reconciler(cluster, store, clock, only_user)
        self.queue_read_s: int | None = None
        """When the queue was read last, in Unix seconds; None: not yet."""
        self._known: tuple[Snapshot, Mapping[str, Waits]] | None = None
        """Of the last cycle, for other threads."""
        self._warm_up_s: float = 0
        """When to fill the memory from accounting; never again once that is done."""

    @property
    def poll_s(self) -> int:
        """Seconds until the next cycle."""
        return self._pace.poll_s

    def better_sizes(self, partition: str, nodes: int, limit_s: int) -> str:
        """`sizes.better_sizes`, by what the last cycle knew."""
        if self._known is None:
            return ""
        snapshot, known = self._known
        waits = known.get(snapshot.pool_of(partition))
        return better_sizes(waits, partition, nodes, limit_s) if waits else ""

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
        self._pace.look(snapshot)
        if snapshot.at_s >= self._warm_up_s:
            self._log_settings()
            warm = self._memory.warm_up(self._cluster, snapshot)
            self._warm_up_s = inf if warm else snapshot.at_s + WARM_UP_AGAIN_S
        self._memory.observe(snapshot)
        for observer in self._observers:
            observer.queue_read(snapshot)
        # First what a crash cut short: a decision must not stand on a release of unknown outcome.
        self._executor.resume()
        actions = self._tick(snapshot)
        # Before any release, so that its link is in the store when the outcome is written there.
        self._reconciler.save(actions)
        decided = [action for action in actions if isinstance(action, Wait | Release)]
        for observer in self._observers:
            observer.decisions_made(snapshot, [action.decision for action in decided])
        try:
            self._executor.carry_out(decided, snapshot.at_s)
            self._reconciler.reconcile(actions, snapshot)
            self.queue_read_s = snapshot.at_s
            self._known = snapshot, self._memory.known()
        finally:  # a Slurm that fails halfway has told of some handovers already
            self._report_handovers()

    def _tick(self, snapshot: Snapshot) -> list[TickAction]:
        return tick(
            snapshot,
            self._store,
            self._clock,
            self._policy,
            self._memory,
            step_s=self.poll_s,
            only_user=self._only_user,
            left_out=self._quota.left_out(
                snapshot, self._store, self._clock.now_s(), self._only_user
            ),
            baselines=self._baselines,
        )

    def _report_handovers(self) -> None:
        handovers, lost = self._reconciler.handovers(), self._reconciler.lost()
        active, now_s = len(self._store.active_chains()), self._clock.now_s()
        for observer in self._observers:
            observer.links_lost(lost)
            observer.chains_followed(handovers, active, now_s)

    def _log_settings(self) -> None:
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
