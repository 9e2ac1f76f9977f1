"""What is wrong with a log, rule by rule: each is counted and reported, none acts in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.traces.table import COLUMNS, Trace, make_trace

Mask = NDArray[np.bool_]
EXAMPLES = 3
TEXT = [name for name, kind in COLUMNS.items() if kind == "text"]
GRACE_S = 120
"""slurmctld kills jobs over their limit within about a minute, and nodes take a while to clean up.
"""


CLOCK_CHANGES = "clock changes"
"""The rule that finds local times across a clock change."""


@dataclass(frozen=True)
class Rules:
    """What to do where there is a choice."""

    nodes: int | None = None
    """The cluster's size: wider jobs can't have run here. None: don't check."""
    cancelled: Literal["keep", "drop"] = "keep"
    """Jobs cancelled in the queue. They add to the queue but not to the load; their wait is
    censored.
    """
    overruns: Literal["keep", "clip"] = "keep"
    """Jobs that ran longer than their limit (and two minutes' grace)."""
    duplicates: Literal["restarts", "last"] = "restarts"
    """Rows of one job id, as requeues leave them: each its own job ``5.r1``, or only the last."""
    unstarted: Literal["drop", "keep"] = "drop"
    """Jobs still pending at the log's end: nothing is known of how they ran."""


@dataclass(frozen=True)
class CleaningFinding:
    """One rule's outcome."""

    rule: str
    action: str
    """kept, marked, dropped, merged, renamed, clipped, reported"""
    jobs: int
    detail: str = ""
    examples: tuple[str, ...] = ()
    """Ids of the first jobs."""


