"""The steps of an assessment: history, queue, chains of today, training, chains with Mirage."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage.assess.habits import Habits, habits_of
from mirage.assess.history import (
    CLUSTER,
    TRACE,
    RecentHistory,
    SiteHistory,
    forget_records,
    site_history,
)
from mirage.assess.plan import METHOD, AssessmentPlan, SiteFacts
from mirage.assess.routes import RoutingFigures, routing_of
from mirage.assess.simulated import HELD_OUT, chain_plan, other_priorities, simulate
from mirage.assess.waits import SizeWaits, WaitFigures, size_waits, waits_of
from mirage.domain import Mode
from mirage.errors import MirageError
from mirage.figures.provenance import sha256
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation
from mirage.provision.evaluation.protocol import REACTIVE
from mirage.provision.learn import TrainingPlan, train
from mirage.provision.learn.cautions import choose_partition
from mirage.provision.learn.episode import AUGMENTED_LEAD_S
from mirage.provision.learn.joblog import log_of
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.provision.learn.run import FOLDERS
from mirage.provision.learn.shards import ShardFolder
from slurm_sim.traces.usage import busy_nodes

MODEL, TRAINED, CONFIG = "model", "trained.json", "mirage.toml"
SAMPLES = "episodes-{}"
"""Episodes of a training that was interrupted, or whose time was up."""
TRAINING_SHARE = 0.4
"""Of the time left, for episodes."""
STEPS = 7


@dataclass(frozen=True, kw_only=True)
class SiteAssessment:
    """Everything that the page shows."""

    facts: SiteFacts
    timezone: str
    """Of the hours of the day."""
    waits: WaitFigures
    habits: Habits
    chains: ChainsEvaluation | None
    """None: not simulated, `why_no_chains` says why."""
    chain_plan: ChainPlan | None
    why_no_chains: str
    by_priorities: dict[str, ChainsEvaluation]
    """The same chains under other priorities, by name, where the scheduler is not known: whether the
    verdict depends on it. Empty: the scheduler is known, or nothing is simulated.
    """
    size_waits: tuple[SizeWaits, ...]
    """Simulated waits beside the history's own, by size."""
    routing: RoutingFigures | None
    """None: not judged, `why_no_routing` says why."""
    why_no_routing: str
    model: Path | None
    why_no_model: str
    steps_s: dict[str, float] = field(default_factory=dict)
    """Seconds that each step took."""


def assess(plan: AssessmentPlan, reporter: Reporter = SILENT) -> SiteAssessment:
    """Runs all steps. Fills ``plan.out`` with the history, the cluster, the model and the service's
    configuration; what is there from an earlier call with the same input is used. Raises
    InputError, MirageError.
    """
    steps, until_s = _Steps(reporter), time.monotonic() + plan.effort.at_most_s
    plan.out.mkdir(parents=True, exist_ok=True)
    # The whole history is gone when training begins: workers need the memory.
    seen = _look(plan, steps)
    facts, recent = seen.facts, seen.recent
    model, why_no_model = steps.timed("training", lambda: _model(plan, facts, until_s, reporter))
    left_s = until_s - time.monotonic()
    planned, why_no_chains = chain_plan(
        plan, facts, seen.habits, recent, model=model, left_s=left_s
    )
    chains, why_not = steps.timed("simulated chains", lambda: simulate(planned, reporter))
    by_priorities = steps.timed(
        "chains under other priorities",
        lambda: other_priorities(planned, chains, recent, until_s, reporter),
    )
    _write_config(plan.out / CONFIG, model)
    is_whole = chains is None or chains.is_whole
    if is_whole and not any(plan.out.glob(SAMPLES.format("*"))):
        forget_records(plan.out)
    return SiteAssessment(
        facts=facts,
        timezone=plan.source.timezone or "UTC",
        waits=seen.waits,
        habits=seen.habits,
        chains=chains,
        chain_plan=planned,
        why_no_chains=why_no_chains or why_not,
        by_priorities=by_priorities,
        size_waits=_size_waits(recent, facts, planned, chains),
        routing=seen.routing,
        why_no_routing=seen.why_no_routing,
        model=model,
        why_no_model=why_no_model,
        steps_s=steps.took_s,
    )


@dataclass(frozen=True, kw_only=True)
class _QueueFigures:
    """What the history shows without a simulated chain."""

    facts: SiteFacts
    recent: RecentHistory
    waits: WaitFigures
    habits: Habits
    routing: RoutingFigures | None
    why_no_routing: str


def _look(plan: AssessmentPlan, steps: _Steps) -> _QueueFigures:
    """Reads the history, and takes the figures of all of it."""
    source, effort = plan.source, plan.effort
    history = steps.timed(
        "history",
        lambda: site_history(source, plan.out, effort.recent_days, effort.recent_jobs),
    )
    for note in history.notes:
        steps.reporter.caution(note)
    trace, inferred, recent = history.trace, history.inferred, history.recent
    facts = _facts(history, plan.partition)
    waits = steps.timed("queue", lambda: waits_of(trace, inferred, source.timezone or "UTC"))
    habits = steps.timed("chains of today", lambda: habits_of(trace, inferred))
    routing, why_no_routing = steps.timed(
        "routing", lambda: routing_of(recent.trace, recent.site, effort.routed_days, plan.seed)
    )
    return _QueueFigures(
        facts=facts,
        recent=recent,
        waits=waits,
        habits=habits,
        routing=routing,
        why_no_routing=why_no_routing,
    )


