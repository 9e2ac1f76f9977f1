"""The service keeps a log of the queue, and has it learnt from each night (docs/when.md)."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.config import AdapterConfig
from mirage.daemon.observers import Observer
from mirage.provision.starts.keeping import QueueKeeper
from slurm_sim.seconds import HOUR_S

if TYPE_CHECKING:
    from mirage.domain import Snapshot

log = logging.getLogger(__name__)

NIGHT = range(1, 6)
"""Local hours in which it is learnt."""
APART_S = 20 * HOUR_S
"""Between two nights' trainings."""
KEPT, LEARNT = "queue-log", "waits"
"""Folders in the state folder."""


@dataclass(kw_only=True)
class QueueLogs(Observer):
    """Trains in a process of its own, niced, so that no cycle waits for it."""

    state: Path
    """The state folder."""
    published: Path | None
    """A second place of what is learnt, for all users to read; None: none."""
    cluster: AdapterConfig
    local_hour: Callable[[float], int] = lambda at_s: time.localtime(at_s).tm_hour
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    _keeper: QueueKeeper | None = None
    _training: subprocess.Popen[bytes] | None = None
    _last_s: float = field(default=0.0)

    def queue_read(self, snapshot: Snapshot) -> None:
        if self._keeper is None:
            self._keeper = QueueKeeper(folder=self.state / KEPT)
            self._last_s = self._learnt_s()
            self._publish()
        self._keeper.note(snapshot)

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:  # noqa: ARG002
        if self._training is not None and self._training.poll() is not None:
            if self._training.returncode:
                log.warning("the waits are not learnt: exit code %d", self._training.returncode)
            self._training = None
        is_night = self.local_hour(now_s) in NIGHT
        if succeeded and is_night and now_s - self._last_s >= APART_S and self._training is None:
            self._last_s = now_s
            self._train()

    def _train(self) -> None:
        order = {
            "kept": str(self.state / KEPT),
            "folders": [str(each) for each in (self.state / LEARNT, self.published) if each],
            "cluster": asdict(self.cluster),
        }
        command = [sys.executable, "-m", "mirage.apps.learning_waits"]
        try:
            self._training = self.start(command, stdin=subprocess.PIPE)
            assert self._training.stdin is not None
            self._training.stdin.write(json.dumps(order).encode())
            self._training.stdin.close()
        except OSError as error:
            log.warning("the waits are not learnt: %s", error)

    def _publish(self) -> None:
        """What an earlier run learnt: a restart of the machine has emptied the second place."""
        if self.published is None or self.published.exists() or not self._last_s:
            return
        try:
            shutil.copytree(self.state / LEARNT, self.published)
        except OSError as error:
            log.warning("the learnt waits are not published: %s", error)

    def _learnt_s(self) -> float:
        try:
            return (self.state / LEARNT / "recipe.toml").stat().st_mtime
        except OSError:
            return 0.0
