"""When a service looks at the queue next."""

from __future__ import annotations

import logging
from pathlib import Path

from mirage.chain.durations import format_duration
from mirage.chain.pace import needed_s, shortest_s, too_slow
from mirage.daemon.tick import tagged_jobs
from mirage.domain import Snapshot

log = logging.getLogger(__name__)


class Pace:
    """``poll_s``: seconds until the next look. An agent looks as often as its shortest link needs;
    a site's daemon keeps to its configuration, as other users' jobs are in each look too.
    """

    def __init__(self, poll_s: int, only_user: str | None) -> None:
        self._most_s = poll_s
        self._only_user = only_user
        self._said = ""
        self.poll_s = poll_s

    def look(self, snapshot: Snapshot) -> None:
        """Takes a cycle's queue in, and says in the log what it means for short links."""
        own = (job for job, _ in tagged_jobs(snapshot) if self._only_user in (None, job.user))
        limit_s = shortest_s(job.time_limit_s for job in own)
        if self._only_user is not None:
            poll_s = self._most_s if limit_s is None else min(self._most_s, needed_s(limit_s))
            if poll_s != self.poll_s:
                log.info("a look every %s, as the links need", format_duration(poll_s))
            self.poll_s = poll_s
        words = too_slow(self.poll_s, limit_s)
        if words and words != self._said:
            log.warning("%s", words)
        self._said = words


class NewChains:
    """Whether chains were submitted since it was last asked: the folder of one's chains tells."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed_ns = self._read_ns()
        self._looks = 0

    def __call__(self) -> bool:
        changed_ns = self._read_ns()
        if changed_ns != self._changed_ns:
            # The folder is there before the jobs are, so one look may be too early.
            self._changed_ns, self._looks = changed_ns, 2
        self._looks -= 1
        return self._looks >= 0

    def _read_ns(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns
        except OSError:
            return 0
