"""The paper's experiments (section 6), and streams of arrivals: agents against what needs no
learning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mirage.errors import InputError
from mirage.figures.resample import ratio_interval
from mirage.routing import rules, stream
from mirage.routing.advantage import train_on_streams
from mirage.routing.agent import Agent
from mirage.routing.arrivals import Streams, by_window, draw_streams, read_history, stream_sizes
from mirage.routing.dqn import train_on_episodes
from mirage.routing.episode import EpisodeOutcome, draw_episode, play
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import Variant
from mirage.routing.world import Arrival
from slurm_sim.seconds import HOUR_S

PAPER_HOURS = 720
"""Of section 6.2's sum: inefficient power is (1 - utilization) x 720 h x the partition's kilowatts.
"""
BASE = "-p A,B"
"""The rule that ratios are to: each job to all partitions that it fits in."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is done: training episodes and judged ones of the paper's part, judged streams of each
    kind.
    """

    episodes: int = 1000
    judged: int = 100
    streams: int = 20
    trace: Path | None = None
    seed: int = 1
    teams: tuple[tuple[Agent, ...], ...] = ()
    """Agents for the streams, of one training seed each; none: trained for this."""
    known: int = 4
    """Of the judged streams of each kind so many are also routed knowing what comes."""


def evaluate(kinds: Sequence[PartitionKind], plan: Plan, announce: Callable[[str], None]) -> Json:
    """All results as plain data (docs/routing.md). Judged are episodes and streams that no training
    saw.
    """
    stream_sizes(kinds)
    if plan.trace is not None:
        read_history(plan.trace)
    paper = {}
    for number, kind in enumerate(kinds):
        if kind.flavors[-1].servers < kind.servers:
            continue  # no full job, so no episode of the paper's ends
        announce(f"{kind.name}: the paper's episodes")
        paper[kind.name] = paper_part(kind, replace(plan, seed=plan.seed + 1000 * number))
    announce("streams")
    return {
        "seed": plan.seed,
        "plan": {"episodes": plan.episodes, "judged": plan.judged, "streams": plan.streams},
        "trace": plan.trace.name if plan.trace else "",
        "paper": paper,
        "streams": stream_part(kinds, plan, announce),
    }


# --- the paper's episodes
# --------------------------------------------------------------------------------------------


def paper_part(kind: PartitionKind, plan: Plan) -> Json:
    """Both variants trained, every rule judged on the same episodes, and the learning curves."""
    curves: dict[str, list[float]] = {}
    agents: dict[str, Agent] = {}
    for variant in (Variant.PAPER, Variant.OURS):
        curve = curves[f"agent ({variant.value})"] = []
        agents[f"agent ({variant.value})"] = train_on_episodes(
            kind, variant, plan.episodes, seed=plan.seed, report=_noting(curve)
        )
    random = np.random.default_rng([plan.seed, 1])
    lived = [draw_episode(kind, random) for _ in range(plan.episodes)]
    for name in ("naive", "random", "first-fit"):
        curves[name] = [_play(kind, jobs, name, agents, random).utilization for jobs in lived]
    judged = [draw_episode(kind, random) for _ in range(plan.judged)]
    names = ("naive", "random", "first-fit", "best-fit", *agents, "best possible")
    outcomes = {
        name: [_play(kind, jobs, name, agents, random) for jobs in judged] for name in names
    }
    return {
        "rules": {name: _paper_figures(kind, each) for name, each in outcomes.items()},
        "learning": curves,
    }


def _noting(curve: list[float]) -> Callable[[int, EpisodeOutcome], None]:
    return lambda _, outcome: curve.append(outcome.utilization)


def _play(
    kind: PartitionKind,
    jobs: list[Arrival],
    name: str,
    agents: Mapping[str, Agent],
    random: np.random.Generator,
) -> EpisodeOutcome:
    if name == "best possible":
        return rules.best_possible(kind, jobs)
    if name in agents:
        agent = agents[name]
        return play(kind, jobs, rules.agent_rule(agent), masked=agent.variant is Variant.OURS)
    simple = {
        "naive": rules.naive(random),
        "random": rules.random_fit(random),
        "first-fit": rules.first_fit,
        "best-fit": rules.best_fit,
    }
    return play(kind, jobs, simple[name], masked=name != "naive")


def _paper_figures(kind: PartitionKind, outcomes: Sequence[EpisodeOutcome]) -> Json:
    busy_kw = kind.servers * kind.busy_w / 1000
    utilization = float(np.mean([outcome.utilization for outcome in outcomes]))
    wasted_h = [(1 - outcome.utilization) * outcome.run_s / HOUR_S for outcome in outcomes]
    return {
        "utilization": utilization,
        "utilization_least": min(outcome.utilization for outcome in outcomes),
        "run_h": float(np.mean([outcome.run_s for outcome in outcomes])) / HOUR_S,
        "inefficient_kwh": float(np.mean(wasted_h)) * busy_kw,
        "inefficient_kwh_as_paper": (1 - utilization) * PAPER_HOURS * busy_kw,
    }


# --- streams
# ---------------------------------------------------------------------------------------------------------


def stream_part(
    kinds: Sequence[PartitionKind], plan: Plan, announce: Callable[[str], None]
) -> Json:
    """Every rule on the same streams: of the history's last part, and of generated bursts."""
    history = read_history(plan.trace).part(test=True) if plan.trace else None
    teams = plan.teams or (
        train_on_streams(
            kinds, streams=None, trace=plan.trace, seed=plan.seed, report=announce
        ).agents,
    )
    _check_teams(kinds, teams)
    random = np.random.default_rng([plan.seed, 2])
    drawn = {"bursts": draw_streams(kinds, None, plan.streams, random)}
    if history is not None:
        drawn["history"] = draw_streams(kinds, history, plan.streams, random)
    return {
        name: _on_streams(kinds, streams, teams, plan, announce) for name, streams in drawn.items()
    }


