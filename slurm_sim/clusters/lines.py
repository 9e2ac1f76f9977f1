"""The lines of a slurm.conf: comments, continuation, quotes and included files (`slurm.conf(5)`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_sim.clusters.notes import Entry
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import read_text

PAIR = re.compile(
    r"""\s*(?P<key>[A-Za-z0-9_.]+)\s*[-*+/]?=\s*       # Key =; slurmctld takes Key+= for the same here
    (?: "(?P<quoted>[^"]*)" | (?P<plain>\S+) )(?=\s|$)  # a quoted value, or one without blanks, also after blanks
    """,
    re.VERBOSE,
)
INCLUDE = re.compile(r"include\s+(?P<path>\S+)\s*", re.IGNORECASE)
BEFORE_COMMENT = re.compile(r"(?:[^#\\]|\\.|\\$)*", re.DOTALL)
CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")
"""An odd number of backslashes at the end, also before blanks."""
SEVERAL = frozenset({"nodename", "partitionname", "downnodes", "nodeset", "frontendname"})
"""Parameters that others may follow on the same line."""


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
        place = Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a loop of links
        if place in outer:
            raise InvalidCluster(
                f"{outer[-1]}: includes {path}, which includes it: give each file once"
            )
        for where, text in _logical(_text(path, advice), path):
            if (found := INCLUDE.fullmatch(text)) is not None:
                inner = path.parent / found["path"].replace("%c", self.cluster_name.lower())
                yield from self.lines(inner, f"{where} includes it", (*outer, place))
            elif text.strip():
                line = Line(where, pairs(text, where))
                _check_alone(line)
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


def _check_alone(line: Line) -> None:
    """A parameter of the whole cluster has a line of its own; slurmctld takes no second one."""
    if len(line.entries) > 1 and line.kind not in SEVERAL:
        first, second = line.entries[:2]
        raise InvalidCluster(
            f"{line.where}: {second.key}={second.value} stands behind {first.key}; give it a line"
            " of its own"
        )


def _logical(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Each logical line with its place; a backslash at the end joins the next line, without a blank
    between.
    """
    begun, begun_at = "", 0
    for number, physical in enumerate(text.split("\n"), start=1):
        before = BEFORE_COMMENT.match(physical)
        kept = before[0] if before else ""
        begun_at = begun_at or number
        if (found := CONTINUED.search(kept)) is not None:
            begun += kept[: found.end(1)]
            continue
        yield f"{path}:{begun_at}", _without_escapes(begun + kept)
        begun, begun_at = "", 0
    if begun.strip():
        yield f"{path}:{begun_at}", _without_escapes(begun)


def _without_escapes(text: str) -> str:
    return re.sub(r"\\(.?)", r"\1", text, flags=re.DOTALL)


def pairs(text: str, where: str) -> tuple[Entry, ...]:
    """``Key=value Key="two words"`` as entries. A line that has something else in it is one unknown key;
    of a line of nodes or partitions that raises InvalidCluster.
    """
    entries = []
    position = 0
    while text[position:].strip():
        if (found := PAIR.match(text, position)) is None:
            if text.partition("=")[0].strip().lower() not in SEVERAL:
                return (Entry(text.strip()[:60], "", where),)
            raise InvalidCluster(
                f'{where}: found {text[position:].strip()!r}; give Key=value, or Key="two words"'
            )
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        entries.append(Entry(found["key"], value, where))
        position = found.end()
    return tuple(entries)
