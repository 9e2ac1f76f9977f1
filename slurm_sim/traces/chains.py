"""Dependency chains that a log doesn't tell: a job that was queued long ago starts as an older one
of its user ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace
from slurm_sim.traces.usage import Steps, busy_nodes
from slurm_sim.traces.users import at_limit, user_codes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WINDOW_S = 300
"""A dependency is noticed within a scheduling cycle or two."""
LONG_BEFORE_S = 600
"""The successor was submitted at least this long before the predecessor's end."""
CANDIDATES = 4
"""Ends of the same user that are looked at, latest first."""
IDLE_SHARE = 0.5
MIN_TRUST = 0.7
"""Below this share of links beyond chance, none is used."""


@dataclass(frozen=True)
class Chains:
    """Links: ``predecessor[job]`` is a row number, -1: none. All arrays have the shape (jobs,)."""

    predecessor: Ints
    idle: NDArray[np.bool_]
    """Enough nodes were idle in the ten minutes before the predecessor's end: the wait wasn't for
    nodes.
    """
    same_shape: NDArray[np.bool_]
    """Same nodes and limit as the predecessor."""
    at_limit: NDArray[np.bool_]
    """The user was at the limit of running jobs, which explains the hand-over as well; such pairs
    are no links.
    """
    handovers: int
    """Pairs that met the time rule, before the evidence was asked for."""
    by_chance: int
    """Links found the same way in the window from 600 to 300 s before the start: about as many are
    no links.
    """

    @property
    def trust(self) -> float:
        """The share of links that are more than chance: 1 - by_chance / links."""
        return max(0.0, 1 - self.by_chance / self.links) if self.links else 0.0

    @property
    def links(self) -> int:
        return int((self.predecessor >= 0).sum())

    def lengths(self) -> Ints:
        """Jobs a chain, longest first."""
        root = np.arange(len(self.predecessor))
        for job in np.flatnonzero(
            self.predecessor >= 0
        ):  # rows are in order of submission, predecessors come first
            root[job] = root[self.predecessor[job]]
        sizes = np.bincount(root)
        return np.sort(sizes[sizes > 1])[::-1]


def infer_chains(trace: Trace, nodes: Steps | None = None, limit: int | None = None) -> Chains:
    """Pairs by time, then by evidence: idle nodes, or a run of three or more jobs of one shape,
    never at the limit.

    ``nodes``: the cluster's size over time; ``limit``: the limit per user. Limits: needs users; a
    successor that had to queue for nodes after its predecessor's end is not seen, nor one that
    started after 300 s.
    """
    codes = user_codes(trace)
    if (codes < 0).all() or np.isnan(trace.column("end")).all():
        none = np.zeros(len(trace), dtype=np.bool_)
        return Chains(
            predecessor=np.full(len(trace), -1),
            idle=none,
            same_shape=none,
            at_limit=none,
            handovers=0,
            by_chance=0,
        )
    found = _links(trace, codes, 0, nodes, limit)
    chance = _links(trace, codes, WINDOW_S, nodes, limit)
    return Chains(*found, by_chance=int((chance[0] >= 0).sum()))


def _links(
    trace: Trace, codes: Ints, shift_s: int, nodes: Steps | None, limit: int | None
) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_], int]:
    """Predecessors, idle, same shape, at limit, and how many pairs there were before the evidence
    was asked for.
    """
    pairs = _one_to_one(trace, _pairs(trace, codes, shift_s))
    has = pairs >= 0
    same = has & _same(trace, pairs)
    limited = has & (
        at_limit(trace, codes, limit) if limit else np.zeros(len(trace), dtype=np.bool_)
    )
    idle = has & _idle(trace, pairs, nodes)
    kept = has & ~limited & (idle | (same & _in_series(np.where(same, pairs, -1))))
    return np.where(kept, pairs, -1), idle, same, limited, int(has.sum())


