"""Logged histories replayed in whole: simulated waits against the logged ones, of jobs whose wait
is contention.

    .venv/bin/python -m benchmarks.sim_history [--trace ls6|pegasus] [--only base] [--days] [--out
    FILE.json]

Jobs as cleaned by slurm_sim.traces.cleaning; dependency chains, the limit of running jobs per user,
array throttles and the node count over time as inferred from the log itself by
slurm_sim.traces.inference. What a log doesn't tell (priority weights, backfill's parameters) is
assumed, see `CLUSTERS`, and not fitted to the result. Which jobs are compared is decided from the
log alone, see `contended`. Then the same with one thing left out at a time. Nothing is random.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from benchmarks.sim_common import HERE, SHARED, machine, table, write_json
from slurm_sim.config import ClusterConfig, Params, Partition, Qos, make_nodes
from slurm_sim.jobs import JobSpec
from slurm_sim.simulator import Simulator
from slurm_sim.traces import Trace, read_trace
from slurm_sim.traces.capacity import infer_nodes
from slurm_sim.traces.chains import Chains, infer_chains
from slurm_sim.traces.cleaning import CleaningReport, Rules, clean
from slurm_sim.traces.inference import Inference, infer, node_curve
from slurm_sim.traces.table import numbered
from slurm_sim.traces.usage import busy_nodes
from slurm_sim.traces.users import running_at, user_codes

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
HOUR = 3600
DAY_S = 24 * HOUR
QUEUED_S = 600
"""Shorter waits are never explained away: they are compared as they are."""
SPARE = 4
"""A job waits for something else than nodes while its nodes and so many more are idle."""
BURST_S = 60
SERIES = 3
"""So many jobs, or more, are a series."""
ARRAYS, GROUPS = 10**9, 2 * 10**9
"""Added to the numbers of arrays and of groups taken for arrays, which are no job's then."""
WIDE = 0.1
"""Of the cluster's nodes."""
LOOKS = 40
"""Instants of each wait at which that is looked at."""
CLOSE = 0.1
"""`infer_nodes`'s price for a step, so low that the node count follows the busy nodes of hours in
which jobs wait.
"""


@dataclass(frozen=True)
class Assumed:
    """A cluster as far as its log does not describe it."""

    file: str
    params: Params
    why: str
    time_zone_s: int
    """Of the months."""
    ablations: dict[str, Params] = field(default_factory=dict)
    """Other parameters, by what they are."""


MIRAGE_PARAMS = Params(
    priority_weight_age=7000,
    priority_max_age_s=7 * DAY_S,
    priority_weight_job_size=100,
    priority_weight_fairshare=4000,
    priority_decay_half_life_s=2 * DAY_S,
    default_queue_depth=1000,
    bf_interval_s=30,
    bf_window_s=2880 * 60,
    bf_resolution_s=600,
    bf_max_job_test=3000,
)
PEGASUS_PARAMS = Params(bf_window_s=14 * DAY_S)
CLUSTERS = {
    "ls6": Assumed(
        "ls6_a100_dev",
        MIRAGE_PARAMS,
        "Weights, half-life, queue depth, window, resolution, jobs tested: the files"
        " slurm_config.json and backfill_config.json that TACC's authors published with Mirage and"
        " its log. Its bf_interval of 10 counts the prototype's minutes, so Slurm's 30 s. No"
        " account in the log: each user is one, with one share. Partition and QOS weights play no"
        " part with one of each.",
        -6 * HOUR,
        {
            "no fairshare": replace(MIRAGE_PARAMS, priority_weight_fairshare=0),
            "first come, first served": replace(MIRAGE_PARAMS, priority_multifactor=False),
            "backfill as Slurm has it by default": replace(
                MIRAGE_PARAMS,
                bf_window_s=DAY_S,
                bf_resolution_s=60,
                bf_max_job_test=500,
                default_queue_depth=100,
            ),
            "no backfill": replace(MIRAGE_PARAMS, backfill=False),
        },
    ),
    "pegasus": Assumed(
        "pegasus_dev",
        PEGASUS_PARAMS,
        "Nothing is published: Slurm's defaults, with bf_window as long as the longest limit (14"
        " days), as slurm.conf(5) advises. No users in the log: no fairshare, no limits per user."
        " Age and size weigh as in slurm_sim's default (10000, 1000). The three partitions share"
        " all nodes and have one PriorityTier.",
        -5 * HOUR,
        {
            "first come, first served": replace(PEGASUS_PARAMS, priority_multifactor=False),
            "bf_window as by default (1 day)": replace(PEGASUS_PARAMS, bf_window_s=DAY_S),
            "no backfill": replace(PEGASUS_PARAMS, backfill=False),
        },
    ),
}


