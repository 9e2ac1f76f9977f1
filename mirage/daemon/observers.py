"""Who wants to know how the service's cycles go: the metrics, the audit log, the page, routing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.errors import MirageError
from mirage.slurm.agreement import Disagreement, of_snapshot

if TYPE_CHECKING:
    from mirage.chain.handoff import Handoff
    from mirage.daemon.tick import Grounds
    from mirage.domain import Decision, Job, Link, ReleaseOutcome, Snapshot

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

    def release_begins(self, job: Job) -> None:
        """This pending job is released next. Raises nothing."""

    def release_ended(
        self, decision: Decision, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        """A release was carried out, was refused, or failed."""

    def links_lost(self, links: Sequence[Link]) -> None:
        """Slurm has lost these links, which waited."""

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


@dataclass(kw_only=True)
class AgreementLog(Observer):
    """Logs answers of Slurm that disagree: each kind once while it lasts."""

    looks: int = 2
    """Cycles in a row that must see it: squeue and sinfo are asked one after the other."""
    now: Mapping[str, Disagreement] = field(default_factory=dict)
    """Those that last, by kind."""
    _seen: Mapping[str, int] = field(default_factory=dict)
    """In how many cycles in a row."""

    def queue_read(self, snapshot: Snapshot) -> None:
        found = {each.kind: each for each in of_snapshot(snapshot)}
        self._seen = {kind: self._seen.get(kind, 0) + 1 for kind in found}
        for kind, each in found.items():
            if self._seen[kind] == self.looks:
                log.warning("%s. %s %s", each, each.why, each.do)
        self.now = {kind: each for kind, each in found.items() if self._seen[kind] >= self.looks}

    @property
    def words(self) -> str:
        """For people; empty: all agree."""
        return " ".join(f"Slurm's answers disagree: {each.what}." for each in self.now.values())