@dataclass(frozen=True)
class CleaningReport:
    rows_in: int
    rows_out: int
    findings: tuple[CleaningFinding, ...]
    """Every rule, also those that found nothing."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def clean(trace: Trace, rules: Rules | None = None) -> tuple[Trace, CleaningReport]:
    """Applies every rule in the order of docs/traces.md; the report lists them all.

    A job is counted by the first rule that drops it; rules that only mark or report may count it
    again.
    """
    rules = rules or Rules()
    jobs = trace.jobs
    findings: list[CleaningFinding] = []
    for rule in _RULES:
        jobs, found = rule(jobs, rules)
        findings.append(found)
    cleaned = make_trace(jobs.reset_index(drop=True), trace.source)
    return cleaned, CleaningReport(len(trace), len(cleaned), tuple(findings))


def _finding(rule: str, action: str, jobs: Any, mask: Mask, detail: str = "") -> CleaningFinding:
    examples = tuple(str(job) for job in jobs["job_id"].to_numpy()[mask][:EXAMPLES])
    return CleaningFinding(rule, action, int(mask.sum()), detail if mask.any() else "", examples)


def _drop(rule: str, jobs: Any, mask: Mask, detail: str = "") -> tuple[Any, CleaningFinding]:
    return jobs[~mask] if mask.any() else jobs, _finding(rule, "dropped", jobs, mask, detail)


def _known(jobs: Any, name: str) -> NDArray[np.float64]:
    if name not in jobs.columns:
        return np.full(len(jobs), np.nan)
    values: NDArray[np.float64] = jobs[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _seen_again(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    """One run in several rows, as dumps of overlapping times have it: pending, running, ended. The
    last state counts.

    Rows of one id and one submission are one run if they have the same start, or none. A row with
    neither a start nor an end (pending) may be of any run of that submission. A row with an end
    only was cancelled before it started.
    """
    mask = np.zeros(len(jobs), bool)
    rows = np.flatnonzero(jobs.duplicated(["job_id", "submit"], keep=False).to_numpy(bool))
    if len(rows):
        some = pd.DataFrame({"row": rows, "job_id": jobs["job_id"].to_numpy()[rows]})
        for name in ("submit", "start", "end"):
            some[name] = _known(jobs, name)[rows]
        some["group"] = some.groupby(["job_id", "submit"], sort=False).ngroup()
        pending = some["start"].isna() & some["end"].isna()
        begun = jobs["state"].to_numpy()[rows] != "PENDING"
        some = some.assign(pending=pending, begun=begun, over=some["end"].notna())
        # Where a start is missing the end tells runs apart.
        some["run"] = some["start"].where(some["start"].notna(), -1.0 - some["end"].fillna(0))
        others = ~some["pending"]
        some.loc[pending & others.groupby(some["group"]).transform("any"), "run"] = np.nan
        some = some.sort_values(["over", "end", "begun", "row"], kind="stable", na_position="first")
        last = ~some.duplicated(["group", "run"], keep="last") & some["run"].notna()
        mask[some["row"].to_numpy()[~last.to_numpy(bool)]] = True
    text = "rows of one run at several times (the same Submit and Start); the last state counts"
    found = _finding("runs seen again", "merged", jobs, mask, text)
    return jobs[~mask] if mask.any() else jobs, found


def _steps(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    """Of jobs that have a row of their own, which says all that the steps say."""
    step = _is_step(jobs)
    own = jobs["job_id"][~step]
    ids = pd.concat(
        [own, own.str.replace(r"\+\d+$", "", regex=True)]
    )  # step 5.0 of the heterogeneous job 5+0, 5+1
    mask = step & _job_of(jobs).isin(ids).to_numpy(bool)
    return _drop("steps", jobs, mask, "rows of job steps (5.batch, 5.0): sacct -X leaves them out")


def _lone_steps(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    """Steps of a job without a row of its own: one job, from their first start to their last end.

    They share the job's nodes, so it had those of the widest step; a step without an end is still
    running.
    """
    mask = _is_step(jobs)
    text = "steps (5.batch, 5.0) of jobs without a row of their own, merged into one job each"
    found = _finding("steps without a job", "merged", jobs, mask, text)
    if not mask.any():
        return jobs, found
    parts = (
        jobs[mask]
        .assign(job_id=_job_of(jobs[mask]))
        .sort_values("end", kind="stable", na_position="last")
    )
    how: dict[str, Any] = dict.fromkeys(parts.columns, "max")
    how |= dict.fromkeys(("submit", "start", "eligible"), "min")
    how |= {name: _first_text for name in parts.columns if name in TEXT}
    how |= dict.fromkeys(("state", "exit_code"), _last)
    merged = _merged(parts, how)
    merged["end"] = merged["end"].mask(merged["job_id"].isin(parts["job_id"][parts["end"].isna()]))
    return _with(jobs[~mask], merged), found


def _is_step(jobs: Any) -> Mask:
    mask: Mask = jobs["job_id"].str.contains(r"\.(?!r\d+$)").to_numpy(bool)
    return mask


def _job_of(jobs: Any) -> Any:
    return jobs["job_id"].str.replace(r"\.(?!r\d+$).*", "", regex=True)


def _groups(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    """Parts of a heterogeneous job (5+0, 5+1) start and end together: one job with the sum of what
    they have.
    """
    mask = jobs["job_id"].str.fullmatch(r"\d+\+\d+").to_numpy(bool)
    found = _finding(
        "job groups", "merged", jobs, mask, "parts of heterogeneous jobs, merged into one job each"
    )
    if not mask.any():
        return jobs, found
    parts = jobs[mask].assign(job_id=jobs["job_id"][mask].str.split("+").str[0])
    how = dict.fromkeys(parts.columns, "first") | dict.fromkeys(
        ("nodes", "gpus", "cpus", "mem_mib"), _sum
    )
    return _with(jobs[~mask], _merged(parts, how | {"end": "max"})), found


def _merged(parts: Any, how: dict[str, Any]) -> Any:
    """One row for each job id; `how`: what becomes of each column."""
    chosen = {name: how[name] for name in parts.columns if name != "job_id"}
    return parts.groupby("job_id", sort=False, as_index=False).agg(chosen)[parts.columns]


def _with(jobs: Any, merged: Any) -> Any:
    return pd.concat([jobs, merged], ignore_index=True).sort_values("submit", kind="stable")


def _sum(values: Any) -> Any:
    """Not known if that of one part isn't."""
    return values.sum(skipna=False)


