"""`mirage VERB` in a process of its own, without the seconds that each start spends on imports.

One process imports what commands need, and forks for each of them. A command then has its own
environment, streams, signals and logging, as when its program is started.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGES = (
    "mirage.cli.main",
    "mirage.cli.serve",
    *(
        f"mirage.cli.{verb}"
        for verb in ("cancel", "doctor", "explain", "history", "report", "status")
    ),
)


def run_mirage(
    words: Sequence[str], *, env: Mapping[str, str], stdout: int, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """The same as ``subprocess.run([python, "-m", "mirage.cli.main", *words])``, its standard input
    closed.

    Raises:
        subprocess.TimeoutExpired: the command was killed after ``timeout_s``.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(_server())
        request = {"words": list(words), "env": dict(env), "cwd": str(Path.cwd())}
        streams = [nothing.fileno(), out.fileno() if stdout == subprocess.PIPE else stdout]
        client.settimeout(timeout_s)
        socket.send_fds(client, [json.dumps(request).encode() + b"\n"], [*streams, err.fileno()])
        try:
            said = client.recv(100)
        except TimeoutError:  # closing the connection kills the command
            raise subprocess.TimeoutExpired(list(words), timeout_s) from None
        texts = [stream.seek(0) or stream.read().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(list(words), int(said), texts[0], texts[1])


@functools.cache
def _server() -> str:
    """The socket of the process that forks, which ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="mirage-forks-")
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        words = [sys.executable, "-m", "tests.forked_commands", str(listener.fileno())]
        process = subprocess.Popen(
            words,
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return path


def _serve(listener: socket.socket) -> None:
    for name in PACKAGES:
        importlib.import_module(name)
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if os.fork() == 0:
            listener.close()
            _answer(connection)
            os._exit(0)
        connection.close()


def _answer(connection: socket.socket) -> None:
    text, streams, _flags, _from = socket.recv_fds(connection, 1 << 20, 3)
    while not text.endswith(b"\n"):
        text += connection.recv(1 << 20)
    request = json.loads(text)
    command = os.fork()
    if command == 0:
        connection.close()
        _become(request, streams)
    for stream in streams:
        os.close(stream)
    watcher = os.fork()
    if watcher == 0:  # the client closes the connection when its patience ends
        connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGKILL)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    os.kill(watcher, signal.SIGKILL)
    os.waitpid(watcher, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(str(code).encode())


def _become(request: dict, streams: list[int]) -> None:
    """Turns this process into the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        if stream > 2:
            os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    from mirage.cli.main import main

    code: object = 1
    try:
        code = main(request["words"])
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:  # noqa: BLE001 - the command is over, and its traceback is shown
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
