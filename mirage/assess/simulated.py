"""The simulated chains of an assessment: which ones, and whether the verdict hangs on priorities."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mirage.assess.habits import Habits
from mirage.assess.history import CLUSTER, TRACE, RecentHistory
from mirage.assess.plan import METHOD, AssessmentPlan, Effort, SiteFacts
from mirage.domain import Mode
from mirage.errors import MirageError
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation, evaluate_chains
from mirage.provision.chains.figures import ChainSummary
from mirage.provision.chains.methods import DEFAULT
from mirage.provision.chains.run import POLL_S
from mirage.provision.chains.trial import LEAD_S
from mirage.provision.learn.reporter import Reporter
from slurm_sim.clusters import write_toml
from slurm_sim.seconds import DAY_S, HOUR_S

FIXED = "lead:3h"
"""A successor that is let in so long before the end."""
ASSUMED = "age and fair share"
"""The priorities of a site whose scheduler is not known."""
OTHER_PRIORITIES: dict[str, tuple[str, dict[str, Any]]] = {
    "age alone": ("age", {"priority_weight_fairshare": 0}),
    "the order of submission": ("order", {"priority_multifactor": False}),
}
"""That it may have as well: part of the files' names, and what differs from `ASSUMED`."""
CHAINS_SHARE = 0.6
"""Of the time left, where chains under other priorities follow."""
HELD_OUT = 0.2
"""Of the history: its last part, which training does not see."""
LONGEST_LINK_S = 48 * HOUR_S
WIDE = 0.05
"""A size with this share of the node-hours of chains counts as a site's own."""


def main_row(chains: ChainsEvaluation | None) -> ChainSummary | None:
    """The default policy's row for training chains of the site's main size; None: no chain started."""
    return next(iter(default_rows(chains)), None)


def default_rows(chains: ChainsEvaluation | None, mode: Mode = Mode.TRAIN) -> list[ChainSummary]:
    """The default policy's rows for chains that started, the site's main size first."""
    return [
        row
        for row in (chains.figures.summary if chains else ())
        if row.method == DEFAULT
        and row.mode == mode.value
        and row.gain is not None
        and row.work_node_h
    ]


def simulate(plan: ChainPlan | None, reporter: Reporter) -> tuple[ChainsEvaluation | None, str]:
    """Or why there are none."""
    if plan is None:
        return None, ""
    try:
        return evaluate_chains(plan, reporter), ""
    except MirageError as error:
        return None, str(error)


def other_priorities(
    plan: ChainPlan | None,
    chains: ChainsEvaluation | None,
    recent: RecentHistory,
    until_s: float,
    reporter: Reporter,
) -> dict[str, ChainsEvaluation]:
    """The main size again under each of `OTHER_PRIORITIES` for which there is time; empty where the
    scheduler is known. ``until_s``: on the monotonic clock; later no further begin is tried.
    """
    row = main_row(chains)
    if plan is None or row is None or recent.site is not None:
        return {}
    found = {}
    for number, (name, (stem, changes)) in enumerate(OTHER_PRIORITIES.items()):
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        params = replace(recent.cluster.params, **changes)
        cluster = replace(recent.cluster, params=params, scheduler_is_assumed=False)
        path = plan.out / f"cluster-{stem}.toml"
        path.write_text(write_toml(cluster), encoding="utf-8")
        again = replace(
            plan,
            cluster=path,
            nodes=(row.nodes,),
            modes=(Mode.TRAIN,),
            methods=(DEFAULT,),
            with_oracle=False,
            at_most_s=int(left_s / (len(OTHER_PRIORITIES) - number)),
            kept=plan.out / f"chains-{stem}.jsonl",
        )
        evaluation, _ = simulate(again, _OnlyProgress(reporter))
        if evaluation is not None:
            found[name] = evaluation
    return found


class _OnlyProgress(Reporter):
    """Without cautions on a scheduler that is not the site's."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def episodes(self, part: str, done: int, total: int) -> None:
        self._reporter.episodes(part, done, total)


def chain_plan(
    plan: AssessmentPlan,
    facts: SiteFacts,
    habits: Habits,
    recent: RecentHistory,
    *,
    model: Path | None,
    left_s: float,
) -> tuple[ChainPlan | None, str]:
    """Chains in the part of the history that training did not see, or why there are none.
    ``left_s``: of the assessment's time.
    """
    if facts.why_unfit:
        return None, facts.why_unfit
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
            nodes=_sizes(habits, recent, facts, plan.effort.most_sizes),
            limit_s=_limit_s(recent, facts.partition),
            methods=tuple(methods) if plan.effort.with_model else (DEFAULT, FIXED),
            partition=facts.partition,
            others=(),
            with_oracle=plan.effort.with_oracle,
            at_most_s=max(0, int(left_s * (1.0 if recent.site else CHAINS_SHARE))),
            seed=plan.seed,
            workers=plan.workers,
        ),
        "",
    )


def _begins(effort: Effort, facts: SiteFacts) -> tuple[int, int, int]:
    """In the held-out part: its begin, how many submissions, and the span of each."""
    first_s, last_s = facts.recent_s, facts.last_s
    begin_s = max(last_s - int(HELD_OUT * (last_s - first_s)), first_s + LEAD_S)
    room_s = last_s - begin_s - effort.lasts_s
    if room_s < 0:
        begin_s, room_s = max(last_s - effort.lasts_s, first_s + LEAD_S), 0
    begins = min(effort.begins, 1 + room_s // DAY_S)
    return begin_s, begins, max(POLL_S, room_s // begins)


def _sizes(habits: Habits, recent: RecentHistory, facts: SiteFacts, most: int) -> tuple[int, ...]:
    """The site's own sizes of chains: first the one with most node-hours, then the widest ones that
    count. Without chains those of its jobs.
    """
    hours = habits.nodes or _node_hours(recent)
    bound = max(1, facts.nodes // 4)
    total = sum(hours.values()) or 1.0
    known = [nodes for nodes in hours if nodes <= bound and hours[nodes] >= WIDE * total] or [1]
    main = max(known, key=lambda nodes: hours.get(nodes, 0.0))
    wide = sorted((nodes for nodes in known if nodes != main), reverse=True)
    return (main, *wide[: most - 1])


def _node_hours(recent: RecentHistory) -> dict[int, float]:
    nodes = recent.trace.column("nodes")
    work = np.nan_to_num(nodes * recent.trace.run_s) / HOUR_S
    return {int(size): float(work[nodes == size].sum()) for size in np.unique(nodes) if size > 0}


def _limit_s(recent: RecentHistory, partition: str) -> int:
    """The partition's longest limit, or that of its jobs, and at most two days."""
    chosen = next(item for item in recent.cluster.partitions if item.name == partition)
    if chosen.max_time_s:
        return min(LONGEST_LINK_S, chosen.max_time_s)
    limits = recent.trace.column("timelimit_s")
    known = limits[np.isfinite(limits) & (recent.trace.text("partition") == partition)]
    longest = int(np.quantile(known, 0.99)) if len(known) else LONGEST_LINK_S
    return max(HOUR_S, min(LONGEST_LINK_S, longest))
