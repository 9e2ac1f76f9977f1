"""Laws of the wait of a job that enters the queue now, from the waits of jobs like it.

Two laws answer, each in one half of the cases. The first is that of the jobs which found about as
much work queued before them as there is now. So a burst is seen as it comes, not when its waits
have ended. The second adds to the last wait of the chain itself what waits changed by within a day:
a user whom fair-share puts last waits longer than like jobs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.domain import RunLaw
from slurm_sim.seconds import DAY_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TAIL = 1.5
"""A wait that is under way and longer than all known ones is taken to last so many times as long."""
NEAREST = 100
"""So many waits, of those that last and those that ended, stand for the present backlog."""
AGES = 48
"""The best age of a release is looked for at so many parts of a link's length."""
LAG_S = DAY_S
"""Waits that began about so long after each other are compared: at the same time of the day."""
ENOUGH = 10
"""Fewer ended waits, or changes of waits, make no law."""


class Begun(NamedTuple):
    """Waits, with the times at which they began."""

    began_s: Floats
    waits_s: Floats


class WaitLaw(NamedTuple):
    """A distribution of waits with finitely many values."""

    waits_s: Floats
    """(n,), ascending."""
    shares: Floats
    """(n,), sums to 1."""

    def share_above(self, seconds: float) -> float:
        """P(W > seconds)."""
        return float(self.shares[self.waits_s > seconds].sum())

    def quantile(self, level: float) -> float:
        """The smallest wait that at least ``level`` of the waits do not exceed."""
        index = int(np.searchsorted(np.cumsum(self.shares), level - 1e-12))
        return float(self.waits_s[min(index, len(self.waits_s) - 1)])


def wait_law(ended_s: Floats, under_way_s: Floats) -> WaitLaw:
    """The law of waits from those that ended, and from those that last at least so long already.

    The product-limit estimate (Kaplan and Meier, 1958): waits under way are censored. Without them
    a growing queue would look shorter than it is, as only short waits have ended. What is left
    above the longest known wait stands at `TAIL` times it. ``ended_s`` must not be empty.
    """
    ended_s, under_way_s = np.sort(ended_s), np.sort(under_way_s)
    longest_s = np.append(ended_s[-1:], under_way_s[-1:]).max()
    return _product_limit(
        ended_s, len(under_way_s) - np.searchsorted(under_way_s, ended_s), longest_s
    )


def _product_limit(ended_s: Floats, under_way: Ints, longest_s: float) -> WaitLaw:
    """``ended_s``: ascending; ``under_way``: how many others last at least as long as each of them."""
    at_risk = np.arange(len(ended_s), 0, -1) + under_way
    left = np.cumprod(1 - 1 / at_risk)
    shares = np.concatenate([[1.0], left[:-1]]) - left
    if left[-1] > 1e-9:
        ended_s = np.append(ended_s, TAIL * longest_s)
        shares = np.append(shares, left[-1])
    return WaitLaw(ended_s, shares)


def mixed(laws: Sequence[WaitLaw]) -> WaitLaw:
    """The law of a wait that follows each of ``laws`` equally often."""
    waits_s = np.concatenate([law.waits_s for law in laws])
    shares = np.concatenate([law.shares for law in laws]) / len(laws)
    order = np.argsort(waits_s, kind="stable")
    return WaitLaw(waits_s[order], shares[order])


def nearest(backlogs: Floats, backlog: float, count: int = NEAREST) -> Ints:
    """Which ``count`` of the jobs found a backlog closest to ``backlog`` as they entered the queue."""
    return np.argsort(np.abs(backlogs - backlog), kind="stable")[:count]


class Changes(NamedTuple):
    """What waits of like jobs changed by within a day: each is compared with the ended one that began
    closest to `LAG_S` before it, if that was within half and twice `LAG_S`.
    """

    ended_s: Floats
    """Ascending."""
    under_way_s: Floats
    """Likewise, of waits that last at least so long already."""

    @classmethod
    def of(cls, ended: Begun, under_way: Begun) -> Changes:
        return cls(np.sort(wait_changes(ended, ended)), np.sort(wait_changes(ended, under_way)))

    def law_after(self, last_s: float) -> WaitLaw | None:
        """The law of a wait a day after one of ``last_s``: the changes added, never below 0. None:
        too few can be compared.
        """
        if len(self.ended_s) < ENOUGH:
            return None
        waits_s = np.maximum(last_s + self.ended_s, 0)
        # The waits under way are not shifted one by one: 5,000 chains beside 100,000 jobs.
        shorter = np.where(waits_s > 0, np.searchsorted(self.under_way_s, waits_s - last_s), 0)
        longest_s = np.append(waits_s[-1:], last_s + self.under_way_s[-1:]).max()
        return _product_limit(waits_s, len(self.under_way_s) - shorter, longest_s)


def wait_changes(before: Begun, after: Begun) -> Floats:
    """How much longer each wait is than the one of ``before`` that began about `LAG_S` earlier."""
    order = np.argsort(before.began_s, kind="stable")
    earlier_s, earlier_waits_s = before.began_s[order], before.waits_s[order]
    if not len(earlier_s):
        return np.empty(0)
    wanted_s = after.began_s - LAG_S
    right = np.clip(np.searchsorted(earlier_s, wanted_s), 0, len(earlier_s) - 1)
    left = np.maximum(right - 1, 0)
    is_left_nearer = wanted_s - earlier_s[left] <= earlier_s[right] - wanted_s
    closest = np.where(is_left_nearer, left, right)
    lag_s = after.began_s - earlier_s[closest]
    is_near = (lag_s >= LAG_S / 2) & (lag_s <= 2 * LAG_S)
    return (after.waits_s - earlier_waits_s[closest])[is_near]


def least_loss(law: WaitLaw, runs: RunLaw, handover_s: float) -> float:
    """The least share of time that a chain can lose if each link is released at one age, (0, 1].

    ``runs``: how long links run by themselves. ``handover_s``: time lost by one handover.
    """
    ages_s = np.linspace(0, runs.runs_s[-1], AGES + 1)
    late_s, lasts_s = np.zeros_like(ages_s), np.zeros_like(ages_s)
    shares, seconds = sums_from(law.shares), sums_from(law.shares * law.waits_s)
    for run_s, share in zip(runs.runs_s, runs.shares, strict=True):
        # At the predecessor's end Slurm's own dependency lets the successor in.
        released_s = np.minimum(ages_s, run_s)
        left_s = run_s - released_s
        longer = np.searchsorted(law.waits_s, left_s, side="right")
        late_s += share * (seconds[longer] - left_s * shares[longer])
        lasts_s += share * (released_s + seconds[0])
    losses = (handover_s + late_s) / np.maximum(lasts_s, 1.0)
    return float(min(1.0, losses.min()))


def sums_from(values: Floats) -> Floats:
    """(n + 1,): of ``values`` from each of their n places on, and 0 beyond."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
