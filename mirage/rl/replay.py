"""Replay memory: a ring of named columns, which forgets the oldest rows (Lin 1992; Mnih et al.
2015).

A row is one transition, or whatever a learner wants to see again: its columns say what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

Ints = NDArray[np.int64]


class Column(NamedTuple):
    """What a row has under one name."""

    shape: tuple[int, ...] = ()
    dtype: DTypeLike = np.float32


class ReplayMemory:
    """Rows in the order in which they came, at most ``capacity`` of them.

    A row's place is its index from 0; a new row takes the place of the oldest once all are taken.
    """

    def __init__(self, capacity: int, columns: Mapping[str, Column]) -> None:
        self.capacity = capacity
        self._columns = {
            name: np.zeros((capacity, *column.shape), column.dtype)
            for name, column in columns.items()
        }
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """(rows, ...): a view of one column, by place."""
        return self._columns[name][: len(self)]

    def add(self, **row: Any) -> int:
        """Adds one row; returns its place. Raises ValueError unless it has exactly the columns."""
        if row.keys() != self._columns.keys():
            raise ValueError(f"a row has {sorted(row)}, the memory {sorted(self._columns)}")
        place = self._added % self.capacity
        for name, value in row.items():
            self._columns[name][place] = value
        self._added += 1
        return place

    def add_rows(self, **columns: NDArray[Any]) -> None:
        """Adds rows, (n, ...) a column, as `add` does one by one."""
        if columns.keys() != self._columns.keys():
            raise ValueError(f"rows have {sorted(columns)}, the memory {sorted(self._columns)}")
        count = len(next(iter(columns.values())))
        places = (self._added + np.arange(count)) % self.capacity
        some = slice(max(count - self.capacity, 0), count)
        for name, values in columns.items():
            self._columns[name][places[some]] = values[some]
        self._added += count

    def sample(self, count: int, generator: np.random.Generator) -> Ints:
        """(count,): places drawn evenly, each independently of the others.

        Raises ValueError while the memory is empty.
        """
        places: Ints = generator.integers(len(self), size=count)
        return places

    def after(self, places: Ints) -> Ints:
        """(n,): where the row is that was added after each; after the newest, the oldest one's."""
        following: Ints = (places + 1) % len(self)
        return following

    def tensors(
        self, places: Ints, device: torch.device | str = "cpu", *names: str
    ) -> dict[str, Tensor]:
        """Rows as tensors (n, ...) by the column's name; all columns, or those named."""
        return {
            name: torch.from_numpy(self._columns[name][places]).to(device)
            for name in names or self._columns
        }
