"""The chain's folder: where its script and its records lie,
`${MIRAGE_HOME:-~/.mirage}/chains/<chain id>/`, mode 0700.

`job.sh` writes the records from inside the jobs and documents them at its top; here they are only
named and read. Every record is a small text file of `key=value` lines, put in place by an atomic
rename.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mirage.errors import InputError
from slurm_sim.files import write_whole

CHAIN_RECORD = "chain"
"""What `mirage-submit` was asked for."""
JOB_SCRIPT = "job.sh"
USER_SCRIPT = "script"
COMMAND = "command"
"""In the chain's record: what it has in common with a chain of the same command."""
SUBMITTING = "submitting"
"""There while `mirage-submit` is at work: link 1 must not queue link 2 as well."""
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
OVER_MARKERS = (DONE, FAILED, CANCELLED)
"""The chain is over once one of these files is there; its first line is the reason."""
PAUSED, RESUMED = "paused", "resumed"
SUCCESSOR, PAUSE, SCALE_DOWN = "successor", "pause", "scale"
"""Who asked a link to end: the next one, or its owner with `mirage pause --now` or `mirage scale`."""
"""Since when (Unix seconds) no further link begins its work, and since when they may again."""
DISMISSED = "dismissed"
NOTIFIED = "notified"
"""Somebody has run the user's --notify command for the chain's end."""

_USED_UP = re.compile(r"all \d+ links have run", re.ASCII)

_CHAIN_ID = re.compile(r"[a-z0-9]{6,32}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """How a link ended, as its own epilogue wrote it. A link that Slurm killed outright has none."""

    segment: int
    job_id: int
    start_s: int
    """When the job started."""
    work_s: int
    """When the user's script started, after the handover."""
    end_s: int
    exit_code: int
    how: str
    """`exit`: by itself; `handover`: its successor asked it to; `paused`: its owner did, with
    `mirage pause --now`; `slurm`: time limit and the signal before it, scancel, requeue,
    preemption; `early`: by a signal before its work began.
    """
    is_swept: bool = False
    """Slurm ended or requeued the job. Not so if it left at its own `--signal`: Slurm then has its
    exit code.
    """
    reason: str = ""
    """Slurm's reason where it ended the job: `TimeLimit`; empty: not known."""


@dataclass(frozen=True, slots=True)
class LinkStart:
    """Where a link started, as its own job wrote it down."""

    segment: int
    job_id: int
    outputs: tuple[str, ...]
    """The files that it writes to: its standard output, and its standard error where that goes
    elsewhere.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverRecord:
    """How a link was asked to end, as whoever asked wrote it. Times are Unix seconds of the
    successor's node.
    """

    segment: int
    """Of the link that was asked."""
    job_id: int | None
    """Of the successor; None: it was not asked by one."""
    asked_by: str
    """`SUCCESSOR`, `PAUSE` or `SCALE_DOWN`."""
    asked_s: int | None
    """None: it could not be asked, or was to be left alone (`--handover-signal none`)."""
    grace_s: int | None
    cut_s: int | None
    """When it was cancelled, since it had not ended in time; None: it was not."""
    cut_by: str
    """What was used up: `grace` or `max-overlap`; empty: nothing."""
    gone_s: int | None
    """When it had ended; None: it has not, or the successor ended first."""


@dataclass(frozen=True, slots=True)
class ThenRecord:
    """A script of `--then`."""

    script: str
    """Where it lay at submission."""
    job_id: int | None
    """None: it is not queued."""
    problem: str
    """Why it could not be queued once the chain was done; empty: it was, or that is to come."""


def chains_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's chains lie. The home directory must be on a file system that the compute
    nodes share.
    """
    home = environ.get("MIRAGE_HOME") or str(
        Path(environ.get("HOME") or "~").expanduser() / ".mirage"
    )
    return Path(home).absolute() / "chains"


def is_chain_id(text: str) -> bool:
    """Whether a chain can be called so."""
    return bool(_CHAIN_ID.fullmatch(text))


def chain_folder(chain_id: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The chain's folder, whether it exists or not. InputError: that can't be a chain id."""
    if not is_chain_id(chain_id):
        raise InputError(
            f"{chain_id!r} is no chain id: expected 6 to 32 of a-z and 0-9, as mirage-submit"
            " printed it"
        )
    return chains_folder(environ) / chain_id


def make_chains_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Makes the folder of all chains, for its owner alone. InputError: it can't be made, or others
    could get at it.
    """
    folder = chains_folder(environ)
    try:
        return _make_private(folder)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}: set MIRAGE_HOME to a folder that you can write to"
        ) from error


