"""Who wants to know how the service's cycles go: the metrics, the audit log, the page, routing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.errors import MirageError

if TYPE_CHECKING:
    from mirage.chain.handoff import Handoff
    from mirage.daemon.tick import Grounds
    from mirage.domain import Decision, ReleaseOutcome, Snapshot

log = logging.getLogger(__name__)


class Observer:
    """An observer overrides the methods that it needs; the others do nothing.

    They stand here in the order in which a cycle calls them. ``now_s``: Unix seconds.
    """

    def queue_read(self, snapshot: Snapshot) -> None:
        """Slurm has shown its queue and its nodes."""

    def decisions_made(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        """The policy has decided on every pair; nothing is carried out yet."""

    def decisions_final(self, entries: Sequence[tuple[Decision, Grounds]]) -> None:
        """What keeps the service from acting is known too; releases among these come next.

        Raises AuditError: then none of them may be carried out.
        """

    def release_ended(
        self, decision: Decision, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        """A release was carried out, was refused, or failed."""

    def chains_followed(self, handovers: Sequence[Handoff], active_chains: int, now_s: int) -> None:
        """The store agrees with Slurm. ``handovers``: those whose second time is new in this
        cycle.
        """

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:
        """A cycle took this long. It failed, or was skipped, where it did not succeed."""

    def drift_checked(self, alarms: Collection[str]) -> None:
        """These alarms (`drift.Kind`) are on, all others are off."""


@dataclass(frozen=True)
class RoutingTable(Observer):
    """Gives the job_submit plugin each cycle's state. If that fails, the cycle continues."""

    publish: Callable[[Snapshot], None]
    """Raises MirageError."""

    def queue_read(self, snapshot: Snapshot) -> None:
        try:
            self.publish(snapshot)
        except MirageError as error:
            log.warning("routing: nothing published: %s", error)
