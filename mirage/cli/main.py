"""`mirage VERB`: finds the verb's file and turns errors into one clear line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from textwrap import wrap

from mirage import __version__
from mirage.errors import InputError, MirageError, system_says
from slurm_sim.errors import CoreMissing

COLUMNS = 80

GROUPS = {
    "your chains": {
        "submit": "start a chain from a batch script; the same as mirage-submit",
        "status": "your chains: links, states, what happens next",
        "top": "your chains live in the terminal, those that need attention first",
        "logs": "the output of all links of a chain, in order",
        "explain": "why Mirage does what it does with a job",
        "history": "what each handover of your chains cost",
        "wait": "until a chain is over; exit code 0 if it is done",
        "extend": "give a chain more links, or fewer",
        "scale": "how many replicas a service has, by number or by load",
        "pause": "keep a chain's next link from starting, until resume",
        "resume": "let a paused chain go on",
        "done": "say that a chain's work is done: its successors go, the running link may finish",
        "cancel": "end a chain: its running link and its queued successors",
        "dismiss": "put chains that are over away from status, top and the page",
        "when": "when a job would start: a range, with the reason; for a shape or a pending job",
        "endpoint": "where a service is now: HOST:PORT of each link that is ready",
        "gateway": "one address for a service, for clients that never notice a handover",
        "web": "a link to the daemon's web page, for your own chains",
    },
    "the service and your site": {
        "agent": "the service as a plain user, for your own chains",
        "daemon": "the site's service, for all users' chains (needs Slurm's Operator rights)",
        "doctor": "what of Mirage will work on this site, and what will not",
        "assess": "whether Mirage is worth it at a site: from its job history to one page",
        "report": "what the service was worth: interruption avoided, overlap paid, calibration",
        "retrain": (
            "a new model from the site's accounting, put to work if it is not worse than the"
            " current one"
        ),
        "plugin": "the job_submit plugin that routes jobs: install, status, remove",
    },
    "simulation, training and other systems": {
        "demo": "the whole loop on a simulated cluster, without Slurm",
        "trace": "job histories: import, figures, what they hide, synthetic workloads",
        "train": (
            "a model from a job history: episodes on the simulator, then any of the methods that"
            " learn"
        ),
        "evaluate": "methods judged on a job history: pairs of jobs, whole chains, waits",
        "models": "trained models that are not in the package: fetch",
        "route": "agents that choose a job's partition: train, evaluate, prove, publish",
        "place": "which GPUs a job gets: agents (train, evaluate), live jobs (advise, run)",
        "elastic": (
            "training jobs that grow into idle GPUs: run, status, stop; policies: train, evaluate"
        ),
    },
}
"""Verbs by who needs them, with what each does."""
VERBS = {verb: summary for group in GROUPS.values() for verb, summary in group.items()}
ALSO_TYPED = {
    **dict.fromkeys(("list", "ls", "ps", "queue", "squeue", "show"), "status"),
    **dict.fromkeys(("stop", "kill", "scancel", "delete", "rm"), "cancel"),
    **dict.fromkeys(("sbatch", "run", "start"), "submit"),
    "tail": "logs",
}
"""Words of other programs -> the verb that does this."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; returns the exit code: 0 done, 1 failed at run time, 2 wrong usage or input."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    if verb == "submit":  # its words are sbatch's
        from mirage.cli import submit

        return submit.main(words[1:])
    words = _in_full(verb, words)
    try:
        _check_verb(verb)
        args, unknown = parser_of(verb).parse_known_args(words)
        if unknown:
            called = " ".join([verb, *([args.subverb] if "subverb" in args else [])])
            raise InputError(
                f"unrecognized arguments: {' '.join(unknown)}. `mirage {called} --help` has its options."
            )
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except (MirageError, CoreMissing) as error:
        _complain(f"mirage {verb}: {error}")
        return error.exit_code
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "mirage", "slurm_sim"):
            raise
        from mirage.libraries import missing_package

        _complain(f"mirage {verb}: {missing_package(name)}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `mirage history | head`
        # Python flushes once more as it exits, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file of the user's that is none, or is another user's
        _complain(f"mirage {verb}: {system_says(error)}")
        return 1


def _in_full(verb: str, words: list[str]) -> list[str]:
    """As the verb's parser reads them."""
    if verb == "evaluate":  # what is judged may be left out, or be an option
        from mirage.cli import evaluate

        return [verb, *evaluate.in_full(words[1:])]
    if verb == "when":  # most of its options are sbatch's
        from mirage.cli import when

        return [verb, *when.in_front(words[1:])]
    return words


def _check_verb(verb: str) -> None:
    """Raises InputError: there is no such verb."""
    if verb in VERBS or not verb or verb.startswith("-"):
        return
    close = [ALSO_TYPED[verb]] if verb in ALSO_TYPED else get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean `mirage {close[0]}`?" if close else "`mirage --help` lists the verbs."
    raise InputError(f"there is no such verb; {hint}")


def _complain(words: str) -> None:
    """Under systemd it is an error for the journal, so `journalctl -p err` shows why a service did
    not start.
    """
    from mirage.daemon import (
        logs,  # with the module logging, which is not needed where all goes well
    )

    print(logs.as_error(words, sys.stderr, os.environ), file=sys.stderr)


class _MirageParser(argparse.ArgumentParser):
    """Its help has the verbs in groups, which argparse does not offer."""

    def format_help(self) -> str:
        width = max(map(len, VERBS)) + 4
        lines = [f"usage: {self.prog} VERB [options]", "", *wrap(self.description or "", COLUMNS)]
        for title, verbs in GROUPS.items():
            lines += ["", f"{title}:"]
            for verb, summary in verbs.items():
                first, *rest = wrap(summary, COLUMNS - width)
                lines += [f"  {verb:{width - 2}}{first}", *(" " * width + words for words in rest)]
        return "\n".join(
            [*lines, "", "`mirage VERB --help` has its options. `mirage --version`.", ""]
        )


def full_parser() -> argparse.ArgumentParser:
    """The parser with all verbs' options, for manual pages and completion."""
    return parser_of(*VERBS)


def parser_of(*wanted: str) -> argparse.ArgumentParser:
    """The parser, with only the wanted verbs' modules imported: help and completion stay fast."""
    parser = _MirageParser(
        prog="mirage",
        description=(
            "Keeps chains of Slurm jobs running without interruption. Start a chain with"
            " mirage submit."
        ),
    )
    parser.add_argument("--version", action="version", version=f"mirage {__version__}")
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="VERB", parser_class=argparse.ArgumentParser
    )
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(
            verb, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if verb in wanted and verb != "submit":
            module = importlib.import_module(f"mirage.cli.{verb}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
