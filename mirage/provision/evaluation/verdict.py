"""Whether a new model may take the place of the one at work, from the same held-out episodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirage.provision.evaluation.comparison import Comparison
from mirage.provision.evaluation.metrics import ALL, Difference
from mirage.provision.evaluation.report.words import nodes_words

RULE = (
    "the new model takes over if, on the part of the history that it has not seen, its penalty is"
    " on average not above the other's, and for no pair of weights above it beyond chance (95 %"
    " interval)"
)
_ROUNDING_H = 1e-9


@dataclass(frozen=True)
class ModelVerdict:
    takes_over: bool
    why: str
    differences: tuple[Difference, ...]
    """New minus old: by size and penalties, over all load classes."""
    episodes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": RULE,
            "why": self.why,
            "episodes": self.episodes,
            "differences": list(map(asdict, self.differences)),
        }


def verdict(comparison: Comparison, new: str, old: str) -> ModelVerdict:
    """``new`` and ``old``: names of methods in the comparison."""
    found = tuple(
        _of(row, new)
        for row in comparison.differences
        if row.load == ALL and {row.method, row.than} == {new, old}
    )
    episodes = sum(len(group.trials) for group in comparison.groups)
    takes_over, why = _judged(found)
    return ModelVerdict(takes_over, why, found, episodes)


def _of(row: Difference, new: str) -> Difference:
    return row if row.method == new else row.reversed()


def _judged(rows: Sequence[Difference]) -> tuple[bool, str]:
    if not rows or any(row.penalty_h.low is None for row in rows):
        return (
            False,
            "the part of the history to judge by is too short for an interval; give more days",
        )
    worse = [
        row for row in rows if row.penalty_h.low is not None and row.penalty_h.low > _ROUNDING_H
    ]
    if worse:
        return (
            False,
            (
                f"it is worse beyond chance at {_where(worse[0])}: {worse[0].penalty_h.value:+.2f}"
                " h of penalty"
            ),
        )
    # Each pair of weights counts alike: 4:1 would else count for two and a half times as much as
    # 1:1.
    mean_h = sum(row.penalty_h.value / _weights(row) for row in rows) / len(rows)
    if mean_h > _ROUNDING_H:
        return False, f"it is {mean_h:.3f} h of weighted penalty worse on average"
    return (
        True,
        (
            f"it is {-mean_h:.3f} h of weighted penalty better on average"
            if mean_h < 0
            else "both are equal"
        ),
    )


def _weights(row: Difference) -> float:
    return sum(map(float, row.penalties.split(":")))


def _where(row: Difference) -> str:
    return f"{nodes_words(row.nodes)}, {row.penalties}"
