"""The policy's decision on a live cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.elastic.fitting import non_negative
from mirage.elastic.jobs.sizes import (
    POLICIES,
    FreeNode,
    LiveJob,
    Sizes,
    decide_sizes,
    live_world,
    policy_named,
    types_known,
)
from mirage.elastic.jobs.speeds import Measurement, SpeedShape, believed_speeds
from mirage.elastic.jobs.typed import LikeEncoder
from mirage.elastic.observation import PaperEncoder
from mirage.elastic.speed import TaskDemand
from mirage.errors import InputError


def live(
    name: str = "a", *, workers: tuple[int, int] = (1, 8), trained: float = 0.0, **more: object
) -> LiveJob:
    measured = more.pop("measured", ())
    shape = SpeedShape(most_workers=workers[1], most_servers=4)
    return LiveJob(
        name=name,
        epochs=100.0,
        trained=trained,
        steps_per_s=believed_speeds(measured, shape).steps_per_s,  # type: ignore[arg-type]
        steps_per_epoch=100,
        least=Sizes(workers=workers[0], servers=1),
        most=Sizes(workers=workers[1], servers=4),
        worker=TaskDemand(gpus=1, cpus=1),
        server=TaskDemand(gpus=0, cpus=1),
        **more,  # type: ignore[arg-type]
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
    shape = SpeedShape(most_workers=4, most_servers=2)
    measured = [Measurement(workers=2, servers=1, steps_per_s=20.0)]
    table = believed_speeds(measured, shape).steps_per_s
    assert table[1, 2] == pytest.approx(20.0, rel=0.1)
    assert table[1, 4] > table[1, 2] > table[1, 1] > 5
    assert not table[0].any()
    assert not table[:, 0].any()


def test_a_known_type_is_the_prior() -> None:
    shape = SpeedShape(most_workers=6, most_servers=6, like="vgg-16")
    table = believed_speeds([], shape).steps_per_s
    assert table.shape == (7, 7)
    assert (table[1:, 1:] > 0).all()


def test_sizes_that_are_no_faster_are_not_given() -> None:
    """12 micro-shards: 5 workers are as fast as 4, and 7 to 11 as 6."""
    sizes = (1, 2, 3, 4, 6, 12)
    nodes = [FreeNode(gpus=2, cpus=8)] * 5
    alone = decide_sizes(
        [live(workers=(1, 12), sizes=sizes)], nodes, policy_named("drf"), slot_s=300
    )
    assert alone["a"].workers == 6
    jobs = [live(name, workers=(1, 12), sizes=sizes) for name in "ab"]
    both = decide_sizes(jobs, nodes, policy_named("drf"), slot_s=300)
    # Five GPUs each would be 4 and 4 in truth; the two that are left make one of them 6.
    assert sorted(each.workers for each in both.values()) == [4, 6]


def test_the_model_knows_that_shards_are_whole_and_nodes_are_small() -> None:
    shape = SpeedShape(most_workers=8, most_servers=1, shards=12, on_a_node=4)
    speeds = {1: 1.0, 2: 1.95, 4: 3.7, 6: 3.0}
    measured = [
        Measurement(workers=workers, servers=1, steps_per_s=speed)
        for workers, speed in speeds.items()
    ] * 3
    table = believed_speeds(measured, shape).steps_per_s[1]
    assert table[4] == pytest.approx(3.7, rel=0.05)
    assert table[6] == pytest.approx(3.0, rel=0.05)
    assert table[5] < table[4]
    assert table[8] < 3.3


def test_what_was_measured_is_believed_and_what_was_not_is_less_sure() -> None:
    shape = SpeedShape(most_workers=8, most_servers=1)
    one = [Measurement(workers=2, servers=1, steps_per_s=2.0)]
    few = believed_speeds(one * 2, shape).error[1]
    many = believed_speeds(one * 20, shape).error[1]
    assert many[2] < few[2] < 0.1
    assert few[8] > 2 * few[2]
    assert (believed_speeds([], shape).error[1, 1:] > few[2]).all()


def test_a_fit_that_does_not_converge_gives_the_best_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gives_up(*_: object, **__: object) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr("scipy.optimize.nnls", gives_up)
    rows = np.array([[1.0, 1.0, 1e-9], [1.0, 1.0, 2e-9], [1.0, 1.0, 0.0]])
    found = non_negative(rows, np.ones(3))
    assert (found >= 0).all()
    assert rows @ found == pytest.approx(np.ones(3))


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InputError, match="--policy magic: unknown; there are greedy"):
        policy_named("magic")


def test_who_is_past_the_estimate_still_trains() -> None:
    sizes = decide_sizes([live(trained=250.0)], NODES, policy_named("greedy"), slot_s=300)
    assert sizes["a"].workers >= 1


@pytest.fixture(scope="module")
def paper_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's policy, untrained but for a first layer and an output that tell types apart: it
    wants workers for jobs like vgg-16, and nothing for others.
    """
    torch = pytest.importorskip("torch")
    from mirage.elastic.model import new_model, save_model
    from mirage.elastic.settings import read_setting

    setting = read_setting("small")
    torch.manual_seed(1)
    model = new_model(setting, "drf", hidden=(setting.places,), seed=1)
    vgg = [kind.name for kind in setting.world.types].index("vgg-16")
    layers = [each for each in model.networks.policy.modules() if hasattr(each, "in_features")]
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()
            layer.bias.zero_()
        for place in range(setting.places):
            layers[0].weight[place, place * (len(setting.world.types) + 5) + vgg] = 1
            layers[-1].weight[3 * place, place] = 1
        layers[-1].bias[:] = -1
        layers[-1].bias[-1] = -0.5
    folder = tmp_path_factory.mktemp("models") / "dl2"
    save_model(folder, model, summary=["x"], facts=["y"])
    return folder


