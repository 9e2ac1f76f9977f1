"""The tag by which Slurm knows a chain: the first words of the job's Comment.

    mirage/1 chain=k3m9pq2xha seg=2/20 of=5 pred=123 mode=train ei=1 eo=1 lead=300 min=7200 cost=540 --
    the user's own comment

Only the owner and operators can set a job's comment, and Slurm authenticates both, so the tag is
also the owner's opt-in. ``seg``: the link's number, and the greatest that a link of the chain may
have. ``of``: what the links may use in all (`length.py`). The first link has no ``pred``. ``ei``
and ``eo`` are the penalties for interruption and overlap. ``lead``: how many seconds before the
time limit Slurm signals the job to leave (`sbatch --signal`), which squeue does not show; a chain
without such a signal has none.
``min``: seconds to which backfill may shorten the job's limit (`sbatch --time-min`), if it may.
``least``: for how many seconds a link should run at least (`--min-runtime`), if its owner said so.
``up``: the share of the time, in percent, that a service is to be up, if its owner said so.
``svc`` and ``rep``: the service's name, and which of its replicas this chain is (from 1); a service
of one chain has neither.
``cost``: how many seconds a handover costs, measured by the chain itself or said by its owner; none
of the two: not known. Of a service it is the start-up: from a link's start until it is ready.
``ready``: the Unix second at which this link of a service became ready, written by its own job; 0:
not yet. A service without the word does not tell.
``down``: for how many seconds since then it did not serve, since its server died and was started again
in the same job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mirage.domain import Job, Mode, Penalties

MAX_SEGMENTS = 9999
MAX_PENALTY = 1e6
MAX_JOB_ID = 0xFFFFFFFF
MAX_LEAD_S = 65_535
"""sbatch(1), --signal: sig_time is an integer between 0 and 65535."""
MAX_WORD_S = 9_999_999
"""Of ``least`` and ``cost``: 115 days."""

ANYWHERE = "mirage:anywhere="
"""In the user's own comment, before the partitions in which the job may run."""

