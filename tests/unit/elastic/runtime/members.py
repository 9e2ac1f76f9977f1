"""A coordinator in this process and members that are played by a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import zmq

from mirage.elastic.runtime import addresses, folder, protocol, snapshots, wire
from mirage.elastic.runtime.coordinator import Coordinator
from mirage.elastic.runtime.protocol import Message
from mirage.elastic.runtime.tracking import CoordinatorTiming

M = TypeVar("M", bound=Message)
JOB = protocol.TrainingJob(
    parameters=(protocol.Parameter(name="weight", shape=(60, 10), group=0),),
    optimizer="SGD",
    groups=({"lr": 0.1, "momentum": 0.9},),
    samples=100,
    batch_size=10,
    micro_shards=5,
    steps=10**9,
    seed=1,
)
SLICES = 10
PATIENCE_S = 120.0


class Stage:
    """Runs the coordinator while a test waits for something."""

    def __init__(self, path: Path, **timing: float) -> None:
        self.path, self._timing = path, timing
        self.context: zmq.Context[Any] = zmq.Context()
        self.members: list[Player] = []
        self.coordinator = self._new()

    def _new(self) -> Coordinator:
        given = {"beat_s": 0.05, "silent_s": 60.0, "snapshot_s": 1000.0} | self._timing
        made = Coordinator(self.path, CoordinatorTiming(**given))
        wire.write_address(self.path, made.session, made.listener.endpoints)
        return made

    def kill_coordinator(self, *, late: Player | None = None) -> None:
        """As by SIGKILL: nothing is said or written; the next one starts in the same folder.
        `late`: registers with that one when the test says so.
        """
        self.coordinator.listener.close()
        self.coordinator = self._new()
        for member in self.members:
            if member is not late:
                member.register()

    def player(self, role: str, name: str, plane: str = protocol.SERVERS) -> Player:
        self.members.append(Player(self, role, name, plane))
        return self.members[-1]

    def until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < end, "it did not happen"
            self.coordinator.turn(5)
            for member in self.members:
                member.receive()

    def forget_members(self) -> None:
        for member in self.members:
            member.link.close()
        self.members.clear()

    def close(self) -> None:
        self.forget_members()
        self.coordinator.listener.close()
        self.coordinator.context.term()
        self.context.term()


class Player:
    """A member by hand: keeps what it gets, sends what the test says."""

    def __init__(self, stage: Stage, role: str, name: str, plane: str) -> None:
        self.stage, self.role, self.name, self.plane = stage, role, name, plane
        self.link = wire.CoordinatorLink(
            stage.context, path=stage.path, keys=folder.load_keys(stage.path)
        )
        self.got: list[Message] = []
        self.register()

    def register(self) -> None:
        assert self.link.refresh()
        self.send(
            protocol.Register(
                role=self.role,
                name=self.name,
                session=self.link.identity,
                host="here",
                boot_id=addresses.boot_id(),
                endpoints=("tcp://127.0.0.1:9",) if self._listens() else (),
                job=replace(JOB, plane=self.plane) if self.role == protocol.WORKER else None,
            )
        )

    def _listens(self) -> bool:
        return self.role == protocol.SERVER or self.plane == protocol.ALL_REDUCE

    def send(self, message: Message) -> None:
        self.link.send(message)

    def receive(self) -> None:
        while (message := self.link.receive()) is not None:
            self.got.append(message)

    def expect(self, kind: type[M], **fields: object) -> M:
        """The next message of this kind with these fields; earlier ones are forgotten."""
        found: list[M] = []

        def arrived() -> bool:
            while self.got:
                message = self.got.pop(0)
                if isinstance(message, kind) and all(
                    getattr(message, name) == value for name, value in fields.items()
                ):
                    found.append(message)
                    return True
            return False

        self.stage.until(arrived)
        return found[0]

    def expect_group(
        self, names: list[str], *, beating: protocol.View | None = None
    ) -> protocol.View:
        """The next view of an all-reduce job with these members. `beating`: it beats meanwhile."""
        found: list[protocol.View] = []

        def arrived() -> bool:
            if beating is not None:
                self.beat(beating, 0)
            found[:] = [
                each
                for each in self.got
                if isinstance(each, protocol.View) and [p.name for p in each.servers] == names
            ]
            return bool(found)

        self.stage.until(arrived)
        return found[-1]

    def accept(self, view: protocol.View) -> None:
        self.send(
            protocol.InView(
                step=view.version,
                incarnation=view.incarnation,
                layout=view.layout,
                roster=view.roster if self.role == protocol.WORKER else 0,
                scaling=view.scaling,
            )
        )

    def beat(self, view: protocol.View, step: int) -> None:
        self.send(
            protocol.Heartbeat(
                step=step, incarnation=view.incarnation, layout=view.layout, roster=view.roster
            )
        )


def begin(stage: Stage) -> tuple[Player, Player, protocol.View]:
    """A job with one worker and one server that are in the view."""
    server, worker = stage.player(protocol.SERVER, "s1"), stage.player(protocol.WORKER, "w1")
    worker.expect(protocol.Welcome, write_initial=True)
    part = protocol.SavedSlices(file="v0-i0-a", slices=tuple(range(SLICES)), sha256="0")
    worker.send(protocol.Saved(incarnation=0, version=0, part=part))
    server.accept(server.expect(protocol.View))
    worker.accept(worker.expect(protocol.View))
    view = worker.expect(
        protocol.View, shares=(protocol.WorkerShare(worker="w1", first=0, last=5),)
    )
    worker.accept(view)
    return server, worker, view


def save_until_the_end(server: Player, view: protocol.View) -> tuple[int, str]:
    """The server carries out each order to save. Returns the last version, and why it ends."""
    versions: list[int] = []
    reasons: list[str] = []

    def is_over() -> bool:
        for message in server.got:
            if isinstance(message, protocol.SaveAt):
                assert message.hold
                versions.append(message.version)
                save(server, view, message.version)
            elif isinstance(message, protocol.End):
                reasons.append(message.reason)
        server.got.clear()
        return bool(reasons)

    server.stage.until(is_over)
    return versions[-1], reasons[0]


def save(server: Player, view: protocol.View, version: int) -> None:
    """The server has saved all its slices."""
    mine = tuple(i for i, owner in enumerate(view.owners) if owner == server.name)
    file = snapshots.new_file_name(version)
    part = protocol.SavedSlices(file=file, slices=mine, sha256="0")
    server.send(protocol.Saved(incarnation=view.incarnation, version=version, part=part))
