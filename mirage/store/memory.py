"""A store in plain dictionaries, for what is to be fast and nobody reads afterwards: commands, as
SQLAlchemy alone takes 0.1 s to load, and chains on a simulated cluster.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

from mirage.domain import Chain, Decision, Intent, Link, ReleaseOutcome
from mirage.errors import StoreError


class MemoryStore:
    """Implements `ports.Store`, for one thread. What is in it ends with the process."""

    def __init__(self) -> None:
        self._chains: dict[tuple[str, str], Chain] = {}
        self._links: dict[tuple[str, str, int], Link] = {}
        self._decisions: list[Decision] = []
        """By time."""
        self._intents: list[Intent] = []
        """As they were opened."""
        self._steps: dict[tuple[str, int], bytes] = {}

    def put(self, decision: Decision, intent: Intent | None = None) -> None:
        """Adds what a service decided and, if it acted on that, its intent. Oldest first."""
        self.add_decision(decision)
        if intent is not None:
            self._intents.append(intent)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside stay together, or none does."""
        before = {name: copy(value) for name, value in vars(self).items()}
        try:
            yield
        except BaseException:
            vars(self).update(before)
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

    def add_decision(self, decision: Decision) -> None:
        """Adds to the record; decisions are never changed."""
        insort(self._decisions, decision, key=_time)

    def decisions(self, successor_id: int, limit: int = 100) -> list[Decision]:
        """Newest first."""
        newest_first = reversed(self._decisions)
        return [each for each in newest_first if each.successor_id == successor_id][:limit]

    def gains(self, policy: str, since_s: int) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """By predecessor and successor: when a decision of this policy gave a gain, and which.
        Oldest first.
        """
        found: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for each in self._decisions[bisect_left(self._decisions, since_s, key=_time) :]:
            if each.policy == policy and each.gain is not None:
                pair = (each.predecessor_id, each.successor_id)
                found.setdefault(pair, []).append((each.at_s, each.gain))
        return found

    def open_intent(self, decision: Decision, now_s: int) -> Intent:
        """Takes decision and intent in together."""
        number = self._intents[-1].intent_id + 1 if self._intents else 1
        intent = Intent(intent_id=number, decision=decision, created_s=now_s)
        self.put(decision, intent)
        return intent

    def close_intent(
        self, intent: Intent, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        """StoreError if it is not open."""
        if intent not in self._intents or intent.finished_s is not None:
            raise StoreError(f"Store in memory: intent {intent.intent_id} is not open.")
        self._intents[self._intents.index(intent)] = replace(
            intent, outcome=outcome, detail=detail, finished_s=now_s
        )

    def open_intents(self) -> list[Intent]:
        """Intents without an outcome, oldest first."""
        return [intent for intent in self._intents if intent.finished_s is None]

    def intents(self, successor_id: int) -> list[Intent]:
        """Newest first."""
        return [
            intent
            for intent in reversed(self._intents)
            if intent.decision.successor_id == successor_id
        ]

    def newest_intents(self, limit: int) -> list[Intent]:
        """Of all jobs, newest first."""
        return self._intents[: -limit - 1 : -1]

    def save_step(self, pool: str, at_s: int, payload: bytes) -> None:
        """One step of a pool's history, in place of the one that it has at this time."""
        self._steps[pool, at_s] = payload

    def steps(self, pool: str, since_s: int) -> list[tuple[int, bytes]]:
        """Those at or after ``since_s``, oldest first."""
        return sorted(
            (at_s, payload)
            for (name, at_s), payload in self._steps.items()
            if name == pool and at_s >= since_s
        )

    def drop_steps(self, before_s: int) -> None:
        """Those of all pools before this time."""
        self._steps = {key: step for key, step in self._steps.items() if key[1] >= before_s}


def _time(decision: Decision) -> int:
    return decision.at_s