def test_the_papers_policy_knows_live_jobs_by_the_type_that_they_are_like(
    paper_policy: Path,
) -> None:
    policy = policy_named(str(paper_policy))
    assert "vgg-16" in types_known(policy)
    assert types_known(policy_named("greedy")) == ()
    for like, other in (("ab", ""), ("ba", "resnet-50")):
        jobs = [replace(live(name), like="vgg-16" if name == like[0] else other) for name in "ab"]
        sizes = decide_sizes(jobs, NODES, policy, slot_s=1200)
        assert sizes[like[0]].workers == 7
        assert sizes[like[1]] == Sizes(workers=1, servers=1)


def test_the_papers_policy_sees_live_jobs_as_those_of_its_training() -> None:
    """The same state, where the live cluster and the live jobs are those of the training."""
    jobs = [replace(live("a"), like="vgg-16"), replace(live("b"), like="wlm")]
    encoder = LikeEncoder(types=("wlm", "vgg-16"), most_workers=16, most_ps=4)
    encoder.likes = [job.like for job in jobs]
    world = live_world(jobs, NODES)
    encoder.reset(world)
    places = np.array([[0, 1, -1]])
    state = encoder.encode(world, places)
    theirs = PaperEncoder().encode(world, places)
    assert state.shape == (1, 3, encoder.size(2))
    assert state[0, 0, :2].tolist() == [0, 1]
    assert state[0, 1, :2].tolist() == [1, 0]
    assert np.allclose(state[..., 2:5], theirs[..., 2:5])
    assert np.allclose(state[..., 5] * 16, theirs[..., 5] * 8)  # workers, at most 8 here
    assert not state[0, 2].any()


def test_a_model_of_a_setting_of_ones_own_has_unknown_units(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from mirage.elastic.model import new_model, save_model
    from mirage.elastic.settings import read_setting

    (tmp_path / "mine.toml").write_text("[world]\nmost_workers = 6\n")
    model = new_model(read_setting(str(tmp_path / "mine.toml")), "drf", hidden=(8,), seed=1)
    save_model(tmp_path / "mine", model, summary=["x"], facts=["y"])
    with pytest.raises(InputError, match="its setting 'mine' was a file, so the units"):
        policy_named(str(tmp_path / "mine"))
