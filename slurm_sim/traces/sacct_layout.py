"""What the columns of `sacct -P` may hold, and where the fields of a record lie in its text.

`sacct(1)` escapes nothing: a job's name, comment or command line may hold delimiters and line ends.
So a record's pieces, those between delimiters, are more than its columns. Columns of a fixed form
(times, numbers, states) say which pieces belong together. Sources: `sacct(1)`, Job Accounting
Fields; `sacct -e`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from slurm_sim.traces.errors import Wrong
from slurm_sim.traces.fields import STATES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FREE = _words("""
    AdminComment Comment Constraints Container Extra JobName Licenses McsLabel Reason
    StdErr StdIn StdOut SubmitLine SystemComment WCKey WorkDir
    """)
"""Text that a user or an administrator chooses. A column that this version does not know counts as
one of them.
"""
_NAMES = _words("""
    Account AllocGRES Cluster Dependency Group NodeList Partition QOS QOSREQ ReqGRES Reservation User
    """)
"""Names that Slurm checks. They may hold anything, but neither delimiters nor line ends."""
_TIMES = _words("Eligible End Start Submit")
_DURATIONS = _words("""
    AveCPU CPUTime Elapsed MinCPU Planned PlannedCPU Reserved ResvCPU Suspended SystemCPU Timelimit
    TotalCPU UserCPU
    """)
_COUNTS = _words("""
    AllocCPUS AllocNodes AssocID CPUTimeRAW ElapsedRaw GID NCPUS NNodes NTasks PlannedCPURAW Priority
    QOSRAW ReqCPUS ReqNodes ReservationId Restarts ResvCPURAW TimelimitRaw UID WCKeyID
    """)
_LISTS = _words("""
    AllocTRES ReqTRES TRESUsageInAve TRESUsageInMax TRESUsageInMin TRESUsageInTot TRESUsageOutAve
    TRESUsageOutMax TRESUsageOutMin TRESUsageOutTot
    """)
_MORE = _words("""
    AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID ConsumedEnergy
    ConsumedEnergyRaw DBIndex FailedNode Flags JobComment Layout MaxDiskRead MaxDiskReadNode
    MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask
    MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask MinCPUNode MinCPUTask ReqCPUFreq
    ReqCPUFreqGov ReqCPUFreqMax ReqCPUFreqMin SegmentSize SLUID TRESUsageInMaxNode TRESUsageInMaxTask
    TRESUsageInMinNode TRESUsageInMinTask TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMinNode
    TRESUsageOutMinTask
    """)
READ = (
    "JobID",
    "JobIDRaw",
    "User",
    "Partition",
    "Account",
    "QOS",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "Timelimit",
    "TimelimitRaw",
    "AllocNodes",
    "NNodes",
    "ReqNodes",
    "AllocCPUS",
    "NCPUS",
    "ReqCPUS",
    "AllocTRES",
    "ReqTRES",
    "AllocGRES",
    "ReqGRES",
    "ReqMem",
    "State",
    "ExitCode",
    "Priority",
    "Dependency",
)
"""The columns that an import reads."""
IDS = ("JobID", "JobIDRaw")
NEEDED = ("Submit", "Start", "End", "State")
NODES = ("AllocNodes", "NNodes", "ReqNodes", "AllocTRES", "ReqTRES")
KNOWN = frozenset().union(
    FREE,
    _NAMES,
    _TIMES,
    _DURATIONS,
    _COUNTS,
    _LISTS,
    _MORE,
    IDS,
    ("State", "ExitCode", "DerivedExitCode", "ReqMem"),
)
_LONGEST_FIRST = sorted(KNOWN, key=len, reverse=True)

_ANY, _ONE_LINE = r".*", r"[^\n\r]*"
_NOTHING = r"Unknown|None|NONE|none|N/A|Invalid|INVALID|\(null\)|UNLIMITED|Partition_Limit"
_ISO = (
    r"(?:19[7-9]|20\d|21\d)\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_WHOLE = rf"{_NOTHING}|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d"
"""Values that nothing can be missing from: words, and times to the second."""
JOB_ID = r"\d{1,19}(?:_(?:\d{1,10}|\[[\d,\-:%.]+\]?))?(?:\+\d{1,5})?(?:\.\w+(?:\+\d{1,5})?)?"
_FORMS: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset(IDS), JOB_ID, "a job id like 5, 5_3, 5_[2-7%1], 5+1 or 5.batch"),
    (
        _TIMES,
        rf"(?:{_NOTHING}|\d{{1,10}}|{_ISO})?",
        "a time like 2023-01-31T12:00:00, Unix seconds or Unknown",
    ),
    (
        _DURATIONS,
        rf"(?:{_NOTHING}|(?:\d{{1,9}}-)?\d{{1,12}}(?::\d{{1,9}}){{0,2}}(?:\.\d{{1,9}})?)?",
        "a time limit like 2-00:00:00, 30:00, 90 or UNLIMITED",
    ),
    (_COUNTS, rf"(?:{_NOTHING}|\d{{1,15}}(?:\.\d{{1,9}})?[KMGT]?)?", "a whole number"),
    (
        frozenset({"State"}),
        r"[A-Z_]{1,32}\+?(?: by [^\s]*)?",
        "a state like COMPLETED or CANCELLED by 1000",
    ),
    (
        frozenset({"ExitCode", "DerivedExitCode"}),
        r"(?:\d{1,10}:\d{1,10})?",
        "an exit code like 0:0",
    ),
    (
        frozenset({"ReqMem"}),
        rf"(?:{_NOTHING}|\d{{1,15}}(?:\.\d{{1,9}})?[KMGTP]?[nc]?)?",
        "memory like 64G or 4Gn",
    ),
    (
        _LISTS,
        r"(?:[^=,\s]+=[^=,\s]*(?:,[^=,\s]+=[^=,\s]*)*)?",
        "a list like cpu=4,mem=64G,gres/gpu=2",
    ),
)
_PARTS = {
    **dict.fromkeys(IDS, r"[\d_\[\]\-:%.+]+(?:\.\w+(?:\+\d+)?)?"),
    **dict.fromkeys(_LISTS, r"(?:[^=,\s]+=[^=,\s]*)?"),
    **dict.fromkeys(
        (
            *("Partition", "NodeList", "Reservation", "Flags", "Dependency", "QOSREQ"),
            *("AllocGRES", "ReqGRES"),
        ),
        r"[^\n\r]*",
    ),
}
"""Columns that hold commas, and what stands between two of them: for the delimiter ","."""
_IN_VALUES = frozenset(":-+._=[]%/ \"'()\\")
CSV_GLUE = "\x1f"
"""Between the fields of a line that is quoted as CSV, once it is taken apart."""
MOST_CHARS = 131_072
"""Of one record: `sbatch`'s command line has 64 KiB in Slurm's database, other texts at most as
much together.
"""
Values = tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A header: its columns, and what is between them. `Record` finds them in text, `exact` takes
    the easy case.
    """

    names: tuple[str, ...]
    delimiter: str
    trailing: bool = False
    """Whether lines end with a delimiter (`sacct -p`)."""
    quoted: bool = False
    """Whether fields are quoted as in CSV. `sacct` never does that; tables and scripts do."""

    @cached_property
    def glue(self) -> str:
        return CSV_GLUE if self.quoted else self.delimiter

    @cached_property
    def lacks(self) -> str:
        """A column that an import needs and that the header does not have; empty: none."""
        needed = next((name for name in NEEDED if name not in self.names), "")
        return needed or ("" if set(NODES) & set(self.names) else NODES[0])

    @cached_property
    def width(self) -> int:
        return len(self.names) + self.trailing

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The columns that an import reads, each once."""
        return tuple(name for name in READ if name in self.names)

    @cached_property
    def places(self) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in self.read)

    @cached_property
    def many(self) -> int:
        """Bit i: column i may take several pieces."""
        return sum(1 << at for at, name in enumerate(self.names) if self._is_many(name))

    @cached_property
    def free(self) -> int:
        """Bit i: column i may hold a line's end."""
        return sum(1 << at for at, name in enumerate(self.names) if is_free(name))

    @cached_property
    def ends_freely(self) -> bool:
        """Whether lines after a complete record may be the rest of its last text."""
        return is_free(self.names[-1]) and not self.trailing

    def _is_many(self, name: str) -> bool:
        return is_free(name) or (self.delimiter == "," and name in _PARTS)

    @cached_property
    def forms(self) -> tuple[Callable[[str], object] | None, ...]:
        """For each column what one piece of it must match; None: anything."""
        return tuple(self._form(name) for name in self.names) + (
            (_is_empty,) if self.trailing else ()
        )

    def _form(self, name: str) -> Callable[[str], object] | None:
        if is_free(name):
            return None
        if self._is_many(name):
            return re.compile(_PARTS[name]).fullmatch
        return re.compile(form_of(name)[0]).fullmatch

    @cached_property
    def _pattern(self) -> Callable[[str], object]:
        glue = re.escape(self.glue)
        hole = rf"[^{glue}]*" if len(self.glue) == 1 else rf"(?:(?!{glue}).)*"
        forms = [
            hole if form_of(name)[0] in (_ANY, _ONE_LINE) else form_of(name)[0]
            for name in self.names
        ]
        return re.compile(glue.join(forms) + glue * self.trailing, re.DOTALL).fullmatch

    def is_exact(self, text: str) -> bool:
        """Whether a line has just as many fields as there are columns, each of its form.

        Each column takes at least one piece, so there is no other reading of such a line.
        """
        return text.count(self.glue) == self.width - 1 and self._pattern(text) is not None

    def is_ended(self, text: str) -> bool:
        """Whether an exact line that may be cut off has its last value for sure, or needs it not."""
        last = self.names[-1]
        if self.trailing or last not in READ:
            return True
        value = self.split(text)[-1]
        if last == "State":  # "CANCELLED by 10" means the same as "CANCELLED by 1000"
            return value.partition(" ")[0] in STATES
        return re.fullmatch(_WHOLE, value) is not None

    def begins_with_id(self, text: str) -> bool:
        """Whether a line begins as records do: with a job's id and a delimiter."""
        first, glue, _rest = text.partition(self.glue)
        return bool(glue) and self.names[0] in IDS and re.fullmatch(JOB_ID, first) is not None

    def split(self, text: str) -> list[str]:
        return text.split(self.glue)

    def values(self, pieces: Sequence[str]) -> Values:
        """What an import reads, of a line that is `exact`."""
        return tuple([pieces[at] for at in self.places])

    def wrong(self, text: str) -> Wrong:
        """What is wrong with a line that is not exact."""
        if misfits := self.misfits(text):
            return misfits[0]
        pieces = self.split(text)
        return Wrong("line", f"{len(pieces) - self.trailing} fields", f"{len(self.names)} fields")

    def misfits(self, text: str) -> list[Wrong]:
        """Fields that are not of their column's form, in a line that has as many as there are
        columns; else none.
        """
        pieces = self.split(text)
        if len(pieces) != self.width:
            return []
        found = (
            (name, piece, *form_of(name)) for name, piece in zip(self.names, pieces, strict=False)
        )
        return [
            Wrong(name, piece, expected)
            for name, piece, pattern, expected in found
            if not re.fullmatch(pattern, piece, re.DOTALL)
        ]


