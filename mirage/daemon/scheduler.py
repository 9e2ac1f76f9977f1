"""Runs the cycle at its interval on wall-clock time (APScheduler), until the process is told to
stop.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler

from mirage.daemon.notify import notify, watchdog_s

logging.getLogger("apscheduler").setLevel(
    logging.ERROR
)  # it warns of each cycle that a slow one displaces


SLACK_S = 60
"""So late may a cycle begin, before the clock is doubted."""
WAKE_S = 10
"""So often it is asked whether a cycle is due early."""
CYCLE_S = 1800
"""A cycle takes minutes at worst (time-outs of Slurm's commands). After so much longer than its
turn, it hangs.
"""


class Beat:
    """Runs the cycle, and knows whether cycles still end."""

    def __init__(self, cycle: Callable[[], bool], poll_s: Callable[[], int]) -> None:
        """``poll_s``: seconds until the next cycle, after each one."""
        self._cycle = cycle
        self._poll_s = poll_s
        self._begun_s = self._ended_s = time.monotonic()

    def run(self) -> None:
        """One cycle; systemd is told how it went."""
        self._begun_s = time.monotonic()
        done = self._cycle()
        self._ended_s = time.monotonic()
        at = datetime.now().strftime("%H:%M:%S")
        notify(f"STATUS=Cycle of {at} {'done' if done else 'skipped: see the log'}")

    def is_overdue(self) -> bool:
        """No cycle has begun when it should: the wall clock, by which APScheduler waits, was set
        back.
        """
        is_running = self._ended_s < self._begun_s
        return not is_running and time.monotonic() - self._begun_s > self._poll_s() + SLACK_S

    def notify_watchdog(self) -> None:
        """A service whose cycles no longer end stays silent, and systemd restarts it."""
        if time.monotonic() - self._ended_s < 2 * self._poll_s() + CYCLE_S:
            notify("WATCHDOG=1")


def run_forever(
    cycle: Callable[[], bool],
    poll_s: Callable[[], int],
    may_reload: Callable[[], bool] | None = None,
    is_due: Callable[[], bool] | None = None,
) -> bool:
    """Calls ``cycle`` now and then every ``poll_s()`` seconds, until SIGTERM or SIGINT; a cycle
    under way is finished.

    With ``may_reload``, SIGHUP ends it too, if that agrees. ``is_due``: whether a cycle is to come
    now, asked every `WAKE_S`. Returns whether to reload.
    """
    signals: SimpleQueue[int] = SimpleQueue()
    for kind in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if may_reload else [])):
        signal.signal(kind, lambda number, _frame: signals.put(number))
    beat = Beat(cycle, poll_s)
    scheduler = BackgroundScheduler(timezone=UTC)
    job = _scheduled(scheduler, beat, poll_s)
    scheduler.start()
    notify("READY=1")
    beat.notify_watchdog()

    def hurry() -> None:
        job.modify(next_run_time=datetime.now(UTC))

    while (
        (number := _next(signals, beat, hurry, is_due)) == signal.SIGHUP
        and may_reload
        and not may_reload()
    ):
        pass
    notify("RELOADING=1" if number == signal.SIGHUP else "STOPPING=1")
    beat.notify_watchdog()
    scheduler.shutdown(wait=True)
    return not _stops(number, signals)


def _scheduled(scheduler: BackgroundScheduler, beat: Beat, poll_s: Callable[[], int]) -> Job:
    every_s = poll_s()

    def run() -> None:
        nonlocal every_s
        beat.run()
        if poll_s() != every_s:
            every_s = poll_s()
            job.reschedule("interval", seconds=every_s)

    # One cycle at a time; cycles missed while one was slow (or the machine slept) are made up for
    # by one.
    job = scheduler.add_job(
        run,
        "interval",
        seconds=every_s,
        next_run_time=datetime.now(UTC),
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    return job


def _stops(number: int, signals: SimpleQueue[int]) -> bool:
    """Whether the process ends: the signal that ended the loop says so, or a later one."""
    # From here on a stop ends the process at once, and one that has come meanwhile counts for more
    # than the reload.
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, signal.SIG_DFL)
    while not signals.empty():
        if (later := signals.get()) != signal.SIGHUP:
            number = later
    return number != signal.SIGHUP


def _next(
    signals: SimpleQueue[int],
    beat: Beat,
    hurry: Callable[[], None],
    is_due: Callable[[], bool] | None,
) -> int:
    """The next signal. Until it comes, and as it comes, systemd's watchdog is told, and a cycle
    that is due or overdue is hurried.
    """
    number = None
    wait_s = WAKE_S if is_due else SLACK_S
    while number is None:
        with suppress(Empty):
            number = signals.get(timeout=min(watchdog_s() or wait_s, wait_s))
        beat.notify_watchdog()
        if beat.is_overdue() or (is_due and is_due()):
            hurry()
    return number
