"""The lines of a slurm.conf: comments, continuation, quotes and included files (`slurm.conf(5)`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_sim.clusters.notes import Entry
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import read_text

PAIR = re.compile(
    r"""\s*(?P<key>[A-Za-z0-9_.]+(?:\[\d+\])?)\s*=      # Key =
    (?: \s*"(?P<quoted>[^"]*)"                          # a quoted value
      | [ \t]*(?P<plain>[^\s"]\S*)                        # a value, also after blanks
      | [ \t]*(?=$|\s) )                                # none
    """,
    re.VERBOSE,
)
INCLUDE = re.compile(r"\s*include\s+(?P<path>\S+)\s*", re.IGNORECASE)
COMMENT = re.compile(r"(?<!\\)#.*")


@dataclass(frozen=True)
class Line:
    """One logical line: its pairs in their order."""

    where: str
    entries: tuple[Entry, ...]

    @property
    def kind(self) -> str:
        """Its first key, in lower case: it says what the line describes."""
        return self.entries[0].key.lower()


def read_lines(path: Path) -> list[Line]:
    """All lines, those of included files in their place. Raises InvalidCluster."""
    return list(_Reader().lines(path, "give a slurm.conf that can be read", ()))


class _Reader:
    """Remembers the cluster's name, which ``%c`` in an included path stands for."""

    def __init__(self) -> None:
        self.cluster_name = ""

    def lines(self, path: Path, advice: str, outer: tuple[Path, ...]) -> Iterator[Line]:
        if path.resolve() in outer:
            raise InvalidCluster(f"{outer[-1]}: includes {path}, which includes it: give each file once")
        for where, text in _logical(_text(path, advice), path):
            if (found := INCLUDE.fullmatch(text)) is not None:
                inner = path.parent / found["path"].replace("%c", self.cluster_name.lower())
                yield from self.lines(inner, f"{where} includes it", (*outer, path.resolve()))
            elif text.strip():
                line = Line(where, pairs(text, where))
                self._remember(line)
                yield line

    def _remember(self, line: Line) -> None:
        for entry in line.entries:
            if entry.key.lower() == "clustername":
                self.cluster_name = entry.value


def _text(path: Path, advice: str) -> str:
    try:
        # Old comments may be in any encoding; what matters is ASCII.
        return read_text(path, errors="replace")
    except OSError as error:
        raise InvalidCluster(f"{path}: {error.strerror}; {advice}") from None


def _logical(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Each logical line with its place; a backslash at the end joins the next line, without a blank between."""
    begun, begun_at = "", 0
    for number, physical in enumerate(text.split("\n"), start=1):
        stripped = COMMENT.sub("", physical).replace("\\#", "#").rstrip()
        begun_at = begun_at or number
        if stripped.endswith("\\"):
            begun += stripped[:-1]
            continue
        yield f"{path}:{begun_at}", begun + stripped
        begun, begun_at = "", 0
    if begun.strip():
        yield f"{path}:{begun_at}", begun


def pairs(text: str, where: str) -> tuple[Entry, ...]:
    """``Key=value Key="two words"`` as entries. Raises InvalidCluster at what is no pair."""
    entries = []
    position = 0
    while text[position:].strip():
        if (found := PAIR.match(text, position)) is None or found.end() == position:
            raise InvalidCluster(f'{where}: found {text[position:].strip()!r}; give Key=value, or Key="two words"')
        value = found["quoted"] if found["quoted"] is not None else found["plain"] or ""
        entries.append(Entry(found["key"], value, where))
        position = found.end()
    return tuple(entries)
