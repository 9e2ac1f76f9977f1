"""A chain as bars along time, in percent of a window, so that any width of screen will do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mirage.chain.durations import format_duration
from mirage.chain.handoff import handoffs
from mirage.chain.runs import each_run
from mirage.chain.serving import serving
from mirage.domain import Chain, Link
from slurm_sim.seconds import DAY_S

AHEAD = 0.25
"""Of the days shown, so much lies in the future: running links have time limits."""
TICKS_MIN = (1, 2, 5, 10, 20, 30, *(60 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336)))
SHORTEST_S = 600
MOST_TICKS = 6


@dataclass(frozen=True)
class Window:
    """[start_s, end_s) of Unix time."""

    start_s: int
    end_s: int
    now_s: int

    @classmethod
    def of_days(cls, days: int, now_s: int) -> Window:
        return cls(now_s - days * DAY_S, now_s + int(AHEAD * days * DAY_S), now_s)

    def from_first(self, begun_s: int) -> Window:
        """From the first thing to see, if that was later: young chains fill the width too."""
        start_s = max(self.start_s, min(begun_s, self.now_s - SHORTEST_S))
        return Window(start_s, self.now_s + int(AHEAD * (self.now_s - start_s)), self.now_s)

    def x(self, at_s: float) -> float:
        """Percent from the left edge; what lies outside is put onto the edge."""
        share = (at_s - self.start_s) / (self.end_s - self.start_s)
        return round(100 * min(1.0, max(0.0, share)), 3)

    def ticks(self) -> list[tuple[float, str]]:
        """Where the axis has lines, and what they say, in local time."""
        length_min = (self.end_s - self.start_s) / 60
        step_min = next(
            (step for step in TICKS_MIN if length_min / step <= MOST_TICKS), TICKS_MIN[-1]
        )
        at = datetime.fromtimestamp(self.start_s).replace(hour=0, minute=0, second=0)
        found = []
        while at.timestamp() < self.end_s:
            if (x := self.x(at.timestamp())) > 0:
                found.append(
                    (
                        x,
                        at.strftime(
                            "%d %b" if step_min >= 1440 or at.hour == at.minute == 0 else "%H:%M"
                        ),
                    )
                )
            at += timedelta(minutes=step_min)
        return found


@dataclass(frozen=True, kw_only=True)
class Bar:
    """``kind``: run, rest (until a running link's expected end), wait (in the queue), gap
    (interruption), both.
    """

    kind: str
    x: float
    width: float
    title: str
    label: str = ""


def bars(chain: Chain, links: Sequence[Link], window: Window) -> list[Bar]:
    """What the window shows of a chain; waits first, since they lie below."""
    found = [*_of_links(chain, links, window), *_between(chain, links, window)]
    return [bar for bar in found if bar.width > 0]


def link_bars(chain: Chain, link: Link, window: Window) -> list[Bar]:
    """What the window shows of one link."""
    return [bar for bar in _of_links(chain, [link], window) if bar.width > 0]


def _of_links(chain: Chain, links: Sequence[Link], window: Window) -> list[Bar]:
    start_up_s = chain.start_up_s
    return [
        *_waits(links, window),
        *_starts(links, start_up_s, window),
        *_runs(links, start_up_s, window),
    ]


def in_words(chain: Chain, links: Sequence[Link]) -> str:
    """The same for who does not see it."""
    parts = [_link_in_words(run) for run in each_run(links)]
    for handoff in handoffs(links, chain.start_up_s):
        if handoff.interruption_s or handoff.overlap_s:
            what = "interrupted" if handoff.interruption_s else "two at once"
            length = format_duration(handoff.interruption_s or handoff.overlap_s)
            parts.append(f"before link {handoff.link.segment} {what} for {length}")
    return f"Chain {chain.chain_id}: {'; '.join(parts) or 'no link is known'}."


def _link_in_words(link: Link) -> str:
    if link.start_s is None:
        return f"link {link.segment} has not started"
    end = f"to {_clock(link.end_s)}" if link.end_s else "until now"
    return f"link {link.segment} ran from {_clock(link.start_s)} {end}"


def _clock(at_s: int) -> str:
    return datetime.fromtimestamp(at_s).strftime("%d %b %H:%M")


def _bar(kind: str, start_s: float, end_s: float, window: Window, title: str) -> Bar:
    x = window.x(start_s)
    return Bar(
        kind=kind,
        x=x,
        width=round(window.x(end_s) - x, 3),
        title=f"{title} ({format_duration(end_s - start_s)})",
    )


def _waits(links: Sequence[Link], window: Window) -> Iterator[Bar]:
    for link in each_run(links):
        entered_s = link.released_s or link.eligible_s
        until_s = link.start_s or link.end_s or window.now_s
        if entered_s is not None and until_s > entered_s:
            yield _bar("wait", entered_s, until_s, window, f"link {link.segment} in the queue")


def _starts(links: Sequence[Link], start_up_s: int | None, window: Window) -> Iterator[Bar]:
    """Of a service."""
    for link in each_run(links):
        served, until_s = serving(link, start_up_s), link.end_s or window.now_s
        ready_s = min(served[0], until_s) if served else until_s
        if link.start_s is not None and start_up_s is not None and ready_s > link.start_s:
            yield _bar("wait", link.start_s, ready_s, window, f"link {link.segment} starts")


def _runs(links: Sequence[Link], start_up_s: int | None, window: Window) -> Iterator[Bar]:
    for link in each_run(links):
        served, until_s = serving(link, start_up_s), link.end_s or window.now_s
        if served is None or served[0] > until_s:
            continue
        run = _bar("run", served[0], until_s, window, f"link {link.segment} runs")
        yield replace(run, label=str(link.segment))
        expected_s = link.expected_end_s
        if link.end_s is None and expected_s is not None and expected_s > window.now_s:
            yield _bar("rest", window.now_s, expected_s, window, f"link {link.segment} may run on")


def _between(chain: Chain, links: Sequence[Link], window: Window) -> Iterator[Bar]:
    for handoff in handoffs(links, chain.start_up_s):
        started_s = handoff.link.start_s or 0
        before = f"before link {handoff.link.segment}"
        if handoff.interruption_s:
            until_s = handoff.works_s
            gap = (until_s - handoff.interruption_s, until_s)
            yield _bar("gap", *gap, window, f"interrupted {before}")
        if handoff.overlap_s:
            yield _bar(
                "both",
                started_s,
                started_s + handoff.overlap_s,
                window,
                f"two links at once {before}",
            )
    served = [span for run in each_run(links) if (span := serving(run, chain.start_up_s))]
    ends = [end_s for _, end_s in served if end_s]
    runs = any(since_s <= window.now_s and not end_s for since_s, end_s in served)
    if ends and not runs and not chain.state.is_over:
        yield _bar("gap", max(ends), window.now_s, window, "interrupted until now")
