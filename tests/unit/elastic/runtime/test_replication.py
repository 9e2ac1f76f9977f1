"""All-reduce: the coordinator's rosters with members played by hand, and whole jobs."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq

from mirage.elastic.runtime import addresses, folder, layout, protocol, replica
from mirage.elastic.runtime.client import Client
from mirage.elastic.runtime.local import COORDINATOR, LocalJob
from mirage.elastic.runtime.process_group import (
    GroupBroken,
    Links,
    ReplicaGroup,
    Wait,
    all_reduce,
)
from mirage.elastic.runtime.protocol import ALL_REDUCE, SERVER, WORKER
from tests.unit.elastic.runtime.members import JOB, PATIENCE_S, SLICES, Player, Stage
from tests.unit.elastic.runtime.test_job import END_S, active, outcome, run, script, until

__all__ = ["script"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine does not look like a member that is gone."""
    monkeypatch.setattr("mirage.elastic.runtime.replication.SUSPECT_S", 1000.0)
    monkeypatch.setattr("mirage.elastic.runtime.process_group.FORM_S", 120.0)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "job", silent_s=60.0)
    yield made
    made.close()


def enter(stage: Stage, name: str) -> Player:
    return stage.player(WORKER, name, plane=ALL_REDUCE)


def first(stage: Stage) -> Player:
    """A worker whose initial parameters are saved."""
    worker = enter(stage, "w1")
    worker.expect(protocol.Welcome, write_initial=True)
    part = protocol.SavedSlices(file="v0-a", slices=tuple(range(SLICES)), sha256="0")
    worker.send(protocol.Saved(incarnation=0, version=0, part=part))
    return worker


def join(worker: Player, *others: Player, step: int = 0) -> protocol.View:
    """All are in no group, form one, and have parameters."""
    names = [each.name for each in (worker, *others)]
    view = None
    for each in (worker, *others):
        view = each.expect_group(names)
        each.accept(view)
    for each in (worker, *others):
        form = each.expect(protocol.Form)
        assert view is not None
        assert form.roster == view.roster
        each.send(protocol.Formed(roster=form.roster, step=step, suspended_s=0.1))
        each.beat(view, step)
    assert view is not None
    return view


def test_a_group_forms_once_all_of_the_roster_are_without_one(stage: Stage) -> None:
    worker = first(stage)
    join(worker)
    second = enter(stage, "w2")
    view = second.expect_group(["w1", "w2"])
    assert [(each.worker, each.first, each.last) for each in view.shares] == [
        ("w1", 0, 2),
        ("w2", 2, 5),
    ]
    second.accept(view)
    mine = worker.expect_group(["w1", "w2"])
    worker.send(protocol.StatusQuery())
    worker.expect(protocol.Status)
    assert not any(isinstance(each, protocol.Form) for each in second.got)
    worker.accept(mine)
    assert second.expect(protocol.Form).roster == view.roster
    assert worker.expect(protocol.Form).roster == view.roster


def test_a_member_that_holds_up_a_group_and_is_silent_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = first(stage)
    second = enter(stage, "w2")
    view = join(worker, second)
    monkeypatch.setattr("mirage.elastic.runtime.replication.SUSPECT_S", 0.5)
    worker.accept(view)  # its group is broken; w2 says nothing any more
    alone = worker.expect_group(["w1"], beating=view)
    assert alone.roster > view.roster
    second.beat(view, 0)
    worker.expect_group(["w1", "w2"], beating=alone)


@pytest.mark.parametrize("lost", [protocol.InView, protocol.Form])
def test_a_group_forms_though_a_message_of_it_was_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lost: type[protocol.Message]
) -> None:
    monkeypatch.setattr("mirage.elastic.runtime.membership.AGAIN_S", 0.1)
    worker, second = first(stage), enter(stage, "w2")
    view = second.expect_group(["w1", "w2"])
    worker.accept(view)
    if lost is protocol.Form:
        second.accept(view)
        worker.expect(protocol.Form)
        worker.accept(view)  # it waited for the other one in vain
    second.got.clear()
    again = second.expect_group(["w1", "w2"])
    second.accept(again)
    assert again.roster == view.roster
    if lost is protocol.Form:
        stage.until(lambda: stage.coordinator.roster > again.roster)
        view = second.expect(protocol.View, roster=stage.coordinator.roster)
        for each in (worker, second):
            each.accept(view)
    assert second.expect(protocol.Form, roster=view.roster)