def _check_teams(kinds: Sequence[PartitionKind], teams: Sequence[Sequence[Agent]]) -> None:
    names = [kind.name for kind in kinds]
    for team in teams:
        if (own := [agent.kind.name for agent in team]) != names:
            raise InputError(
                f"agents of {', '.join(own)}, but --flavors has {', '.join(names)}; give the file"
                " that they were trained with."
            )


def _on_streams(
    kinds: Sequence[PartitionKind],
    streams: Streams,
    teams: Sequence[Sequence[Agent]],
    plan: Plan,
    announce: Callable[[str], None],
) -> Json:
    simple: dict[str, stream.StreamRule] = {
        BASE: stream.everywhere,
        "first-fit": stream.first_fit,
        "random": stream.random_partition(np.random.default_rng([plan.seed, 3])),
        "least-loaded": stream.least_loaded,
        "best-fit": stream.best_fit,
        "default rule": stream.room_rule,
    }
    found = {}
    for name, rule in simple.items():
        found[name] = [[stream.route_stream(kinds, jobs, rule) for jobs in streams.jobs]]
        announce(f"{name}: {len(streams.jobs)} streams")
    found["agents"] = [
        [stream.route_stream(kinds, jobs, stream.agents_rule(team)) for jobs in streams.jobs]
        for team in teams
    ]
    found["knowing what comes"] = [
        [stream.route_knowing(kinds, jobs) for jobs in streams.jobs[: plan.known]]
    ]
    return {
        name: _stream_figures(seeds, found[BASE][0], streams.windows)
        for name, seeds in found.items()
    }


def _stream_figures(
    seeds: Sequence[Sequence[stream.StreamOutcome]],
    base: Sequence[stream.StreamOutcome],
    windows: Sequence[int],
) -> Json:
    """``seeds``: a list of outcomes, stream by stream, of each training seed; one where none was
    trained. Ratios are to the same streams by ``base``. ``windows``: of each stream.
    """
    outcomes = [outcome for each in seeds for outcome in each]
    completion_s = np.concatenate([outcome.completion_s for outcome in outcomes])
    return {
        "streams": len(seeds[0]),
        "completion_mean_h": float(np.mean(completion_s)) / HOUR_S,
        "completion_p95_h": float(np.percentile(completion_s, 95)) / HOUR_S,
        "wait_mean_h": (
            float(np.mean(np.concatenate([outcome.wait_s for outcome in outcomes]))) / HOUR_S
        ),
        "wait_max_h": max(max(outcome.wait_s) for outcome in outcomes) / HOUR_S,
        "utilization": float(np.mean([outcome.utilization for outcome in outcomes])),
        "energy_kwh": float(np.mean([outcome.energy_kwh for outcome in outcomes])),
        "windows": len(set(windows[: len(seeds[0])])),
        "completion_to_all": _ratio(seeds, base, windows, _completion_s),
        "energy_to_all": _ratio(seeds, base, windows, _energy_kwh),
        "utilization_to_all": _ratio(seeds, base, windows, _utilization),
        "seeds": [_ratio([each], base, windows, _completion_s)[0] for each in seeds],
        "hourly": _hourly(outcomes),
    }


def _completion_s(outcome: stream.StreamOutcome) -> float:
    return float(np.mean(outcome.completion_s))


def _energy_kwh(outcome: stream.StreamOutcome) -> float:
    return outcome.energy_kwh


def _utilization(outcome: stream.StreamOutcome) -> float:
    return outcome.utilization


def _ratio(
    seeds: Sequence[Sequence[stream.StreamOutcome]],
    base: Sequence[stream.StreamOutcome],
    windows: Sequence[int],
    figure: Callable[[stream.StreamOutcome], float],
) -> list[float]:
    """The ratio of the means over windows, and its interval: windows are drawn, and of each the mean
    of its streams and the seeds.
    """
    values = np.array([[figure(outcome) for outcome in each] for each in seeds]).mean(axis=0)
    own = windows[: len(values)]
    mine = by_window(values, own)
    theirs = by_window([figure(outcome) for outcome in base[: len(values)]], own)
    return [float(mine.sum() / theirs.sum()), *ratio_interval(mine, theirs)]


def _hourly(outcomes: Sequence[stream.StreamOutcome]) -> Json:
    """Means at each full hour since the first submission, as long as half of the streams are under
    way.
    """
    lengths = sorted((len(outcome.hourly) for outcome in outcomes), reverse=True)
    hours = range(lengths[(len(lengths) - 1) // 2])
    there = [
        [outcome.hourly[hour] for outcome in outcomes if hour < len(outcome.hourly)]
        for hour in hours
    ]
    return {
        name: [round(float(np.mean([getattr(seen, name) for seen in each])), 4) for each in there]
        for name in stream.Hour._fields
    }
