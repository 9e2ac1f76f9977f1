"""What became of the soak's chains, by witnesses that are not Mirage: slurmdbd, slurmctld's log,
the jobs' journals.

Mirage's own words (the markers in chains' folders, the daemon's store) are what is judged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirage.chain.length import most_links
from tests.conformance.soak_chains import Plan

KNOWN_UNSEEN = "the chain's whole life lay between two cycles, so the daemon has never seen it"
ALIVE = ("PENDING", "RUNNING")
UNSEEN_S = 3600
"""A life that is longer must have been seen: 600 s between two cycles, and half an hour that a
fault may last.
"""


@dataclass(frozen=True)
class Record:
    """A job, as slurmdbd has it."""

    job_id: int
    chain_name: str
    segment: int
    state: str
    start_s: int | None
    end_s: int | None


@dataclass
class Evidence:
    """All that is known of one chain."""

    plan: Plan
    expected_end: str
    expected_links: int
    records: Sequence[Record]
    journal: Sequence[tuple[str, int, int, int]]
    """(what, segment, job, Unix seconds), by the user's script."""
    marker: str
    """Of the chain's folder; empty: none."""
    stored: str
    """The daemon's store's state of the chain."""
    kept: Mapping[int, str]
    """The store's state of each of its jobs."""
    queued: Collection[int]
    """Jobs of it that slurmctld has at the end."""


@dataclass
class Verdict:
    """Empty lists: all is well."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    untrue: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice or self.untrue)


def parse_sacct(text: str) -> list[Record]:
    """Lines `JobIDRaw|State|Start|End|JobName|SubmitLine` of the soak's jobs."""
    found = []
    for line in text.splitlines():
        job_id, state, start, end, name, submitted = line.split("|", 5)
        if name.startswith("soak") and (
            link := re.search(r"/job\.sh (\d+) (\d+) ", submitted + " ")
        ):
            times = [int(word) if word.isdecimal() and int(word) else None for word in (start, end)]
            found.append(Record(int(job_id), name, int(link[1]), state.split()[0], *times))
    return found


def parse_journal(text: str) -> list[tuple[str, int, int, int]]:
    lines = (line.split() for line in text.splitlines())
    return [
        (words[0], int(words[1]), int(words[2]), int(words[3]))
        for words in lines
        if len(words) == 4
    ]


def accepted_jobs(slurmctld_log: Iterable[str]) -> set[int]:
    """Every job that slurmctld ever took."""
    pattern = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
    return {int(match[1]) for line in slurmctld_log if (match := pattern.search(line))}


def judge(seen: Evidence) -> Verdict:
    """No link lost, none twice, the chain's end true."""
    verdict = Verdict()
    begun: Mapping[int, set[int]] = _grouped(
        (segment, job) for what, segment, job, _ in seen.journal if what == "begin"
    )
    submitted = _grouped((record.segment, record.job_id) for record in seen.records)
    _lost(seen, begun, verdict)
    for segment, jobs in submitted.items():
        if len(jobs) > 1:
            verdict.twice.append(f"link {segment} was submitted as jobs {sorted(jobs)}")
    for segment, jobs in begun.items():
        if len(jobs) > 1:
            verdict.twice.append(f"link {segment} worked in jobs {sorted(jobs)}")
    verdict.twice += [
        f"two writers: link {segment}"
        for what, segment, _, _ in seen.journal
        if what == "TWO-WRITERS"
    ]
    _end(seen, verdict)
    if seen.stored:
        _table(seen, verdict)
    return verdict


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for segment, job in pairs:
        found[segment].add(job)
    return found


def _lost(seen: Evidence, begun: Mapping[int, set[int]], verdict: Verdict) -> None:
    missing = [segment for segment in range(1, seen.expected_links + 1) if segment not in begun]
    if missing:
        verdict.lost.append(f"links {missing} never worked")
    is_exact = seen.plan.kind in ("early", "fail", "loop")  # else links may be handed over early
    most = most_links("" if is_exact else str(seen.expected_links), seen.expected_links)
    if extra := [segment for segment in begun if most and segment > most]:
        verdict.untrue.append(f"links {extra} worked after the chain's end")
    if seen.queued:
        verdict.untrue.append(f"jobs {sorted(seen.queued)} are left over")


def _is_used_up(seen: Evidence, last: Record | None) -> bool:
    """Whether the last link reached its limit or its own signal, which is no sign that the work is
    done: the folder has no mark of the end then (decision 0053).
    """
    if last is None:
        return False
    if seen.expected_end == "used-up":
        return last.state == "TIMEOUT"
    return seen.plan.kind in ("limit", "scancel") and last.state == "FAILED"


def _end(seen: Evidence, verdict: Verdict) -> None:
    ran = [record for record in seen.records if record.start_s]
    last = max(ran, key=lambda record: (record.segment, record.job_id), default=None)
    used_up = not seen.marker and _is_used_up(seen, last)
    if seen.marker != seen.expected_end and not used_up:
        verdict.untrue.append(
            f"the folder says {seen.marker or 'nothing'}, not {seen.expected_end}"
        )
    expected = "used-up" if used_up else seen.expected_end
    if seen.stored == expected:
        return
    if not seen.stored and _life_s(seen) < UNSEEN_S:
        verdict.known.append(KNOWN_UNSEEN)
    else:
        verdict.untrue.append(f"the daemon's store says {seen.stored or 'nothing'}, not {expected}")


def runaway(records: Iterable[Record], queued: Collection[int]) -> list[int]:
    """Jobs that slurmdbd has as living, and slurmctld has not: one that is killed forgets what it
    had not told yet.
    """
    return [
        record.job_id for record in records if record.state in ALIVE and record.job_id not in queued
    ]


def _table(seen: Evidence, verdict: Verdict) -> None:
    """The daemon's store has each job that ran, and its end."""
    ended = {
        record.job_id: record.state
        for record in seen.records
        if record.start_s and record.state not in ALIVE
    }
    if missing := sorted(ended.keys() - seen.kept.keys()):
        verdict.untrue.append(f"the daemon's store lacks jobs {missing}")
    if wrong := [
        job for job in sorted(ended.keys() & seen.kept.keys()) if seen.kept[job] != ended[job]
    ]:
        told = ", ".join(f"job {job} is {seen.kept[job]}, not {ended[job]}" for job in wrong)
        verdict.untrue.append(f"in the daemon's store {told}")


def _life_s(seen: Evidence) -> int:
    """From the first start to the last end."""
    starts = [record.start_s for record in seen.records if record.start_s]
    ends = [record.end_s for record in seen.records if record.end_s]
    return max(ends) - min(starts) if starts and ends else 0
