"""What the daemon remembers of the cluster between cycles: recent waits, and 24 hours of history,
by pool.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from mirage.domain import Snapshot
from mirage.errors import ClusterError
from mirage.ports import Cluster, Store
from mirage.slurm.agreement import of_records
from mirage.state.encoder import HistoryStep, encode
from mirage.state.history import BrokenStep, History, decode_step, encode_step
from mirage.state.likeness import Waits
from mirage.state.rebuild import rebuild
from mirage.state.waits import WaitBook
from slurm_sim.seconds import DAY_S

log = logging.getLogger(__name__)

WAITS_KEPT_S = 7 * DAY_S


class Memory:
    """Implements `tick.View`. Steps of the history are in the store too, for sites without
    accounting.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[str, History] = {}
        self._book = WaitBook(keep_s=WAITS_KEPT_S)
        self._waits: dict[str, Waits] = {}
        self._before: dict[str, Waits] = {}
        """Those of earlier cycles."""
        self._digests: dict[str, str] = {}
        self._step_digests: dict[tuple[str, int], bytes] = {}
        self._now_s = 0
        self._sharing: Mapping[str, frozenset[str]] = {}

    def warm_up(self, cluster: Cluster, snapshot: Snapshot) -> bool:
        """Fills waits and history from accounting, so that the first cycle can decide. Without it:
        from the store.

        False if accounting could not be read: worth another try later.
        """
        now_s = snapshot.at_s
        for pool in set(snapshot.pools.values()):
            self._histories[pool] = History(pool)
        try:
            records = cluster.accounting(now_s - WAITS_KEPT_S, now_s)
            for each in of_records(records, snapshot):
                log.warning("%s. %s %s", each, each.why, each.do)
            events = cluster.node_events(now_s - DAY_S, now_s)
        except ClusterError as error:
            known = [self._from_store(history, now_s) for history in self._histories.values()]
            log.warning(
                "accounting can't be read, so the last 24 h are not rebuilt and recent waits are"
                " not known; the store has %d steps of history, the rest fills up as time"
                " passes: %s",
                sum(known),
                error,
            )
            return False
        self._book.add(records, snapshot)
        for pool, history in self._histories.items():
            for step in rebuild(records, events, snapshot, pool, history.step_s, history.length):
                history.add(step)
        log.info("history rebuilt from %d accounting records", len(records))
        return True

    def observe(self, snapshot: Snapshot) -> None:
        """Takes a cycle's snapshot in."""
        self._now_s = snapshot.at_s
        self._sharing = snapshot.sharing
        self._before |= self._waits
        self._waits.clear()
        self._digests.clear()
        recent = snapshot.at_s - 2 * DAY_S
        self._step_digests = {
            key: value for key, value in self._step_digests.items() if key[1] >= recent
        }
        self._book.observe(snapshot)
        with self._store.transaction():
            for pool in set(snapshot.pools.values()):
                history = self._histories.setdefault(pool, History(pool))
                step = encode(snapshot, pool)
                if history.add(step):
                    self._store.save_step(pool, step.at_s, encode_step(step))
            self._store.drop_steps(recent)

    def waits(self, pool: str) -> Waits:
        if pool not in self._waits:
            samples = self._book.recent(pool, self._now_s - WAITS_KEPT_S)
            before = self._before.get(pool)
            self._waits[pool] = (
                before.followed_by(samples, self._sharing)
                if before
                else Waits(samples, self._sharing)
            )
        return self._waits[pool]

    def known(self) -> Mapping[str, Waits]:
        """The waits of pools in which chains were decided about."""
        return self._before | self._waits

    def history(self, pool: str) -> History | None:
        return self._histories.get(pool)

    def digest(self, pool: str) -> str:
        """SHA-256 of the pool's waits and steps, each with its time."""
        if pool not in self._digests:
            waits = [(sample.job_id, sample.start_s, sample.wait_s) for sample in self.waits(pool)]
            digest = hashlib.sha256(repr(waits).encode())
            history = self._histories.get(pool)
            for step in history.steps if history else ():
                digest.update(self._step_digest(pool, step))
            self._digests[pool] = digest.hexdigest()
        return self._digests[pool]

    def _step_digest(self, pool: str, step: HistoryStep) -> bytes:
        """Computed once a step: 144 encodings in each cycle would be slow."""
        if (pool, step.at_s) not in self._step_digests:
            self._step_digests[pool, step.at_s] = hashlib.sha256(encode_step(step)).digest()
        return self._step_digests[pool, step.at_s]

    def _from_store(self, history: History, now_s: int) -> int:
        """How many steps of a pool the store had."""
        steps = self._store.steps(history.pool, now_s - DAY_S)
        for at_s, payload in steps:
            try:
                history.add(decode_step(payload))
            except BrokenStep as error:
                log.warning("pool %s, step of %d: %s", history.pool, at_s, error)
        return len(steps)


class UnhashedMemory(Memory):
    """For simulations: nobody asks later what a decision was made from."""

    def digest(self, pool: str) -> str:  # noqa: ARG002 - the same signature
        return ""
