"""What the service's last cycle saw, for who only looks on (the web page). To put it up costs a
cycle nothing.

The loop puts whole, frozen values in place of the old ones, so readers in other threads need no
lock and hold up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage.daemon.restraint import Acting
from mirage.domain import Decision, Snapshot


@dataclass(frozen=True)
class Sight:
    """Of one cycle."""

    snapshot: Snapshot
    decisions: Sequence[Decision]


@dataclass(frozen=True)
class Turn:
    """How a cycle went."""

    ok: bool
    took_s: float
    ended_s: int


@dataclass
class Board:
    """``sight``: of the last cycle that saw the queue; ``turn``: of the last one of all; None: none
    yet.
    """

    acting: Acting
    policy: str
    poll_s: int
    sight: Sight | None = None
    turn: Turn | None = None

    def saw(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        self.sight = Sight(snapshot, decisions)

    def cycle(self, ok: bool, seconds: float, at_s: int) -> None:
        """A cycle is over; ``at_s``: now, Unix seconds."""
        self.turn = Turn(ok, seconds, at_s)
