"""What the doctor says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """In order; the worst one gives the exit code."""

    OK = 0
    NOTE = 1
    """Good to know; nothing to do."""
    WARNING = 2
    """Works in part, or worse than it could."""
    ERROR = 3
    """Does not work."""


EXIT_CODES = {Severity.OK: 0, Severity.NOTE: 0, Severity.WARNING: 3, Severity.ERROR: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One sentence each: what was found, why it matters, what to do; the last two may be empty if
    all is well.
    """

    check: str
    severity: Severity
    what: str
    why: str = ""
    do: str = ""


def ok(check: str, what: str) -> Diagnosis:
    return Diagnosis(check=check, severity=Severity.OK, what=what)


def note(check: str, what: str, why: str, do: str = "Nothing has to be done.") -> Diagnosis:
    return Diagnosis(check=check, severity=Severity.NOTE, what=what, why=why, do=do)


def warning(check: str, what: str, why: str, do: str) -> Diagnosis:
    return Diagnosis(check=check, severity=Severity.WARNING, what=what, why=why, do=do)


def error(check: str, what: str, why: str, do: str) -> Diagnosis:
    return Diagnosis(check=check, severity=Severity.ERROR, what=what, why=why, do=do)


def worst(findings: Iterable[Diagnosis]) -> Severity:
    return max((finding.severity for finding in findings), default=Severity.OK)
