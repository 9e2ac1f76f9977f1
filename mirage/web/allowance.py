"""How much of a processor the visits of one user may take, so that no reloading slows the daemon's
cycles down much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.1
"""Of one processor, in the long run."""
SAVED_S = 10.0
"""Processor seconds that who did not visit has in hand."""
MOST = 1000
"""Users whose use is remembered; the rest has all in hand."""


class Allowance:
    """Processor seconds in hand, by user."""

    def __init__(
        self, saved_s: float = SAVED_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._saved_s = saved_s
        self._now_s = now_s
        self._left: dict[str | None, tuple[float, float]] = {}
        """Seconds in hand, and when that was."""

    def left_s(self, user: str | None) -> float:
        """Below zero: this user has to wait."""
        if user not in self._left:
            return self._saved_s
        left_s, at_s = self._left[user]
        return min(self._saved_s, left_s + SHARE * (self._now_s() - at_s))

    def take(self, user: str | None, seconds: float) -> None:
        if len(self._left) >= MOST:
            self._left = {
                each: known
                for each, known in self._left.items()
                if self.left_s(each) < self._saved_s
            }
        self._left[user] = self.left_s(user) - seconds, self._now_s()
