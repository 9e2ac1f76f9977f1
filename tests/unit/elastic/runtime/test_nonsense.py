"""Messages that are well formed and make no sense, from a holder of the keys: nobody falls over."""

from __future__ import annotations

import random
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from mirage.elastic.runtime import folder, layout, protocol
from mirage.elastic.runtime.protocol import Message, ProtocolError
from mirage.elastic.runtime.server import ParameterServer
from mirage.elastic.runtime.slices import ServedSlice
from tests.unit.elastic.runtime.members import JOB, Stage, begin

WORDS = ["s1", "w1", "worker", "server", "all-reduce", "tcp://127.0.0.1:9", "x" * 64, "SGD"]


def nonsense(hint: Any, rng: random.Random) -> Any:
    """Any value of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return nonsense(rng.choice(arguments), rng)
    if origin is tuple:
        return tuple(nonsense(arguments[0], rng) for _ in range(rng.choice([0, 1, 1, 3, 12])))
    if hint is type(None):
        return None
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{each.name: nonsense(hints[each.name], rng) for each in fields(hint)})
    if hint is Any or getattr(origin, "__name__", "") == Mapping.__name__:
        return {}
    return {
        int: lambda: rng.choice([0, 1, 2, 5, 9, 10, 10**6, 2**53 - 1]),
        float: lambda: rng.choice([0.0, -1.5, 1e300]),
        bool: lambda: rng.random() < 0.5,
        str: lambda: rng.choice(WORDS),
    }[hint]()


def messages(rng: random.Random, count: int) -> Iterator[Message]:
    kinds = list(protocol.KINDS.values())
    while count:
        try:
            made = nonsense(rng.choice(kinds), rng)
            protocol.decode(protocol.encode(made)[:1])
        except ProtocolError:  # a name or an address that is none
            continue
        count -= 1
        yield made


@pytest.mark.parametrize("seed", range(3))
def test_a_coordinator_survives_any_message_of_a_member(tmp_path: Path, seed: int) -> None:
    stage = Stage(tmp_path / "job")
    try:
        server, worker, _view = begin(stage)
        rng = random.Random(seed)
        for message in messages(rng, 300):
            if not isinstance(message, protocol.StopRequest | protocol.Leave):
                rng.choice([server, worker]).send(message)
        stage.coordinator.turn(50)
        for _ in range(20):
            stage.coordinator.turn(5)
        other = stage.player("server", "other")
        other.send(protocol.StatusQuery())
        other.expect(protocol.Status)
    finally:
        stage.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_server_survives_any_message_and_keeps_its_slices(tmp_path: Path, seed: int) -> None:
    folder.create_folder(tmp_path / "job")
    server = ParameterServer(tmp_path / "job", "s1", 900.0)
    try:
        server.job, server._geometry = JOB, layout.cut(JOB)
        values = {i: np.full(s.size, 3, np.float32) for i, s in enumerate(server._geometry)}
        server.slices = {
            i: ServedSlice(JOB, s, {"parameter": values[i]}, 0)
            for i, s in enumerate(server._geometry)
        }
        rng = random.Random(seed)
        for message in messages(rng, 400):
            sizes = [rng.choice([0, 3, 4, 240, 2400]) for _ in range(rng.randrange(4))]
            received = (b"w1", message, [memoryview(bytes(size)) for size in sizes])
            server._receive(lambda received=received: received, server._serve)
        assert all((server.slices[i].values == values[i]).all() for i in values)
        assert server.version == 0
    finally:
        server.coordinator.close()
        server.listener.close()
        server.context.term()