def is_free(name: str) -> bool:
    return name in FREE or name not in KNOWN


def form_of(name: str) -> tuple[str, str]:
    """The pattern of a column's values, and its description."""
    for names, pattern, expected in _FORMS:
        if name in names:
            return pattern, expected
    return _ANY if is_free(name) else _ONE_LINE, "text"


def _is_empty(piece: str) -> bool:
    return not piece


# --- headers
# ---------------------------------------------------------------------------------------------------------


def parse_header(line: str) -> Layout | None:
    """The layout that a header line gives; None: it is none."""
    line = line.removeprefix("\ufeff")
    found = _of_usual_delimiter(line) or _of_known_names(line)
    return found if found is not None and set(IDS) & set(found.names) else None


def is_header(line: str) -> bool:
    """Whether a line within a file is a header: a job's id and other names, most of which `sacct`
    has.
    """
    if "JobID" not in line:
        return False
    layout = parse_header(line)
    return (
        layout is not None
        and len(layout.names) > 2
        and 2 * len(KNOWN & set(layout.names)) > len(layout.names)
    )


def _of_usual_delimiter(line: str) -> Layout | None:
    for delimiter in "|\t,;":
        if delimiter in line:
            layout = _cut(line, delimiter)
            if '"' in line:
                names = tuple(next(csv.reader([line], delimiter=delimiter), []))
                layout = Layout(names, delimiter, quoted=True)
            if all(re.fullmatch(r"\w+", name) for name in layout.names):
                return layout
    return None


