"""Rows and fields out of what Slurm's commands print. Pure. A broken frame is refused as
ClusterNonsense (`parsing.py` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NoReturn, TypeVar

from mirage.errors import ClusterNonsense
from mirage.slurm.argv import SQUEUE_FIELDS
from mirage.slurm.oddities import note_once

Record = TypeVar("Record")
_BLOCK = 1 << 20
"""Characters of an answer that are split at once."""
_SHOWN = 80
"""Characters of an unreadable answer that an error quotes."""


def framed(text: str, nonce: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of squeue, whose fields all end with the nonce, and that end with a newline. With the
    line of each. Lines between them are no user's.
    """
    width, count = len(SQUEUE_FIELDS), text.count(nonce)
    rest = text[text.rfind(nonce) + len(nonce) :] if count else text
    if text and (not count or count % width or not _is_between(rest)):
        line = text.count("\n") + 1 if count else 1
        nonsense("squeue", line, rest, "cut short, or something foreign in it")
    line, pieces = 1, chain.from_iterable(_blocks(text, nonce))
    for number, fields in enumerate(iter(lambda: list(islice(pieces, width)), [])):
        before, newline, fields[0] = fields[0].rpartition("\n")
        if number and not newline:
            nonsense("squeue", line, "|".join(fields), f"expected a new line before {fields[0]!r}")
        line += bool(number)
        _note_lines("squeue", line, before.split("\n"))
        yield line + before.count("\n") + bool(before), fields
        line += before.count("\n") + bool(before) + fields[-1].count("\n")
    _note_lines("squeue", line, rest.split("\n"))


def _is_between(text: str) -> bool:
    """Whether what follows a row may be further lines."""
    return text.startswith("\n") and text.endswith("\n")


def _note_lines(command: str, number: int, lines: Iterable[str]) -> None:
    """Of lines that are no rows. Raises ClusterNonsense where they say that the rows are another
    cluster's.
    """
    for line in filter(None, lines):
        if line.startswith("CLUSTER:"):
            nonsense(command, number, line, "an answer of another cluster")
        note_once(f"{command}: a line that is no row of it is left out: {shown_part(line)}")


def _blocks(text: str, end: str) -> Iterator[list[str]]:
    """What stands before each ``end``. Not all at once: 100,000 jobs have two million pieces."""
    first = 0
    while True:
        last = text.find(end, first + _BLOCK)
        last = last if last >= 0 else text.rfind(end, first)
        if last < 0:
            return
        yield text[first:last].split(end)
        first = last + len(end)


def lines_of(command: str, text: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """Lines of ``width`` fields, for output that users can't write into."""
    return records_of(command, text, width, list)


def records_of(
    command: str, text: str, width: int, parse: Callable[[list[str]], Record]
) -> Iterator[tuple[int, Record]]:
    """What ``parse`` makes of each line of ``width`` fields; lines that are none are left out, unless
    all are.
    """
    if text and not text.endswith("\n"):
        nonsense(command, text.count("\n") + 1, text.rpartition("\n")[2], "cut short")
    found, strange = False, list[tuple[int, str, str]]()
    for number, line in enumerate(filter(None, text.split("\n")), start=1):
        fields = line.split("|")
        try:
            if len(fields) != width:
                raise ValueError(f"expected {width} fields, got {len(fields)}")
            record = parse(fields)
        except ValueError as error:
            strange.append((number, line, str(error)))
            continue
        found = True
        yield number, record
    if strange and not found:
        nonsense(command, *strange[0])
    for number, line, _ in strange:
        _note_lines(command, number, [line])


def nonsense(command: str, line: int, text: str, problem: str) -> NoReturn:
    problem = problem if len(problem) <= 2 * _SHOWN else problem[: 2 * _SHOWN] + "..."
    raise ClusterNonsense(
        f"{command}, line {line}: {problem}; it printed {shown_part(text)}. Nothing was done; retry"
        " later."
    ) from None


def shown_part(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
