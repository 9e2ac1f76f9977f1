"""A client of a running job: asks the coordinator, as `mirage elastic` and schedulers do.

    with Client(Path("job-folder")) as client:
        print(client.status().steps_per_s)
        plan = client.resize(workers=4)      # start plan.start_workers, or for each in plan.leave:
        client.drain("w3")                   # returns once w3 may be cancelled without loss

A client starts and cancels nothing. A member is started by a process of its own (`python -m
mirage.elastic.runtime.worker --folder F --name w3 -- train.py`) and joins by itself. It may vanish
at any time: that is a removal, not an error. `gone` says so at once; without it the coordinator
notices after its `--silent` seconds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self, TypeVar

import zmq

from mirage.elastic.runtime import folder, protocol
from mirage.elastic.runtime.protocol import Message, ResizePlan, Status
from mirage.elastic.runtime.wire import CoordinatorLink
from mirage.errors import InputError, MirageError

M = TypeVar("M", bound=Message)
ANSWER_S = 10.0


class NoCoordinator(MirageError):
    """The coordinator does not answer. Start it again in the same folder; nothing is lost."""


class Client:
    """One connection to the coordinator of the job in `path`. It survives its restarts.

    Raises InputError: no folder of a job, or keys that are not this user's.
    """

    def __init__(self, path: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._link = CoordinatorLink(self._context, path=path, keys=folder.load_keys(path))
        except BaseException:
            self._context.term()
            raise
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._link.close()
        self._context.term()

    def status(self, timeout_s: float = ANSWER_S) -> Status:
        """Members, progress and speed. Raises NoCoordinator."""
        return self._ask(protocol.StatusQuery(), protocol.Status, timeout_s)

    def resize(
        self, *, workers: int | None = None, servers: int | None = None, timeout_s: float = ANSWER_S
    ) -> ResizePlan:
        """Sets how many members there shall be; None leaves a number as it is.

        Returns at once what the caller has to start, and the names that leave: the coordinator
        drains these, and `drain` waits for one. Raises NoCoordinator, and InputError for a number
        below 0.
        """
        if min(workers or 0, servers or 0) < 0:
            raise InputError("resize: a number of members is 0 or more.")
        wish = protocol.Resize(workers=workers, servers=servers)
        return self._ask(wish, protocol.ResizePlan, timeout_s)

    def drain(self, name: str, timeout_s: float = 600.0) -> None:
        """Returns once this member may be cancelled without loss; it ends by itself then.

        At once where no member has the name. Raises NoCoordinator, also where the time is over:
        it may be cancelled then too, at the price of steps since the last snapshot.
        """
        self._ask(protocol.DrainRequest(name=name), protocol.Drained, timeout_s)

    def gone(self, name: str, timeout_s: float = ANSWER_S) -> None:
        """Tells the coordinator that this member's process has ended. Raises NoCoordinator."""
        self._ask(protocol.DrainRequest(name=name, gone=True), protocol.Drained, timeout_s)

    def stop(self, timeout_s: float = 600.0) -> int | None:
        """Saves the state and ends every process; the version saved, None where none is.

        The job goes on from there once a coordinator is started in the same folder. Raises
        NoCoordinator.
        """
        return self._ask(protocol.StopRequest(), protocol.Stopped, timeout_s).version

    def _ask(self, question: Message, kind: type[M], timeout_s: float) -> M:
        """Sends it, again to every new coordinator, until the answer comes."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            if self._link.refresh():
                self._link.send(question)
            if self._link.connection is None:
                time.sleep(min(0.1, left))
                continue
            answer = self._answer(kind, min(0.5, left))
            if answer is not None:
                self._link.close()
                self._link.coordinator = ""
                return answer
        self._link.close()
        self._link.coordinator = ""
        raise NoCoordinator(
            f"{self._path}: no answer from the coordinator in {timeout_s:.0f} s. If it has ended,"
            " start it again in the same folder; nothing is lost."
        )

    def _answer(self, kind: type[M], wait_s: float) -> M | None:
        assert self._link.connection is not None
        if not self._link.connection.socket.poll(int(wait_s * 1000)):
            return None
        answer = self._link.receive()
        if isinstance(answer, protocol.Refusal):
            raise InputError(answer.reason)
        return answer if isinstance(answer, kind) else None
