"""What the service was worth, from its audit log. Pure.

What happened (interruption, overlap) is measured. What would have happened is estimated by one
assumption: the same job would have waited as long as it did, whenever it had entered the queue
(docs/audit.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mirage.daemon.restraint import Code

Json = Mapping[str, Any]
Key = tuple[str, str, int, int]
"""User, chain, successor; of a link that Slurm requeued, when it started again."""

_PAIR = {"at", "user", "chain", "successor"}
_NEEDED = {
    "decision": _PAIR | {"action", "held_back", "wait_p10_s", "wait_p50_s", "wait_p90_s"},
    "outcome": _PAIR | {"outcome"},
    "handover": _PAIR
    | {"nodes", "released", "entered", "started", "ready"}
    | {"predecessor_started", "predecessor_ended"}
    | {"interruption_s", "down_s", "overlap_s", "cut_short_s"},
}


@dataclass(frozen=True, slots=True)
class Costs:
    """Sums over handovers, seconds."""

    interruption_s: float = 0
    early_s: float = 0
    """From the successor's start to the predecessor's planned end: overlap, or time limit that this
    one gave up.
    """

    def __add__(self, other: Costs) -> Costs:
        return Costs(self.interruption_s + other.interruption_s, self.early_s + other.early_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How often real waits were below what was predicted: of so many, below the 10%, 50% and 90%
    quantile.
    """

    waits: int = 0
    below_p10: int = 0
    below_p50: int = 0
    below_p90: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSums:
    """Measured, over handovers of services."""

    handovers: int = 0
    wall_s: float = 0
    """From each predecessor's start until the next link was ready,"""
    down_s: float = 0
    """and the part of it in which no link was ready, or a server was started again."""
    longest_gap_s: float = 0
    node_s: float = 0
    """Runs of the predecessors times their nodes,"""
    twice_node_s: float = 0
    """and the part of it in which the successor had nodes too."""

    @property
    def up_time(self) -> float | None:
        """Share of the time; None: no handover is known."""
        return 1 - self.down_s / self.wall_s if self.wall_s else None

    def with_one(self, handover: Json) -> ServiceSums:
        """With one handover more."""
        gap_s, nodes = handover["interruption_s"], handover["nodes"] or 1
        begin_s = handover["predecessor_started"]
        begin_s = handover["predecessor_ended"] if begin_s is None else begin_s
        return ServiceSums(
            handovers=self.handovers + 1,
            wall_s=self.wall_s + max(0, handover["ready"] - begin_s),
            down_s=self.down_s + gap_s + handover["down_s"],
            longest_gap_s=max(self.longest_gap_s, gap_s),
            node_s=self.node_s + nodes * (handover["predecessor_ended"] - begin_s),
            twice_node_s=self.twice_node_s + nodes * handover["overlap_s"],
        )


@dataclass(frozen=True, kw_only=True)
class Impact:
    """Of one period. `measured` is what happened to all handovers; the others are estimates for the
    same ones.
    """

    handovers: int = 0
    released: int = 0
    """Handovers whose successor the service had let in."""
    not_known: int = 0
    """Handovers whose successor entered the queue for other reasons: nothing is estimated for
    them.
    """
    measured: Costs = Costs()
    overlap_s: float = 0
    """The part of the measured `early_s` in which both ran."""
    overlap_node_s: float = 0
    """That overlap times nodes, node-seconds."""
    cut_short_s: float = 0
    """The rest of the measured `early_s`: time limit that predecessors gave up to successors that
    were there already.
    """
    compared: Costs = Costs()
    """Measured, of the handovers for which there are estimates."""
    reactive: Costs = Costs()
    """Estimated: Slurm's dependency alone."""
    timer: Costs = Costs()
    """Estimated: every release at `timer_lead_s` before the planned end."""
    policy: Costs = Costs()
    """Estimated: every decided release carried out at once, as in a service that only observes."""
    timer_lead_s: int = 0
    calibration: Calibration = Calibration()
    training: int = 0
    """Handovers of training chains that the service decided about,"""
    handover_cost_s: float = 0
    """and what they cost by what the chains knew then (`handover_s` of a decision)."""
    services: ServiceSums = ServiceSums()
    decisions: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Decisions that a policy left to what stands in for it, by the code of the guard."""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """Releases that were decided and not carried out, by code; one a job and code."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    open_releases: int = 0
    """Jobs that were let in and whose handover is not known yet: left out above."""
    unreadable: int = 0
    """Lines of the log."""

    @property
    def only_observed(self) -> bool:
        """All that was decided was left undone, since the service only observes: `measured` is then
        what happens without Mirage.
        """
        return not self.released and Code.OBSERVE.value in self.held_back

    def as_json(self) -> dict[str, Any]:
        services = asdict(self.services) | {"up_time": self.services.up_time}
        return asdict(self) | {"only_observed": self.only_observed, "services": services}


