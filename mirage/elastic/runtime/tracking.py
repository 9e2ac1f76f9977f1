"""What the coordinator has in memory only: members, the scaling or pause under way, its timing."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirage.elastic.runtime import protocol
from mirage.elastic.runtime.protocol import Peer, TrainingJob


@dataclass(frozen=True, kw_only=True)
class CoordinatorTiming:
    """Seconds between signs of life, until silence means loss, between snapshots."""

    beat_s: float = 1.0
    silent_s: float = 15.0
    snapshot_s: float = 30.0


@dataclass(kw_only=True)
class Member:
    """A process that has registered."""

    register: protocol.Register
    order: int
    seen: float
    viewed: float = 0.0
    """When it was last sent a view."""
    step: int = 0
    has_told: bool = False
    """It has said which step it is at."""
    incarnation: int = 0
    layout: int = 0
    roster: int = 0
    ready: bool = False
    """Workers: has parameters, so it takes part; in an all-reduce job: may be in the group."""
    holds: bool = False
    """Workers of an all-reduce job: has parameters with their optimiser state."""

    @property
    def name(self) -> str:
        """Unique in the job."""
        return self.register.name

    @property
    def role(self) -> str:
        """`server` or `worker`."""
        return self.register.role

    @property
    def session(self) -> str:
        """Of its process."""
        return self.register.session

    @property
    def peer(self) -> Peer:
        """How others reach it."""
        told = self.register
        return Peer(
            name=told.name, session=told.session, endpoints=told.endpoints, boot_id=told.boot_id
        )


@dataclass(kw_only=True)
class ActiveScaling:
    """The one scaling that is under way."""

    number: int
    owners: tuple[str, ...]
    moving: frozenset[int]
    clock: int
    began: float
    idle_since: float
    """When something last moved it on."""
    unready: set[str]
    """Sessions that have not answered Prepare."""
    adopted: set[int] = field(default_factory=set)
    unswitched: set[str] | None = None
    """From the switch on: sessions that do not yet act by the new view."""
    suspended_s: list[float] = field(default_factory=list)


@dataclass(kw_only=True)
class Pause:
    """Servers are to stop at a version and save it: before a stop, or without any server left."""

    version: int
    began: float
    is_missed: bool = False
    """A server has not saved it, and will not."""


def difference(mine: TrainingJob | None, theirs: TrainingJob | None) -> str:
    """What a worker has to correct."""
    if theirs is None:
        return "A worker says what it trains."
    assert mine is not None
    names = [
        name
        for name in TrainingJob.__dataclass_fields__
        if getattr(mine, name) != getattr(theirs, name)
    ]
    return (
        f"{names[0]}: this worker has {str(getattr(theirs, names[0]))[:60]}, the job has"
        f" {str(getattr(mine, names[0]))[:60]}. Start it with the job's script and arguments."
    )
