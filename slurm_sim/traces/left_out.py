"""Records of a foreign file that can't be read: they are left out and counted, with their lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_sim.traces.errors import TraceError, Wrong
from slurm_sim.traces.fields import Batch
from slurm_sim.traces.table import COLUMNS, EXPECTED, wrong_values

MOST_LEFT_OUT = 0.5
"""A file of which a greater share can't be read is none of the format."""
EXAMPLES = 3
"""Lines that are named for each reason."""


WHOLE = ("line", "record", "header")
"""In place of a column: the whole of a record is wrong."""
EMPTY = "an empty field"
UNENDED = Wrong("line", "", "a line end; the file is cut off within its last value")


@dataclass
class SkippedRecords:
    """Records that are not taken: how many for each reason, and where the first of them are."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)
    first: tuple[int, Wrong] | None = None
    drawn_in: int = 0
    """Of them those that are only in doubt because of the one before."""

    def add(self, number: int, wrong: Wrong) -> None:
        """``number``: the record's line in the file."""
        key = (wrong.column, wrong.expected)
        self.counts[key] = self.counts.get(key, 0) + 1
        shown = self.examples.setdefault(key, [])
        if len(shown) < EXAMPLES:
            shown.append((number, wrong.found))
        if self.first is None or number < self.first[0]:
            self.first = number, wrong

    def add_rows(self, batch: Batch) -> None:
        """The rows of a batch that have a bad value."""
        for row, wrong in sorted(batch.bad.items()):
            self.add(batch.lines[row], wrong)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def notes(self) -> dict[str, int]:
        """For a report: reason -> how many."""
        return {self._note(key): count for key, count in self.counts.items()}

    def _note(self, key: tuple[str, str]) -> str:
        column, expected = key
        empty = "" if column in WHOLE else "empty"
        shown = [(at, repr(found[:40]) if found else empty) for at, found in self.examples[key]]
        places = (f"{number}: {what}" if what else str(number) for number, what in shown)
        more = ", ..." if self.counts[key] > len(self.examples[key]) else ""
        return f"records left out: {column}: expected {expected} (line {', '.join(places)}{more})"

    def refuse_rubbish(self, file: str, taken: int, hint: str = "") -> None:
        """Raises TraceError, about the first record, if too large a share can't be read.

        ``taken``: how many could be read. ``hint``: what to give instead.
        """
        bad = self.total - self.drawn_in
        if self.first is not None and bad > MOST_LEFT_OUT * (bad + taken):
            number, wrong = self.first
            share = f"{bad} of {bad + taken} records can't be read"
            expected = f"{wrong.expected} ({share}{'; ' if hint else ''}{hint})"
            raise TraceError(
                file,
                expected,
                found=wrong.found or ("something else" if wrong.column in WHOLE else EMPTY),
                line=number,
                field=wrong.column,
            )


def take_down(batch: Batch, frame: Any) -> None:
    """Puts rows of a batch that can't become jobs into its `bad`. ``frame``: its rows as our table."""
    for name in frame.columns:
        kind = COLUMNS[name]
        for row in np.flatnonzero(wrong_values(frame[name], kind)).tolist():
            value = frame[name].iloc[row]
            found = "nothing" if value is None or value != value else str(value)
            batch.bad.setdefault(row, Wrong(name, found, EXPECTED[kind]))
