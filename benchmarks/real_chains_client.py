"""Who asks the services of `real_chains.py` from outside, each simulated second as far as this machine
comes to it.

A service answers while a process of it that is ready is alive: it holds a lock on a file then, which
the kernel takes from it with its death.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.soak_world import Clock
from tests.slurm.site import Site


@dataclass(kw_only=True)
class Answers:
    """Of one service, in simulated seconds."""

    first_s: float | None = None
    last_s: float = 0
    silences_s: list[float] = field(default_factory=list)
    """How long each was, from the last answer to the next."""
    is_silent: bool = True

    def note(self, answers: bool, now_s: float) -> None:
        """What it said at this time."""
        if answers:
            if self.first_s is None:
                self.first_s = now_s
            elif self.is_silent:
                self.silences_s.append(now_s - self.last_s)
            self.last_s = now_s
        self.is_silent = not answers

    def as_json(self, end_s: float) -> dict[str, float]:
        """``end_s``: when it was asked for the last time."""
        silences = [*self.silences_s, *([end_s - self.last_s] if self.is_silent else [])]
        asked_s = 0.0 if self.first_s is None else end_s - self.first_s
        silent_s = sum(silences) if asked_s else 0.0
        return {
            "asked_s": round(asked_s),
            "silences": len(silences) if asked_s else 0,
            "silent_s": round(silent_s),
            "longest_silent_s": round(max(silences, default=0)) if asked_s else 0,
        }


class Client(threading.Thread):
    """Asks all services, by their names, until it is stopped."""

    def __init__(self, clock: Clock, files: dict[str, Path]) -> None:
        super().__init__(daemon=True)
        self.answers = {name: Answers() for name in files}
        self._clock, self._files, self._stopped = clock, files, threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            for name, file in self._files.items():
                self.answers[name].note(is_held(file), self._clock.elapsed_s())
            time.sleep(max(0.005, 1 / self._clock.speed))

    def stop(self) -> dict[str, dict[str, float]]:
        """What each answered."""
        self._stopped.set()
        self.join(30)
        end_s = self._clock.elapsed_s()
        return {name: answers.as_json(end_s) for name, answers in self.answers.items()}


def is_held(file: Path) -> bool:
    """Whether a process has a lock on it."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def from_history(site: Site, users: Sequence[str]) -> dict[str, dict[str, object]]:
    """What `mirage history` says of each of these users' services, by name."""
    found = {}
    for user in users:
        done = site.run(user, "mirage", "history", "--all", "--json", timeout_s=300)
        for report in json.loads(done.stdout)["chains"]:
            if report["service"]:
                found[report["name"]] = report["service"] | {
                    "interruption_s": report["totals"]["interruption_s"],
                    "readiness": [link["readiness"] for link in report["links"]],
                }
    return found


def answered(services: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of all services: seconds without an answer, as the client found and as `mirage history` says."""
    asked_s = sum(chain["client"]["asked_s"] for chain in services)
    silent_s = sum(chain["client"]["silent_s"] for chain in services)
    return {
        "answered": round(1 - silent_s / max(asked_s, 1), 4),
        "silent_s": silent_s,
        "history_s": sum(chain["history"].get("down_s", 0) for chain in services),
    }
