"""`mirage VERB`: finds the verb's file and turns errors into one clear line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from mirage import __version__
from mirage.errors import MirageError, system_says

VERBS = {
    "status": "your chains: links, states, what happens next",
    "top": "your chains live in the terminal, those that need attention first",
    "explain": "why Mirage does what it does with a job",
    "history": "what each handover of your chains cost",
    "when": "when a job would start: a range, with the reason; for a shape or a pending job",
    "web": "a link to the daemon's web page, for your own chains",
    "cancel": "end a chain: its running link and its queued successors",
    "extend": "give a chain more links, or fewer",
    "pause": "keep a chain's next link from starting, until resume",
    "resume": "let a paused chain go on",
    "logs": "the output of all links of a chain, in order",
    "done": "say that a chain's work is done: its successors go, the running link may finish",
    "wait": "until a chain is over; exit code 0 if it is done",
    "assess": "whether Mirage is worth it at a site: from its job history to one page",
    "daemon": "the site's service, for all users' chains (needs Slurm's Operator rights)",
    "agent": "the same service as a plain user, for your own chains",
    "doctor": "what of Mirage will work on this site, and what will not",
    "report": "what the service was worth: interruption avoided, overlap paid, calibration",
    "demo": "the whole loop on a simulated cluster, without Slurm",
    "train": (
        "a model from a job history: episodes on the simulator, then any of the methods that learn"
    ),
    "retrain": (
        "a new model from the site's accounting, put to work if it is not worse than the"
        " current one"
    ),
    "evaluate": "all methods on the same episodes: report.html, results.json, episodes.csv",
    "route": "agents that choose a job's partition: train, evaluate, prove, publish",
    "place": "which GPUs a job gets: agents (train, evaluate), live jobs (advise, run)",
    "elastic": "training jobs that grow into idle GPUs: run, status, stop; policies: train, evaluate",
    "plugin": "the job_submit plugin that asks these agents: install, status, remove",
    "trace": "job histories: import, figures, what they hide, synthetic workloads",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; returns the exit code: 0 done, 1 failed at run time, 2 wrong usage or input."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    try:
        args = _parser(verb).parse_args(words)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except MirageError as error:
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


def _complain(words: str) -> None:
    """Under systemd it is an error for the journal, so `journalctl -p err` shows why a service did
    not start.
    """
    from mirage.daemon import (
        logs,  # with the module logging, which is not needed where all goes well
    )

    print(logs.as_error(words, sys.stderr, os.environ), file=sys.stderr)


def full_parser() -> argparse.ArgumentParser:
    """The parser with all verbs' options, for manual pages and completion."""
    return _parser(*VERBS)


def _parser(*wanted: str) -> argparse.ArgumentParser:
    """The parser, with only the wanted verbs' modules imported: help and completion stay fast."""
    parser = argparse.ArgumentParser(
        prog="mirage",
        description=(
            "Keeps chains of Slurm jobs running without interruption. Start a chain with"
            " mirage-submit."
        ),
    )
    parser.add_argument("--version", action="version", version=f"mirage {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(
            verb, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if verb in wanted:
            module = importlib.import_module(f"mirage.cli.{verb}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
