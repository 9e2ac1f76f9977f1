"""How many new chains of one user are taken under watch within an hour.

Each costs the store and every cycle something, and a chain id is only a word in a comment. What is
beyond the bound is left to Slurm's own dependency, as without Mirage, until the hour has passed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from mirage.daemon.missed_links import Key
from mirage.daemon.restraint import Code
from mirage.daemon.tick import tagged_jobs
from mirage.domain import Snapshot
from mirage.peers import Sparingly
from mirage.ports import Store
from slurm_sim.seconds import HOUR_S

log = logging.getLogger(__name__)

KEY = "acting.chains_per_user_per_hour"


class ChainQuota:
    """Of one service. ``most`` None: no bound. Remembers an hour; a new start reads it from the
    store.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._taken: dict[str, dict[str, int]] | None = None
        """By user: chains, and when they were taken under watch."""
        self._left: Mapping[int, Key] = {}
        """Jobs of the chains that are not, as of the last cycle."""
        self._log = Sparingly(HOUR_S)

    def left_out(
        self, snapshot: Snapshot, store: Store, now_s: int, only_user: str | None = None
    ) -> Collection[Key]:
        """The chains that are not watched now. Raises StoreError."""
        if self.most is None:
            return ()
        if self._taken is None:
            self._taken = {}
            for chain in store.chains(since_s=now_s - HOUR_S):
                self._taken.setdefault(chain.user, {})[chain.chain_id] = chain.created_s
        self._taken = {
            user: kept for user, taken in self._taken.items() if (kept := _recent(taken, now_s))
        }
        watched = {(chain.user, chain.chain_id) for chain in store.active_chains()}
        left: dict[int, Key] = {}
        for job, tag in sorted(tagged_jobs(snapshot), key=lambda entry: entry[0].job_id):
            if only_user not in (None, job.user) or (job.user, tag.chain_id) in watched:
                continue
            taken = self._taken.setdefault(job.user, {})
            if tag.chain_id in taken or len(taken) < self.most:
                taken.setdefault(tag.chain_id, now_s)
            else:
                left[job.job_id] = (job.user, tag.chain_id)
        self._left = left
        self._complain(now_s)
        return set(left.values())

    def over(self, user: str | None) -> Mapping[str, int]:
        """By user (of ``user`` only, if given): how many chains are not watched."""
        return Counter(who for who, _ in set(self._left.values()) if user in (None, who))

    def words(self, user: str | None) -> str:
        """What a user is to know (None: who may see all); empty: nothing."""
        over = self.over(user)
        if not over:
            return ""
        names = (
            ""
            if user
            else f" ({', '.join(f'{who}: {count}' for who, count in sorted(over.items()))})"
        )
        return (
            f"{sum(over.values())} chains are not watched yet{names}: only {self.most} new ones of"
            f" a user are within an hour ({KEY}). Slurm starts each of their links after the one"
            " before ends."
        )

    def explain(self, user: str | None, job_id: int) -> dict[str, Any] | None:
        """As `report.explain`, of a job whose chain is left out; None: it is not, or is none of the
        user's.
        """
        who, chain_id = self._left.get(job_id, ("", ""))
        if not chain_id or user not in (None, who):
            return None
        return {
            "job_id": job_id,
            "chain": chain_id,
            "acting": Code.CHAINS.value,
            "explanation": (
                f"Job {job_id} is left to Slurm's own dependency: its chain {chain_id} is not"
                f" watched yet, since only {self.most} new chains of a user are within an hour"
                f" ({KEY})."
            ),
            "decisions": [],
            "releases": [],
        }

    def _complain(self, now_s: int) -> None:
        for user, count in self.over(None).items():
            if self._log.may(user, now_s):
                log.warning(
                    "user %s has started more than %s chains within an hour (%s): %d are not"
                    " watched yet",
                    user,
                    self.most,
                    KEY,
                    count,
                )


def _recent(taken: Mapping[str, int], now_s: int) -> dict[str, int]:
    return {chain_id: at_s for chain_id, at_s in taken.items() if abs(now_s - at_s) < HOUR_S}
