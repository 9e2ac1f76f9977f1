"""When slurmctld's schedulers run, and when its background loop checks limits and purges records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from slurm_sim.config import Params
from slurm_sim.state import Timers
from tests.reference.events import EventKind

SECOND_US = 1_000_000
BACKFILL_PHASE_US = 400_000
"""Where in the second backfill looks for news; seen in replays on a real slurmctld."""

TICK_PHASE_US = 550_000
"""Where in the second slurmctld's background loop comes, which runs main passes and checks limits;
seen in replays. The real loop moves by some 45 ms with each save of slurmctld's state; decision
0026 says why that is not followed.
"""

PURGE_S = 60
"""How often slurmctld looks for records of ended jobs to delete (a constant there; less often than
MinJobAge).
"""


class PassClock:
    """The timers of one simulation. It says when something is due; the simulator does it."""

    recalculated_us = TICK_PHASE_US
    """Where in a second priorities are recalculated."""

    def __init__(self, params: Params, start_s: int) -> None:
        self.params = params
        self.start_s = start_s
        self.timers = Timers(
            start_s=start_s,
            last_main_s=start_s,
            last_full_s=start_s,
            last_pass_s=start_s - params.sched_min_interval_s,
            last_backfill_us=start_s * SECOND_US + BACKFILL_PHASE_US,
        )
        self._ended_s = deque[int]()
        """When the jobs ended whose records slurmctld still has, in order."""
        self._last_news_s = start_s - 1
        """When backfill last got something to look at."""
        self._checked_s = start_s - 1
        """When a limit check last ended a job; the main pass that follows waits for all that it
        ends.
        """

    def restore(self, timers: Timers, now_s: int) -> None:
        """The timers stand as these do."""
        self.timers = replace(timers)
        self._last_news_s = now_s

    # ---- what is due

    def order(self, due: tuple[int, EventKind]) -> tuple[int, float]:
        """For sorting what is due."""
        time_s, kind = due
        if kind is EventKind.MAIN and time_s == self._checked_s:
            return time_s, EventKind.LIMIT + 0.5
        last = kind is EventKind.BACKFILL and self._ticks_first()
        return time_s, len(EventKind) if last else kind

    def _ticks_first(self) -> bool:
        """Whether slurmctld's background loop (main passes, limits, purges) comes before backfill
        within a second.
        """
        return self.timers.last_backfill_us % SECOND_US > TICK_PHASE_US

    def due_passes(self, now_s: int, *, may_change: bool) -> Iterator[tuple[int, EventKind]]:
        """`may_change`: jobs compete, and something is known to happen."""
        timers = self.timers
        if timers.backfill_due_s is not None:
            yield timers.backfill_due_s, EventKind.BACKFILL
        if self.params.main:
            if timers.put_off_s is not None:
                yield timers.put_off_s, EventKind.MAIN
            if timers.main_due_s is not None:
                yield timers.main_due_s, EventKind.MAIN
            if timers.main_wanted or may_change:
                yield self.next_full_s(now_s), EventKind.MAIN

    def due_news(self, now_s: int, *, unheld: bool) -> Iterator[tuple[int, EventKind]]:
        """What backfill will notice by itself; `unheld`: some pending job is not held."""
        if not self.params.backfill:
            return
        if unheld and self.params.priority_multifactor:
            yield self._recalculation_noticed_s(now_s), EventKind.BACKFILL
        if self._ended_s and self.params.min_job_age_s:
            yield max(now_s, self._purge_s(self._ended_s[0])), EventKind.PURGE

    # ---- what has happened

    def change(self, now_s: int, happening: EventKind | None) -> None:
        """Jobs or nodes have changed, as this event or (None) a call from outside."""
        self.timers.main_wanted = self.timers.review_wanted = True
        self.note_news(now_s, happening)

    def note_news(self, now_s: int, happening: EventKind | None) -> None:
        """There is something new for backfill."""
        self._last_news_s = now_s
        if not self.params.backfill:
            return
        # What the loop does after backfill's look of this second is seen in the next one.
        ticked = happening in (EventKind.LIMIT, EventKind.MAIN, EventKind.PURGE)
        due_s = self._next_look_s(now_s + (ticked and not self._ticks_first()))
        before_s = self.timers.backfill_due_s
        self.timers.backfill_due_s = due_s if before_s is None else min(due_s, before_s)

    def note_end(self, now_s: int) -> None:
        """A job is over."""
        self._ended_s.append(now_s)

    def note_limit_check(self, now_s: int) -> None:
        """The limit check of this second ends a job."""
        # A pass over the whole queue of this second is over.
        self._checked_s = self.timers.last_full_s = now_s

    def wants_review(self) -> bool:
        """Whether a pass looks again at what keeps jobs back; the answer is given once."""
        wanted, self.timers.review_wanted = self.timers.review_wanted, False
        return wanted

    # ---- main passes

    def ask_main(self, now_s: int) -> None:
        """A main pass over the head of the queue is asked for."""
        last_full_s = now_s - (now_s - self.start_s) % self.params.sched_interval_s
        if self.timers.main_due_s is None:
            last_s = max(self.timers.last_main_s, last_full_s)
            self.timers.main_due_s = max(now_s, last_s + self.params.batch_sched_delay_s)

    def ask_main_at_once(self, now_s: int) -> None:
        """The limit check or a kill asks for one in this second."""
        self.timers.main_due_s = now_s

    def next_full_s(self, now_s: int) -> int:
        """When the next pass over the whole queue is due."""
        done_s = max(self.timers.last_full_s, now_s - 1)
        return self.start_s + _round_up(done_s + 1 - self.start_s, self.params.sched_interval_s)

    def begin_main(self, now_s: int) -> bool | None:
        """Whether the main pass that is due is one over the whole queue; None: it is put off."""
        timers = self.timers
        full = now_s == self.next_full_s(now_s)
        if full or (timers.main_due_s is not None and timers.main_due_s <= now_s):
            timers.last_main_s, timers.main_due_s = now_s, None
        if full:
            timers.last_full_s, timers.main_wanted = now_s, False
        full = full or timers.put_off_full
        if self.params.sched_min_interval_s and self._puts_off(now_s, full):
            return None
        return full

    def _puts_off(self, now_s: int, full: bool) -> bool:
        """Whether it is too soon after the last main pass."""
        timers = self.timers
        if timers.put_off_s is None:
            earliest_s = self._earlier_pass_s(now_s) + self.params.sched_min_interval_s
            timers.put_off_s = max(now_s, earliest_s)
        if timers.put_off_s > now_s:
            timers.put_off_full = full
            return True
        timers.last_pass_s, timers.put_off_s, timers.put_off_full = now_s, None, False
        return False

    def _earlier_pass_s(self, now_s: int) -> int:
        """When the last main pass ran. slurmctld has one over the whole queue also where it is
        known to be in vain.
        """
        last_pass_s = self.timers.last_pass_s
        before_s = now_s - 1 - self.start_s
        full_s = now_s - 1 - before_s % self.params.sched_interval_s
        if before_s < self.params.sched_interval_s or full_s <= last_pass_s:
            return last_pass_s
        return max(full_s, last_pass_s + self.params.sched_min_interval_s)

    # ---- backfill passes

    def begin_backfill_us(self, now_s: int) -> int:
        """When the pass of this second begins."""
        return now_s * SECOND_US + self.timers.last_backfill_us % SECOND_US

    def end_backfill(self, end_us: int) -> None:
        """The pass ends then; what it changes comes later."""
        self.timers.last_backfill_us, self.timers.backfill_due_s = end_us, None

    def is_changed_by_backfill(self, *, moved: bool, planned: bool) -> bool:
        """Whether the pass that has ended made news itself: see `Forecast`."""
        # A pass begins by taking back what the last one had planned: that is a change, too. So is,
        # once more, what changed before the pass in the second in which it ends (`_more_work`).
        in_last_second = self._last_news_s >= self.timers.last_backfill_us // SECOND_US
        changed = moved or planned or self.timers.planned or in_last_second
        self.timers.planned = planned
        return changed

    def note_reasons(self, now_s: int) -> None:
        """slurmctld notes new reasons of jobs as a backfill pass begins: news of this second."""
        self._last_news_s = now_s

    def priorities_s(self, now_s: int, within_us: int = TICK_PHASE_US) -> int:
        """As of when a pass so late within this second sees priorities."""
        return now_s - (within_us < self.recalculated_us)

    def _recalculation_noticed_s(self, now_s: int) -> int:
        """When backfill notices the first recalculation of priorities since its last pass."""
        last_us = self.timers.last_backfill_us
        since_s = last_us // SECOND_US - self.start_s
        calculated_s = self.start_s + _round_up(since_s, self.params.priority_calc_period_s)
        looked_before = last_us % SECOND_US < self.recalculated_us
        return max(now_s, self._next_look_s(calculated_s + looked_before))

    def _next_look_s(self, news_s: int) -> int:
        """When backfill notices: from `bf_interval_s` after its last pass on it looks each second."""
        first_us = self.timers.last_backfill_us + self.params.bf_interval_s * SECOND_US
        return max(first_us, news_s * SECOND_US + first_us % SECOND_US) // SECOND_US

    # ---- the background loop

    def limit_check_s(self, last_s: int) -> int:
        """The first limit check from this time on."""
        return self.start_s + _round_up(last_s - self.start_s, self.params.limit_check_s)

    def purge(self, now_s: int) -> None:
        """slurmctld deletes the records that are old enough."""
        while self._ended_s and self._purge_s(self._ended_s[0]) <= now_s:
            self._ended_s.popleft()

    def _purge_s(self, ended_s: int) -> int:
        """When slurmctld deletes the record of a job that ended then."""
        age_s = self.params.min_job_age_s
        return self.start_s + _round_up(
            ended_s + age_s - self.start_s, min(PURGE_S, max(10, age_s))
        )


def _round_up(value: int, step: int) -> int:
    """To the next multiple; a step of 0 changes nothing."""
    return -(-value // step) * step if step else value
