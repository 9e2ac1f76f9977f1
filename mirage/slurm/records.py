"""A site's job history out of `sacct`, as `mirage trace import --sacct` reads it."""

from __future__ import annotations

from pathlib import Path

from mirage.errors import AccountingUnavailable, ClusterUnavailable, MirageError, Refused
from mirage.slurm import argv, failures
from mirage.slurm.runner import Runner
from slurm_sim.files import replacing

SLICE_S = 7 * 86_400
"""A year in one answer would be more than slurmdbd gives (MaxQueryTimeRange) and memory holds."""


def write_history(runner: Runner, start_s: int, end_s: int, path: Path) -> int:
    """Writes the records of [start_s, end_s] into a file; returns how many. Raises ClusterError,
    MirageError.
    """
    seen: set[str] = set()
    try:
        with replacing(path) as fresh, fresh.open("w", encoding="utf-8") as file:
            file.write("|".join(argv.HISTORY_FIELDS) + "\n")
            for begin_s in range(start_s, end_s, SLICE_S):
                for line in _slice(runner, begin_s, min(begin_s + SLICE_S, end_s)):
                    if (
                        key := _key(line)
                    ) not in seen:  # whoever lives at a slice's edge is in both
                        seen.add(key)
                        file.write(line + "\n")
    except OSError as error:
        raise MirageError(f"{path}: can't be written ({error.strerror}).") from error
    return len(seen)


def _slice(runner: Runner, start_s: int, end_s: int) -> list[str]:
    command = argv.history(start_s, end_s)
    try:
        result = runner.run(command)
        if result.returncode:
            raise failures.read_failure(command, result.stderr)
    except (ClusterUnavailable, Refused) as error:
        raise AccountingUnavailable(
            f"{error} Without accounting there is no history to learn from."
        ) from error
    return [line for line in result.stdout.split("\n") if line]


def _key(line: str) -> str:
    """A job, and which of its submissions: a requeued one has several."""
    job_id, submit, _ = line.split("|", 2) if line.count("|") > 1 else (line, "", "")
    return f"{job_id}|{submit}"
