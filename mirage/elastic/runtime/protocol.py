"""The messages of the runtime: one dataclass each, checked strictly when they arrive.

A message is one header frame and, for parameters and gradients, buffer frames of 32-bit floats. The
header is a JSON object: `v` (`PROTOCOL`), `kind` (`Message.KIND`) and exactly the fields of that
dataclass. JSON keeps every float to the last bit. `decode` raises ProtocolError with one line that
names what is wrong; the receiver drops such a message and works on.

Who sends what (DL2, section 5; the steps of its Figure 7 in brackets):

=================  ==========================  ================================================
from               to                          messages
=================  ==========================  ================================================
server, worker     coordinator                 Register [1], Heartbeat, Ready [2],
                                               Adopted [3], InView [4], Saved, Losses, Leave,
                                               Formed
coordinator        server, worker              Welcome [1], Prepare [2], View [4], SaveAt,
                                               Recorded, End, Form, HeartbeatSeen
server             server                      Adopt [3]
worker             worker                      Piece, Adopt, LeftGroup
worker             server                      Pull, Push
server             worker                      Parameters
client             coordinator                 StatusQuery, Resize, DrainRequest,
                                               StopRequest
coordinator        client                      Status, ResizePlan, Drained, Stopped
anyone             anyone who asked            Refusal
=================  ==========================  ================================================

Terms: a *version* is the number of updates that a parameter slice has had, so it is also the number
of finished training steps. A *view* says who owns which slice and who computes which micro-shard.
An *incarnation* counts how often the job went back to a snapshot.
"""

from __future__ import annotations

import collections.abc
import ipaddress
import json
import re
import struct
import types
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from mirage.errors import MirageError
from slurm_sim.formats import parse_json

PROTOCOL = 3
"""A change of any message raises it: members of two versions refuse each other."""
MAX_HEADER_BYTES = 8 << 20
FRAME_BYTES = 1 << 20
MAX_WHOLE = 2**53
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Of members and files: safe as a file name, without a path."""

SERVER, WORKER = "server", "worker"
ROLES = (SERVER, WORKER)
SERVERS, ALL_REDUCE = "parameter-servers", "all-reduce"
PLANES = (SERVERS, ALL_REDUCE)
"""How gradients are summed and parameters kept."""


class ProtocolError(MirageError):
    """A message is not as the protocol says. It was dropped."""


# --- parts of messages


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One tensor of the model."""

    name: str
    shape: tuple[int, ...]
    group: int
    """Index of its options in `TrainingJob.groups`."""

    @property
    def size(self) -> int:
        """Its number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What all members must agree on. The first worker's counts; another that differs is refused."""

    parameters: tuple[Parameter, ...]
    optimizer: str
    """A class of `torch.optim`, in `slices.OPTIMIZERS`."""
    groups: tuple[Mapping[str, Any], ...]
    """The optimiser's options, one table a parameter group."""
    samples: int
    """In the data set."""
    batch_size: int
    """In samples, over all workers. It does not change with their number."""
    micro_shards: int
    """Equal parts of each batch; their gradients are summed in a fixed order."""
    steps: int
    """After which the training is finished."""
    seed: int
    plane: str = SERVERS
    """One of `PLANES`."""

    @property
    def epoch_steps(self) -> int:
        """Steps in one epoch; samples after the last full batch wait for another epoch."""
        return self.samples // self.batch_size


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A parameter server as others reach it."""

    name: str
    session: str
    """Random, one a process: a server that was restarted is another server."""
    endpoints: tuple[str, ...]
    """`tcp://ADDRESS:PORT`, each of the same socket; any one that answers will do."""
    boot_id: str
    """Of the machine: tells whether a loopback address means that machine."""

    def __post_init__(self) -> None:
        check_name(self.name)
        for endpoint in self.endpoints:
            check_endpoint(endpoint)


@dataclass(frozen=True, kw_only=True)
class WorkerShare:
    """The micro-shards `first` to `last - 1` of every batch are this worker's."""

    worker: str
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class SavedSlices:
    """A file of a snapshot and the slices in it."""

    file: str
    """Its name in the job's folder `snapshots`."""
    slices: tuple[int, ...]
    sha256: str

    def __post_init__(self) -> None:
        check_name(self.file)


