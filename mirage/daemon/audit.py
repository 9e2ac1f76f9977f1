"""What goes into the audit log: each decision before it is acted on, its outcome, and what the
handover came to.

docs/audit.md describes the records. What can't be written down is not acted on (decision 0009).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirage.chain.handoff import Handoff
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import restraint_in
from mirage.daemon.tick import Grounds
from mirage.domain import ActingMode, Decision, ReleaseOutcome
from mirage.errors import AuditError
from mirage.store.journal import Journal

Json = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Audit(Observer):
    """The log of one service. ``model``: folder and version of the policy's model; None: it has none."""

    journal: Journal
    mode: ActingMode
    model: Callable[[], Mapping[str, str] | None] = lambda: None

    def decisions_final(self, entries: Sequence[tuple[Decision, Grounds]]) -> None:
        """Raises AuditError: then nothing may be done."""
        self.journal.append([self._decision(*entry) for entry in entries])

    def release_ended(
        self, decision: Decision, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        """How a release ended. If that can't be written, it is logged: the store knows it too."""
        self._append(
            [
                _about(decision, "outcome", now_s)
                | {
                    "decided": decision.at_s,
                    "outcome": outcome.value,
                    "detail": detail,
                }
            ]
        )

    def chains_followed(self, handovers: Sequence[Handoff], active_chains: int, now_s: int) -> None:
        self._append([handover_record(handoff, now_s) for handoff in handovers])

    def _append(self, records: list[Json]) -> None:
        try:
            self.journal.append(records)
        except AuditError as error:
            log.warning("%s", error)

    def _decision(self, decision: Decision, grounds: Grounds) -> Json:
        restraint, reason = restraint_in(decision.reason)
        return _about(decision, "decision", decision.at_s) | {
            "mode": self.mode.value,
            "policy": decision.policy,
            "model": self.model(),
            "inputs_sha256": decision.inputs_hash,
            "partition": grounds.successor.partition,
            "account": grounds.successor.account,
            "nodes": grounds.successor.nodes,
            "remaining_s": decision.remaining_s,
            "wait_p10_s": decision.wait_p10_s,
            "wait_p50_s": decision.wait_p50_s,
            "wait_p90_s": decision.wait_p90_s,
            "expected_interruption_s": decision.expected_interruption_s,
            "expected_overlap_s": decision.expected_overlap_s,
            "penalty_now_s": grounds.penalty_now_s,
            "penalty_later_s": grounds.penalty_later_s,
            "handover_s": grounds.handover_s,
            "baseline": dict(grounds.baseline),
            "action": decision.action.value,
            "reason": reason,
            "held_back": restraint.code.value if restraint else None,
            "held_back_because": restraint.words if restraint else None,
        }


def _about(decision: Decision, kind: str, at_s: int) -> Json:
    return {
        "at": at_s,
        "kind": kind,
        "user": decision.user,
        "chain": decision.chain_id,
        "predecessor": decision.predecessor_id,
        "successor": decision.successor_id,
    }


def handover_record(handoff: Handoff, now_s: int) -> Json:
    """What became of a pair: both times are known. ``entered``: when the successor began to compete
    for nodes.
    """
    link, before = handoff.link, handoff.predecessor
    return {
        "at": now_s,
        "kind": "handover",
        "user": link.user,
        "chain": link.chain_id,
        "predecessor": before.job_id,
        "successor": link.job_id,
        "nodes": before.nodes,
        "released": link.released_s,
        "entered": link.released_s or link.eligible_s,
        "started": link.start_s,
        "ready": handoff.works_s,
        "predecessor_started": before.start_s,
        "predecessor_ended": before.end_s,
        "interruption_s": handoff.interruption_s,
        "down_s": before.down_s,
        "overlap_s": handoff.overlap_s,
        "cut_short_s": handoff.cut_short_s,
    }
