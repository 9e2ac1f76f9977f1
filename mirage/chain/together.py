"""For how much of the time one replica of a service was up, and all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""(since, until), Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Of the time for which at least one replica was to serve."""

    wall_s: int
    one_s: int
    """At least one did."""
    all_s: int
    """Each that was to serve did."""

    @property
    def one(self) -> float | None:
        """Share of the time; None: there was none."""
        return self.one_s / self.wall_s if self.wall_s else None

    @property
    def all(self) -> float | None:
        return self.all_s / self.wall_s if self.wall_s else None


def together(replicas: Iterable[tuple[Span | None, Sequence[Span]]]) -> Together:
    """``replicas``: of each, when it was to serve (from when it was ready first to its end; None: it
    never was), and when it did.
    """
    events: list[tuple[int, int, int]] = []
    for life, served in replicas:
        if life is not None:
            events += [(life[0], 1, 0), (life[1], -1, 0)]
            for since_s, until_s in merged(served):
                events += [(since_s, 0, 1), (until_s, 0, -1)]
    wanted = up = wall_s = one_s = all_s = before_s = 0
    for at_s, more_wanted, more_up in sorted(events):
        if wanted:
            wall_s += at_s - before_s
            one_s += (at_s - before_s) * (up > 0)
            all_s += (at_s - before_s) * (up >= wanted)
        wanted, up, before_s = wanted + more_wanted, up + more_up, at_s
    return Together(wall_s=wall_s, one_s=one_s, all_s=all_s)


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same time in spans that do not meet."""
    found: list[Span] = []
    for since_s, until_s in sorted(spans):
        if found and since_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until_s))
        elif until_s > since_s:
            found.append((since_s, until_s))
    return found