def test_a_drained_worker_stays_until_another_one_has_the_parameters(stage: Stage) -> None:
    worker = first(stage)
    view = join(worker, step=7)
    client = enter(stage, "client")
    client.expect(protocol.Welcome)
    client.send(protocol.DrainRequest(name="w1"))
    both = join(worker, client, step=7)
    assert both.roster > view.roster
    rest = worker.expect_group(["client"])
    worker.accept(rest)
    assert worker.expect(protocol.End).reason == "drained"
    assert client.expect(protocol.Drained).name == "w1"


def test_a_stop_saves_the_newest_parameters(stage: Stage) -> None:
    worker = first(stage)
    view = join(worker, step=7)
    worker.beat(view, 9)
    worker.send(protocol.StopRequest())
    empty = worker.expect_group([])
    worker.send(protocol.InView(step=9, incarnation=0, layout=0, roster=empty.roster, scaling=0))
    order = worker.expect(protocol.SaveAt)
    assert order.version == 9
    part = protocol.SavedSlices(file="v9-a", slices=tuple(range(SLICES)), sha256="0")
    worker.send(protocol.Saved(incarnation=0, version=9, part=part))
    assert worker.expect(protocol.Stopped).version == 9


def test_a_server_is_refused(stage: Stage) -> None:
    join(first(stage))
    server = stage.player(SERVER, "s1")
    assert "no parameter servers" in server.expect(protocol.Refusal).reason


# --- the parts of a worker


def test_a_replica_moves_with_its_optimiser_state() -> None:
    made = replica.Replica(JOB)
    values = np.arange(600, dtype=np.float32)
    made.set({i: {"parameter": values[s.first : s.last]} for i, s in enumerate(layout.cut(JOB))}, 4)
    made.update(torch.ones(600), 0.5, 1.0)
    other = replica.Replica(JOB)
    message, buffers = made.packed(roster=3)
    other.adopt(message, [memoryview(each.tobytes()) for each in buffers])
    for each in (made, other):
        each.update(torch.full((600,), 2.0), 0.25, 1.0)
    assert (other.version, other.losses) == (6, [0.5, 0.25])
    assert other.values().tobytes() == made.values().tobytes()
    assert made.values()[0] == pytest.approx(0 - 0.1 - 0.1 * (0.9 + 2))  # momentum has moved


@pytest.mark.parametrize("size", [1, 3])
def test_a_sum_does_not_depend_on_who_takes_part(tmp_path: Path, size: int) -> None:
    shards = 6
    gradients = torch.randn(shards, 100, generator=torch.Generator().manual_seed(2))
    want = layout.total({(i, i + 1): gradients[i] for i in range(shards)}, 0, shards, torch.add)
    covers = [
        layout.cover(shards * r // size, shards * (r + 1) // size, micro_shards=shards)
        for r in range(size)
    ]

    def own(rank: int) -> dict[tuple[int, int], Any]:
        leaves = {(i, i + 1): gradients[i] for i in range(shards)}
        return {n: (layout.total(leaves, *n, torch.add), 0.0) for n in covers[rank]}

    with crowd(tmp_path, size) as groups:
        found = together(
            lambda r: all_reduce(groups[r], covers, own(r), 100, shards, watchful(groups[r])), size
        )
    assert want is not None
    assert all(torch.equal(each, want) for each in found)


def test_strangers_at_a_groups_ports_get_nothing_and_disturb_nobody(tmp_path: Path) -> None:
    """Without keys: garbage, a CURVE handshake with keys of their own, a plain ZeroMQ socket that
    claims to be a member, as soon as the ports are open.
    """
    rng = random.Random(4)
    strangers: list[Any] = []

    def attack(links: Links, victim: str) -> None:
        port = int(links.endpoints[0].rpartition(":")[2])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
                raw.sendall(rng.randbytes(rng.choice([0, 1, 7, 64, 3000])))
        own = folder.create_folder(tmp_path / f"stranger-{port}")
        for keys in (own, None):
            made = strange.socket(zmq.DEALER)
            made.identity, made.linger = victim.encode(), 0
            if keys:
                made.curve_serverkey = keys.listener_public.encode()
                made.curve_publickey = keys.member_public.encode()
                made.curve_secretkey = keys.member_secret.encode()
            made.connect(f"tcp://127.0.0.1:{port}")
            poison = torch.full((1,), 666.0).numpy()
            message = protocol.Piece(roster=1)
            made.send_multipart(protocol.split(protocol.encode(message, [poison])))
            strangers.append(made)

    strange: zmq.Context[Any] = zmq.Context()
    with crowd(tmp_path, 2, before=attack) as groups:
        for _ in range(3):
            rows = together(
                lambda r: groups[r].gather(torch.tensor([float(r)]), watchful(groups[r])), 2
            )
            assert [each.tolist() for each in rows] == 2 * [[[0.0], [1.0]]]
        assert not any(each.poll(300) for each in strangers)
    for each in strangers:
        each.close()
    strange.term()


def test_a_member_of_another_size_breaks_the_group(tmp_path: Path) -> None:
    def gather(rank: int) -> Any:
        with pytest.raises(GroupBroken, match="sent another size"):
            groups[rank].gather(torch.zeros(1 + rank), watchful(groups[rank]))

    with crowd(tmp_path, 2) as groups:
        together(gather, 2)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda group: group.close(), "s0 has left"),
        (lambda group: group._links.close(), "s0 is gone"),
    ],
)
def test_who_leaves_or_dies_breaks_the_group_at_once(
    tmp_path: Path, end: Callable[[ReplicaGroup], None], words: str
) -> None:
    with crowd(tmp_path, 3) as groups:
        end(groups[0])
        for group in groups[1:]:
            with pytest.raises(GroupBroken, match=words):
                group.gather(torch.zeros(1), watchful(group))


