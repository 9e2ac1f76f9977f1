"""The ring keeps the newest rows, and each row together."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mirage.rl.replay import Column, ReplayMemory


def ring(capacity: int = 4) -> ReplayMemory:
    return ReplayMemory(
        capacity, {"number": Column(dtype=np.int64), "square": Column((2,), np.float32)}
    )


def fill(memory: ReplayMemory, count: int) -> None:
    for number in range(count):
        memory.add(number=number, square=[number, number**2])


def test_it_grows_to_its_capacity_then_forgets_the_oldest() -> None:
    memory = ring()
    assert len(memory) == 0
    fill(memory, 3)
    assert (len(memory), memory["number"].tolist()) == (3, [0, 1, 2])
    memory = ring()
    fill(memory, 6)
    assert len(memory) == 4
    assert sorted(memory["number"].tolist()) == [2, 3, 4, 5]


def test_rows_stay_together_as_tensors() -> None:
    memory = ring()
    fill(memory, 6)
    rows = memory.tensors(np.array([0, 3, 3]))
    assert rows["square"].dtype == torch.float32
    assert rows["number"].dtype == torch.int64
    assert torch.equal(rows["square"][:, 1], rows["number"].float() ** 2)
    assert list(memory.tensors(np.array([0]), "cpu", "number")) == ["number"]


def test_a_sample_reaches_every_row_and_none_that_is_empty() -> None:
    memory = ring(100)
    fill(memory, 10)
    places = memory.sample(500, np.random.default_rng(0))
    assert set(places.tolist()) == set(range(10))
    assert np.array_equal(places, memory.sample(500, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="high <= 0"):
        ring().sample(1, np.random.default_rng(0))


def test_after_a_row_comes_the_next_one_around_the_ring() -> None:
    memory = ring()
    fill(memory, 6)
    places = np.flatnonzero(memory["number"] < 5)
    following = memory["number"][memory.after(places)]
    assert np.array_equal(following, memory["number"][places] + 1)


def test_a_row_has_exactly_the_columns() -> None:
    with pytest.raises(ValueError, match=r"a row has \['number'\], the memory"):
        ring().add(number=1)
    with pytest.raises(ValueError, match="'more'"):
        ring().add(number=1, square=[1, 1], more=2)


def test_rows_added_together_are_as_rows_added_one_by_one():
    one, many = (ReplayMemory(5, {"x": Column((2,)), "n": Column((), np.int64)}) for _ in range(2))
    x, n = np.arange(16.0).reshape(8, 2), np.arange(8)
    for begin, end in ((0, 3), (3, 4), (4, 8)):
        many.add_rows(x=x[begin:end], n=n[begin:end])
        for row in range(begin, end):
            one.add(x=x[row], n=n[row])
        assert len(one) == len(many)
        assert (one["x"] == many["x"]).all()
        assert (one["n"] == many["n"]).all()
    many.add_rows(x=x, n=n)  # more than there is room for
    assert sorted(many["n"].tolist()) == [3, 4, 5, 6, 7]
    with pytest.raises(ValueError, match="rows have"):
        many.add_rows(x=x)
