"""A random forest as plain arrays: grown by scikit-learn, stored as safetensors, applied by a few
lines of numpy.

scikit-learn's own file format is pickle, which runs code as it is read; and no daemon should need
it to decide.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.provision.learn.arrays import read_arrays, write_arrays
from mirage.provision.learn.episode import Floats, Vectors
from mirage.provision.learn.model import Flags
from mirage.rl.options import Count, MethodOptions, Rate

Trees = NDArray[np.int32]
DEEPEST = 1_000
"""Levels of a tree; more are none that Mirage grew, and take for ever."""


@dataclass(frozen=True)
class Growth(MethodOptions):
    """How a forest is grown; the names are scikit-learn's, but for the leaf."""

    trees: Count = 60
    leaf: Count = 20
    """Rows that a leaf has at least."""
    features: Rate = 0.33
    """Share of the features that each split may choose from."""
    rows: Rate = 0.5
    """Share of the rows that each tree sees."""


@dataclass(frozen=True)
class Forest:
    """All trees' nodes in one row of each array. A leaf is its own child, so that walking may go on
    for ever.
    """

    roots: Trees
    """(trees,): where each tree begins."""
    depth: Trees
    """(1,): steps from a root to the deepest leaf."""
    feature: Trees
    """(nodes,): 0 in a leaf."""
    threshold: Floats
    """(nodes,): `x <= threshold` goes left."""
    left: Trees
    right: Trees
    leaf: Trees
    """(nodes,): the leaf's row of `value`; 0 for other nodes."""
    value: Vectors
    """(leaves, outputs): what a leaf predicts."""

    def leaves(self, rows: Vectors) -> Trees:
        """The leaf that each row, (n, features), reaches in each tree: rows of `value`, (n, trees)."""
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        index = np.arange(len(rows))[:, None]
        for _ in range(int(self.depth[0])):
            goes_left = rows[index, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.asarray(self.leaf[at])

    def predict(self, rows: Vectors) -> Floats:
        """Means over the trees, (n, outputs), for (n, features)."""
        total = np.zeros((len(rows), self.value.shape[1]))
        for leaf in self.leaves(rows).T:
            total += self.value[leaf]
        return total / len(self.roots)

    def save(self, path: Path) -> None:
        """Values with half precision: three digits are plenty for means of a few rows."""
        write_arrays(path, asdict(self) | {"value": self.value.astype(np.float16)})

    @classmethod
    def load(cls, path: Path, features: int, outputs: int) -> Forest:
        """Raises InputError if it is not a forest over so many features."""
        try:
            arrays = read_arrays(path)
            forest = cls(**arrays | {"value": arrays["value"].astype(np.float32)})
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(
                f"{path}: not the weights of a forest ({error}); train the model again."
            ) from error
        if not forest._fits(features, outputs):
            raise InputError(
                f"{path}: a forest of another shape than this version uses; train the model again."
            )
        return forest

    def _fits(self, features: int, outputs: int) -> bool:
        """Whether every index is inside and every number finite, so that no prediction can fail."""
        nodes, leaves = len(self.feature), len(self.value)
        indices = [
            (self.roots, nodes),
            (self.left, nodes),
            (self.right, nodes),
            (self.depth, nodes),
        ]
        indices += [(self.feature, features), (self.leaf, leaves)]
        inside = all(
            array.ndim == 1
            and array.dtype == np.int32
            and bool(((array >= 0) & (array < most)).all())
            for array, most in indices
        )
        sizes = {len(self.threshold), len(self.left), len(self.right), len(self.leaf), nodes}
        inside = (
            inside and len(self.depth) == 1 and self.depth[0] <= DEEPEST and len(self.roots) > 0
        )
        finite = all(
            array.dtype.kind == "f" and bool(np.isfinite(array).all())
            for array in (self.threshold, self.value)
        )
        return inside and finite and len(sizes) == 1 and self.value.shape == (leaves, outputs)


def grow(
    rows: Vectors, target: Floats, outputs: Floats | Flags, growth: Growth, seed: int
) -> Forest:
    """A forest over (n, features), split to tell one target, (n,), that predicts the outputs, (n,
    outputs).
    """
    from sklearn.ensemble import RandomForestRegressor

    grown = RandomForestRegressor(
        n_estimators=growth.trees,
        min_samples_leaf=growth.leaf,
        max_features=growth.features,
        max_samples=growth.rows,
        random_state=seed,
        n_jobs=1,
    ).fit(rows, target)
    return refilled(from_sklearn(grown), rows, outputs)


def refilled(forest: Forest, rows: Vectors, outputs: Floats | Flags) -> Forest:
    """The same splits, but each leaf predicts the means of the outputs, (n, outputs), of all the
    rows that reach it.
    """
    total, count = np.zeros((len(forest.value), outputs.shape[1])), np.zeros((len(forest.value), 1))
    for leaf in forest.leaves(rows).T:
        np.add.at(count, leaf, 1)
        np.add.at(total, leaf, outputs)
    return replace(forest, value=(total / count).astype(np.float32))


def from_sklearn(grown: Any) -> Forest:
    """The arrays of a fitted RandomForestRegressor."""
    trees = [estimator.tree_ for estimator in grown.estimators_]
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    parts = [_arrays(tree, int(start)) for tree, start in zip(trees, starts[:-1], strict=True)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    is_leaf = joined["left"] == np.arange(starts[-1])
    leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, 0).astype(np.int32)
    depth = np.array([max(tree.max_depth for tree in trees)], dtype=np.int32)
    value = np.concatenate([tree.value[:, :, 0] for tree in trees])[is_leaf].astype(np.float32)
    return Forest(starts[:-1].astype(np.int32), depth, **joined, leaf=leaf, value=value)


def _arrays(tree: Any, start: int) -> dict[str, NDArray[Any]]:
    own = np.arange(tree.node_count, dtype=np.int64)
    is_leaf = tree.children_left < 0
    return {
        "feature": np.where(is_leaf, 0, tree.feature).astype(np.int32),
        "threshold": np.where(is_leaf, 0.0, tree.threshold).astype(np.float64),
        "left": (start + np.where(is_leaf, own, tree.children_left)).astype(np.int32),
        "right": (start + np.where(is_leaf, own, tree.children_right)).astype(np.int32),
    }