@dataclass(frozen=True, kw_only=True)
class Node:
    """The sum of gradients of micro-shards `first` to `last - 1`, a node of the summation tree."""

    first: int
    last: int
    loss: float
    """The same sum of the shards' shares in the batch's mean loss."""


@dataclass(frozen=True, kw_only=True)
class MemberStatus:
    """One row of `Status`."""

    name: str
    role: str
    state: str
    """`joining`, `active`, `draining`, `drained` (may be cancelled without loss) or `silent`."""
    step: int
    host: str
    slices: int
    """Owned parameter slices; workers: micro-shards of each batch."""


# --- messages


@dataclass(frozen=True, kw_only=True)
class Message:
    """The base of all messages."""

    KIND: ClassVar[str]
    BUFFERS: ClassVar[bool] = False
    """Whether buffer frames follow the header."""


@dataclass(frozen=True, kw_only=True)
class Register(Message):
    """A member's first message, and again to a coordinator that was restarted (INC_SERVER)."""

    KIND = "register"
    role: str
    name: str
    session: str
    host: str
    """For people only; nobody connects to it."""
    boot_id: str
    endpoints: tuple[str, ...] = ()
    """Of servers, and of workers that reduce among themselves."""
    job: TrainingJob | None = None
    """Workers only."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.session)
        if self.role not in ROLES:
            raise ProtocolError(f"role: {self.role[:40]!r}; it is server or worker.")
        if not self.host.isprintable() or len(self.host) > 255:
            raise ProtocolError("host: not printable, or more than 255 characters.")
        for endpoint in self.endpoints:
            check_endpoint(endpoint)


@dataclass(frozen=True, kw_only=True)
class Welcome(Message):
    """The member is known. `write_initial`: this worker saves the parameters of version 0."""

    KIND = "welcome"
    coordinator: str
    """The coordinator's session."""
    beat_s: float
    write_initial: bool = False


@dataclass(frozen=True, kw_only=True)
class Heartbeat(Message):
    """A sign of life. The step and the view let the coordinator notice who missed a message."""

    KIND = "beat"
    step: int
    incarnation: int
    layout: int
    roster: int


@dataclass(frozen=True, kw_only=True)
class HeartbeatSeen(Message):
    """Answers Heartbeat: the coordinator lives, though it may have nothing to say for hours."""

    KIND = "beat_seen"


@dataclass(frozen=True, kw_only=True)
class View(Message):
    """The state that a member shall be in. It replaces every earlier view and every scaling."""

    KIND = "view"
    incarnation: int
    layout: int
    """Counts changes of `owners`."""
    roster: int
    """Counts changes of `shares`."""
    version: int
    """Where this incarnation started."""
    job: TrainingJob
    servers: tuple[Peer, ...]
    owners: tuple[str, ...]
    """The server of each slice; none in an all-reduce job, whose `servers` are its group."""
    shares: tuple[WorkerShare, ...]
    load: tuple[SavedSlices, ...] = ()
    """Where a server that is not yet in this incarnation finds its slices."""
    scaling: int = 0
    """The scaling that ends by this view; 0: none."""


@dataclass(frozen=True, kw_only=True)
class Prepare(Message):
    """A scaling is at hand: at version `clock` slices move to their owners in `owners`."""

    KIND = "prepare"
    scaling: int
    incarnation: int
    clock: int
    servers: tuple[Peer, ...]
    owners: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ready(Message):
    """Answers Prepare. `accepted` is false where a moving slice is already past the clock."""

    KIND = "ready"
    scaling: int
    accepted: bool
    step: int


