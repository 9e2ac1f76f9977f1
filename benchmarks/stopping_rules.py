"""What the stopping rule could gain on one law of the wait, by cross-validation.

    python -m benchmarks.stopping_rules --samples DIR --trace T [--law mlp-law] [--rules NAME ...]

DIR is `mirage train --samples`'s, with laws of `benchmarks.learning_cv`. Each row is a rule, and its
paired difference to the rule of `law.py` on the same law. No rule looks at what comes after its
decision, but for those named `bound`. The summary goes to benchmarks/stopping_rules.json.

- `recalibrated by own pairs`: each level of the law is renamed to the share of the last week's waits
  that were below it, among the pairs that the rule released. A wait counts from when it is known to
  be above or below the level.
- `recalibrated by all decisions`: the same from a release at every hour of the other pairs, more
  than a service can know.
- `recalibrated by ordinary jobs`: the same from the jobs of the trace that were submitted within
  `NEAR_S` of a decision point of another pair and are like its successor: as many nodes, and a limit
  from half to twice as long. A service knows their waits.
- `early ends`: the rule weighs all ends that the predecessor may have, by the shares they have in
  the drawing. `bound: ends known`: the end is told.
- `bound: waits known`: the waits are told, the end is not.

Recalibration is judged on pairs of the logged queue, since augmented ones have queues of their own.
`light` has the overlap under light load by the plain rule, and apart from it the pairs at whose
decisions no release would have waited for 10 minutes: there no queue came by. Both are
given for `quantile`, too.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_cv import Case, by_ends, chances, has_points
from mirage.domain import Penalties
from mirage.provision.learn.card import TASTES
from mirage.provision.learn.drawing import Mix
from mirage.provision.learn.episode import STEP_S, Episode, Floats, Ints, Load
from mirage.provision.learn.law import DURATIONS_S, LONGEST_S, Law, assess
from mirage.provision.learn.model import DEFAULT_TRAITS, Flags, States, would_start_now
from slurm_sim.seconds import DAY_S, HOUR_S

RESULT = Path("benchmarks/stopping_rules.json")
LEVELS = np.array((0.1, 0.5, 0.9))
"""That a decision of the service keeps."""
WINDOW_S, PRIOR = 7 * DAY_S, 5
"""How old a wait may be that calibrates, and how many waits the law itself counts as."""
EARLIEST = 0.25
"""Of the limit: no predecessor of the drawing ends before."""
NEAR_S, ALIKE = 600, 2.0
"""How near a like job is to a decision point, and by what factor its limit may differ."""
ENDS = 10
"""Early ends that stand for all."""


class _Guarded:
    """A model as far as the guard asks one: it uses forecasts."""

    traits = DEFAULT_TRAITS


_GUARDED: Any = _Guarded()


@dataclass(frozen=True)
class Pair:
    """An episode with its law."""

    episode: Episode
    law: Floats
    """(T, durations): chances of a longer wait."""

    def states(self, taste: Penalties) -> States:
        return States.of(self.episode, taste.interruption, taste.overlap)

    def chosen(self, release: Flags, taste: Penalties) -> int:
        """Which outcome is that of a rule that wants to release at these decision points."""
        allowed = release & ~would_start_now(_GUARDED, self.states(taste))
        return int(allowed.argmax()) if allowed.any() else len(self.episode)

    def spent_h(self, release: Flags, taste: Penalties) -> float:
        """Hours at e_I + e_O = 1 of such a rule."""
        costs_s = self.episode.costs_s(taste)[self.chosen(release, taste)]
        return float(costs_s / ((taste.interruption + taste.overlap) * HOUR_S))


Rule = Callable[[Pair, Penalties], Flags]


def plain(pair: Pair, taste: Penalties) -> Flags:
    return assess(Law.of_chances(pair.law), pair.states(taste)).release


Waits = tuple[Floats, Floats, Floats]
"""Since when, and how long, (n,) each; and the law's `LEVELS` of them, (n, levels)."""


def own_release(pair: Pair) -> Waits:
    """That of the plain rule at 1:1."""
    release = plain(pair, TASTES[0])
    at = np.array([int(release.argmax()) if release.any() else len(release) - 1])
    return _waits_of(pair, at, pair.episode.decision_s[at], pair.episode.waits_s[at])


def every_hour(pair: Pair) -> Waits:
    """Of a release at each hour."""
    at = np.arange(0, len(pair.episode), 6)
    return _waits_of(pair, at, pair.episode.decision_s[at], pair.episode.waits_s[at])


