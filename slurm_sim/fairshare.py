"""The fair-share factor: Slurm's Fair Tree (`fair_tree.html`, `priority_multifactor.html`).

Usage is CPU-seconds. It decays, and new usage is added, each PriorityCalcPeriod. Simplification: what was used within
a period does not decay in it (a relative error below 4e-4 with Slurm's default period and half-life).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_sim.config import ROOT, Association, Params


@dataclass
class _Member:
    """An account (with members) or a user in one."""

    account: str
    user: str | None
    shares: int = 1
    usage: float = 0.0
    level_fs: float = 0.0
    members: list[_Member] = field(default_factory=list)
    cpus: int = 0
    """Held now, by a user's running jobs."""
    since_s: int = 0
    fresh: int = 0
    """CPU-seconds since the last calculation, up to `since_s`."""
    factor: float = 1.0


class FairShare:
    """Factors of all users, 0 to 1, as of the last calculation."""

    def __init__(self, params: Params, associations: Sequence[Association], start_s: int) -> None:
        self._period_s = params.priority_calc_period_s
        half_life_s = params.priority_decay_half_life_s
        self._decay = (1 - 0.693 / half_life_s) ** self._period_s if half_life_s else 1.0
        self._calculated_s = start_s
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

    def count(self, account: str, user: str, cpus: int, now_s: int) -> None:
        """A job of theirs took (or, below 0, gave back) CPUs now."""
        self.advance(now_s)
        member = self._user(account, user)
        member.fresh += member.cpus * (now_s - member.since_s)
        member.cpus, member.since_s = member.cpus + cpus, now_s

    def advance(self, now_s: int) -> None:
        """Does the calculations that were due until now."""
        while self._calculated_s + self._period_s <= now_s:
            self._calculated_s += self._period_s
            for member in self._users.values():
                member.fresh += member.cpus * (self._calculated_s - member.since_s)
                member.usage = member.usage * self._decay + member.fresh
                member.fresh, member.since_s = 0, self._calculated_s
            self._stale = True

    def factor(self, account: str, user: str, now_s: int) -> float:
        """The user's factor now."""
        self.advance(now_s)
        if self._stale:
            self._stale = False
            self._sum(self._root)
            self._rank()
        return self._user(account, user).factor

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

        The manual merges tied accounts; 22.05 does not (its test for them never holds), and neither does this.
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
