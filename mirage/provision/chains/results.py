"""The files of an evaluation of chains (docs/evaluation.md): `results.json`, `chains.csv`, page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mirage.figures.output import write_texts
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation, headline
from mirage.provision.chains.trial import ChainTrial

SCHEMA = 1
"""Raised when a key or a column changes its meaning or goes."""
RESULTS, CHAINS, PAGE = "results.json", "chains.csv", "report.html"
COLUMNS = (
    "begin",
    "nodes",
    "mode",
    "method",
    "chains",
    "most_ahead",
    "wall_s",
    "interrupted_s",
    "longest_gap_s",
    "held_twice_s",
    "handovers",
    "ran_s",
    "goodput",
)


def record(plan: ChainPlan, found: ChainsEvaluation) -> dict[str, Any]:
    """What stands in results.json. Equal but for `provenance` wherever input and seed are."""
    return {
        "schema": SCHEMA,
        "kind": "chains",
        "provenance": found.origin,
        "setup": {
            "start": plan.start_s,
            "begins": found.begins,
            "begins_asked": plan.begins,
            "every_s": plan.every_s,
            "lasts_s": plan.lasts_s,
            "nodes": list(found.nodes),
            "limit_s": plan.limit_s,
            "modes": [mode.value for mode in plan.modes],
            "seed": plan.seed,
        },
        "headline": headline(found.methods),
        "methods": [
            {
                "name": method.name,
                "about": method.about,
                "folder": str(method.request.folder)
                if method.request and method.request.folder
                else None,
            }
            for method in found.methods
        ],
        "summary": [asdict(row) for row in found.figures.summary],
        "others_wait": [asdict(row) for row in found.figures.others_wait],
    }


def write(folder: Path, found: ChainsEvaluation, record: dict[str, Any], page: str) -> None:
    """All three, in the order of their names. Raises MirageError."""
    texts = {
        CHAINS: _csv(found.trials),
        PAGE: page,
        RESULTS: json.dumps(record, indent=1, allow_nan=False) + "\n",
    }
    write_texts(folder, texts)


def _csv(trials: Iterable[ChainTrial]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for trial in sorted(trials, key=_place):
        chains, progress = trial.chains, trial.progress
        writer.writerow(
            (
                chains.begin_s,
                chains.nodes,
                chains.mode.value,
                chains.method,
                chains.count,
                chains.most_ahead,
                progress.wall_s,
                progress.interrupted_s,
                progress.longest_gap_s,
                progress.held_twice_s,
                progress.handovers,
                trial.ran_s,
                f"{progress.goodput:.5f}",
            )
        )
    return text.getvalue()


def _place(trial: ChainTrial) -> tuple[Any, ...]:
    chains = trial.chains
    return (
        chains.begin_s,
        chains.is_for_others,
        chains.nodes,
        chains.mode.value,
        chains.count,
        chains.method,
        chains.most_ahead,
    )