def _make_private(folder: Path) -> Path:
    for path in (folder.parent, folder):
        if not path.exists() and not path.is_symlink():
            path.mkdir(mode=0o700, parents=True)
    _check_private(folder.parent, folder.parent.stat())
    _check_private(folder, folder.lstat())
    folder.chmod(0o700)
    return folder


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(
            f"{path} is not a directory (a link is not accepted): remove it, or set MIRAGE_HOME"
        )
    if status.st_uid != os.geteuid():
        raise InputError(
            f"{path} belongs to another user (uid {status.st_uid}): set MIRAGE_HOME to your own"
            " folder"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"{path} can be written by others: run chmod go-w {path}")


def read_record(path: Path) -> dict[str, str]:
    """The `key=value` lines of a record; empty if there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return {
        key: value for key, separator, value in (line.partition("=") for line in lines) if separator
    }


def read_link(folder: Path, segment: int) -> LinkRecord | None:
    """How this link ended; None: it has not, or Slurm killed it before it could say."""
    record = read_record(folder / f"link.{segment}")
    try:
        job_id, start_s, work_s, end_s, code = (
            int(record[key]) for key in ("job", "start", "work", "end", "exit")
        )
        return LinkRecord(
            segment=segment,
            job_id=job_id,
            start_s=start_s,
            work_s=work_s,
            end_s=end_s,
            exit_code=code,
            how=record["how"],
            is_swept=record.get("swept") == "1",
            reason=record.get("reason", ""),
        )
    except (KeyError, ValueError):
        return None


def read_starts(folder: Path) -> dict[int, LinkStart]:
    """Segment -> its last start, of the links that have started, in order."""
    found = {}
    for path in folder.glob("start.*"):
        record, segment = read_record(path), path.name.partition(".")[2]
        if segment.isdecimal() and (job := record.get("job", "")).isdecimal():
            files = tuple(
                dict.fromkeys(name for key in ("out", "err") if (name := record.get(key, "")))
            )
            found[int(segment)] = LinkStart(int(segment), int(job), files)
    return dict(sorted(found.items()))


def ready_s(folder: Path, segment: int) -> int | None:
    """When this link was ready, in its present or last run, by the clock of its job, else by that of
    the file system; None: it was not.
    """
    path = folder / f"ready.{segment}"
    try:
        said_s = _seconds(read_record(path).get("at", ""))
        return int(path.stat().st_mtime) if said_s is None else said_s
    except FileNotFoundError:
        return None


def down_s(folder: Path, segment: int) -> int:
    """For how long since it was ready this link of a service did not serve, as far as it has said."""
    return _seconds(read_record(folder / f"ready.{segment}").get("down", "")) or 0


def read_segments(folder: Path) -> int:
    """How many links the chain has at most now. InputError: the folder is damaged."""
    text = read_record(folder / CHAIN_RECORD).get("segments", "")
    if not text.isdecimal():
        raise InputError(
            f"{folder / CHAIN_RECORD}: has no line segments=N, so the chain can't be changed"
        )
    return int(text)


def read_length(folder: Path) -> str:
    """What the chain's links may use in all (`length.py`)."""
    return read_record(folder / CHAIN_RECORD).get("length", "")


def write_length(folder: Path, segments: int, length: str) -> None:
    """Changes how long the chain is; its jobs read it before they queue the next one, and as they
    end.
    """
    lines = (folder / CHAIN_RECORD).read_text(errors="surrogateescape").splitlines()
    changed = {"segments": segments, "length": length}
    lines = [
        f"{key}={changed[key]}" if (key := line.partition("=")[0]) in changed else line
        for line in lines
    ]
    _replace(folder, CHAIN_RECORD, "".join(f"{line}\n" for line in lines))


def mark_paused(folder: Path, at_s: int) -> None:
    """Links that start from now on go back to the queue. Does not touch the queue."""
    _replace(folder, PAUSED, f"{at_s}\n")


def mark_resumed(folder: Path, at_s: int) -> None:
    """Undoes `mark_paused`; no error if the chain is not paused."""
    if is_paused(folder):
        _replace(folder, RESUMED, f"{at_s}\n")
        (folder / PAUSED).unlink(missing_ok=True)