@dataclass(frozen=True)
class Variant:
    """One way to simulate the history."""

    name: str
    params: Params
    chains: bool = True
    user_limit: bool = True
    throttles: bool = True
    node_steps: bool = True
    close_steps: bool = False
    """Whether the node count follows the log hour by hour (`CLOSE`) while jobs wait."""
    held: bool = False
    """Whether jobs that wait beside idle nodes, by the log, compete only from when these were idle
    no longer.
    """
    cancelled_run: bool = False
    """Whether jobs that were cancelled in the queue, but start here, hold nodes until the logged
    cancellation.
    """


@dataclass(frozen=True)
class History:
    """A log, cleaned, with what was inferred from it."""

    trace: Trace
    inferred: Inference
    report: CleaningReport
    assumed: Assumed

    @property
    def base_s(self) -> int:
        return int(self.trace.column("submit").min())

    @cached_property
    def warm_s(self) -> int:
        """The first end in the log: what ended before is not in it, so waits before can't be
        simulated.
        """
        return int(self.trace.column("end")[self.trace.ran].min())

    @cached_property
    def close_steps(self) -> tuple[tuple[int, int], ...]:
        return tuple((step.time, step.nodes) for step in infer_nodes(self.trace, CLOSE))

    @cached_property
    def held_until(self) -> Floats:
        """When a job's nodes and `SPARE` more were last idle while it waited: for the class *idle*;
        NaN for others.
        """
        until = np.full(len(self.trace), np.nan)
        for at, idle in self.looks():
            until = np.where(idle, at, until)
        return np.where(contended(self)["idle"], until, np.nan)

    def looks(self) -> Iterator[tuple[Floats, Mask]]:
        """`LOOKS` instants of each job's wait, and whether its nodes and `SPARE` more are idle
        then, by the log.
        """
        trace, curve, busy = self.trace, node_curve(self.inferred.nodes), busy_nodes(self.trace)
        for share in (np.arange(LOOKS) + 0.5) / LOOKS:
            at = trace.column("submit") + share * np.nan_to_num(trace.wait_s)
            yield at, curve.at(at) - busy.at(at) >= trace.column("nodes") + SPARE

    @cached_property
    def predecessor(self) -> NDArray[np.int64]:
        """Inferred chains, and series; -1: none."""
        found = self.inferred.chains.predecessor
        return np.where(found >= 0, found, series(self.trace, found))


