"""The coordinator's protocol, with members that are played by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirage.elastic.runtime import folder, protocol
from mirage.elastic.runtime.protocol import SERVER, WORKER
from mirage.elastic.runtime.saving import SAVE_S
from mirage.elastic.runtime.server import ParameterServer
from tests.unit.elastic.runtime.members import (
    SLICES,
    Player,
    Stage,
    begin,
    save,
    save_until_the_end,
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "job")
    yield made
    made.close()


def events(stage: Stage) -> list[str]:
    lines = (stage.path / folder.EVENTS).read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def prepared(stage: Stage, server: Player, view: protocol.View) -> tuple[Player, protocol.Prepare]:
    """A second server has been announced; nobody has answered."""
    server.beat(view, 7)
    stage.until(lambda: stage.coordinator.members["s1"].step == 7)
    second = stage.player(SERVER, "s2")
    second.accept(second.expect(protocol.View))
    return second, second.expect(protocol.Prepare)


def moving(prepare: protocol.Prepare) -> tuple[int, ...]:
    return tuple(i for i, owner in enumerate(prepare.owners) if owner == "s2")


def test_a_server_is_added_in_four_phases(stage: Stage) -> None:
    server, worker, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    assert len(moving(prepare)) == SLICES // 2
    assert prepare.clock > 7
    for member in (server, second, worker):
        member.send(protocol.Ready(scaling=prepare.scaling, accepted=True, step=7))
    stage.until(lambda: "migrate" in events(stage))
    second.send(protocol.Adopted(scaling=prepare.scaling, slices=moving(prepare)))
    for member in (server, second, worker):
        new = member.expect(protocol.View, scaling=prepare.scaling)
        assert new.owners == prepare.owners
        assert "commit" not in events(stage)
        member.accept(new)
    stage.until(lambda: "commit" in events(stage))
    assert [e for e in events(stage) if e in ("prepare", "migrate", "switch", "commit")] == [
        "prepare",
        "migrate",
        "switch",
        "commit",
    ]


def test_a_clock_that_a_slice_has_passed_gives_up_and_tries_a_later_one(stage: Stage) -> None:
    server, _, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    server.send(protocol.Ready(scaling=prepare.scaling, accepted=False, step=50))
    for member in (server, second):
        old = member.expect(protocol.View)
        assert old.owners == view.owners
    again = second.expect(protocol.Prepare)
    assert (again.scaling, again.clock > 50) == (prepare.scaling + 1, True)


@pytest.mark.parametrize("who", ["s2", "w1"])
def test_a_member_lost_before_the_switch_changes_nothing_or_does_not_hold_up(
    stage: Stage, who: str
) -> None:
    server, worker, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    {"s2": second, "w1": worker}[who].send(protocol.Leave())
    if who == "s2":
        assert server.expect(protocol.View).owners == view.owners
        assert "abort" in events(stage)
        return
    for member in (server, second):
        member.send(protocol.Ready(scaling=prepare.scaling, accepted=True, step=7))
    stage.until(lambda: "migrate" in events(stage))


def test_a_lost_owner_takes_the_job_back_to_its_last_snapshot(stage: Stage) -> None:
    server, worker, view = begin(stage)
    save(server, view, 20)
    stage.until(lambda: "snapshot" in events(stage))
    second = stage.player(SERVER, "s2")
    second.accept(second.expect(protocol.View))
    server.send(protocol.Leave())
    back = worker.expect(protocol.View, incarnation=view.incarnation + 1)
    assert (back.version, set(back.owners)) == (20, {"s2"})
    assert [part.file[:4] for part in back.load] == ["v20-"]


def test_a_snapshot_of_a_version_that_is_saved_changes_nothing(stage: Stage) -> None:
    server, worker, view = begin(stage)
    save(server, view, 20)
    stage.until(lambda: "snapshot" in events(stage))
    manifest = stage.coordinator.state.manifest
    save(server, view, 20)
    worker.send(protocol.StatusQuery())
    assert worker.expect(protocol.Status).snapshot == 20
    assert stage.coordinator.state.manifest == manifest


def test_a_coordinator_killed_before_the_switch_forgets_the_scaling(stage: Stage) -> None:
    server, _, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    stage.kill_coordinator()
    for member in (server, second):
        again = member.expect(protocol.View)
        assert (again.owners, again.incarnation) == (view.owners, view.incarnation)
    second.send(protocol.Adopted(scaling=prepare.scaling, slices=moving(prepare)))
    assert stage.coordinator.state.owners == view.owners


def test_a_coordinator_killed_after_the_switch_keeps_it(stage: Stage) -> None:
    server, worker, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    for member in (server, second, worker):
        member.send(protocol.Ready(scaling=prepare.scaling, accepted=True, step=7))
    second.send(protocol.Adopted(scaling=prepare.scaling, slices=moving(prepare)))
    stage.until(lambda: "switch" in events(stage))
    stage.kill_coordinator()
    for member in (server, second, worker):
        again = member.expect(protocol.View, owners=prepare.owners)
        assert again.incarnation == view.incarnation


def test_a_restarted_server_of_the_same_name_is_another_one(stage: Stage) -> None:
    _, worker, view = begin(stage)
    stage.player(SERVER, "s1")
    back = worker.expect(protocol.View, incarnation=view.incarnation + 1)
    assert back.version == 0
    assert back.servers[0].session == stage.members[-1].link.identity


def test_a_drained_worker_ends_once_the_others_have_its_share(stage: Stage) -> None:
    _, worker, view = begin(stage)
    other = stage.player(WORKER, "w2")
    other.accept(other.expect(protocol.View))
    halves = worker.expect(protocol.View, roster=view.roster + 1)
    assert [share.worker for share in halves.shares] == ["w1", "w2"]
    client = stage.player(WORKER, "client")
    client.send(protocol.DrainRequest(name="w1"))
    rest = worker.expect(
        protocol.View, shares=(protocol.WorkerShare(worker="w2", first=0, last=5),)
    )
    assert not any(isinstance(each, protocol.Drained) for each in client.got)
    worker.accept(rest)
    assert worker.expect(protocol.End).reason == "drained"
    assert client.expect(protocol.Drained).name == "w1"


def test_draining_the_last_server_saves_its_slices_first(stage: Stage) -> None:
    server, worker, view = begin(stage)
    server.beat(view, 30)
    worker.send(protocol.DrainRequest(name="s1"))
    version, reason = save_until_the_end(server, view)
    assert reason == "drained"
    worker.expect(protocol.Drained)
    new = stage.player(SERVER, "s2")
    assert new.expect(protocol.View).version == version


def test_a_stop_saves_and_the_job_goes_on_from_there(stage: Stage) -> None:
    server, worker, view = begin(stage)
    server.beat(view, 30)
    worker.send(protocol.StopRequest())
    version, reason = save_until_the_end(server, view)
    assert reason == "stopped"
    assert worker.expect(protocol.Stopped).version == version
    stage.forget_members()
    stage.kill_coordinator()
    new = stage.player(SERVER, "s9")
    assert new.expect(protocol.View).version == version


def told_to_hold(stage: Stage, server: Player, view: protocol.View) -> protocol.SaveAt:
    """The server has reached the version that it is to save for a stop, a long time ago."""
    order = server.expect(protocol.SaveAt)
    server.beat(view, order.version)
    stage.until(lambda: stage.coordinator.members["s1"].step == order.version)
    later(stage)
    return order


def later(stage: Stage) -> None:
    """Time for another try has passed."""
    assert stage.coordinator.pause is not None
    stage.coordinator.pause.began -= SAVE_S / 2
    stage.coordinator.turn(5)


def test_a_stop_waits_for_a_server_that_is_slow_to_write(stage: Stage) -> None:
    server, worker, view = begin(stage)
    worker.send(protocol.StopRequest())
    order = told_to_hold(stage, server, view)
    assert stage.coordinator.pause is not None
    assert stage.coordinator.pause.version == order.version, "no later one, which takes as long"
    save(server, view, order.version)
    assert server.expect(protocol.End).reason == "stopped"
    assert worker.expect(protocol.Stopped).version == order.version


def test_a_server_that_was_past_the_version_of_a_stop_saves_a_later_one(stage: Stage) -> None:
    server, worker, view = begin(stage)
    worker.send(protocol.StopRequest())
    order = told_to_hold(stage, server, view)
    server.send(protocol.NotSaved(incarnation=view.incarnation, version=order.version))
    again = server.expect(protocol.SaveAt)
    assert again.version > order.version


def test_an_order_to_save_that_was_lost_is_given_again(stage: Stage) -> None:
    server, worker, view = begin(stage)
    worker.send(protocol.StopRequest())
    order = told_to_hold(stage, server, view)
    assert not any(isinstance(each, protocol.SaveAt) for each in server.got)
    later(stage)
    later(stage)
    assert server.expect(protocol.SaveAt) == order


def test_a_switch_that_a_member_did_not_hear_of_is_told_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.elastic.runtime.membership.AGAIN_S", 0.1)
    server, worker, view = begin(stage)
    second, prepare = prepared(stage, server, view)
    for member in (server, second, worker):
        member.send(protocol.Ready(scaling=prepare.scaling, accepted=True, step=7))
    second.send(protocol.Adopted(scaling=prepare.scaling, slices=moving(prepare)))
    for member in (server, second):
        member.accept(member.expect(protocol.View, scaling=prepare.scaling))
    worker.expect(protocol.View, scaling=prepare.scaling)  # its answer is lost
    worker.accept(worker.expect(protocol.View, scaling=prepare.scaling))
    stage.until(lambda: "commit" in events(stage))


def test_a_stop_without_workers_waits_for_what_can_be_saved_alone(stage: Stage) -> None:
    server, worker, view = begin(stage)
    server.beat(view, 30)
    worker.send(protocol.Leave())
    worker.send(protocol.StopRequest())
    order = told_to_hold(stage, server, view)
    assert order.version == 30
    assert stage.coordinator.over_s is None
    server.send(protocol.NotSaved(incarnation=view.incarnation, version=30))
    assert worker.expect(protocol.Stopped).version == 0


def test_a_server_says_that_it_does_not_save_a_version_that_it_has_passed(tmp_path: Path) -> None:
    folder.create_folder(tmp_path / "job")
    server = ParameterServer(tmp_path / "job", "s1", 900.0)
    try:
        server.slices = {0: SimpleNamespace(version=5)}  # type: ignore[dict-item]
        order = protocol.SaveAt(incarnation=0, version=4, hold=True)
        server._obey(order)
        said = protocol.decode(server.coordinator._inner.recv_multipart())
        assert said == protocol.NotSaved(incarnation=0, version=4)
    finally:
        server.coordinator.close()
        server.listener.close()
        server.context.term()


def test_a_member_that_left_while_no_coordinator_ran_does_not_spoil_its_name(stage: Stage) -> None:
    server, worker, _ = begin(stage)
    server.send(protocol.DrainRequest(name="w1"))
    stage.until(lambda: stage.coordinator.state.draining == ("w1",))
    stage.kill_coordinator(late=worker)
    server.expect(protocol.Welcome)
    assert stage.coordinator.state.draining == ("w1",), "it may register again"
    stage.coordinator._started -= stage.coordinator.timing.silent_s
    stage.until(lambda: stage.coordinator.state.draining == ())
    again = stage.player(WORKER, "w1")
    again.accept(again.expect(protocol.View))
    again.expect(protocol.View, shares=(protocol.WorkerShare(worker="w1", first=0, last=5),))


def test_a_resize_says_what_to_start_and_drains_the_youngest(stage: Stage) -> None:
    begin(stage)
    second = stage.player(WORKER, "w2")
    second.accept(second.expect(protocol.View))
    client = stage.player(WORKER, "client")
    client.expect(protocol.Welcome)
    client.send(protocol.Leave())
    client.send(protocol.Resize(workers=1, servers=3))
    plan = client.expect(protocol.ResizePlan)
    assert (plan.start_workers, plan.start_servers, plan.leave) == (0, 2, ("w2",))


def test_a_worker_with_other_values_is_refused_with_their_name(stage: Stage) -> None:
    begin(stage)
    other = stage.player(WORKER, "w2")
    other.expect(protocol.Welcome)
    record = protocol.to_record(stage.coordinator.members["w2"].register)
    record["name"], record["job"]["batch_size"] = "w3", 20
    other.send(protocol.from_record(protocol.Register, record, "register"))
    assert "batch_size: this worker has 20, the job has 10" in other.expect(protocol.Refusal).reason


def test_the_status_has_every_member(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "job", beat_s=60.0)  # nobody seems silent
    try:
        check_status(stage)
    finally:
        stage.close()


def check_status(stage: Stage) -> None:
    server, worker, view = begin(stage)
    server.beat(view, 30)
    server.send(protocol.Losses(first=0, values=(0.5, 0.25)))
    assert server.expect(protocol.Recorded).until == 2
    worker.send(protocol.StatusQuery())
    status = worker.expect(protocol.Status)
    rows = [(m.name, m.role, m.state, m.slices) for m in status.members]
    assert rows == [("s1", "server", "active", SLICES), ("w1", "worker", "active", 5)]
    assert (status.state, status.step, status.steps, status.loss) == ("training", 30, 10**9, 0.25)
    assert (status.epoch, status.epochs) == (3.0, 10**8)


def test_a_silent_member_is_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "job", silent_s=0.3)
    try:
        stage.player(SERVER, "s1")
        stage.until(lambda: "register" in events(stage))
        stage.until(lambda: "gone" in events(stage))
        assert stage.coordinator.members == {}
    finally:
        stage.close()


def test_a_second_coordinator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mirage.errors import MirageError

    folder.create_folder(tmp_path / "job")
    monkeypatch.setattr(folder, "LOCK_WAIT_S", 0.0)
    with (
        folder.coordinator_lock(tmp_path / "job"),
        pytest.raises(MirageError, match="another coordinator has this folder"),
        folder.coordinator_lock(tmp_path / "job"),
    ):
        pass


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    from mirage.elastic.runtime.state import StateFile
    from mirage.errors import MirageError

    (tmp_path / folder.STATE).write_text('{"phase": 3}')
    with pytest.raises(MirageError, match=r"state\.json.*no field"):
        StateFile(tmp_path)


def test_a_member_of_an_idle_job_hears_that_its_coordinator_lives(stage: Stage) -> None:
    """Without workers it has nothing else to say, for hours perhaps."""
    server = stage.player(SERVER, "s1")
    server.expect(protocol.Welcome)
    server.send(protocol.Heartbeat(step=0, incarnation=0, layout=0, roster=0))
    server.expect(protocol.HeartbeatSeen)
