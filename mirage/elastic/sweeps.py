"""Pictures of an evaluation: learning curves, and Figures 13 and 14, which change a world point by
point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mirage.elastic.evaluation import ElasticEvaluationPlan
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import ElasticSetting, Part
from mirage.elastic.workload import draw
from mirage.figures.charts import Curve, curve_chart, curve_style, curve_swatch, plane
from mirage.figures.page import Legend, Picture, Pictures, Section
from mirage.figures.page import Part as PagePart

VARIATIONS = (0.0, 0.1, 0.2, 0.3)
"""Of Figure 13."""
ERRORS = (0.05, 0.15, 0.25)
"""Of Figure 14."""
_NO_TEACHER = ("start", "supervised", "online")
"""Phases among a model's references; the others are schedulers."""
Change = Callable[[ElasticSetting, float], ElasticSetting]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Mean completion time in slots over what is changed."""

    figure: str
    across: str
    values: Sequence[float]
    slots: dict[str, list[float]]
    """By scheduler, one a value."""


def with_variation(setting: ElasticSetting, value: float) -> ElasticSetting:
    """Speeds that vary by this share."""
    return replace(setting, world=replace(setting.world, variation=value))


def with_epoch_error(setting: ElasticSetting, value: float) -> ElasticSetting:
    """Owners' epochs off by up to this share."""
    assert setting.workload is not None
    workload = replace(setting.workload, epoch_error=value)
    return replace(setting, workload=workload, draw=partial(draw, workload))


def sweeps(plan: ElasticEvaluationPlan) -> list[Sweep]:
    """Figures 13 and 14 for the plan's policies and schedulers; none where jobs are given."""
    if plan.setting.workload is None:
        return []
    words = "training speed varies by", "owners' epochs are off by"
    return [
        _sweep(plan, "Figure 13", words[0], VARIATIONS, with_variation),
        _sweep(plan, "Figure 14", words[1], ERRORS, with_epoch_error),
    ]


def _sweep(
    plan: ElasticEvaluationPlan, figure: str, across: str, values: Sequence[float], change: Change
) -> Sweep:
    slots: dict[str, list[float]] = {}
    for value in values:
        setting = change(plan.setting, value)
        sequences = setting.sequences(Part.TEST, plan.seed, plan.sequences)
        schedulers = [model.allocator(name=label) for label, (_, model) in plan.models.items()]
        others = [setting.scheduler(name, seed=plan.seed) for name in plan.against]
        for scheduler in [*schedulers, *others]:
            found = roll_out(scheduler, setting.world, sequences, seed=plan.seed)
            slots.setdefault(scheduler.name, []).append(float(found.mean_jct_slots.mean()))
    return Sweep(figure=figure, across=across, values=values, slots=slots)


def sweeps_record(found: Sequence[Sweep]) -> dict[str, Any]:
    """For `results.json`."""
    return {
        each.figure: {"across": each.across, "values": list(each.values), "slots": each.slots}
        for each in found
    }


def figures_section(plan: ElasticEvaluationPlan, found: Sequence[Sweep]) -> Section:
    """The learning curves of all policies, and the sweeps."""
    pictures = [*_learning_curves(plan), *map(_picture, found)]
    names = list(dict.fromkeys([*plan.models, *(name for each in found for name in each.slots)]))
    legend = [(curve_swatch(curve_style(nth)), name) for nth, name in enumerate(names)]
    parts: list[PagePart] = [Legend(legend), Pictures(pictures)] if pictures else []
    return Section("figures", "Figures of the paper", parts)


def _learning_curves(plan: ElasticEvaluationPlan) -> list[Picture]:
    """Validation of the policies during their trainings; nothing where none has a curve."""
    curves, levels = [], []
    for nth, (label, (_, model)) in enumerate(plan.models.items()):
        if not model.curve:
            continue
        points = [(float(each.round), each.slots) for each in model.curve]
        before = model.references.get("supervised", model.references.get("start"))
        if before is not None:
            points.insert(0, (0.0, before))
        curves.append(Curve(name=label, style=curve_style(nth), points=points))
        levels += [each for each in model.references.items() if each[0] not in _NO_TEACHER]
    if not curves:
        return []
    title = "Learning curves: validation during the training"
    across = "rounds of online learning"
    axes = plane(curves, across_words=across, up_words="completion, slots", from_zero=False)
    small = "Round 0: before it, mostly after the supervised phase. Dashed: the teacher."
    shown = curve_chart(curves, axes, title=title, levels=list(dict.fromkeys(levels)))
    return [Picture(title, small, shown)]


def _picture(sweep: Sweep) -> Picture:
    curves = [
        Curve(
            name=name,
            style=curve_style(nth),
            points=[(100 * x, y) for x, y in zip(sweep.values, values, strict=True)],
        )
        for nth, (name, values) in enumerate(sweep.slots.items())
    ]
    across = f"{sweep.across}, %"
    axes = plane(curves, across_words=across, up_words="completion, slots", from_zero=False)
    title = f"{sweep.figure}: completion time where {sweep.across} so much"
    return Picture(title, "Mean over the sequences.", curve_chart(curves, axes, title=title))
