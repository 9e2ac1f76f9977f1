"""Clients of a service that ask without pause, and count what fails: a stream each, a connection that is
kept, a connection for each request.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 900
_LINK = re.compile(r"link (\d+) ")
_QUESTION = {"messages": [{"role": "user", "content": "how are you"}]}


@dataclass(frozen=True, slots=True)
class Failure:
    at_s: float
    kind: str
    why: str


class Clients:
    """``where``: HOST:PORT of each request; None: nowhere, which is a failure."""

    def __init__(
        self,
        port: int,
        token: str = "",
        *,
        streams: int,
        keep_alive: int,
        fresh: int,
        pause_s: float = 0.05,
        where: Callable[[], tuple[str, int] | None] | None = None,
    ) -> None:
        self.failures: list[Failure] = []
        self.answers: list[tuple[float, float]] = []
        """(when it was asked, seconds until the whole answer)."""
        self.links: set[str] = set()
        self._where = where or (lambda: ("127.0.0.1", port))
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._stop, self._pause_s = threading.Event(), pause_s
        kinds = ["stream"] * streams + ["kept"] * keep_alive + ["fresh"] * fresh
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in kinds]

    @property
    def count(self) -> int:
        return len(self.answers)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PATIENCE_S)

    def told(self) -> str:
        slowest = max((seconds for _, seconds in self.answers), default=0.0)
        return f"{self.count} requests, {len(self.failures)} failed, the slowest {slowest:.2f} s"

    def _run(self, kind: str) -> None:
        link: http.client.HTTPConnection | None = None
        while not self._stop.wait(self._pause_s):
            at_s = time.time()
            try:
                if link is None:
                    if (address := self._where()) is None:
                        raise ConnectionRefusedError("no replica is known")
                    link = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
                self._ask(link, kind)
                self.answers.append((at_s, time.time() - at_s))
                if kind == "kept":
                    continue
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append(Failure(at_s, kind, repr(error)))
                self._stop.wait(0.5)
            if link is not None:
                link.close()
            link = None

    def _ask(self, link: http.client.HTTPConnection, kind: str) -> None:
        body: dict[str, Any] = {**_QUESTION, "stream": kind == "stream"}
        link.request("POST", "/v1/chat/completions", json.dumps(body), self._headers)
        answer = link.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {text.strip()}")
        if kind == "stream" and "[DONE]" not in text:
            raise ValueError("the stream ended early")
        words = "".join(re.findall(r'"content": "([^"]*)"', text))
        self.links.update(_LINK.findall(words))
