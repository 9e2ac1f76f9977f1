"""What the service's last cycle saw, for those who only look (the web page). It costs a cycle
nothing.

The loop puts whole, frozen values in place of the old ones, so readers in other threads need no
lock and hold up nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirage.daemon.dismissed import Dismissed
from mirage.daemon.observers import AgreementLog, Observer
from mirage.daemon.restraint import Acting
from mirage.domain import Decision, Snapshot


@dataclass(frozen=True)
class CycleView:
    """What one cycle saw and decided."""

    snapshot: Snapshot
    decisions: Sequence[Decision]


@dataclass(frozen=True, kw_only=True)
class CycleResult:
    """How one cycle went."""

    ok: bool
    took_s: float
    ended_s: int


@dataclass(kw_only=True)
class LastCycle(Observer):
    """``view``: of the last cycle that read the queue. ``result``: of the last cycle. None: no
    such cycle yet.
    """

    acting: Acting
    policy: str
    poll_s: int
    dismissed: Dismissed = field(default_factory=Dismissed)
    """Chains that their owners have put away."""
    agreement: AgreementLog = field(default_factory=AgreementLog)
    view: CycleView | None = None
    result: CycleResult | None = None

    def decisions_made(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        self.view = CycleView(snapshot, decisions)

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:
        self.result = CycleResult(ok=succeeded, took_s=seconds, ended_s=now_s)
