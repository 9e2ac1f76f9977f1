"""Which handovers became known in a cycle: the audit log gets each when its second time is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirage.chain.handoff import Handoff, handoffs
from mirage.domain import Link
from mirage.ports import ChainStore

_Run = tuple[int, int | None]
"""Job id and start."""


@dataclass
class HandoverLog:
    """Collects the runs that started or ended in a cycle."""

    started: set[_Run] = field(default_factory=set)
    ended: set[_Run] = field(default_factory=set)
    chains: set[tuple[str, str]] = field(default_factory=set)

    def note(self, before: Link | None, after: Link) -> None:
        """``before``: the link as it was known."""
        known = before.each_run if before else []
        new = {_run(run) for run in after.each_run if run.start_s is not None}
        started = new - {_run(run) for run in known}
        over = {_run(run) for run in after.each_run if run.end_s is not None}
        ended = over - {_run(run) for run in known if run.end_s is not None}
        self.started |= started
        self.ended |= ended
        if started or ended:
            self.chains.add((after.user, after.chain_id))

    def handovers(self, store: ChainStore) -> list[Handoff]:
        """Those whose second time, the successor's start or the predecessor's end, came to be
        known.
        """
        links: Mapping[tuple[str, str], Sequence[Link]] = {
            key: store.links(*key) for key in sorted(self.chains)
        }
        return [
            handoff
            for key in links
            for handoff in handoffs(links[key])
            if _run(handoff.link) in self.started or _run(handoff.predecessor) in self.ended
        ]


def _run(link: Link) -> _Run:
    return link.job_id, link.start_s