def _pairs(trace: Trace, codes: Ints, shift_s: int) -> Ints:
    """The best predecessor of each job by time and shape: row numbers, -1 none."""
    start, end, submit = trace.column("start"), trace.column("end"), trace.column("submit")
    run = np.flatnonzero(trace.ran & (codes >= 0) & ~np.isnan(end))
    base = submit.min()
    span = float(np.nanmax(end) - base) + 2.0 * WINDOW_S + LONG_BEFORE_S
    order = run[np.lexsort((end[run], codes[run]))]
    keys = codes[order] * span + (end[order] - base)
    late = np.flatnonzero(
        trace.ran & (codes >= 0) & (np.nan_to_num(start - submit) >= LONG_BEFORE_S)
    )
    place = (
        np.searchsorted(keys, codes[late] * span + (start[late] - shift_s - base), side="right") - 1
    )
    best = np.full(len(trace), -1)
    score = np.full(len(trace), -1)
    for back in range(CANDIDATES):
        index = place - back
        before = order[np.maximum(index, 0)]
        gap = start[late] - shift_s - end[before]
        good = (index >= 0) & (codes[before] == codes[late]) & (gap >= 0) & (gap <= WINDOW_S)
        good &= (
            (end[before] - submit[late] >= LONG_BEFORE_S)
            & (before < late)
            & (start[before] < start[late])
        )
        shape = _shape_score(trace, before, late)
        better = good & (shape > score[late])
        best[late[better]], score[late[better]] = before[better], shape[better]
    return best


def _shape_score(trace: Trace, left: Ints, right: Ints) -> Ints:
    score = np.zeros(len(left), dtype=np.int64)
    for name in ("nodes", "timelimit_s"):
        score += trace.column(name)[left] == trace.column(name)[right]
    return score


def _one_to_one(trace: Trace, pairs: Ints) -> Ints:
    """Of several successors of one job only the first to start is kept (the others may be a fan:
    afterany of many).
    """
    rows = np.flatnonzero(pairs >= 0)
    order = rows[np.lexsort((rows, trace.column("start")[rows], pairs[rows]))]
    first = (
        np.concatenate([[True], np.diff(pairs[order]) != 0]) if len(order) else np.zeros(0, bool)
    )
    result = np.full(len(pairs), -1)
    result[order[first]] = pairs[order[first]]
    return result


def _same(trace: Trace, pairs: Ints) -> NDArray[np.bool_]:
    return np.asarray(_shape_score(trace, np.maximum(pairs, 0), np.arange(len(pairs))) == 2)


def _idle(trace: Trace, pairs: Ints, nodes: Steps | None) -> NDArray[np.bool_]:
    """At least half of four instants in the predecessor's last ten minutes had nodes enough for the
    successor.
    """
    if nodes is None:
        return np.zeros(len(pairs), dtype=np.bool_)
    busy, end = busy_nodes(trace), trace.column("end")[np.maximum(pairs, 0)]
    enough = [
        nodes.at(end - back) - busy.at(end - back) >= trace.column("nodes")
        for back in (600.0, 400.0, 200.0, 1.0)
    ]
    return np.asarray(np.mean(enough, axis=0) >= IDLE_SHARE)


def _in_series(pairs: Ints) -> NDArray[np.bool_]:
    """Links of a run of at least two links (three jobs)."""
    rows = np.flatnonzero(pairs >= 0)
    linked = np.zeros(len(pairs), dtype=np.bool_)
    linked[rows] = True
    followed = np.zeros(len(pairs), dtype=np.bool_)
    followed[pairs[rows]] = True
    result = np.zeros(len(pairs), dtype=np.bool_)
    result[rows] = linked[pairs[rows]] | followed[rows]
    return result


def dependency_text(trace: Trace, chains: Chains) -> pd.Series:
    """``afterany:ID`` for each link, "" otherwise, as `sbatch --dependency` has it."""
    ids = trace.text("job_id")
    linked = chains.predecessor >= 0
    return pd.Series(
        np.where(linked, "afterany:" + ids[np.maximum(chains.predecessor, 0)].astype(object), "")
    )
