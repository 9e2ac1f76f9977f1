"""One partition over simulated time, by the paper's rules: jobs run for their limit, the queue is
largest job first.

Of the queue the largest job *that fits* starts: in Figure 3 job 4 starts on one free server while
job 5, which is larger, waits for both.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage.routing.flavors import PartitionKind
from mirage.routing.state import PartitionState


@dataclass
class StartedJob:
    """A job that was started."""

    flavor: int
    place: int
    start_s: int
    end_s: int


@dataclass(frozen=True)
class Arrival:
    """A job of an episode."""

    submit_s: int
    flavor: int


class PartitionWorld:
    """A partition: clock, running jobs, queue."""

    def __init__(self, kind: PartitionKind) -> None:
        self.kind = kind
        self.state = PartitionState.empty(kind)
        self.now_s = 0
        self.queue: list[Arrival] = []
        self.runs: list[StartedJob] = []
        self._running: list[StartedJob] = []

    @property
    def next_end_s(self) -> int | None:
        return min((run.end_s for run in self._running), default=None)

    def advance(self, to_s: int) -> None:
        """Lets time pass; jobs that end until then give back what they had."""
        self.now_s = to_s
        ended = [run for run in self._running if run.end_s <= to_s]
        if ended:
            self._running = [run for run in self._running if run.end_s > to_s]
            self._rebuild()

    def _rebuild(self) -> None:
        before = self.state
        self.state = PartitionState.empty(self.kind)
        self.state.queued, self.state.queued_s = before.queued, before.queued_s
        for run in self._running:
            self.state.take(run.flavor, run.place, run.end_s)

    def start(self, flavor: int, place: int) -> None:
        run = StartedJob(flavor, place, self.now_s, self.now_s + self.kind.flavors[flavor].limit_s)
        self.state.take(flavor, place, run.end_s)
        self.runs.append(run)
        self._running.append(run)

    def enqueue(self, arrival: Arrival) -> None:
        """Puts a job behind larger and older ones."""
        self.queue.append(arrival)
        self.queue.sort(key=lambda job: (-job.flavor, job.submit_s))
        self.state.wait(arrival.flavor, self.kind.flavors[arrival.flavor].limit_s)

    def dequeue(self, arrival: Arrival) -> None:
        self.queue.remove(arrival)
        flavor = self.kind.flavors[arrival.flavor]
        self.state.queued[arrival.flavor] -= 1
        self.state.queued_s -= flavor.gpus * flavor.limit_s

    def utilization(self, at_s: int | None = None) -> float:
        """Equation 4 at a time (now), with R = 1. When the first job has just started: what it
        takes, the limit.
        """
        at = self.now_s if at_s is None else at_s
        started = [run for run in self.runs if run.start_s <= at]
        if not started:
            return 0.0
        span_s = at - min(run.start_s for run in started)
        if span_s == 0:
            return sum(self.kind.rate(self.kind.flavors[run.flavor]) for run in started)
        used = sum(
            self.kind.rate(self.kind.flavors[r.flavor]) * (min(at, r.end_s) - r.start_s)
            for r in started
        )
        return used / span_s
