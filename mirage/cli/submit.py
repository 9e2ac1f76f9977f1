"""`mirage-submit`: starts a chain of jobs with sbatch's own options. Imports little: it must feel
like sbatch.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage import __version__
from mirage.chain.batch_script import UserScript, parse_script
from mirage.chain.command_line import CommandLine, parse_request
from mirage.chain.folder import read_then
from mirage.chain.health import health_note
from mirage.chain.length import UNTIL_DONE, in_words
from mirage.chain.nesting import check_nesting, submits_itself
from mirage.chain.request import (
    check_request,
    check_script,
    find_script,
    ignores_pbs,
    notes,
    settle,
    with_directives,
)
from mirage.chain.sbatch import Ask, ask_sbatch, real_sbatch, wrapper_on
from mirage.chain.script import ChainSettings, link_command, then_command
from mirage.chain.service import SERVICE_OPTIONS, script_of_replica
from mirage.chain.submission import (
    Interruptions,
    look_at,
    new_chain_id,
    refuse_twin,
    run_test_only,
    submit_chain,
)
from mirage.errors import InputError, MirageError
from mirage.reasons import ReasonKind, kind_of
from mirage.user.service_check import tell_who_watches
from slurm_sim.files import read_bytes

USAGE = """\
usage: mirage-submit [--segments N | --total-time D] [options] [sbatch options] SCRIPT [arguments]

Starts a chain: consecutive jobs ("links") that run SCRIPT one after the other, with as little interruption as the
cluster allows. Every option of sbatch and every #SBATCH line means what it means to sbatch, for each link. Options of
this command may stand in SCRIPT too, in lines as "#MIRAGE --segments=5"; the command line goes before them.

how long (default: until the work is done, by the done-file or a link that exits with 0; at most 1000 links):
  --segments N              N time limits of work: a link that its successor ends early counts for the time it ran,
                            each other link as one; at most 4N links
  --total-time D            time that the links run in all; D as in --time, or 90s, 5min, 2h, 7d
  --anywhere P,Q            partitions in which SCRIPT can run: each link starts where it first can, but in no slow one
                            if a fast one starts it in time (docs/routing.md)
  --ahead N                 successors in the queue at once, where waits are longer than a link (6)
  --up-front                queue all links now, just N of them, for sites where jobs can't run sbatch
how a link takes over if its predecessor still runs:
  --mode train|service      train (default): the predecessor checkpoints and ends, then SCRIPT starts.
                            service: SCRIPT starts at once, and when it is healthy the predecessor is ended
  --handover-signal S       asks the predecessor to end: TERM, B:USR1 (to the batch shell), none (wait for its end);
                            default: that of --signal, else TERM
  --handover-grace D        then it is cancelled after D; default: twice this chain's longest checkpoint, 5min at least
  --handover-cost D         train: time lost by one handover, until the chain's own tell it (10min)
  --max-overlap D           both run together at most for D (UNLIMITED)
