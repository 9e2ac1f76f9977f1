"""Files and folders that a command writes: whole or not at all, refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slurm_sim.files import filling, replacing
from slurm_sim.traces.errors import TraceError


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """As `slurm_sim.files.replacing`. Raises TraceError if ``path`` can't be written."""
    with ExitStack() as stack:
        try:
            fresh = stack.enter_context(replacing(path))
        except IsADirectoryError as error:
            raise TraceError(str(path), "a file to write; this is a folder") from error
        except OSError as error:
            raise TraceError(str(path), f"a folder to write to ({error.strerror})") from error
        yield fresh


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """As `slurm_sim.files.filling`. Raises TraceError if that can't be had."""
    try:
        with ExitStack() as stack:
            try:
                fresh = stack.enter_context(filling(folder))
            except OSError as error:
                raise TraceError(
                    f"--out {folder}", f"a folder to write to ({error.strerror})"
                ) from error
            yield fresh
    except IsADirectoryError as error:
        raise TraceError(str(error.filename), "a file to write; this is a folder") from error
