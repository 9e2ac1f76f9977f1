from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mirage.elastic.runtime import batches, flat, protocol, trainer
from mirage.elastic.runtime.trainer import Elastic
from mirage.errors import InputError
from tests.unit.elastic.runtime.members import JOB

DATA = torch.utils.data.TensorDataset(torch.zeros(20, 3))


@pytest.fixture
def _worker_context(tmp_path: Path) -> Iterator[None]:
    trainer.set_worker_context(trainer.WorkerContext(folder=tmp_path, name="w1", orphan_s=1.0))
    yield
    trainer._worker_context = None


class RestoredPlane:
    """Goes back to a snapshot of version 4 while the worker computes at version 4."""

    end, last_loss, share = "", 0.5, (0, 2)

    def __init__(self) -> None:
        self.version, self.incarnation, self.wanted = 4, 0, 4
        self.pushed: list[tuple[int, int]] = []

    def turn(self, wait_ms: int) -> None:
        if self.incarnation == 0:
            self.version, self.incarnation, self.wanted = -1, 1, 4
        elif wait_ms and self.wanted == 4 + len(self.pushed):
            self.version = self.wanted

    def push(self, _nodes: object, _rate: float) -> None:
        self.pushed.append((self.version, self.incarnation))

    def wait_for(self, version: int) -> None:
        self.wanted = version

    def close(self) -> None: ...


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_script_that_was_started_alone_is_told_how_to() -> None:
    model = torch.nn.Linear(3, 1)
    with pytest.raises(InputError, match=r"python -m mirage\.elastic\.runtime\.worker"):
        Elastic(model, sgd(model), DATA, batch_size=4, steps=5)


@pytest.mark.usefixtures("_worker_context")
@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("batch_size: 21; give 1 to the data set's 20 samples", {"batch_size": 21, "steps": 1}),
        ("batch_size: 0", {"batch_size": 0, "steps": 1}),
        ("either epochs or steps", {"batch_size": 4}),
        ("either epochs or steps", {"batch_size": 4, "epochs": 1, "steps": 1}),
        ("0 steps; give at least one", {"batch_size": 4, "epochs": 0}),
        ("0 steps; give at least one", {"batch_size": 4, "epochs": 0.1}),
        (
            "micro_shards: 12; give 1 to batch_size",
            {"batch_size": 4, "steps": 1, "micro_shards": 12},
        ),
    ],
)
def test_wrong_values_are_named(words: str, options: dict[str, Any]) -> None:
    model = torch.nn.Linear(3, 1)
    with pytest.raises(InputError, match=words):
        Elastic(model, sgd(model), DATA, **{"micro_shards": 2} | options)


@pytest.mark.usefixtures("_worker_context")
@pytest.mark.timeout(20)
def test_a_restore_while_a_worker_computes_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = RestoredPlane()
    monkeypatch.setattr(Elastic, "_new_plane", lambda _elastic, _worker: plane)
    model = torch.nn.Linear(3, 1)
    with Elastic(model, sgd(model), DATA, batch_size=4, micro_shards=2, steps=9) as elastic:
        step = elastic.step(lambda model, batch: model(batch[0]).mean())
    assert step is not None
    assert step.number == 4
    assert plane.pushed == [(4, 1)]


def test_running_statistics_are_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(InputError, match="1: BatchNorm1d keeps running statistics"):
        flat.FlatModel(model, sgd(model))


def test_parameters_of_another_type_are_refused() -> None:
    model = torch.nn.Linear(3, 4).to(torch.bfloat16)
    with pytest.raises(InputError, match=r"weight: torch\.bfloat16; keep parameters as float32"):
        flat.FlatModel(model, sgd(model))


def test_the_flat_vector_is_the_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    groups = [{"params": model[1].parameters()}, {"params": model[0].parameters()}]
    made = flat.FlatModel(model, torch.optim.SGD(groups, lr=0.1))
    names = [(each.name, each.group) for each in made.parameters]
    assert names == [("1.weight", 0), ("1.bias", 0), ("0.weight", 1), ("0.bias", 1)]
    values = made.get_values() * 0 + 2
    made.set_values(values)
    assert all(bool((each == 2).all()) for each in model.parameters())
    model.zero_grad(set_to_none=True)  # what users' code may do
    made.clear_gradients()
    model(torch.ones(1, 3)).sum().backward()
    assert made.take_gradients()[4] == 1  # d out / d bias
    assert len(made.take_gradients()) == 21


def test_each_sample_is_used_once_an_epoch_in_an_order_of_its_own() -> None:
    made = batches.Batches(JOB)
    epochs = [
        [i for step in range(10) for shard in range(5) for i in made.indices(10 * e + step, shard)]
        for e in range(2)
    ]
    assert all(sorted(each) == list(range(100)) for each in epochs)
    assert epochs[0] != epochs[1]
    assert batches.Batches(JOB).indices(13, 2) == made.indices(13, 2)


def test_random_numbers_depend_on_step_and_shard_alone() -> None:
    def draw(step: int, shard: int) -> float:
        batches.seed_generators(JOB, step, shard)
        return float(torch.rand(1))

    first = draw(3, 1)
    torch.rand(7)
    assert draw(3, 1) == first
    assert len({draw(3, 1), draw(3, 2), draw(4, 1)}) == 3


def test_a_sample_of_protocol_is_complete() -> None:
    assert (
        protocol.from_record(protocol.TrainingJob, protocol.to_record(JOB), "job").steps
        == JOB.steps
    )