class OrdinaryJobs:
    """Jobs of a trace, by submission."""

    def __init__(self, trace: Path) -> None:
        with gzip.open(trace, "rt", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["state"] != "CANCELLED"]
        columns = ("submit", "start", "nodes", "timelimit_s")
        table = np.array([[float(row[name] or 0) for name in columns] for row in rows])
        self._table = table[np.argsort(table[:, 0], kind="stable")]

    def __call__(self, pair: Pair) -> Waits:
        """Of jobs like the successor, each by the law of the decision point before it."""
        successor, decision_s = pair.episode.pair.successor, pair.episode.decision_s
        submit_s, start_s, nodes, limit_s = self._table.T
        at = np.searchsorted(decision_s, submit_s, side="right") - 1
        is_like = (nodes == successor.nodes) & (limit_s <= ALIKE * successor.time_limit_s)
        is_like &= (limit_s * ALIKE >= successor.time_limit_s) & (at >= 0)
        is_like &= submit_s - decision_s[np.maximum(at, 0)] < NEAR_S
        waits_s = (start_s - submit_s)[is_like]
        return _waits_of(pair, at[is_like], submit_s[is_like], waits_s)


def _waits_of(pair: Pair, at: Ints, since_s: Any, waits_s: Any) -> Waits:
    """``at``: the decision points whose law they are held to."""
    law = Law.of_chances(pair.law[at])
    levels_s = np.stack([law.quantile_s(np.full(len(at), level)) for level in LEVELS], axis=1)
    return np.asarray(since_s, dtype=float), np.asarray(waits_s, dtype=float), levels_s


class Recalibrated:
    """Renames the law's levels by waits that are known at each decision."""

    def __init__(self, pairs: Sequence[Pair], observe: Callable[[Pair], Waits]) -> None:
        """``observe``: the waits that calibrate, of a pair; all of a pair count as one."""
        parts = [observe(pair) for pair in pairs]
        self._whose = np.repeat(
            [pair.episode.begin_s for pair in pairs], [len(it[0]) for it in parts]
        )
        self._at_s, self._waits_s, self._levels_s = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        self._weight = np.concatenate([np.full(len(it[0]), 1 / max(len(it[0]), 1)) for it in parts])

    def coverage(self, now_s: float, whose: int) -> Floats:
        """(levels,): the share of waits below each level, rising."""
        near = (self._at_s >= now_s - WINDOW_S) & (self._at_s < now_s) & (self._whose != whose)
        at_s, waits_s, levels_s = (
            self._at_s[near, None],
            self._waits_s[near, None],
            self._levels_s[near],
        )
        is_known = at_s + np.minimum(waits_s, levels_s) <= now_s
        in_question = (levels_s >= STEP_S) | (waits_s >= STEP_S)
        weight = self._weight[near, None] * (is_known & in_question)
        below = (weight * (waits_s <= levels_s)).sum(axis=0)
        return np.maximum.accumulate((PRIOR * LEVELS + below) / (PRIOR + weight.sum(axis=0)))

    def __call__(self, pair: Pair, taste: Penalties) -> Flags:
        episode, renamed = pair.episode, np.empty_like(pair.law, dtype=np.float64)
        for first in range(0, len(episode), 6):
            part = slice(first, first + 6)
            shares = self.coverage(float(episode.decision_s[first]), episode.begin_s)
            renamed[part] = 1 - np.interp(1 - pair.law[part], [0, *LEVELS, 1], [0, *shares, 1])
        return plain(replace(pair, law=renamed), taste)


def _onto_steps(most: int) -> Floats:
    """(durations + 2, steps): a law's knots onto multiples of a step."""
    knots_s = np.concatenate([[0], DURATIONS_S, [LONGEST_S]])
    steps_s = np.arange(most) * STEP_S
    return np.stack([np.interp(steps_s, knots_s, row) for row in np.eye(len(knots_s))])


