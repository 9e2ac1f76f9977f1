"""Chains and links in plain dictionaries, for commands that are to be fast: SQLAlchemy alone takes
0.1 s to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirage.domain import Chain, Decision, Intent, Link
from mirage.errors import StoreError


class MemoryStore:
    """Implements `ports.ChainStore`, for one thread. What was decided comes in with `put`."""

    def __init__(self) -> None:
        self._chains: dict[tuple[str, str], Chain] = {}
        self._links: dict[tuple[str, str, int], Link] = {}
        self._decisions: list[Decision] = []
        self._intents: list[Intent] = []

    def put(self, decision: Decision, intent: Intent | None = None) -> None:
        """Adds what a service decided and, if it acted on that, its intent. Oldest first."""
        self._decisions.append(decision)
        if intent is not None:
            self._intents.append(intent)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside stay together, or none does."""
        chains, links = dict(self._chains), dict(self._links)
        try:
            yield
        except BaseException:
            self._chains, self._links = chains, links
            raise

    def active_chains(self) -> list[Chain]:
        """Oldest first."""
        return [chain for chain in reversed(self.chains()) if not chain.state.is_over]

    def chains(self, user: str | None = None, since_s: int | None = None) -> list[Chain]:
        """All chains (of a user), newest first; with ``since_s`` those that are active, or changed
        since then.
        """
        found = [chain for chain in self._chains.values() if user in (None, chain.user)]
        if since_s is not None:
            found = [
                chain for chain in found if not chain.state.is_over or chain.updated_s >= since_s
            ]
        return sorted(found, key=lambda chain: (chain.created_s, chain.chain_id), reverse=True)

    def chain(self, user: str, chain_id: str) -> Chain | None:
        """None: there is no such chain."""
        return self._chains.get((user, chain_id))

    def links(self, user: str, chain_id: str) -> list[Link]:
        """By segment; the retries of one segment as they were submitted."""
        found = [
            link for link in self._links.values() if (link.user, link.chain_id) == (user, chain_id)
        ]
        return sorted(found, key=lambda link: (link.segment, link.submit_s, link.job_id))

    def open_links(self) -> list[Link]:
        """Links of active chains whose job was not over when last seen."""
        active = {(chain.user, chain.chain_id) for chain in self.active_chains()}
        found = [link for link in self._links.values() if (link.user, link.chain_id) in active]
        return sorted((link for link in found if not link.is_over), key=lambda link: link.job_id)

    def link_of_job(self, job_id: int) -> Link | None:
        """The newest one, if Slurm has used the job id twice."""
        found = [link for link in self._links.values() if link.job_id == job_id]
        return max(found, key=lambda link: link.submit_s, default=None)

    def save_chain(self, chain: Chain) -> None:
        """Inserts or replaces, by (user, chain_id)."""
        self._chains[chain.user, chain.chain_id] = chain

    def save_link(self, link: Link) -> None:
        """Inserts or replaces, by (user, chain_id, job_id). StoreError: its chain is not in the
        store.
        """
        if (link.user, link.chain_id) not in self._chains:
            raise StoreError(
                f"Store in memory: chain {link.chain_id} is missing. A link needs its chain."
            )
        self._links[link.user, link.chain_id, link.job_id] = link

    def drop_link(self, link: Link) -> None:
        """Forgets a link, and its chain with the last one."""
        self._links.pop((link.user, link.chain_id, link.job_id), None)
        if not self.links(link.user, link.chain_id):
            self._chains.pop((link.user, link.chain_id), None)

    def decisions(self, successor_id: int, limit: int = 100) -> list[Decision]:
        """Newest first."""
        found = [
            decision
            for decision in reversed(self._decisions)
            if decision.successor_id == successor_id
        ]
        return sorted(found, key=lambda decision: decision.at_s, reverse=True)[:limit]

    def intents(self, successor_id: int) -> list[Intent]:
        """Newest first."""
        return [
            intent
            for intent in reversed(self._intents)
            if intent.decision.successor_id == successor_id
        ]
