"""Whether agents are better than `-p A,B`, Slurm's own submission to all partitions, on streams that they
have not seen. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.figures.resample import ratio_interval
from mirage.routing.agent import Agent
from mirage.routing.arrivals import Streams, by_window, draw_streams, read_history
from mirage.routing.flavors import PartitionKind
from mirage.routing.model import read_model, record_proof
from mirage.routing.stream import StreamRule, agents_rule, everywhere, route_stream

PROOFS = 40
"""Streams of a proof."""
FEWEST = 8
"""Windows that it needs."""


class Proof(NamedTuple):
    """Mean completion time by the agents to that by `-p A,B`: ratio and 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether jobs are over sooner by the agents, beyond chance."""
        return self.high < 1

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def prove(kinds: Sequence[PartitionKind], agents: Sequence[Agent], streams: Streams) -> Proof:
    """The agents against `-p A,B` for every job. Of fewer than `FEWEST` windows nothing holds."""
    mine, theirs = (mean_s(kinds, rule, streams) for rule in (agents_rule(agents), everywhere))
    ratio = float(mine.sum() / theirs.sum())
    if len(mine) < FEWEST:
        return Proof(ratio, 0.0, np.inf)
    return Proof(ratio, *ratio_interval(mine, theirs))


def mean_s(
    kinds: Sequence[PartitionKind], rule: StreamRule, streams: Streams
) -> NDArray[np.float64]:
    """(windows,): mean completion time."""
    means = [float(np.mean(route_stream(kinds, jobs, rule).completion_s)) for jobs in streams.jobs]
    return by_window(means, streams.windows)


def prove_on_history(folder: Path, trace: Path) -> Proof:
    """Proves a model's agents on the last part of a site's own history, which agents that learned
    from it have not seen, and puts the proof into the model folder.

    Raises InputError for a bad trace, for agents that need no proof, and for agents by which jobs
    are not over sooner there. Those lose an earlier proof.
    """
    model = read_model(folder)
    if not model.needs_proof:
        raise InputError(f"{folder}: needs no proof; only agents of `--lesson streams` do.")
    agents, kinds = model.agents, [agent.kind for agent in model.agents]
    history = read_history(trace).part(test=True)
    proof = prove(kinds, agents, draw_streams(kinds, history, PROOFS, np.random.default_rng(1)))
    words = f"mean completion {proof} of that by -p A,B on the last part of {trace.name}"
    record_proof(folder, words if proof.holds else "")
    if not proof.holds:
        raise InputError(
            f"{trace}: jobs are not over sooner by these agents than by -p A,B: mean completion"
            f" {proof} of that. Publish without a model (docs/routing.md)."
        )
    return proof
