"""A trained network in service: deterministic, batched, written and read, damaged files refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from safetensors.torch import load_file, save_file

from mirage.errors import InputError
from mirage.provision.learn.foundation import Network, Shape
from mirage.provision.learn.model import States, release_by_mean, releases
from mirage.provision.learn.network_files import HEADER, WEIGHTS
from mirage.provision.learn.neural import Neural, Serving, read
from mirage.provision.learn.scaling import Scaling
from slurm_sim.seconds import HOUR_S
from tests.learners import SMALL, TOY, TRAIN

SCALING = Scaling.fit(episode.rows for episode in TRAIN[:10])
DENSE = replace(SMALL, experts=3, gate="dense", dropout=0.5, forecast_input=True)


def model(shape: Shape = DENSE, serving: Serving | None = None) -> Neural:
    torch.manual_seed(3)
    network = Network(shape)
    network.scale_h.fill_(7.5)
    return Neural("moe", network, SCALING, serving or Serving())


def states(number: int = 0, interruption: float = 1.0, overlap: float = 1.0) -> States:
    return States.of(TOY.episode(number), interruption, overlap)


def part(of: States, rows: slice | np.ndarray) -> States:
    assert of.forecast_s is not None
    return States(
        of.matrices[rows], of.remaining_s[rows], of.penalties[rows], forecast_s=of.forecast_s[rows]
    )


def test_the_same_states_give_the_same_assessment_though_there_is_dropout() -> None:
    one = model()
    one.network.train()
    first, second = one.assess(states()), one.assess(states())
    assert np.array_equal(first.cost_now_s, second.cost_now_s)
    assert np.array_equal(first.release, second.release)


def test_a_batch_is_the_same_as_one_by_one() -> None:
    together = model().assess(states())
    for i in (0, 5, 28):
        alone = states()
        alone = part(alone, slice(i, i + 1))
        assert model().assess(alone).cost_wait_s[0] == pytest.approx(
            together.cost_wait_s[i], rel=1e-4
        )


def test_more_pairs_than_one_forward_pass_takes_are_all_assessed() -> None:
    one = states()
    many = part(one, np.tile(np.arange(len(one)), 40))
    assessed = model().assess(many)
    assert len(assessed.release) == len(many) > 1024
    assert np.allclose(assessed.cost_now_s, np.tile(model().assess(one).cost_now_s, 40), rtol=1e-4)


def test_no_pairs_are_no_decisions() -> None:
    one = states()
    assert len(model().assess(part(one, slice(0, 0))).release) == 0


def test_it_releases_where_that_costs_less_than_waiting() -> None:
    assessed = model().assess(states())
    assert np.array_equal(assessed.release, assessed.cost_now_s < assessed.cost_wait_s)
    assert np.isnan(assessed.wait_p50_s).all()


def test_a_network_with_the_forecast_as_an_input_needs_one_and_one_without_does_not_look_at_it() -> (
    None
):
    told, untold = states(), replace(states(), forecast_s=None)
    longer = replace(told, forecast_s=np.full(len(told), 20 * 3600))
    assert model().traits.uses_forecasts
    assert not np.allclose(model().assess(longer).cost_now_s, model().assess(told).cost_now_s)
    with pytest.raises(InputError, match="needs a forecast"):
        model().assess(untold)
    blind = model(replace(DENSE, forecast_input=False))
    assert not blind.traits.uses_forecasts
    assert np.array_equal(blind.assess(longer).cost_now_s, blind.assess(untold).cost_now_s)


def test_costs_grow_with_the_penalties_and_decisions_depend_on_their_share_alone() -> None:
    small, large = model().assess(states(0, 1, 2)), model().assess(states(0, 10, 20))
    assert np.allclose(10 * small.cost_now_s, large.cost_now_s, rtol=1e-5)
    assert np.array_equal(small.release, large.release)


def test_a_model_for_one_taste_does_not_say_what_another_costs() -> None:
    one = model(replace(DENSE, penalty_input=False), Serving(share=0.8))
    assert np.isfinite(one.assess(states(0, 4, 1)).cost_now_s).all()
    assert np.isnan(one.assess(states(0, 1, 1)).cost_now_s).all()


def sampling(seed: int, chance: float) -> Neural:
    one = model(serving=Serving("policy", sampled=True, seed=seed))
    with torch.no_grad():
        one.network.choice.weight.zero_()
        one.network.choice.bias.copy_(torch.tensor([chance, 1 - chance]).log())
    return one


def test_sampled_decisions_have_the_heads_chance_and_can_be_repeated() -> None:
    drawn = np.concatenate([sampling(1, 0.3).assess(states(i)).release for i in range(20)])
    again = np.concatenate([sampling(1, 0.3).assess(states(i)).release for i in range(20)])
    other = np.concatenate([sampling(2, 0.3).assess(states(i)).release for i in range(20)])
    assert drawn.mean() == pytest.approx(0.3, abs=0.08)
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)


@pytest.mark.parametrize(("chance", "releases"), [(0.51, True), (0.49, False)])
def test_p_head_releases_where_submitting_is_the_likelier(chance: float, releases: bool) -> None:
    likely = sampling(1, chance)
    decided = replace(likely, serving=Serving("policy")).assess(states())
    assert (decided.release == releases).all()
    assert np.isnan(decided.cost_now_s).all()


def test_means_of_the_last_rows_do_not_reach_into_another_series() -> None:
    gains = np.array([[1.0, 10], [3, 30], [8, 80], [2, 20], [4, 40]]) - [2.5, 15]
    first = np.array([0, 0, 0, 3, 3])
    assert np.array_equal(release_by_mean(gains, first, 1), gains > 0)
    # Means before the subtraction: 1, 2, 5.5, 2, 3 and 10, 20, 40, 20, 30.
    assert release_by_mean(gains, first, 2)[:, 0].tolist() == [False, False, True, False, True]
    assert release_by_mean(gains, first, 9)[:, 1].tolist() == [False, True, True, True, True]


def test_with_a_memory_the_mean_difference_of_the_q_values_decides() -> None:
    one, busy = model(), states()
    busy = replace(busy, forecast_s=np.full(len(busy), 2 * HOUR_S))  # no guard holds a release
    said = one.assess(busy)
    assert said.gain is not None
    assert np.array_equal(releases(one, said, busy), said.release)
    assert np.array_equal(said.gain > 0, said.release)
    assert said.gain * 7.5 * HOUR_S * 2 == pytest.approx(said.cost_wait_s - said.cost_now_s)
    said = replace(said, gain=np.array([1.0, -3, 1, 1, -0.5]))
    remembers = replace(one, serving=Serving(memory=2))
    assert releases(remembers, said, part(busy, slice(5))).tolist() == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert replace(one, serving=Serving("policy", memory=2)).traits.memory == 1, "a P-head has none"


@pytest.mark.parametrize("shape", [SMALL, DENSE, replace(DENSE, gate="top1", penalty_input=False)])
def test_what_is_read_assesses_as_what_was_written(shape: Shape, tmp_path: Path) -> None:
    serving = Serving("value", share=None if shape.penalty_input else 0.5, memory=6)
    written = model(shape, serving)
    written.write(tmp_path)
    found = read(tmp_path)
    assert (found.name, found.serving, found.network.shape) == ("moe", serving, shape)
    for number in range(3):
        before, after = written.assess(states(number)), found.assess(states(number))
        assert np.array_equal(before.cost_now_s, after.cost_now_s)
        assert np.array_equal(before.cost_wait_s, after.cost_wait_s)
        assert np.array_equal(before.release, after.release)


def test_only_data_is_written(tmp_path: Path) -> None:
    model().write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [HEADER, WEIGHTS]
    assert json.loads((tmp_path / HEADER).read_text())["inputs"] == 5764


def changed_header(folder: Path, *keys: str, value: object) -> None:
    header = json.loads((folder / HEADER).read_text())
    inner = header
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (folder / HEADER).write_text(json.dumps(header))


def changed_tensors(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors.pop(name, None)
    save_file(tensors | ({} if tensor is None else {name: tensor}), folder / WEIGHTS)


@pytest.mark.parametrize(
    ("keys", "value", "says"),
    [
        (["schema"], 2, "schema 2"),
        (["shape", "width"], 32, "shape"),
        (["shape", "width"], 10**9, "from 1 to 4096"),
        (["shape", "width"], "16", "width"),
        (["shape", "patch"], 7, "divisor"),
        (["shape", "gate"], "sparse", "gate"),
        (["shape", "experts"], 4, "missing"),
        (["shape", "more"], 1, "exactly"),
        (["shape"], [], "exactly"),
        (["serving", "decides"], "coin", "value, policy"),
        (["serving", "share"], 1.5, "from 0 to 1"),
        (
            ["serving", "memory"],
            0,
            "network.json: serving: memory is 0; give a number from 1 to 144",
        ),
        (
            ["serving", "memory"],
            145,
            "network.json: serving: memory is 145; give a number from 1 to 144",
        ),
        (["name"], 3, "name"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    keys: list[str], value: object, says: str, tmp_path: Path
) -> None:
    model().write(tmp_path)
    changed_header(tmp_path, *keys, value=value)
    with pytest.raises(InputError, match=says):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("value.weight", None, "value.weight is missing"),
        ("extra", torch.zeros(1), "extra is unknown"),
        ("value.weight", torch.zeros(1, 7), "has shape"),
        ("value.weight", torch.full((1, 48), torch.nan), "no numbers"),
        ("value.weight", torch.zeros(1, 48, dtype=torch.int64), "no numbers"),
        ("scaling.mean", None, "scaling.mean"),
        ("scaling.spread", torch.zeros(40), "scaling.spread"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    name: str, tensor: torch.Tensor | None, says: str, tmp_path: Path
) -> None:
    model().write(tmp_path)
    changed_tensors(tmp_path, name, tensor)
    with pytest.raises(InputError, match=says):
        read(tmp_path)


@pytest.mark.parametrize("file", [HEADER, WEIGHTS])
def test_truncated_and_missing_files_are_refused(file: str, tmp_path: Path) -> None:
    model().write(tmp_path)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="can't be read"):
        read(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(InputError, match="is missing"):
        read(tmp_path)


@pytest.mark.parametrize(("interruption", "overlap"), [(0, 0), (-1, 2), (np.nan, 1)])
def test_penalties_that_say_nothing_are_refused(interruption: float, overlap: float) -> None:
    with pytest.raises(InputError, match="penalties"):
        model().assess(states(0, interruption, overlap))


def test_matrices_of_another_shape_and_with_nan_are_refused() -> None:
    one = states()
    with pytest.raises(InputError, match="shape"):
        model().assess(replace(one, matrices=one.matrices[:, :, :39]))
    broken = one.matrices.copy()
    broken[0, 0, 0] = np.nan
    with pytest.raises(InputError, match="no numbers"):
        model().assess(replace(one, matrices=broken))