def test_a_group_that_is_not_complete_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crowd(tmp_path, 2) as groups:
        monkeypatch.setattr("mirage.elastic.runtime.process_group.FORM_S", 0.5)
        with pytest.raises(GroupBroken, match="s1 did not come"):
            groups[0].gather(torch.zeros(1), watchful(groups[0]))
    gone = replace(groups[0].peers[1], session="s2", endpoints=("tcp://127.0.0.1:9",))
    context: zmq.Context[Any] = zmq.Context()
    links = Links(context, folder.load_keys(tmp_path / "job"), "s0")
    with pytest.raises(GroupBroken, match="no answer at"):
        ReplicaGroup([groups[0].peers[0], gone], "s0", 2, links)
    links.close()
    context.term()


def watchful(group: ReplicaGroup) -> Wait:
    """Waits for the group alone, a test's whole patience."""

    def wait(is_over: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_over():
            assert time.monotonic() < end, "it did not happen"
            group._links.socket.poll(50)

    return wait


@contextlib.contextmanager
def crowd(
    tmp_path: Path, size: int, before: Callable[[Links, str], None] = lambda _links, _victim: None
) -> Iterator[list[ReplicaGroup]]:
    """A group of members in this process. ``before``: called with each one's links, and the session
    of another member, before they connect.
    """
    keys = folder.create_folder(tmp_path / "job")
    contexts: list[zmq.Context[Any]] = [zmq.Context() for _ in range(size)]
    links = [Links(context, keys, f"s{rank}") for rank, context in enumerate(contexts)]
    peers = [
        protocol.Peer(
            name=f"s{rank}",
            session=f"s{rank}",
            endpoints=each.endpoints,
            boot_id=addresses.boot_id(),
        )
        for rank, each in enumerate(links)
    ]
    for rank, each in enumerate(links):
        before(each, f"s{(rank + 1) % size}")
    try:
        yield [ReplicaGroup(peers, f"s{rank}", 1, each) for rank, each in enumerate(links)]
    finally:
        for each, context in zip(links, contexts, strict=True):
            if not each.socket.closed:
                each.close()
            context.term()


def together(act: Any, size: int) -> list[Any]:
    """`act(rank)` in a thread each."""
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda rank=rank: found.update({rank: act(rank)}))
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


# --- whole jobs


def storm(job: LocalJob) -> None:
    """Workers come and go, one is killed, so is the coordinator, and the first one is drained."""
    with Client(job.path) as client:
        until(client, lambda status: status.step > 2)
        job.start(WORKER)
        job.start(WORKER)
        until(client, lambda status: active(status, WORKER) == 3)
        job.kill("worker-2")
        job.kill(COORDINATOR)
        job.start_coordinator()
        client.drain("worker-1", timeout_s=END_S)
        until(client, lambda status: active(status, WORKER) == 1)


