"""Figures 10 and 15 to 18, and Table 2: trainings beside each other.

Which trainings belong to a figure only their maker can say: `--figure 16=copy,online,srtf`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mirage.elastic.evaluation import ElasticEvaluationPlan, ElasticResult, estimate
from mirage.errors import InputError
from mirage.figures.charts import Curve, bar_chart, curve_chart, curve_style, plane
from mirage.figures.page import Picture

TITLES = {
    "10": "Figure 10: with one phase of training and with both",
    "15": "Figure 15: job types that come in later",
    "16": "Figure 16: other schedulers as teachers",
    "17": "Figure 17: places of a batch",
    "18": "Figure 18: number of clusters",
    "table2": "Table 2: without one of the techniques",
}
_NO_TEACHER = ("start", "supervised", "online")
"""Phases among a model's references; the others are schedulers."""


@dataclass(frozen=True, kw_only=True)
class TrainingFigure:
    """Policies, and schedulers to compare them with, of one figure."""

    title: str
    names: Sequence[str]


def read_figure(word: str, names: Collection[str]) -> TrainingFigure:
    """Of `NUMBER=NAME,NAME`; ``names``: those of the comparison. Raises InputError."""
    number, _, listed = word.partition("=")
    if number not in TITLES:
        raise InputError(f"--figure {word}: no figure {number!r}; there are {', '.join(TITLES)}.")
    chosen = [name for name in listed.split(",") if name]
    if not chosen:
        raise InputError(f"--figure {word}: no names; give {number}=NAME,NAME.")
    for name in chosen:
        if name not in names:
            raise InputError(
                f"--figure {word}: {name!r} is no --model and not in --against; there are"
                f" {', '.join(names)}."
            )
    return TrainingFigure(title=TITLES[number], names=chosen)


def training_pictures(
    plan: ElasticEvaluationPlan, result: ElasticResult, figures: Sequence[TrainingFigure]
) -> list[Picture]:
    """The learning curves of all policies; for each figure its bars and its curves."""
    words = "Learning curves: validation during the training"
    found = learning_curves(plan, list(plan.models), words)
    for figure in figures:
        rows = [(name, estimate(result.rollouts[name].mean_jct_slots)) for name in figure.names]
        chart = bar_chart(rows, title=figure.title, show="{:.2f}".format)
        small = "Mean completion time in slots on the sequences of the comparison."
        found.append(Picture(figure.title, small, chart))
        found += learning_curves(plan, figure.names, f"{figure.title}, during the training")
    return found


def learning_curves(plan: ElasticEvaluationPlan, names: Sequence[str], title: str) -> list[Picture]:
    """Validation of the policies among ``names``; nothing where none has a curve."""
    curves, levels = [], []
    for nth, (label, (_, model)) in enumerate(plan.models.items()):
        if label not in names or not model.curve:
            continue
        points = [(float(each.round), each.slots) for each in model.curve]
        before = model.references.get("supervised", model.references.get("start"))
        if before is not None:
            points.insert(0, (0.0, before))
        curves.append(Curve(name=label, style=curve_style(nth), points=points))
        levels += [each for each in model.references.items() if each[0] not in _NO_TEACHER]
    if not curves:
        return []
    across = "rounds of online learning"
    axes = plane(curves, across_words=across, up_words="completion, slots", from_zero=False)
    small = "Round 0: before it, mostly after the supervised phase. Dashed: the teacher."
    shown = curve_chart(curves, axes, title=title, levels=list(dict.fromkeys(levels)))
    return [Picture(title, small, shown)]