def _of_known_names(line: str) -> Layout | None:
    """By the name that a header begins with, whatever the delimiter is (`sacct --delimiter`)."""
    for first in _LONGEST_FIRST:
        rest = line.removeprefix(first)
        if rest == line:
            continue
        for length in range(1, min(len(rest), 32) + 1):
            layout = _cut(line, rest[:length])
            if len(layout.names) > 1 and set(layout.names) <= KNOWN:
                return layout
    return None


def _cut(line: str, delimiter: str) -> Layout:
    names = line.split(delimiter)
    trailing = len(names) > 1 and not names[-1]
    return Layout(tuple(names[: len(names) - trailing]), delimiter, trailing)


def bad_delimiter(layout: Layout) -> bool:
    """Whether the delimiter is one that values of a fixed form have in them."""
    return len(layout.delimiter) == 1 and (
        layout.delimiter in _IN_VALUES or layout.delimiter.isalnum()
    )


# --- records
# ---------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """Lines that may be one record, and all ways to lay its pieces out over the columns.

    `starts[i]`, `running[i]`: sets of columns, as bits. Column c is in `starts[i]` if the pieces
    before i fill just the columns before c; it is in `running[i]` if it takes several pieces and
    may have piece i as one of them.
    """

    layout: Layout
    number: int
    """The first line's number."""
    banned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Values that a column is known not to have."""
    loose: frozenset[str] = frozenset()
    """Columns that count as free text, too."""
    lines: list[str] = field(default_factory=list)
    chars: int = 0
    pieces: list[str] = field(default_factory=lambda: [""])
    starts: list[int] = field(default_factory=lambda: [1])
    running: list[int] = field(default_factory=lambda: [0])
    """One before the first piece, then one for each piece but the last, which may go on in the next
    line.
    """

    def __post_init__(self) -> None:
        places = {name: at for at, name in enumerate(self.layout.names)}
        more = sum(1 << places[name] for name in self.loose if name in places)
        self._many = self.layout.many | more
        self._free = self.layout.free | more
        forms: list[Callable[[str], object] | None] = list(self.layout.forms)
        for name in self.loose & places.keys():
            forms[places[name]] = None
        self._forms = forms
        self._banned = {
            places[name]: values for name, values in self.banned.items() if name in places
        }

    def add(self, line: str) -> None:
        """One line more."""
        first, *rest = self.layout.split(line)
        self.pieces[-1] = f"{self.pieces[-1]}\n{first}" if self.lines else first
        self.lines.append(line)
        self.chars += len(line) + 1
        for piece in rest:
            running, after = self._step(len(self.pieces) - 1)
            self.running.append(running)
            self.starts.append(after)
            self.pieces.append(piece)

    def _step(self, at: int) -> tuple[int, int]:
        """The columns that may have piece `at` as one of several, and those that may start after
        it.
        """
        piece, starts = self.pieces[at], self.starts[at]
        running = self._fitting((self.running[at] | starts) & self._many, piece)
        return running, (self._fitting(starts & ~self._many, piece) | running) << 1

    def _fitting(self, columns: int, piece: str) -> int:
        """Those of the columns that may hold this piece."""
        result = 0
        while columns:
            bit = columns & -columns
            columns ^= bit
            at = bit.bit_length() - 1
            if at < len(self._forms):
                form = self._forms[at]
                if (form is None or form(piece)) and piece not in self._banned.get(at, ()):
                    result |= bit
        return result

    def end_last_column(self) -> None:
        """From here on only other readings count than that the last column's text goes on."""
        last = 1 << len(self.layout.names) - 1
        self.starts[-1] &= ~last
        self.running[-1] &= ~last

    @property
    def is_whole(self) -> bool:
        """Whether the lines are a record, in at least one way."""
        return bool(self._step(len(self.pieces) - 1)[1] >> self.layout.width & 1)

    @property
    def is_open(self) -> bool:
        """Whether a record may begin like this and go on in the next line, within a free text."""
        return bool((self.running[-1] | self.starts[-1]) & self._free) and self.chars < MOST_CHARS

    def values(self) -> Values | None:
        """What an import reads, if all ways to read the record agree on it; None: there is no way,
        or they do not.
        """
        alive = self._alive()
        if not alive[0] & self.starts[0]:
            return None
        both = [start & live for start, live in zip(self.starts, alive, strict=True)]
        found = [self._value(column, both) for column in self.layout.places]
        return None if None in found else tuple(text for text in found if text is not None)

    def possible(self, name: str) -> set[str]:
        """What a column of one piece may hold, over all ways to read the record."""
        column, alive = self.layout.names.index(name), self._alive()
        both = (start & live for start, live in zip(self.starts, alive, strict=True))
        return {
            piece for piece, columns in zip(self.pieces, both, strict=True) if columns >> column & 1
        }

    def _alive(self) -> list[int]:
        """For each piece the columns that, started there, leave the rest of the record in order."""
        count = len(self.pieces)
        alive = [0] * count
        after, tail = 1 << self.layout.width, 0
        for at in range(count - 1, -1, -1):
            piece = self.pieces[at]
            tail = self._fitting((tail | after >> 1) & self._many, piece)
            single = self._fitting(after >> 1 & ~self._many & self.starts[at], piece)
            after = single | tail
            alive[at] = after
        return alive

    def _value(self, column: int, both: list[int]) -> str | None:
        """A column's text; None: it may begin or end in several places."""
        begins = [at for at, columns in enumerate(both) if columns >> column & 1]
        if not self._many >> column & 1:
            texts = {self.pieces[at] for at in begins}
            return texts.pop() if len(texts) == 1 else None
        ends = [at for at, columns in enumerate(both) if columns >> column + 1 & 1] or [len(both)]
        if len(begins) != 1 or len(ends) != 1:
            return None
        return self.layout.glue.join(self.pieces[begins[0] : ends[0]])


def unquoted(lines: list[str], delimiter: str) -> str | None:
    """A CSV record of these lines with `CSV_GLUE` between its fields; None: it is not whole, or no
    CSV.
    """
    try:
        return CSV_GLUE.join(
            next(csv.reader(["\n".join(lines)], delimiter=delimiter, strict=True), [])
        )
    except csv.Error:
        return None
