"""Moves opted-in jobs, one move after the other: decide, write the intent, ask, verify.

All that it knows lies in the journal and in Slurm. Whoever is killed at any point goes on from
there: a signal is sent at most once for an intent, a node list is set only while the job is
pending, and a move ends with what Slurm shows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mirage.domain import ActingMode, Job
from mirage.errors import ClusterError, ClusterNonsense, Refused, StoreError
from mirage.placement.live.advice import Move, Relocation, Terms, advise
from mirage.placement.live.journal import JobMove, MoveJournal, MoveOutcome
from mirage.placement.live.state import LiveState
from mirage.placement.live.steps import Act, MoveStep, Patience, next_step
from mirage.ports import Clock, Cluster, JobMover
from mirage.slurm.job_details import JobDetails
from slurm_sim.seconds import HOUR_S

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MoverOptions:
    """What it may do."""

    mode: ActingMode
    every_s: int
    """Between two decisions."""
    jobs_per_hour: int
    """That are moved at most. Each job moves at most once an hour."""
    patience: Patience = field(default_factory=Patience)


@dataclass(kw_only=True)
class Mover:
    """Only one may run on a journal."""

    cluster: Cluster
    mover: JobMover
    clock: Clock
    journal: MoveJournal
    options: MoverOptions
    read: Callable[[dict[int, frozenset[str]]], LiveState]
    """Asks Slurm; given the node lists that moves have set."""
    details: Callable[[int], JobDetails | None]
    terms: Callable[[MoveJournal], Terms]
    forbidden: Callable[[Job], str]
    """Why a job is none of this service's; empty: it is."""
    restraint: Callable[[Job], str]
    """Why a job may not be touched now; empty: it may."""
    show: Callable[[LiveState, tuple[Move, ...]], None]
    """Called with each new advice, where users are to see it."""
    as_json: Callable[[LiveState, Move], dict[str, object]]
    _decided_s: int | None = None
    _said: str = ""

    def cycle(self) -> bool:
        """Looks after open moves, or decides, if it is time. A Slurm without answer, or a full
        disk, costs the cycle and nothing else; False then.
        """
        return self.look() and self._guarded(self._decide_in_time)

    def look(self) -> bool:
        """Looks after open moves only."""
        return self._guarded(self._look)

    def _guarded(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except (ClusterError, StoreError) as error:
            log.warning("nothing more is done in this cycle: %s", error)
            return False
        return True

    def _look(self) -> None:
        for move in self.journal.open_moves:
            self._advance(move)

    @property
    def is_idle(self) -> bool:
        """No move is open."""
        return not self.journal.open_moves

    def _decide_in_time(self) -> None:
        passed_s = self.clock.now_s() - (self._decided_s or 0)
        if self.journal.open_moves or 0 <= passed_s < self.options.every_s:
            return
        self._decide()

    def _decide(self) -> None:
        self._decided_s = now_s = self.clock.now_s()
        lists = self.journal.node_lists()
        state = self.read(lists)
        self._free_from_lists(state, lists)
        recent = self.journal.since(now_s - HOUR_S)
        resting = frozenset(each.job_id for each in recent)
        others = {each.job.job_id for each in state.jobs if self.forbidden(each.job)}
        moves = advise(state, self.terms(self.journal), resting | others)
        self._tell(state, moves)
        left = self.options.jobs_per_hour - len(recent)
        if moves and len(moves[0].relocations) <= left:
            self._move(state, moves[0], now_s)
        elif moves:
            log.info("no move now: %d jobs were moved within the hour", len(recent))

    def _tell(self, state: LiveState, moves: tuple[Move, ...]) -> None:
        said = str([move.relocations for move in moves])
        if said == self._said:
            return
        self._said = said
        if moves:
            found = [self.as_json(state, move) for move in moves]
            self.journal.propose(state.at_s, self.options.mode.value, found)
        if self.options.mode is not ActingMode.OBSERVE:
            self.show(state, moves)

    def _move(self, state: LiveState, move: Move, now_s: int) -> None:
        for each in move.relocations:
            if why := self.restraint(state.jobs[each.row].job) or self._changed(state, each):
                log.info("job %d is not moved: %s", each.job_id, why)
                return
        number = self.journal.next_move
        meant = [_job_move(state, each, number, now_s) for each in move.relocations]
        self.journal.intend(meant, move.gain, move.price_gpu_s)
        for job_move in self.journal.open_moves:
            self._ask(job_move)

    def _changed(self, state: LiveState, each: Relocation) -> str:
        """Whether the job is still what the decision was about, looked at right before the act."""
        seen = state.jobs[each.row]
        fresh = self.cluster.jobs([each.job_id]).get(each.job_id)
        if fresh is None or (fresh.state, fresh.start_s) != (seen.job.state, seen.job.start_s):
            return "it is not as it was a moment ago"
        return "" if fresh.comment == seen.job.comment else "its owner has changed its comment"

    def _ask(self, move: JobMove) -> None:
        try:
            self.mover.signal(move.job_id, move.signal, batch=move.to_batch)
        except Refused as error:
            self._end(move, MoveOutcome.STAYED, str(error))
            return
        self.journal.write(move, "ask", self.clock.now_s())
        log.info(
            "job %d of %s: SIG%s, to move from %s to %s",
            *(move.job_id, move.user, move.signal),
            *(",".join(move.from_nodes), ",".join(move.to_nodes)),
        )

    def _advance(self, move: JobMove) -> None:
        now_s = self.clock.now_s()
        try:
            job = self.cluster.jobs([move.job_id]).get(move.job_id)
            details = self.details(move.job_id)
        except ClusterNonsense as error:  # of one job, as its owner wrote it: the others go on
            if now_s - move.intended_s > self.options.patience.at_most_s:
                self._end(move, MoveOutcome.ELSEWHERE, str(error))
            return
        step = next_step(
            move,
            job,
            details,
            now_s=now_s,
            patience=self.options.patience,
            partner_stays=self._partner_stays(move),
        )
        if step.act is Act.END:
            self._end(move, step.outcome or MoveOutcome.ENDED, step.words, job)
        elif step.act is Act.REQUIRE and job is not None and (why := self.restraint(job)):
            log.info("job %d may start anywhere: %s", move.job_id, why)
        elif step.act is not Act.WAIT:
            self._act(move, step, now_s)

    def _partner_stays(self, move: JobMove) -> bool:
        return any(
            other.outcome is MoveOutcome.STAYED and set(other.from_nodes) & set(move.to_nodes)
            for other in self.journal.moves
            if other.move == move.move and other is not move
        )

    def _act(self, move: JobMove, step: MoveStep, now_s: int) -> None:
        log.info("job %d: %s: %s", move.job_id, step.act.value, step.words)
        try:
            if step.act is Act.REQUEUE:
                self.mover.requeue(move.job_id)
            else:
                nodes = move.to_nodes if step.act is Act.REQUIRE else ()
                self.mover.require_nodes(move.job_id, nodes)
        except Refused as error:
            # It may have started a moment ago: the next look tells.
            log.warning("job %d: %s was refused: %s", move.job_id, step.act.value, error)
            if step.act is Act.REQUEUE:
                self._end(move, MoveOutcome.ENDED, str(error))
            return
        self.journal.write(move, step.act.value, now_s, words=step.words)

    def _end(self, move: JobMove, outcome: MoveOutcome, words: str, job: Job | None = None) -> None:
        pause_s = None
        if outcome is MoveOutcome.MOVED and job is not None and job.start_s is not None:
            pause_s = max(job.start_s - move.intended_s, 0)
        self.journal.write(
            move, "end", self.clock.now_s(), outcome=outcome.value, words=words, pause=pause_s
        )
        level = logging.INFO if outcome is MoveOutcome.MOVED else logging.WARNING
        pause = "" if pause_s is None else f", after a pause of {pause_s} s"
        log.log(level, "job %d: %s: %s%s", move.job_id, outcome.value, words, pause)

    def _free_from_lists(self, state: LiveState, lists: dict[int, frozenset[str]]) -> None:
        """A job that was moved keeps its node list. If it is requeued later, as after the failure
        of a node, the list goes, so that it may start anywhere.
        """
        for job in state.pending:
            if job.job_id not in lists or self.forbidden(job) or self.restraint(job):
                continue
            found = self.details(job.job_id)
            if found and frozenset(found.required_nodes) == lists[job.job_id]:
                log.info(
                    "job %d: it was requeued since its move, and may start anywhere", job.job_id
                )
                try:
                    self.mover.require_nodes(job.job_id, ())
                except Refused as error:
                    log.warning("job %d keeps its node list: %s", job.job_id, error)


def _job_move(state: LiveState, each: Relocation, number: int, now_s: int) -> JobMove:
    placed = state.jobs[each.row]
    assert placed.opt_in is not None
    return JobMove(
        move=number,
        job_id=each.job_id,
        user=each.user,
        intended_s=now_s,
        start_s=placed.job.start_s or 0,
        restarts=placed.details.restarts,
        from_nodes=each.from_nodes,
        to_nodes=each.to_nodes,
        signal=placed.opt_in.signal,
        to_batch=placed.opt_in.to_batch,
        exit_code=placed.opt_in.exit_code,
    )
