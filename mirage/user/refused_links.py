"""Links that the chains' own jobs could not queue, or that Slurm has lost: their owner's agent queues
them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from mirage.chain.folder import chain_folder, is_paused, mark_lost, over_marker, refused_link
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Link
from mirage.errors import MirageError
from mirage.peers import Sparingly
from mirage.user.folders import chain_ids
from mirage.user.steering import Steering, links

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueuesRefused(Observer):
    """Queues the links that the chains' own jobs could not queue: where jobs may not submit, or
    once a queue that was full takes jobs again.
    """

    acting: Acting
    sparingly: Sparingly = field(default_factory=lambda: Sparingly(3600))

    def links_lost(self, links: Sequence[Link]) -> None:
        for link in links:
            with suppress(OSError):
                mark_lost(chain_folder(link.chain_id), link.segment, link.job_id)

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:  # noqa: ARG002
        """After a cycle that failed Slurm may be away."""
        if not succeeded or self.acting.mode is not ActingMode.ENFORCE or self.acting.disabled():
            return
        for chain in chain_ids(None):
            self._queue(chain, now_s)

    def _queue(self, chain: str, now_s: int) -> None:
        folder = chain_folder(chain)
        try:
            if not refused_link(folder) or over_marker(folder) or is_paused(folder):
                return
            queued = Steering.of(chain).go_on()
        except Exception as error:  # the other chains must not suffer from it
            if self.sparingly.may(chain, now_s):
                fault = None if isinstance(error, MirageError) else error
                said = "chain %s: the next link can't be queued here either: %s"
                log.warning(said, chain, error, exc_info=fault)
            return
        if queued:
            log.info("chain %s: its own job could not queue %s: done here", chain, links(queued))
