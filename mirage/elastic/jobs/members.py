"""The adapter of `LiveTraining` on the runtime: messages to a job's coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from mirage.elastic.jobs.training import LiveTraining, TrainingStatus
from mirage.elastic.runtime.client import Client
from mirage.elastic.runtime.folder import MODEL
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.errors import MirageError

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""A coordinator that takes longer is asked again in the next cycle."""
SENT_S = 1.0
"""For messages whose effect is seen later."""


class RuntimeTraining(LiveTraining):
    """The training in a runtime's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def status(self) -> TrainingStatus | None:
        """See `LiveTraining.status`. A finished one leaves its model, and needs no coordinator."""
        if (self._folder / MODEL).exists():
            return _finished()
        try:
            with Client(self._folder) as client:
                status = client.status(ANSWER_S)
        except MirageError as error:
            log.debug("%s: %s", self._folder, error)
            return None
        active = [member for member in status.members if member.state in ("active", "draining")]
        return TrainingStatus(
            state=status.state,
            step=status.step,
            steps=status.steps,
            steps_per_s=status.steps_per_s,
            loss=status.loss,
            workers=sum(member.role == WORKER for member in active),
            servers=sum(member.role == SERVER for member in active),
            drained=[member.name for member in status.members if member.state == "drained"],
        )

    def drain(self, names: Collection[str]) -> Collection[str]:
        """See `LiveTraining.drain`."""
        return self._each(names, lambda client, name: client.drain(name, SENT_S))

    def gone(self, names: Collection[str]) -> None:
        """See `LiveTraining.gone`."""
        self._each(names, lambda client, name: client.gone(name, SENT_S))

    def stop(self) -> None:
        """See `LiveTraining.stop`."""
        self._each([""], lambda client, _name: client.stop(SENT_S))

    def _each(self, names: Collection[str], send: Callable[[Client, str], object]) -> list[str]:
        """All at the same time, since each waits for an answer that may come much later: those for
        which it has come.
        """

        def send_one(name: str) -> bool:
            with suppress(MirageError), Client(self._folder) as client:
                send(client, name)
                return True
            return False

        if not names:
            return []
        with ThreadPoolExecutor(min(len(names), 16)) as pool:
            answered = list(pool.map(send_one, names))
        return [name for name, has_answer in zip(names, answered, strict=True) if has_answer]


def _finished() -> TrainingStatus:
    return TrainingStatus(
        state="finished", step=0, steps=0, steps_per_s=None, loss=None, workers=0, servers=0
    )
