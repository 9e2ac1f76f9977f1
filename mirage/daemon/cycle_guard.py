"""What belongs around each cycle: nothing is done while the store is not this daemon's alone, and
old records go.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from mirage.config import RetentionConfig
from mirage.daemon.cycle import Daemon
from mirage.daemon.drift_alarm import DriftAlarm
from mirage.daemon.observers import Observer
from mirage.errors import MirageError, StoreError
from mirage.ports import Clock, LastingStore
from slurm_sim.seconds import DAY_S

log = logging.getLogger(__name__)


class CycleGuard:
    """Runs the daemon's cycles, one `run()` each."""

    def __init__(
        self,
        daemon: Daemon,
        store: LastingStore,
        clock: Clock,
        retention: RetentionConfig,
        *,
        ensure_exclusive: Callable[[], None],
        observers: Sequence[Observer] = (),
        drift_alarm: DriftAlarm | None = None,
    ) -> None:
        """``ensure_exclusive``: raises StoreError while another program may use the store, or it
        does not answer.
        """
        self._daemon = daemon
        self._store = store
        self._clock = clock
        self._retention = retention
        self._ensure_exclusive = ensure_exclusive
        self._observers = tuple(observers)
        self._drift_alarm = drift_alarm
        self._is_away = False

    def run(self) -> bool:
        """One cycle. False: it was skipped, and why is in the log; the next one tries again."""
        begun = time.monotonic()
        succeeded = self._run()
        for observer in self._observers:
            try:
                observer.cycle_ended(succeeded, time.monotonic() - begun, self._clock.now_s())
            except Exception:  # the others must know, and the next cycle must come
                log.exception("after the cycle: a fault in Mirage; please report it")
        return succeeded

    def _run(self) -> bool:
        if not self._has_store() or not self._daemon.run_cycle():
            return False
        self._prune()
        if self._drift_alarm:
            self._drift_alarm.check()
        return True

    def _has_store(self) -> bool:
        try:
            self._ensure_exclusive()
        except StoreError as error:
            self._is_away = True
            log.warning(
                "cycle skipped: nothing is done that can't be written down first: %s", error
            )
            return False
        if self._is_away:
            log.info("the store answers again")
        self._is_away = False
        return True

    def _prune(self) -> None:
        now_s = self._clock.now_s()
        try:
            removed = self._store.prune(
                now_s - self._retention.decisions_days * DAY_S,
                now_s - self._retention.chains_days * DAY_S,
            )
        except MirageError as error:
            log.warning("old records could not be removed: %s", error)
            return
        if removed:
            log.info("%d old decisions and chains removed", removed)