@dataclass(kw_only=True)
class _Pair:
    """What the log says of one successor."""

    wanted: Json | None = None
    """The first decision to release it."""
    acted: Json | None = None
    """The decision that was acted on,"""
    last: Json | None = None
    """and the last one of all before it entered the queue."""
    handover: Json | None = None
    released: bool = False
    held_back: set[str] = field(default_factory=set)


def impact(records: Iterable[Json | None], since_s: int, until_s: int, timer_lead_s: int) -> Impact:
    """Of the handovers that became known in [since_s, until_s). ``records``: the whole log, oldest
    first.
    """
    pairs: dict[Key, _Pair] = {}
    outcomes: dict[str, int] = {}
    decisions = unreadable = 0
    fallbacks = Counter[str]()
    for record in records:
        key = _key(record)
        if record is None or key is None:
            unreadable += 1
            continue
        recent = since_s <= record["at"] < until_s
        pair = pairs.setdefault(key, _Pair())
        _take(pair, record, recent)
        if recent and record["kind"] == "decision":
            decisions += 1
            if code := guard_in(str(record.get("reason", ""))):
                fallbacks[code] += 1
        if recent and record["kind"] == "outcome":
            outcomes[str(record["outcome"])] = outcomes.get(str(record["outcome"]), 0) + 1
    done = [
        pair
        for pair in pairs.values()
        if pair.handover and since_s <= pair.handover["at"] < until_s
    ]
    sums = _Sums()
    for pair in done:
        assert pair.handover
        sums.add(pair.handover, pair.wanted, timer_lead_s)
        sums.add_mode(pair.handover, pair.acted or pair.last)
    held_back = Counter(code for pair in pairs.values() for code in sorted(pair.held_back))
    return Impact(
        handovers=len(done),
        timer_lead_s=timer_lead_s,
        calibration=calibration(done),
        decisions=decisions,
        fallbacks=dict(fallbacks),
        held_back=dict(held_back),
        outcomes=outcomes,
        open_releases=sum(pair.released and pair.handover is None for pair in pairs.values()),
        unreadable=unreadable,
        **vars(sums),
    )


def is_audit_log(records: Iterable[Json | None]) -> bool:
    """Whether one of them is a record of such a log."""
    return any(_key(record) is not None for record in records)


def _key(record: Json | None) -> Key | None:
    if record is None or not _NEEDED.get(record.get("kind", ""), {""}) <= record.keys():
        return None
    return pair_of(record)


def pair_of(record: Json) -> Key:
    """Whom a record of a decision, an outcome or a handover is about."""
    started_s = int(record.get("started") or 0) if _is_requeue(record) else 0
    return str(record["user"]), str(record["chain"]), int(record["successor"]), started_s


def _is_requeue(record: Json) -> bool:
    return record.get("kind") == "handover" and record.get("predecessor") == record["successor"]


def _take(pair: _Pair, record: Json, recent: bool) -> None:
    match record["kind"]:
        case "decision":
            pair.last = record
            if record["action"] == "release":
                pair.wanted = pair.wanted or record
                if record["held_back"] is None:
                    pair.acted = record
                elif recent:
                    pair.held_back.add(record["held_back"])
        case "outcome":
            pair.released = pair.released or record["outcome"] == "released"
        case "handover":
            pair.handover = pair.handover or record


