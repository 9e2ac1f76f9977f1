"""What each part of the learning brings (the paper's ablations and ours), on the validation part,
beside the whole.

    python -m benchmarks.ablations --trace T --cluster C --from 2022-11-02 --until 2023-02-01
    --samples DIR [--seeds 1]
        [--only NAME ...]

DIR is `mirage train --samples`'s: its episodes are used again, and those that are drawn otherwise
are kept beside them. Each case is trained as `mirage train` does, and prints one line, which is
also kept in benchmarks/ablations.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mirage.cli.past import background_of, instant
from mirage.figures.resample import Blocks
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.card import TASTES, choice
from mirage.provision.learn.course import Course, held_out
from mirage.provision.learn.episode import HOUR_S, Episode, Load
from mirage.provision.learn.foundation import MOE, Shape
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model
from mirage.provision.learn.samples import Samples, collect

RESULT = Path("benchmarks/ablations.json")
Parts = tuple[Sequence[Episode], Sequence[Episode]]


def with_options(**changes: Any) -> Callable[[Any], Any]:
    return lambda options: replace(options, **changes)


def of_experts(count: int) -> Callable[[Any], Any]:
    """The mixture's experts, as they are, but so many."""
    shape = replace(MOE, experts=count, gate="dense" if count > 1 else "none")
    return lambda options: replace(options, shape=shape)


def quiet(parts: Parts) -> Parts:
    """Stops early by light episodes alone, as an earlier version came to do."""
    return parts[0], [episode for episode in parts[1] if episode.load is Load.LIGHT]


@dataclass(frozen=True)
class Case:
    method: str
    change: Callable[[Any], Any] = lambda options: options
    parts: Callable[[Parts], Parts] = lambda parts: parts
    course: dict[str, Any] = field(default_factory=dict)
    """What else is drawn than by default."""


def alone(kind: str) -> dict[str, Any]:
    """This augmentation, in half of the episodes, and no other."""
    return {"kinds": (kind,)}


PAPER: dict[str, Any] = {"warm_up": WarmUp.PAPER}
CASES = {
    "transformer": Case("transformer"),
    "transformer, without the forecast": Case(
        "transformer", with_options(shape=Shape(forecast_input=False))
    ),
    "transformer, wrong moment": Case("transformer", with_options(moment="start")),
    "transformer, 7 probes": Case("transformer", with_options(probes=7)),
    "transformer, hindsight labels": Case("transformer", with_options(wait="hindsight")),
    "transformer, stopped by quiet weeks": Case("transformer", parts=quiet),
    "transformer, for 1:1 alone": Case("transformer", with_options(share=0.5)),
    "transformer, for 4:1 alone": Case("transformer", with_options(share=0.8)),
    "transformer, warm-up of the paper": Case("transformer", course=PAPER),
    "quantile": Case("quantile"),
    "quantile, warm-up of the paper": Case("quantile", course=PAPER),
    "quantile, as logged": Case("quantile", course={"augmented": 0.0}),
    "quantile, loads alone": Case("quantile", course=alone("load")),
    "quantile, other users alone": Case("quantile", course=alone("users")),
    "quantile, synthetic weeks alone": Case("quantile", course=alone("synthetic")),
    "quantile, twice the episodes": Case("quantile", course={"episodes": 1368}),
    "experts: 1": Case("transformer", of_experts(1)),
    "experts: 5": Case("moe", of_experts(5)),
    "experts: 10": Case("moe"),
    "transformer-dqn": Case("transformer-dqn"),
    "transformer-dqn, not pretrained": Case("transformer-dqn", with_options(pretrained=False)),
    "transformer-dqn, no replay": Case("transformer-dqn", with_options(replay=False)),
    "transformer-dqn, one step ahead": Case("transformer-dqn", with_options(ahead=1)),
    "transformer-pg": Case("transformer-pg"),
    "transformer-pg, not pretrained": Case("transformer-pg", with_options(pretrained=False)),
}


def trained(case: Case, course: Course, samples: Samples, online: Samples | None) -> Model:
    method = METHODS[case.method]
    learnt_from, stop_by = case.parts(held_out(samples, course.seed))
    options = case.change(method.default_options())
    fresh = None if online is None else online.apart_from(stop_by)
    data = TrainingData(
        episodes=learnt_from if method.stops_early else samples,
        held_out=stop_by,
        fresh=fresh,
        seed=course.seed,
    )
    return method.train(data, options)


