from __future__ import annotations

import contextlib
import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.elastic.runtime import protocol
from mirage.elastic.runtime.protocol import ProtocolError

JOB = protocol.TrainingJob(
    parameters=(protocol.Parameter(name="weight", shape=(3, 4), group=0),),
    optimizer="SGD",
    groups=({"lr": 0.1, "momentum": 0.9},),
    samples=100,
    batch_size=10,
    micro_shards=5,
    steps=20,
    seed=1,
)
PEER = protocol.Peer(name="s1", session="a1", endpoints=("tcp://127.0.0.1:1",), boot_id="b")
VIEW = protocol.View(
    incarnation=1,
    layout=2,
    roster=3,
    version=4,
    job=JOB,
    servers=(PEER,),
    owners=("s1", "s1"),
    shares=(protocol.WorkerShare(worker="w1", first=0, last=5),),
)
PUSH = protocol.Push(
    incarnation=1,
    layout=2,
    version=7,
    slices=(0, 1),
    nodes=(protocol.Node(first=0, last=5, loss=0.1 + 0.2),),
    rate=1.0,
)


@pytest.mark.parametrize(
    "message", [VIEW, PUSH, protocol.StatusQuery(), protocol.Resize(workers=2)]
)
def test_a_message_survives_the_wire(message: protocol.Message) -> None:
    assert protocol.decode(protocol.encode(message)) == message


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e-300, 0.1])
def test_a_loss_keeps_its_bits(loss: float) -> None:
    sent = protocol.Losses(first=0, values=(loss,))
    got = protocol.decode(protocol.encode(sent))
    assert isinstance(got, protocol.Losses)
    assert got.values[0].hex() == loss.hex()


def changed(**changes: object) -> list[bytes]:
    record = json.loads(protocol.encode(PUSH)[0])
    record |= changes
    return [json.dumps({k: v for k, v in record.items() if v != "absent"}).encode()]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "header: none"),
        ([b"\xff\x00"], "not JSON"),
        ([b"[" * 100_000], "not JSON"),
        ([b"[]"], "protocol version"),
        (changed(v=99), "protocol version"),
        (changed(kind="nonsense"), "kind: 'nonsense' is unknown"),
        (changed(version="7"), "version: '7' is not of type int"),
        (changed(version=True), "version: 'True' is not of type int"),
        (changed(version=-1), "out of range"),
        (changed(version=2**60), "out of range"),
        (changed(slices=3), "slices: not a list"),
        (changed(nodes=[{"first": 0, "last": 5}]), "no field 'loss'"),
        (changed(extra=1), "unknown field 'extra'"),
        (changed(rate="absent"), "no field 'rate'"),
    ],
)
def test_what_is_wrong_is_named(frames: list[bytes], words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode(frames)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_buffers_where_none_belong() -> None:
    with pytest.raises(ProtocolError, match="1 buffers where none belong"):
        protocol.decode([*protocol.encode(protocol.StatusQuery()), b"x"])


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="use letters"):
        protocol.check_name(name)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=3))
def test_garbage_is_an_error_and_nothing_else(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(frames)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_field_is_read_or_refused(data: st.DataObject) -> None:
    message = data.draw(
        st.sampled_from(
            [VIEW, PUSH, protocol.InView(step=0, incarnation=1, layout=1, roster=1, scaling=0)]
        )
    )
    name = data.draw(st.sampled_from([item.name for item in dataclasses.fields(message)]))
    value = data.draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=3)
        | st.dictionaries(st.text(max_size=3), st.integers())
    )
    record = json.loads(protocol.encode(message)[0]) | {name: value}
    with contextlib.suppress(ProtocolError):
        assert isinstance(protocol.decode([json.dumps(record).encode()]), type(message))