@dataclass(kw_only=True)
class _Sums:
    """Fields of `Impact` that are sums over handovers."""

    released: int = 0
    not_known: int = 0
    measured: Costs = Costs()
    overlap_s: float = 0
    overlap_node_s: float = 0
    cut_short_s: float = 0
    compared: Costs = Costs()
    reactive: Costs = Costs()
    timer: Costs = Costs()
    policy: Costs = Costs()
    training: int = 0
    handover_cost_s: float = 0
    services: ServiceSums = ServiceSums()

    def add_mode(self, handover: Json, decided: Json | None) -> None:
        """``decided``: the decision that led to the handover. It has a cost in a training chain alone."""
        if decided is None or "handover_s" not in decided:
            return
        if (cost_s := decided["handover_s"]) is None:
            self.services = self.services.with_one(handover)
        else:
            self.training += 1
            self.handover_cost_s += cost_s

    def add(self, handover: Json, wanted: Json | None, timer_lead_s: int) -> None:
        """``wanted``: the first decision to release the successor."""
        happened = Costs(
            handover["interruption_s"], handover["overlap_s"] + handover["cut_short_s"]
        )
        self.measured += happened
        self.overlap_s += handover["overlap_s"]
        self.overlap_node_s += handover["overlap_s"] * (handover["nodes"] or 1)
        self.cut_short_s += handover["cut_short_s"]
        self.released += handover["released"] is not None
        if (wait_s := real_wait_s(handover)) is None:
            self.not_known += 1
            return
        self.compared += happened
        end_s, begin_s = planned_end_s(handover), handover["predecessor_started"] or 0
        wanted_s = wanted["at"] if wanted else end_s
        self.reactive += _entered(end_s, wait_s, handover)
        self.timer += _entered(max(end_s - timer_lead_s, begin_s), wait_s, handover)
        self.policy += _entered(min(wanted_s, end_s), wait_s, handover)


def guard_in(reason: str) -> str:
    """The code of the guard that took a decision from its policy, `out-of-range`; empty: none did."""
    match = re.match(r"\[([a-z-]+)[\]:]", reason)
    return match[1] if match else ""


def real_wait_s(handover: Json) -> int | None:
    """From entering the queue to the start; None where that is not known, or its owner let it in
    before the end, or Slurm requeued it.
    """
    if handover["entered"] is None or handover["started"] is None:
        return None
    if _is_requeue(handover):
        return None
    early_by_owner = (
        handover["released"] is None and handover["entered"] < handover["predecessor_ended"]
    )
    return None if early_by_owner else max(0, handover["started"] - handover["entered"])


def planned_end_s(handover: Json) -> int:
    """When the predecessor would have ended without an early successor: at its expected end if it
    was cut short.
    """
    return int(handover["predecessor_ended"] + handover["cut_short_s"])


def _entered(at_s: int, wait_s: int, handover: Json) -> Costs:
    """The costs had the successor entered the queue at this time, and waited as long as it did. A
    link of a service starts up for as long as it did, too.
    """
    early_s = planned_end_s(handover) - at_s - wait_s
    start_up_s = handover["ready"] - handover["started"]
    return Costs(max(0, start_up_s - early_s), max(0, early_s))


def calibration(done: Iterable[_Pair]) -> Calibration:
    """The decision that was acted on, or the last one before Slurm let the job in, against its real
    wait.
    """
    judged: list[tuple[int, Json]] = []
    for pair in done:
        record = pair.acted or pair.last
        wait_s = real_wait_s(pair.handover) if pair.handover else None
        if record is not None and wait_s is not None and record["wait_p50_s"] is not None:
            judged.append((wait_s, record))

    def below(quantile: str) -> int:
        bounds = ((wait_s, record[quantile]) for wait_s, record in judged)
        return sum(bound is not None and wait_s <= bound for wait_s, bound in bounds)

    return Calibration(
        waits=len(judged),
        below_p10=below("wait_p10_s"),
        below_p50=below("wait_p50_s"),
        below_p90=below("wait_p90_s"),
    )
