"""Service pairs by the shipped model as the service asks it: with its guards, on several seeds.

usage: python -m benchmarks.service_pairs --trace CSV [--months 2023-02] [--kinds 48h,mixed]
           [--seeds 1,2,3] [--pairs 20] [--method quantile] [--before DAY]
           [--out benchmarks/service_pairs.json]

A seed draws when pairs begin, at any second of a month. 48h: both jobs have 48 h, on 1 and on 8
nodes in turn. mixed: sizes and limits of all kinds, drawn as for training
(`mirage.provision.learn.drawing.Mix`). A state beyond training is asked at the edge of training.
Where that changes the answer, the fallback decides: `quantile` on recent waits. What would start at
once is held. `plan`: who releases by Slurm's plan alone. Each pair is a row, written as it is
measured; rows that `--out` has are kept. The tables are printed at the end: hours as means over all
seeds, and the cut of each seed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mirage.config import PolicyConfig
from mirage.domain import Action, Penalties
from mirage.models.shipped import shipped
from mirage.provision.chains.run import CLUSTER
from mirage.provision.evaluation.case import Case
from mirage.provision.evaluation.sampling import sample
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import Drawing, Mix, fixed_pair
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.model import States, would_start_now
from mirage.provision.learn.ranges import clipped, outside
from mirage.provision.learn.reporter import SILENT
from mirage.provision.learn.sampler import DropReason
from mirage.provision.learn.times import iso
from mirage.provision.policies.learned import LearnedPolicy, changes_answer
from mirage.provision.policies.registry import make_pair_policy
from slurm_sim.seconds import HOUR_S

TASTES = (Penalties(1, 1), Penalties(4, 1))
TRAINED = ("2022-11-02", "2023-02-01")
"""Of the shipped model; sizes and limits of mixed pairs are those of its jobs."""
FULL = 48 * HOUR_S


def at(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def month(name: str) -> tuple[int, int]:
    """Begin and end."""
    begin = datetime.fromisoformat(f"{name}-01").replace(tzinfo=UTC)
    end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return int(begin.timestamp()), int(end.timestamp())


def drawing(background: Background, kind: str, name: str, seed: int, count: int) -> Drawing:
    begin_s, end_s = month(name)
    return Drawing(
        count=count,
        seed=seed,
        begin_s=begin_s,
        end_s=min(end_s, background.log.last_s),
        pairs=Mix.of(background.log.between(*map(at, TRAINED)), background.cluster)
        if kind == "mixed"
        else (fixed_pair(1, FULL), fixed_pair(8, FULL)),
    )


def choice(policy: LearnedPolicy, case: Case, penalties: Penalties) -> tuple[int, int]:
    """The decision point at which the service releases, and at how many up to there the fallback
    decided.
    """
    states = States.of(case.episode, penalties.interruption, penalties.overlap)
    far = outside(policy.about.ranges, states.matrices, states.remaining_s)
    matrices, left_s = clipped(policy.about.ranges, states.matrices, states.remaining_s)
    said = policy.model.assess(states)
    at_edge = policy.model.assess(replace(states, matrices=matrices, remaining_s=left_s))
    held, fallen = would_start_now(policy.model, states), 0
    for point, words in enumerate(far):
        if words and changes_answer(said, at_edge, point):
            fallen += 1
            advice = policy.fallback.decide(case.observe(point, penalties))
            release = advice.action is Action.RELEASE
        else:
            release = bool((at_edge if words else said).release[point]) and not held[point]
        if release:
            return point, fallen
    return len(case.episode), fallen


def plan_point(episode: Episode) -> int:
    """The first decision point at which Slurm's plan, by time limits and without later arrivals, has
    a wait that is not shorter than the time left.
    """
    return int(np.append(episode.forecast_s >= episode.remaining_s[: len(episode)], True).argmax())


def measured(policy: LearnedPolicy, case: Case) -> dict[str, Any]:
    """What a row has of a pair; hours."""
    episode = case.episode
    row: dict[str, Any] = {
        "nodes": episode.pair.successor.nodes,
        "load": episode.load.value,
        "points": len(episode),
        "reactive_h": round(episode.reactive_wait_s / HOUR_S, 3),
        "plan": outcome(case, plan_point(episode), ""),
    }
    for penalties in TASTES:
        point, fallen = choice(policy, case, penalties)
        row[f"{penalties.interruption:g}:{penalties.overlap:g}"] = {
            "fallback": fallen,
            **outcome(case, point, ""),
            **outcome(case, episode.best(penalties), "oracle_"),
        }
    return row


def outcome(case: Case, point: int, prefix: str) -> dict[str, float]:
    interruption_h = case.episode.interruption_s[point] / HOUR_S
    overlap_h = case.episode.overlap_s[point] / HOUR_S
    return {
        f"{prefix}interruption_h": round(float(interruption_h), 3),
        f"{prefix}overlap_h": round(float(overlap_h), 3),
    }


def summary(rows: Sequence[dict[str, Any]], taste: str) -> dict[str, Any]:
    """Of pairs of one kind and load."""
    reactive_h = np.array([row["reactive_h"] for row in rows])
    plan = [row["plan"]["overlap_h"] for row in rows]
    names = ("interruption_h", "overlap_h", "oracle_interruption_h", "oracle_overlap_h", "fallback")
    values = {name: np.array([row[taste][name] for row in rows]) for name in names}
    weight, other = map(float, taste.split(":"))
    ours = weight * values["interruption_h"] + other * values["overlap_h"]
    best = weight * values["oracle_interruption_h"] + other * values["oracle_overlap_h"]
    seeds = np.array([row["seed"] for row in rows])
    cuts = [
        1 - values["interruption_h"][seeds == seed].sum() / reactive_h[seeds == seed].sum()
        for seed in np.unique(seeds)
        if reactive_h[seeds == seed].sum() > 0
    ]
    gain = float((weight * reactive_h - best).sum())
    return {
        "pairs": len(rows),
        "reactive_h": round(float(reactive_h.mean()), 2),
        **{name: round(float(values[name].mean()), 2) for name in names},
        "cut": round(1 - float(values["interruption_h"].sum() / max(reactive_h.sum(), 1e-9)), 3),
        "oracle_cut": round(
            1 - float(values["oracle_interruption_h"].sum() / max(reactive_h.sum(), 1e-9)), 3
        ),
        "cuts": [round(float(cut), 2) for cut in cuts],
        "plan_overlap_h": round(float(np.mean(plan)), 2),
        "regret": round(float((ours - best).sum()) / gain, 3) if gain > 0.5 * len(rows) else None,
    }


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    keys = sorted({(row["month"], row["kind"], row["load"]) for row in rows})
    for name, kind, load in keys:
        chosen = [
            row for row in rows if (row["month"], row["kind"], row["load"]) == (name, kind, load)
        ]
        for taste in ("1:1", "4:1"):
            head = {"month": name, "kind": kind, "load": load, "penalties": taste}
            yield head | summary(chosen, taste)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--months", default="2023-02")
    parser.add_argument("--kinds", default="48h,mixed")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--pairs", type=int, default=20, help="of each kind, month and seed")
    parser.add_argument("--method", default="quantile")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--before", default="9999", help="day before which printed pairs begin")
    args = parser.parse_args()
    background = read_inputs(args.trace, shipped(CLUSTER) / "cluster.toml", None, SILENT).background
    config = PolicyConfig(name=args.method, model=str(shipped(CLUSTER) / args.method))
    policy = make_pair_policy(config)
    assert isinstance(policy, LearnedPolicy)
    rows = json.loads(args.out.read_text())["pairs"] if args.out.exists() else []
    done = {(row["month"], row["kind"], row["seed"], row["number"]) for row in rows}
    for number in range(args.pairs):
        for name in args.months.split(","):
            for kind in args.kinds.split(","):
                for seed in map(int, args.seeds.split(",")):
                    if (name, kind, seed, number) in done:
                        continue
                    begun_s = time.process_time()
                    plan = drawing(background, kind, name, seed, args.pairs).plan(number)
                    case = sample(background, plan)
                    row = {"month": name, "kind": kind, "seed": seed, "number": number}
                    row["begin"] = iso(plan.begin_s)
                    if isinstance(case, DropReason):
                        row |= {"load": "dropped", "why": case.value}
                    else:
                        row |= measured(policy, case)
                    rows.append(row | {"cpu_s": round(time.process_time() - begun_s, 1)})
                    known = [row for row in rows if row["load"] != "dropped"]
                    record = {"tables": list(tables(known)), "pairs": rows}
                    args.out.write_text(json.dumps(record, indent=1) + "\n")
    known = [row for row in rows if row["load"] != "dropped" and row["begin"] < args.before]
    for line in tables(known):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
