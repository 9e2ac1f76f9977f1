"""The steps of an assessment: history, queue, chains of today, training, chains with Mirage."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mirage.assess.habits import Habits, habits_of
from mirage.assess.history import CLUSTER, TRACE, HistorySource, SiteHistory, site_history
from mirage.assess.waits import WaitFigures, waits_of
from mirage.domain import Mode
from mirage.errors import MirageError
from mirage.figures.provenance import sha256
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation, evaluate_chains
from mirage.provision.chains.trial import LEAD_S
from mirage.provision.learn import TrainingPlan, train
from mirage.provision.learn.cautions import choose_partition
from mirage.provision.learn.joblog import log_of
from mirage.provision.learn.reporter import SILENT, Reporter
from slurm_sim.seconds import DAY_S, HOUR_S, MINUTE_S
from slurm_sim.traces.usage import busy_nodes

MODEL, TRAINED, CONFIG = "model", "trained.json", "mirage.toml"
METHOD = "quantile"
DEFAULT, FIXED = "goodput", "timer"
"""Of training chains: the service's policy; a successor that is let in a fixed time before the end."""
HELD_OUT = 0.2
"""Of the history: its last part, which training does not see."""
LONGEST_LINK_S = 48 * HOUR_S
FEWEST_DAYS = 21
"""With a shorter history nothing is simulated: policies know the waits of a week before."""
WIDE = 0.05
"""A size with this share of the node-hours of chains counts as a site's own."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is simulated."""

    begins: int
    lasts_s: int
    at_most_s: int
    episodes: int
    judged: int
    modes: tuple[Mode, ...]
    most_sizes: int


QUICK = Effort(
    begins=3,
    lasts_s=6 * DAY_S,
    at_most_s=80,
    episodes=40,
    judged=20,
    modes=(Mode.TRAIN,),
    most_sizes=2,
)
"""Three minutes on two cores for 50,000 jobs."""
THOROUGH = Effort(
    begins=12,
    lasts_s=14 * DAY_S,
    at_most_s=15 * MINUTE_S,
    episodes=300,
    judged=100,
    modes=(Mode.TRAIN, Mode.SERVICE),
    most_sizes=3,
)
"""Half an hour."""


