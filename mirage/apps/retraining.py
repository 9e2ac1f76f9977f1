"""A new model from the site's own accounting, which replaces the one at work if it is not worse
(docs/learning.md).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.chain.durations import format_duration
from mirage.config import AdapterConfig
from mirage.errors import InputError, MirageError
from mirage.models.folder import check_folder, read_recipe
from mirage.models.recipe import Recipe
from mirage.models.versions import FAILED, KEPT_OLD, MODEL, Versions
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.slurm.records import write_history
from mirage.slurm.runner import Runner
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:
    from mirage.provision.evaluation import EvaluationPlan
    from mirage.provision.evaluation.verdict import ModelVerdict
    from mirage.provision.learn import TrainingPlan
    from slurm_sim.config import ClusterConfig

SACCT_TIMEOUT_S = 600
"""For a week of records: slurmdbd may be busy, and nobody waits."""
LONGEST_PAIR_S = 48 * HOUR_S
EVERY_S = 4 * HOUR_S
JUDGED = 0.2
"""Of the history: the last part, which `mirage train` does not learn from."""
NEW, CURRENT, UNTRAINED = "new", "current", "recent-quantile"


@dataclass(frozen=True, kw_only=True)
class RetrainPlan:
    """What is learnt, and from what."""

    method: str
    slurm: AdapterConfig
    days: int
    """Of accounting records, until now."""
    cluster: Path | None
    """Its description; None: slurmctld is asked."""
    partition: str | None
    """None: that of the current model, or the one with most node-hours."""
    episodes: int
    judged: int
    """Episodes that compare the two models, at most."""
    nodes: tuple[int, ...]
    """Sizes of the compared pairs."""
    settings: tuple[str, ...]
    at_most_s: float | None
    seed: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class RetrainResult:
    """What became of it."""

    record: dict[str, Any]
    """As in the versions' history."""
    verdict: ModelVerdict
    against: str
    """What the new model was compared with."""


@dataclass(frozen=True)
class _SiteHistory:
    """What the accounting of the site gives."""

    trace: Path
    cluster: Path
    jobs: int
    partition: str
    limit_s: int


def retrain(
    plan: RetrainPlan, versions: Versions, work: Path, reporter: Reporter = SILENT
) -> RetrainResult:
    """``work``: a folder beside the versions, which are locked. A failure is noted with them.

    Raises MirageError, OSError; nothing has changed then.
    """
    try:
        return _retrained(plan, versions, work, reporter)
    except (MirageError, OSError, KeyboardInterrupt) as error:
        with suppress(OSError):
            versions.note(FAILED, {"why": str(error) or "interrupted"})
        raise


def _retrained(
    plan: RetrainPlan, versions: Versions, work: Path, reporter: Reporter
) -> RetrainResult:
    from mirage.provision.evaluation import evaluate
    from mirage.provision.evaluation.run import KEPT
    from mirage.provision.evaluation.verdict import verdict
    from mirage.provision.learn import train

    fresh = work / "version"
    fresh.mkdir()
    current = _current(versions, plan.method, reporter)
    history = _site_history(plan, current, work, fresh, reporter)
    train(_training_plan(plan, history, fresh / MODEL), reporter)
    about = ProvisionAbout.of(read_recipe(fresh / MODEL), fresh / MODEL)
    against = CURRENT if current else UNTRAINED
    link = versions.link if current else None
    comparison = evaluate(_evaluation_plan(plan, history, about, fresh, link), reporter).comparison
    (fresh / KEPT).unlink(missing_ok=True)
    found = verdict(comparison, NEW, against)
    record = {
        "method": plan.method,
        "jobs": history.jobs,
        "learnt_from": about.train_s,
        "judged_on": about.validation_s,
        "against": against,
        "saw_these": any(
            method.saw_these for method in comparison.methods if method.name == CURRENT
        ),
    } | found.as_json()
    if found.takes_over:
        record |= {"action": "replaced", "to": versions.install(fresh, record).name}
    else:
        versions.note(KEPT_OLD, record)
        record |= {"action": "kept"}
    return RetrainResult(record=record, verdict=found, against=against)


def _current(versions: Versions, method: str, reporter: Reporter) -> Recipe | None:
    """The recipe of the model at work. None: there is none, or none that could be judged."""
    if not versions.link.exists():
        return None
    try:
        return check_folder(versions.link.resolve(), system=ProvisionAbout.SYSTEM, method=method)
    except InputError as error:
        reporter.caution(
            f"note: the current model can't be judged, so {UNTRAINED} stands in for it: {error}"
        )
        return None


