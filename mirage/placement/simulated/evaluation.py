"""Agents and baselines on the same test sequences, which no training saw (section 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mirage.figures.resample import mean_interval, ratio_interval
from mirage.placement.simulated.baselines import Placer
from mirage.placement.simulated.rollout import PlacementRollout, roll_out
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Floats, Ints

Json = dict[str, Any]
GANTT_STEPS = 60


@dataclass(frozen=True, kw_only=True)
class PlacementPlan:
    """What is evaluated."""

    setting: PlacementSetting
    placers: Sequence[Placer]
    sequences: int = 20
    seed: int = 1


def evaluate(plan: PlacementPlan, announce: Callable[[str], None]) -> Json:
    """All results as plain data (docs/placement.md)."""
    setting = plan.setting
    jobs = setting.sequences(plan.seed, "test", plan.sequences)
    found: dict[str, PlacementRollout] = {}
    for placer in plan.placers:
        announce(placer.name)
        found[placer.name] = roll_out(placer, setting.config, jobs)
    best = min(found.values(), key=lambda each: float(each.mean_slowdown.mean()))
    return {
        "setting": setting.facts(),
        "sequences": plan.sequences,
        "schedulers": {name: _figures(each, best.mean_slowdown) for name, each in found.items()},
        "best_slowdown": best.scheduler,
    }


def _figures(rollout: PlacementRollout, best: Floats) -> Json:
    slowdown, reward = rollout.mean_slowdown, rollout.first_return
    return {
        "mean_reward": float(reward.mean()),
        "mean_reward_95": list(mean_interval(reward)),
        "mean_slowdown": float(slowdown.mean()),
        "mean_slowdown_95": list(mean_interval(slowdown)),
        "slowdown_to_best": float(slowdown.sum() / best.sum()),
        "slowdown_to_best_95": list(ratio_interval(slowdown, best)),
        "finished": float(rollout.finished.mean()),
        "decision_ms": rollout.decision_ms,
        "steps": rollout.steps,
    }


def gantt(placer: Placer, setting: PlacementSetting, seed: int) -> list[list[int]]:
    """The job of each GPU in the first time steps of a test sequence, [steps, M]; -1: none."""
    world = PlacementWorld(
        replace(setting.config, leave_slots=placer.leaves_slots), setting.sequences(seed, "test", 1)
    )
    placer.reset(world)
    rows: list[list[int]] = []
    while len(rows) < GANTT_STEPS and not world.over.all():
        action = placer.decide(world)
        rows.append(_jobs(world, action))
        world.step(action)
    return rows


def _jobs(world: PlacementWorld, action: Ints) -> list[int]:
    held = world.assignment(action)[0]
    owner = np.where(held.any(axis=0), world.slot_job[0][held.argmax(axis=0)], -1)
    jobs: list[int] = owner.tolist()
    return jobs


def verdict(results: Mapping[str, Any], agent: str) -> str:
    """A sentence: the agent's slowdown beside the best of the others."""
    rows = {name: row["mean_slowdown"] for name, row in results["schedulers"].items()}
    others = {name: value for name, value in rows.items() if name != agent}
    words = f"Mean slowdown of {agent}: {rows[agent]:.2f}"
    if not others:
        return words
    best = min(others, key=others.__getitem__)
    return f"{words}; of {best}, the best of the others: {others[best]:.2f}"
