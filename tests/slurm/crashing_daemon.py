"""`mirage daemon` that dies by SIGKILL at one point of a release: crashing_daemon.py POINT ARGS...

Run by tests/slurm/test_faults.py with the installed Mirage. The points, in order: before-intent,
after-intent (and before the act), after-act (and before the outcome is written).
"""

import os
import signal
import sys

from mirage.cli import main
from mirage.daemon import app
from mirage.slurm import adapter


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


POINT = sys.argv.pop(1)


class DyingCluster(adapter.CommandCluster):
    def release(self, job_id: int) -> None:
        if POINT == "after-intent":
            die()
        super().release(job_id)
        if POINT == "after-act":
            die()


class DyingStore(app.SqlStore):
    def open_intent(self, *args: object) -> object:
        if POINT == "before-intent":
            die()
        return super().open_intent(*args)


adapter.CommandCluster = DyingCluster
app.SqlStore = DyingStore
sys.exit(main.main(["daemon", *sys.argv[1:]]))