def _first_text(values: Any) -> str:
    return next((text for text in values if text), "")


def _last(values: Any) -> Any:
    return values.iloc[-1]


def _duplicates(jobs: Any, rules: Rules) -> tuple[Any, CleaningFinding]:
    ordered = jobs.sort_values(["submit", "start"], kind="stable", na_position="last")
    repeated = ordered["job_id"].duplicated(keep="last").to_numpy(bool)
    if not repeated.any():
        return jobs, _finding("duplicate ids", "renamed", jobs, np.zeros(len(jobs), bool))
    if rules.duplicates == "last":
        text = "earlier runs of requeued jobs; the last run is kept"
        return _drop("duplicate ids", ordered, repeated, text)
    kept = ordered.copy()
    earlier = kept["job_id"].duplicated(keep="last").to_numpy(bool)
    count = kept.groupby("job_id", sort=False).cumcount() + 1
    kept.loc[earlier, "job_id"] = _free_names(kept["job_id"], earlier, count)
    kept = _resubmitted(kept, earlier)
    text = "earlier runs of requeued jobs, now jobs of their own (5.r1)"
    return kept, _finding("duplicate ids", "renamed", ordered, repeated, text)


def _free_names(ids: Any, earlier: Mask, count: Any) -> list[str]:
    """``5.r1`` for the first run of 5, and so on; a name that a job has already is passed over."""
    taken, names = set(ids), []
    for job_id, number in zip(ids[earlier], count[earlier], strict=True):
        while (name := f"{job_id}.r{number}") in taken:
            number += 1
        taken.add(name)
        names.append(name)
    return names


def _resubmitted(jobs: Any, earlier: Mask) -> Any:
    """A run that the log dates from the first submission is submitted when the run before it ended."""
    plain = jobs["job_id"].str.replace(r"\.r\d+$", "", regex=True)
    before = jobs["end"].groupby(plain).shift()
    again = plain.duplicated(keep="first").to_numpy(bool) | earlier
    later = (
        again
        & before.notna().to_numpy(bool)
        & (before.fillna(0).to_numpy(np.int64) > jobs["submit"].to_numpy())
    )
    later &= ~(jobs["start"].notna() & (jobs["start"] < before)).fillna(False).to_numpy(bool)
    jobs.loc[later, "submit"] = before[later].astype(np.int64)
    return jobs


