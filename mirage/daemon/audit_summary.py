"""What the audit log says of the last four weeks: what the service was worth, and whether its model
still fits.

The log may be a gigabyte: a process of its own reads it, at the lowest priority, so that the
daemon's cycles do not wait for it. The drift watch and the web page share the last result, and each
says how old it may be.

    python -m mirage.daemon.audit_summary FILE UNTIL_S TIMER_LEAD_S
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mirage.daemon.drift import WINDOW_S, drift
from mirage.daemon.impact import impact
from mirage.daemon.impact_words import sentences
from mirage.errors import MirageError
from mirage.store.journal import read_journal

log = logging.getLogger(__name__)

RETRY_S = 60
"""The same where nothing could be read."""
LONGEST_S = 600
"""A reading that takes longer is ended."""

Json = dict[str, Any]


@dataclass(frozen=True)
class AuditFigures:
    """``found``: `impact` (as `mirage report --json`, with `sentences`) and `drift`
    (`Drift.as_json`, with `words`).

    None: not known yet, or not at all.
    """

    found: Json | None = None
    at_s: int = 0
    """When it was read."""
    problem: str = ""


@dataclass
class AuditSummary:
    """The last result, renewed in the background when somebody looks and it is old."""

    audit: Path
    timer_lead_s: int
    now_s: Callable[[], float] = time.time
    _summary: AuditFigures = field(default_factory=AuditFigures)
    _reader: threading.Thread | None = None
    _process: subprocess.Popen[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def latest(self, max_age_s: int) -> AuditFigures:
        """At once, whatever it takes to find out again, which begins where the last result is older
        than this.
        """
        with self._lock:
            reads = self._reader is not None and self._reader.is_alive()
            due_s = RETRY_S if self._summary.problem else max_age_s
            if not reads and self.now_s() - self._summary.at_s >= due_s:
                self._reader = threading.Thread(
                    target=self._read, name="mirage-reading", daemon=True
                )
                self._reader.start()
                reads = True
        return AuditFigures() if reads and self._summary.found is None else self._summary

    def wait(self) -> None:
        """Until a reading under way is over."""
        if self._reader is not None:
            self._reader.join()

    def close(self) -> None:
        """Ends a reading under way."""
        if self._process is not None:
            self._process.kill()
        self.wait()

    def _read(self) -> None:
        at_s = int(self.now_s())
        if not self.audit.exists():
            self._summary = AuditFigures(at_s=at_s, problem="Nothing is in the audit log yet.")
            return
        try:
            self._summary = AuditFigures(self._found(at_s), at_s)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning(
                "what the service was worth, and whether its model still fits, is not known: %s",
                error,
            )
            self._summary = replace(
                self._summary,
                at_s=at_s,
                problem="The audit log can't be read now; the log says why.",
            )

    def _found(self, until_s: int) -> Json:
        words = [str(self.audit), str(until_s), str(self.timer_lead_s)]
        program = [sys.executable, "-P", "-m", "mirage.daemon.audit_summary", *words]
        with subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            self._process = process
            try:
                out, said = process.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            finally:
                self._process = None
        if process.returncode:
            raise ValueError(said.strip() or f"exit {process.returncode}")
        found: Json = json.loads(out)
        return found


def main(words: Sequence[str]) -> int:
    """Prints the result as JSON; 1 and a sentence on the error stream if the log can't be read."""
    os.nice(19)
    file, until_s, lead_s = Path(words[0]), int(words[1]), int(words[2])
    since_s = until_s - WINDOW_S
    try:
        worth = impact(read_journal(file), since_s, until_s + 1, lead_s)
        change = drift(read_journal(file, since_s), until_s)
    except MirageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    found = {
        "impact": worth.as_json() | {"sentences": sentences(worth)},
        "drift": change.as_json() | {"words": change.words},
    }
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
