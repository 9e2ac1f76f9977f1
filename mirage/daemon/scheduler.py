"""Runs the cycle at its interval on wall-clock time (APScheduler), until the process is told to stop."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

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


def run_forever(cycle: Callable[[], bool], poll_s: int, may_begin_anew: Callable[[], bool] | None = None) -> bool:
    """Calls ``cycle`` now and then every ``poll_s`` seconds, until SIGTERM or SIGINT; a cycle under way is finished.

    With ``may_begin_anew``, SIGHUP ends it too, if that agrees. Returns whether to begin anew.
    """
    signals: SimpleQueue[int] = SimpleQueue()
    for kind in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if may_begin_anew else [])):
        signal.signal(kind, lambda number, _frame: signals.put(number))
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
    beat.tell()
    while (number := _next(signals, beat)) == signal.SIGHUP and may_begin_anew and not may_begin_anew():
        pass
    notify("RELOADING=1" if number == signal.SIGHUP else "STOPPING=1")
    beat.tell()
    scheduler.shutdown(wait=True)
    return number == signal.SIGHUP


def _next(signals: SimpleQueue[int], beat: Beat) -> int:
    """The next signal; until it comes, and as it comes, systemd's watchdog is told."""
    number = None
    while number is None:
        with suppress(Empty):
            number = signals.get(timeout=watchdog_s())
        beat.tell()
    return number
