"""The files of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mirage.errors import MirageError
from slurm_sim.files import filling


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes files by name into a folder, which is made if it is missing; other files in it stay.

    They are put in whole, in the order of their names. Returns their paths. Raises MirageError:
    then none of them is there.
    """
    try:
        with filling(folder) as fresh:
            for name, text in texts.items():
                (fresh / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MirageError(f"--out {folder}: can't be written ({error.strerror}).") from error
    return [folder / name for name in texts]
