"""What a job records of its training: `events.jsonl` and `losses.jsonl`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from mirage.elastic.runtime import folder


class TrainingLog:
    """`events.jsonl` and `losses.jsonl`, only ever appended to."""

    def __init__(self, path: Path) -> None:
        self._events = _append(path / folder.EVENTS)
        self._losses = _append(path / folder.LOSSES)
        self.last_loss: float | None = None
        """Of the last line that this process wrote; None: it wrote none."""

    def event(self, event: str, facts: dict[str, Any]) -> None:
        """Adds one line with the time of day."""
        self._events.write(json.dumps({"time": time.time(), "event": event} | facts) + "\n")
        self._events.flush()

    def losses(self, first: int, values: tuple[float, ...]) -> None:
        """Adds a line for each step from `first` on."""
        for step, value in enumerate(values, first):
            self._losses.write(json.dumps([step, value]) + "\n")
            self.last_loss = value
        self._losses.flush()

    def sync(self) -> None:
        """Returns when the losses so far are durable."""
        folder.sync(self._losses)


def _append(path: Path) -> Any:
    """Opens for appending; a line that a killed process left unfinished is ended."""
    file = path.open("a+", encoding="utf-8")
    file.seek(0)
    text = file.read()
    if text and not text.endswith("\n"):
        file.write("\n")
    return file