def _size_waits(
    recent: RecentHistory,
    facts: SiteFacts,
    planned: ChainPlan | None,
    chains: ChainsEvaluation | None,
) -> tuple[SizeWaits, ...]:
    if planned is None or chains is None:
        return ()
    rows = {row.nodes: row for row in chains.figures.summary if row.mode == Mode.TRAIN.value}
    wait_h = {
        nodes: chains.figures.row(nodes, Mode.TRAIN.value, REACTIVE).wait_h.value for nodes in rows
    }
    return size_waits(recent.trace, facts.partition, chains.begins_s, planned.lasts_s, wait_h)


class _Steps:
    """Announces and times the steps."""

    def __init__(self, reporter: Reporter) -> None:
        self.took_s: dict[str, float] = {}
        self.reporter = reporter

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        self.reporter.step(name, len(self.took_s) + 1, STEPS)
        began = time.monotonic()
        result = work()
        self.took_s[name] = time.monotonic() - began
        return result


def _facts(history: SiteHistory, wanted: str | None) -> SiteFacts:
    trace, recent = history.trace, history.recent
    submit = trace.column("submit")
    first_s, last_s = int(submit.min()), int(submit.max())
    partition, cautions = choose_partition(
        log_of(recent.trace, recent.cluster), recent.cluster, wanted
    )
    users = set(trace.jobs["user"].unique()) - {""}
    nodes = max(step.nodes for step in history.inferred.nodes)
    return SiteFacts(
        jobs=len(trace),
        users=len(users),
        first_s=first_s,
        last_s=last_s,
        nodes=nodes,
        busy=busy_nodes(trace).mean(first_s, last_s) / nodes,
        partition=partition,
        scheduler_is_known=not recent.cluster.scheduler_is_assumed,
        notes=(*history.notes, *cautions),
        recent_s=recent.begin_s,
        recent_jobs=len(recent.trace),
    )


def _model(
    plan: AssessmentPlan, facts: SiteFacts, until_s: float, reporter: Reporter
) -> tuple[Path | None, str]:
    """A model of the first part of the history, or why there is none. ``until_s``: of the whole
    assessment, on the monotonic clock.
    """
    if facts.why_unfit:
        return None, facts.why_unfit
    key, kept = _training_key(plan, facts), plan.out / TRAINED
    if kept.exists() and kept.read_text(encoding="utf-8") == key:
        return plan.out / MODEL, ""
    kept.unlink(missing_ok=True)
    samples = _samples(plan, key)
    try:
        train(
            TrainingPlan(
                trace=plan.out / TRACE,
                cluster=plan.out / CLUSTER,
                methods=(METHOD,),
                out=plan.out / MODEL,
                begin_s=facts.recent_s + AUGMENTED_LEAD_S,
                until_s=facts.recent_s + int((1 - HELD_OUT) * (facts.last_s - facts.recent_s)),
                partition=facts.partition,
                episodes=plan.effort.episodes,
                validation_episodes=plan.effort.judged,
                at_most_s=max(0.0, TRAINING_SHARE * (until_s - time.monotonic())),
                samples=samples,
                seed=plan.seed,
                workers=plan.workers,
            ),
            reporter,
        )
    except MirageError as error:
        return None, str(error)
    if ShardFolder.existing(samples / FOLDERS["training"]).is_whole:
        kept.write_text(key, encoding="utf-8")
        shutil.rmtree(samples)
    return plan.out / MODEL, ""


def _samples(plan: AssessmentPlan, key: str) -> Path:
    """The folder of this training's episodes: an earlier call with the same input may have left some."""
    own = plan.out / SAMPLES.format(hashlib.sha256(key.encode()).hexdigest()[:8])
    for path in plan.out.glob(SAMPLES.format("*")):
        if path != own:
            shutil.rmtree(path)
    return own


def _training_key(plan: AssessmentPlan, facts: SiteFacts) -> str:
    """Of everything that the model depends on: with an equal one it is not trained again."""
    record = {
        "trace": sha256(plan.out / TRACE),
        "cluster": sha256(plan.out / CLUSTER),
        "partition": facts.partition,
        "episodes": (plan.effort.episodes, plan.effort.judged),
        "recent_s": facts.recent_s,
        "seed": plan.seed,
    }
    return json.dumps(record, indent=1, default=str) + "\n"


def _write_config(path: Path, model: Path | None) -> None:
    """A configuration that only observes."""
    lines = [
        "# Mirage's configuration, by `mirage assess`: the service looks and records, and does nothing.",
        "[acting]",
        'mode = "observe"',
    ]
    if model is not None:
        lines += [
            "",
            "[policy]",
            f'name = "{METHOD}"',
            f"model = {json.dumps(str(model.resolve()))}",
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