def series(trace: Trace, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Predecessors in bursts (jobs of one user and shape, each submitted within `BURST_S` of the
    one before) of which no two ever ran at once, and of which at least one is a `known` link: a
    chain whose links had to queue as well.
    """
    shape = pd.DataFrame({name: trace.column(name) for name in ("nodes", "timelimit_s", "submit")})
    shape["user"] = trace.text("user")
    shape["start"], shape["end"] = trace.column("start"), trace.column("end")
    shape["linked"] = known >= 0
    found = np.full(len(trace), -1)
    ran = shape[trace.ran & (trace.text("user") != "")]
    for _, jobs in ran.groupby(["user", "nodes", "timelimit_s"], sort=False):
        burst = (jobs["submit"].diff() > BURST_S).cumsum()
        for _, rows in jobs.groupby(burst):
            in_order = rows.sort_values("start")
            apart = (in_order["start"].to_numpy()[1:] >= in_order["end"].to_numpy()[:-1]).all()
            if (
                len(rows) >= SERIES
                and apart
                and rows["linked"].any()
                and (in_order.index == rows.index).all()
            ):
                found[rows.index[1:]] = rows.index[:-1]
    return found


def load(assumed: Assumed) -> History:
    raw = read_trace(SHARED / "traces" / f"{assumed.file}.csv.gz")
    cleaned, report = clean(raw, Rules(nodes=most_nodes(infer(raw))))
    inferred = infer(cleaned)
    if (cleaned.text("user") == "").all():
        inferred = replace(inferred, chains=wide_chains(cleaned, inferred))
    return History(cleaned, inferred, report, assumed)


def wide_chains(trace: Trace, inferred: Inference) -> Chains:
    """For a log without users: very wide jobs of one shape are taken for one user's."""
    wide = trace.column("nodes") >= WIDE * most_nodes(inferred)
    shape = (
        pd.Series(trace.text("partition"))
        + trace.jobs["nodes"].astype(str)
        + "x"
        + trace.jobs["timelimit_s"].astype(str)
    )
    supposed = Trace(trace.jobs.assign(user=np.where(wide, shape, "")), trace.source)
    return infer_chains(supposed, node_curve(inferred.nodes))


def most_nodes(inferred: Inference) -> int:
    return max(nodes for _, nodes in inferred.node_steps)


# --- which jobs to compare: from the log alone


def contended(history: History) -> dict[str, Mask]:
    """Each job's class, by the log: *compared*, or why its logged wait says nothing about
    contention.

    cancelled: never ran, its wait is cut off. before: submitted before the log's first end. chain:
    it waits for its (inferred) predecessor. limit: for most of its wait its user runs as many jobs
    as the (inferred) limit allows. idle: for most of its wait its nodes and `SPARE` more are idle,
    as far as the inferred node count goes. The last three only for waits over `QUEUED_S`.
    """
    trace, inferred = history.trace, history.inferred
    queued = np.nan_to_num(trace.wait_s) > QUEUED_S
    limited, idle, codes = np.zeros(len(trace)), np.zeros(len(trace)), user_codes(trace)
    for at, has_idle in history.looks():
        idle += has_idle
        if inferred.max_jobs_per_user is not None:
            limited += running_at(trace, codes, at, after=True) >= inferred.max_jobs_per_user
    known = trace.ran & (trace.column("submit") >= history.warm_s)
    found = {"cancelled": ~trace.ran, "before": trace.ran & ~known}
    rest = known & queued
    for name, mask in (
        ("chain", history.predecessor >= 0),
        ("throttle", inferred.group >= 0),
        ("limit", limited > LOOKS / 2),
        ("idle", idle > LOOKS / 2),
    ):
        found[name] = rest & mask
        rest &= ~mask
    found["compared"] = known & ~(
        found["chain"] | found["throttle"] | found["limit"] | found["idle"]
    )
    return found


# --- the simulation


def cluster_of(history: History, variant: Variant) -> ClusterConfig:
    inferred = history.inferred
    nodes = make_nodes(most_nodes(inferred))
    names = tuple(node.name for node in nodes)
    partitions = sorted(set(history.trace.text("partition").tolist()))
    limit = inferred.max_jobs_per_user if variant.user_limit else None
    return ClusterConfig(
        nodes,
        tuple(Partition(name, names) for name in partitions),
        variant.params,
        qos=(Qos("normal", max_jobs_per_user=limit),),
    )


def specs_of(history: History, variant: Variant) -> list[JobSpec]:
    """Run times as logged. Jobs cancelled in the queue are cancelled at the logged time; those that
    start before hold nodes for no time, as in the log (or, `variant.cancelled_run`, until then).

    Jobs that run when the log begins are submitted when they started, those that wait begin to
    compete then.
    """
    trace, warm_s = history.trace, history.warm_s - history.base_s
    ids = numbered(trace)
    arrays = (
        ARRAYS
        + trace.jobs["job_id"]
        .str.extract(r"^(\d+)_\d+$")[0]
        .astype(float)
        .fillna(-1 - ARRAYS)
        .to_numpy()
    )
    groups, predecessor = history.inferred.group, history.predecessor.tolist()
    submit = trace.column("submit")
    runs_before = (submit < history.warm_s) & (trace.column("start") < history.warm_s)
    submit_s = (
        np.where(runs_before, trace.column("start"), submit).astype(np.int64) - history.base_s
    )
    waits = ((submit < history.warm_s) & ~runs_before).tolist()
    cancel_s = (trace.column("end") - history.base_s).astype(np.int64).tolist()
    run_s, limit_s = trace.run_s.tolist(), trace.column("timelimit_s").tolist()
    nodes, ran = trace.column("nodes").astype(np.int64).tolist(), trace.ran.tolist()
    user, partition = trace.text("user").tolist(), trace.text("partition").tolist()
    held_s = (
        (history.held_until - history.base_s).tolist() if variant.held else [np.nan] * len(trace)
    )
    specs = []
    for row, job_id in enumerate(ids.tolist()):
        more: dict[str, Any] = {"begin_s": warm_s} if waits[row] else {}
        if variant.chains and predecessor[row] >= 0:
            more["dependency"] = f"afterany:{ids[predecessor[row]]}"
        if arrays[row] >= 0:
            more["array_job_id"] = int(arrays[row])
        if variant.throttles and groups[row] >= 0:
            group = {} if arrays[row] >= 0 else {"array_job_id": GROUPS + int(groups[row])}
            more |= {"array_throttle": history.inferred.throttles[groups[row]].throttle} | group
        if held_s[row] == held_s[row]:
            more["begin_s"] = max(int(held_s[row]), more.get("begin_s", 0))
        if not ran[row]:
            more["cancel_s"] = cancel_s[row]
        specs.append(
            JobSpec(
                nodes=nodes[row],
                time_limit_s=max(60, int(limit_s[row])) if limit_s[row] == limit_s[row] else None,
                runtime_s=int(run_s[row]) if ran[row] else None if variant.cancelled_run else 0,
                user=user[row] or "user",
                account=user[row] or "root",
                partition=partition[row],
                submit_s=int(submit_s[row]),
                job_id=job_id,
                **more,
            )
        )
    return specs


def simulate(history: History, variant: Variant) -> Floats:
    """Simulated waits, by row; NaN: it did not start."""
    sim = Simulator(cluster_of(history, variant), specs_of(history, variant))
    if variant.node_steps:
        steps = history.close_steps if variant.close_steps else history.inferred.node_steps
        follow_node_count(sim, [(at - history.base_s, nodes) for at, nodes in steps])
    sim.run()
    found = sim.results()
    wait_s = np.where(found.start_s >= 0, found.start_s - found.submit_s, np.nan)
    order = dict(zip(found.job_id.tolist(), wait_s.tolist(), strict=True))
    return np.array([order[job_id] for job_id in numbered(history.trace).tolist()])


def follow_node_count(sim: Simulator, steps: Sequence[tuple[int, int]]) -> None:
    """Drains and resumes nodes as time passes: idle ones are drained first, then those that end
    first fall free.
    """
    for number, (at_s, nodes) in enumerate(steps):
        sim.run_until(max(0, at_s) if number else 0)  # the first holds from the beginning
        up = [name for name in sim.node_names if sim.is_up(name)]
        for name in sorted(up, key=lambda name: not sim.is_idle(name))[: max(0, len(up) - nodes)]:
            sim.node_drain(name)
        down = [name for name in sim.node_names if not sim.is_up(name)]
        for name in down[: max(0, nodes - len(up))]:
            sim.node_up(name)


# --- figures


def figures(logged_s: Floats, simulated_s: Floats) -> dict[str, Any]:
    """Waits of the same jobs. Jobs that never started in the simulation are counted and left out."""
    known = ~np.isnan(simulated_s)
    logged, simulated = logged_s[known], simulated_s[known]
    result: dict[str, Any] = {"jobs": int(known.sum()), "never_started": int((~known).sum())}
    if known.sum() < 3:
        return result
    queued = np.maximum(logged, simulated) > QUEUED_S
    result |= {
        "spearman": _correlation(spearmanr, logged, simulated),
        "spearman_minutes": _correlation(spearmanr, logged // 60, simulated // 60),
        "spearman_queued": _correlation(spearmanr, logged[queued], simulated[queued]),
        "pearson": _correlation(pearsonr, logged, simulated),
        "queued": int(queued.sum()),
        "mean_h": {"log": float(logged.mean()) / HOUR, "simulated": float(simulated.mean()) / HOUR},
    }
    for hours in (2, 12):
        shares = {"log": logged, "simulated": simulated}
        result[f"over_{hours}_h"] = {
            name: float((wait > hours * HOUR).mean()) for name, wait in shares.items()
        }
    return result


def _correlation(how: Any, one: Floats, other: Floats) -> float | None:
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return round(float(how(one, other).statistic), 4)


def periods(times: Floats, form: str, zone_s: int) -> NDArray[np.object_]:
    """Month or day of each time."""
    days = np.floor((times + zone_s) / DAY_S)
    names = {
        day: datetime.fromtimestamp(day * DAY_S, UTC).strftime(form) for day in np.unique(days)
    }
    return np.array([names[day] for day in days], dtype=object)


def by_period(history: History, chosen: Mask, simulated_s: Floats, form: str) -> dict[str, Any]:
    names = periods(history.trace.column("submit"), form, history.assumed.time_zone_s)
    return {
        name: figures(
            history.trace.wait_s[chosen & (names == name)], simulated_s[chosen & (names == name)]
        )
        for name in sorted(set(names[chosen].tolist()))
    }


def worst_days(
    history: History, chosen: Mask, simulated_s: Floats, count: int = 12
) -> list[list[object]]:
    """Days of submission that add most to the sum of |simulated - logged|: jobs, users, mean waits
    in hours.
    """
    names = periods(history.trace.column("submit"), "%Y-%m-%d", history.assumed.time_zone_s)
    error = np.abs(np.nan_to_num(simulated_s) - history.trace.wait_s) / HOUR
    rows: list[list[object]] = []
    for name in set(names[chosen].tolist()):
        rows_of = chosen & (names == name)
        users = len(set(history.trace.text("user")[rows_of].tolist()))
        logged, simulated = (
            each[rows_of].mean() / HOUR
            for each in (history.trace.wait_s, np.nan_to_num(simulated_s))
        )
        rows.append(
            [
                name,
                int(rows_of.sum()),
                users,
                round(logged, 2),
                round(simulated, 2),
                round(error[rows_of].sum()),
            ]
        )
    return sorted(rows, key=lambda row: -float(str(row[-1])))[:count]


def variants(assumed: Assumed, inferred: Inference) -> list[Variant]:
    base = Variant("base", assumed.params)
    found = [base]
    if inferred.chains.links:
        found.append(replace(base, name="no chains", chains=False))
    if inferred.limit:
        found.append(replace(base, name="no limit per user", user_limit=False))
    if inferred.throttles:
        found.append(replace(base, name="no array throttles", throttles=False))
    found.append(replace(base, name="all nodes always up", node_steps=False))
    found.append(replace(base, name="node count hour by hour", close_steps=True))
    found.append(replace(base, name="held while its nodes are idle", held=True))
    found.append(
        replace(base, name="jobs cancelled in the queue run until then", cancelled_run=True)
    )
    found.append(
        replace(base, name="these three together", close_steps=True, held=True, cancelled_run=True)
    )
    return found + [
        replace(base, name=name, params=params) for name, params in assumed.ablations.items()
    ]


def replay(name: str, only: str | None, days: bool) -> dict[str, Any]:
    assumed = CLUSTERS[name]
    history = load(assumed)
    classes = contended(history)
    chosen = classes["compared"]
    every = ~(classes["cancelled"] | classes["before"])
    inferred = history.inferred.as_dict()
    inferred["array_throttles"] = len(inferred["array_throttles"])
    result: dict[str, Any] = {
        "trace": assumed.file,
        "assumed": assumed.why,
        "cleaning": [each for each in history.report.as_dict()["findings"] if each["jobs"]],
        "inferred": inferred,
        "jobs": {key: int(mask.sum()) for key, mask in classes.items()},
        "variants": {},
    }
    for variant in variants(assumed, history.inferred):
        if only is not None and variant.name != only:
            continue
        simulated_s = simulate(history, variant)
        found = figures(history.trace.wait_s[chosen], simulated_s[chosen])
        found["all_that_ran"] = figures(history.trace.wait_s[every], simulated_s[every])
        if variant.name == "base":
            found["by_month"] = by_period(history, chosen, simulated_s, "%Y-%m")
            found["worst_days"] = worst_days(history, chosen, simulated_s)
        result["variants"][variant.name] = found
        print(table(HEADER, [[name, variant.name, *_cells(found)]]).splitlines()[-1], flush=True)
        if variant.name == "base":
            print(report_base(found, days))
    return result


HEADER = (
    "trace",
    "variant",
    "jobs",
    "Spearman",
    "in minutes",
    "of those that queue",
    "mean h: log",
    "simulated",
    "> 2 h: log",
    "simulated",
    "> 12 h: log",
    "simulated",
)


def _cells(found: dict[str, Any]) -> list[object]:
    if "mean_h" not in found:
        return [found["jobs"]]
    shares = [
        f"{100 * found[over][which]:.1f} %"
        for over in ("over_2_h", "over_12_h")
        for which in ("log", "simulated")
    ]
    means = [f"{found['mean_h'][which]:.2f}" for which in ("log", "simulated")]
    return [
        found["jobs"],
        *(found[each] for each in ("spearman", "spearman_minutes", "spearman_queued")),
        *means,
        *shares,
    ]


def report_base(found: dict[str, Any], days: bool) -> str:
    text = "\n" + table(
        ("month", *HEADER[2:]),
        ([month, *_cells(each)] for month, each in found["by_month"].items()),
    )
    if days:
        header = ("day", "jobs", "users", "mean wait h: log", "simulated", "sum of differences h")
        text += "\n\n" + table(header, found["worst_days"])
    return text + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", choices=CLUSTERS, help="default: all")
    parser.add_argument("--only", help="one variant")
    parser.add_argument("--days", action="store_true", help="also the days that are most off")
    parser.add_argument("--out", help="default: benchmarks/sim_history.json, if all was run")
    options = parser.parse_args()
    print(table(HEADER, []))
    names = [options.trace] if options.trace else list(CLUSTERS)
    result = {name: replay(name, options.only, options.days) for name in names}
    if options.out or (options.trace is None and options.only is None):
        write_json(
            HERE / (options.out or "sim_history.json"), {"histories": result, "machine": machine()}
        )


if __name__ == "__main__":
    main()
