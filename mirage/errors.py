"""Errors. The class's docstring is its default message; each says what, where and what to do, and
whether to retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain import Job, Oddity


class MirageError(Exception):
    """Mirage failed."""

    exit_code = 1
    """What a command exits with: 1 failed at run time, 2 wrong usage or input."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__ or "Mirage failed.")


def system_says(error: OSError, where: object = "") -> str:
    """`FILE: what the system says`. ``where``: the file, if the error names none (a full disk names
    none).
    """
    name = error.filename if error.filename is not None else where
    words = error.strerror or str(error) or type(error).__name__
    return f"{name}: {words}" if name != "" else words


class InputError(MirageError):
    """The input is wrong. Correct it; a retry does not help."""

    exit_code = 2


class ClusterError(MirageError):
    """Slurm could not be asked, or answered nonsense. Nothing was done."""


class ClusterUnavailable(ClusterError):
    """Slurm does not answer (slurmctld down, restarting, or too slow). Nothing was done; retry
    later.
    """


class ClusterNonsense(ClusterError):
    """A Slurm command printed something that is not its documented output. Nothing was done; retry
    later.
    """


class Unreadable(ClusterNonsense):
    """A job that was asked for is there, but can't be read. Nothing was done."""

    def __init__(self, oddities: Sequence[Oddity], jobs: Mapping[int, Job]) -> None:
        """``oddities``: of the jobs that can't be read; ``jobs``: those that can."""
        super().__init__(
            f"{oddities[0]}. Nothing was done; its owner can change it or cancel the job."
        )
        self.oddities = tuple(oddities)
        self.jobs = dict(jobs)


class Refused(ClusterError):
    """Slurm refused. Its own words follow; a retry does not help."""


class AccountingUnavailable(ClusterError):
    """The accounting records (sacct, slurmdbd) can't be read; the queue still can."""


class AuditError(MirageError):
    """The audit log can't be written. Nothing is acted on that is not written down first; retried
    each cycle.
    """


class StoreError(MirageError):
    """The store can't be read or written. Nothing was done; retry later."""


class StoreInUse(StoreError):
    """Another daemon or agent runs on this store."""