def test_workers_that_come_and_go_leave_every_bit_as_parameter_servers_have_it(
    tmp_path: Path, script: Path
) -> None:
    calm = run(tmp_path / "servers", script, 0.0, lambda _job: None)
    path = tmp_path / "reduced"
    hurry = path.with_suffix(".hurry")
    command = [str(script), "60", "0.15", str(hurry)]
    timing = ["--beat", "0.2", "--silent", "60", "--snapshot", "1"]
    with LocalJob(path, command, timing=timing, plane=ALL_REDUCE) as job:
        job.start_coordinator()
        job.start(WORKER)
        storm(job)
        hurry.touch()
        job.wait(END_S)
    assert outcome(path) == calm
    groups = [json.loads(line) for line in (path / folder.EVENTS).read_text().splitlines()]
    assert sum(each["event"] == "group" for each in groups) >= 3


def after_restart(stage: Stage) -> tuple[Player, protocol.View]:
    """A worker that has registered again and reported step 7, and its view from before."""
    worker = first(stage)
    view = join(worker, step=7)
    stage.kill_coordinator()
    worker.expect(protocol.Welcome)
    worker.beat(view, 7)
    return worker, view


def test_a_coordinator_that_was_restarted_lets_a_drained_worker_hand_over_first(
    stage: Stage,
) -> None:
    worker, view = after_restart(stage)
    client = enter(stage, "w2")
    client.expect(protocol.Welcome)
    client.send(protocol.DrainRequest(name="w1"))
    both = join(worker, client, step=7)
    assert both.roster > view.roster
    worker.accept(worker.expect_group(["w2"]))
    assert worker.expect(protocol.End).reason == "drained"


def test_a_coordinator_that_was_restarted_saves_before_it_stops(stage: Stage) -> None:
    worker = first(stage)
    view = join(worker, step=7)
    stage.kill_coordinator()
    client = stage.player(WORKER, "client", plane=ALL_REDUCE)
    client.send(protocol.StopRequest())
    client.expect(protocol.Welcome)
    worker.expect(protocol.Welcome)
    worker.beat(view, 7)
    mine = worker.expect_group([])
    worker.send(protocol.InView(step=7, incarnation=0, layout=0, roster=mine.roster, scaling=0))
    assert worker.expect(protocol.SaveAt).version == 7


def test_after_a_restart_a_newcomer_does_not_train_without_who_has_the_parameters(
    stage: Stage,
) -> None:
    worker, _ = after_restart(stage)
    client = enter(stage, "w2")
    client.send(protocol.DrainRequest(name="w2"))
    alone = worker.expect_group(["w1"])
    worker.accept(alone)
    assert worker.expect(protocol.Form).roster == alone.roster


def gathered(stage: Stage) -> None:
    """The time is over in which a restarted coordinator lets workers register before all else."""
    stage.coordinator._started -= 3 * stage.coordinator.timing.beat_s
    stage.coordinator.turn(5)


def test_a_restarted_coordinator_does_not_stop_before_a_late_worker_has_saved(
    stage: Stage,
) -> None:
    worker = first(stage)
    view = join(worker, step=7)
    stage.kill_coordinator(late=worker)
    client = enter(stage, "client")
    client.expect(protocol.Welcome)
    client.send(protocol.Leave())
    client.send(protocol.StopRequest())
    stage.until(lambda: stage.coordinator.stopping)
    gathered(stage)
    comes_late(stage, worker, view)


def test_a_restarted_coordinator_does_not_dismiss_a_worker_before_it_has_saved(
    stage: Stage,
) -> None:
    worker = first(stage)
    view = join(worker, step=7)
    worker.send(protocol.DrainRequest(name="w1"))
    stage.until(lambda: stage.coordinator.state.draining == ("w1",))
    stage.kill_coordinator(late=worker)
    gathered(stage)
    comes_late(stage, worker, view)


def comes_late(stage: Stage, worker: Player, view: protocol.View) -> None:
    """It registers, later reports version 7, and gets the order to save that."""
    worker.register()
    worker.expect(protocol.Welcome)
    worker.beat(view, 7)
    mine = worker.expect_group([])
    worker.send(protocol.InView(step=7, incarnation=0, layout=0, roster=mine.roster, scaling=0))
    assert worker.expect(protocol.SaveAt).version == 7
