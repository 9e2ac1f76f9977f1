"""Whether the model still predicts this cluster: its predictions against what came, over the last
weeks. Pure.

Of calibrated quantiles P(wait < q) <= level <= P(wait <= q). Chains that queue on the same day meet
the same queue, so a day is one observation, however many handovers it had: the share of its waits.
That the mean of n independent shares with expectation p is as far away as x has at most the
probability exp(-n KL(x, p)) (Hoeffding 1963, theorem 1): for any n, and whatever happens within a
day. An alarm is given where that is below FALSE_ALARM over all tests together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from math import inf, log
from typing import Any

from mirage.daemon.impact import Key, pair_of, real_wait_s
from slurm_sim.seconds import DAY_S

Json = Mapping[str, Any]

WINDOW_S = 28 * DAY_S
FEWEST_DAYS = 7
"""With fewer no alarm is given: one bad week-end is no drift."""
FALSE_ALARM = 0.01
"""Probability of any alarm in four weeks if nothing has changed."""
LEVELS = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
MOST_STRANGE = 0.1
"""So many of all decisions may be in states that the model was not trained for."""
_TESTS = 2 * len(LEVELS) + 1
_STRANGE = ("[out-of-range", "[other-cluster", "[no-forecast")
_DECISION = {
    "model",
    "reason",
    "remaining_s",
    "held_back",
    "wait_p10_s",
    "wait_p50_s",
    "wait_p90_s",
}
_HANDOVER = {"released", "entered", "started", "predecessor_ended"}
_PAIR = {"at", "user", "chain", "successor"}
ADVICE = "Run `mirage retrain` (docs/retraining.md)."


class DriftKind(str, Enum):
    TOO_SHORT = "waits-longer-than-predicted"
    TOO_LONG = "waits-shorter-than-predicted"
    STRANGE = "out-of-range"


@dataclass(frozen=True)
class Share:
    """The mean over days of a share of each day's cases."""

    value: float
    days: int
    cases: int

    def is_less_than(self, expected: float) -> bool:
        """Beyond chance; so too below."""
        return self.value < expected and self._is_far_from(expected)

    def is_more_than(self, expected: float) -> bool:
        return self.value > expected and self._is_far_from(expected)

    def _is_far_from(self, expected: float) -> bool:
        return self.days >= FEWEST_DAYS and self.days * _divergence(self.value, expected) > log(
            _TESTS / FALSE_ALARM
        )


