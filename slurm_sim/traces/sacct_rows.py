"""The records of `sacct -P`, one after the other, as they lie in a file: whole, joined from several
lines, or left out.

A record that is complete ends: what `sacct` prints of a job begins in a new line. Lines that begin
no record belong to the one before. Where two readings differ in a column that an import reads, the
record is left out and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from slurm_sim.traces.errors import TraceError, Wrong
from slurm_sim.traces.left_out import UNENDED, SkippedRecords
from slurm_sim.traces.reading import Row
from slurm_sim.traces.sacct_layout import (
    MOST_CHARS,
    NEEDED,
    NODES,
    Layout,
    Record,
    Values,
    bad_delimiter,
    is_header,
    parse_header,
    unquoted,
)

SEARCHED = 20
"""Lines in which the header is looked for: a shell's prompt or a warning may stand before it."""
PROBED = 200
"""Lines that show whether fields are quoted."""
MOST_LINES = 2_000
"""Of one record."""
MOST_MISFITS = 2
"""Of a line with the right number of fields: it is a record with bad values, not the beginning of a
longer one.
"""
QUOTED = (",", ";", "\t")
"""Delimiters of tables whose fields may be quoted."""
MOST_QUOTED = 100
"""Of one record whose fields are quoted."""
MOST_SUFFIXES = 20
"""Lines of a joined record, from its end, that are tried as the beginning of another one; and ends
tried after it.
"""
MOST_KEPT = 100_000
"""Records kept for the end of the file, where the names of users and partitions are known."""
NAMES = ("User", "Partition", "Account")
_OTHERS = {"User": ("Partition",), "Account": ("Partition",), "Partition": ("User", "Account")}
"""A text known as one of these, and never as what the column has, is none of the column's."""
SEVERAL = Wrong(
    "record", "", "one way to read it; a text with delimiters or line ends in it leaves several"
)
CUT = Wrong("record", "", "a whole one; this is cut off or too long")
RIVALS = Wrong("record", "", "one header that fits; two of the file's headers do")
REPEATED = "header lines within the file, left out"
Banned = dict[str, frozenset[str]]
Found = tuple[Layout, int, Values]


