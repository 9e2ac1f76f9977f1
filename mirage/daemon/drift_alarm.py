"""Tells log, metrics and `mirage status` whether the model still fits the cluster."""

from __future__ import annotations

import logging

from mirage.daemon.audit_summary import Reading
from mirage.daemon.metrics import Metrics

log = logging.getLogger(__name__)

EVERY_S = 6 * 3600
"""Drift takes days to show."""


class DriftWatch:
    """Of one service. ``reading``: of its audit log."""

    def __init__(self, reading: Reading, metrics: Metrics | None = None) -> None:
        self._reading = reading
        self._metrics = metrics
        self._read_s = 0
        self.words = ""
        """What people are to know; empty: nothing is amiss."""

    def look(self) -> None:
        """Takes in what the last reading found, and has the log read anew if that is due. Never
        waits for it.

        A log that can't be read leaves all as it was.
        """
        told = self._reading.told(EVERY_S)
        if told.found is None or told.problem or told.at_s == self._read_s:
            return
        self._read_s = told.at_s
        words, alarms = told.found["drift"]["words"], told.found["drift"]["alarms"]
        if words != self.words:
            log.log(
                logging.WARNING if words else logging.INFO, "%s", words or "The model fits again."
            )
        self.words = words
        if self._metrics:
            self._metrics.drifted({alarm["kind"] for alarm in alarms})
