"""The service's decisions on a simulated cluster, without its database, audit log and faults.

The daemon's own `tick` and memory decide. So a month of a chain takes seconds instead of minutes,
and the same links come out (`tests/unit/provision/test_chains.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from mirage.chain.tag import parse_tag
from mirage.daemon.memory import UnhashedMemory
from mirage.daemon.restraint import Acting
from mirage.daemon.tick import Gains, LookUp, Release, SaveLink, TickAction, Wait, link_of, tick
from mirage.domain import Chain, Link, Snapshot
from mirage.ports import Policy, Store
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from slurm_sim import Simulator

FAR_S = 2**40
"""After every simulation's end."""


class ChainDecisions:
    """One cycle after the other: look, decide, release."""

    def __init__(
        self,
        simulator: Simulator,
        policy: Policy,
        acting: Acting,
        *,
        step_s: int,
        looks_at_others: bool = True,
        user: str = "",
    ) -> None:
        """``looks_at_others``: False for a policy that decides by the chain alone: only the jobs of
        ``user`` are read, and no waits are kept, which takes a tenth of the time.
        """
        self._looks_at_others, self._user = looks_at_others, user
        self._cluster = SimulatedCluster(simulator, user="mirage", operator=True)
        self._clock = SimulatedClock(simulator)
        self._policy, self._acting, self._step_s = policy, acting, step_s
        self._known = DecisionStore(self._cluster)
        self._store = cast(Store, self._known)
        self._memory = UnhashedMemory(self._store)
        self._is_warm = False

    def links(self, user: str, chain_id: str) -> list[Link]:
        """Of a chain, as the last cycle saw them."""
        return self._known.links(user, chain_id)

    def cycle(self) -> None:
        """Raises what the policy does not catch."""
        snapshot = self._look()
        for action in tick(
            snapshot, self._store, self._clock, self._policy, self._memory, step_s=self._step_s
        ):
            self._known.take(action)
            if isinstance(action, Release) and not self._acting.standing(
                action.grounds.successor, action.grounds.competing
            ):
                self._cluster.release(action.decision.successor_id)

    def _look(self) -> Snapshot:
        if not self._looks_at_others:
            return self._cluster.queue_of(self._user)
        snapshot = self._cluster.snapshot()
        if not self._is_warm:
            self._is_warm = self._memory.warm_up(self._cluster, snapshot)
        self._memory.observe(snapshot)
        return snapshot


class DecisionStore:
    """The part of a store that decisions depend on: links, and the gains of networks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._links: dict[int, Link] = {}
        self._gains: dict[tuple[int, int], list[tuple[int, float]]] = {}

    def take(self, action: TickAction) -> None:
        """What a cycle found out, or decided."""
        match action:
            case SaveLink():
                self._links[action.link.job_id] = action.link
            case LookUp(links=links) if links:
                self._look_up(links)
            case Wait(decision=decision) | Release(decision=decision):
                if decision.gain is not None:
                    key = decision.predecessor_id, decision.successor_id
                    self._gains.setdefault(key, []).append((decision.at_s, decision.gain))

    def _look_up(self, links: Sequence[Link]) -> None:
        """Jobs that the queue no longer shows: when they ended."""
        ids = {link.job_id for link in links}
        for job in self._cluster.accounting(min(link.submit_s for link in links), FAR_S, ids):
            if (tag := parse_tag(job.comment)) and job.end_s is not None:
                self._links[job.job_id] = link_of(job, tag, self._links[job.job_id])

    def links(self, user: str, chain_id: str) -> list[Link]:
        found = [link for link in self._links.values() if link.chain_id == chain_id]
        return sorted((link for link in found if link.user == user), key=lambda link: link.segment)

    def open_links(self) -> list[Link]:
        return [link for link in self._links.values() if link.end_s is None]

    def link_of_job(self, job_id: int) -> Link | None:
        return self._links.get(job_id)

    def gains(self, policy: str, since_s: int) -> Mapping[tuple[int, int], Gains]:  # noqa: ARG002
        found = {
            key: [each for each in gains if each[0] >= since_s]
            for key, gains in self._gains.items()
        }
        self._gains = {key: gains for key, gains in found.items() if gains}
        return self._gains

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def save_step(self, *_: object) -> None: ...

    def drop_steps(self, *_: object) -> None: ...

    def active_chains(self) -> list[Chain]:
        return []

    def chain(self, *_: object) -> None: ...
