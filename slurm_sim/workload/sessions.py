"""Users' sessions and batches in a trace: who submits what together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace
from slurm_sim.traces.users import user_codes

Ints = NDArray[np.int64]
SESSION_GAP_S = 1200
"""A user who submits nothing for this long has left."""


@dataclass(frozen=True)
class Sessions:
    """All arrays in the order of users, then time; ``order``: the trace's rows in it. Shape (jobs,)
    unless said.
    """

    order: Ints
    user: Ints
    """From 0, without gaps; all 0 if the trace has no users."""
    gap_s: NDArray[np.float64]
    """To the job before of the same session; NaN for its first."""
    session: Ints
    batch: Ints
    """Numbers that grow along the order."""
    has_users: bool

    @property
    def batch_first(self) -> Ints:
        """Places in the order at which batches begin, shape (batches,)."""
        return np.flatnonzero(np.diff(self.batch, prepend=-1))

    @property
    def session_first(self) -> Ints:
        """Places in the order at which sessions begin, shape (sessions,)."""
        return np.flatnonzero(np.diff(self.session, prepend=-1))


def find_sessions(trace: Trace) -> Sessions:
    """A session ends with a gap; within it a batch ends when the nodes or the limit change."""
    codes = user_codes(trace)
    has_users = bool((codes >= 0).any()) and len(np.unique(codes)) > 1
    user = (
        np.unique(codes, return_inverse=True)[1]
        if has_users
        else np.zeros(len(trace), dtype=np.int64)
    )
    order = np.lexsort((trace.column("submit"), user))
    gap = np.diff(trace.column("submit")[order], prepend=np.nan)
    new_session = np.diff(user[order], prepend=-1).astype(bool) | ~(gap <= SESSION_GAP_S)
    shape_changes = np.zeros(len(trace), dtype=np.bool_)
    for name in ("nodes", "timelimit_s"):
        values = np.nan_to_num(trace.column(name)[order])
        shape_changes |= np.diff(values, prepend=-1) != 0
    return Sessions(
        order=order,
        user=user[order],
        gap_s=np.where(new_session, np.nan, gap),
        session=np.cumsum(new_session) - 1,
        batch=np.cumsum(new_session | shape_changes) - 1,
        has_users=has_users,
    )
