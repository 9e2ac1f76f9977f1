"""The only place that runs Slurm's commands: with a time-out, bounded output, a fixed environment,
retries of reads.
"""

from __future__ import annotations

import logging
import os
import random
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from mirage.errors import ClusterNonsense, ClusterUnavailable
from mirage.slurm import argv as command_lines
from mirage.slurm.failures import advice, is_transient

MAX_OUTPUT_BYTES = 256 << 20
"""A row of squeue takes about 600 bytes: this is more than 400,000 jobs."""

# What users set for their own reading would change what we read. SLURM_CLUSTERS would ask another
# cluster.
_UNSET = ("SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS")
_SET = {
    "LC_ALL": "C",
    "TZ": "UTC",
    "SLURM_TIME_FORMAT": "%s",
    "SLURM_BITSTR_LEN": "0",  # array task lists in full; the default cuts them after 64 bytes
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command printed, and its exit status."""

    stdout: str
    stderr: str
    returncode: int
    raw: bytes = b""
    """Stdout as it was, where it is no UTF-8; in ``stdout`` such bytes are U+FFFD."""

    @property
    def stdout_bytes(self) -> bytes:
        return self.raw or self.stdout.encode()


log = logging.getLogger(__name__)

LOGGED = 500
"""Characters of a command."""

Execute = Callable[[Sequence[str], Mapping[str, str], float, int], CommandResult]


class Runner:
    """Runs Slurm's commands.

    ``bin_dir``: the folder they are in; empty: found on PATH. ``prefix`` is put in front of every
    command (`("runuser", "-u", "alice", "--")`). ``retries`` is for commands that may be repeated
    and that got no answer. ``execute`` and ``sleep`` can be replaced in tests.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30,
        retries: int = 2,
        backoff_s: float = 1.0,
        *,
        bin_dir: str = "",
        prefix: Sequence[str] = (),
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        sleep: Callable[[float], None] = time.sleep,
        execute: Execute | None = None,
    ) -> None:
        self._env = env
        self._timeout_s = timeout_s
        self._retries = retries
        self._backoff_s = backoff_s
        self._bin_dir = bin_dir
        self._prefix = tuple(prefix)
        self._max_output_bytes = max_output_bytes
        self._sleep = sleep
        self._execute = execute or run_bounded

    def run(self, argv: Sequence[str], extra_env: Mapping[str, str] | None = None) -> CommandResult:
        """Runs a command to its end; its exit status is the caller's to judge. ``extra_env``:
        variables just for it.

        Raises ClusterUnavailable (not there, or too slow) and ClusterNonsense (endless output). A
        time-out is not retried: it shows an overloaded slurmctld, and the caller has waited long
        enough.
        """
        result = self._once(argv, extra_env or {})
        if not command_lines.may_be_repeated(argv):
            return result
        for attempt in range(self._retries):
            if result.returncode == 0 or not is_transient(result.stderr):
                break
            jitter = random.uniform(0.5, 1.5)  # noqa: S311 - keeps many clients apart; no secret
            self._sleep(self._backoff_s * 2**attempt * jitter)
            result = self._once(argv, extra_env or {})
        return result

    def _once(self, argv: Sequence[str], extra_env: Mapping[str, str]) -> CommandResult:
        program = f"{self._bin_dir}/{argv[0]}" if self._bin_dir else argv[0]
        command = [*self._prefix, program, *argv[1:]]
        env = {**environment(argv[0], self._env), **extra_env}
        begun = time.monotonic()
        try:
            result = self._execute(command, env, self._timeout_s, self._max_output_bytes)
            log.debug(
                "%.2f s, exit %d: %s",
                time.monotonic() - begun,
                result.returncode,
                shlex.join(command)[:LOGGED],
            )
            return result
        except TimeoutError:
            raise ClusterUnavailable(
                f"{argv[0]}: no answer within {self._timeout_s:g} s, so it was ended."
                f" {advice(argv[0])}"
            ) from None
        except FileNotFoundError as error:
            where = f"in {self._bin_dir}" if self._bin_dir else "on PATH"
            raise ClusterUnavailable(
                f"{argv[0]}: no such command {where}. Install Slurm's client commands or set"
                " cluster.bin_dir."
            ) from error
        except OSError as error:
            raise ClusterUnavailable(f"{argv[0]}: can't be run: {error}") from error


def environment(command: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment to run a command in. ``env`` defaults to ours.

    sbatch gets it untouched: it hands it on to the job, and users expect their SBATCH_* to count.
    """
    base = dict(os.environ if env is None else env)
    if command == "sbatch":
        return base
    return {name: value for name, value in base.items() if not name.startswith(_UNSET)} | _SET


def run_bounded(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    max_bytes: int,
    cwd: str | None = None,
) -> CommandResult:
    """Runs a command in a session of its own, which is killed as a whole if anything goes wrong.

    Raises TimeoutError, OSError (can't be started), ClusterNonsense (more than ``max_bytes`` of
    output).
    """
    deadline = time.monotonic() + timeout_s
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            raw, stderr = _read(argv[0], process, deadline, max_bytes)
            process.wait(_left(deadline))
        except BaseException as error:
            # Not reaped yet, so the group is still ours. A hung command must not leave children
            # behind.
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError from None
            raise
    stdout = raw.decode(errors="replace")
    return CommandResult(
        stdout=stdout,
        stderr=stderr.decode(errors="replace"),
        returncode=process.returncode,
        raw=raw if "\ufffd" in stdout else b"",
    )


def _read(
    command: str, process: subprocess.Popen[bytes], deadline: float, max_bytes: int
) -> tuple[bytes, bytes]:
    assert process.stdout
    assert process.stderr
    chunks: dict[IO[bytes], list[bytes]] = {process.stdout: [], process.stderr: []}
    size = 0
    with selectors.DefaultSelector() as selector:
        for stream in chunks:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(_left(deadline)):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                chunks[key.fileobj].append(chunk)  # type: ignore[index]
                size += len(chunk)
            if size > max_bytes:
                raise ClusterNonsense(
                    f"{command}: more than {max_bytes >> 20} MiB of output, so it was ended."
                )
    stdout, stderr = (b"".join(parts) for parts in chunks.values())
    return stdout, stderr


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
