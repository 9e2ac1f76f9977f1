"""Growing gradient-boosted trees: the one place that imports xgboost. `boosted.py` stores and
applies them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mirage.provision.learn.boosted import BoostedTrees, from_xgboost
from mirage.provision.learn.episode import Floats, Vectors
from mirage.provision.learn.method import Space
from mirage.provision.learn.model import Flags
from mirage.rl.options import Count, MethodOptions, Rate, Weight

SPACE: Space = {
    "boosting.rounds": (50, 100, 200, 400),
    "boosting.depth": (3, 4, 5, 6, 8),
    "boosting.learning_rate": (0.03, 0.05, 0.08, 0.15),
    "boosting.leaf": (10, 40, 160),
}
"""What a search tries, for methods whose options have `boosting`."""


@dataclass(frozen=True)
class Boosting(MethodOptions):
    """Hyperparameters, under xgboost's names where they say what they mean."""

    rounds: Count = 150
    depth: Count = 5
    learning_rate: Rate = 0.08
    leaf: Weight = 40
    """Rows that a leaf has at least (min_child_weight): neighbouring decision points are alike."""
    rows: Rate = 0.5
    features: Rate = 0.5
    """Shares of the rows and features that each tree sees."""
    l2: Weight = 5.0

    def parameters(self, seed: int) -> dict[str, object]:
        return {
            "max_depth": self.depth,
            "learning_rate": self.learning_rate,
            "min_child_weight": self.leaf,
            "subsample": self.rows,
            "colsample_bytree": self.features,
            "reg_lambda": self.l2,
            "tree_method": "hist",
            "max_bin": 128,
            "nthread": 1,
            "seed": seed,
        }


def boost_chances(rows: Vectors, flags: Flags, options: Boosting, seed: int) -> BoostedTrees:
    """Cross-entropy: the conditional chance of each flag, (n, outputs)."""
    return _boost(
        rows, flags, {"objective": "binary:logistic"} | options.parameters(seed), options.rounds
    )


def boost_quantiles(
    rows: Vectors, target: Floats, levels: Sequence[float], options: Boosting, seed: int
) -> BoostedTrees:
    """Pinball loss: the conditional quantiles of one target, (n,), at these levels: (n, levels)
    outputs.
    """
    pinball = {"objective": "reg:quantileerror", "quantile_alpha": list(levels)}
    return _boost(rows, target, pinball | options.parameters(seed), options.rounds)


def boost_means(rows: Vectors, target: Floats, options: Boosting, seed: int) -> BoostedTrees:
    """Squared error: the conditional mean of one target, (n,): (n, 1) outputs."""
    squares = {"objective": "reg:squarederror"}
    return _boost(rows, target, squares | options.parameters(seed), options.rounds)


def _boost(
    rows: Vectors, targets: Floats | Flags, parameters: dict[str, object], rounds: int
) -> BoostedTrees:
    import xgboost

    data = xgboost.QuantileDMatrix(rows, targets, max_bin=parameters["max_bin"], nthread=1)
    booster = xgboost.train(parameters, data, rounds)
    return from_xgboost(json.loads(booster.save_raw("json"))["learner"])
