from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mirage.elastic.runtime import layout, protocol, snapshots
from mirage.elastic.runtime.protocol import Node
from mirage.elastic.runtime.slices import ServedSlice, options_of
from mirage.errors import InputError, MirageError

SIZE, SHARDS = 600, 4


def job(optimizer: torch.optim.Optimizer) -> protocol.TrainingJob:
    return protocol.TrainingJob(
        parameters=(protocol.Parameter(name="weight", shape=(SIZE,), group=0),),
        optimizer=type(optimizer).__name__,
        groups=options_of(optimizer),
        samples=8,
        batch_size=8,
        micro_shards=SHARDS,
        steps=9,
        seed=0,
    )


def whole(make: Any) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, SIZE))
    return parameter, make([parameter])


MAKERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.99)),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.01)),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.9),
}


def gradient(step: int, shard: int) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(100 * step + shard))


@pytest.mark.parametrize("name", MAKERS)
def test_slices_that_move_compute_what_the_whole_optimizer_does(name: str) -> None:
    parameter, optimizer = whole(MAKERS[name])
    wanted = job(optimizer)
    geometry = layout.cut(wanted)
    assert len(geometry) > 5
    start = parameter.detach().numpy().copy()
    served = [
        ServedSlice(wanted, each, {snapshots.PARAMETER: start[each.first : each.last]}, 0)
        for each in geometry
    ]
    for step in range(6):
        left = gradient(step, 0) + gradient(step, 1)
        right = gradient(step, 2) + gradient(step, 3)
        parameter.grad = left + right
        optimizer.param_groups[0]["lr"] = options_of(MAKERS[name]([parameter]))[0]["lr"] * 0.5
        optimizer.step()
        for place, each in zip(served, geometry, strict=True):
            part = slice(each.first, each.last)
            place.add(Node(first=2, last=4, loss=0.5), right[part])
            assert place.step(0.5) is None
            place.add(Node(first=0, last=2, loss=0.25), left[part])
            place.add(Node(first=0, last=1, loss=9.0), gradient(step, 0)[part])
            assert place.step(0.5) == 0.75
        served = [  # each moves to another server
            ServedSlice(wanted, each, place.moving_buffers(), place.version)
            for place, each in zip(served, geometry, strict=True)
        ]
    got = np.concatenate([each.values for each in served])
    assert got.tobytes() == parameter.detach().numpy().tobytes()
    assert [each.version for each in served] == [6] * len(served)


def test_a_slice_keeps_its_last_two_versions_and_a_frozen_one_waits() -> None:
    _, optimizer = whole(MAKERS["sgd"])
    wanted = job(optimizer)
    start = np.zeros(60, dtype=np.float32)
    place = ServedSlice(wanted, layout.cut(wanted)[0], {snapshots.PARAMETER: start}, 7)
    place.frozen = True
    place.add(Node(first=0, last=4, loss=1.0), torch.ones(60))
    assert place.step(1.0) is None
    place.frozen = False
    assert place.step(1.0) == 1.0
    before, now = place.at(7), place.at(8)
    assert before is not None
    assert now is not None
    assert not before.any()
    assert now.all()
    assert place.at(6) is None
    assert place.at(9) is None


def test_optimizers_that_cannot_be_cut_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(InputError, match="optimizer LBFGS: use SGD, Adam"):
        options_of(torch.optim.LBFGS([parameter]))

    class SGD(torch.optim.SGD):
        pass

    with pytest.raises(InputError, match="optimizer SGD"):
        options_of(SGD([parameter]))


def test_a_snapshot_is_read_as_written_or_refused(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    values = {3: {"parameter": np.arange(5, dtype=np.float32)}, 1: {"parameter": np.zeros(2, "f4")}}
    part = snapshots.write_part(tmp_path, "v5-i1-a.safetensors", values)
    assert part.slices == (1, 3)
    got = snapshots.read_parts(tmp_path, [part], [3])
    assert list(got) == [3]
    assert got[3]["parameter"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(MirageError, match="no file has slice 2"):
        snapshots.read_parts(tmp_path, [part], [2, 3])
    path = tmp_path / "snapshots" / part.file
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(MirageError, match="not as it was written"):
        snapshots.read_parts(tmp_path, [part], [3])
    assert snapshots.new_file_name(5) != snapshots.new_file_name(5)
    snapshots.remove_old(tmp_path, [], 4)
    assert path.exists()
    snapshots.remove_old(tmp_path, [], 5)
    assert not path.exists()
