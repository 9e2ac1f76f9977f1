"""Where an elastic job's files lie: `${MIRAGE_HOME:-~/.mirage}/elastic/NAME/`, mode 0700.

| file | what |
| --- | --- |
| `request.json` | what its owner asked for |
| `journal.jsonl` | intents and outcomes (`journal.py`) |
| `status.json` | what the controller saw last |
| `stop` | its owner wants it to end |
| `lease` | renewed by the controller in each cycle; without it extra tasks leave |
| `runtime/` | addresses, keys (0600) and checkpoints of the training itself |
| `task.sh`, `logs/` | the tasks' batch script and their output |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mirage.chain.folder import make_chains_folder
from mirage.elastic.jobs.journal import JOURNAL, JobJournal
from mirage.elastic.jobs.request import JobRequest, request_from, request_table
from mirage.errors import InputError
from mirage.store.lock import is_held
from slurm_sim.files import write_whole
from slurm_sim.formats import parse_json

REQUEST, STATUS, STOP, LEASE, RUNTIME, SCRIPT, LOGS = (
    "request.json",
    "status.json",
    "stop",
    "lease",
    "runtime",
    "task.sh",
    "logs",
)
RESUMABLE = ("stopped", "failed", "time limit")
"""Ends after which a job can be resumed."""
CONTROLLER_LOCK = "controller.lock"
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def elastic_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's elastic jobs lie; made, for its owner alone. Raises InputError."""
    folder = make_chains_folder(environ).parent / "elastic"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def job_folders(root: Path) -> Iterator[Path]:
    """The folders of all elastic jobs, by name."""
    yield from sorted(path.parent for path in root.glob(f"*/{JOURNAL}"))


def job_folder(root: Path, name: str) -> Path:
    """The folder of a job that is there. Raises InputError."""
    found = {folder.name: folder for folder in job_folders(root)}
    if name not in found:
        names = ", ".join(found) or "none"
        raise InputError(f"no elastic job {name!r} of yours; there are: {names}")
    return found[name]


def check_new(root: Path, name: str) -> None:
    """Raises InputError: there is a job of this name."""
    folder = root / name
    if (folder / JOURNAL).exists():
        over = JobJournal(folder).record.end
        state = f"is over ({over})" if over else "is not over"
        way = "end it: mirage elastic stop " + name
        if over:
            way = f"remove {folder}"
        if over in RESUMABLE:
            way = f"continue that one: mirage elastic run --resume {name}, or {way}"
        raise InputError(
            f"elastic job {name}: there is one of this name, which {state}. Take another name, or"
            f" {way}."
        )


def create_job(root: Path, request: JobRequest, now_s: int) -> Path:
    """Makes a job's folder; the journal comes last, so that a half-made folder is no job.

    Raises InputError: there is a job of this name.
    """
    check_new(root, request.name)
    folder = root / request.name
    for part in (folder, folder / RUNTIME, folder / LOGS):
        part.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / REQUEST, json.dumps(request_table(request), indent=1).encode())
    JobJournal.create(folder, ident=_new_ident(), name=request.name, now_s=now_s)
    return folder


def check_resumable(folder: Path) -> None:
    """Raises InputError: the job is not over, or its training is done."""
    over = JobJournal(folder).record.end
    if over not in RESUMABLE:
        state = f"is over ({over})" if over else "is not over"
        raise InputError(
            f"elastic job {folder.name}: it {state}, so it can't be resumed. Expected a job that"
            f" ended as one of: {', '.join(RESUMABLE)}."
        )


def resume_job(folder: Path, now_s: int) -> None:
    """Opens a job that is over again, with its whole time. Its training continues from the state
    that it saved. Raises InputError (`check_resumable`).
    """
    check_resumable(folder)
    (folder / STOP).unlink(missing_ok=True)
    (folder / STATUS).unlink(missing_ok=True)
    JobJournal(folder).write(now_s, "resume")


def renew_lease(folder: Path, now_s: int) -> None:
    """Lets a job's extra tasks stay for another slot. Raises OSError."""
    write_whole(folder / LEASE, f"{now_s}\n".encode())


def read_job_request(folder: Path) -> JobRequest:
    """What a job's owner asked for. Raises OSError, ValueError."""
    return request_from(parse_json((folder / REQUEST).read_text()))


def write_status(folder: Path, status: Mapping[str, Any]) -> None:
    """Replaces what is known of a job. Raises OSError."""
    write_whole(folder / STATUS, json.dumps(status, indent=1).encode())


def read_status(folder: Path) -> dict[str, Any]:
    """What the controller saw last; empty: nothing yet."""
    try:
        found = parse_json((folder / STATUS).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _new_ident() -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(10))


def reports(name: str | None) -> list[dict[str, Any]]:
    """Of a job, or of all, also those that are over, from their folders: no controller is needed."""
    root = elastic_folder()
    folders = [job_folder(root, name)] if name else list(job_folders(root))
    return [_report(folder) for folder in folders]


def is_controlled() -> bool:
    """Whether a controller of this user is seen to run."""
    return is_held(elastic_folder() / CONTROLLER_LOCK)


def _report(folder: Path) -> dict[str, Any]:
    record = JobJournal(folder).record
    seen = read_status(folder)
    return seen | {
        "name": record.name,
        "folder": str(folder),
        "state": record.end or seen.get("state", "waiting"),
        "end": record.end,
        "why": record.why,
        "tasks": [] if record.end else seen.get("tasks", []),
    }
