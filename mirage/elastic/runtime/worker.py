"""A worker's process: runs the user's script, which uses `trainer.Elastic`.

`python -m mirage.elastic.runtime.worker --folder FOLDER --name NAME -- SCRIPT ARGUMENTS`
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from mirage.elastic.runtime import process, protocol, trainer
from mirage.errors import InputError


def _run(given: argparse.Namespace) -> None:
    protocol.check_name(given.name)
    script = Path(given.script)
    if not script.is_file():
        raise InputError(f"{script}: no such script.")
    trainer.set_worker_context(
        trainer.WorkerContext(
            folder=given.folder.resolve(),
            name=given.name,
            orphan_s=given.orphan,
            plane=given.plane,
        )
    )
    process.on_terminate(trainer.ask_to_end)
    sys.argv = [given.script, *given.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(given.script, run_name="__main__")
    finally:
        trainer.leave_all()


def main(arguments: list[str] | None = None) -> int:
    """The process."""
    parser = process.parser("worker", "Runs a training script as one worker of an elastic job.")
    process.add_member_arguments(parser, protocol.WORKER)
    parser.add_argument(
        "--plane",
        choices=protocol.PLANES,
        default=protocol.SERVERS,
        help="how gradients are summed (default %(default)s); the same for all workers",
    )
    parser.add_argument("script", help="the training script, after --")
    parser.add_argument("arguments", nargs="*", help="its arguments")
    return process.run("worker", _run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
