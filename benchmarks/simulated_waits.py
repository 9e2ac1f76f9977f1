r"""Forecasts of waits judged on a simulated trace, whose queue log has Slurm's plan in it.

    python -m benchmarks.simulated_waits TRACE CLUSTER --start 2022-12-20 --judged 2023-02-01 \
        --end 2023-02-22 --out FOLDER

One simulation runs the trace. The queue is read 30 s after each job comes, and each hour, and is
kept as the service keeps it (`log.csv.gz`). New jobs are also noted as they came (`asked.csv.gz`):
forecasts are judged on 300 of these that waited then. The plan is that of `squeue --start`: nobody
else comes, and all jobs run until their limits. A second run with the same folder reads what lies there.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mirage.cli.learning import instant
from mirage.domain import Snapshot
from mirage.provision.learn.background import WarmUp, people_of
from mirage.provision.learn.inputs import Inputs, read_inputs
from mirage.provision.starts.evaluation import HEAD, cells
from mirage.provision.starts.keeping import QueueKeeper, Row, noted, starts_of
from mirage.provision.starts.queue_log import (
    QueueLog,
    read_queue_log,
    write_queue_log,
)
from mirage.provision.starts.queue_scores import score_log
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S, HOUR_S

LOG, ASKED = "log.csv.gz", "asked.csv.gz"
WARM_S, AFTER_S = 8 * DAY_S, 14 * DAY_S
"""The simulation begins so long before the looks, and goes on for so long, so that jobs start."""
LATER_S = 30
"""So long after a job comes the queue is read, as a service does that reads it each minute."""
LONGEST_S = 7 * DAY_S
"""Plans look so far ahead."""
JOBS, SEED = 300, 3


def with_plans(snapshot: Snapshot, cluster: ClusterConfig, since_s: int) -> Snapshot:
    """With the plan of each waiting job that came after ``since_s``."""
    asked = {job.job_id for job in snapshot.jobs if job.is_pending and job.submit_s > since_s}
    if not asked:
        return snapshot
    keeps = cluster.params.priority_weight_fairshare > 0
    plan = simulator_from(snapshot, cluster, Known(priorities=keeps))
    end_s = snapshot.at_s + LONGEST_S
    starts_s = {number: plan.run_until_start(number, end_s) or end_s for number in sorted(asked)}
    jobs = (replace(job, planned_s=starts_s.get(job.job_id)) for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


def simulate(inputs: Inputs, begin_s: int, end_s: int, out: Path) -> None:
    """Writes both files."""
    background, warm_s = inputs.background, begin_s - WARM_S
    log = background.log
    later = log.between(warm_s, end_s + AFTER_S)
    simulation = background.start_at(warm_s, WarmUp.TRACE, later, people_of(log)).simulation
    cluster = SimulatedCluster(simulation)
    submits = log.column("submit_s") + LATER_S
    comes = submits[(submits >= begin_s) & (submits < end_s)].tolist()
    keeper, asked, last_s = _Keeper(folder=out), list[Row](), begin_s
    for at_s in sorted({*comes, *range(begin_s, end_s, HOUR_S)}):
        simulation.run_until(at_s)
        is_whole = (at_s - begin_s) % HOUR_S == 0
        snapshot = with_plans(cluster.snapshot(), background.cluster, 0 if is_whole else last_s)
        keeper.note(snapshot)
        asked += noted(snapshot, last_s, whole=False)
        last_s = at_s
    simulation.run_until(end_s + AFTER_S)
    starts = starts_of(cluster.accounting(warm_s, end_s + AFTER_S))
    for name, rows in ((LOG, keeper.written), (ASKED, asked)):
        known = [row | {"start_time": starts.get(row["job_unique_id"])} for row in rows]
        write_queue_log(out / name, known)


@dataclass(kw_only=True)
class _Keeper(QueueKeeper):
    """Keeps all days, and in memory."""

    written: list[Row] = field(default_factory=list)

    def _write(self, at_s: int) -> None:
        self.written += self._rows
        self._rows = []


def drawn(asked: QueueLog, begin_s: int) -> QueueLog:
    """The new jobs that are judged: of those that were seen to wait, with a plan."""
    known = np.isfinite(asked.start_s) & np.isfinite(asked.planned_s)
    rows = np.flatnonzero(known & (asked.poll_s >= begin_s))
    chosen = np.random.default_rng(SEED).choice(rows, min(JOBS, len(rows)), replace=False)
    return asked.rows(np.sort(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("cluster", type=Path)
    for name in ("start", "judged", "end"):
        parser.add_argument(f"--{name}", type=instant, required=True, metavar="TIME")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.out / LOG).exists():
        simulate(read_inputs(args.trace, args.cluster, None), args.start, args.end, args.out)
    log, asked = (read_queue_log([args.out / name]) for name in (LOG, ASKED))
    asked = drawn(asked.rows(asked.poll_s < args.end), args.judged)
    found = score_log(log, args.judged, args.end, asked=asked)
    print(len(log), "rows;", len(asked), "new jobs:", *HEAD, sep="  ")
    for score in found.scores:
        print(score.method, *cells(score), sep="  ")


if __name__ == "__main__":
    main()
