"""`mirage-sbatch`: stands before Slurm's sbatch on PATH and is invisible, but for scripts that have #MIRAGE lines.

It must not be noticed by who does not use Mirage: sbatch gets the words, the environment, standard input, signals and
working directory that this process got, byte for byte, and takes its place, so its exit code is the exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mirage.chain.directives import directives
from mirage.chain.sbatch import is_option, real_sbatch, take_options
from mirage.errors import InputError, MirageError

USAGE = """\
usage: mirage-sbatch [sbatch options] [SCRIPT [arguments]]

A drop-in for sbatch. A script with #MIRAGE lines is started as a chain, as mirage-submit starts it:

  #!/bin/sh
  #SBATCH --time=48:00:00
  #MIRAGE --segments=5 --mode=train

The job id of the first link is printed as sbatch prints it; what Mirage has to say goes to standard error.

Everything else is handed to Slurm's own sbatch, the first other sbatch on PATH, as it is: scripts without #MIRAGE
lines, scripts on standard input, --wrap, job arrays, --help. To put it on everybody's PATH, make a link to it that is
called sbatch, in a folder that comes before Slurm's.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns only for chains and without a sbatch: 0, 1, 2 for wrong input, else sbatch's own code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not _is_chain(words):
        if program := real_sbatch(os.environ.get("PATH", os.defpath)):
            _become(program, words)
        print("mirage-sbatch: Slurm's own sbatch is not on PATH", file=sys.stderr)
        return 127  # as a shell says it
    try:
        return _start_chain(words)
    except MirageError as error:
        print(f"mirage-sbatch: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mirage-sbatch: interrupted; no chain was started", file=sys.stderr)
        return 130


def _is_chain(words: Sequence[str]) -> bool:
    """Whether there is a script whose #MIRAGE lines ask for a chain. Where that can't be told, sbatch shall tell."""
    try:
        script = _script(words)
        if script is None:
            return False
        with script.open("rb") as file:
            return any(directives(file))
    except (InputError, OSError, ValueError):
        return False


def _script(words: Sequence[str]) -> Path | None:
    """The batch script, as sbatch finds it; None: there is none (standard input, --wrap, --help)."""
    rest, chdir = list(words), ""
    while rest and is_option(rest[0]):
        options, taken = take_options(rest)
        for option in options:
            if option.name in {"wrap", "help", "usage", "version"}:
                return None
            if option.name == "chdir":
                chdir = option.value or ""
        rest = rest[taken:]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    if not rest or rest[0] in {"-", ":"}:
        return None
    base = Path.cwd() / chdir
    folders = [] if "/" in rest[0] else [Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder]
    return next((path for folder in (base, *folders) if (path := folder / rest[0]).is_file()), None)


def _become(program: str, words: Sequence[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, ["sbatch", *words], _environment())  # noqa: S606 - to take its place is the point


def _environment() -> dict[bytes, bytes]:
    """What this process was started with: Python itself adds LC_CTYPE in the C locale (PEP 538)."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    return {key: value for key, separator, value in (entry.partition(b"=") for entry in entries) if key and separator}


def _start_chain(words: Sequence[str]) -> int:
    from dataclasses import replace

    from mirage.chain.request import parse_request
    from mirage.chain.submission import submit_chain
    from mirage.cli.submit import prepare

    request = parse_request(words)
    is_parsable = any(option.name == "parsable" for option in request.options)
    options = tuple(option for option in request.options if option.name != "parsable")
    settings, script, source = prepare(replace(request, options=options))
    jobs = submit_chain(settings, script, source)
    print(jobs[0] if is_parsable else f"Submitted batch job {jobs[0]}")
    following = ", then each link queues the next" if len(jobs) < settings.segments else ""
    print(
        f"mirage: chain {settings.chain_id}: {settings.segments} links, jobs {' '.join(map(str, jobs))}{following}",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
