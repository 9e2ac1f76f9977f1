"""The log of what Slurm prints and Mirage can't use: each once, and never so many lines that they hide
the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from mirage.domain import Oddity

log = logging.getLogger(__name__)

MOST_LINES = 20
"""Jobs named in the log of one answer of Slurm's; the rest of them is counted."""
MOST_REMEMBERED = 100_000
"""Fields of jobs that are remembered as logged."""

MOST_NOTES = 1000
_noted: set[str] = set()


def note_once(text: str) -> None:
    """Logs a sentence unless this process has logged it before, or too many others."""
    if text not in _noted and len(_noted) < MOST_NOTES:
        _noted.add(text)
        log.warning("%s", text)


class OddityLog:
    """Remembers which field of which job has been logged."""

    def __init__(self) -> None:
        self._fields: dict[tuple[int, str], None] = {}
        """In the order in which they were last seen."""

    def report(self, oddities: Collection[Oddity]) -> None:
        """Logs those that are new: which job, whose, which field."""
        new: list[Oddity] = []
        for oddity in oddities:
            key = (oddity.job_id, oddity.field)
            if key not in self._fields:
                new.append(oddity)
            self._fields.pop(key, None)
            self._fields[key] = None
        while len(self._fields) > MOST_REMEMBERED:
            del self._fields[next(iter(self._fields))]
        for oddity in new[:MOST_LINES]:
            log.warning("%s", oddity)
        if rest := new[MOST_LINES:]:
            users = sorted({oddity.user for oddity in rest})
            log.warning(
                "%d more such values in jobs of %s", len(rest), ", ".join(users[:MOST_LINES])
            )
