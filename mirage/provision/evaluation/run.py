"""`evaluate`: every method on the same episodes, and the three files of the result."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import mirage
from mirage.domain import Penalties
from mirage.errors import InputError
from mirage.figures.provenance import file_record, provenance, sha256
from mirage.provision.evaluation.comparison import (
    DEFAULT_PENALTIES,
    Comparison,
    MethodInfo,
    Setup,
    compare,
)
from mirage.provision.evaluation.kept import PAIRS, Place, Tried
from mirage.provision.evaluation.methods import MethodRequest, requested_methods
from mirage.provision.evaluation.metrics import ratio_text
from mirage.provision.evaluation.report.page import page
from mirage.provision.evaluation.results import results, write
from mirage.provision.evaluation.sampling import Grid
from mirage.provision.evaluation.trials import Work, run_trials
from mirage.provision.kept import TrialFile
from mirage.provision.learn.background import WarmUp
from mirage.provision.learn.inputs import Inputs, read_inputs
from mirage.provision.learn.joblog import JobLog
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.provision.learn.times import iso

KEPT = "episodes.jsonl"
"""Finished episodes, for the next call."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """Which methods to compare, and on which episodes. Times are Unix seconds."""

    trace: Path
    """The job history (docs/traces.md)."""
    cluster: Path
    """Its cluster: .toml, otherwise a slurm.conf (docs/clusters.md)."""
    methods: tuple[str, ...]
    """Rules, trained methods, or LABEL=FOLDER (`methods.requested_methods`)."""
    out: Path
    """Folder of `results.json`, `episodes.csv` and `report.html`."""
    start_s: int
    """Submission of the first predecessor."""
    episodes: int
    """Submission times; each has a pair of every size."""
    every_s: int = 4 * 3600
    """Between two submission times."""
    nodes: tuple[int, ...] = (1,)
    """Sizes of the pairs: nodes of both jobs."""
    limit_s: int = 48 * 3600
    """Time limit of both jobs, which run until it."""
    partition: str | None = None
    """Of the pairs; None: the one with most of the history's node-hours."""
    warm_up: WarmUp = WarmUp.TRACE
    """The queue in which a simulation begins."""
    models: Path | None = None
    """Folder of model folders; None: beside `cluster`, or models/CLUSTER."""
    penalties: tuple[Penalties, ...] = DEFAULT_PENALTIES
    """Weights of interruption and overlap."""
    seed: int = 1
    """Of the bootstrap of the intervals."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes. The result does not depend on it."""

    @property
    def grid(self) -> Grid:
        """The episodes; `partition` must be known."""
        return Grid(
            start_s=self.start_s,
            every_s=self.every_s,
            episodes=self.episodes,
            nodes=self.nodes,
            limit_s=self.limit_s,
            warm_up=self.warm_up,
            partition=self.partition,
        )

    @property
    def setup(self) -> Setup:
        """What the results say of the episodes."""
        return Setup(
            start_s=self.start_s,
            every_s=self.every_s,
            episodes=self.episodes,
            nodes=self.nodes,
            limit_s=self.limit_s,
            warm_up=self.warm_up.value,
            penalties=self.penalties,
            seed=self.seed,
        )

    def command(self) -> list[str]:
        """The command line that gives the same figures, with every option that matters."""
        start = datetime.fromtimestamp(self.start_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        words = {
            "--trace": self.trace,
            "--cluster": self.cluster,
            "--methods": ",".join(self.methods),
            "--models": self.models,
            "--start": start,
            "--every": f"{self.every_s}s",
            "--episodes": self.episodes,
            "--nodes": ",".join(map(str, self.nodes)),
            "--limit": f"{self.limit_s}s",
            "--partition": self.partition,
            "--warm-up": self.warm_up.value,
            "--penalties": ",".join(map(ratio_text, self.penalties)),
            "--seed": self.seed,
            "--out": self.out,
        }
        given = [item for item in words.items() if item[1] is not None]
        return ["mirage", "evaluate", "pairs", *(str(part) for item in given for part in item)]


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    comparison: Comparison
    """Every figure."""
    record: dict[str, Any]
    """As in `results.json`."""


def evaluate(plan: EvaluationPlan, reporter: Reporter = SILENT) -> EvaluationResult:
    """Writes the three files into the plan's folder. Raises InputError, MirageError."""
    started_s = time.time()
    if plan.out.exists() and not plan.out.is_dir():
        raise InputError(f"--out {plan.out}: is a file; give a folder.")
    inputs = read_inputs(plan.trace, plan.cluster, plan.partition, reporter)
    _check_start(plan.start_s, inputs.background.log)
    methods = _methods(plan, inputs, reporter)
    resolved = replace(plan, partition=inputs.partition)
    setup = resolved.setup
    work = Work(inputs.background, tuple(methods), setup.all_penalties)
    infos = _infos(methods, resolved, inputs)
    kept = _kept(resolved, infos)
    reporter.keeps(f"{kept.path} has the finished episodes; the same call goes on from there")
    progress = partial(reporter.episodes, "episodes")
    trials = run_trials(work, resolved.grid, plan.workers, progress, kept)
    comparison = compare(setup, infos, trials.trials, trials.dropped)
    origin = _origin(resolved, inputs, infos, started_s)
    record = results(comparison, origin)
    write(plan.out, comparison, record, page(comparison, origin))
    return EvaluationResult(comparison=comparison, record=record)


def _kept(plan: EvaluationPlan, infos: list[MethodInfo]) -> TrialFile[Place, Tried]:
    """Finished episodes of the same inputs, of an earlier call into the same folder."""
    return TrialFile(
        plan.out / KEPT,
        {
            "version": mirage.__version__,
            "trace": sha256(plan.trace),
            "cluster": sha256(plan.cluster),
            "methods": [(info.name, info.about, info.recipe_sha256) for info in infos],
            "penalties": [ratio_text(each) for each in plan.setup.all_penalties],
            "partition": plan.partition,
            "limit_s": plan.limit_s,
            "warm_up": plan.warm_up.value,
        },
        PAIRS,
    )


def _origin(
    plan: EvaluationPlan, inputs: Inputs, infos: list[MethodInfo], started_s: float
) -> dict[str, Any]:
    """Where the figures come from."""
    origin = provenance(
        plan.command(),
        inputs={
            "trace": file_record(plan.trace, jobs=len(inputs.background.log)),
            "cluster": file_record(plan.cluster),
        },
        split={
            "trained_s": {each.name: each.train_s for each in infos if each.train_s},
            "evaluated_s": (plan.grid.start_s, plan.grid.end_s),
        },
        seed=plan.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
    return origin | {"notes": inputs.notes}


def _check_start(start_s: int, log: JobLog) -> None:
    if start_s > log.last_s:
        raise InputError(
            f"--start {iso(start_s)}: {log.source} ends before, at {iso(log.last_s)}; choose an"
            " earlier time."
        )


def _methods(plan: EvaluationPlan, inputs: Inputs, reporter: Reporter) -> list[MethodRequest]:
    """Every model is read once before hours of work. Raises InputError."""
    models = plan.models or models_beside(plan.cluster, inputs.background.cluster.name)
    methods = requested_methods(plan.methods, models)
    for method in methods:
        method.chooser()
        if method.label == "quantile" and method.folder is None:
            reporter.caution(
                "note: quantile: there is no model of it, so it goes by recent waits"
                " (recent-quantile)"
            )
    return methods


def models_beside(cluster: Path, name: str) -> Path | None:
    """Beside the cluster's description, as in models/CLUSTER/, or there."""
    folders = (cluster.parent, Path("models") / name)
    return next((folder for folder in folders if any(folder.glob("*/recipe.toml"))), None)


def _infos(methods: list[MethodRequest], plan: EvaluationPlan, inputs: Inputs) -> list[MethodInfo]:
    grid, trace = plan.grid, sha256(plan.trace)
    evaluated_s = (grid.start_s, grid.end_s + 2 * grid.limit_s)
    cluster = inputs.background.cluster
    return [method.described(cluster, grid.partition, trace, evaluated_s) for method in methods]
