"""What the recipe of a provisioning model says of its training (`mirage.models.recipe.About`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mirage.models.recipe import About


@dataclass(frozen=True, kw_only=True)
class ProvisionAbout(About):
    """Where a model may be used, and what it was trained on. Times are Unix seconds."""

    SYSTEM: ClassVar[str] = "provision"
    cluster: str
    """The cluster's name."""
    pool: str
    """Name of the partitions that share nodes (`Snapshot.pool_of`)."""
    nodes: int
    """Number of the pool's nodes."""
    trace: str
    """File name of the job history."""
    trace_sha256: str
    train_s: tuple[int, int]
    """Begin and end of the training part."""
    validation_s: tuple[int, int]
    """Begin and end of the part that the card's results are of."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Least and greatest value of each input in training (`ranges.py`)."""

    def problem(self) -> str:
        if self.nodes < 1:
            return f"nodes: expected at least 1, got {self.nodes}"
        for name, (low, high) in self.ranges.items():
            if not -math.inf < low <= high < math.inf:
                return f"ranges: {name}: expected finite numbers, the lesser first"
        return ""