SERVICE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A pattern: one word, that is a folder's name too."""
_WORDS = (
    r"mirage/1 chain=(?P<chain>[a-z0-9]{6,32})"
    r" seg=(?P<segment>[1-9]\d{0,3})/(?P<segments>[1-9]\d{0,3})"
    r"(?: of=(?P<length>done|[1-9]\d{0,8}s|[1-9]\d{0,3}))?"
    r"(?: pred=(?P<pred>[1-9]\d{0,9}))? mode=(?P<mode>train|service)"
    r" ei=(?P<interruption>\d{1,7}(?:\.\d{1,6})?) eo=(?P<overlap>\d{1,7}(?:\.\d{1,6})?)"
    r"(?: lead=(?P<lead>[1-9]\d{0,4}))?(?: min=(?P<time_min>[1-9]\d{0,8}))?"
    r"(?: least=(?P<least>[1-9]\d{0,6}))?(?: up=(?P<up>\d{1,3}(?:\.\d{1,4})?))?"
    rf"(?: svc=(?P<service>{SERVICE_NAME}) rep=(?P<replica>[1-9]\d{{0,2}}))?"
    r"(?: cost=(?P<cost>\d{1,7}))?(?: ready=(?P<ready>\d{1,10})(?: down=(?P<down>[1-9]\d{0,6}))?)?"
)
_TAG = re.compile(rf"{_WORDS}(?: -- .*)?", re.ASCII | re.DOTALL)
_LENGTH = re.compile(
    r"(\Amirage/1 chain=[a-z0-9]{6,32} seg=\d{1,4}/)\d{1,4}(?: of=\w+)?(?= )", re.ASCII
)
_SUBMITTED = re.compile(rf"--comment=['\"]?({_WORDS})(?![\w.])", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTag:
    """Which link of which chain a job is."""

    chain_id: str
    """6 to 32 of a-z and 0-9; unique for its user."""
    segment: int
    """1-based."""
    segments: int
    """The greatest number that a link of the chain may have."""
    length: str = ""
    """What its links may use in all (`length.py`)."""
    predecessor_id: int | None
    """None: the first link."""
    mode: Mode
    penalties: Penalties
    lead_s: int = 0
    """0: Slurm sends no signal before the time limit."""
    time_min_s: int = 0
    """0: backfill may not shorten the time limit."""
    least_run_s: int | None = None
    """For how long a link should run at least; None: its owner did not say."""
    uptime: float | None = None
    """The share of the time that a service is to be up; None: its owner did not say."""
    service: str | None = None
    """The service that the chain is a replica of; None: it is none of several."""
    replica: int | None = None
    """From 1; None as ``service``."""
    handover_s: int | None = None
    """What a handover costs, or of a service its start-up; None: not known."""
    ready_s: int | None = None
    """When this link of a service became ready; 0: not yet, None: its job does not tell."""
    down_s: int = 0
    """For how long since then it did not serve."""


@lru_cache(maxsize=1 << 14)
def parse_tag(comment: str) -> ChainTag | None:
    """The tag at the start of a job's comment; None: there is none, or something about it is not as
    it should be.
    """
    if not (match := _TAG.fullmatch(comment)):
        return None
    tag = ChainTag(
        chain_id=match["chain"],
        segment=int(match["segment"]),
        segments=int(match["segments"]),
        length=match["length"] or "",
        predecessor_id=int(match["pred"]) if match["pred"] else None,
        mode=Mode(match["mode"]),
        penalties=Penalties(float(match["interruption"]), float(match["overlap"])),
        lead_s=int(match["lead"] or 0),
        time_min_s=int(match["time_min"] or 0),
        least_run_s=_number_or_none(match["least"]),
        uptime=float(match["up"]) / 100 if match["up"] else None,
        service=match["service"],
        replica=_number_or_none(match["replica"]),
        handover_s=_number_or_none(match["cost"]),
        ready_s=_number_or_none(match["ready"]),
        down_s=int(match["down"] or 0),
    )
    return tag if _is_sound(tag) else None


def may_be_link(job: Job, user: str, chain_id: str, segment: int) -> bool:
    """Whether a job that has a link's id is that link, by its owner and its tag.

    A slurmctld that is killed forgets its last jobs, and gives their ids to others. A job without a
    tag may be the link: its script may have replaced the comment, and accounting keeps none.
    """
    tag = parse_tag(job.comment)
    return job.user == user and (tag is None or (tag.chain_id, tag.segment) == (chain_id, segment))


def anywhere_in(comment: str) -> tuple[str, ...]:
    """The partitions that a link's owner has named for it; none: the owner did not."""
    words = comment.partition(ANYWHERE)[2].split()
    return tuple(filter(None, words[0].split(","))) if words else ()


def submitted_tag(command_line: str) -> str:
    """The tag (without the user's own comment) in a call of sbatch as Slurm keeps it, in quotes or
    not; empty: none.
    """
    match = _SUBMITTED.search(command_line)
    return match[1] if match else ""


def with_length(comment: str, segments: int, length: str) -> str:
    """A job's comment with another length of the chain in its tag; unchanged if it has no tag."""
    return _LENGTH.sub(rf"\g<1>{segments}{_of(length)}", comment, count=1)


def _of(length: str) -> str:
    return f" of={length}" if length else ""


def format_tag(tag: ChainTag, comment: str = "") -> str:
    """The job's comment: the tag and then the user's own comment, if any. `parse_tag` reads it
    back.
    """
    predecessor = f" pred={tag.predecessor_id}" if tag.predecessor_id else ""
    return (
        f"mirage/1 chain={tag.chain_id} seg={tag.segment}/{tag.segments}{_of(tag.length)}{predecessor}"
        f" mode={tag.mode.value}"
        f" {format_wishes(tag.penalties, tag.lead_s, tag.time_min_s, tag.least_run_s, tag.uptime)}"
        f"{format_replica(tag.service, tag.replica)}"
        + ("" if tag.handover_s is None else f" cost={tag.handover_s}")
        + ("" if tag.ready_s is None else f" ready={tag.ready_s}")
        + (f" down={tag.down_s}" if tag.down_s else "")
        + (f" -- {comment}" if comment else "")
    )


def format_wishes(
    penalties: Penalties,
    lead_s: int,
    time_min_s: int,
    least_run_s: int | None,
    uptime: float | None = None,
) -> str:
    """The tag's words that all links share; of the penalties six decimals are kept, of the percentage
    of up-time four.
    """
    seconds = (("lead", lead_s), ("min", time_min_s), ("least", least_run_s))
    words = [f"ei={_number(penalties.interruption)}", f"eo={_number(penalties.overlap)}"]
    words += [f"{name}={value}" for name, value in seconds if value]
    return " ".join(
        [*words, *([] if uptime is None else [f"up={_number(round(uptime * 100, 4))}"])]
    )


def format_replica(service: str | None, replica: int | None) -> str:
    """The tag's words of a replica, after a space; empty: it is none."""
    return "" if service is None else f" svc={service} rep={replica}"


def _number_or_none(text: str | None) -> int | None:
    return None if text is None else int(text)


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _is_sound(tag: ChainTag) -> bool:
    return (
        tag.segment <= tag.segments
        and (tag.predecessor_id is None) == (tag.segment == 1)
        and (tag.predecessor_id or 0) <= MAX_JOB_ID
        and max(tag.penalties.interruption, tag.penalties.overlap) <= MAX_PENALTY
        and tag.penalties.interruption + tag.penalties.overlap > 0
        and tag.lead_s <= MAX_LEAD_S
        and (tag.uptime is None or 0 < tag.uptime <= 1)
    )
