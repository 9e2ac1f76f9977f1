"""The files of an evaluation (docs/evaluation.md): `results.json`, `episodes.csv`, and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mirage.domain import Penalties
from mirage.figures.output import write_texts
from mirage.figures.resample import LEVEL
from mirage.provision.evaluation.comparison import Comparison
from mirage.provision.evaluation.metrics import EDGES_H, ratio_text
from mirage.provision.evaluation.protocol import ORACLE, EpisodeTrial
from slurm_sim.seconds import HOUR_S

SCHEMA = 1
"""Of results.json and episodes.csv: raised when a column or a key changes its meaning or goes."""
RESULTS, EPISODES, PAGE = "results.json", "episodes.csv", "report.html"

COLUMNS = (
    "nodes",
    "limit_s",
    "begin",
    "load",
    "predecessor_start",
    "predecessor_end",
    "reactive_wait_s",
    "method",
    "penalty_interruption",
    "penalty_overlap",
    "decision_points",
    "choice",
    "release",
    "successor_start",
    "interruption_s",
    "overlap_s",
    "penalty_h",
    "oracle_penalty_h",
    "node_hours_wasted",
    "wait_s",
    "predicted_p10_s",
    "predicted_p50_s",
    "predicted_p90_s",
)

Json = dict[str, Any]


def results(comparison: Comparison, provenance: Mapping[str, Any]) -> Json:
    """What stands in results.json. Equal but for `provenance` wherever input and seed are."""
    setup = comparison.setup
    return {
        "schema": SCHEMA,
        "provenance": dict(provenance),
        "setup": {
            "start": setup.start_s,
            "every_s": setup.every_s,
            "episodes": setup.episodes,
            "nodes": list(setup.nodes),
            "limit_s": setup.limit_s,
            "warm_up": setup.warm_up,
            "penalties": [ratio_text(each) for each in setup.penalties],
            "curve": [ratio_text(each) for each in setup.curve],
            "seed": setup.seed,
        },
        "bootstrap": {
            "level": LEVEL,
            "resamples": setup.resamples,
            "block_s": {str(group.nodes): group.blocks.length_s for group in comparison.groups},
        },
        "headline": comparison.headline,
        "outcome_edges_h": sorted(EDGES_H, reverse=True),
        "dropped": {str(nodes): dict(reasons) for nodes, reasons in comparison.dropped.items()},
        "methods": _records(comparison.methods),
        "situations": _records(comparison.situations),
        "summary": _records(comparison.summary),
        "differences": _records(comparison.differences),
        "tradeoff": _records(comparison.tradeoff),
        "coverage": _records(comparison.coverage),
        "bins": _records(comparison.bins),
    }


def _records(rows: tuple[Any, ...]) -> list[Json]:
    return [asdict(row) for row in rows]


def rows(comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    """The rows of episodes.csv: an episode, a pair of penalties, a method."""
    for group in comparison.groups:
        for trial in group.trials:
            for penalties in comparison.setup.penalties:
                for method in comparison.methods:
                    yield _row(trial, method.name, penalties)


def _row(trial: EpisodeTrial, method: str, penalties: Penalties) -> tuple[Any, ...]:
    episode, point = trial.episode, trial.choices[method, penalties]
    points = len(episode)
    costs_h = episode.costs_s(penalties) / HOUR_S
    released = point < points
    wait_quantiles_s = trial.wait_quantiles_s.get(method)
    return (
        trial.nodes,
        episode.pair.successor.time_limit_s,
        episode.begin_s,
        episode.load.value,
        episode.predecessor_start_s,
        episode.predecessor_end_s,
        episode.reactive_wait_s,
        method,
        f"{penalties.interruption:g}",
        f"{penalties.overlap:g}",
        points,
        point,
        int(episode.decision_s[point]) if released else "",
        int(episode.successor_start_s[point]),
        int(episode.interruption_s[point]),
        int(episode.overlap_s[point]),
        f"{costs_h[point]:.4f}",
        f"{costs_h[trial.choices[ORACLE, penalties]]:.4f}",
        f"{episode.overlap_s[point] * episode.pair.predecessor.nodes / HOUR_S:.4f}",
        int(episode.waits_s[point]),
        *(
            _quantile_cells(wait_quantiles_s[point])
            if released and wait_quantiles_s is not None
            else ("", "", "")
        ),
    )


def _quantile_cells(quantiles_s: np.ndarray[Any, np.dtype[np.float64]]) -> list[str]:
    return ["" if np.isnan(value) else f"{value:.0f}" for value in quantiles_s]


def _csv(comparison: Comparison) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(comparison))
    return text.getvalue()


def write(folder: Path, comparison: Comparison, record: Json, page: str) -> None:
    """Writes the three files into a folder, which is made if it is missing; other files in it stay.

    They are put in whole, in the order of their names, so `results.json` is last: where it is new,
    all are. Raises MirageError.
    """
    texts = {
        PAGE: page,
        EPISODES: _csv(comparison),
        RESULTS: json.dumps(record, indent=1, allow_nan=False) + "\n",
    }
    write_texts(folder, texts)
