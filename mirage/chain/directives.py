"""The `#MIRAGE` lines of a batch script: mirage-submit's own options, where sbatch sees a comment.

They stand where #SBATCH lines do: before the first line that is neither empty nor a comment.
Imports little: each `sbatch` of a site that has the wrapper on its PATH reads a script's head with
this.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

DIRECTIVE = b"#MIRAGE"
LONGEST_HEAD = 4_000_000
"""Bytes; sbatch takes no longer scripts by default (slurm.conf(5), max_script_size)."""


def directives(script: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Line number (from 1) and what stands behind #MIRAGE, for each such line of the head."""
    head = io.BytesIO(script.read(LONGEST_HEAD))
    for number, line in enumerate(head, start=1):
        if line.strip() and not line.lstrip().startswith(b"#"):
            return
        rest = line.removeprefix(DIRECTIVE)
        if rest != line and rest[:1] in (b"", b" ", b"\t", b"\n", b"\r"):
            yield number, rest.strip()
