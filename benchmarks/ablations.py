"""What each part of the learning brings (the paper's ablations and ours), on the validation part,
beside the whole.

    python -m benchmarks.ablations --trace T --cluster C --from 2022-11-02 --until 2023-02-01
    --samples DIR [--seeds 1]
        [--only NAME ...]

DIR is `mirage train --samples`'s: its episodes are used again, and those that are drawn otherwise
are kept beside them. Each case is a training by `mirage.provision.learn.train`, and prints one line, which is
also kept in benchmarks/ablations.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mirage.cli.learning import instant
from mirage.figures.resample import Blocks
from mirage.provision.learn import TrainingPlan, train
from mirage.provision.learn.background import WarmUp
from mirage.provision.learn.card import TASTES, choice
from mirage.provision.learn.course import Course, held_out
from mirage.provision.learn.episode import Episode, Load
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.model import Model
from mirage.provision.learn.run import HoldOut
from mirage.provision.learn.samples import Samples, collect
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
EQUATION_4 = ("ahead=1", "outcomes=stored", "pretrain.memory=1")
"""The paper's target, on the states that were visited."""


def quiet(samples: Samples, seed: int) -> tuple[Samples, Samples]:
    """Stops early by light episodes alone, as an earlier version came to do."""
    learned, stop_by = held_out(samples, seed)
    return learned, stop_by.those(lambda episode: episode.load is Load.LIGHT)


@dataclass(frozen=True)
class Case:
    method: str
    settings: tuple[str, ...] = ()
    """Of the method, as for `--set`."""
    drawing: dict[str, Any] = field(default_factory=dict)
    """Fields of the plan that change which episodes are drawn."""
    hold_out: HoldOut = held_out


def alone(kind: str) -> dict[str, Any]:
    """This augmentation, in half of the episodes, and no other."""
    return {"augmentations": (kind,)}


PAPER: dict[str, Any] = {"warm_up": WarmUp.PAPER}
CASES = {
    "transformer": Case("transformer"),
    "transformer, without the forecast": Case("transformer", ("shape.forecast_input=false",)),
    "transformer, wrong moment": Case("transformer", ("moment=start",)),
    "transformer, 7 probes": Case("transformer", ("probes=7",)),
    "transformer, hindsight labels": Case("transformer", ("wait=hindsight",)),
    "transformer, stopped by quiet weeks": Case("transformer", hold_out=quiet),
    "transformer, for 1:1 alone": Case("transformer", ("share=0.5",)),
    "transformer, for 4:1 alone": Case("transformer", ("share=0.8",)),
    "transformer, warm-up of the paper": Case("transformer", drawing=PAPER),
    "quantile": Case("quantile"),
    "quantile, warm-up of the paper": Case("quantile", drawing=PAPER),
    "quantile, as logged": Case("quantile", drawing={"augmented": 0.0}),
    "quantile, loads alone": Case("quantile", drawing=alone("load")),
    "quantile, other users alone": Case("quantile", drawing=alone("users")),
    "quantile, synthetic weeks alone": Case("quantile", drawing=alone("synthetic")),
    "quantile, twice the episodes": Case("quantile", drawing={"episodes": 1368}),
    "experts: 1": Case("transformer", ONE_EXPERT),
    "experts: 5": Case("moe", ("shape.experts=5",)),
    "experts: 10": Case("moe"),
    "experts: 10, the published gate": Case("moe", ("shape.gate=dense",)),
    "transformer-law": Case("transformer-law"),
    "transformer-law, one network": Case("transformer-law", ("networks=1",)),
    "moe-law": Case("moe-law"),
    "transformer-dqn": Case("transformer-dqn"),
    "transformer-dqn, not pretrained": Case("transformer-dqn", ("pretrained=false",)),
    "transformer-dqn, no replay": Case("transformer-dqn", ("replay=false",)),
    "transformer-dqn, one step ahead": Case("transformer-dqn", ("ahead=1",)),
    "transformer-dqn, equation 4": Case("transformer-dqn", EQUATION_4),
    "transformer-pg": Case("transformer-pg"),
    "transformer-pg, sampled rollouts": Case("transformer-pg", ("gradient=sampled",)),
    "transformer-pg, not pretrained": Case("transformer-pg", ("pretrained=false",)),
}


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


def validation_of(plan: TrainingPlan, folder: Path) -> Samples:
    """The episodes that every case is judged by: with the queue of the trace."""
    inputs = read_inputs(plan.trace, plan.cluster, plan.partition)
    drawing = Course.of(inputs.background, plan, inputs.partition).validation(inputs.background)
    return collect(inputs.background, drawing, folder / "judged", plan.workers)


def trained(plan: TrainingPlan, case: Case, folder: Path, seed: int) -> Model:
    """The case's model. Its episodes are those of the plan's seed; ``seed`` is that of the fit."""
    there = folder
    if case.drawing:
        there = folder / "-".join(f"{name}-{_word(it)}" for name, it in case.drawing.items())
    own = replace(
        plan, methods=(case.method,), settings=case.settings, fit_seed=seed, samples=there
    )
    with tempfile.TemporaryDirectory() as out:
        (result,) = train(
            replace(own, out=Path(out) / "model", **case.drawing), hold_out=case.hold_out
        )
    assert result.model is not None
    return result.model


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
    plan = TrainingPlan(
        trace=args.trace,
        cluster=args.cluster,
        methods=(),
        out=Path(),
        begin_s=args.begin,
        until_s=args.until,
        validation_episodes=args.judged,
    )
    validation = validation_of(plan, args.samples)
    for seed in args.seeds:
        for name in args.only:
            began = time.monotonic()
            model = trained(plan, CASES[name], args.samples, seed)
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
