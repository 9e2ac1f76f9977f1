"""Standing in for sbatch: a look at the script that it will read, which it finds unread, and then its
place in the process.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mirage.chain.command_line import CommandLine
from mirage.chain.directives import LONGEST_HEAD
from mirage.chain.sbatch import find_batch_script

_DESCRIPTOR = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d{1,4})", re.ASCII)


def look(request: CommandLine, path: str, descriptor: int | None) -> bytes | None:
    """The script's content, or the first part of it; None: there is none, or sbatch shall say what
    is wrong.
    """
    try:
        if descriptor is not None:
            return _peek(descriptor)
        found = script_of(request, path)
        return None if found is None or request.has("wrap") else head(found)
    except (OSError, ValueError):
        return None


def head(path: Path) -> bytes:
    """As much of a file as sbatch would take."""
    with path.open("rb") as file:
        return file.read(LONGEST_HEAD)


def script_of(request: CommandLine, path: str) -> Path | None:
    """The script as sbatch finds it; None: it finds none."""
    chdir = next(
        (option.value for option in reversed(request.options) if option.name == "chdir"), None
    )
    found = request.script and find_batch_script(request.script, chdir or "", str(Path.cwd()), path)
    return Path(found) if found else None


def descriptor_of(script: str) -> int | None:
    """The file descriptor that sbatch will read the script from; None: it has a name of its own."""
    if not script:
        return 0
    match = _DESCRIPTOR.fullmatch(script)
    return int(match[1] or 0) if match else None


def _peek(descriptor: int) -> bytes:
    """What is to be read there. sbatch finds it unread: a pipe's content is put into a file in
    memory in its place.
    """
    if os.isatty(descriptor):
        return b""  # it is still to be typed, to sbatch
    try:
        return os.pread(descriptor, LONGEST_HEAD, os.lseek(descriptor, 0, os.SEEK_CUR))
    except OSError:  # a pipe or a socket
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read()
    memory = os.memfd_create("script")
    with open(memory, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(memory, 0, os.SEEK_SET)
    os.dup2(memory, descriptor)
    os.close(memory)
    return content


def become(program: str, words: Sequence[str]) -> NoReturn:
    """Runs a program in place of this process, as it was started."""
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):  # Python ignores these, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, ["sbatch", *words], _environment())  # noqa: S606 - to take its place is the point


def _environment() -> dict[bytes, bytes]:
    """What this process was started with: Python itself adds LC_CTYPE in the C locale (PEP 538)."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    return {
        key: value
        for key, separator, value in (entry.partition(b"=") for entry in entries)
        if key and separator
    }