@dataclass(frozen=True, kw_only=True)
class AssessmentPlan:
    source: HistorySource
    out: Path
    effort: Effort = THOROUGH
    partition: str | None = None
    """Of the simulated chains; None: the one with most node-hours."""
    seed: int = 1
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What the history holds."""

    jobs: int
    users: int
    first_s: int
    last_s: int
    nodes: int
    busy: float
    """Mean share of the nodes that ran a job."""
    partition: str
    scheduler_is_known: bool
    notes: tuple[str, ...]

    @property
    def days(self) -> float:
        return (self.last_s - self.first_s) / DAY_S


@dataclass(frozen=True, kw_only=True)
class SiteAssessment:
    """Everything that the page shows."""

    facts: SiteFacts
    waits: WaitFigures
    habits: Habits
    chains: ChainsEvaluation | None
    """None: not simulated, `why_no_chains` says why."""
    chain_plan: ChainPlan | None
    why_no_chains: str
    model: Path | None
    why_no_model: str
    steps_s: dict[str, float] = field(default_factory=dict)
    """Seconds that each step took."""


def assess(plan: AssessmentPlan, reporter: Reporter = SILENT) -> SiteAssessment:
    """Runs all steps. Fills ``plan.out`` with the history, the cluster, the model and the service's
    configuration; what is there from an earlier call with the same input is used. Raises
    InputError, MirageError.
    """
    steps = _Steps()
    plan.out.mkdir(parents=True, exist_ok=True)
    history = steps.timed("history", lambda: site_history(plan.source, plan.out))
    facts = _facts(history, plan.partition)
    waits = steps.timed(
        "queue", lambda: waits_of(history.trace, history.inferred, plan.source.timezone)
    )
    habits = steps.timed("chains of today", lambda: habits_of(history.trace, history.inferred))
    model, why_no_model = steps.timed("training", lambda: _model(plan, facts, reporter))
    chain_plan, why = _chain_plan(plan, facts, habits, history, model)
    chains = None
    if chain_plan is not None:
        asked = chain_plan
        try:
            chains = steps.timed("simulated chains", lambda: evaluate_chains(asked, reporter))
        except MirageError as error:
            why = str(error)
    _write_config(plan.out / CONFIG, model)
    return SiteAssessment(
        facts=facts,
        waits=waits,
        habits=habits,
        chains=chains,
        chain_plan=chain_plan,
        why_no_chains=why,
        model=model,
        why_no_model=why_no_model,
        steps_s=steps.took_s,
    )


class _Steps:
    """Times the steps."""

    def __init__(self) -> None:
        self.took_s: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = work()
        self.took_s[name] = time.monotonic() - began
        return result


def _facts(history: SiteHistory, wanted: str | None) -> SiteFacts:
    trace, cluster = history.trace, history.cluster
    submit = trace.column("submit")
    first_s, last_s = int(submit.min()), int(submit.max())
    partition, cautions = choose_partition(log_of(trace, cluster), cluster, wanted)
    users = set(trace.text("user")) - {""}
    return SiteFacts(
        jobs=len(trace),
        users=len(users),
        first_s=first_s,
        last_s=last_s,
        nodes=len(cluster.nodes),
        busy=busy_nodes(trace).mean(first_s, last_s) / len(cluster.nodes),
        partition=partition,
        scheduler_is_known=not cluster.scheduler_is_assumed,
        notes=(*history.notes, *cautions),
    )


def _model(plan: AssessmentPlan, facts: SiteFacts, reporter: Reporter) -> tuple[Path | None, str]:
    """A model of the first part of the history, or why there is none."""
    if facts.days < FEWEST_DAYS:
        return None, f"the history has {facts.days:.0f} days; training needs {FEWEST_DAYS}"
    key, kept = _training_key(plan, facts), plan.out / TRAINED
    if kept.exists() and kept.read_text(encoding="utf-8") == key:
        return plan.out / MODEL, ""
    kept.unlink(missing_ok=True)
    try:
        train(
            TrainingPlan(
                trace=plan.out / TRACE,
                cluster=plan.out / CLUSTER,
                methods=(METHOD,),
                out=plan.out / MODEL,
                partition=facts.partition,
                episodes=plan.effort.episodes,
                validation_episodes=plan.effort.judged,
                seed=plan.seed,
                workers=plan.workers,
            ),
            reporter,
        )
    except MirageError as error:
        return None, str(error)
    kept.write_text(key, encoding="utf-8")
    return plan.out / MODEL, ""


def _training_key(plan: AssessmentPlan, facts: SiteFacts) -> str:
    """Of everything that the model depends on: with an equal one it is not trained again."""
    record = {
        "trace": sha256(plan.out / TRACE),
        "cluster": sha256(plan.out / CLUSTER),
        "partition": facts.partition,
        "effort": asdict(plan.effort),
        "seed": plan.seed,
    }
    return json.dumps(record, indent=1, default=str) + "\n"


def _chain_plan(
    plan: AssessmentPlan,
    facts: SiteFacts,
    habits: Habits,
    history: SiteHistory,
    model: Path | None,
) -> tuple[ChainPlan | None, str]:
    """Chains in the part of the history that training did not see, or why there are none."""
    if facts.days < FEWEST_DAYS:
        return None, (
            f"the history has {facts.days:.0f} days; chains of 48-hour jobs can be judged with"
            f" {FEWEST_DAYS} and more"
        )
    begin_s, begins, every_s = _begins(plan.effort, facts)
    methods = [DEFAULT, FIXED, *([f"{METHOD}={model}"] if model else [])]
    return (
        ChainPlan(
            trace=plan.out / TRACE,
            cluster=plan.out / CLUSTER,
            out=plan.out,
            start_s=begin_s,
            begins=begins,
            every_s=every_s,
            lasts_s=plan.effort.lasts_s,
            nodes=_sizes(habits, history, facts, plan.effort.most_sizes),
            limit_s=_limit_s(history, facts.partition),
            modes=plan.effort.modes,
            methods=tuple(methods) if Mode.SERVICE in plan.effort.modes else (DEFAULT, FIXED),
            partition=facts.partition,
            others=(),
            at_most_s=plan.effort.at_most_s,
            seed=plan.seed,
            workers=plan.workers,
        ),
        "",
    )


def _begins(effort: Effort, facts: SiteFacts) -> tuple[int, int, int]:
    """In the held-out part: the first submission, how many, and the time between two."""
    span_s = facts.last_s - facts.first_s
    begin_s = max(facts.last_s - int(HELD_OUT * span_s), facts.first_s + LEAD_S)
    room_s = facts.last_s - begin_s - effort.lasts_s
    if room_s < 0:
        begin_s, room_s = max(facts.last_s - effort.lasts_s, facts.first_s + LEAD_S), 0
    begins = min(effort.begins, 1 + room_s // DAY_S)
    return begin_s, begins, max(DAY_S, room_s // max(1, begins - 1))


def _sizes(habits: Habits, history: SiteHistory, facts: SiteFacts, most: int) -> tuple[int, ...]:
    """The site's own sizes of chains: the one with most node-hours, and the widest ones that count.
    Without chains those of its jobs.
    """
    hours = habits.nodes or _node_hours(history)
    bound = max(1, facts.nodes // 4)
    total = sum(hours.values()) or 1.0
    known = [nodes for nodes in hours if nodes <= bound and hours[nodes] >= WIDE * total] or [1]
    main = max(known, key=lambda nodes: hours.get(nodes, 0.0))
    wide = sorted((nodes for nodes in known if nodes != main), reverse=True)
    return tuple(sorted([main, *wide[: most - 1]]))


def _node_hours(history: SiteHistory) -> dict[int, float]:
    nodes = history.trace.column("nodes")
    work = np.nan_to_num(nodes * history.trace.run_s) / HOUR_S
    return {int(size): float(work[nodes == size].sum()) for size in np.unique(nodes) if size > 0}


def _limit_s(history: SiteHistory, partition: str) -> int:
    """The partition's longest limit, or that of its jobs, and at most two days."""
    chosen = next(item for item in history.cluster.partitions if item.name == partition)
    if chosen.max_time_s:
        return min(LONGEST_LINK_S, chosen.max_time_s)
    limits = history.trace.column("timelimit_s")
    known = limits[np.isfinite(limits) & (history.trace.text("partition") == partition)]
    longest = int(np.quantile(known, 0.99)) if len(known) else LONGEST_LINK_S
    return max(HOUR_S, min(LONGEST_LINK_S, longest))


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
