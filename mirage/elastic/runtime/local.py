"""All members of a job on this machine, for a first try and for tests.

`python -m mirage.elastic.runtime.local --folder F --workers 2 --servers 2 -- SCRIPT ARGUMENTS`
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from mirage.elastic.runtime import folder, process
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.errors import InputError, MirageError

COORDINATOR = "coordinator"
END_S = 30.0


class LocalJob:
    """Starts, kills and waits for the processes of one job. Ends them all when left."""

    def __init__(
        self, path: Path, command: Sequence[str], *, timing: Sequence[str] = (), log: bool = False
    ) -> None:
        """`command`: the script and its arguments. `timing`: further arguments of the coordinator.
        `log`: what processes say goes to files in the folder's `logs`.
        """
        self.path, self._command, self._timing, self._log = path, list(command), list(timing), log
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = {SERVER: 0, WORKER: 0}
        folder.create_folder(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for started in self.processes.values():
            started.kill()
            started.wait()

    def start_coordinator(self) -> None:
        """Also again, after it was killed."""
        self._start(COORDINATOR, [COORDINATOR, *self._timing])

    def start(self, role: str, name: str = "") -> str:
        """Starts a server or a worker: its name."""
        self._numbers[role] += 1
        name = name or f"{role}-{self._numbers[role]}"
        script = ["--", *self._command] if role == WORKER else []
        self._start(name, [role, "--name", name, *script])
        return name

    def _start(self, name: str, words: list[str]) -> None:
        role, *rest = words
        command = [sys.executable, "-m", f"mirage.elastic.runtime.{role}", "--folder"]
        command += [str(self.path), *rest]
        if not self._log:
            self.processes[name] = subprocess.Popen(command)
            return
        (self.path / "logs").mkdir(exist_ok=True)
        with (self.path / "logs" / f"{name}.log").open("ab") as file:
            self.processes[name] = subprocess.Popen(command, stdout=file, stderr=file)

    def kill(self, name: str) -> None:
        """SIGKILL, as a node that fails."""
        self.processes[name].kill()
        self.processes[name].wait()

    def wait(self, timeout_s: float) -> None:
        """Until the coordinator has ended, and everyone else after it. Raises MirageError: it has
        not, or with an error.
        """
        code = self._code(self.processes[COORDINATOR], timeout_s)
        if code:
            raise MirageError(f"the coordinator ended with {code}.")
        for started in self.processes.values():
            self._code(started, END_S)

    def _code(self, started: subprocess.Popen[bytes], timeout_s: float) -> int:
        try:
            return started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise MirageError(f"a process still runs after {timeout_s:.0f} s.") from None

    def failed(self) -> list[str]:
        """Members that ended with an error by themselves."""
        return [name for name, started in self.processes.items() if (started.poll() or 0) > 0]


def _run(given: argparse.Namespace) -> None:
    if min(given.workers, given.servers) < 1:
        raise InputError("--workers, --servers: at least one each.")
    with LocalJob(given.folder, [given.script, *given.arguments]) as job:
        job.start_coordinator()
        for role, count in ((SERVER, given.servers), (WORKER, given.workers)):
            for _ in range(count):
                job.start(role)
        while job.processes[COORDINATOR].poll() is None:
            if failed := job.failed():
                raise MirageError(f"{failed[0]} ended with an error; see above.")
            time.sleep(0.2)
        job.wait(END_S)


def main(arguments: list[str] | None = None) -> int:
    """The process."""
    parser = process.parser("local", "Runs an elastic training job on this machine.")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of workers")
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="number of servers")
    parser.add_argument("script", help="the training script, after --")
    parser.add_argument("arguments", nargs="*", help="its arguments")
    return process.run("local", _run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
