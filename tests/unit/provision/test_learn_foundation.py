"""The network: the paper's inputs, the action variable, the gates, the heads."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.provision.learn.foundation import MOE, STATE, SUBMIT, WAIT, Expert, Network, Shape
from mirage.provision.learn.gate import Gate

SMALL = Shape(width=16, heads=2, layers=1, feedforward=32, patch=24)
DENSE = replace(SMALL, experts=4, gate="dense")
BALANCED = replace(SMALL, experts=4, gate="balanced")
TOP1 = replace(DENSE, gate="top1")


def network(shape: Shape) -> Network:
    torch.manual_seed(0)
    made = Network(shape).eval()
    if isinstance(made.foundation.gate, nn.Linear):  # opinions that differ from state to state
        torch.nn.init.normal_(made.foundation.gate.weight, std=0.02)
    return made


def states(n: int = 6) -> Tensor:
    return torch.randn(n, 144, 40, generator=torch.Generator().manual_seed(1))


def asked(n: int = 6) -> Tensor:
    """Penalty shares from 0.1 to 0.9, each with a forecast that is far below the time left."""
    told = torch.tensor([0.5, -0.8]).expand(n, 1, 2)
    return torch.cat([torch.linspace(0.1, 0.9, n)[:, None, None], told], dim=-1)


PAPERS = Shape(penalty_input=False, forecast_input=False)


def test_inputs_are_the_papers_5761_and_what_the_penalty_share_and_the_forecast_add() -> None:
    assert PAPERS.inputs == 144 * 40 + 1 == 5761
    assert replace(PAPERS, penalty_input=True).inputs == 5762
    assert Shape().inputs == 5764
    for shape in (PAPERS, Shape(), MOE):
        assert network(shape)(torch.zeros(3, shape.inputs)).shape == (3,)


@pytest.mark.parametrize("shape", [SMALL, DENSE, TOP1])
def test_both_actions_at_once_are_the_flat_input_action_by_action(shape: Shape) -> None:
    net = network(replace(shape, penalty_input=False, forecast_input=False))
    both = net.values(states(), asked()).q[:, 0]
    for i, action in enumerate((SUBMIT, WAIT)):
        flat = torch.cat([states().reshape(6, STATE), torch.full((6, 1), action)], dim=1)
        assert torch.allclose(net(flat), both[:, i], atol=1e-5)


@pytest.mark.parametrize("shape", [SMALL, DENSE])
def test_many_shares_at_once_are_the_same_as_one_by_one(shape: Shape) -> None:
    net = network(shape)
    others = asked().flip(0)
    many = torch.cat([asked(), others], dim=1)
    assert torch.allclose(
        net.values(states(), many).q[:, 1:], net.values(states(), others).q, atol=1e-5
    )
    assert not torch.allclose(
        net.values(states(), asked()).q, net.values(states(), others).q, atol=1e-3
    )


@pytest.mark.parametrize(
    ("column", "of"), [(0, "penalty_input"), (1, "forecast_input"), (2, "forecast_input")]
)
def test_each_number_that_is_asked_with_matters_where_the_shape_has_it(
    column: int, of: str
) -> None:
    other = asked()
    other[..., column] += 1
    with_it, without = network(SMALL), network(replace(SMALL, **{of: False}))
    assert not torch.allclose(
        with_it.values(states(), other).q, with_it.values(states(), asked()).q, atol=1e-3
    )
    assert torch.equal(without.values(states(), other).q, without.values(states(), asked()).q)


def test_action_and_old_rows_matter() -> None:
    net = network(SMALL)
    q = net.values(states(), asked()).q
    assert (q[..., 0] - q[..., 1]).abs().min() > 1e-4
    older = states()
    older[:, :24] = 0
    assert not torch.allclose(net.values(older, asked()).q, q, atol=1e-4)


def experts_q(net: Network) -> Tensor:
    """(n, experts, 2): what each expert says alone."""
    alone = []
    for i in range(net.shape.experts):
        single = Network(replace(net.shape, experts=1, gate="none")).eval()
        single.foundation.experts[0].load_state_dict(net.foundation.experts[i].state_dict())
        with torch.no_grad():
            single.value.weight.copy_(
                net.value.weight[:, i * net.shape.width : (i + 1) * net.shape.width]
            )
        alone.append(single.values(states(), asked()).q[:, 0])
    return torch.stack(alone, dim=1)


def test_dense_gate_is_the_weighted_average_of_the_experts_q_values() -> None:
    net = network(DENSE)
    found = net.values(states(), asked())
    assert torch.allclose(found.gate.sum(-1), torch.ones(6))
    assert found.gate.std() > 0.05
    assert torch.allclose((found.gate[..., None] * experts_q(net)).sum(1), found.q[:, 0], atol=1e-5)


def test_a_balanced_gate_sees_summaries_alone() -> None:
    torch.manual_seed(0)
    net = Network(BALANCED).eval()
    assert isinstance(net.foundation.gate, Gate)
    torch.nn.init.normal_(net.foundation.gate.linear.weight, std=0.5)
    found = net.values(states(), asked())
    assert found.gate.std() > 0.01
    assert torch.allclose((found.gate[..., None] * experts_q(net)).sum(1), found.q[:, 0], atol=1e-5)
    other = states()
    other[:, 50], other[:, 51] = states()[:, 51], states()[:, 50]  # no summary tells them apart
    assert torch.allclose(net.values(other, asked()).gate, found.gate, atol=1e-6)
    other[:, -1] += 1
    assert not torch.allclose(net.values(other, asked()).gate, found.gate, atol=1e-4)


def test_top1_gate_routes_each_state_to_one_expert_which_alone_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = network(TOP1)
    expected = experts_q(net)
    routed: list[int] = []
    forward = Expert.forward

    def counted(self: Expert, batch: Tensor, *others: object) -> Tensor:
        routed.append(len(batch))
        return forward(self, batch, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Expert, "forward", counted)
    found = net.values(states(), asked())
    chosen = found.gate.argmax(-1)
    assert len(set(chosen.tolist())) > 1
    assert sum(routed) == len(states())
    assert torch.allclose(found.q[:, 0], expected[torch.arange(6), chosen], atol=1e-5)


def test_top1_gate_still_learns() -> None:
    net = network(TOP1)
    net.values(states(), asked()).q.sum().backward()
    assert isinstance(net.foundation.gate, nn.Linear)
    assert net.foundation.gate.weight.grad is not None
    assert net.foundation.gate.weight.grad.abs().sum() > 0


def test_adopted_expert_answers_as_it_did_alone() -> None:
    torch.manual_seed(5)
    alone, many = Network(SMALL).eval(), network(TOP1)
    assert isinstance(many.foundation.gate, nn.Linear)
    with torch.no_grad():
        many.foundation.gate.bias.copy_(torch.tensor([0.0, 99.0, 0.0, 0.0]))
    many.adopt(alone, 1)
    assert torch.allclose(
        many.values(states(), asked()).q, alone.values(states(), asked()).q, atol=1e-5
    )


def test_p_head_gives_chances_and_shares_the_foundation() -> None:
    net = network(DENSE)
    chances = net.log_chances(states(), asked()).exp()
    assert chances.shape == (6, 1, 2)
    assert torch.allclose(chances.sum(-1), torch.ones(6, 1))
    own = sum(item.numel() for item in net.policy_parameters())
    assert own < sum(item.numel() for item in net.parameters()) / 10


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"patch": 7}, "divisor"),
        ({"width": 30}, "multiple"),
        ({"layers": 0}, "layers"),
        ({"dropout": 1.0}, "dropout"),
        ({"experts": 3}, "gate"),
    ],
)
def test_impossible_shapes_are_refused(wrong: dict[str, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Shape(**wrong)  # type: ignore[arg-type]