def judged(model: Model, episodes: Sequence[Episode]) -> Iterator[dict[str, Any]]:
    """Per taste and load: mean penalties in hours at e_I + e_O = 1, the regret, and its 95 %
    interval.
    """
    ordered = sorted(
        (episode for episode in episodes if len(episode)), key=lambda episode: episode.begin_s
    )
    begin_s = np.array([episode.begin_s for episode in ordered])
    waits_h = np.array([episode.reactive_wait_s / HOUR_S for episode in ordered])
    blocks = Blocks.of(begin_s, waits_h, 2000, 1)
    for penalties in TASTES:
        total = (penalties.interruption + penalties.overlap) * HOUR_S
        costs = [episode.costs_s(penalties) / total for episode in ordered]
        chosen = [choice(model, episode, penalties) for episode in ordered]
        mine = np.array([cost[at] for cost, at in zip(costs, chosen, strict=True)])
        best, never = (
            np.array([cost.min() for cost in costs]),
            np.array([cost[-1] for cost in costs]),
        )
        for load in (Load.HEAVY, Load.MEDIUM):
            mask = np.array([episode.load is load for episode in ordered])
            if not mask.any():
                continue
            interval = blocks.interval(mine - best, never - best, mask)
            yield {
                "penalties": f"{penalties.interruption:g}:{penalties.overlap:g}",
                "load": load.value,
                "episodes": int(mask.sum()),
                "penalty_h": round(float(mine[mask].mean()), 3),
                "oracle_h": round(float(best[mask].mean()), 3),
                "reactive_h": round(float(never[mask].mean()), 3),
                "regret": round(float((mine - best)[mask].sum() / (never - best)[mask].sum()), 3),
                "regret_95": None if interval is None else [round(edge, 3) for edge in interval],
            }


def samples_of(
    case: Case, background: Background, course: Course, folder: Path
) -> tuple[Samples, Samples | None, Samples]:
    """(to learn from, to learn online from, to be judged by); the last always with the queue of the
    trace.
    """
    there, workers = folder, os.cpu_count() or 1
    if case.course:
        there = folder / "-".join(f"{name}-{_word(value)}" for name, value in case.course.items())
    learnt = collect(background, course.training(background), there / "train", workers)
    real = replace(course, warm_up=WarmUp.TRACE)
    heads = case.method.endswith(("-dqn", "-pg"))
    online = (
        collect(background, course.online(background), there / "online", workers) if heads else None
    )
    return (
        learnt,
        online,
        collect(background, real.validation(background), folder / "judged", workers),
    )


def _word(value: Any) -> str:
    """For a folder's name."""
    return "-".join(value) if isinstance(value, tuple) else str(getattr(value, "value", value))


def record(row: dict[str, Any]) -> None:
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    rows = [it for it in rows if (it["case"], it["seed"]) != (row["case"], row["seed"])]
    RESULT.write_text(json.dumps([*rows, row], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--cluster", required=True, type=Path)
    parser.add_argument("--from", dest="begin", required=True, type=instant)
    parser.add_argument("--until", required=True, type=instant)
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--judged", type=int, default=120)
    parser.add_argument(
        "--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[1]
    )
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    background, _ = background_of(args)
    for seed in args.seeds:
        for name in args.only:
            case = CASES[name]
            # Episodes are those of seed 1 in all: the seed is that of the training alone.
            course = Course.of(
                background,
                args.begin,
                args.until,
                None,
                validation_episodes=args.judged,
                **case.course,
            )
            samples, online, validation = samples_of(case, background, course, args.samples)
            began = time.monotonic()
            model = trained(case, replace(course, seed=seed), samples, online)
            row = {
                "case": name,
                "seed": seed,
                "seconds": round(time.monotonic() - began),
                "load_average": round(os.getloadavg()[0], 1),
                "when": datetime.now(UTC).isoformat(timespec="minutes"),
                "results": list(judged(model, validation)),
            }
            record(row)
            words = [f"{it['penalties']} {it['load']}: {it['regret']:.0%}" for it in row["results"]]
            print(f"{name}, seed {seed}, {row['seconds']} s: regret {'; '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
