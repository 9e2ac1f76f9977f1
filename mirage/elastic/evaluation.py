"""`evaluate(plan)`: a policy and the schedulers without learning on the same job sequences."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage.elastic.baselines import Allocator
from mirage.elastic.model import ElasticModel
from mirage.elastic.rollout import ElasticRollout, roll_out
from mirage.elastic.schedule_log import record_schedule, write_log
from mirage.elastic.settings import ElasticSetting, Part
from mirage.elastic.world import Floats
from mirage.figures.estimate import Estimate
from mirage.figures.provenance import file_record, provenance
from mirage.figures.resample import mean_interval, ratio_interval
from mirage.models.recipe import RECIPE

SCHEMA = 1
FEWEST = 3
"""Sequences below which there is no interval."""


@dataclass(frozen=True, kw_only=True)
class ElasticEvaluationPlan:
    """An evaluation."""

    setting: ElasticSetting
    models: Mapping[str, tuple[Path, ElasticModel]]
    """Label -> its folder, and what is in it."""
    against: Sequence[str]
    sequences: int = 10
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class ElasticResult:
    """What each scheduler came to, on the same sequences."""

    rollouts: Mapping[str, ElasticRollout]
    """By scheduler; the models first."""
    models: Sequence[str]
    bound_slots: Floats
    """[B]: each job alone at its best shape."""
    record: dict[str, Any]
    """For `results.json`."""


def evaluate(
    plan: ElasticEvaluationPlan, announce: Callable[[str], None] = lambda _: None
) -> ElasticResult:
    """Runs all schedulers. Raises InputError."""
    for folder, model in plan.models.values():
        model.check(plan.setting, folder)
    started_s, began = time.time(), time.monotonic()
    sequences = plan.setting.sequences(Part.TEST, plan.seed, plan.sequences)
    schedulers = _schedulers(plan)
    rollouts: dict[str, ElasticRollout] = {}
    for name, scheduler in schedulers:
        announce(name)
        rollouts[name] = roll_out(scheduler, plan.setting.world, sequences, seed=plan.seed)
    bound = next(iter(rollouts.values())).bound_slots
    record = {
        "schema": SCHEMA,
        "setting": plan.setting.name,
        "summary": plan.setting.summary,
        "sequences": len(sequences),
        "slot_s": plan.setting.world.slot_s,
        "reference": plan.setting.reference,
        "jobs": len(sequences[0]),
        "models": list(plan.models),
        "lower_bound_slots": float(bound.mean()),
        "schedulers": _records(rollouts, list(plan.models), plan.setting.reference),
        "provenance": _provenance(plan, started_s, time.monotonic() - began),
    }
    return ElasticResult(
        rollouts=rollouts, models=list(plan.models), bound_slots=bound, record=record
    )


def record_first(plan: ElasticEvaluationPlan, path: Path) -> None:
    """Writes the schedule of the first scheduler of `against` on the plan's sequences."""
    setting = plan.setting
    log = record_schedule(
        setting.scheduler(plan.against[0], seed=plan.seed),
        setting.world,
        setting.sequences(Part.TEST, plan.seed, plan.sequences),
        seed=plan.seed,
    )
    write_log(path, log, [kind.name for kind in setting.world.types])


def _schedulers(plan: ElasticEvaluationPlan) -> list[tuple[str, Allocator]]:
    found: list[tuple[str, Allocator]] = [
        (label, model.allocator(name=label)) for label, (_, model) in plan.models.items()
    ]
    names = dict.fromkeys([*plan.against, plan.setting.reference])
    return found + [(name, plan.setting.scheduler(name, seed=plan.seed)) for name in names]


def _records(
    rollouts: Mapping[str, ElasticRollout], models: Sequence[str], reference: str
) -> dict[str, Any]:
    return {
        name: {
            "mean_jct_slots": float(found.mean_jct_slots.mean()),
            "interval": _pair(estimate(found.mean_jct_slots)),
            "per_sequence": found.mean_jct_slots.round(6).tolist(),
            "p95_jct_slots": float(found.p95_jct_slots.mean()),
            "makespan_slots": float(found.makespan_slots.mean()),
            "finished": float(found.finished.mean()),
            "ratio_to": {
                other: _ratio(found.mean_jct_slots, rollouts[other].mean_jct_slots)
                for other in dict.fromkeys([reference, *models])
                if other != name
            },
            "difference_to": {
                other: difference(found.mean_jct_slots, rollouts[other].mean_jct_slots)
                for other in rollouts
                if other != name and (name in models or other in models)
            },
        }
        for name, found in rollouts.items()
    }


def estimate(values: Floats) -> Estimate:
    """The mean over sequences with its 95 % interval."""
    if len(values) < FEWEST:
        return Estimate(float(values.mean()))
    return Estimate(float(values.mean()), *mean_interval(values))


def _pair(of: Estimate) -> list[float] | None:
    return None if of.low is None or of.high is None else [of.low, of.high]


def _ratio(above: Floats, below: Floats) -> dict[str, Any]:
    """Of the means, with the interval of paired resamples."""
    interval = list(ratio_interval(above, below)) if len(above) >= FEWEST else None
    return {"value": float(above.mean() / below.mean()), "interval": interval}


def difference(one: Floats, other: Floats) -> dict[str, Any]:
    """Of paired sequences, in slots; below 0: the first is better."""
    found = estimate(one - other)
    return {"value": found.value, "interval": _pair(found)}


def _provenance(plan: ElasticEvaluationPlan, started_s: float, wall_s: float) -> dict[str, Any]:
    inputs = {
        label: file_record(folder / RECIPE, folder=folder.name)
        for label, (folder, _) in plan.models.items()
    }
    return provenance(
        sys.argv,
        inputs=inputs,
        split={"part": "test", "setting": plan.setting.name},
        seed=plan.seed,
        started_s=started_s,
        wall_s=wall_s,
    )
