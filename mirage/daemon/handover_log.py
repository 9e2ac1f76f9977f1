"""Which handovers became known in a cycle: the audit log gets each when its second time is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirage.chain.handoff import Handoff, handoffs
from mirage.domain import Link
from mirage.ports import ChainStore


@dataclass
class HandoverLog:
    """Collects the links that started or ended in a cycle."""

    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    chains: set[tuple[str, str]] = field(default_factory=set)

    def note(self, before: Link | None, after: Link) -> None:
        """``before``: the link as it was known."""
        if after.start_s is not None and (before is None or before.start_s != after.start_s):
            self.started.add(after.job_id)
        if after.end_s is not None and (before is None or before.end_s != after.end_s):
            self.ended.add(after.job_id)
        if after.job_id in self.started | self.ended:
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
            if handoff.link.job_id in self.started or handoff.predecessor.job_id in self.ended
        ]