def _site_history(
    plan: RetrainPlan, current: Recipe | None, work: Path, fresh: Path, reporter: Reporter
) -> _SiteHistory:
    """Reads accounting, and how slurmctld describes the cluster. Raises MirageError."""
    import numpy as np

    from mirage.provision.learn.accounting import import_records
    from mirage.provision.learn.cautions import choose_partition
    from mirage.provision.learn.joblog import log_of
    from mirage.slurm.survey import Survey
    from slurm_sim.clusters import read_cluster, write_toml
    from slurm_sim.errors import SimulationError
    from slurm_sim.traces import write_trace

    end_s = int(time.time())
    runner = Runner(
        bin_dir=plan.slurm.bin_dir, timeout_s=max(plan.slurm.timeout_s, SACCT_TIMEOUT_S)
    )
    records, trace, cluster = work / "sacct.txt", work / "sacct.csv.gz", fresh / "cluster.toml"
    try:
        described = read_cluster(plan.cluster).cluster if plan.cluster else Survey(runner).cluster()
        cluster.write_text(write_toml(described), encoding="utf-8")
    except SimulationError as error:
        raise InputError(str(error)) from error
    write_history(runner, end_s - plan.days * DAY_S, end_s, records)
    history, notes = import_records(records)
    for note in notes:
        reporter.caution(note)
    write_trace(history, trace)
    jobs, span_s = len(history), float(np.ptp(history.column("submit")))
    wanted = plan.partition or _partition(current, described)
    partition, _ = choose_partition(log_of(history, described), described, wanted)
    limit_s = _longest(described, partition)
    _check_length(span_s, limit_s)
    return _SiteHistory(trace, cluster, jobs, partition, limit_s)


def _check_length(span_s: float, limit_s: int) -> None:
    """Raises MirageError: a history of this length can't judge pairs of this limit."""
    from mirage.figures.resample import FEWEST_BLOCKS, SHORTEST_BLOCK_S

    needed_s = 2 * limit_s + FEWEST_BLOCKS * SHORTEST_BLOCK_S
    if span_s * JUDGED < needed_s:
        raise MirageError(
            f"accounting has jobs of {format_duration(int(span_s))}; a model for pairs of"
            f" {format_duration(limit_s)} each can be judged with"
            f" {format_duration(int(needed_s / JUDGED))}. Give more --days, or wait until there"
            " are."
        )


def _partition(current: Recipe | None, cluster: ClusterConfig) -> str | None:
    """That of the current model, if this cluster has it."""
    course = current.options.get("course", {}) if current else {}
    wanted = course.get("partition") if isinstance(course, dict) else None
    return wanted if wanted in {partition.name for partition in cluster.partitions} else None


def _longest(cluster: ClusterConfig, partition: str) -> int:
    """Time limit of the pairs to judge by: 48 h as in the paper, or the most there is."""
    chosen = next(item for item in cluster.partitions if item.name == partition)
    return min(LONGEST_PAIR_S, chosen.max_time_s or LONGEST_PAIR_S)


def _training_plan(plan: RetrainPlan, history: _SiteHistory, out: Path) -> TrainingPlan:
    from mirage.provision.learn import TrainingPlan

    return TrainingPlan(
        trace=history.trace,
        cluster=history.cluster,
        methods=(plan.method,),
        out=out,
        partition=history.partition,
        episodes=plan.episodes,
        validation_episodes=plan.judged,
        settings=plan.settings,
        at_most_s=plan.at_most_s,
        seed=plan.seed,
        workers=plan.workers,
    )


def _evaluation_plan(
    plan: RetrainPlan,
    history: _SiteHistory,
    about: ProvisionAbout,
    fresh: Path,
    current: Path | None,
) -> EvaluationPlan:
    """All pairs begin in the part that was not learnt from, and end in it if they don't wait."""
    from mirage.provision.evaluation import EvaluationPlan

    begin_s, end_s = about.validation_s
    span_s = end_s - begin_s - 2 * history.limit_s
    every_s = max(EVERY_S, span_s // plan.judged)
    other = f"{CURRENT}={current.resolve()}" if current else UNTRAINED
    return EvaluationPlan(
        trace=history.trace,
        cluster=history.cluster,
        methods=(f"{NEW}={fresh / MODEL}", other),
        out=fresh,
        start_s=begin_s,
        episodes=max(1, span_s // every_s),
        every_s=every_s,
        nodes=plan.nodes,
        limit_s=history.limit_s,
        partition=history.partition,
        seed=plan.seed,
        workers=plan.workers,
    )