@dataclass(frozen=True, kw_only=True)
class Adopt(Message):
    """Slices with optimiser state, from the old owner to the new, or from a worker that reduces to
    one that lacks them. `state[i]`: the names of the buffers of `slices[i]`, in the frames' order.
    """

    KIND = "adopt"
    BUFFERS = True
    scaling: int
    """Between workers: the roster."""
    incarnation: int
    version: int
    slices: tuple[int, ...]
    state: tuple[tuple[str, ...], ...]
    losses: tuple[float, ...] = ()
    """Of the last versions, not yet recorded; with slice 0 only."""
    losses_from: int = 0


@dataclass(frozen=True, kw_only=True)
class Adopted(Message):
    """The new owner has these slices. They count from the view that ends the scaling."""

    KIND = "adopted"
    scaling: int
    slices: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class InView(Message):
    """The member acts by this view."""

    KIND = "in_view"
    step: int
    incarnation: int
    layout: int
    roster: int
    scaling: int
    suspended_s: float = 0.0
    """How long this worker had nothing to do because of the scaling."""


@dataclass(frozen=True, kw_only=True)
class Form(Message):
    """All workers of this roster are without a group: they form one. All-reduce only."""

    KIND = "form"
    roster: int


@dataclass(frozen=True, kw_only=True)
class Formed(Message):
    """Answers Form: this worker has the newest parameters, and trains. All-reduce only."""

    KIND = "formed"
    roster: int
    step: int
    suspended_s: float
    """Since it left its last group, or was started."""


@dataclass(frozen=True, kw_only=True)
class Piece(Message):
    """One member's part of what all members of a group do: one buffer. All-reduce only."""

    KIND = "piece"
    BUFFERS = True
    roster: int


@dataclass(frozen=True, kw_only=True)
class LeftGroup(Message):
    """The last message of a member to its group. All-reduce only."""

    KIND = "left_group"
    roster: int


@dataclass(frozen=True, kw_only=True)
class SaveAt(Message):
    """Servers write each of their slices when it reaches this version. `hold`: no slice goes beyond
    it (the job is being stopped, or its last server drained).
    """

    KIND = "save_at"
    incarnation: int
    version: int
    hold: bool


@dataclass(frozen=True, kw_only=True)
class Saved(Message):
    """A file of a snapshot is durable in the job's folder."""

    KIND = "saved"
    incarnation: int
    version: int
    part: SavedSlices


@dataclass(frozen=True, kw_only=True)
class NotSaved(Message):
    """Answers SaveAt: a slice had passed the version, or the file could not be written."""

    KIND = "not_saved"
    incarnation: int
    version: int


@dataclass(frozen=True, kw_only=True)
class Losses(Message):
    """The mean loss of each step from `first` on."""

    KIND = "losses"
    first: int
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Recorded(Message):
    """Answers Losses: those before step `until` are on disk."""

    KIND = "recorded"
    until: int


@dataclass(frozen=True, kw_only=True)
class Leave(Message):
    """The member ends now; nothing of the job is lost by it if it was drained."""

    KIND = "leave"


@dataclass(frozen=True, kw_only=True)
class End(Message):
    """The member shall end. `reason`: finished, stopped, drained, replaced."""

    KIND = "end"
    reason: str


@dataclass(frozen=True, kw_only=True)
class Pull(Message):
    """A worker wants these slices at this version or later, all of them at the same one. `exact`: at
    this version, if the server still has it; servers keep the last two.
    """

    KIND = "pull"
    incarnation: int
    layout: int
    version: int
    exact: bool
    slices: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Parameters(Message):
    """Answers Pull: one buffer with the slices in their order."""

    KIND = "parameters"
    BUFFERS = True
    incarnation: int
    version: int
    slices: tuple[int, ...]
    loss: float | None = None
    """Of the step before, from the owner of slice 0."""


