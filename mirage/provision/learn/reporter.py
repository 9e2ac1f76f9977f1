"""What a training or an evaluation says while it works. The command line prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.rl.fit import Progress


class Reporter:
    """Says nothing. A subclass overrides what it wants to hear."""

    def note(self, text: str) -> None:
        """What a reader of the job history or of the cluster changed or left out."""

    def caution(self, text: str) -> None:
        """What the result depends on and a user must know: a `note:` or a `warning:`."""

    def step(self, name: str, number: int, steps: int) -> None:
        """A step of a longer work begins, the ``number``-th of ``steps``."""

    def episodes(self, part: str, done: int, total: int) -> None:
        """How many episodes of a part are simulated. The last call has done == total."""

    def progress(self, method: str, progress: Progress) -> None:
        """After each round of a network's training."""

    def keeps(self, words: str) -> None:
        """What stays if the work is interrupted from now on, and how it goes on."""

    def written(self, method: str, folder: Path, wall_s: float) -> None:
        """A model folder is complete."""


SILENT = Reporter()
