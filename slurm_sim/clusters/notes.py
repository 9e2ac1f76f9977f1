"""What a reader of cluster descriptions found besides the cluster: where something stands, and what
it did not use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from slurm_sim.config import ClusterConfig
from slurm_sim.errors import InvalidCluster


class UnknownValue(InvalidCluster):
    """A word that no release known here has: a typo, or of a newer release."""


class NoteKind(str, Enum):
    """Why a parameter was not used as it stands."""

    UNKNOWN = "unknown"
    """No parameter or value of Slurm that we know."""
    NO_EFFECT = "no effect"
    """Known, and without influence on scheduling as simulated."""
    IGNORED = "ignored"
    """slurmctld ignores it, too, as other parameters are set."""
    NOT_SIMULATED = "not simulated"
    """It would change what a real slurmctld does, and is not simulated, or not in full."""


@dataclass(frozen=True)
class Note:
    """A parameter that did not go into the cluster as it stands."""

    kind: NoteKind
    parameter: str
    value: str
    where: str
    """``file:line``."""
    why: str

    def __str__(self) -> str:
        found = f"{self.parameter}={self.value}" if self.value else self.parameter
        return f"{self.where}: {found}: {self.kind.value}: {self.why}"


@dataclass(frozen=True)
class ClusterDescription:
    """A cluster, and all that its description says and the simulator does not use."""

    cluster: ClusterConfig
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One ``Key=value``, as written, and where."""

    key: str
    value: str
    where: str

    def error(self, expected: str) -> InvalidCluster:
        """For raising: says where it is, what was found and what is expected."""
        return InvalidCluster(f"{self.where}: {self.key}={self.value}: give {expected}")

    def unknown_value(self, expected: str) -> UnknownValue:
        """As `error`, for a word of Slurm's that a newer release may have."""
        return UnknownValue(str(self.error(expected)))

    def note(self, kind: NoteKind, why: str) -> Note:
        # Notes are shown to users: no passwords (AccountingStoragePass, JobCompPass).
        value = "***" if self.key.lower().endswith("pass") else self.value
        return Note(kind, self.key, value, self.where, why)

    def unknown(self) -> Note:
        return self.note(
            NoteKind.UNKNOWN,
            "not a parameter of Slurm 22.05 that is known here; check its spelling, since slurmctld"
            " may refuse the file",
        )

    def no_effect(self, why: str) -> Note:
        return self.note(NoteKind.NO_EFFECT, why)

    def not_simulated(self, why: str) -> Note:
        return self.note(NoteKind.NOT_SIMULATED, why)


Entries = dict[str, Entry]
"""By key in lower case: Slurm's keys are case-insensitive."""

Readers = Mapping[str, Callable[[Entry], object]]
"""By key in lower case: what raises InvalidCluster for a value that it can't read."""


def readable(
    entries: Entries,
    readers: Readers,
    unread: type[InvalidCluster] = UnknownValue,
) -> tuple[Entries, list[Note]]:
    """Without the entries of which their reader says ``unread``, and a note on each: Slurm's default
    counts in their place.

    `InvalidCluster`: of a slurmctld that runs, which has taken every value that it shows.
    """
    kept: Entries = {}
    notes = []
    for name, entry in entries.items():
        try:
            readers.get(name, str)(entry)
        except unread as error:
            expected = str(error).rpartition(": give ")[2]
            why = f"not known here (known: {expected}), so Slurm's default counts"
            notes.append(entry.note(NoteKind.UNKNOWN, why))
        else:
            kept[name] = entry
    return kept, notes
