"""Training on a GPU makes what training on the CPU makes, and the same again.

These tests need no package but torch, numpy and pytest, for machines that are lent with a GPU:
`pytest --noconftest tests/unit/provision/test_learn_gpu.py`. Without a GPU those that need one are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.provision.learn.dqn import DqnOptions, train_dqn
from mirage.provision.learn.experts import at_once, in_turn
from mirage.provision.learn.foundation import Network, Shape
from mirage.provision.learn.model import States
from mirage.provision.learn.neural import Neural
from mirage.provision.learn.pg import PgOptions, train_pg
from mirage.provision.learn.pretrain import PretrainOptions, train_supervised
from tests.toy import Toy

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")

TOY = Toy(limit_h=5, most_jobs=70, predicts=True)
TRAIN = [TOY.episode(i) for i in range(48)]
HELD_OUT = [TOY.episode(i) for i in range(1000, 1012)]
JUDGED = States.of(TOY.episode(2000))
# Dropout is off: the two devices draw different ones.
ONE = Shape(width=16, heads=2, layers=1, feedforward=32, patch=72, dropout=0.0)
TEN = replace(ONE, experts=4, gate="balanced")


def pretrain_options(device: str, shape: Shape = ONE) -> PretrainOptions:
    return PretrainOptions(
        shape=shape, rounds=2, states=512, batch=64, expert_rounds=1, memory=1, device=device
    )


def costs_s(model: Neural) -> np.ndarray:
    said = model.assess(JUDGED)
    return np.stack([said.cost_now_s, said.cost_wait_s])


def weights(model: Neural) -> torch.Tensor:
    return torch.cat([item.detach().cpu().flatten() for item in model.network.parameters()])


Train = Callable[[str], Neural]


def trainings() -> Iterator[tuple[str, Train]]:
    for shape in (ONE, TEN):

        def foundation(device: str, shape: Shape = shape) -> Neural:
            return train_supervised(TRAIN, HELD_OUT, pretrain_options(device, shape), seed=3)

        def dqn(device: str, shape: Shape = shape) -> Neural:
            options = DqnOptions(
                pretrain=pretrain_options(device, shape), rounds=2, updates=4, batch=64
            )
            base = train_supervised(TRAIN, HELD_OUT, pretrain_options("cpu", shape), seed=3)
            return train_dqn(TRAIN, HELD_OUT, options, seed=3, base=base)

        def pg(device: str, shape: Shape = shape) -> Neural:
            pretrain = pretrain_options(device, shape)
            options = PgOptions(pretrain=pretrain, rounds=4, scored=4, warm=1)
            base = train_supervised(TRAIN, HELD_OUT, pretrain_options("cpu", shape), seed=3)
            return train_pg(TRAIN, HELD_OUT, options, seed=3, base=base)

        for train in (foundation, dqn, pg):
            yield f"{train.__name__}, experts: {shape.experts}", train


TRAININGS = dict(trainings())


@needs_gpu
@pytest.mark.parametrize("name", TRAININGS)
def test_values_and_heads_learnt_on_a_gpu_are_those_of_the_cpu(name: str) -> None:
    on_cpu, on_gpu, again = (TRAININGS[name](device) for device in ("cpu", "cuda", "cuda"))
    assert next(on_gpu.network.parameters()).device.type == "cpu", "models are kept on the CPU"
    difference = (weights(on_gpu) - weights(on_cpu)).norm() / weights(on_cpu).norm()
    assert float(difference) < 1e-2
    assert torch.equal(weights(again), weights(on_gpu))
    if on_cpu.serving.decides == "value":
        scale = np.abs(costs_s(on_cpu)).mean()
        assert np.abs(costs_s(on_gpu) - costs_s(on_cpu)).max() < 0.05 * scale


def test_experts_say_the_same_at_once_and_in_turn() -> None:
    torch.manual_seed(1)
    network = Network(TEN).eval()
    states, asked = torch.randn(5, 144, 40), torch.rand(5, 2, 3)
    inputs = states.flatten(1), network._questions(asked, (1.0, -1.0)), "action"
    gradients = []
    for run in (at_once, in_turn):
        network.zero_grad()
        said = run(network.foundation.experts, inputs)
        (said * torch.arange(said.numel()).view(said.shape) / said.numel()).sum().backward()
        found = [item.grad for item in network.foundation.experts.parameters()]
        gradients.append(torch.cat([each.flatten() for each in found if each is not None]))
    torch.testing.assert_close(
        at_once(network.foundation.experts, inputs), in_turn(network.foundation.experts, inputs)
    )
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