_STEPS = _onto_steps(int(LONGEST_S // STEP_S) + 1)


def _costs_h(pair: Pair, taste: Penalties) -> Floats:
    """(T, steps): of a release so many steps before the end."""
    falling = np.minimum.accumulate(np.clip(pair.law.astype(np.float64), 0, 1), axis=1)
    ends = np.ones((len(falling), 1)), np.zeros((len(falling), 1))
    longer = np.concatenate([ends[0], falling, ends[1]], axis=1) @ _STEPS
    parts = (longer[:, 1:] + longer[:, :-1]) / 2 * STEP_S / HOUR_S
    beyond = np.concatenate(
        [parts[:, ::-1].cumsum(axis=1)[:, ::-1], np.zeros((len(longer), 1))], axis=1
    )
    left_h = np.arange(beyond.shape[1]) * STEP_S / HOUR_S
    return taste.interruption * beyond + taste.overlap * (left_h - beyond[:, :1] + beyond)


def early_ends(share: float) -> Rule:
    """The rule that knows how many predecessors end early."""

    def rule(pair: Pair, taste: Penalties) -> Flags:
        costs_h = _costs_h(pair, taste)
        limit = pair.episode.pair.predecessor.time_limit_s / STEP_S
        left = pair.episode.remaining_s / STEP_S
        age = limit - left
        since = np.maximum(age, EARLIEST * limit)
        part = share * (limit - since) / ((1 - EARLIEST) * limit)
        early = part / (part + 1 - share)
        middles = (np.arange(ENDS) + 0.5) / ENDS
        ends = (since - age)[:, None] + (limit - since)[:, None] * middles
        ends = np.rint(np.concatenate([ends, left[:, None]], axis=1)).astype(np.int64)
        shares = np.concatenate([np.tile(early[:, None] / ENDS, ENDS), 1 - early[:, None]], axis=1)

        def after(waits: int) -> Floats:
            return (np.take_along_axis(costs_h, np.maximum(ends - waits, 0), 1) * shares).sum(
                axis=1
            )

        later_h = np.min([after(waits) for waits in _waits(int(left.max()))], axis=0)
        return (after(0) < later_h) & (left > 0)

    return rule


def _waits(most: int) -> Iterator[int]:
    """Waits that are compared: each of the first hour, then ever fewer."""
    waits = 1
    while waits < most:
        yield waits
        waits += max(1, waits // 6)
    yield max(most, 1)


def ends_known(pair: Pair, taste: Penalties) -> Flags:
    left_s = pair.episode.predecessor_end_s - pair.episode.decision_s
    return assess(Law.of_chances(pair.law), replace(pair.states(taste), remaining_s=left_s)).release


def waits_known(pair: Pair, taste: Penalties) -> Flags:
    """The release that is best if the predecessor runs to its limit."""
    episode = pair.episode
    ahead_s = episode.successor_start_s[:-1] - episode.decision_s - episode.remaining_s
    costs_s = taste.interruption * np.maximum(ahead_s, 0) + taste.overlap * np.maximum(-ahead_s, 0)
    return np.arange(len(episode)) == len(episode) - 1 - int(np.argmin(costs_s[::-1]))


def rules(pairs: Sequence[Pair], trace: Path) -> Iterator[tuple[str, Sequence[Pair], Rule]]:
    logged = [pair for pair in pairs if not pair.episode.tags.get("augmentation")]
    yield "recalibrated by own pairs", logged, Recalibrated(logged, own_release)
    yield "recalibrated by all decisions", logged, Recalibrated(logged, every_hour)
    yield "recalibrated by ordinary jobs", logged, Recalibrated(logged, OrdinaryJobs(trace))
    yield "early ends", pairs, early_ends(Mix.early)
    yield "bound: ends known", pairs, ends_known
    yield "bound: waits known", pairs, waits_known


def spent_by(pairs: Sequence[Pair], rule: Rule) -> Floats:
    return np.array(
        [[pair.spent_h(rule(pair, taste), taste) for pair in pairs] for taste in TASTES]
    )


def row(name: str, pairs: Sequence[Pair], rule: Rule) -> dict[str, Any]:
    """With the pairs to their limit apart from those that end early."""
    mine, theirs = spent_by(pairs, rule), spent_by(pairs, plain)
    return {"rule": name, **by_ends(mine, theirs, [pair.episode for pair in pairs])}


def light(pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    """Of the logged pairs under light load: mean interruption and overlap of the plain rule."""
    calm = [
        pair
        for pair in pairs
        if pair.episode.load is Load.LIGHT and not pair.episode.tags.get("augmentation")
    ]
    came_by = np.array([bool((pair.episode.waits_s >= STEP_S).any()) for pair in calm])
    for taste in TASTES:
        at = [pair.chosen(plain(pair, taste), taste) for pair in calm]
        ends = zip(calm, at, strict=True)
        hours = np.array(
            [[it.episode.interruption_s[k], it.episode.overlap_s[k]] for it, k in ends]
        )
        for name, mask in (("all", came_by | True), ("no queue came by", ~came_by)):
            mean_h = hours[mask].mean(axis=0) / HOUR_S
            yield {
                "penalties": f"{taste.interruption:g}:{taste.overlap:g}",
                "pairs": name,
                "episodes": int(mask.sum()),
                "interruption_h": round(float(mean_h[0]), 3),
                "overlap_h": round(float(mean_h[1]), 3),
            }


def pairs_of(law: str, samples: Path) -> list[Pair]:
    """By the first seed's cross-validation."""
    laws = chances(Case(method=law), samples, 1)
    assert laws is not None, f"{law} forecasts no law of the wait"
    episodes = has_points(samples / "train")
    return [Pair(episode, chance) for episode, chance in zip(episodes, laws, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--law", default="mlp-law")
    parser.add_argument("--rules", nargs="*", help="only these; other rows are kept")
    args = parser.parse_args()
    pairs = pairs_of(args.law, args.samples)
    calm = {law: list(light(pairs_of(law, args.samples))) for law in (args.law, "quantile")}
    kept = json.loads(RESULT.read_text())["rows"] if args.rules is not None else []
    found = {"law": args.law, "light": calm, "rows": kept}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    for name, chosen, rule in rules(pairs, args.trace):
        if args.rules is not None and name not in args.rules:
            continue
        kept = [*(each for each in kept if each["rule"] != name), row(name, chosen, rule)]
        RESULT.write_text(json.dumps(found | {"rows": kept}, indent=1) + "\n")
        for line in kept[-1]["all ends"]:
            print(name, *line.values(), flush=True)


if __name__ == "__main__":
    main()
