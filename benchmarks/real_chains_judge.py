"""What became of the chains of `real_chains.py`, by slurmdbd and by what their scripts wrote."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.real_chains_plan import HOUR_S, LINK_MIN, ChainPlan

HANDOVER_S = 600
"""What a handover is taken to cost, as in `mirage demo`: those on a fast clock cost what the
machine takes.
"""
FIELDS = "JobIDRaw,State,Eligible,Start,End,NNodes,JobName,SubmitLine"


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job, as slurmdbd has it; times in Unix seconds."""

    job_id: int
    name: str
    segment: int
    """0: a job of somebody else."""
    state: str
    nodes: int
    eligible_s: int | None
    start_s: int | None
    end_s: int | None


@dataclass(frozen=True, kw_only=True)
class Note:
    """A line of a chain's journal."""

    what: str
    segment: int
    job_id: int
    at_s: int
    amount_s: int


@dataclass(kw_only=True)
class Figures:
    """Of one chain, from its first start to the end of the time. Hours; nodes as the chain has."""

    wall_h: float
    goodput: float
    interrupted_h: float
    handovers: int
    twice_node_h: float
    cut_young: int
    """Links that ended before a quarter of their limit."""
    worked: float
    """Share of the wall clock in which the scripts worked; of a service 0, since it is asked
    (`real_chains_client.py`).
    """


@dataclass(kw_only=True)
class Verdict:
    """Empty lists: all is well."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.writers or self.unsaved)


def parse_jobs(text: str) -> list[JobRecord]:
    """Lines of `sacct -P` with `FIELDS`."""
    found = []
    for line in text.splitlines():
        job_id, state, eligible, start, end, nodes, name, submitted = line.split("|", 7)
        link = re.search(r"/job\.sh (\d+) (\d+) ", submitted + " ")
        times = [
            int(word) if word.isdecimal() and int(word) else None for word in (eligible, start, end)
        ]
        found.append(
            JobRecord(
                job_id=int(job_id),
                name=name,
                segment=int(link[1]) if link else 0,
                state=state.split()[0],
                nodes=int(nodes or 0),
                eligible_s=times[0],
                start_s=times[1],
                end_s=times[2],
            )
        )
    return found


def parse_notes(text: str) -> list[Note]:
    notes = []
    for line in text.splitlines():
        what, segment, job_id, at_s, amount_s = line.split()
        notes.append(
            Note(
                what=what,
                segment=int(segment),
                job_id=int(job_id),
                at_s=int(at_s),
                amount_s=int(amount_s),
            )
        )
    return notes


def union_s(spans: Iterable[tuple[int, int]]) -> int:
    """Seconds that at least one of the spans covers."""
    total_s = last_s = 0
    for begin_s, end_s in sorted(spans):
        total_s += max(0, end_s - max(begin_s, last_s))
        last_s = max(last_s, end_s)
    return total_s


def figures(
    plan: ChainPlan, jobs: Sequence[JobRecord], notes: Sequence[Note], end_s: int
) -> Figures:
    """``jobs``: the chain's. All is nought where none of them started before ``end_s``."""
    started = (job for job in jobs if job.start_s and job.start_s < end_s)
    ran = sorted(started, key=lambda job: job.start_s or 0)
    if not ran:
        return Figures(**dict.fromkeys(Figures.__annotations__, 0))  # type: ignore[arg-type]
    spans = [(job.start_s or 0, min(job.end_s or end_s, end_s)) for job in ran]
    wall_s = end_s - spans[0][0]
    up_s = union_s(spans)
    held_s = sum(end - begin for begin, end in spans)
    cost_s = HANDOVER_S * (len(ran) - 1) if plan.mode == "train" else 0
    cut = sum(
        (job.end_s or end_s) - (job.start_s or 0) < LINK_MIN * 60 / 4
        for job in ran
        if job.end_s and job.end_s < end_s
    )
    return Figures(
        wall_h=round(wall_s / HOUR_S, 2),
        goodput=round((up_s - cost_s) / wall_s, 4),
        interrupted_h=round((wall_s - up_s) / HOUR_S, 2),
        handovers=len(ran) - 1,
        twice_node_h=round((held_s - up_s) * plan.nodes / HOUR_S, 2),
        cut_young=cut,
        worked=round(_worked_s(plan, ran, notes, end_s) / wall_s, 4),
    )


def _worked_s(plan: ChainPlan, ran: Sequence[JobRecord], notes: Sequence[Note], end_s: int) -> int:
    """From `begin` to `saved`, or to the job's end."""
    ends = {job.job_id: min(job.end_s or end_s, end_s) for job in ran}
    ends |= {note.job_id: min(note.at_s, end_s) for note in notes if note.what == "saved"}
    return union_s(
        (note.at_s, ends[note.job_id])
        for note in notes
        if note.what == "begin"
        and plan.mode == "train"
        and note.job_id in ends
        and note.at_s < end_s
    )


def judge(
    plan: ChainPlan,
    jobs: Sequence[JobRecord],
    notes: Sequence[Note],
    *,
    queued: Collection[str],
    end_s: int,
) -> Verdict:
    """``queued``: names of the jobs that slurmctld had at the end of the time, before the chains
    were cancelled.
    """
    verdict = Verdict()
    if plan.name not in queued:
        verdict.lost.append("no job of it was running or queued at the end")
    begun: dict[int, set[int]] = defaultdict(set)
    for note in notes:
        if note.what == "begin":
            begun[note.segment].add(note.job_id)
        if note.what == "TWO-WRITERS":
            verdict.writers.append(f"link {note.segment}, job {note.job_id}")
    submitted: dict[int, set[int]] = defaultdict(set)
    for job in jobs:
        submitted[job.segment].add(job.job_id)
    for what, groups in (("submitted", submitted), ("at work", begun)):
        verdict.doubled += [
            f"link {segment} was {what} as jobs {sorted(ids)}"
            for segment, ids in groups.items()
            if len(ids) > 1
        ]
    if plan.mode == "train":
        _judge_work(notes, end_s, verdict)
    return verdict


def _judge_work(notes: Sequence[Note], end_s: int, verdict: Verdict) -> None:
    """Each link begins with what the one before saved, and saves when it is asked."""
    work = [note for note in notes if note.what in ("begin", "saved") and note.at_s <= end_s]
    for before, after in pairwise(work):
        if after.what == "begin" and before.what == "begin":
            verdict.unsaved.append(f"link {before.segment}, job {before.job_id}")
        elif after.what == "begin" and after.amount_s != before.amount_s:
            verdict.lost.append(
                f"link {after.segment} began with {after.amount_s} s of work, not {before.amount_s}"
            )


def waits_h(jobs: Iterable[JobRecord]) -> dict[str, float]:
    """Of jobs of others that started: median, mean and 95th percentile, in hours."""
    waits = sorted(
        (job.start_s - job.eligible_s) / HOUR_S
        for job in jobs
        if job.segment == 0 and job.start_s and job.eligible_s is not None
    )
    if not waits:
        return {}
    return {
        "jobs": len(waits),
        "p50": round(waits[len(waits) // 2], 2),
        "mean": round(sum(waits) / len(waits), 2),
        "p95": round(waits[int(0.95 * (len(waits) - 1))], 2),
    }
