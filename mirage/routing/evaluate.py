"""The paper's experiments (section 6), and streams of arrivals: agents against what needs no
learning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mirage.errors import InputError
from mirage.figures.resample import ratio_interval
from mirage.routing import rules, stream
from mirage.routing.agent import Agent
from mirage.routing.arrivals import Streams, by_window, draw_streams, read_history, stream_sizes
from mirage.routing.dqn import train_on_episodes
from mirage.routing.episode import EpisodeOutcome, draw_episode, play
from mirage.routing.flavors import PartitionKind
from mirage.routing.world import Arrival
from slurm_sim.seconds import HOUR_S

PAPER_HOURS = 720
"""Of section 6.2's sum: inefficient power is (1 - utilization) x 720 h x the partition's kilowatts.
"""
BASE = "-p A,B"
"""The rule that ratios are to: each job to all partitions that it fits in."""
NICE_PART = 3
SIMPLE: dict[str, tuple[stream.StreamRule, stream.Nice | None]] = {
    "one partition": (stream.one_partition, None),
    "all_partitions": (stream.every_partition, None),
    BASE: (stream.everywhere, None),
    f"{BASE} --nice": (stream.everywhere, stream.by_gpu_minutes),
    f"{BASE} --nice, a third": (
        stream.everywhere,
        lambda demand: stream.by_gpu_minutes(demand) // NICE_PART,
    ),
}
"""Rules without agents, and each job's `--nice`: minutes of its limit times its GPUs, or a part of it
that was chosen on streams which are not judged.
"""
Json = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is done: training episodes and judged ones of the paper's part, judged streams of each
    kind.
    """

    episodes: int = 1000
    judged: int = 100
    streams: int = 20
    traces: tuple[Path, ...] = ()
    """Histories whose last parts are judged, beside bursts."""
    seed: int = 1
    teams: tuple[tuple[Agent, ...], ...] = ()
    """Agents for the streams, of one training seed each; none: rules alone."""
    known: int = 4
    """Of the judged streams of each kind so many are also routed knowing what comes."""
    lessons: tuple[str, ...] = ("paper", "streams")
    """The parts: the paper's episodes, streams."""


def evaluate(kinds: Sequence[PartitionKind], plan: Plan, announce: Callable[[str], None]) -> Json:
    """All results as plain data (docs/routing.md). Judged are episodes and streams that no training
    saw.
    """
    stream_sizes(kinds)
    for trace in plan.traces:
        read_history(trace)
    paper = {}
    for number, kind in enumerate(kinds if "paper" in plan.lessons else ()):
        if kind.flavors[-1].servers < kind.servers:
            continue  # no full job, so no episode of the paper's ends
        announce(f"{kind.name}: the paper's episodes")
        paper[kind.name] = paper_part(kind, replace(plan, seed=plan.seed + 1000 * number))
    streams = stream_part(kinds, plan, announce) if "streams" in plan.lessons else {}
    return {
        "seed": plan.seed,
        "plan": {"episodes": plan.episodes, "judged": plan.judged, "streams": plan.streams},
        "traces": [trace.name for trace in plan.traces],
        "paper": paper,
        "streams": streams,
    }


# --- the paper's episodes
# --------------------------------------------------------------------------------------------


def paper_part(kind: PartitionKind, plan: Plan) -> Json:
    """An agent trained, and every rule judged on the same episodes."""
    agent = train_on_episodes(kind, plan.episodes, seed=plan.seed)
    random = np.random.default_rng([plan.seed, 1])
    judged = [draw_episode(kind, random) for _ in range(plan.judged)]
    names = ("naive", "random", "first-fit", "agent", "best possible")
    outcomes = {name: [_play(kind, jobs, name, agent, random) for jobs in judged] for name in names}
    return {name: _paper_figures(kind, each) for name, each in outcomes.items()}


def _play(
    kind: PartitionKind,
    jobs: list[Arrival],
    name: str,
    agent: Agent,
    random: np.random.Generator,
) -> EpisodeOutcome:
    if name == "best possible":
        return rules.best_possible(kind, jobs)
    rule = {
        "naive": rules.naive(random),
        "random": rules.random_fit(random),
        "first-fit": rules.first_fit,
        "agent": rules.agent_rule(agent),
    }[name]
    return play(kind, jobs, rule, masked=name not in ("naive", "agent"))


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
    _check_teams(kinds, plan.teams)
    random = np.random.default_rng([plan.seed, 2])
    drawn = {"bursts": draw_streams(kinds, None, plan.streams, random)}
    for trace in plan.traces:
        history = read_history(trace).part(test=True)
        drawn[trace.name] = draw_streams(kinds, history, plan.streams, random)
    return {name: _on_streams(kinds, streams, plan, announce) for name, streams in drawn.items()}


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
    plan: Plan,
    announce: Callable[[str], None],
) -> Json:
    found = {}
    for name, (rule, nice) in SIMPLE.items():
        found[name] = [[stream.route_stream(kinds, jobs, rule, nice) for jobs in streams.jobs]]
        announce(f"{name}: {len(streams.jobs)} streams")
    if plan.teams:
        found["agents"] = [
            [stream.route_stream(kinds, jobs, stream.agents_rule(team)) for jobs in streams.jobs]
            for team in plan.teams
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
        "slowdown_mean": float(np.mean([each.slowdown_mean for each in outcomes])),
        "slowdown_to_all": _ratio(seeds, base, windows, _slowdown),
        "energy_to_all": _ratio(seeds, base, windows, _energy_kwh),
        "utilization_to_all": _ratio(seeds, base, windows, _utilization),
        "seeds": [_ratio([each], base, windows, _completion_s)[0] for each in seeds],
    }


def _completion_s(outcome: stream.StreamOutcome) -> float:
    return float(np.mean(outcome.completion_s))


def _slowdown(outcome: stream.StreamOutcome) -> float:
    return outcome.slowdown_mean


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
