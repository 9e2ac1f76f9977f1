"""What a controller asks of a running training: the port, and its adapter on the runtime."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class TrainingStatus:
    """A training as its coordinator sees it."""

    state: str
    step: int
    steps: int
    """0: not known yet."""
    steps_per_s: float | None
    loss: float | None
    workers: int
    """That compute now."""
    servers: int
    drained: Collection[str] = ()
    """Members that may be cancelled without loss."""

    @property
    def is_finished(self) -> bool:
        return self.state == "finished"

    @property
    def is_over(self) -> bool:
        """It needs none of its tasks any more."""
        return self.state in ("finished", "stopped")


class LiveTraining(Protocol):
    """A running training. No method raises: a coordinator that does not answer is no error."""

    def status(self) -> TrainingStatus | None:
        """None: no answer."""

    def drain(self, names: Collection[str]) -> Collection[str]:
        """Asks these members to leave; does not wait until they have left.

        Returns those that may be cancelled at once without loss. A process that has not registered
        yet is one of them: it does not hear the message.
        """

    def gone(self, names: Collection[str]) -> None:
        """Says that the processes of these members have ended."""

    def stop(self) -> None:
        """Asks the training to save its state and to end; does not wait for it."""