@dataclass(frozen=True, kw_only=True)
class Push(Message):
    """Gradients at `version`, one buffer a node, each with the slices in their order."""

    KIND = "push"
    BUFFERS = True
    incarnation: int
    layout: int
    version: int
    slices: tuple[int, ...]
    nodes: tuple[Node, ...]
    rate: float
    """What the learning rate of every group is multiplied by in this step."""


@dataclass(frozen=True, kw_only=True)
class StatusQuery(Message):
    """A client asks for `Status`."""

    KIND = "status_query"


@dataclass(frozen=True, kw_only=True)
class Status(Message):
    """The job as the coordinator sees it."""

    KIND = "status"
    state: str
    """`waiting` (for a worker, a server or the first snapshot), `training`, `scaling`,
    `restoring`, `stopping`, `stopped` or `finished`.
    """
    members: tuple[MemberStatus, ...]
    step: int
    steps: int
    """0: no worker has said yet."""
    epoch: float
    epochs: float
    steps_per_s: float | None
    """Over the last half minute of training; None: not measured yet."""
    samples_per_s: float | None
    loss: float | None
    """Of the last recorded step."""
    incarnation: int
    layout: int
    snapshot: int | None
    """The version of the last durable snapshot."""
    workers_wanted: int | None
    servers_wanted: int | None
    """By the last Resize; None: never asked."""
    suspended_ms: float | None
    """In the last scaling: the mean over workers."""


@dataclass(frozen=True, kw_only=True)
class Resize(Message):
    """A client wants this many members; None leaves the number as it is. 0 is allowed."""

    KIND = "resize"
    workers: int | None = None
    servers: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResizePlan(Message):
    """Answers Resize at once: what is left to do for the client. The members in `leave` are being
    drained: cancel each once `DrainRequest` of its name has been answered.
    """

    KIND = "resize_plan"
    start_workers: int
    start_servers: int
    leave: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DrainRequest(Message):
    """A client wants to cancel this member. Answered when that loses nothing. `gone`: its process
    has ended already, so the coordinator need not wait until it has been silent for long.
    """

    KIND = "drain"
    name: str
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Drained(Message):
    """Answers DrainRequest: cancel it. Also for a member that is not there (any more)."""

    KIND = "drained"
    name: str


@dataclass(frozen=True, kw_only=True)
class StopRequest(Message):
    """A client wants the whole job to save its state and to end; it can be started again."""

    KIND = "stop"


@dataclass(frozen=True, kw_only=True)
class Stopped(Message):
    """Answers StopRequest: the snapshot of this version is durable; processes may be cancelled."""

    KIND = "stopped"
    version: int | None


@dataclass(frozen=True, kw_only=True)
class Refusal(Message):
    """The request is not acceptable; the text says what to change."""

    KIND = "refused"
    reason: str


KINDS: dict[str, type[Message]] = {kind.KIND: kind for kind in Message.__subclasses__()}


# --- to and from frames


def encode(message: Message, buffers: Sequence[Any] = ()) -> list[Any]:
    """Header and buffers of a message. `buffers`: anything with the buffer interface, without
    copying.
    """
    record = {"v": PROTOCOL, "kind": message.KIND} | _plain(message)
    return [json.dumps(record, separators=(",", ":")).encode(), *buffers]


def split(parts: Sequence[Any]) -> list[Any]:
    """The frames in which header and buffers go over the network: first the sizes of all parts, then
    pieces of at most `FRAME_BYTES`. So a socket takes no larger frame from whoever connects.
    """
    views = [memoryview(part) for part in parts]
    frames: list[Any] = [struct.pack(f"<{len(views)}Q", *(view.nbytes for view in views))]
    for view in views:
        if view.nbytes:
            flat = view.cast("B")
            frames += [flat[at : at + FRAME_BYTES] for at in range(0, len(flat), FRAME_BYTES)]
    return frames


