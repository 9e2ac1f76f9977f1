"""The policy's decision on a live cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.elastic.jobs.sizes import POLICIES, FreeNode, LiveJob, Sizes, decide_sizes, policy_named
from mirage.elastic.jobs.speeds import Measurement, speed_table
from mirage.elastic.speed import TaskDemand
from mirage.errors import InputError


def live(
    name: str = "a", *, workers: tuple[int, int] = (1, 8), trained: float = 0.0, **more: object
) -> LiveJob:
    measured = more.pop("measured", ())
    return LiveJob(
        name=name,
        epochs=100.0,
        trained=trained,
        steps_per_s=speed_table(measured, most_workers=workers[1], most_servers=4),  # type: ignore[arg-type]
        steps_per_epoch=100,
        least=Sizes(workers=workers[0], servers=1),
        most=Sizes(workers=workers[1], servers=4),
        worker=TaskDemand(gpus=1, cpus=1),
        server=TaskDemand(gpus=0, cpus=1),
    )


NODES = [FreeNode(gpus=2, cpus=8)] * 4


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_to_what_is_there(name: str) -> None:
    jobs = [live("a"), live("b"), live("c", workers=(0, 2))]
    sizes = decide_sizes(jobs, NODES, policy_named(name), slot_s=300)
    assert sum(each.workers for each in sizes.values()) <= 8
    assert all(each.servers >= 1 for each in sizes.values())
    assert sizes["a"].workers >= 1
    assert sizes["b"].workers >= 1
    assert sizes["c"].workers <= 2
    assert sum(each.workers for each in sizes.values()) >= 6


def test_the_cap_of_gpus_holds() -> None:
    sizes = decide_sizes(
        [live("a"), live("b")], NODES, policy_named("drf"), slot_s=300, most_gpus=3
    )
    assert sum(each.workers for each in sizes.values()) == 3


def test_the_least_size_stays_where_nothing_is_free() -> None:
    sizes = decide_sizes([live()], [FreeNode(gpus=0, cpus=0)], policy_named("greedy"), slot_s=300)
    assert sizes["a"] == Sizes(workers=1, servers=1)
    assert decide_sizes([live()], [], policy_named("greedy"), slot_s=300)["a"].workers == 1


def test_greedy_stops_where_measured_speed_does() -> None:
    measured = [
        Measurement(workers=workers, servers=4, steps_per_s=speed)
        for workers, speed in ((1, 1.0), (2, 1.9), (4, 2.0), (8, 1.2))
    ] * 3
    sizes = decide_sizes([live(measured=measured)], NODES, policy_named("greedy"), slot_s=300)
    assert 2 <= sizes["a"].workers <= 4


def test_a_measured_scale_moves_the_whole_table() -> None:
    table = speed_table(
        [Measurement(workers=2, servers=1, steps_per_s=20.0)], most_workers=4, most_servers=2
    )
    assert table[1, 2] == pytest.approx(20.0, rel=0.1)
    assert table[1, 4] > table[1, 2] > table[1, 1] > 5
    assert not table[0].any()
    assert not table[:, 0].any()


def test_a_known_type_is_the_prior() -> None:
    table = speed_table([], most_workers=6, most_servers=6, like="vgg-16")
    assert table.shape == (7, 7)
    assert (table[1:, 1:] > 0).all()


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InputError, match="--policy magic: unknown; there are greedy"):
        policy_named("magic")


def test_who_is_past_the_estimate_still_trains() -> None:
    sizes = decide_sizes([live(trained=250.0)], NODES, policy_named("greedy"), slot_s=300)
    assert sizes["a"].workers >= 1


def test_a_trained_set_policy_decides(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from mirage.elastic.model import new_model, save_model
    from mirage.elastic.settings import read_setting

    torch.manual_seed(1)
    for method, hidden in (("set", (8, 1, 2)), ("dl2", (8,))):
        model = new_model(method, read_setting("small"), "drf", hidden=hidden, seed=1)
        save_model(tmp_path / method, model, summary=["x"], facts=["y"])
    jobs = [live("a"), live("b")]
    sizes = decide_sizes(jobs, NODES, policy_named(str(tmp_path / "set")), slot_s=300)
    assert 2 <= sum(each.workers for each in sizes.values()) <= 8
    with pytest.raises(InputError, match="live jobs need one of method 'gain' or 'set'"):
        policy_named(str(tmp_path / "dl2"))
