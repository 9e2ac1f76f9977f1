"""Runs the cycle at its interval on wall-clock time (APScheduler), until the process is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

from mirage.daemon.notify import notify, watchdog_s

logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it warns of each cycle that a slow one displaces


class WallClock:
    """The Clock port on real time."""

    def now_s(self) -> int:
        return int(time.time())


CYCLE_S = 1800
"""A cycle takes minutes at worst (time-outs of Slurm's commands). After so much longer than its turn, it hangs."""


class Beat:
    """Runs the cycle, and knows whether cycles still end."""

    def __init__(self, cycle: Callable[[], bool], poll_s: int) -> None:
        self._cycle = cycle
        self._patience_s = 2 * poll_s + CYCLE_S
        self._ended_s = time.monotonic()

    def run(self) -> None:
        """One cycle; systemd is told how it went."""
        done = self._cycle()
        self._ended_s = time.monotonic()
        at = datetime.now().strftime("%H:%M:%S")
        notify(f"STATUS=Cycle of {at} {'done' if done else 'skipped: see the log'}")

    def tell(self) -> None:
        """To systemd's watchdog; a service whose cycles no longer end stays silent, and is started anew."""
        if time.monotonic() - self._ended_s < self._patience_s:
            notify("WATCHDOG=1")


def run_forever(cycle: Callable[[], bool], poll_s: int) -> None:
    """Calls ``cycle`` now and then every ``poll_s`` seconds, until SIGTERM or SIGINT; a cycle under way is finished."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: stop.set())
    beat = Beat(cycle, poll_s)
    scheduler = BackgroundScheduler(timezone=UTC)
    # One cycle at a time; cycles missed while one was slow (or the machine slept) are made up for by one.
    scheduler.add_job(
        beat.run,
        "interval",
        seconds=poll_s,
        next_run_time=datetime.now(UTC),
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    scheduler.start()
    notify("READY=1")
    while not stop.wait(watchdog_s()):
        beat.tell()
    notify("STOPPING=1")
    scheduler.shutdown(wait=True)