def is_paused(folder: Path) -> bool:
    return (folder / PAUSED).exists()


def is_used_up(over: tuple[str, str]) -> bool:
    """Whether the chain is over (`over_marker`) for the one reason that all its links have run."""
    return over[0] == DONE and _USED_UP.fullmatch(over[1]) is not None


def mark_dismissed(folder: Path, at_s: int) -> None:
    """Its owner has seen the end, and wants to see it no more. Raises OSError."""
    _replace(folder, DISMISSED, f"{at_s}\n")


def is_dismissed(folder: Path) -> bool:
    """Whether its owner has put the chain away since it ended."""
    return (folder / DISMISSED).exists()


def reopen(folder: Path) -> None:
    """Takes back the mark of a chain that is over."""
    for marker in (*OVER_MARKERS, DISMISSED):
        (folder / marker).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        (folder / NOTIFIED).rmdir()


def read_handover(folder: Path, segment: int) -> HandoverRecord | None:
    """How this link was asked to end; None: it was not."""
    record = read_record(folder / f"handover.{segment}")
    job = record.get("job", "")
    by_owner = job in (PAUSE, SCALE_DOWN)
    if not by_owner and not job.isdecimal():
        return None
    asked, grace, cut, gone = (
        _seconds(record.get(key, "")) for key in ("asked", "grace", "cut", "gone")
    )
    return HandoverRecord(
        segment=segment,
        job_id=None if by_owner else int(job),
        asked_by=job if by_owner else SUCCESSOR,
        asked_s=asked,
        grace_s=grace,
        cut_s=cut,
        cut_by=record.get("by", ""),
        gone_s=gone,
    )


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def then_script(folder: Path, number: int) -> Path:
    """The copy of the ``number``-th script of `--then`, from 1."""
    return folder / f"then.{number}.sh"


def read_then(folder: Path) -> list[ThenRecord]:
    """The scripts of `--then`, in their order."""
    chain = read_record(folder / CHAIN_RECORD)
    found: list[ThenRecord] = []
    while script := chain.get(f"then.{len(found) + 1}"):
        number = len(found) + 1
        job_id = _seconds(_text(folder / f"then.{number}"))
        found.append(ThenRecord(script, job_id, _text(folder / f"then.{number}.error")))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def queued_jobs(folder: Path) -> dict[int, int]:
    """Segment -> job id of every link that was queued, running and past ones too."""
    jobs = {}
    for path in folder.glob("queued.*"):
        with suppress(
            FileNotFoundError
        ):  # a link that Slurm forgot: its predecessor is about to queue it again
            segment, job_id = path.name.partition(".")[2], path.read_text(errors="replace").strip()
            if segment.isdecimal() and job_id.isdecimal():
                jobs[int(segment)] = int(job_id)
    return dict(sorted(jobs.items()))


def refused_link(folder: Path) -> tuple[int, str] | None:
    """The next link to be queued, and why it could not be so far; None: no try has failed."""
    segment = max(queued_jobs(folder), default=0) + 1
    error = _text(folder / f"queued.{segment}.error")
    return (segment, error) if error else None


def mark_lost(folder: Path, segment: int, job_id: int) -> None:
    """Slurm has lost this link, so it is to be queued again. Nothing where it was, or a later one."""
    if list(queued_jobs(folder).items())[-1:] == [(segment, job_id)]:
        _replace(folder, f"queued.{segment}.error", f"Slurm has lost its job {job_id}\n")
        (folder / f"queued.{segment}").unlink(missing_ok=True)


def over_marker(folder: Path) -> tuple[str, str] | None:
    """(`done`, `failed` or `cancelled`; the reason), or None while the chain goes on."""
    for marker in OVER_MARKERS:
        path = folder / marker
        try:
            return (
                marker,
                path.read_text(errors="replace").strip() or f"{path} exists",
            )  # the user's `touch`
        except FileNotFoundError:
            continue
    return None


def mark_over(folder: Path, marker: str, reason: str) -> None:
    """Ends the chain: links that start from now on leave at once. Does not touch the queue."""
    _replace(folder, marker, f"{reason}\n")


def _replace(folder: Path, name: str, text: str) -> None:
    write_whole(folder / name, text.encode(errors="surrogateescape"), 0o600)
