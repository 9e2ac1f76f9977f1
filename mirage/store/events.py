"""A journal of what was meant to be done and what came of it: a file of events, one JSON line each.

An intent stands there, synced to disk, before the act. Who was killed in the middle reads the file
again, and asks Slurm what became of an intent without an outcome.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mirage.errors import StoreError, system_says
from mirage.store.files import make_private_folder
from mirage.store.journal import append_durably
from slurm_sim.formats import parse_json

Event = Mapping[str, Any]
"""At least `at` (Unix seconds) and `event`, its kind."""


def read_events(path: Path) -> Iterator[Event]:
    """Oldest first; none where there is no file. Raises StoreError: it can't be read, or is another
    file.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{system_says(error, path)}: the journal can't be read.") from error
    for number, line in enumerate(lines, start=1):
        try:
            event = parse_json(line)
        except ValueError:
            continue  # cut off by a full disk; what it meant to say was not done
        if not isinstance(event, dict) or not {"at", "event"} <= event.keys():
            raise StoreError(f"{path}, line {number}: no event. Is this a journal?")
        yield event


def append_events(path: Path, events: Iterable[Event], remedy: str = "") -> None:
    """All of them, durably, or none. Raises StoreError; ``remedy``: its last sentence."""
    text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    try:
        make_private_folder(path.parent)
        append_durably(path, text.encode())
    except OSError as error:
        raise StoreError(
            f"{system_says(error, path)}: the journal can't be written, so nothing is done. {remedy}".rstrip()
        ) from error
