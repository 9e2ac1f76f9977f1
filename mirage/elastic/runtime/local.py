"""All members of a job on this machine, for a first try and for tests.

`python -m mirage.elastic.runtime.local --folder F --workers 2 --servers 2 -- SCRIPT ARGUMENTS`
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from mirage.elastic.runtime import folder, process
from mirage.elastic.runtime.protocol import PLANES, SERVER, SERVERS, WORKER
from mirage.errors import InputError, MirageError

COORDINATOR = "coordinator"
END_S = 30.0
_PACKAGE = "mirage.elastic.runtime"


class LocalJob:
    """Starts, kills and waits for the processes of one job. Ends them all when left, and when this
    process ends in whatever way.

    Each is forked from one process that has imported everything, so a start takes no seconds.
    """

    def __init__(
        self,
        path: Path,
        command: Sequence[str],
        *,
        timing: Sequence[str] = (),
        log: bool = False,
        plane: str = SERVERS,
    ) -> None:
        """`command`: the script and its arguments. `timing`: further arguments of the coordinator.
        `log`: what processes say goes to files in the folder's `logs`. `plane`: of the workers.
        """
        self._plane = plane
        self.path, self._command, self._timing, self._log = path, list(command), list(timing), log
        self.processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self._numbers = {SERVER: 0, WORKER: 0}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [*(f"{_PACKAGE}.{role}" for role in (COORDINATOR, SERVER, WORKER)), "torch._dynamo"]
        )
        folder.create_folder(path)
        (path / "logs").mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for started in self.processes.values():
            started.kill()
            started.join()

    def start_coordinator(self) -> None:
        """Also again, after it was killed."""
        self._start(COORDINATOR, COORDINATOR, self._timing)

    def start(self, role: str, name: str = "") -> str:
        """Starts a server or a worker: its name."""
        self._numbers[role] += 1
        name = name or f"{role}-{self._numbers[role]}"
        script = ["--plane", self._plane, "--", *self._command] if role == WORKER else []
        self._start(role, name, ["--name", name, *script])
        return name

    def _start(self, role: str, name: str, words: Sequence[str]) -> None:
        log = str(self.path / "logs" / f"{name}.log") if self._log else ""
        command = ["--folder", str(self.path), *words]
        started = self._context.Process(target=_member, args=(role, command, log), name=name)
        started.start()
        self.processes[name] = started

    def kill(self, name: str) -> None:
        """SIGKILL, as a node that fails."""
        self.processes[name].kill()
        self.processes[name].join()

    def wait(self, timeout_s: float) -> None:
        """Until the coordinator has ended, and everyone else after it. Raises MirageError: it has
        not, or with an error.
        """
        code = self._code(COORDINATOR, timeout_s)
        if code:
            raise MirageError(f"the coordinator ended with {code}.")
        for name in self.processes:
            self._code(name, END_S)

    def _code(self, name: str, timeout_s: float) -> int:
        self.processes[name].join(timeout_s)
        code = self.processes[name].exitcode
        if code is None:
            raise MirageError(f"{name} still runs after {timeout_s:.0f} s.")
        return code

    def failed(self) -> list[str]:
        """Members that ended with an error by themselves."""
        return [name for name, started in self.processes.items() if (started.exitcode or 0) > 0]


def _member(role: str, command: list[str], log: str) -> None:
    """The whole life of a member's process."""
    threading.Thread(target=_end_with_the_launcher, daemon=True).start()
    if log:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    module = importlib.import_module(f"{_PACKAGE}.{role}")
    sys.exit(module.main(command))


def _end_with_the_launcher() -> None:
    """A launcher that a signal ends does not leave its `with` block."""
    if launcher := multiprocessing.parent_process():
        launcher.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _run(given: argparse.Namespace) -> None:
    servers = given.servers if given.plane == SERVERS else 0
    if min(given.workers, given.servers) < 1:
        raise InputError("--workers, --servers: at least one each.")
    with LocalJob(given.folder, [given.script, *given.arguments], plane=given.plane) as job:
        job.start_coordinator()
        for role, count in ((SERVER, servers), (WORKER, given.workers)):
            for _ in range(count):
                job.start(role)
        while job.processes[COORDINATOR].exitcode is None:
            if failed := job.failed():
                raise MirageError(f"{failed[0]} ended with an error; see above.")
            time.sleep(0.2)
        job.wait(END_S)


def main(arguments: list[str] | None = None) -> int:
    """The process."""
    parser = process.parser("local", "Runs an elastic training job on this machine.")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of workers")
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="number of servers")
    parser.add_argument(
        "--plane",
        choices=PLANES,
        default=SERVERS,
        help="how gradients are summed (default %(default)s); all-reduce needs no servers",
    )
    parser.add_argument("script", help="the training script, after --")
    parser.add_argument("arguments", nargs="*", help="its arguments")
    return process.run("local", _run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
