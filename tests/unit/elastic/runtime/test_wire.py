from __future__ import annotations

import contextlib
import random
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from mirage.elastic.runtime import addresses, folder, protocol, wire
from mirage.elastic.runtime.folder import Keys
from mirage.errors import InputError

GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE".ljust(64, b"\x00")


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return folder.create_folder(tmp_path / "job")


def connect(context: zmq.Context[Any], keys: Keys, listener: wire.Listener) -> wire.PeerConnection:
    endpoint = f"tcp://127.0.0.1:{listener.port}"
    return wire.PeerConnection(context, keys, endpoint=endpoint, identity=wire.new_session())


def arrives(listener: wire.Listener, wait_ms: int) -> bool:
    return bool(listener.socket.poll(wait_ms)) and listener.receive() is not None


def test_keys_are_the_owners_alone(tmp_path: Path, keys: Keys) -> None:
    path = tmp_path / "job" / folder.KEYS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "job").stat().st_mode) == 0o700
    assert folder.load_keys(tmp_path / "job") == keys
    path.chmod(0o640)
    with pytest.raises(InputError, match=r"keys\.json: others may have read it"):
        folder.load_keys(tmp_path / "job")


@pytest.mark.parametrize("content", ["", "[]", '{"listener_public": "x"}', "\x00\x01"])
def test_a_damaged_key_file_is_named(tmp_path: Path, content: str) -> None:
    folder.create_folder(tmp_path / "job")
    path = tmp_path / "job" / folder.KEYS
    path.write_text(content)
    with pytest.raises(InputError, match=r"keys\.json: no keys of a job"):
        folder.load_keys(tmp_path / "job")


def test_many_that_create_a_folder_at_once_have_the_same_keys(tmp_path: Path) -> None:
    found: list[Keys] = []
    threads = [
        threading.Thread(target=lambda: found.append(folder.create_folder(tmp_path / "job")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(str, found))) == 1


def test_only_members_are_heard(context: zmq.Context[Any], tmp_path: Path, keys: Keys) -> None:
    listener = wire.Listener(context, keys)
    stranger = folder.create_folder(tmp_path / "other")
    half = Keys(
        listener_public=keys.listener_public,
        listener_secret="",
        member_public=stranger.member_public,
        member_secret=stranger.member_secret,
    )
    intruders = [connect(context, each, listener) for each in (stranger, half)]
    plain = context.socket(zmq.DEALER)
    plain.linger = 0
    plain.connect(f"tcp://127.0.0.1:{listener.port}")
    plain.send_multipart(protocol.encode(protocol.StatusQuery()))
    for each in intruders:
        each.send(protocol.StatusQuery())
    assert not arrives(listener, 500)
    member = connect(context, keys, listener)
    member.send(protocol.StatusQuery())
    assert arrives(listener, 10_000)
    assert not arrives(listener, 200)
    listener.close()


def test_scanners_and_garbage_do_not_disturb_members(context: zmq.Context[Any], keys: Keys) -> None:
    listener = wire.Listener(context, keys)
    member = connect(context, keys, listener)
    rng = random.Random(3)
    for round_number in range(150):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as raw:
            start = GREETING[: rng.randrange(65)] if round_number % 2 else b""
            raw.sendall(start + rng.randbytes(rng.choice([0, 1, 30, 300, 5000])))
    assert not arrives(listener, 100)
    member.send(protocol.StatusQuery())
    assert arrives(listener, 10_000)
    listener.close()


def test_a_stranger_fills_no_memory(context: zmq.Context[Any], keys: Keys) -> None:
    """A frame of a claimed GiB, before the handshake."""
    listener = wire.Listener(context, keys)
    taken = 0
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        raw.sendall(GREETING)
        raw.sendall(b"\x06" + (1 << 30).to_bytes(8, "big"))
        with contextlib.suppress(OSError):  # hung up on
            while taken < 1 << 30:
                taken += raw.send(bytes(1 << 20))
    assert taken < 64 << 20, "only the kernel's own buffers"
    listener.close()


@pytest.mark.parametrize(("handshake_s", "most"), [(1000.0, 2 * wire.YOUNG_EACH + 16), (1.0, 16)])
def test_idle_connections_end_and_keep_no_member_out(
    context: zmq.Context[Any],
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    handshake_s: float,
    most: int,
) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_S", handshake_s)
    listener = wire.Listener(context, keys)
    before = open_files()
    idle = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(200)]
    member = connect(context, keys, listener)
    member.send(protocol.StatusQuery())
    assert arrives(listener, 60_000)
    until(lambda: open_files() - before - len(idle) <= most)
    for each in idle:
        each.close()
    member.send(protocol.StatusQuery())
    assert arrives(listener, 60_000), "a member stays"
    listener.close()


