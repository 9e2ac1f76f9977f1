"""A job history that can't be read: one error, with the place."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

MOST_SHOWN = 600


class TraceError(ValueError):
    """A file of jobs is not what it should be.

    Its text is ``file:line: field: found ..., expected ...``; the parts that are known are kept as
    attributes.
    """

    def __init__(
        self, file: str, expected: str, *, found: str = "", line: int | None = None, field: str = ""
    ) -> None:
        self.file, self.line, self.field, self.found, self.expected = (
            file,
            line,
            field,
            found,
            expected,
        )
        place = file if line is None else f"{file}:{line}"
        expected = _printable(expected)
        what = f"found {_short(found)}, expected {expected}" if found else f"expected {expected}"
        super().__init__(f"{place}: {field}: {what}" if field else f"{place}: {what}")


def refuse_overwriting(out: Path, *inputs: Path | None) -> None:
    """Raises TraceError if the file to write is one of those to read."""
    for file in inputs:
        if file is not None and out.exists() and file.exists() and out.samefile(file):
            raise TraceError(
                f"--out {out}", "another file: this one is the input, and would be lost"
            )


def _printable(text: str) -> str:
    """With what a binary file's columns may bring along escaped, and not too long."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


class Wrong(NamedTuple):
    """Why a record can't be taken."""

    column: str
    found: str
    expected: str
