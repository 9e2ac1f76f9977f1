"""`slurm-sim VERB`: finds the verb's file and turns errors into one clear line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

VERBS = {
    "run": "simulate jobs on a cluster; writes when each started and ended",
    "bench": "measure how fast the simulator is with these jobs on this machine",
    "cluster": "describe a cluster in TOML, from a slurm.conf or from what a live Slurm prints",
    "compare": "compare two results, or a result and reality: makespan, waits, starts, utilisation",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb; returns the exit code: 0 done, 1 failed at run time, 2 wrong usage or input."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    try:
        args = _parser(verb).parse_args(words)
        return int(args.run(args))
    except KeyboardInterrupt:
        print(f"slurm-sim {verb}: interrupted; no file is half-written", file=sys.stderr)  # noqa: T201
        return 130
    except BrokenPipeError:  # `slurm-sim compare A B | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ValueError as error:
        if not isinstance(error, _input_errors()):
            raise
        print(f"slurm-sim {verb}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except OSError as error:
        print(f"slurm-sim {verb}: {error}", file=sys.stderr)  # noqa: T201
        return 1


def package_version() -> str:
    """The installed version."""
    try:
        return version("mirage-slurm")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _input_errors() -> tuple[type[ValueError], ...]:
    from slurm_sim.errors import SimulationError
    from slurm_sim.traces.errors import TraceError

    return SimulationError, TraceError


def full_parser() -> argparse.ArgumentParser:
    """The parser with all verbs' options, for manual pages and completion."""
    return _parser(*VERBS)


def _parser(*wanted: str) -> argparse.ArgumentParser:
    """The parser, with only the wanted verbs' modules imported: help stays fast."""
    parser = argparse.ArgumentParser(
        prog="slurm-sim", description="A simulator of a Slurm cluster."
    )
    parser.add_argument("--version", action="version", version=f"slurm-sim {package_version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(
            verb, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if verb in wanted:
            module = importlib.import_module(f"slurm_sim.cli.{verb}")
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
