"""What was meant to be moved and what came of it: `moves.jsonl`, which outlives who moves.

The intent stands there before anything is done (`mirage.store.events`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Any

from mirage.store.events import Event, append_events, read_events

MEASURED = 20
"""The last moves, whose median pause is the price."""


class MoveOutcome(str, Enum):
    """How the move of a job ended."""

    MOVED = "moved"
    STAYED = "stayed"
    """It went on where it was: no checkpoint came, or Slurm refused."""
    ELSEWHERE = "elsewhere"
    """It was requeued, and starts on other nodes than meant."""
    ENDED = "ended"
    """The job is over."""


@dataclass(kw_only=True)
class JobMove:
    """One job's part of a move, as the journal has it."""

    move: int
    job_id: int
    user: str
    intended_s: int
    start_s: int
    """When the job had started, as the move was meant."""
    restarts: int
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    signal: str
    to_batch: bool
    exit_code: int
    """Of a job that the signal ended."""
    asked: bool = False
    """The signal was sent. False after a crash: that is not known."""
    requeued: bool = False
    """Because its signal had ended it."""
    dropped_s: int | None = None
    """When the node list was taken back."""
    outcome: MoveOutcome | None = None
    words: str = ""
    pause_s: int | None = None
    """From the signal to the start on the new nodes."""

    @property
    def is_open(self) -> bool:
        return self.outcome is None


@dataclass(kw_only=True)
class MoveJournal:
    """The events' sum, and the file that keeps them. Raises StoreError."""

    path: Path
    moves: list[JobMove] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> MoveJournal:
        """An absent file is an empty journal."""
        journal = cls(path=path)
        for event in read_events(path):
            journal._apply(event)
        return journal

    @property
    def open_moves(self) -> list[JobMove]:
        """Of jobs whose move has not ended."""
        return [each for each in self.moves if each.is_open]

    @property
    def next_move(self) -> int:
        """A number that no move has."""
        return max((each.move for each in self.moves), default=0) + 1

    def since(self, at_s: int) -> list[JobMove]:
        """Meant from then on."""
        return [each for each in self.moves if each.intended_s >= at_s]

    def node_lists(self) -> dict[int, frozenset[str]]:
        """Job id -> the nodes that its last move made it ask for, and that it may still ask for."""
        return {each.job_id: frozenset(each.to_nodes) for each in self.moves}

    def pause_s(self, default_s: float) -> float:
        """The median of the last moves; ``default_s`` before the first."""
        pauses = [each.pause_s for each in self.moves if each.pause_s is not None]
        return float(median(pauses[-MEASURED:])) if pauses else default_s

    def intend(self, moves: Sequence[JobMove], gain: float, price_gpu_s: float) -> None:
        """Writes the intents of all jobs of a move: all of them, or none."""
        self._write(
            [
                {
                    "at": each.intended_s,
                    "event": "intend",
                    "move": each.move,
                    "job": each.job_id,
                    "user": each.user,
                    "start": each.start_s,
                    "restarts": each.restarts,
                    "from": list(each.from_nodes),
                    "to": list(each.to_nodes),
                    "signal": each.signal,
                    "batch": each.to_batch,
                    "exit": each.exit_code,
                    "gain": round(gain, 4),
                    "price_gpu_s": round(price_gpu_s, 1),
                }
                for each in moves
            ]
        )

    def write(self, move: JobMove, event: str, now_s: int, **words: Any) -> None:
        """Writes what was done to a job of a move: `ask`, `requeue`, `require`, `drop`, `end`."""
        self._write([{"at": now_s, "event": event, "move": move.move, "job": move.job_id, **words}])

    def propose(self, now_s: int, mode: str, moves: Sequence[Mapping[str, Any]]) -> None:
        """Writes down what would be moved, and why it is not."""
        self._write([{"at": now_s, "event": "propose", "mode": mode, "moves": list(moves)}])

    def _write(self, events: Sequence[Event]) -> None:
        append_events(self.path, events, "Make room, or give another --state.")
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        kind = event["event"]
        if kind == "intend":
            self.moves.append(_intended(event))
            return
        key = (event.get("move"), event.get("job"))
        move = next((each for each in self.moves if (each.move, each.job_id) == key), None)
        if move is None:
            return
        if kind == "ask":
            move.asked = True
        elif kind == "requeue":
            move.requeued = True
        elif kind == "drop":
            move.dropped_s = int(event["at"])
        elif kind == "end":
            move.outcome = MoveOutcome(event["outcome"])
            move.words = str(event["words"])
            move.pause_s = event.get("pause")


def _intended(event: Event) -> JobMove:
    return JobMove(
        move=int(event["move"]),
        job_id=int(event["job"]),
        user=str(event["user"]),
        intended_s=int(event["at"]),
        start_s=int(event["start"]),
        restarts=int(event["restarts"]),
        from_nodes=tuple(event["from"]),
        to_nodes=tuple(event["to"]),
        signal=str(event["signal"]),
        to_batch=bool(event["batch"]),
        exit_code=int(event["exit"]),
    )
