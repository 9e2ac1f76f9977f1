"""A figure with what is known of its error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean, share or ratio, and its 95 % interval (None: too few situations for one)."""

    value: float
    low: float | None = None
    high: float | None = None

    def __neg__(self) -> Estimate:
        if self.low is None or self.high is None:
            return Estimate(-self.value)
        return Estimate(-self.value, -self.high, -self.low)

    @property
    def greatest(self) -> float:
        """The interval's upper end, or the value where there is none."""
        return self.value if self.high is None else max(self.value, self.high)
