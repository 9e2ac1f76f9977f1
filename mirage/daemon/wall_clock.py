"""The Clock port on real time."""

from __future__ import annotations

import time


class WallClock:
    def now_s(self) -> int:
        return int(time.time())
