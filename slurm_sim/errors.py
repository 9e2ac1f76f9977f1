"""Wrong input. Each error says what is wrong, where, and what to do."""

from __future__ import annotations


class SimulationError(ValueError):
    """The simulator was asked for something that makes no sense."""


class InvalidCluster(SimulationError):
    """Nodes, partitions or parameters contradict each other."""


class InvalidJob(SimulationError):
    """A job that this cluster could never run as asked."""


class UnknownJob(SimulationError):
    """No job of this id has been submitted."""
