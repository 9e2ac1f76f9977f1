"""Puts a chain into the queue: makes its folder, runs sbatch as the user, and leaves nothing half-done behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mirage.chain.folder import (
    CANCELLED,
    CHAIN_RECORD,
    JOB_SCRIPT,
    SUBMITTING,
    USER_SCRIPT,
    make_chains_folder,
    mark_over,
)
from mirage.chain.script import ChainSettings, UserScript, build_job_script, link_command
from mirage.errors import ClusterError, ClusterNonsense

# What sbatch prints when the user may not have another job in the queue (slurm_errno.c, job reasons).
_SUBMIT_LIMIT = ("MaxSubmit", "job submit limit")
# The connection was made and then nothing came: slurmctld may have taken the job (slurm_errno.c).
_NO_ANSWER = ("Socket timed out", "Zero Bytes were transmitted", "Unexpected message received", "Connection reset")
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


class SubmissionFailed(ClusterError):
    """sbatch refused the job; its own message is above. No chain was started."""


class SubmissionUnclear(ClusterError):
    """Slurm gave no answer in time, so it may have accepted the job or not."""


class SubmitLimit(SubmissionFailed):
    """The user may not have another job in the queue now."""


def new_chain_id() -> str:
    """Ten letters and digits, 50 random bits; l, o, 0 and 1 are left out since people type it."""
    return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in os.urandom(10))


def submit_chain(
    settings: ChainSettings, script: UserScript, source: Path, environ: Mapping[str, str] = os.environ
) -> list[int]:
    """Submits the first link and its successor (all links with `up_front`), and returns their job ids.

    One id although there are more links: the second one must wait for the user's submit limit, link 1 queues it.
    InputError: the folder of chains is not safe. SubmissionFailed: sbatch said no; nothing is left.
    SubmissionUnclear: no answer; the folder stays, for the job may be in the queue.
    """
    make_chains_folder(environ)
    settings.folder.mkdir(mode=0o700)
    jobs: list[int] = []
    with _undone_on_error(settings.folder, jobs):
        _fill_folder(settings, script, source)
        jobs.append(_sbatch(link_command(settings, 1)))
        _record_job(settings.folder, 1, jobs[0])
        try:
            for segment in range(2, _queued_at_first(settings) + 1):
                _follow(settings, segment, jobs)
        except SubmitLimit:
            if settings.up_front:
                raise
    (settings.folder / SUBMITTING).unlink()
    return jobs


def queue_link(folder: Path, segment: int, predecessor_id: int) -> int:
    """Queues a link from outside the chain's jobs, held while the chain is paused; records and returns its job id.

    The chain's own job script does it, with the options of the first submission and this process's environment.
    SubmissionFailed: sbatch said no. SubmissionUnclear: no answer.
    """
    words = ["sh", str(folder / JOB_SCRIPT), "queue", str(segment), str(predecessor_id)]
    try:
        job_id = _submitted(words)
    except SubmissionUnclear as error:
        raise SubmissionUnclear(
            f"Slurm did not answer, so link {segment} may be queued or not: run the command again, it looks first"
        ) from error
    except SubmissionFailed as error:
        failed = SubmissionFailed(f"link {segment} is not queued: sbatch refused it; its own message is above")
        failed.exit_code = error.exit_code
        raise failed from error
    (folder / f"queued.{segment}").unlink(missing_ok=True)  # of a job that is gone
    if _record_job(folder, segment, job_id):
        return job_id
    _scancel([job_id])  # a link of the chain queued it in this moment
    return int((folder / f"queued.{segment}").read_text())


def _queued_at_first(settings: ChainSettings) -> int:
    return settings.segments if settings.up_front else min(2, settings.segments)


def _follow(settings: ChainSettings, segment: int, jobs: list[int]) -> None:
    job_id = _sbatch(link_command(settings, segment, str(jobs[-1])))
    if _record_job(settings.folder, segment, job_id):
        jobs.append(job_id)
    else:  # it took so long that link 1 stopped waiting for us and queued it itself
        _scancel([job_id])
        jobs.append(int((settings.folder / f"queued.{segment}").read_text()))


@contextmanager
def _undone_on_error(folder: Path, jobs: Sequence[int]) -> Iterator[None]:
    """Whatever goes wrong, Ctrl-C included, neither jobs nor a folder stay behind."""
    try:
        yield
    except SubmissionUnclear as error:
        # The job may be in the queue. Then it finds its folder, and goes on as the chain's first link should.
        (folder / SUBMITTING).unlink(missing_ok=True)
        raise SubmissionUnclear(
            f"Slurm did not answer, so the job may be in the queue or not. When it answers again: `mirage status "
            f"{folder.name}` tells, `mirage cancel {folder.name}` ends the chain"
        ) from error
    except OSError as error:
        _undo(folder, jobs)
        raise SubmissionFailed(f"{error.filename}: {error.strerror}; no chain was started") from error
    except BaseException:
        _undo(folder, jobs)
        raise


def _undo(folder: Path, jobs: Sequence[int]) -> None:
    if jobs:
        with suppress(OSError):  # the mark only spares a link that starts meanwhile its work
            mark_over(folder, CANCELLED, "it was not submitted completely")
    if not jobs or _scancel(jobs):
        import shutil  # it takes longer than all of mirage-submit's other work

        shutil.rmtree(folder, ignore_errors=True)


def _fill_folder(settings: ChainSettings, script: UserScript, source: Path) -> None:
    _write(settings.folder / USER_SCRIPT, script.content, 0o700)
    _write(settings.folder / JOB_SCRIPT, build_job_script(settings, script), 0o600)
    record = {
        "chain": settings.chain_id,
        "segments": settings.segments,
        "mode": settings.mode.value,
        "submitted": int(time.time()),
        "script": source,
        "submit_dir": settings.submit_dir,
        "done_file": settings.done_file or "",
        "up_front": int(settings.up_front),
    }
    lines = "".join(f"{key}={value}\n" for key, value in record.items())
    _write(settings.folder / CHAIN_RECORD, os.fsencode(lines), 0o600)
    _write(settings.folder / SUBMITTING, b"", 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def _record_job(folder: Path, segment: int, job_id: int) -> bool:
    """False: another job is on record as this link."""
    fresh = folder / f".queued.{segment}.{os.getpid()}"
    fresh.write_text(f"{job_id}\n")
    try:
        os.link(fresh, folder / f"queued.{segment}")
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def _sbatch(command: Sequence[str]) -> int:
    """Runs sbatch; its messages go to the user as they are, once it has ended."""
    try:
        return _submitted(command)
    except FileNotFoundError as error:
        raise SubmissionFailed("sbatch is not on PATH: run mirage-submit where you can run sbatch") from error


def _submitted(command: Sequence[str]) -> int:
    done = subprocess.run(command, capture_output=True)
    message = os.fsdecode(done.stderr)
    sys.stderr.write(message)
    if done.returncode:
        raise _failure(done.returncode, message)
    answer = os.fsdecode(done.stdout).strip().partition(";")[0]
    if not answer.isdecimal():
        raise ClusterNonsense(f"sbatch --parsable printed {answer!r}, which is no job id")
    return int(answer)


def _failure(exit_code: int, message: str) -> ClusterError:
    if any(words in message for words in _NO_ANSWER):
        return SubmissionUnclear()
    is_limit = any(words in message for words in _SUBMIT_LIMIT)
    failure = SubmitLimit() if is_limit else SubmissionFailed()
    failure.exit_code = exit_code
    return failure


def _scancel(jobs: Sequence[int]) -> bool:
    done = subprocess.run(["scancel", *map(str, jobs)])
    if done.returncode:
        sys.stderr.write(f"mirage-submit: could not cancel job {' '.join(map(str, jobs))}: run scancel yourself\n")
    return done.returncode == 0
