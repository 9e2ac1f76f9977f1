"""Trials of pairs of jobs as JSON, for `mirage.provision.kept`. A pair without an outcome is kept too."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage.domain import Penalties
from mirage.provision.evaluation.protocol import EpisodeTrial
from mirage.provision.kept import Json, TrialForm
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.episode import Episode, PairJob, PairSpec
from mirage.provision.learn.sampler import DropReason
from mirage.provision.learn.shards import TIMES

Tried = EpisodeTrial | DropReason
Place = tuple[int, int]
"""Of an episode in a grid: its begin (Unix seconds) and its nodes."""
_INTS = ("decision_s", "successor_start_s", "forecast_s")


def place(plan: EpisodePlan) -> Place:
    return plan.begin_s, plan.pair.successor.nodes


def _write(case: Place, trial: Tried) -> Json:
    if isinstance(trial, DropReason):
        return {"place": case, "dropped": trial.value}
    episode = trial.episode
    return {
        "place": case,
        "pair": [list(episode.pair.predecessor), list(episode.pair.successor)],
        "times": [getattr(episode, name) for name in TIMES],
        "rows": episode.rows.tolist(),
        **{name: getattr(episode, name).tolist() for name in _INTS},
        "tags": episode.tags,
        "choices": [
            [name, penalties.interruption, penalties.overlap, point]
            for (name, penalties), point in trial.choices.items()
        ],
        "waits": {name: waits.tolist() for name, waits in trial.wait_quantiles_s.items()},
    }


def _read(record: Json) -> tuple[Place, Tried]:
    begin_s, nodes = record["place"]
    if "dropped" in record:
        return (begin_s, nodes), DropReason(record["dropped"])
    first, second = (PairJob(*job) for job in record["pair"])
    return (begin_s, nodes), EpisodeTrial(
        _episode(record, PairSpec(first, second)),
        {
            (name, Penalties(interruption, overlap)): point
            for name, interruption, overlap, point in record["choices"]
        },
        {name: _floats(waits) for name, waits in record["waits"].items()},
    )


def _episode(record: Json, pair: PairSpec) -> Episode:
    ints: dict[str, Any] = {name: np.array(record[name], dtype=np.int64) for name in _INTS}
    times: dict[str, Any] = dict(zip(TIMES, record["times"], strict=True))
    return Episode(
        pair=pair,
        rows=np.array(record["rows"], dtype=np.float32),
        tags=record["tags"],
        **times,
        **ints,
    )


def _floats(values: Any) -> Any:
    return np.array(values, dtype=np.float64)


PAIRS = TrialForm(_write, _read)