def test_many_members_of_one_machine_join_at_once(context: zmq.Context[Any], keys: Keys) -> None:
    """Each looks first whether the address answers. None of them is hung up on."""
    listener = wire.Listener(context, keys)
    peer = protocol.Peer(
        name="s1", session="s1", endpoints=listener.endpoints, boot_id=addresses.boot_id()
    )
    count = wire.YOUNG_EACH - 4
    members = [
        wire.connect_peer(context, keys, peer, f"m{nth}", reconnects=False) for nth in range(count)
    ]
    for member in members:
        member.send(protocol.StatusQuery())
    for _ in range(count):
        assert arrives(listener, 60_000)
    assert not any(member.is_lost for member in members)
    listener.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_large_buffers_arrive_whole(context: zmq.Context[Any], keys: Keys) -> None:
    listener = wire.Listener(context, keys)
    member = connect(context, keys, listener)
    sent = [np.arange(size, dtype=np.float32) for size in (0, 1, 3 << 20, 7)]
    member.send(protocol.Piece(roster=1), sent)
    assert listener.socket.poll(60_000)
    received = listener.receive()
    assert received is not None
    assert [bytes(each) for each in received[2]] == [each.tobytes() for each in sent]
    listener.close()


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"1234567"],
        [(5).to_bytes(8, "little"), b"1234"],
        [(5).to_bytes(8, "little"), b"123456"],
        [(5).to_bytes(8, "little"), b"12345", b"6"],
        [(2**63).to_bytes(8, "little"), b"12345"],
    ],
)
def test_frames_that_do_not_fit_their_sizes_are_dropped(frames: list[bytes]) -> None:
    with pytest.raises(protocol.ProtocolError, match="frames: "):
        protocol.joined([memoryview(each) for each in frames])


def test_garbage_from_a_holder_of_the_keys_is_dropped(
    context: zmq.Context[Any], keys: Keys
) -> None:
    listener = wire.Listener(context, keys)
    member = connect(context, keys, listener)
    member.send_parts([b"\xff", b"x"])
    member.send(protocol.StatusQuery())
    assert listener.socket.poll(10_000)
    with pytest.raises(protocol.ProtocolError, match="not JSON"):
        listener.receive()
    assert arrives(listener, 10_000)
    listener.close()


def test_addresses_are_numbers_and_loopback_is_last() -> None:
    own = addresses.endpoints(1234)
    assert own
    for endpoint in own:
        protocol.check_endpoint(endpoint)
    assert own[-1] == "tcp://127.0.0.1:1234"


def test_another_machines_loopback_is_never_tried() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert addresses.reachable([endpoint], addresses.boot_id()) == endpoint
        assert addresses.reachable([endpoint], "another machine") is None
    assert addresses.reachable([endpoint], addresses.boot_id()) is None


def test_a_link_finds_the_next_coordinator(
    context: zmq.Context[Any], tmp_path: Path, keys: Keys
) -> None:
    link = wire.CoordinatorLink(context, path=tmp_path / "job", keys=keys)
    assert not link.refresh()
    for session in ("a1", "b2"):
        listener = wire.Listener(zmq.Context(), keys)
        wire.write_address(tmp_path / "job", session, listener.endpoints)
        assert link.refresh()
        assert not link.refresh()
        link.send(protocol.StatusQuery())
        assert arrives(listener, 10_000)
        listener.close()
    (tmp_path / "job" / folder.ADDRESS).write_text("torn")
    assert not link.refresh()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    folder.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        folder.write_json(path, {"a": object()})
    assert folder.read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
