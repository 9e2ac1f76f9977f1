"""The job's folder: keys, the coordinator's address, the state, snapshots.

====================  ==============================================================
`keys.json`           the job's CURVE keys, mode 0600
`coordinator.json`    where the coordinator listens
`coordinator.lock`    held by the one coordinator
`state.json`          the coordinator's state, replaced as a whole
`events.jsonl`        every phase of every scaling, one JSON object a line
`losses.jsonl`        `[step, loss]` a line; the last line of a step counts
`snapshots/`          parameters and optimiser state
`model.safetensors`   the trained parameters, once the job is finished
====================  ==============================================================

The folder has mode 0700. All members must see it, so it is on a file system that they share.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zmq

from mirage.errors import InputError, MirageError, system_says
from slurm_sim.formats import parse_json

KEYS, ADDRESS, LOCK, STATE = "keys.json", "coordinator.json", "coordinator.lock", "state.json"
EVENTS, LOSSES, SNAPSHOTS, MODEL = "events.jsonl", "losses.jsonl", "snapshots", "model.safetensors"
LOCK_WAIT_S = 30.0
"""How long a coordinator waits for the one before it to end."""
REMEDY = "Give the folder that the coordinator was started with"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """CURVE keys of one job, each 40 characters of Z85. Sockets that listen have the first pair,
    those that connect the second; nobody without `member_secret` gets past the handshake.
    """

    listener_public: str
    listener_secret: str
    member_public: str
    member_secret: str


def create_folder(folder: Path) -> Keys:
    """Makes the folder and its keys where they are missing. Two at once make the same keys.

    Raises InputError: the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / SNAPSHOTS).mkdir(mode=0o700, exist_ok=True)
        if not (folder / KEYS).exists():
            _write_keys(folder)
    except OSError as error:
        raise InputError(f"{system_says(error, folder)}. Give a folder that you own.") from None
    return load_keys(folder)


def _write_keys(folder: Path) -> None:
    listener, member = zmq.curve_keypair(), zmq.curve_keypair()
    names = ("listener_public", "listener_secret", "member_public", "member_secret")
    text = json.dumps(dict(zip(names, (key.decode() for key in (*listener, *member)), strict=True)))
    mine = folder / f".{KEYS}.{secrets.token_hex(8)}"
    _write_synced(mine, text)
    try:
        os.link(mine, folder / KEYS)  # fails where another was first, whose keys then count
    except FileExistsError:
        pass
    finally:
        mine.unlink()


def load_keys(folder: Path) -> Keys:
    """Raises InputError: no keys, keys that others can read, or not keys."""
    path = folder / KEYS
    try:
        with path.open(encoding="ascii") as file:
            facts = os.fstat(file.fileno())
            record = parse_json(file.read())
    except OSError as error:
        raise InputError(f"{system_says(error, path)}. {REMEDY}.") from None
    except ValueError:
        raise InputError(f"{path}: no keys of a job. {REMEDY}.") from None
    if facts.st_mode & 0o077 or facts.st_uid != os.geteuid():
        raise InputError(
            f"{path}: others may have read it. Remove it while no process of the job runs, and"
            " start the coordinator, which makes new keys."
        )
    names = set(Keys.__dataclass_fields__)
    if not isinstance(record, dict) or record.keys() != names:
        raise InputError(f"{path}: no keys of a job. {REMEDY}.")
    if not all(isinstance(key, str) and len(key) == 40 for key in record.values()):
        raise InputError(f"{path}: a key has not 40 characters. {REMEDY}.")
    return Keys(**record)


def write_json(path: Path, record: Any) -> None:
    """Replaces the file durably: after a crash it has the old content or the new."""
    write_durably(path, json.dumps(record))


def write_durably(path: Path, text: str) -> None:
    """Replaces a text file as `write_json` does. Raises MirageError: the disk is full, or so."""
    mine = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_synced(mine, text)
        publish(mine, path)
    except OSError as error:
        mine.unlink(missing_ok=True)
        raise MirageError(f"{system_says(error, path)}. Make room, then start it again.") from None


def publish(mine: Path, path: Path) -> None:
    """Gives a finished and synced file its name, durably."""
    mine.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(file: IO[str]) -> None:
    """What was written to it is durable when this returns."""
    file.flush()
    os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """None where there is no such file. Raises MirageError: not JSON."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MirageError(f"{path}: not readable: {error}. Restore it from a copy.") from None


def _write_synced(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def coordinator_lock(path: Path) -> Iterator[None]:
    """Holds the folder for one coordinator. Raises MirageError: another has it for 30 s."""
    with (path / LOCK).open("a") as file:
        end = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise MirageError(
                        f"{path}: another coordinator has this folder. Stop that one first."
                    ) from None
                time.sleep(0.2)
        yield
