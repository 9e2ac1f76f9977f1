"""Gradient-boosted trees as plain arrays: grown by xgboost, stored as safetensors, applied by a few
lines of numpy.

xgboost's own files may name any node as a child, and xgboost follows them: a file that was made for
it ends the whole process, or more. Here every index is checked as it is read. Children come after
their parent, so no walk is endless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.provision.learn.arrays import read_arrays, write_arrays
from mirage.provision.learn.episode import Floats, Vectors

Indices = NDArray[np.int32]
DEEPEST = 64
"""Levels of a tree; more are none that Mirage grew."""
MOST_TREES = 1_000_000
_AT_ONCE = 1 << 18
"""Rows times trees: so that what they need stays in the processor's cache, and is bounded."""


@dataclass(frozen=True)
class BoostedTrees:
    """Trees of several rounds, one for each output in a round: (n, features) -> (n, outputs).

    All trees' nodes are in one row of each array. A right child follows its left one. A leaf is its
    own left child.
    """

    base: Vectors
    """(outputs,): what is predicted before the first round."""
    roots: Indices
    """(rounds, outputs): where each tree begins."""
    feature: Indices
    """(nodes,): 0 in a leaf."""
    value: Vectors
    """(nodes,): `x < value` goes left; of a leaf what it adds."""
    left: Indices
    missing_left: NDArray[np.bool_]
    """(nodes,): whether a value that is missing goes left."""
    logistic: NDArray[np.bool_]
    """(1,): whether the sum becomes a chance by the logistic function."""

    def predict(self, rows: Vectors) -> Floats:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        step = max(1, _AT_ONCE // max(1, self.roots.size))
        parts = [self._margins(rows[begin : begin + step]) for begin in range(0, len(rows), step)]
        margins = np.concatenate([np.empty((0, len(self.base)), dtype=np.float32), *parts])
        if self.logistic[0]:
            margins = 1 / (
                1 + np.exp(np.minimum(-margins, np.float32(88.7)))
            )  # as xgboost, which avoids overflow
        return np.asarray(margins, dtype=np.float64)

    def _margins(self, rows: Vectors) -> Vectors:
        count, width = rows.shape
        flat, begin = rows.ravel(), (np.arange(count, dtype=np.intp) * width)[:, None]
        missing = bool(np.isnan(flat).any())
        at = np.broadcast_to(self.roots.ravel().astype(np.intp), (count, self.roots.size))
        for _ in range(self._depth):
            x = flat.take(self.feature.take(at) + begin)
            right = ~(x < self.value.take(at))
            if missing:
                right = np.where(np.isnan(x), ~self.missing_left.take(at), right)
            at = self._children.take(2 * at + right)
        leaves = self.value.take(at).reshape(count, *self.roots.shape)
        total = np.broadcast_to(self.base, (count, len(self.base))).copy()
        for number in range(
            self.roots.shape[0]
        ):  # in xgboost's order, so that rounding is the same
            total += leaves[:, number]
        return total

    @cached_property
    def _children(self) -> NDArray[np.intp]:
        """(2 nodes,): the left child of each node, and the right one."""
        inner = self.left != np.arange(len(self.left))
        return np.column_stack([self.left, self.left + inner]).astype(np.intp).ravel()

    @cached_property
    def _depth(self) -> int:
        """Steps from a root to the deepest leaf; more than `DEEPEST` for a tree that has too many."""
        at, steps = np.unique(self.roots), 0
        while steps <= DEEPEST:
            inner = at[self.left[at] != at]
            if not len(inner):
                return steps
            at, steps = (
                np.unique(np.concatenate([self.left[inner], self.left[inner] + 1])),
                steps + 1,
            )
        return steps

    def save(self, path: Path) -> None:
        write_arrays(path, {name: getattr(self, name) for name in _KINDS})

    @classmethod
    def load(cls, path: Path, features: int, outputs: int) -> BoostedTrees:
        """Raises InputError if it is not a booster over so many features."""
        try:
            boosted = cls(**read_arrays(path))
        except TypeError as error:
            raise InputError(
                f"{path}: not the weights of boosted trees ({error}); train the model again."
            ) from error
        if not boosted._fits(features, outputs):
            raise InputError(
                f"{path}: boosted trees of another shape than this version uses; train the model"
                " again."
            )
        return boosted

    def _fits(self, features: int, outputs: int) -> bool:
        """Whether every index is inside and every walk ends, so that no prediction can fail."""
        if any(getattr(self, name).dtype != kind for name, kind in _KINDS.items()):
            return False
        nodes = len(self.left) if self.left.ndim == 1 else 0
        if (
            any(
                getattr(self, name).shape != (nodes,)
                for name in ("feature", "value", "missing_left")
            )
            or not nodes
        ):
            return False
        if (
            self.base.shape != (outputs,)
            or self.roots.shape[1:] != (outputs,)
            or self.logistic.shape != (1,)
        ):
            return False
        own = np.arange(nodes)
        inner = self.left != own
        return bool(
            ((self.roots >= 0) & (self.roots < nodes)).all()
            and ((self.feature >= 0) & (self.feature < features)).all()
            and (self.left >= own).all()
            and (self.left[inner].astype(np.int64) + 1 < nodes).all()
            and np.isfinite(self.value).all()
            and np.isfinite(self.base).all()
            and self.roots.size <= MOST_TREES
            and self._depth <= DEEPEST
        )


_KINDS: Mapping[str, Any] = {
    "base": np.float32,
    "roots": np.int32,
    "feature": np.int32,
    "value": np.float32,
    "left": np.int32,
    "missing_left": np.bool_,
    "logistic": np.bool_,
}


def from_xgboost(learner: Mapping[str, Any]) -> BoostedTrees:
    """The arrays of a booster that xgboost wrote as JSON (its `learner`): numbers only, no
    categories, no forests.

    Raises ValueError for another kind of booster.
    """
    model = learner["gradient_booster"]["model"]
    objective = learner["objective"]["name"]
    base = np.array(_numbers(learner["learner_model_param"]["base_score"]), dtype=np.float32)
    trees, outputs = model["trees"], len(base)
    links = {"binary:logistic": True, "reg:quantileerror": False, "reg:squarederror": False}
    if objective not in links or model["tree_info"] != [
        number % outputs for number in range(len(trees))
    ]:
        raise ValueError(
            f"boosted trees of {objective}, {outputs} outputs: not a form that Mirage trains"
        )
    if links[objective]:
        base = np.clip(
            base, np.float32(1e-6), np.float32(1) - np.float32(1e-6)
        )  # xgboost's bounds of a chance
        base = -np.log(1 / base - 1)
    parts: dict[str, list[Any]] = {"feature": [], "value": [], "left": [], "missing_left": []}
    roots = []
    for tree in trees:
        begin = len(parts["left"])
        roots.append(begin)
        for name, values in _by_level(tree, begin).items():
            parts[name].extend(values)
    arrays = {name: np.array(values, dtype=_KINDS[name]) for name, values in parts.items()}
    starts = np.array(roots, dtype=np.int32).reshape(-1, outputs)
    return BoostedTrees(
        base.astype(np.float32), starts, logistic=np.array([links[objective]]), **arrays
    )


def _by_level(tree: Mapping[str, Sequence[Any]], begin: int) -> dict[str, list[Any]]:
    """A tree's nodes level by level, so that the two children of a node stand side by side behind
    it.
    """
    if any(tree["split_type"]):
        raise ValueError("boosted trees with categories: not a form that Mirage trains")
    order, left = [0], []
    for place, node in enumerate(order):  # grows as it is walked
        if tree["left_children"][node] < 0:
            left.append(begin + place)
        else:
            left.append(begin + len(order))
            order += [tree["left_children"][node], tree["right_children"][node]]
    inner = [tree["left_children"][node] >= 0 for node in order]
    return {
        "feature": [
            tree["split_indices"][node] if is_inner else 0
            for node, is_inner in zip(order, inner, strict=True)
        ],
        "value": [tree["split_conditions"][node] for node in order],
        "left": left,
        "missing_left": [bool(tree["default_left"][node]) for node in order],
    }


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.strip("[]").split(",")]
