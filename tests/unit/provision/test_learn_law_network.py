"""Networks with a law head: laws that are laws, a toy's best policy, mixtures that mix, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.errors import InputError
from mirage.provision.learn.features import NAMES
from mirage.provision.learn.gate import Gate, Mixing, balance_loss, spread_loss
from mirage.provision.learn.law import DURATIONS_S
from mirage.provision.learn.law_model import LawModel, read
from mirage.provision.learn.law_network import LawNetwork, LawShape, score_loss
from mirage.provision.learn.law_training import LawOptions, train_law
from mirage.provision.learn.mixture import effective_experts, expert_groups
from mirage.provision.learn.model import States
from mirage.provision.learn.network_files import HEADER, WEIGHTS
from mirage.rl.fit import Progress
from tests.learners import TOY, regret

QUEUE = replace(TOY, predicts=True)
"""A release that would start at once by the forecast is never made, so here forecasts say something."""
TRAIN = [QUEUE.episode(i) for i in range(128)]
TEST = [QUEUE.episode(i) for i in range(2000, 2060)]

SMALL = LawShape(width=16, heads=2, feedforward=32, patch=72, dropout=0.0)
OPTIONS = LawOptions(shape=SMALL, networks=1, every=2, steps=80, batch=64, rate=5e-3, device="cpu")
MIXED = replace(OPTIONS, shape=replace(SMALL, experts=5), expert_steps=10)


def inputs(n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    return torch.randn(n, 144, 40, generator=random), torch.randn(n, len(NAMES), generator=random)


def network(experts: int = 1) -> LawNetwork:
    torch.manual_seed(0)
    made = LawNetwork(replace(SMALL, experts=experts)).eval()
    if made.gate is not None:  # opinions that differ from state to state
        torch.nn.init.normal_(made.gate.linear.weight, std=0.5)
    return made


@pytest.fixture(scope="module")
def trained() -> LawModel:
    return train_law(TRAIN, OPTIONS)


@pytest.fixture(scope="module")
def perceptrons() -> LawModel:
    shape = LawShape(history=False, feedforward=32, dropout=0.0)
    return train_law(TRAIN, replace(OPTIONS, shape=shape, networks=2))


@pytest.fixture(scope="module")
def mixed() -> LawModel:
    return train_law(TRAIN, MIXED)


@pytest.mark.parametrize("experts", [1, 3])
def test_chances_of_a_longer_wait_never_rise(experts: int) -> None:
    longer = network(experts)(*inputs()).longer
    assert longer.shape == (6, len(DURATIONS_S))
    assert (longer <= 0).all()
    assert (longer.diff(dim=1) <= 1e-6).all()


def test_summaries_matter_at_once_and_the_history_once_it_is_learnt() -> None:
    states, asked = inputs()
    net = network()
    said = net(states, asked).longer
    older = states.clone()
    older[:, :72] = 0
    assert not torch.allclose(net(states, asked + 1).longer, said, atol=1e-4)
    assert torch.equal(net(older, asked).longer, said)
    torch.nn.init.normal_(net.experts[0].reader.correction.weight, std=0.5)
    assert not torch.allclose(net(older, asked).longer, net(states, asked).longer, atol=1e-4)


def test_the_law_of_a_mixture_is_the_mixture_of_the_experts_laws() -> None:
    net = network(3)
    said = net(*inputs())
    laws = []
    for expert in net.experts:
        alone = network()
        alone.experts[0].load_state_dict(expert.state_dict())
        laws.append(alone(*inputs()).longer.exp())
    assert said.gate.std() > 0.01
    expected = (said.gate[:, :, None] * torch.stack(laws, 1)).sum(1)
    assert torch.allclose(said.longer.exp(), expected, atol=1e-5)


def test_the_loss_is_least_for_the_true_chances() -> None:
    exceeded = torch.zeros(1000, len(DURATIONS_S))
    exceeded[:300] = 1  # three waits in ten are longer than all durations
    losses = [
        float(score_loss(torch.full_like(exceeded, chance).log(), exceeded))
        for chance in (0.2, 0.3, 0.4)
    ]
    assert losses[1] < min(losses[0], losses[2])
    assert losses[1] == pytest.approx(0.3 * 0.7, abs=1e-3)


@pytest.mark.parametrize("name", ["mlp-law", "transformer-law"])
def test_it_reaches_the_best_policy_of_both_tastes_and_says_a_true_law(
    name: str, request: pytest.FixtureRequest
) -> None:
    fixture = "perceptrons" if name == "mlp-law" else "trained"
    trained: LawModel = request.getfixturevalue(fixture)
    assert trained.name == name
    assert max(regret(trained, share, TEST) for share in (0.5, 0.8)) < 0.1
    said = trained.assess(States.of(TEST[0]))
    assert (said.wait_p10_s <= said.wait_p50_s).all()
    assert (said.wait_p50_s <= said.wait_p90_s).all()
    waits_s = np.array([each.waits_s[0] for each in TEST])
    below = [float(trained.assess(States.of(each)).wait_p90_s[0]) for each in TEST]
    assert 0.75 < np.mean(waits_s <= below) < 1


def test_more_than_three_experts_of_a_trained_mixture_are_used(mixed: LawModel) -> None:
    assert mixed.name == "moe-law"
    assert regret(mixed, 0.5, TEST) < 0.1
    gates = np.concatenate([mixed.gate(States.of(each)) for each in TEST[:20]])
    assert gates.shape[1] == 5
    assert effective_experts(gates) > 3
    assert expert_groups(gates) > 1.1


def test_a_focused_gate_gives_each_state_fewer_experts_and_still_uses_all() -> None:
    """Of states in three groups, without anything else to learn."""
    groups = torch.eye(3).repeat(20, 1)

    def learned(mixing: Mixing) -> np.ndarray:
        torch.manual_seed(3)
        gate = Gate(3, 3)
        optimizer = torch.optim.Adam(gate.parameters(), lr=0.1)
        for _ in range(150):
            optimizer.zero_grad()
            mixing.loss(gate(groups)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return gate(groups).detach().double().numpy()

    flat, focused = learned(Mixing(focus=0)), learned(Mixing(balance=0.1, focus=0.1))
    assert effective_experts(focused) > 2.5
    assert expert_groups(focused) > 2.5
    assert expert_groups(focused) > expert_groups(flat)


def test_spread_loss_is_one_for_even_weights_and_zero_for_one_expert() -> None:
    assert float(spread_loss(torch.full((5, 4), 0.25))) == pytest.approx(1)
    assert float(spread_loss(torch.eye(4))) == pytest.approx(0, abs=1e-6)


def test_without_the_balance_loss_a_biased_gate_keeps_its_bias() -> None:
    gate = Gate(4, 3)
    with torch.no_grad():
        gate.linear.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    optimizer = torch.optim.Adam(gate.parameters(), lr=0.2)
    summaries = torch.randn(64, 4, generator=torch.Generator().manual_seed(2))
    before = effective_experts(gate(summaries).detach().double().numpy())
    for _ in range(60):
        optimizer.zero_grad()
        balance_loss(gate(summaries)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert before < 1.1
    assert effective_experts(gate(summaries).detach().double().numpy()) > 2.9


def test_balance_loss_is_zero_for_even_weights_and_largest_for_one_expert() -> None:
    even, one = torch.full((5, 4), 0.25), torch.eye(4)[[0] * 5]
    assert float(balance_loss(even)) == pytest.approx(0, abs=1e-6)
    assert float(balance_loss(one)) == pytest.approx(3)


def test_networks_of_an_ensemble_differ_and_end_after_their_steps() -> None:
    rows: list[Progress] = []
    model = train_law(TRAIN, replace(OPTIONS, networks=2, steps=60), rows.append)
    assert [(row.stage, row.round) for row in rows] == [
        (f"network {number}", done)
        for number in (1, 2)
        for done in (1, 2)  # 50 and 10 steps
    ]
    first, second = (each.hazard.weight for each in (model.networks[i].experts[0] for i in (0, 1)))
    assert not torch.allclose(first, second, atol=1e-3)


def test_ctrl_c_keeps_the_networks_that_are_ready() -> None:
    def press(row: Progress) -> None:
        if row.stage == stage:
            raise KeyboardInterrupt

    stage = "network 2"
    model = train_law(TRAIN, replace(OPTIONS, networks=3, steps=2), press)
    assert len(model.networks) == 1
    assert model.traits.interrupted
    stage = "network 1"
    with pytest.raises(KeyboardInterrupt):
        train_law(TRAIN, replace(OPTIONS, networks=3, steps=2), press)


def test_experts_learn_their_time_slices_first() -> None:
    rows: list[Progress] = []
    train_law(TRAIN, replace(MIXED, steps=2), rows.append)
    assert [row.stage for row in rows] == [
        *(f"network 1, expert {number}" for number in range(1, 6)),
        "network 1",
    ]


def test_too_few_episodes_for_the_time_slices_are_refused() -> None:
    with pytest.raises(InputError, match="time slices"):
        train_law(TRAIN[:4], MIXED)


@pytest.mark.parametrize("name", ["mlp-law", "moe-law"])
def test_what_is_read_assesses_as_what_was_written(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fixture = "perceptrons" if name == "mlp-law" else "mixed"
    model: LawModel = request.getfixturevalue(fixture)
    model.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [HEADER, WEIGHTS]
    found = read(tmp_path)
    states = States.of(TEST[0])
    assert found.name == name
    assert np.array_equal(found.law(states).exceeded, model.law(states).exceeded)
    assert np.array_equal(found.gate(states), model.gate(states))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("shape", {"experts": 5}, "exactly"),
        ("ensemble", {"networks": 2}, "missing"),
        ("ensemble", {"networks": 100}, "at most"),
        ("schema", 99, "schema"),
    ],
)
def test_damaged_headers_are_refused(
    trained: LawModel, tmp_path: Path, key: str, value: object, says: str
) -> None:
    trained.write(tmp_path)
    header = json.loads((tmp_path / HEADER).read_text())
    (tmp_path / HEADER).write_text(json.dumps(header | {key: value}))
    with pytest.raises(InputError, match=says):
        read(tmp_path)