@dataclass
class Rows:
    """Reads a file's records; `left_out` and `notes` say what else it had, once all are read."""

    file: str
    left_out: SkippedRecords = field(default_factory=SkippedRecords)
    notes: dict[str, int] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in NAMES})
    """Users, partitions and accounts of lines that have one reading; whoever takes the rows adds
    them.
    """
    unended: int = 0
    """The number of a last line without a line end, once that line is read; 0: none."""
    _layouts: list[Layout] = field(default_factory=list)
    _proven: set[Layout] = field(default_factory=set)
    """Headers without what is needed that have had an exact record: they are no lines of a text."""
    _held: _Held | None = None
    """The last record: lines that begin none may still belong to it."""
    _begun: Record | None = None
    """A record that goes on in the next line."""
    _rubbish_at: int = -1
    """The last line that belongs to no record."""
    _kept: list[_Held] = field(default_factory=list)

    def saw_unended(self, number: int) -> None:
        """Takes down the number of a last line without a line end."""
        self.unended = number

    def read(self, lines: Iterator[Row]) -> Iterator[Found]:
        """Raises TraceError for a file without a header that has what is needed."""
        layout, lines = self._header(lines)
        self._layouts = [layout]
        lines = self._ended(lines)
        if layout.quoted:
            yield from self._quoted(layout, lines)
            return
        for number, [line] in lines:
            layout = self._layouts[-1]
            if self._begun is None and layout.is_exact(line):
                if (held := self._held) is not None:
                    if held.is_exact and len(self._layouts) == 1:
                        yield (
                            held.layout,
                            held.number,
                            held.layout.values(held.layout.split(held.lines[0])),
                        )
                    else:
                        yield from self._done(held)
                self._held = _Held(layout, number, [line], is_exact=True)
            else:
                yield from self._other(layout, number, line)
        yield from self._close()

    def _note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1

    # --- headers

    def _header(self, lines: Iterator[Row]) -> tuple[Layout, Iterator[Row]]:
        begin = list(islice(lines, SEARCHED))
        if not begin:
            raise TraceError(self.file, "a header line like JobID|User|...", found="an empty file")
        for at, (number, [line]) in enumerate(begin):
            layout = parse_header(line)
            if layout is not None:
                self._check_header(layout, number, line)
                more = list(islice(lines, PROBED))
                rest = begin[at + 1 :] + more
                return self._as_quoted(layout, rest), chain(rest, lines)
        number, [line] = begin[0]
        expected = "a header with JobID, as `sacct -P` prints it (without -n)"
        if any(set(text) <= {"-", " "} for _number, [text] in begin[:3]):
            expected += "; this is a table of fixed width, which cuts names short: use `sacct -P`"
        raise TraceError(self.file, expected, found=line, line=number, field="header")

    def _check_header(self, layout: Layout, number: int, line: str) -> None:
        for name in NEEDED:
            if name not in layout.names:
                raise TraceError(
                    self.file, f"a column {name}", found=line, line=number, field="header"
                )
        if not set(NODES) & set(layout.names):
            expected = f"a column with the job's nodes: one of {', '.join(NODES)}"
            raise TraceError(self.file, expected, found=line, line=number, field="header")
        if bad_delimiter(layout):
            expected = "a delimiter that times and numbers do not have in them, like | (`sacct -P`)"
            raise TraceError(
                self.file, expected, found=layout.delimiter, line=number, field="header"
            )

    def _as_quoted(self, layout: Layout, rows: list[Row]) -> Layout:
        """The layout of fields in quotes, if more of these lines are whole with it."""
        lines = [line for _number, [line] in rows]
        if layout.delimiter not in QUOTED or not any('"' in line for line in lines):
            return layout
        quoted = Layout(layout.names, layout.delimiter, quoted=True)
        texts = [unquoted([line], layout.delimiter) for line in lines]
        taken = sum(text is not None and quoted.is_exact(text) for text in texts)
        return quoted if taken > sum(map(layout.is_exact, lines)) else layout

    def _ended(self, lines: Iterator[Row]) -> Iterator[Row]:
        """Without a last line that may be cut off within its last value."""
        for number, [line] in lines:
            if number == self.unended:
                layout = self._layouts[-1]
                text = unquoted([line], layout.delimiter) if layout.quoted else line
                if text is not None and layout.is_exact(text) and not layout.is_ended(text):
                    self.left_out.add(number, UNENDED)
                    continue
            yield number, [line]

    # --- fields in quotes

    def _quoted(self, layout: Layout, lines: Iterator[Row]) -> Iterator[Found]:
        """A record ends where all quotes are closed."""
        again: deque[Row] = deque()
        while group := self._balanced(again, lines):
            first, texts = group[0][0], [text for _number, [text] in group]
            text = unquoted(texts, layout.delimiter)
            if text is not None and layout.is_exact(text):
                yield layout, first, layout.values(layout.split(text))
            elif text is not None and tuple(layout.split(text)) == layout.names:
                self._note(REPEATED)
            else:
                self.left_out.add(first, layout.wrong(text or texts[0]))
                again.extendleft(reversed(group[1:]))

    def _balanced(self, again: deque[Row], lines: Iterator[Row]) -> list[Row]:
        """The next lines, as many as it takes to close all quotes."""
        group: list[Row] = []
        quotes = 1
        while quotes % 2 and len(group) < MOST_QUOTED:
            row = again.popleft() if again else next(lines, None)
            if row is None:
                break
            quotes = quotes * bool(group) + row[1][0].count('"')
            group.append(row)
        return group

    # --- lines that are not just one record

    def _other(self, layout: Layout, number: int, line: str) -> Iterator[Found]:
        if is_header(line):
            yield from self._close()
            self._take_header(line)
        elif self._begun is not None:
            yield from self._go_on(self._begun, layout, number, line)
        else:
            yield from self._begin(layout, number, line)

    def _take_header(self, line: str) -> None:
        layout = parse_header(line)
        if layout is None:
            return
        if bad_delimiter(layout):
            return
        self._note(REPEATED)
        if layout in self._layouts:
            self._layouts.remove(layout)
        self._layouts.append(layout)

    def _close(self) -> Iterator[Found]:
        """Ends what is held, and gives up what is begun."""
        held, begun = self._held, self._begun
        self._held = self._begun = None
        if begun is not None and (held is None or not held.layout.ends_freely):
            self.left_out.add(begun.number, CUT)
        if held is not None:
            held.follow(begun.lines if begun is not None else [])
            yield from self._done(held)

    def _begin(self, layout: Layout, number: int, line: str) -> Iterator[Found]:
        """A line that is no exact record, while none is open."""
        if len(line) > MOST_CHARS:
            yield from self._close()
            self.left_out.add(number, CUT)
            return
        record = Record(layout, number)
        record.add(line)
        if record.is_whole and (not layout.lacks or layout in self._proven):
            yield from self._close()
            self._held = _Held(layout, number, [line])
            return
        for other in reversed(self._layouts[:-1]):
            if other.is_exact(line):
                yield from self._close()
                self._layouts.remove(other)
                self._layouts.append(other)
                self._held = _Held(other, number, [line], is_exact=True)
                return
        if 0 < len(layout.misfits(line)) <= MOST_MISFITS:
            yield from self._close()
            self.left_out.add(number, layout.wrong(line))
        elif record.is_open:
            self._begun = record
        else:
            self._follow(layout, number, line)

    def _follow(self, layout: Layout, number: int, line: str) -> None:
        """A line that begins nothing: the end of a text of the record before, or rubbish."""
        held = self._held
        if held is not None:
            held.follow([line])
            if held.layout.ends_freely and not layout.begins_with_id(line):
                return
        if number - self._rubbish_at > 1:  # lines in a row are one record's
            self.left_out.add(number, layout.wrong(line))
        self._rubbish_at = number

    def _go_on(self, record: Record, layout: Layout, number: int, line: str) -> Iterator[Found]:
        if record.chars + len(line) <= MOST_CHARS and len(record.lines) < MOST_LINES:
            record.add(line)
            if record.is_whole:
                if (held := self._held) is not None:
                    held.follow(record.lines[:-1])
                    yield from self._done(held)
                self._begun, self._held = None, _Held(layout, record.number, record.lines)
                return
            alone = Record(layout, number)
            alone.add(line)
            if not alone.is_whole and record.is_open:
                return
            record.lines.pop()
        yield from self._close()
        self._rubbish_at = number - 1
        yield from self._begin(layout, number, line)

    # --- what becomes of a record

    def _done(self, held: _Held) -> Iterator[Found]:
        layout = held.layout
        if layout.lacks:
            self._proven.add(layout)
            self.left_out.add(
                held.number, Wrong("header", "", f"a column {layout.lacks} in the header above")
            )
            return
        if self._is_of_two_headers(held):
            self.left_out.add(held.number, RIVALS)
            return
        if held.is_exact:
            yield layout, held.number, layout.values(layout.split(held.lines[0]))
            return
        values = held.values()
        if values is not None and self._is_settled(layout, values):
            yield layout, held.number, values
        elif len(self._kept) < MOST_KEPT:
            self._kept.append(held)
        else:
            self._leave_out(held)

    def _leave_out(self, held: _Held) -> None:
        """Counts it, and each of its lines that would be a record alone: a bad one may have drawn a
        good one in.
        """
        drawn_in = sum(map(held.layout.is_exact, held.lines[1:]))
        self.left_out.drawn_in += drawn_in
        for _ in range(1 + drawn_in):
            self.left_out.add(held.number, SEVERAL)

    def _is_of_two_headers(self, held: _Held) -> bool:
        """Whether another header of the file fits as well, with something else in the columns that
        are read.
        """
        for other in self._layouts:
            if (
                other.names != held.layout.names
                and other.glue == held.layout.glue
                and other.width == held.layout.width
            ):
                if not held.is_exact:
                    return True
                pieces = other.split(held.lines[0])
                ours = dict(zip(held.layout.read, held.layout.values(pieces), strict=True))
                theirs = dict(zip(other.read, other.values(pieces), strict=True))
                if other.is_exact(held.lines[0]) and ours != theirs:
                    return True
        return False

    def _is_settled(self, layout: Layout, values: Values) -> bool:
        """Without an account, which sites without accounting limits do not check, or of a user who
        is known.
        """
        if "Account" not in layout.read or "User" not in layout.read:
            return True
        return values[layout.read.index("User")] in self.names["User"]

    def kept(self) -> Iterator[Found]:
        """Records that were not sure while rows were read, by the names that are known now."""
        doubtful = []
        for held in self._kept:
            values = held.values()
            if values is not None and self._users(held) == {values[held.layout.read.index("User")]}:
                for name in set(NAMES) & set(held.layout.read):
                    self.names[name].add(values[held.layout.read.index(name)])
                yield held.layout, held.number, values
            else:
                doubtful.append(held)
        banned = {name: self._banned(name) for name in NAMES}
        for held in doubtful:
            values = held.values() or held.values(banned)
            if values is None or self._may_be_of_another(held, values):
                self._leave_out(held)
            else:
                yield held.layout, held.number, values

    def _users(self, held: _Held) -> set[str]:
        """Whose job it may be, if its account may be a text with delimiters, too."""
        if "User" not in held.layout.read:
            return set()
        record = Record(held.layout, held.number, loose=frozenset({"Account"}))
        for line in held.lines:
            record.add(line)
        return record.possible("User")

    def _banned(self, name: str) -> frozenset[str]:
        """Texts that are known, but of other columns only."""
        return frozenset().union(*(self.names[other] for other in _OTHERS[name])) - self.names[name]

    def _may_be_of_another(self, held: _Held, values: Values) -> bool:
        """Whether a user who is known would be this job's, were its account a text with delimiters."""
        return not self._is_settled(held.layout, values) and bool(
            self._users(held) & self.names["User"]
        )


