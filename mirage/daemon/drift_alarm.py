"""Says in the log, the metrics and `mirage status` whether the model still fits the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.observers import Observer

log = logging.getLogger(__name__)

EVERY_S = 6 * 3600
"""Drift takes days to show."""


class DriftAlarm:
    """Of one service. ``audit_summary``: of its audit log."""

    def __init__(self, audit_summary: AuditSummary, observers: Sequence[Observer] = ()) -> None:
        self._audit_summary = audit_summary
        self._observers = tuple(observers)
        self._read_s = 0
        self.words = ""
        """What people are to know; empty: nothing is amiss."""

    def check(self) -> None:
        """Takes in what the last reading found, and has the log read again if that is due. Never
        waits for it.

        A log that can't be read leaves all as it was.
        """
        summary = self._audit_summary.latest(EVERY_S)
        if summary.found is None or summary.problem or summary.at_s == self._read_s:
            return
        self._read_s = summary.at_s
        words, alarms = summary.found["drift"]["words"], summary.found["drift"]["alarms"]
        if words != self.words:
            log.log(
                logging.WARNING if words else logging.INFO, "%s", words or "The model fits again."
            )
        self.words = words
        for observer in self._observers:
            observer.drift_checked({alarm["kind"] for alarm in alarms})
