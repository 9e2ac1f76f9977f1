"""Shipped models on the validation month's mixed pairs: regrets, early ends apart, forecasts.

    python -m benchmarks.learning_validation --samples DIR --models models/ls6-a100 [--methods "NAME ..."]

DIR is `mirage train --samples`'s with the card's pairs in DIR/judged. Differences are paired, with
95 % intervals by block bootstrap: to `quantile`, and of a head to its foundation. Rules are fixed by
benchmarks/learning_cv.py before; this is a look at the result. The summary goes to
benchmarks/learning_validation.json, which keeps the rows of other methods. Two rows bound what any
rule could reach on these pairs (`benchmarks.stopping_rules`): the rule on `mlp-law`'s forecasts with
the ends known, and the best releases with the waits known but not the ends.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_cv import by_ends, forecasts, has_points, law_chances, spent_h, summary
from benchmarks.stopping_rules import Pair, ends_known, spent_by, waits_known
from mirage.provision.learn.card import TASTES, Descendant, gates
from mirage.provision.learn.episode import Episode, Floats
from mirage.provision.learn.law import Forecaster
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.mixture import (
    Mixture,
    effective_experts,
    expert_groups,
    experts_a_state,
)
from mirage.provision.learn.model import Model, States

RESULT = Path("benchmarks/learning_validation.json")
YARDSTICK, LAW = "quantile", "mlp-law"


def spent(model: Model, episodes: Sequence[Episode]) -> Floats:
    """(tastes, episodes): hours at e_I + e_O = 1."""
    return np.array([[spent_h(model, each, taste) for each in episodes] for taste in TASTES])


def row(models: dict[str, Model], name: str, episodes: Sequence[Episode], than: Floats) -> Any:
    model = models[name]
    mine = spent(model, episodes)
    found: dict[str, Any] = {"method": name, **by_ends(mine, than, episodes)}
    if (base := METHODS[name].foundation) in models:
        theirs = models[base]
        found["to the foundation"] = list(summary(mine, spent(theirs, episodes), episodes))
        if isinstance(model, Descendant):
            found["distance"] = round(model.distance(theirs), 4)
    if isinstance(model, Forecaster):
        laws = [law_chances(model.law(States.of(each))) for each in episodes]
        found["forecasts"] = list(forecasts(laws, episodes))
    if isinstance(model, Mixture):
        weights = gates(model, episodes)
        kinds = (effective_experts, experts_a_state, expert_groups)
        found["experts"] = {kind.__name__: round(kind(weights), 2) for kind in kinds}
    return found


def bounds(law: Model, episodes: Sequence[Episode], than: Floats) -> Iterator[dict[str, Any]]:
    """The rows of those who know more."""
    assert isinstance(law, Forecaster)
    pairs = [Pair(each, law_chances(law.law(States.of(each)))) for each in episodes]
    for name, rule in (("bound: ends known", ends_known), ("bound: waits known", waits_known)):
        yield {"method": name, **by_ends(spent_by(pairs, rule), than, episodes)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--models", required=True, type=Path)
    parser.add_argument(
        "--methods", type=str.split, help="names with spaces; empty: the bounds alone"
    )
    args = parser.parse_args()
    episodes = list(has_points(args.samples / "judged"))
    there = [name for name in METHODS if (args.models / name).is_dir()]
    models = {name: read_model(args.models / name, name).model for name in there}
    than = spent(models[YARDSTICK], episodes)
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    rows = [each for each in rows if each["method"] in there]
    for name in there if args.methods is None else args.methods:
        rows = [each for each in rows if each["method"] != name]
        rows.append(row(models, name, episodes, than))
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
        for line in rows[-1]["all ends"]:
            print(name, *line.values(), flush=True)
    for found in bounds(models[LAW], episodes, than):
        rows = [*(each for each in rows if each["method"] != found["method"]), found]
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
