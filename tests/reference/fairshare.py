"""The fair-share factor: Slurm's Fair Tree (`fair_tree.html`, `priority_multifactor.html`).

Usage is seconds of what a job is billed for: by default its CPUs. Each PriorityCalcPeriod it
decays, and what running jobs used since the last time is added; at a job's end what it used since
then. What is added counts as if all of it were as old as its oldest second (`_apply_new_usage` of
priority/multifactor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_sim.config import ROOT, Association, Params
from slurm_sim.constants import decay_per_s


@dataclass
class _Member:
    """An account (with members) or a user in one."""

    account: str
    user: str | None
    shares: int = 1
    usage: float = 0.0
    level_fs: float = 0.0
    members: list[_Member] = field(default_factory=list)
    factor: float = 1.0


@dataclass
class _Run:
    """A job that runs, or is suspended."""

    member: _Member
    since_s: int
    billing: float
    usage_factor: float


class FairShare:
    """Factors of all users, 0 to 1, as of the last calculation."""

    def __init__(self, params: Params, associations: Sequence[Association], start_s: int) -> None:
        self._period_s = params.priority_calc_period_s
        self._decay = decay_per_s(params)
        self._calculated_s = start_s
        self._runs = dict[int, _Run]()
        self._root = _Member(ROOT, None)
        self._accounts = {ROOT: self._root}
        self._parents = {item.account: item.parent for item in associations if item.user is None}
        self._users: dict[tuple[str, str], _Member] = {}
        self._stale = True
        for item in associations:
            if item.user is None:
                self._account(item.account).shares = item.shares
            else:
                self._user(item.account, item.user).shares = item.shares

    def _account(self, name: str) -> _Member:
        if name not in self._accounts:
            account = self._accounts[name] = _Member(name, None)
            self._account(self._parents.get(name, ROOT)).members.append(account)
        return self._accounts[name]

    def _user(self, account: str, user: str) -> _Member:
        key = (account, user)
        if key not in self._users:
            member = self._users[key] = _Member(account, user)
            self._account(account).members.append(member)
            self._stale = True
        return self._users[key]

    def add(self, account: str, user: str) -> None:
        """A user who may use the cluster; being known changes the others' ranks."""
        self._user(account, user)

    def start(
        self,
        job_id: int,
        account: str,
        user: str,
        *,
        billing: float,
        usage_factor: float,
        now_s: int,
    ) -> None:
        """A job of theirs has nodes from now on; `usage_factor`: its QOS'."""
        self.advance(now_s)
        self._runs[job_id] = _Run(self._user(account, user), now_s, billing, usage_factor)

    def stop(self, job_id: int, now_s: int) -> None:
        """It gives them back. What it used since the last calculation counts from the next one on."""
        self._calculate(now_s)
        self._add(self._runs.pop(job_id), now_s)

    def _add(self, run: _Run, until_s: int) -> None:
        ran_s = until_s - max(run.since_s, self._calculated_s)
        run.member.usage += ran_s * self._decay**ran_s * run.billing * run.usage_factor

    def advance(self, now_s: int) -> None:
        """Does the calculations that were due until now."""
        while self._calculated_s + self._period_s <= now_s:
            until_s = self._calculated_s + self._period_s
            for member in self._users.values():
                member.usage *= self._decay**self._period_s
            for run in self._runs.values():
                self._add(run, until_s)
            self._calculated_s, self._stale = until_s, True

    def factor(self, account: str, user: str, now_s: int) -> float:
        """The user's factor now."""
        self._calculate(now_s)
        return self._user(account, user).factor

    def _calculate(self, now_s: int) -> None:
        self.advance(now_s)
        if self._stale:
            self._stale = False
            self._sum(self._root)
            self._rank()

    def _sum(self, account: _Member) -> float:
        account.usage = 0.0
        for member in account.members:
            account.usage += member.usage if member.user is not None else self._sum(member)
        shares = sum(member.shares for member in account.members)
        for member in account.members:
            member.level_fs = _level_fs(member, shares, account.usage)
        return account.usage

    def _rank(self) -> None:
        """Ranks users depth first, the best served last; users of equal standing share a rank.

        The manual merges tied accounts; 22.05 does not (its test for them never holds), and neither
        does this.
        """
        self._left = self._shared = len(self._users)
        self._rank_among(self._root.members, False)

    def _rank_among(self, siblings: Sequence[_Member], tied_above: bool) -> None:
        order = sorted(siblings, key=lambda member: (-member.level_fs, member.user is None))
        previous: float | None = None
        for index, member in enumerate(order):
            tied = (index == 0 and tied_above) or previous == member.level_fs
            previous = member.level_fs
            if member.user is None:
                self._rank_among(member.members, tied)
                continue
            self._shared = self._shared if tied else self._left
            member.factor = self._shared / len(self._users)
            self._left -= 1


def _level_fs(member: _Member, all_shares: int, all_usage: float) -> float:
    """Fair Tree's LF = S / U: shares against usage, each relative to the member's siblings."""
    if member.shares == 0:
        return 0.0
    if member.usage == 0.0:
        return float("inf")
    return (member.shares / all_shares) / (member.usage / all_usage)
