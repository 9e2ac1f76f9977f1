"""Wrong input. Each error says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import NoReturn


class SimulationError(ValueError):
    """The simulator was asked for something that makes no sense."""


class CoreMissing(SimulationError):
    """The C++ core was not built, or for another Python."""

    exit_code = 2

    def __str__(self) -> str:
        return (
            "the simulator is not installed: it is compiled, and there was no C++20 compiler. Install"
            " a wheel or a package of Mirage, or install again with a compiler (docs/install.md)."
        )


class NoSimulator:
    """In place of `Simulator`, where there is no core. Raises CoreMissing."""

    def __init__(self, *_: object, **__: object) -> None:
        raise CoreMissing

    @classmethod
    def from_state(cls, *_: object, **__: object) -> NoReturn:
        raise CoreMissing


class InvalidCluster(SimulationError):
    """Nodes, partitions or parameters contradict each other."""


class InvalidJob(SimulationError):
    """A job that this cluster could never run as asked."""


class UnknownJob(SimulationError):
    """No job of this id has been submitted."""