@dataclass
class _Held:
    """The lines of a complete record, and those behind it that begin no other one for sure."""

    layout: Layout
    number: int
    lines: list[str]
    after: list[str] = field(default_factory=list)
    is_exact: bool = False
    """Whether it is one line that is exact, and nothing came after it."""

    def follow(self, lines: list[str]) -> None:
        """Takes lines down that come after it."""
        if lines:
            self.is_exact = False
            self.after += lines[: MOST_LINES - len(self.after)]

    def values(self, banned: Banned | None = None) -> Values | None:
        """What all readings agree on; None: they do not.

        Its last lines may be a record of their own, after rubbish. And it may end later than it
        seems, if a text of it looks like the columns behind that text.
        """
        values = _again(self.layout, self.number, self.lines, banned).values()
        for begin in range(max(1, len(self.lines) - MOST_SUFFIXES), len(self.lines)):
            rest = _again(self.layout, self.number, self.lines[begin:], banned)
            if rest.is_whole and rest.values() != values:
                return None
        if self.after:
            longer = _again(self.layout, self.number, self.lines, banned)
            longer.end_last_column()
            compared = 0
            for line in self.after:
                longer.add(line)
                if longer.is_whole:
                    compared += 1
                    if compared > MOST_SUFFIXES or longer.values() != values:
                        return None
                if longer.chars > MOST_CHARS:
                    break
        return values


def _again(layout: Layout, number: int, lines: list[str], banned: Banned | None = None) -> Record:
    result = Record(layout, number, banned=banned or {})
    for line in lines:
        result.add(line)
    return result