def _zero_nodes(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    return _drop("zero nodes", jobs, jobs["nodes"].to_numpy() == 0, "no job runs on no nodes")


def _too_wide(jobs: Any, rules: Rules) -> tuple[Any, CleaningFinding]:
    if rules.nodes is None:
        none = np.zeros(len(jobs), bool)
        return jobs, CleaningFinding(
            "wider than the cluster", "not checked", int(none.sum()), "give the cluster's nodes"
        )
    mask = jobs["nodes"].to_numpy() > rules.nodes
    return _drop("wider than the cluster", jobs, mask, f"more than {rules.nodes} nodes")


def _cancelled(jobs: Any, rules: Rules) -> tuple[Any, CleaningFinding]:
    start, end = _known(jobs, "start"), _known(jobs, "end")
    mask = (
        jobs["state"].str.startswith("CANCELLED").to_numpy(bool)
        & ~np.isnan(end)
        & (np.isnan(start) | (start == end))
    )
    rule, text = (
        "cancelled in the queue",
        "never ran; start = end = the moment of cancellation, so the wait is censored",
    )
    if rules.cancelled == "drop":
        return _drop(rule, jobs, mask, text)
    if mask.any():
        jobs = jobs.copy()
        jobs.loc[mask, "start"] = jobs["end"][mask]
        patience = np.where(mask, np.maximum(end - jobs["submit"].to_numpy(), 0), np.nan)
        old = _known(jobs, "cancel_after_s")
        jobs["cancel_after_s"] = np.where(np.isnan(old), patience, old)
    return jobs, _finding(rule, "marked", jobs, mask, text + "; cancel_after_s says after how long")


def _unstarted(jobs: Any, rules: Rules) -> tuple[Any, CleaningFinding]:
    mask = np.isnan(_known(jobs, "start")) & np.isnan(_known(jobs, "runtime_s"))
    if rules.unstarted == "keep":
        return jobs, _finding("never started", "kept", jobs, mask, "pending when the log ends")
    return _drop("never started", jobs, mask, "pending when the log ends")


def _backwards(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    mask = np.nan_to_num(_known(jobs, "end") - _known(jobs, "start")) < 0
    return _drop(
        "end before start", jobs, mask, "wrong clocks, or local times across a clock change"
    )


def _too_early(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    mask = np.nan_to_num(_known(jobs, "start") - jobs["submit"].to_numpy()) < 0
    return _drop(
        "start before submit", jobs, mask, "requeued after a node failure, or wrong clocks"
    )


def _unfinished(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    mask = (
        ~np.isnan(_known(jobs, "start"))
        & np.isnan(_known(jobs, "end"))
        & np.isnan(_known(jobs, "runtime_s"))
    )
    return jobs, _finding("still running", "kept", jobs, mask, "their run time is unknown")


def _overruns(jobs: Any, rules: Rules) -> tuple[Any, CleaningFinding]:
    over = _known(jobs, "end") - _known(jobs, "start") - _known(jobs, "timelimit_s")
    mask = np.nan_to_num(over, nan=-1.0) > GRACE_S
    text = (
        f"over the limit by more than {GRACE_S} s, at most {np.nanmax(over[mask]) / 3600:.1f} h"
        if mask.any()
        else ""
    )
    if rules.overruns == "keep" or not mask.any():
        return jobs, _finding(
            "overruns", "kept" if rules.overruns == "keep" else "clipped", jobs, mask, text
        )
    jobs = jobs.copy()
    jobs.loc[mask, "end"] = (jobs["start"] + jobs["timelimit_s"])[mask]
    return jobs, _finding(
        "overruns", "clipped", jobs, mask, text + "; their end is now start + limit"
    )


def _no_limit(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    limit = _known(jobs, "timelimit_s")
    if (limit == 0).any():
        jobs = jobs.assign(timelimit_s=jobs["timelimit_s"].mask(limit == 0))
    return jobs, _finding(
        "no time limit", "kept", jobs, ~(limit > 0), "UNLIMITED, unknown or 0, written as nothing"
    )


def _clock_changes(jobs: Any, _rules: Rules) -> tuple[Any, CleaningFinding]:
    """Local times across a clock change: jobs that overrun by exactly an hour, all running at one
    instant.
    """
    start, end, limit = (_known(jobs, name) for name in ("start", "end", "timelimit_s"))
    over = end - start - limit
    suspect = np.nan_to_num(over, nan=-1.0) - 3600
    suspects = (suspect >= 0) & (suspect <= GRACE_S)
    instant, shared = _common_instant(start[suspects], end[suspects])
    if shared < 3 or shared < 0.6 * suspects.sum():
        return jobs, CleaningFinding(CLOCK_CHANGES, "reported", 0)
    mask = suspects & (start <= instant) & (end >= instant)
    when = datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M")
    text = (
        f"overrun by exactly 1 h, all running about {when}: local times? Import again with"
        " --timezone"
    )
    return jobs, _finding(CLOCK_CHANGES, "reported", jobs, mask, text)


def _common_instant(start: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[float, int]:
    """The instant inside most of the intervals, and how many."""
    if not len(start):
        return 0.0, 0
    times = np.concatenate([start, end])
    order = np.lexsort((np.repeat([0, 1], len(start)), times))
    depth = np.cumsum(np.where(order < len(start), 1, -1))
    best = int(np.argmax(depth))
    return float(times[order[best]]), int(depth[best])


_RULES: tuple[Callable[[Any, Rules], tuple[Any, CleaningFinding]], ...] = (
    _seen_again,
    _steps,
    _lone_steps,
    _groups,
    _duplicates,
    _zero_nodes,
    _too_wide,
    _cancelled,
    _unstarted,
    _backwards,
    _too_early,
    _unfinished,
    _overruns,
    _no_limit,
    _clock_changes,
)
