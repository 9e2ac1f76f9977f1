"""What a failed Slurm command means. Pure. Slurm reports failures in words; exit codes differ
between commands.

The words are those of 22.05 to 26.05 (`slurm_errno.c`) and of the C library.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirage.errors import ClusterError, ClusterUnavailable, Refused

# The daemons or the way to them failed. "Unexpected message received" is all that scontrol update
# says when slurmctld is not there.
_NO_ANSWER = (
    "Unable to contact slurm",
    "Unexpected message received",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Broken pipe",
    "No route to host",
    "Network is unreachable",
    "Resource temporarily unavailable",
    "Temporary failure in name resolution",
    "Message send failure",
    "Message receive failure",
    "Insane message length",
    "Transport endpoint is not connected",
    "in standby mode",
    "failed to fetch config",
    "Unable to connect to database",
    "Protocol authentication error",
    "Munge encode failed",
    "Munge decode failed",
)
_DENIED = (
    "Invalid user id",
    "Access/permission denied",
    "Operation not permitted",
    "operation not permitted",
)
_STARTED = "Job is no longer pending execution"
_UNKNOWN_JOB = "Invalid job id specified"
MAX_SHOWN = 500
"""Characters of what a command said."""
_OVER = (_UNKNOWN_JOB, "Job/step already completing or completed", "Job has already finished")


def advice(command: str) -> str:
    """What to do when a command got no answer."""
    if command == "sbatch":
        return (
            "The job may have been queued all the same: look with `squeue --me` before you submit"
            " it again."
        )
    daemon = "slurmdbd up" if command in ("sacct", "sacctmgr") else "slurmctld up (`scontrol ping`)"
    return f"Retry later; is {daemon}?"


def is_transient(stderr: str) -> bool:
    """Whether a retry may help."""
    return any(words in stderr for words in _NO_ANSWER)


def is_unknown_job(stderr: str) -> bool:
    return _UNKNOWN_JOB in stderr


def is_started(stderr: str) -> bool:
    """Slurm's answer to dropping the dependency of a job that has started."""
    return _STARTED in stderr


def not_cancelled(stderr: str) -> str:
    """The lines of scancel's answer that are not about jobs that are over already."""
    return "\n".join(
        line for line in stderr.splitlines() if not any(words in line for words in _OVER)
    )


def read_failure(argv: Sequence[str], stderr: str) -> ClusterError:
    """The error of a query that exited non-zero."""
    if any(words in stderr for words in _DENIED):
        return Refused(_said_by(argv, stderr))
    hint = f" {advice(argv[0])}" if is_transient(stderr) or not stderr.strip() else ""
    return ClusterUnavailable(f"{argv[0]} failed: {_shown(stderr)}.{hint}")


def write_failure(argv: Sequence[str], stderr: str) -> ClusterError:
    """The error of a request to change something that exited non-zero."""
    if is_transient(stderr) or not stderr.strip():
        return ClusterUnavailable(f"{argv[0]} failed: {_shown(stderr)}. {advice(argv[0])}")
    return Refused(_said_by(argv, stderr))


def _said_by(argv: Sequence[str], stderr: str) -> str:
    """What a command said. Most of Slurm's put their own name in front."""
    said = _shown(stderr)
    return said if said.startswith(f"{argv[0]}: ") else f"{argv[0]}: {said}"


def _shown(stderr: str) -> str:
    """In one line, without control characters, which a terminal would obey."""
    words = " ".join(stderr[:MAX_SHOWN].split())
    shown = "".join(each if each.isprintable() else "?" for each in words)
    return f"{shown}{'...' if len(stderr) > MAX_SHOWN else ''}" or "it said nothing"
