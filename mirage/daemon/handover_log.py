"""Which handovers became known in a cycle: the audit log gets each when its second time is there."""

from __future__ import annotations

from collections.abc import Iterator
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
    ready: set[_Run] = field(default_factory=set)
    """Of services, those that told so."""
    chains: set[tuple[str, str]] = field(default_factory=set)

    def note(self, before: Link | None, after: Link) -> None:
        """``before``: the link as it was known."""
        known = before.each_run if before else []
        new = {_run(run) for run in after.each_run if run.start_s is not None}
        started = new - {_run(run) for run in known}
        over = {_run(run) for run in after.each_run if run.end_s is not None}
        ended = over - {_run(run) for run in known if run.end_s is not None}
        told = {_run(run) for run in after.each_run if run.ready_s}
        ready = told - {_run(run) for run in known if run.ready_s}
        self.started |= started
        self.ended |= ended
        self.ready |= ready
        if started or ended or ready:
            self.chains.add((after.user, after.chain_id))

    def handovers(self, store: ChainStore) -> list[Handoff]:
        """Those whose second time came to be known: the predecessor's end, and the successor's start
        or, of a service, when that was ready, or ended before.
        """
        return [handoff for key in sorted(self.chains) for handoff in self._new_of(key, store)]

    def _new_of(self, key: tuple[str, str], store: ChainStore) -> Iterator[Handoff]:
        chain = store.chain(*key)
        start_up_s = chain.start_up_s if chain else None
        for handoff in handoffs(store.links(*key), start_up_s):
            link, new = handoff.link, self.started
            if start_up_s is not None and link.ready_s is not None:
                new = self.ready if link.ready_s else self.ended
            if _run(link) in new or _run(handoff.predecessor) in self.ended:
                yield handoff


def _run(link: Link) -> _Run:
    return link.job_id, link.start_s
