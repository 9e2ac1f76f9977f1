"""`mirage-sbatch`: stands before Slurm's sbatch on PATH and is invisible, but for scripts that have
#MIRAGE lines.

It must not be noticed by who does not use Mirage: sbatch gets the words, the environment, standard
input, signals and working directory that this process got, byte for byte, and takes its place, so
its exit code is the exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from mirage.chain.command_line import CommandLine, parse_request
from mirage.chain.directives import directives
from mirage.chain.sbatch import Ask, ask_sbatch, is_known, real_sbatch
from mirage.chain.stand_in import become, descriptor_of, head, look, script_of
from mirage.errors import InputError, MirageError

USAGE = """\
usage: mirage-sbatch [sbatch options] [SCRIPT [arguments]]

A drop-in for sbatch. A script with #MIRAGE lines is started as a chain, as mirage-submit starts it:

  #!/bin/sh
  #SBATCH --time=48:00:00
  #MIRAGE --segments=5 --mode=train

The job id of the first link is printed as sbatch prints it; what Mirage has to say goes to standard error.
--dry-run prints what would be submitted. With --test-only sbatch tests the first link. Neither submits anything.

Everything else is handed to Slurm's own sbatch, the first other sbatch on PATH, as it is: scripts without #MIRAGE
lines, scripts on standard input, --wrap, --help. To put it on everybody's PATH, make a link to it that is
called sbatch, in a folder that comes before Slurm's.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns only for chains, dry runs and without a sbatch: 0, 1, 2 for wrong input,
    or sbatch's own.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    path = os.environ.get("PATH", os.defpath)
    try:
        return _run(words, path, ask_sbatch(path))
    except MirageError as error:
        print(f"mirage-sbatch: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mirage-sbatch: interrupted; no chain was started", file=sys.stderr)
        return 130


def _run(words: Sequence[str], path: str, ask: Ask) -> int:
    try:
        request = parse_request(words, ask)
    except InputError:  # sbatch says what is missing
        return _become_sbatch(words, path)
    if any(map(request.has, ("help", "usage", "version"))):
        return _become_sbatch(words, path)
    descriptor = None if request.has("wrap") else descriptor_of(request.script)
    content = look(request, path, descriptor)
    if content is not None and any(directives(BytesIO(content))):
        if descriptor is None:
            return _start_chain(request, ask)
        _say(
            "the #MIRAGE lines of a script on standard input or in a pipe are not followed: put it"
            " into a file"
        )
    _refuse_the_chains_own(request, path, content)
    _say_what_is_not_followed(request, ask)
    if "dry-run" in request.own:
        return _show_plain_job(request)
    return _become_sbatch(words, path)


def _say_what_is_not_followed(request: CommandLine, ask: Ask) -> None:
    """An option that nobody knows may have a value, and then a later word is the script."""
    unknown = next(
        (
            option
            for option in request.options
            if option.value is None and not is_known(option, ask)
        ),
        None,
    )
    if unknown is None:
        return
    for word in request.arguments:
        try:
            followed = Path(word).is_file() and any(directives(BytesIO(head(Path(word)))))
        except (OSError, ValueError):
            continue
        if followed:
            _say(
                f"the #MIRAGE lines of {word} are not followed, because {unknown.words[0]} is not"
                f" known here: if {request.script!r} is its value, attach it with ="
            )
            return


def _refuse_the_chains_own(request: CommandLine, path: str, content: bytes | None) -> None:
    """InputError: the script of the chain around would run beside it, as one more writer from each
    link.
    """
    if content is None or not os.environ.get("MIRAGE_CHAIN_ID"):
        return
    from mirage.chain.nesting import refuse_own_script

    refuse_own_script(
        script_of(request, path) or Path(request.script or "stdin"), content, os.environ
    )


def _show_plain_job(request: CommandLine) -> int:
    import shlex

    own = [
        *(name for name in request.own if name != "dry-run"),
        *(["then"] if request.then else []),
    ]
    if own:  # without --dry-run sbatch says that it does not know it
        raise InputError(
            f"--{own[0]}: only a script with #MIRAGE lines is a chain here; else use mirage-submit"
        )
    script = [request.script] if request.script else []
    words = [word for option in request.options for word in option.words]
    print(shlex.join(["sbatch", *words, *script, *request.arguments]))
    print(
        "# There are no #MIRAGE lines to follow, so this is one plain job. Nothing was submitted or"
        " written."
    )
    return 0


def _say(text: str) -> None:
    print(f"mirage-sbatch: {text}", file=sys.stderr, flush=True)


def _become_sbatch(words: Sequence[str], path: str) -> int:
    if program := real_sbatch(path):
        become(program, words)
    print("mirage-sbatch: Slurm's own sbatch is not on PATH", file=sys.stderr)
    return 127  # as a shell says it


def _refuse_service(request: CommandLine) -> None:
    from mirage.chain.service import SERVICE_OPTIONS

    if lost := request.own.keys() & SERVICE_OPTIONS:
        raise InputError(
            f"--{min(lost)} in a #MIRAGE line: sbatch starts one chain; start this service with"
            " mirage-submit"
        )


def _start_chain(request: CommandLine, ask: Ask) -> int:
    from mirage.chain.submission import Interruptions, submit_chain
    from mirage.cli.submit import (
        dry_run,
        in_full,
        prepare,
        refuse_twin_of,
        tell_if_it_cannot_start,
    )
    from mirage.user.service_check import tell_who_watches

    options = tuple(option for option in request.options if option.name != "parsable")
    chain = prepare(replace(request, options=options), ask, "mirage-sbatch")
    _refuse_service(chain.request)
    if (exit_code := dry_run(chain)) is not None:
        return exit_code
    refuse_twin_of(chain)
    is_parsable = request.has("parsable") or any(
        option.name == "parsable" for option in chain.script.options
    )
    interruptions = Interruptions()
    with interruptions.deferred():
        jobs = submit_chain(chain.settings, chain.script, interruptions)
        if is_parsable or not request.has("quiet"):  # as sbatch
            print(jobs[0] if is_parsable else f"Submitted batch job {jobs[0]}", flush=True)
        chain_id = chain.settings.chain_id
        if is_parsable:
            print(
                f"mirage: a job that depends on {jobs[0]} starts after link 1, not after the chain."
                " To follow that: "
                f'"#MIRAGE --then=SCRIPT" in {chain.settings.source.name}, or `mirage wait'
                f" {chain_id}`",
                file=sys.stderr,
            )
        print(f"mirage: chain {chain_id}: {in_full(chain.settings, jobs)}", file=sys.stderr)
        size = tell_if_it_cannot_start("mirage", chain_id, jobs[0])
        if chain.settings.segments > 1:
            tell_who_watches("mirage", chain.settings.limit_s, *size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
