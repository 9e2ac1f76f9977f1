from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.elastic.runtime import layout, protocol


def job(*sizes: int, groups: int = 1, micro_shards: int = 12) -> protocol.TrainingJob:
    return protocol.TrainingJob(
        parameters=tuple(
            protocol.Parameter(name=f"p{i}", shape=(size,), group=i % groups)
            for i, size in enumerate(sizes)
        ),
        optimizer="SGD",
        groups=({"lr": 0.1},) * groups,
        samples=100,
        batch_size=20,
        micro_shards=micro_shards,
        steps=5,
        seed=0,
    )


def test_slices_cover_all_elements_and_no_slice_has_two_groups() -> None:
    slices = layout.cut(job(70_001, 5, 30_000, 900, groups=2))
    assert [each.first for each in slices[1:]] == [each.last for each in slices[:-1]]
    assert (slices[0].first, slices[-1].last) == (0, 100_906)
    assert sum(each.size for each in slices if each.group == 0) == 100_001
    assert 55 <= len(slices) <= 65


def test_a_big_model_has_slices_of_bounded_size() -> None:
    assert max(each.size for each in layout.cut(job(10**9))) <= layout.MAX_SLICE


SIZES = [1667] * 60


def loads(owners: tuple[str, ...]) -> list[int]:
    return [owners.count(name) for name in sorted(set(owners))]


def test_an_added_server_gets_its_share_and_nothing_else_moves() -> None:
    two = layout.best_fit(SIZES, [None] * 60, ["a", "b"])
    three = layout.best_fit(SIZES, two, ["a", "b", "c"])
    assert (loads(two), loads(three)) == ([30, 30], [20, 20, 20])
    assert sum(old != new for old, new in zip(two, three, strict=True)) == 20


def test_a_removed_servers_slices_alone_move() -> None:
    three = layout.best_fit(SIZES, [None] * 60, ["a", "b", "c"])
    two = layout.best_fit(SIZES, three, ["a", "c"])
    assert loads(two) == [30, 30]
    assert all(old in ("b", new) for old, new in zip(three, two, strict=True))


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=70),
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
)
def test_any_chain_of_scalings_stays_balanced(sizes: list[int], counts: list[int]) -> None:
    owners: tuple[str, ...] = ("s0",) * len(sizes)
    for count in counts:
        names = [f"s{each}" for each in range(count)]
        owners = layout.best_fit(sizes, owners, names)
        held = [sum(s for s, o in zip(sizes, owners, strict=True) if o == n) for n in names]
        assert sum(held) == sum(sizes)
        assert max(held) - min(held) <= max(sizes)


@given(st.integers(1, 40), st.integers(0, 50))
def test_every_micro_shard_has_one_worker(shards: int, workers: int) -> None:
    shares = layout.share_out(shards, [f"w{each}" for each in range(workers)])
    covered = [shard for share in shares for shard in range(share.first, share.last)]
    assert covered == (list(range(shards)) if workers else [])
    assert max((s.last - s.first for s in shares), default=0) <= -(-shards // max(1, workers))


@given(st.integers(1, 33), st.lists(st.integers(0, 33), max_size=6), st.randoms())
def test_the_sum_has_the_same_bits_however_it_is_cut(
    shards: int, cuts: list[int], random: object
) -> None:
    leaves = [np.float32(each) for each in np.random.default_rng(shards).normal(size=shards)]

    def node(first: int, last: int) -> np.float32:
        if last - first == 1:
            return leaves[first]
        middle = (first + last) // 2
        return np.float32(node(first, middle) + node(middle, last))

    edges = sorted({0, shards, *(each for each in cuts if each < shards)})
    found = [
        key
        for first, last in pairwise(edges)
        for key in layout.cover(first, last, micro_shards=shards)
    ]
    random.shuffle(found)  # type: ignore[attr-defined]
    nodes: dict[tuple[int, int], np.float32] = {}
    for key in found[:-1]:
        nodes[key] = node(*key)
    assert layout.total(nodes, 0, shards, lambda a, b: np.float32(a + b)) is None
    nodes[found[-1]] = node(*found[-1])
    assert layout.total(nodes, 0, shards, lambda a, b: np.float32(a + b)) == node(0, shards)
    assert all(layout.is_node(*key, micro_shards=shards) for key in found)


@pytest.mark.parametrize("pair", [(0, 5), (2, 4), (11, 13), (3, 3), (5, 4)])
def test_what_is_no_node_of_the_tree(pair: tuple[int, int]) -> None:
    assert not layout.is_node(*pair, micro_shards=12)