@dataclass(frozen=True)
class Alarm:
    kind: DriftKind
    words: str


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Of one model's time in the window. ``model``: its version; empty: the newest decision was
    made without one.
    """

    model: str = ""
    below: Mapping[str, Share] = field(default_factory=dict)
    """By quantile: real waits below the predicted one."""
    at_most: Mapping[str, Share] = field(default_factory=dict)
    """By quantile: real waits at or below the predicted one."""
    strange: Share = Share(0.0, 0, 0)
    """Decisions in states that the model was not trained for."""
    alarms: tuple[Alarm, ...] = ()

    @property
    def words(self) -> str:
        """What to tell people; empty: nothing is amiss."""
        if not self.alarms:
            return ""
        return (
            "The model no longer fits this cluster:"
            f" {'; '.join(alarm.words for alarm in self.alarms)}. {ADVICE}"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _PairHistory:
    """What the log says of one predecessor and successor."""

    decision: Json | None = None
    """The one that was acted on, else the last."""
    is_acted: bool = False
    handover: Json | None = None


@dataclass
class _Log:
    """What the audit log says in the window."""

    pairs: dict[Key, _PairHistory] = field(default_factory=lambda: defaultdict(_PairHistory))
    strange: dict[tuple[str, int], list[bool]] = field(default_factory=lambda: defaultdict(list))
    """By model's version and day: whether each decision was in a state that the model was not
    trained for.
    """
    version: str = ""
    """Of the newest decision's model."""

    def take(self, record: Json) -> None:
        pair = self.pairs[pair_of(record)]
        if record.get("kind") == "decision" and record.keys() >= _DECISION:
            self.version = _version(record)
            _take(pair, record)
            if record["remaining_s"] is not None:
                is_strange = str(record["reason"]).startswith(_STRANGE)
                self.strange[self.version, record["at"] // DAY_S].append(is_strange)
        elif record.get("kind") == "handover" and record.keys() >= _HANDOVER:
            pair.handover = pair.handover or record


def drift(records: Iterable[Json | None], now_s: int) -> Drift:
    """Of the newest model in an audit log (oldest record first), over the four weeks until
    ``now_s``.
    """
    since_s, audit_log = now_s - WINDOW_S, _Log()
    for record in records:
        if record and since_s <= record["at"] <= now_s and record.keys() >= _PAIR:
            audit_log.take(record)
    version = audit_log.version
    if not version:
        return Drift()
    waits = list(_predicted_waits(audit_log.pairs.values(), version))
    below = {
        name: _share((day, wait_s < predicted[name]) for day, wait_s, predicted in waits)
        for name in LEVELS
    }
    at_most = {
        name: _share((day, wait_s <= predicted[name]) for day, wait_s, predicted in waits)
        for name in LEVELS
    }
    strange = _share(
        (day, each)
        for (model, day), decisions in audit_log.strange.items()
        if model == version
        for each in decisions
    )
    return Drift(
        model=version,
        below=below,
        at_most=at_most,
        strange=strange,
        alarms=tuple(_alarms(below, at_most, strange)),
    )


def _version(record: Json) -> str:
    model = record["model"]
    return str(model.get("version", "")) if isinstance(model, Mapping) else ""


def _take(pair: _PairHistory, record: Json) -> None:
    is_acted = record.get("action") == "release" and record["held_back"] is None
    if is_acted or not pair.is_acted:
        pair.decision, pair.is_acted = record, pair.is_acted or is_acted


def _predicted_waits(
    pairs: Iterable[_PairHistory], version: str
) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Day of entering the queue, real wait, and what the model (not what stood in for it) had
    predicted.
    """
    for pair in pairs:
        record, handover = pair.decision, pair.handover
        if record is None or handover is None or _version(record) != version:
            continue
        wait_s, waits = real_wait_s(handover), {name: record[f"wait_{name}_s"] for name in LEVELS}
        if (
            wait_s is not None
            and None not in waits.values()
            and not str(record["reason"]).startswith("[")
        ):
            yield int(handover["entered"]) // DAY_S, wait_s, waits


def _share(cases: Iterable[tuple[int, bool]]) -> Share:
    by_day: dict[int, list[bool]] = defaultdict(list)
    for day, is_so in cases:
        by_day[day].append(is_so)
    shares = [sum(each) / len(each) for each in by_day.values()]
    return Share(
        sum(shares) / len(shares) if shares else 0.0, len(shares), sum(map(len, by_day.values()))
    )


def _alarms(
    below: Mapping[str, Share], at_most: Mapping[str, Share], strange: Share
) -> Iterator[Alarm]:
    longer = [name for name, level in LEVELS.items() if at_most[name].is_less_than(level)]
    shorter = [name for name, level in LEVELS.items() if below[name].is_more_than(level)]
    if longer:
        yield Alarm(
            DriftKind.TOO_SHORT,
            f"jobs wait longer than predicted ({_words(at_most, longer, 'at or below')})",
        )
    if shorter:
        yield Alarm(
            DriftKind.TOO_LONG, f"jobs wait less than predicted ({_words(below, shorter, 'below')})"
        )
    if strange.is_more_than(MOST_STRANGE):
        yield Alarm(
            DriftKind.STRANGE,
            f"{strange.value:.0%} of decisions on {strange.days} days were in states that it was"
            " not trained for",
        )


def _words(shares: Mapping[str, Share], names: Sequence[str], where: str) -> str:
    first = shares[names[0]]
    shown = ", ".join(
        f"{shares[name].value:.0%} {where} the {LEVELS[name]:.0%} quantile" for name in names
    )
    return f"of {first.cases} waits on {first.days} days {shown}"


def _divergence(share: float, expected: float) -> float:
    """Kullback-Leibler, of two Bernoulli distributions; ``expected`` is neither 0 nor 1."""
    parts = ((share, expected), (1 - share, 1 - expected))
    return sum(x * log(x / p) for x, p in parts if x > 0) if 0 <= share <= 1 else inf