where clients reach a service (see `mirage endpoint`, `mirage gateway`):
  --port PORT               this port of its node, or free: each link finds a free one as $MIRAGE_PORT (default: the
                            check's; or HOST:PORT, or PORT, that SCRIPT writes into the file $MIRAGE_ENDPOINT)
when a service is ready (without a check: --startup after its start, or once SCRIPT creates $MIRAGE_READY_FILE):
  --health-http PORT/path   the page on this port of its node (/path: on that of --port) answers 2xx or 3xx
  --health-tcp PORT         the port of its node accepts a connection
  --health-command CMD      the command exits with 0
  --health-count N          checks in a row that must pass (3)
  --health-failures N       then, each 10 s: failed checks in a row that end the server, as if it had died (3; 0: never)
  --startup D               time from a link's start until it is ready, until the chain's own tell it (10min)
  --uptime P%               share of the time for which a link should be ready (99.9%)
several replicas of a service, one name (mirage scale; each is a chain, and they end apart):
  --replicas N | A..B       N replicas, or between A and B of them by load; 0..B: none while nobody asks
  --scale-on CMD            prints the load of the whole service; default: the gateway's requests, open and waiting
  --target X                load that one replica takes (8 requests at once)
  --prometheus URL          --scale-on is a query of this Prometheus server ($MIRAGE_PROMETHEUS; '': it is a command)
  --quiet D                 lower load for so long makes it smaller; higher load makes it larger at once (10min)
when it ends early:
  --on-failure A            a link exits with an error: stop (default of train), retry:N (N in a row may fail), or
                            continue (default of service, whose SCRIPT then starts again on the same nodes)
  --min-runtime D           shorter links are suspect (1min; for handovers a quarter of the limit) ...
  --max-short N             ... and N of them in a row end the chain (3; 0: never)
  --done-file PATH          the work is done when this file exists; default: $MIRAGE_DONE_FILE, or run `mirage done`
who is told:
  --notify CMD              the shell runs CMD in a job of the chain, for at most a minute, with $MIRAGE_EVENT
                            (interrupted, failed, ended, cancelled), $MIRAGE_REASON and $MIRAGE_CHAIN_ID
  --notify-after D          interrupted: nothing ran for D or longer (10min)
what follows:
  --then SCRIPT             a batch script that is submitted once the chain is done, not if it fails or is cancelled;
                            may be given several times
what matters more (see `mirage explain`):
  --penalty-interruption X, --penalty-overlap X    cost of a second without, and with two, links running (1, 1)
output:
  --nested                  allows this inside another chain: each of its links starts one
  --again                   allows a second chain of the same script, folder and arguments while the first one lives
  --dry-run                 print the sbatch commands and do nothing
  --test-only               sbatch's: it says when the first link would start; nothing is submitted
  --json                    print ids as JSON
  -h, --help    -V, --version

A link finds MIRAGE_CHAIN_ID, MIRAGE_SEGMENT, MIRAGE_SEGMENTS, MIRAGE_PRED_JOBID, MIRAGE_CHAIN_DIR, MIRAGE_SCRIPT,
MIRAGE_DONE_FILE and MIRAGE_READY_FILE in its environment; of a service MIRAGE_PORT and MIRAGE_ENDPOINT too. The
chain's files lie in ${MIRAGE_HOME:-~/.mirage}/chains.
Exit codes: 0 submitted, 1 sbatch failed, 2 wrong usage or input, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code: 0, 2 for wrong input, else sbatch's own."""
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except MirageError as error:
        print(f"mirage-submit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mirage-submit: interrupted; no chain was started", file=sys.stderr)
        return 130


def _run(words: list[str]) -> int:
    ask = ask_sbatch(os.environ.get("PATH", os.defpath))
    request = parse_request(words, ask)
    if request.has("parsable"):
        raise InputError(
            "--parsable: use --json, which has the ids of the chain and of its jobs. A job that"
            " depends on one of these starts after that link, not after the chain: for that there"
            " is --then SCRIPT"
        )
    if request.has("version"):
        print(f"mirage-submit {__version__}")
    elif request.has("help") or request.has("usage"):
        print(USAGE, end="")
    else:
        return _submit(request, ask, words)
    return 0


def _submit(request: CommandLine, ask: Ask, words: Sequence[str]) -> int:
    chain = prepare(request, ask, "mirage-submit")
    if chain.request.own.keys() & SERVICE_OPTIONS:
        from mirage.cli import submit_service

        return submit_service.run(chain, words)
    if (exit_code := dry_run(chain)) is not None:
        return exit_code
    refuse_twin_of(chain)
    interruptions = Interruptions()
    with interruptions.deferred():
        jobs = submit_chain(chain.settings, chain.script, interruptions)
        _show_chain(chain.settings, jobs, "json" in chain.request.own)
        size = tell_if_it_cannot_start("mirage-submit", chain.settings.chain_id, jobs[0])
        if chain.settings.segments > 1:
            tell_who_watches("mirage-submit", chain.settings.limit_s, *size)
    return 0


def tell_if_it_cannot_start(program: str, chain_id: str, job_id: int) -> tuple[str, int]:
    """One line on the error stream, where Slurm took a first link that no free node would start.
    Returns its partition and nodes; empty and 0: not known.
    """
    reason, partition, nodes = look_at(job_id)
    if reason and kind_of(reason) is ReasonKind.CANNOT_RUN:
        print(
            f"{program}: note: job {job_id} can't start as it is: Slurm says {reason}. Unless that"
            f" passes: `mirage cancel {chain_id}`, and submit a job that its partition takes.",
            file=sys.stderr,
        )
    return partition, nodes


@dataclass(frozen=True, slots=True)
class PreparedChain:
    """A chain that could be submitted."""

    request: CommandLine
    """With what the script's #MIRAGE lines say."""
    settings: ChainSettings
    script: UserScript


def prepare(request: CommandLine, ask: Ask, program: str) -> PreparedChain:
    """The chain that is asked for. ``program``: its name in notes to the user. Raises InputError."""
    check_request(request, os.environ)
    cwd = str(Path.cwd())
    if "replica" in request.own:
        source, copy = script_of_replica(request.own["replica"])
    else:
        source = copy = find_script(request, cwd, os.environ.get("PATH", os.defpath))
    script = _read_script(copy, ask, ignore_pbs=ignores_pbs(request, os.environ))
    request = with_directives(request, script.content, str(source))
    check_nesting(source, script.content, os.environ, is_allowed="nested" in request.own)
    if "nested" not in request.own and submits_itself(source.name, script.content):
        _refuse_resubmission(source, program)
    for note in notes(request, script, os.environ):
        print(f"{program}: note: {note}", file=sys.stderr)
    settings = settle(
        request,
        script,
        source,
        environ=os.environ,
        cwd=cwd,
        slurm_bin=_folder_of_sbatch(),
        chain_id=new_chain_id(),
    )
    if note := health_note(settings):
        print(f"{program}: note: {note}", file=sys.stderr)
    return PreparedChain(request, settings, script)


def _refuse_resubmission(source: Path, program: str) -> None:
    """InputError, except where the script's sbatch is the wrapper, which refuses it in each link."""
    said = "the chain queues its next link itself: take that line out"
    if wrapper_on(os.environ.get("PATH", os.defpath)):
        print(f"{program}: note: {source} seems to submit itself. {said}", file=sys.stderr)
        return
    raise InputError(
        f"{source} seems to submit itself, so each link would start one more job on the same"
        f" checkpoint; {said}, or add --nested if it means another job"
    )


def refuse_twin_of(chain: PreparedChain) -> None:
    """InputError: the same command has started a chain that lives."""
    if not chain.request.own.keys() & {"again", "nested"}:
        refuse_twin(chain.settings)


def dry_run(chain: PreparedChain) -> int | None:
    """Does what --dry-run or sbatch's --test-only ask for; None: neither is there. Returns the exit
    code.
    """
    if "dry-run" in chain.request.own:
        _show_commands(chain.settings, "json" in chain.request.own)
        return 0
    if not any(
        option.name == "test-only" for option in (*chain.script.options, *chain.request.options)
    ):
        return None
    exit_code = run_test_only(chain.settings, chain.script)
    print(
        "mirage: --test-only: sbatch tested the first link; nothing was submitted",
        file=sys.stderr,
    )
    return exit_code


def _folder_of_sbatch() -> str:
    found = real_sbatch(os.environ.get("PATH", os.defpath))
    return str(Path(found).parent) if found else ""


def _read_script(path: Path, ask: Ask, *, ignore_pbs: bool) -> UserScript:
    try:
        script = parse_script(read_bytes(path), ask, ignore_pbs=ignore_pbs)
        check_script(script)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return script


def _show_commands(settings: ChainSettings, as_json: bool) -> None:
    last = settings.segments if settings.up_front else min(2, settings.segments)
    commands = [
        link_command(settings, k, f"JOB{k - 1}" if k > 1 else "") for k in range(1, last + 1)
    ]
    after = f"afterok:JOB{last}" if settings.up_front else "afterany:LAST"
    then = [then_command(settings, number, after) for number in range(1, len(settings.then) + 1)]
    if as_json:
        document = {
            "chain": settings.chain_id,
            "segments": settings.segments,
            "length": in_words(settings.length, settings.segments),
            "commands": commands,
            "then": then,
        }
        _print_json(document)
        return
    for command in commands:
        print(shlex.join(command))
    for command in then:
        print(
            f"# {'now' if settings.up_front else 'once the chain is done'}: {shlex.join(command)}"
        )
    if last > 1:
        print(
            "# JOB1 stands for the job id of link 1, and so on. Nothing was submitted or written."
        )


def _show_chain(settings: ChainSettings, jobs: Sequence[int], as_json: bool) -> None:
    if as_json:
        links = [
            {"segment": segment, "job_id": job_id} for segment, job_id in enumerate(jobs, start=1)
        ]
        chain = {
            "chain": settings.chain_id,
            "segments": settings.segments,
            "length": in_words(settings.length, settings.segments),
            "folder": str(settings.folder),
        }
        then = [{"script": it.script, "job_id": it.job_id} for it in read_then(settings.folder)]
        _print_json({**chain, "jobs": links, "then": then})
        return
    print(f"Submitted chain {settings.chain_id}: {in_full(settings, jobs)}")


def in_full(settings: ChainSettings, jobs: Sequence[int]) -> str:
    """How long a chain is, and the jobs of its links that are queued."""
    segments, length = settings.segments, in_words(settings.length, settings.segments)
    if settings.length == UNTIL_DONE:
        length += ": a done-file, `mirage done`, or a link that exits with 0"
    most = "" if length == f"{segments} links" or segments == 1 else f" (at most {segments} links)"
    following = ", then each link queues the next" if len(jobs) < segments else ""
    return f"{length}{most}; job{'s' * (len(jobs) > 1)} {' '.join(map(str, jobs))}{following}"


def _print_json(document: object) -> None:
    import json  # half of the other imports' time, and rarely needed

    print(json.dumps(document))


if __name__ == "__main__":
    sys.exit(main())
