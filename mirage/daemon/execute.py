"""Writes a cycle's decisions down, and carries out those that the service may carry out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from mirage.chain.tag import ChainTag, parse_tag
from mirage.daemon import act
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import RATE_WINDOW_S, Acting, Code, Restraint
from mirage.daemon.tick import Grounds, Release, Wait
from mirage.domain import Action, Decision, Job, ReleaseOutcome
from mirage.errors import AuditError, ClusterError, ClusterNonsense, MirageError, Unreadable
from mirage.peers import Sparingly
from mirage.ports import Clock, Cluster, Store

log = logging.getLogger(__name__)

MOST_TIMES = 3
"""So often one job is let in; who makes it wait again then keeps it waiting. So often within an hour
it is tried where Slurm accepts the change and nothing comes of it.
"""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Of one service."""

    cluster: Cluster
    store: Store
    clock: Clock
    acting: Acting
    observers: Sequence[Observer] = ()
    sparingly: Sparingly = field(default_factory=lambda: Sparingly(RATE_WINDOW_S))

    def carry_out(self, decided: Sequence[Wait | Release], seen_s: int) -> None:
        """``seen_s``: when the cluster was looked at. Raises ClusterError and StoreError; what is
        left waits.
        """
        left: list[tuple[Decision, Grounds]] = []
        due: list[tuple[Release, int]] = []
        waiting = set()
        for each in decided:
            restraint = self.acting.standing(each.grounds.successor, each.grounds.competing)
            if restraint is None:
                waiting.add(each.decision.user)
            if isinstance(each, Release) and restraint is None:
                before, restraint = self._tried(each.grounds.successor)
            if isinstance(each, Release) and restraint is None:
                due.append((each, before))
            else:
                left.append((_marked(each.decision, restraint), each.grounds))
        self._write_down(left)
        recent = self.acting.recent(self.clock.now_s(), self.store)
        self._carry_out(in_turn(due, recent), waiting, seen_s)

    def _tried(self, job: Job) -> tuple[int, Restraint | None]:
        """How often a job was tried to be let in, and what follows from that."""
        let_in = act.times_let_in(job, self.store)
        in_vain = act.times_without_effect(job, self.store, self.clock.now_s())
        restraint = None
        if let_in >= MOST_TIMES:
            words = f"it was let in {let_in} times, and each time its owner made it wait again"
            restraint = Restraint(Code.AGAIN, words)
        elif in_vain >= MOST_TIMES:
            words = f"Slurm accepted {in_vain} releases within the hour, and it waits as before"
            restraint = Restraint(Code.NO_EFFECT, words)
        return let_in + in_vain, restraint

    def _carry_out(self, due: Sequence[Release], waiting: Collection[str], seen_s: int) -> None:
        held: list[tuple[Decision, Grounds]] = []
        recent, done = None, 0
        try:
            for release in due:
                done += 1
                decision, now_s = release.decision, self.clock.now_s()
                if recent is None:  # at first, and after each release
                    recent = self.acting.recent(now_s, self.store)
                restraint = self.acting.momentary(seen_s, now_s, recent, decision.user, waiting)
                if restraint is None:
                    recent = None
                    self._release(release)
                    continue
                held.append((_marked(decision, restraint), release.grounds))
                if restraint.code is Code.RATE:
                    self._complain(recent, now_s)
        except ClusterError:
            restraint = Restraint(Code.NO_ANSWER, "Slurm gave no answer to the release before it")
            held += [(_marked(each.decision, restraint), each.grounds) for each in due[done:]]
            raise
        finally:
            self._write_down(held)

    def resume(self) -> None:
        """Finds out what became of releases that a crash, or a Slurm without answer, cut short."""
        for intent in self.store.open_intents():
            try:
                outcome, detail = act.resume(intent, self.cluster, self.store, self.clock)
            except (
                Unreadable
            ) as error:  # of one user's job: the others' cycle goes on, and the intent stays open
                log.warning("job %d: unfinished release: %s", intent.decision.successor_id, error)
                continue
            log.info(
                "job %d: unfinished release: %s (%s)",
                intent.decision.successor_id,
                outcome.value,
                detail,
            )
            self._report_outcome(intent.decision, outcome, detail)

    def _write_down(self, entries: Sequence[tuple[Decision, Grounds]]) -> None:
        with self.store.transaction():
            for decision, _ in entries:
                self.store.add_decision(decision)
        for decision, _ in entries:
            if decision.action is Action.RELEASE:
                log.info(
                    "chain %s of %s, job %d: would be let in, but %s",
                    decision.chain_id,
                    decision.user,
                    decision.successor_id,
                    decision.reason,
                )
        try:
            self._announce(entries)
        except AuditError as error:
            log.warning("%s", error)

    def _release(self, release: Release) -> None:
        decision, grounds = release.decision, release.grounds
        try:
            self._announce([(decision, grounds)])
        except AuditError as error:
            restraint = Restraint(Code.NO_AUDIT, "the audit log can't be written")
            log.warning("job %d is not let in: %s", decision.successor_id, error)
            self.store.add_decision(_marked(decision, restraint))
            return
        self._act(decision, grounds)

    def _act(self, decision: Decision, grounds: Grounds) -> None:
        tag = parse_tag(grounds.successor.comment)
        assert isinstance(tag, ChainTag)
        for observer in self.observers:
            observer.release_begins(grounds.successor)
        try:
            outcome, detail = act.release(
                decision, tag, self.acting, self.cluster, self.store, self.clock
            )
        except ClusterNonsense as error:
            outcome, detail = ReleaseOutcome.UNKNOWN, str(error)
        except MirageError as error:
            self._report_outcome(decision, ReleaseOutcome.UNKNOWN, str(error))
            raise
        level = (
            logging.INFO
            if outcome in (ReleaseOutcome.RELEASED, ReleaseOutcome.ALREADY)
            else logging.WARNING
        )
        log.log(
            level,
            "chain %s of %s, job %d: release: %s (%s); why: %s",
            decision.chain_id,
            decision.user,
            decision.successor_id,
            outcome.value,
            detail,
            decision.reason,
        )
        self._report_outcome(decision, outcome, detail)

    def _complain(self, recent: Counter[str], now_s: int) -> None:
        for user, count in recent.most_common(1):
            if self.sparingly.may(user, now_s):
                log.warning(
                    "acting.releases_per_minute is reached: user %s had %d of the last minute's %d"
                    " releases",
                    user,
                    count,
                    recent.total(),
                )

    def _announce(self, entries: Sequence[tuple[Decision, Grounds]]) -> None:
        """Raises AuditError: then nothing of it may be carried out."""
        for observer in self.observers:
            observer.decisions_final(entries)

    def _report_outcome(self, decision: Decision, outcome: ReleaseOutcome, detail: str) -> None:
        now_s = self.clock.now_s()
        for observer in self.observers:
            observer.release_ended(decision, outcome, detail, now_s)


def _marked(decision: Decision, restraint: Restraint | None) -> Decision:
    return replace(decision, reason=f"{restraint} {decision.reason}") if restraint else decision


def in_turn(due: Sequence[tuple[Release, int]], recent: Counter[str]) -> list[Release]:
    """The order of a cycle's releases, should there be too many for the rate: one of each user,
    then a second one, ...

    Those that were let in before go last. ``due``: each with how often that was; ``recent``: see
    `Acting.recent`.
    """
    had = Counter(recent)
    places = []
    for release, before in sorted(due, key=lambda each: (each[1], *_pressing(each[0]))):
        had[release.decision.user] += 1
        places.append((before > 0, had[release.decision.user], _pressing(release), release))
    return [release for *_, release in sorted(places, key=lambda place: place[:3])]


def _pressing(release: Release) -> tuple[int, int]:
    """Whose predecessor ends first goes first."""
    return release.decision.remaining_s or 0, release.decision.successor_id