def joined(frames: Sequence[memoryview]) -> list[memoryview]:
    """The reverse of `split`. Nothing is allocated for bytes that are not there. Raises ProtocolError."""
    try:
        sizes = struct.unpack(f"<{len(frames[0]) // 8}Q", frames[0])
    except (struct.error, IndexError):
        raise ProtocolError("frames: no sizes of parts.") from None
    pieces, parts = deque(frames[1:]), []
    for size in sizes:
        part = bytearray()
        while pieces and len(part) < size:
            part += pieces.popleft()
        if len(part) != size:
            raise ProtocolError("frames: not as many bytes as their sizes say.")
        parts.append(memoryview(part))
    if pieces:
        raise ProtocolError("frames: more bytes than their sizes say.")
    return parts


def decode(frames: Sequence[bytes | memoryview]) -> Message:
    """The message in these frames, header first; buffers stay with the caller.

    Raises ProtocolError: no JSON object, another version, an unknown kind, a missing or unknown
    field, a value of another type, a number out of range, or buffers where none belong.
    """
    if not frames or len(frames[0]) > MAX_HEADER_BYTES:
        raise ProtocolError(f"header: none, or more than {MAX_HEADER_BYTES} bytes.")
    try:
        record = parse_json(bytes(frames[0]))
    except ValueError as error:
        raise ProtocolError(f"header: not JSON: {error}.") from None
    if not isinstance(record, dict) or record.pop("v", None) != PROTOCOL:
        raise ProtocolError(
            f"header: not of protocol version {PROTOCOL}. Use one release of Mirage for a job."
        )
    kind = record.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ProtocolError(f"kind: {str(kind)[:40]!r} is unknown.")
    if len(frames) > 1 and not KINDS[kind].BUFFERS:
        raise ProtocolError(f"{kind}: {len(frames) - 1} buffers where none belong.")
    message = from_record(KINDS[kind], record, kind)
    assert isinstance(message, Message)
    return message


def check_name(name: str) -> None:
    """Raises ProtocolError for a name of a member or file that is not plain."""
    if not NAME.fullmatch(name):
        raise ProtocolError(f"name {name[:80]!r}: use letters, digits, '_', '.', '-'; 64 at most.")


def check_endpoint(endpoint: str) -> None:
    """Raises ProtocolError for anything but `tcp://ADDRESS:PORT` with a numeric address."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        if not endpoint.startswith("tcp://") or not 0 < int(port) < 65536:
            raise ValueError
    except ValueError:
        raise ProtocolError(f"endpoint {endpoint[:80]!r}: not tcp://ADDRESS:PORT.") from None


def to_record(part: Any) -> dict[str, Any]:
    """A dataclass of this module as plain JSON values."""
    return _plain(part)  # type: ignore[no-any-return]


def from_record(kind: type, record: Any, where: str) -> Any:
    """The reverse of `to_record`. Raises ProtocolError."""
    if not isinstance(record, dict):
        raise ProtocolError(f"{where}: not a table.")
    hints = _hints(kind)
    if unknown := record.keys() - hints.keys():
        raise ProtocolError(f"{where}: unknown field {min(unknown)[:40]!r}.")
    if missing := hints.keys() - record.keys():
        raise ProtocolError(f"{where}: no field {min(missing)!r}.")
    return kind(
        **{name: _checked(record[name], hint, f"{where}.{name}") for name, hint in hints.items()}
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        rest = [each for each in arguments if each is not type(None)]
        return None if value is None else _checked(value, rest[0], where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ProtocolError(f"{where}: not a list.")
        return tuple(_checked(each, arguments[0], where) for each in value)
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            raise ProtocolError(f"{where}: not a table.")
        return {name: _checked(each, arguments[1], where) for name, each in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return from_record(hint, value, where)
    return _scalar(value, hint, where)


def _scalar(value: Any, hint: Any, where: str) -> Any:
    kinds = (int, float) if hint is float else (hint,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        raise ProtocolError(f"{where}: {str(value)[:40]!r} is not of type {hint.__name__}.")
    if isinstance(value, int) and not 0 <= value < MAX_WHOLE:
        raise ProtocolError(f"{where}: {value} is out of range.")
    return float(value) if hint is float else value
