"""The tag by which the owner of a job allows `mirage place run` to move it.

    #SBATCH --comment="mirage-place/1 signal=B:USR1 network=resnet-50 minibatch=128 -- my words"

It stands at the start of the job's comment, which only the owner and operators can set. A link of a
chain has another tag there, so it is never moved.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from mirage.errors import InputError
from mirage.placement.profiles import PROFILE_SETS, Profile, profiles

_WORD = "mirage-place/"
_TAG = re.compile(
    r"mirage-place/1 signal=(?P<batch>B:)?(?P<signal>[A-Z0-9]{2,8})"
    r"(?: network=(?P<network>[\w.-]{1,60}))?"
    r"(?: minibatch=(?P<minibatch>[1-9]\d{0,6}))?(?: -- .*)?",
    re.ASCII | re.DOTALL,
)
_NEVER = {"KILL", "STOP"}
EXPECTED = "expected mirage-place/1 signal=[B:]NAME [network=NAME] [minibatch=N] [-- words]"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptIn:
    """What an owner allows, and says of the job."""

    signal: str
    """At which the job saves a checkpoint and requeues itself, `USR1`."""
    to_batch: bool
    """`B:` of sbatch's --signal: the batch script gets it, and not the steps."""
    profile: Profile | None = None
    """The network that it trains; None: not said."""
    minibatch: int | None = None
    """Examples of a step on one GPU; None: not said."""

    @property
    def exit_code(self) -> int:
        """Of a job that the signal ended, as a shell shows it."""
        return 128 + signal.Signals[f"SIG{self.signal}"]


def parse_opt_in(comment: str) -> OptIn | None:
    """None: the job has no such tag. Raises InputError for one that can't be read."""
    if not comment.startswith(_WORD):
        return None
    match = _TAG.fullmatch(comment)
    if not match:
        raise InputError(f"the tag {comment[:80]!r} can't be read: {EXPECTED}")
    name = match["signal"].removeprefix("SIG")
    if name in _NEVER or f"SIG{name}" not in signal.Signals.__members__:
        raise InputError(f"the tag's signal {name!r} is none that a job can handle")
    return OptIn(
        signal=name,
        to_batch=bool(match["batch"]),
        profile=find_profile(match["network"]) if match["network"] else None,
        minibatch=int(match["minibatch"]) if match["minibatch"] else None,
    )


def find_profile(name: str) -> Profile:
    """A network by its name, of any set. Raises InputError."""
    for each in PROFILE_SETS:
        for profile in profiles(each):
            if profile.name == name:
                return profile
    raise InputError(
        f"network {name!r} is not known: there are {', '.join(p.name for p in profiles('torchvision')[:4])},"
        " ... (mirage/placement/data)"
    )
