"""Runs the cycle at its interval on wall-clock time (APScheduler), until the process is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it warns of each cycle that a slow one displaces


class WallClock:
    """The Clock port on real time."""

    def now_s(self) -> int:
        return int(time.time())


def run_forever(cycle: Callable[[], object], poll_s: int) -> None:
    """Calls ``cycle`` now and then every ``poll_s`` seconds, until SIGTERM or SIGINT; a cycle under way is finished."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: stop.set())
    scheduler = BackgroundScheduler(timezone=UTC)
    # One cycle at a time; cycles missed while one was slow (or the machine slept) are made up for by one.
    scheduler.add_job(
        cycle,
        "interval",
        seconds=poll_s,
        next_run_time=datetime.now(UTC),
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    scheduler.start()
    stop.wait()
    scheduler.shutdown(wait=True)
