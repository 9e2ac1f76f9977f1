"""What comes next in the move of a job: a pure function of the journal and of what Slurm shows.

The job's own part: at its signal it saves a checkpoint and requeues itself, as Lightning and
submitit do. So Slurm has it in its queue whatever becomes of us, and it starts somewhere in any
case. Our part: the signal before, and the node list while it is pending.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mirage.domain import Job, JobState
from mirage.placement.live.journal import JobMove, MoveOutcome
from mirage.reasons import ReasonKind, kind_of
from mirage.slurm.job_details import JobDetails


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a move may take."""

    checkpoint_s: int = 600
    """From the signal until the job has requeued itself."""
    start_s: int = 300
    """That a requeued job waits for its nodes, once it may start, before it may start anywhere."""
    at_most_s: int = 1200
    """That a whole move takes, whatever keeps the job back, as a node that does not clean up. Other
    moves wait meanwhile.
    """


class Act(Enum):
    """What is to be done to the job."""

    WAIT = "wait"
    REQUEUE = "requeue"
    REQUIRE = "require"
    DROP = "drop"
    END = "end"


@dataclass(frozen=True, kw_only=True)
class MoveStep:
    """The next one of a move."""

    act: Act
    words: str
    outcome: MoveOutcome | None = None
    """Of `Act.END`."""


def next_step(
    move: JobMove,
    job: Job | None,
    details: JobDetails | None,
    *,
    now_s: int,
    patience: Patience,
    partner_stays: bool = False,
) -> MoveStep:
    """``job``, ``details``: as Slurm shows them now; None: it does not know the job any more.

    ``partner_stays``: another job of the move keeps nodes that this one was to have.
    """
    if job is None or details is None:
        return _end(MoveOutcome.ENDED, "Slurm does not know the job any more")
    if details.restarts <= move.restarts:
        return _before_requeue(move, job, now_s, patience)
    if details.restarts > move.restarts + 1:
        return _end(MoveOutcome.ELSEWHERE, "it was requeued more than once")
    if job.is_pending or job.state is JobState.COMPLETING:  # its old processes end meanwhile
        return _while_pending(move, job, details, now_s, patience, partner_stays)
    if job.state.is_over:
        return _end(MoveOutcome.ENDED, f"it was requeued, and has ended ({job.state.value})")
    if set(job.node_names) == set(move.to_nodes):
        return _end(MoveOutcome.MOVED, f"it runs on {','.join(move.to_nodes)}")
    return _end(MoveOutcome.ELSEWHERE, f"it started on {','.join(job.node_names)}")


def _before_requeue(move: JobMove, job: Job, now_s: int, patience: Patience) -> MoveStep:
    if job.state.is_over:
        was_killed = job.state is JobState.FAILED and job.exit_code == move.exit_code
        if was_killed and not move.requeued and not _is_another(move, job):
            return MoveStep(
                act=Act.REQUEUE, words=f"SIG{move.signal} ended it: it has no handler yet"
            )
        return _end(MoveOutcome.ENDED, f"it ended ({job.state.value}) and did not requeue itself")
    if _is_another(move, job):
        return _end(MoveOutcome.STAYED, "it is not the run that was to be moved")
    if now_s - move.intended_s > patience.checkpoint_s:
        return _end(
            MoveOutcome.STAYED,
            f"it did not requeue itself within {patience.checkpoint_s} s of its signal",
        )
    return _wait("it saves its checkpoint")


def _is_another(move: JobMove, job: Job) -> bool:
    return job.start_s is not None and job.start_s != move.start_s


def _while_pending(
    move: JobMove,
    job: Job,
    details: JobDetails,
    now_s: int,
    patience: Patience,
    partner_stays: bool,
) -> MoveStep:
    if move.dropped_s is not None:
        return _end(MoveOutcome.ELSEWHERE, "its nodes did not become free: it may start anywhere")
    has_list = set(details.required_nodes) == set(move.to_nodes)
    if details.required_nodes and not has_list:
        return _end(MoveOutcome.ELSEWHERE, "it asks for other nodes than it was given")
    back = _kept_back(job, now_s, patience)
    if has_list and (back or partner_stays):
        return MoveStep(act=Act.DROP, words=back or "the job that has its nodes stays there")
    if has_list:
        if now_s - (job.eligible_s or now_s) > patience.start_s:
            return MoveStep(act=Act.DROP, words=f"its nodes were not free for {patience.start_s} s")
        if now_s - move.intended_s > patience.at_most_s:
            return MoveStep(act=Act.DROP, words=f"it is kept back ({job.reason})")
        return _wait("it starts again on its nodes")
    if back or partner_stays:
        return _end(MoveOutcome.ELSEWHERE, back or "the job that has its nodes stays there")
    if job.nodes != len(move.to_nodes):
        # On a running job Slurm would take a shorter list for a wish to shrink.
        return _end(MoveOutcome.ELSEWHERE, f"it asks for {job.nodes} nodes now")
    return MoveStep(act=Act.REQUIRE, words=f"it may start on {','.join(move.to_nodes)} only")


def _kept_back(job: Job, now_s: int, patience: Patience) -> str:
    """Why a requeued job will not start soon, nodes or not: nobody's move waits for that. Slurm's
    own delay after a requeue is shorter.
    """
    is_held = job.has_zero_priority or kind_of(job.reason) in (
        ReasonKind.HELD,
        ReasonKind.DEPENDENCY,
    )
    is_late = (job.begin_s or 0) > now_s + patience.start_s
    return f"it is kept back ({job.reason})" if is_held or is_late else ""


def _wait(words: str) -> MoveStep:
    return MoveStep(act=Act.WAIT, words=words)


def _end(outcome: MoveOutcome, words: str) -> MoveStep:
    return MoveStep(act=Act.END, words=words, outcome=outcome)
