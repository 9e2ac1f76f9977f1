"""Looks now and then whether the model still fits the cluster, and tells log, metrics and `mirage status`."""

from __future__ import annotations

import logging
from pathlib import Path

from mirage.daemon.drift import WINDOW_S, drift
from mirage.daemon.metrics import Metrics
from mirage.errors import AuditError
from mirage.store.journal import read_journal

log = logging.getLogger(__name__)

EVERY_S = 6 * 3600
"""A large audit log takes seconds to read, and drift takes days to show."""


class DriftWatch:
    """Of one service. ``audit``: its log."""

    def __init__(self, audit: Path, metrics: Metrics | None = None) -> None:
        self._audit = audit
        self._metrics = metrics
        self._next_s = 0
        self.words = ""
        """What people are to know; empty: nothing is amiss."""

    def look(self, now_s: int) -> None:
        """Reads the log if that is due; a log that can't be read leaves all as it was."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        try:
            found = drift(read_journal(self._audit, now_s - WINDOW_S), now_s)
        except AuditError as error:
            log.info("whether the model still fits can't be told: %s", error)
            return
        if found.words != self.words:
            log.log(logging.WARNING if found.words else logging.INFO, "%s", found.words or "The model fits again.")
        self.words = found.words
        if self._metrics:
            self._metrics.drifted({alarm.kind.value for alarm in found.alarms})
