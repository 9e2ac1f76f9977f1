"""What the coordinator must not forget: replaced durably before each phase is acted upon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mirage.elastic.runtime import folder, protocol
from mirage.elastic.runtime.protocol import ProtocolError, SavedSlices, TrainingJob
from mirage.errors import MirageError

TRAINING, STOPPED, FINISHED = "training", "stopped", "finished"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete snapshot: every slice stands in one of the files."""

    version: int
    parts: tuple[SavedSlices, ...]


@dataclass(frozen=True, kw_only=True)
class CoordinatorState:
    """One job. `sessions` maps the servers in `owners` to the process that holds their slices."""

    phase: str = TRAINING
    job: TrainingJob | None = None
    """Known from the first snapshot on."""
    incarnation: int = 0
    layout: int = 0
    start: int = 0
    """The version where this incarnation started."""
    owners: tuple[str, ...] = ()
    sessions: Mapping[str, str] = field(default_factory=dict)
    scaling: int = 0
    """The last scaling's number."""
    scaling_phase: str = ""
    """`prepare`, `migrate` or `switch`; empty: none is under way."""
    manifest: Manifest | None = None
    draining: tuple[str, ...] = ()
    workers_wanted: int | None = None
    servers_wanted: int | None = None


class StateFile:
    """The state on disk and in memory."""

    def __init__(self, path: Path) -> None:
        """Raises MirageError: the file is damaged."""
        self._path = path / folder.STATE
        record = folder.read_json(self._path)
        try:
            self.now: CoordinatorState = (
                CoordinatorState()
                if record is None
                else protocol.from_record(CoordinatorState, record, str(self._path))
            )
        except ProtocolError as error:
            raise MirageError(f"{error} Restore the file from a copy.") from None

    def change(self, **changes: Any) -> CoordinatorState:
        """Durable when it returns."""
        self.now = replace(self.now, **changes)
        folder.write_json(self._path, protocol.to_record(self.now))
        return self.now
