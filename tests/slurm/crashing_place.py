"""`mirage place run` that dies by SIGKILL at one point of a move: crashing_place.py POINT ARGS...

Run by tests/slurm/test_place.py with the installed Mirage. The points, in order: before-intent,
after-intent (before the signal), after-signal (before that is written), before-require,
after-require (before that is written), before-outcome.
"""

import os
import signal
import sys

from mirage.apps import placing
from mirage.cli import main
from mirage.placement.live.journal import MoveJournal

POINT = sys.argv.pop(1)
BEFORE = {"intend": "before-intent", "end": "before-outcome"}


def die_at(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


class DyingCluster(placing.CommandCluster):
    def signal(self, job_id: int, signal: str, *, batch: bool) -> None:
        die_at("after-intent")
        super().signal(job_id, signal, batch=batch)
        die_at("after-signal")

    def require_nodes(self, job_id: int, nodes: object) -> None:
        die_at("before-require")
        super().require_nodes(job_id, nodes)
        die_at("after-require")


class DyingJournal(MoveJournal):
    def _write(self, events: object) -> None:
        die_at(BEFORE.get(events[0]["event"], ""))
        super()._write(events)


placing.CommandCluster = DyingCluster
placing.MoveJournal = DyingJournal
sys.exit(main.main(["place", "run", *sys.argv[1:]]))
