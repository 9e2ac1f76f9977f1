"""The energy that nodes draw: no rule of Slurm's (`idle_w` and `busy_w` of a node)."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_sim.config import NodeSpec


class EnergyMeter:
    """Joules since the start: busy nodes draw `busy_w`, idle ones that take jobs `idle_w`, others
    nothing.
    """

    def __init__(self, nodes: Sequence[NodeSpec], start_s: int) -> None:
        self._nodes = nodes if any(node.idle_w or node.busy_w for node in nodes) else ()
        self._energy_j = self._power_w = 0.0
        self._read_s = start_s

    def read_j(self, now_s: int) -> float:
        """Joules until now."""
        self._energy_j += self._power_w * (now_s - self._read_s)
        self._read_s = now_s
        return self._energy_j

    def reset(self, idle: int, up: int, now_s: int) -> None:
        """Energy counts from now."""
        self._energy_j, self._read_s = 0.0, now_s
        self._power_w = self._power(idle, up)

    def change(self, idle: int, up: int, now_s: int) -> None:
        """From now on these nodes are without a job, and these take jobs."""
        self.read_j(now_s)
        self._power_w = self._power(idle, up)

    def _power(self, idle: int, up: int) -> float:
        power_w = 0.0
        for index, node in enumerate(self._nodes):
            if not idle >> index & 1:
                power_w += node.busy_w
            elif up >> index & 1:
                power_w += node.idle_w
        return power_w
