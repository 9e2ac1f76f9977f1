"""What belongs around each cycle: nothing is done while the store is not this daemon's alone, and
old records go.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mirage.chain.durations import DAY_S
from mirage.config import RetentionConfig
from mirage.daemon.app import Daemon
from mirage.daemon.drift_alarm import DriftWatch
from mirage.daemon.last_cycle import Board
from mirage.daemon.metrics import Metrics
from mirage.errors import MirageError, StoreError
from mirage.ports import Clock, Store

log = logging.getLogger(__name__)


class Rounds:
    """Runs the daemon's cycles, one `run()` each."""

    def __init__(
        self,
        daemon: Daemon,
        store: Store,
        clock: Clock,
        keep: RetentionConfig,
        ensure_alone: Callable[[], None],
        metrics: Metrics | None = None,
        watch: DriftWatch | None = None,
        board: Board | None = None,
    ) -> None:
        """``ensure_alone``: raises StoreError while another program may use the store, or it does
        not answer.
        """
        self._watch = watch
        self._daemon = daemon
        self._store = store
        self._clock = clock
        self._keep = keep
        self._ensure_alone = ensure_alone
        self._observers = [observer for observer in (metrics, board) if observer is not None]
        self._is_away = False

    def run(self) -> bool:
        """One cycle. False: it was skipped, and why is in the log; the next one tries again."""
        begun = time.monotonic()
        is_good = self._run()
        for observer in self._observers:
            observer.cycle(is_good, time.monotonic() - begun, self._clock.now_s())
        return is_good

    def _run(self) -> bool:
        if not self._store_is_ours() or not self._daemon.run_cycle():
            return False
        self._prune()
        if self._watch:
            self._watch.look()
        return True

    def _store_is_ours(self) -> bool:
        try:
            self._ensure_alone()
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
            gone = self._store.prune(
                now_s - self._keep.decisions_days * DAY_S, now_s - self._keep.chains_days * DAY_S
            )
        except MirageError as error:
            log.warning("old records could not be removed: %s", error)
            return
        if gone:
            log.info("%d old decisions and chains removed", gone)
