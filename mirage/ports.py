"""The four things that Mirage's core needs from outside. Read this file first.

`daemon/tick.py` decides with them, `daemon/app.py` puts the real ones together. Each port has a
fake that ships with the library and passes the same contract tests as the real one
(`tests/contract`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mirage.domain import (
    HANDOVER_S,
    Action,
    Chain,
    Decision,
    Intent,
    Job,
    Link,
    Mode,
    NodeEvent,
    Penalties,
    ReleaseOutcome,
    RunLaw,
    Settings,
    Snapshot,
)

if TYPE_CHECKING:
    from mirage.state.history import History
    from mirage.state.likeness import Waits


@runtime_checkable
class Cluster(Protocol):
    """A Slurm cluster. Adapters: `slurm/commands.py` (the commands), `slurm/pyslurm_cluster.py`
    (PySlurm for looking), `slurm/rest_cluster.py` (slurmrestd), `slurm/simulated.py` (slurm_sim).

    Every method raises ClusterUnavailable (retry later), ClusterNonsense (unreadable answer) or
    Refused (Slurm's own words). No answer is cut short in silence: jobs with values that can't be
    read are in `Snapshot.oddities`, in `Unreadable`, or, where records of a window are asked for,
    in the log.
    """

    def snapshot(self) -> Snapshot:
        """The whole queue and all nodes. Exactly one `squeue` and one `sinfo`."""

    def queue_of(self, user: str) -> Snapshot:
        """This user's jobs, and no nodes."""

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        """These jobs as slurmctld knows them now, ended ones (MinJobAge) too. One it does not know
        is left out.

        Raises Unreadable, which has the others, if one is there and can't be read.
        """

    def accounting(
        self, start_s: int, end_s: int, job_ids: Collection[int] | None = None
    ) -> list[Job]:
        """Accounting records of all jobs (or these) that were pending or running at any time in
        [start_s, end_s].

        Raises AccountingUnavailable where the site has none or slurmdbd is down.
        """

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        """Accounting records of these users' jobs, as `accounting`. ``comment``: Mirage's tag, if
        submitted with one.

        The owner may have changed the comment since; so it says what a job was, and gives no right
        to act on it.
        """

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        """When nodes were down or drained in [start_s, end_s]. Raises AccountingUnavailable."""

    def settings(self) -> Settings:
        """The configuration that matters to Mirage."""

    def submit(self, args: Sequence[str], script: str) -> int:
        """Submits a batch script with these sbatch options, as the calling user; returns the job
        id.
        """

    def release(self, job_id: int) -> None:
        """Drops all dependencies of a pending job, so that it competes from now. Idempotent.
        Refused: not allowed.
        """

    def cancel(self, job_ids: Collection[int]) -> None:
        """Ends these jobs. Jobs that are over already are no error."""


@runtime_checkable
class JobMover(Protocol):
    """What takes a running job to other nodes (`placement/`). Adapter: `slurm/commands.py`.

    Raises ClusterUnavailable or Refused, as `Cluster` does.
    """

    def signal(self, job_id: int, signal: str, *, batch: bool) -> None:
        """Sends a signal, `USR1`, to a running job: to its steps, or with ``batch`` to its script.
        Never repeated.
        """

    def requeue(self, job_id: int) -> None:
        """Puts a batch job that runs or has ended back into the queue. Refused: it is pending."""

    def require_nodes(self, job_id: int, nodes: Sequence[str]) -> None:
        """Lets a pending job start only on these nodes, as many as it has; none: anywhere.

        Idempotent. Refused: it runs on other nodes. Slurm would take fewer for a wish to shrink.
        """


class Clock(Protocol):
    """Time is a dependency: the same code runs on wall-clock and on simulated time."""

    def now_s(self) -> int:
        """Unix seconds."""


class ChainStore(Protocol):
    """The part of a Store that is needed to follow chains and to tell of them. Raises StoreError."""

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside are committed together, or none is."""

    def active_chains(self) -> list[Chain]: ...

    def chains(self, user: str | None = None, since_s: int | None = None) -> list[Chain]:
        """All chains (of a user), newest first; with ``since_s`` those that are active, or changed
        since then.
        """

    def chain(self, user: str, chain_id: str) -> Chain | None: ...

    def links(self, user: str, chain_id: str) -> list[Link]:
        """By segment; a requeued job is one link."""

    def open_links(self) -> list[Link]:
        """Links of active chains whose job was not over when last seen."""

    def link_of_job(self, job_id: int) -> Link | None: ...

    def save_chain(self, chain: Chain) -> None:
        """Inserts or replaces, by (user, chain_id)."""

    def save_link(self, link: Link) -> None:
        """Inserts or replaces, by (user, chain_id, job_id)."""

    def drop_link(self, link: Link) -> None:
        """Forgets a link, and its chain with the last one."""

    def decisions(self, successor_id: int, limit: int = 100) -> list[Decision]:
        """Newest first."""

    def intents(self, successor_id: int) -> list[Intent]:
        """Newest first."""


class Store(ChainStore, Protocol):
    """What a cycle reads and writes. Adapters: `store/repository.py`, and `store/memory.py` where
    nobody reads it afterwards. Raises StoreError.

    Writes outside `transaction()` are committed at once.
    """

    def add_decision(self, decision: Decision) -> None: ...

    def gains(self, policy: str, since_s: int) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """By predecessor and successor: when a decision of this policy gave a gain, and which.
        Oldest first.
        """

    def open_intent(self, decision: Decision, now_s: int) -> Intent:
        """Writes decision and intent together, durably: when this returns, a crash can't lose it."""

    def close_intent(
        self, intent: Intent, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None: ...

    def open_intents(self) -> list[Intent]:
        """Intents without an outcome: a crash cut them short."""

    def newest_intents(self, limit: int) -> list[Intent]:
        """Of all jobs, newest first."""

    def save_step(self, pool: str, at_s: int, payload: bytes) -> None:
        """One step of a pool's history (`state/history.py`)."""

    def steps(self, pool: str, since_s: int) -> list[tuple[int, bytes]]:
        """Oldest first."""

    def drop_steps(self, before_s: int) -> None: ...


class LastingStore(Store, Protocol):
    """One that outlives the service. Adapter: `store/repository.py`."""

    def prune(self, decisions_before_s: int, chains_before_s: int, limit: int = ...) -> int:
        """Forgets old decisions, and old chains that are over: at most ``limit`` of each. Returns
        how many went.
        """


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a policy is given about one pair at one decision point."""

    now_s: int
    step_s: int
    """Seconds until the next decision point."""
    predecessor: Job
    successor: Job
    penalties: Penalties
    waits: Waits
    """Recent starts in the pair's pool, oldest first."""
    history: History | None = None
    """The pool's last 24 h; `history.matrix(...)` is the paper's 144 x 40 state."""
    snapshot: Snapshot | None = None
    """The whole cluster now, for who looks ahead from it."""
    mode: Mode = Mode.SERVICE
    """How the successor takes over."""
    uptime: float | None = None
    """The share of the time for which the owner wants a link to be ready, of a service without
    penalties of its own; None: another chain.
    """
    handover_s: int = HANDOVER_S
    """Time that a training chain loses by one handover. Of a service: its start-up, from a link's
    start until it is ready.
    """
    earlier_s: int = 0
    """Of a replica of a service: how long before its predecessor's end it is to hand over, so that no
    two replicas do so at once.
    """
    is_handover_known: bool = False
    """Whether the chain or its owner told that time."""
    short_handovers: int = 0
    """Of the chain's last four, those that ended a link below its least run time for nothing."""
    idle_s: int = 0
    """Of the predecessor's run, before it makes progress: the link before it ended first, and its
    program starts.
    """
    run_law: RunLaw | None = None
    """Of the run time of a link like the predecessor; None: it runs to its expected end."""
    gains: Sequence[tuple[int, float]] = ()
    """What the same policy said of this pair within the last day: when, and the gain. Oldest first.
    """

    @property
    def remaining_s(self) -> int | None:
        """Until the predecessor's expected end: by its limit, its signal, or what its chain's
        earlier links did. None: not running yet, or no limit.
        """
        end = self.predecessor.expected_end_s
        if end is None or not self.predecessor.state.has_nodes:
            return None
        return max(0, end - self.now_s)

    @property
    def ends(self) -> Sequence[tuple[int, float]]:
        """The distribution of the predecessor's end: seconds until then, ascending, and the share
        of each; `remaining_s` is its median. Empty where that is None.
        """
        if self.remaining_s is None:
            return ()
        start_s = self.predecessor.start_s
        if self.run_law is None or start_s is None:
            return ((self.remaining_s, 1.0),)
        law = self.run_law.after(self.now_s - start_s)
        runs = zip(law.runs_s, law.shares, strict=True)
        return [(max(0, start_s + run_s - self.now_s), share) for run_s, share in runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A policy's answer."""

    action: Action
    reason: str
    """One sentence for people."""
    wait_p10_s: float | None = None
    wait_p50_s: float | None = None
    wait_p90_s: float | None = None
    expected_interruption_s: float | None = None
    expected_overlap_s: float | None = None
    penalty_now_s: float | None = None
    """Expected, in the user's penalties times seconds (paper, equation 8, negated): of a release
    now,
    """
    penalty_later_s: float | None = None
    """and of waiting for a later moment, as far as the policy compares the two."""
    gain: float | None = None
    """Of releasing now, at this moment alone, for the observations to come (`Observation.gains`).
    """
    policy: str = ""
    """Who decided, if not the policy that was asked."""


class Policy(Protocol):
    """Decides whether the successor enters the queue now. Implementations: `provision/`."""

    @property
    def name(self) -> str: ...

    def decide(self, observation: Observation) -> Advice: ...


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy to which many pairs at once are cheaper than one by one: all of a cycle are decided
    in one call.
    """

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        """An answer to each, in order; the same as `decide` gives."""
