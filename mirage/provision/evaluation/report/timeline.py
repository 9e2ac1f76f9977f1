"""A few single episodes as they went: the queue, the predecessor, and when each method's successor
started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from mirage.domain import Penalties
from mirage.figures.svg import WIDTH, Scale, chart, line, path, rect, text
from mirage.figures.words import MINUS, hours, instant
from mirage.provision.evaluation.metrics import ON_TIME_S, Group
from mirage.provision.evaluation.protocol import ORACLE, EpisodeTrial
from mirage.provision.learn.episode import HISTORY, STEP_S, Load
from slurm_sim.seconds import HOUR_S

LEFT, RIGHT = 112, 74
"""Room for the methods' names and for the outcomes in words."""
QUEUE_TOP, QUEUE_BOTTOM, ROW, BAR = 16, 62, 22, 12
BEFORE_S, AFTER_S = 6 * HOUR_S, 4 * HOUR_S
"""Shown before the first release and after the last start."""


@dataclass(frozen=True)
class Example:
    title: str
    trial: EpisodeTrial


def examples(group: Group, headline: str, penalties: Penalties) -> list[Example]:
    """The median episode of the heavy (or medium) and of the light class, and the headline method's
    worst one.
    """
    costs = group.costs(headline, penalties)
    found = []
    for load in (Load.HEAVY, Load.MEDIUM, Load.LIGHT):
        rows = np.flatnonzero(group.mask(load.value))
        if len(rows):
            middle = rows[np.argsort(costs[rows], kind="stable")[len(rows) // 2]]
            found.append(
                Example(
                    f"{load.value.capitalize()} load, the median for {headline}",
                    group.trials[int(middle)],
                )
            )
    worst = int(np.argmax(costs - group.costs(ORACLE, penalties)))
    return [*found, Example(f"The worst for {headline}", group.trials[worst])]


def timeline(
    trial: EpisodeTrial, methods: Sequence[str], headline: str, penalties: Penalties
) -> Markup:
    """One episode; hours count from the predecessor's end."""
    episode = trial.episode
    chosen = {name: trial.choices[name, penalties] for name in methods}
    releases_s = [_release_s(trial, point) for point in chosen.values()]
    starts_s = [int(episode.successor_start_s[point]) for point in chosen.values()]
    first_s = min(min(releases_s), min(starts_s), episode.predecessor_end_s) - BEFORE_S
    last_s = max(max(starts_s), episode.predecessor_end_s) + AFTER_S
    across = Scale(first_s, last_s, LEFT, WIDTH - RIGHT)
    top = QUEUE_BOTTOM + 12
    bottom = top + ROW * (1 + len(methods))
    parts = [*_queue(trial, across, first_s), *_predecessor(trial, across, top)]
    for index, name in enumerate(methods):
        style = "name chosen" if name == headline else "name"
        middle = top + ROW * (index + 1) + ROW / 2
        parts += [text(LEFT - 8, middle + 4, name, style, "end")]
        parts += _successor(trial, chosen[name], across, middle)
    end = across(episode.predecessor_end_s)
    parts += [
        line(end, QUEUE_TOP, end, bottom, "end"),
        *_hours(across, episode.predecessor_end_s, bottom),
    ]
    words = "; ".join(f"{name}: {_outcome(trial.gap_s(point))}" for name, point in chosen.items())
    return chart(bottom + 36, f"Episode begun {instant(episode.begin_s)}", words, parts)


def _release_s(trial: EpisodeTrial, point: int) -> int:
    episode = trial.episode
    return int(episode.decision_s[point]) if point < len(episode) else episode.predecessor_end_s


def _queue(trial: EpisodeTrial, across: Scale, first_s: int) -> Iterator[str]:
    """Queued jobs up to the last decision point: that is all that an episode keeps."""
    queued = trial.episode.rows[:, 0]
    at_s = trial.episode.decision_s[0] + STEP_S * np.arange(1 - HISTORY, len(queued) - HISTORY + 1)
    shown = at_s >= first_s
    at_s, queued = at_s[shown], queued[shown]
    up = Scale(0, max(float(queued.max(initial=0)), 1.0), QUEUE_BOTTOM, QUEUE_TOP)
    places = [(across(float(x)), up(float(y))) for x, y in zip(at_s, queued, strict=True)]
    if places:
        yield path(
            [(places[0][0], QUEUE_BOTTOM), *places, (places[-1][0], QUEUE_BOTTOM)],
            "queue",
            closed=True,
        )
    yield text(LEFT - 8, QUEUE_BOTTOM - 14, "jobs queued", "name", "end")
    yield text(LEFT - 8, QUEUE_BOTTOM, f"at most {queued.max(initial=0):.0f}", "tick", "end")


def _predecessor(trial: EpisodeTrial, across: Scale, top: float) -> Iterator[str]:
    episode = trial.episode
    left = across(max(episode.predecessor_start_s, across.low))
    right = across(episode.predecessor_end_s)
    yield text(LEFT - 8, top + ROW / 2 + 4, "predecessor", "name", "end")
    yield rect(
        left, top + (ROW - BAR) / 2, right - left, BAR, "predecessor", "the predecessor runs"
    )


def _successor(trial: EpisodeTrial, point: int, across: Scale, middle: float) -> Iterator[str]:
    episode = trial.episode
    release, start = across(_release_s(trial, point)), across(int(episode.successor_start_s[point]))
    end, right = across(episode.predecessor_end_s), WIDTH - RIGHT
    top = middle - BAR / 2
    yield line(release, middle, start, middle, "waiting")
    yield line(release, middle - 5, release, middle + 5, "release")
    yield rect(max(start, end), top, right - max(start, end), BAR, "successor")
    if start > end:
        yield rect(end, top + 3, start - end, BAR - 6, "interruption")
    if start < end:
        yield rect(start, top, end - start, BAR, "overlap")
    yield text(WIDTH - RIGHT + 6, middle + 4, _outcome(trial.gap_s(point)), "value")


def _outcome(gap_s: int) -> str:
    if abs(gap_s) < ON_TIME_S:
        return "on time"
    return f"{hours(abs(gap_s) / HOUR_S)} {'late' if gap_s > 0 else 'early'}"


def _hours(across: Scale, end_s: int, bottom: float) -> Iterator[str]:
    span_h = (across.high - across.low) / HOUR_S
    step_h = next(step for step in (2, 6, 12, 24, 48, 96, 10_000) if span_h / step <= 7)
    first = -int((end_s - across.low) / HOUR_S // step_h)
    for index in range(first, int((across.high - end_s) / HOUR_S // step_h) + 1):
        x = across(end_s + index * step_h * HOUR_S)
        yield line(x, bottom, x, bottom + 4, "axis")
        words = "end" if index == 0 else f"{index * step_h:+d}".replace("-", MINUS)
        yield text(x, bottom + 16, words, "tick", "middle")
    yield text(
        (LEFT + WIDTH - RIGHT) / 2,
        bottom + 32,
        "hours from the predecessor's end",
        "axis-word",
        "middle",
    )
