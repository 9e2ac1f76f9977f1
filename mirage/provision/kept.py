"""Finished trials in a file, so that an interrupted evaluation does not begin again."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from mirage.errors import MirageError

Case = TypeVar("Case", bound=Hashable)
Trial = TypeVar("Trial")
Json = dict[str, Any]


@dataclass(frozen=True)
class TrialForm(Generic[Case, Trial]):
    """How a trial looks as JSON."""

    write: Callable[[Case, Trial], Json]
    read: Callable[[Json], tuple[Case, Trial]]
    """Raises ValueError, TypeError or KeyError for what is no trial."""


class TrialFile(Generic[Case, Trial]):
    """One JSON object a line. The first line says what the trials depend on; a file with another
    first line is replaced. A line that was cut off is ignored. Nothing is written before the first
    trial.
    """

    def __init__(self, path: Path, depends_on: Json, form: TrialForm[Case, Trial]) -> None:
        """Raises MirageError: the file can't be read."""
        self.path, self._head, self._form = path, json.dumps(depends_on, sort_keys=True), form
        self._found: dict[Case, Trial] = {}
        self._is_begun = False
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            for line in lines[1:] if lines[:1] == [self._head] else []:
                self._take(line)
        except OSError as error:
            raise MirageError(f"{path}: can't be read ({error.strerror}).") from error

    def _take(self, line: str) -> None:
        try:
            case, trial = self._form.read(json.loads(line))
        except (ValueError, TypeError, KeyError):
            return  # it was cut off
        self._found[case] = trial

    def _line(self, case: Case, trial: Trial) -> str:
        return json.dumps(self._form.write(case, trial))

    def found(self, cases: Sequence[Case]) -> list[Trial]:
        """Trials of these cases that an earlier run finished."""
        return [self._found[case] for case in cases if case in self._found]

    def missing(self, cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if case not in self._found]

    def add(self, case: Case, trial: Trial) -> None:
        """Raises MirageError."""
        try:
            if not self._is_begun:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                texts = [self._head, *(self._line(*each) for each in self._found.items())]
                self.path.write_text("\n".join(texts) + "\n", encoding="utf-8")
                self._is_begun = True
            with self.path.open("a", encoding="utf-8") as file:
                file.write(self._line(case, trial) + "\n")
        except OSError as error:
            raise MirageError(f"{self.path}: can't be written ({error.strerror}).") from error

    def discard(self) -> None:
        """Removes the file, and its folder if nothing else is in it."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.parent.rmdir()
