"""What parts of the learning bring, on the card's pairs of the validation part, beside the whole.

    python -m benchmarks.ablations --samples DIR --models models/ls6-a100 [--seed 1] [--only NAME ...]

DIR is `mirage train --samples`'s. With seed 1 a case without a change is the shipped model; the
others are trained here, and heads start from the shipped foundation. All have the same episodes and
the same held-out fortnights. Each case prints one line, which is also kept in
benchmarks/ablations.json; rows of what is no case any more are dropped. Variants of the heads:
benchmarks/stopping_heads.py.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_cv import has_points
from mirage.figures.resample import Blocks
from mirage.provision.learn.card import TASTES, choice
from mirage.provision.learn.course import held_out
from mirage.provision.learn.episode import Episode, Load
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.model import Model
from mirage.rl.options import with_settings
from slurm_sim.seconds import HOUR_S

RESULT = Path("benchmarks/ablations.json")
ONE_EXPERT = (
    "shape.patch=24",
    "shape.width=32",
    "shape.heads=2",
    "shape.layers=1",
    "shape.feedforward=64",
)
"""A transformer like each expert of the mixture."""


@dataclass(frozen=True)
class Case:
    method: str
    settings: tuple[str, ...] = ()
    """Of the method, as for `--set`."""
    keeps: Callable[[Episode], bool] | None = None
    """Which of the training episodes it learns from; None: all."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the method as it is shipped."""
        return not self.settings and self.keeps is None


def is_logged(episode: Episode) -> bool:
    """With the arrivals of the log."""
    return not episode.tags.get("augmentation")


CASES = {
    "transformer": Case("transformer"),
    "transformer, without the forecast": Case("transformer", ("shape.forecast_input=false",)),
    "experts: 1": Case("transformer", ONE_EXPERT),
    "experts: 10": Case("moe"),
    "quantile": Case("quantile"),
    "quantile, as logged": Case("quantile", keeps=is_logged),
    "mlp-law": Case("mlp-law"),
    "mlp-law, one network": Case("mlp-law", ("networks=1",)),
    "transformer-dqn": Case("transformer-dqn"),
    "transformer-pg": Case("transformer-pg"),
}


def judged(model: Model, episodes: Sequence[Episode]) -> Iterator[dict[str, Any]]:
    """Per taste and load: mean penalties in hours at e_I + e_O = 1, the regret, and its 95 %
    interval.
    """
    ordered = sorted(episodes, key=lambda episode: episode.begin_s)
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


def trained(case: Case, samples: Path, models: Path, seed: int) -> Model:
    """The case's model. A head starts from the shipped foundation."""
    method = METHODS[case.method]
    options = with_settings(method.default_options(), case.settings)
    episodes = has_points(samples / "train")
    if case.keeps:
        episodes = episodes.those(case.keeps)
    if not method.stops_early:
        return method.train(TrainingData(episodes=episodes, seed=seed), options)
    learned, stop_by = held_out(episodes, seed)
    data = TrainingData(episodes=learned, held_out=stop_by, seed=seed)
    if method.foundation:
        data = replace(data, fresh=has_points(samples / "online").apart_from(stop_by))
        base = read_model(models / method.foundation, method.foundation).model
        data = replace(data, base=base)
    return method.train(data, options)


def record(row: dict[str, Any]) -> None:
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    rows = [it for it in rows if it["case"] in CASES]
    rows = [it for it in rows if (it["case"], it["seed"]) != (row["case"], row["seed"])]
    rows = sorted([*rows, row], key=lambda it: list(CASES).index(it["case"]))
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--models", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    validation = has_points(args.samples / "judged")
    for name in args.only:
        case, began_s = CASES[name], time.process_time()
        is_shipped = case.is_whole and args.seed == 1
        model = (
            read_model(args.models / case.method, case.method).model
            if is_shipped
            else trained(case, args.samples, args.models, args.seed)
        )
        row = {
            "case": name,
            "seed": args.seed,
            "shipped": is_shipped,
            "cpu_s": round(time.process_time() - began_s),
            "load_average": round(os.getloadavg()[0], 1),
            "when": datetime.now(UTC).isoformat(timespec="minutes"),
            "results": list(judged(model, validation)),
        }
        record(row)
        words = [f"{it['penalties']} {it['load']}: {it['regret']:.0%}" for it in row["results"]]
        print(f"{name}, seed {args.seed}, {row['cpu_s']} s: regret {'; '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
