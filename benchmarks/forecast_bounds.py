"""What knowing run times would bring: forecasts of the successor's wait beside the real wait, under
heavy load.

    .venv/bin/python -m benchmarks.forecast_bounds --trace T --cluster C --from 2022-11-02 --until
    2023-02-01
        --samples DIR --futures models/ls6-a100/lookahead

DIR: of `mirage train --samples`, of the same parts with --judged 120. At five points of each heavy
episode to judge by the present queue runs on without arrivals: with all limits, with run times
predicted by user and limit (medians or means of 32 draws, seed 1, from a `lookahead` model), and
with the true ones. Printed: the rank correlation with the real wait and the median error in hours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from mirage.cli.learning import instant
from mirage.provision.learn import TrainingPlan, futures
from mirage.provision.learn.background import Background, people_of
from mirage.provision.learn.course import Course
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.episode import Episode, Load
from mirage.provision.learn.forecast import LONGEST_S
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.runtimes import JobQuery, Runtimes
from mirage.provision.learn.sampler import submit_pair
from mirage.provision.learn.samples import Samples
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.seconds import HOUR_S

POINTS, DRAWS = 5, 32


def wait_s(simulation: Any, successor: int) -> int:
    """If it is released now and nobody else comes."""
    now_s = simulation.now_s
    simulation.drop_dependency(successor)
    start_s = simulation.run_until_start(successor, now_s + LONGEST_S)
    return LONGEST_S if start_s is None else int(start_s - now_s)


def predicted(
    background: Background, simulation: Any, pair: tuple[int, int], law: Runtimes, rng: Any
) -> list[int]:
    """Waits with limits, medians and means."""
    snapshot = SimulatedCluster(simulation).snapshot()
    jobs = [job for job in snapshot.jobs if job.time_limit_s and job.job_id not in pair]
    limits_s = np.array([job.time_limit_s for job in jobs], dtype=np.int64)
    elapsed_s = np.array(
        [snapshot.at_s - (job.start_s or snapshot.at_s) for job in jobs], dtype=np.int64
    )
    asked = JobQuery(
        [job.user for job in jobs], np.array([job.nodes for job in jobs]), limits_s, elapsed_s
    )
    drawn = law.drawn(asked, rng, DRAWS)
    drawn = np.where(drawn < 0, limits_s, drawn)
    found = []
    for run_s in (limits_s, np.median(drawn, axis=0), drawn.mean(axis=0)):
        known = Known(runtimes={job.job_id: int(s) for job, s in zip(jobs, run_s, strict=True)})
        found.append(wait_s(simulator_from(snapshot, background.cluster, known), pair[1]))
    return found


def rows(
    background: Background, plan: EpisodePlan, episode: Episode, law: Runtimes, rng: Any
) -> Iterator[list[int]]:
    at_s = plan.begin_s - plan.lead_s
    logged = background.log.between(at_s + 1, background.log.last_s)
    for point in np.linspace(0, len(episode) - 1, POINTS).astype(int).tolist():
        now_s = int(episode.decision_s[point])
        simulation = background.start_at(
            at_s, plan.warm_up, logged.between(0, now_s), people_of(logged)
        ).simulation
        simulation.run_until(plan.begin_s)
        pair = submit_pair(simulation, plan)
        simulation.run_until(now_s)
        waits = predicted(background, simulation, pair, law, rng)
        yield [int(episode.waits_s[point]), *waits, wait_s(simulation.fork(), pair[1])]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--cluster", required=True, type=Path)
    parser.add_argument("--from", dest="begin", required=True, type=instant)
    parser.add_argument("--until", required=True, type=instant)
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--futures", required=True, type=Path)
    args = parser.parse_args()
    plan = TrainingPlan(
        trace=args.trace,
        cluster=args.cluster,
        methods=(),
        out=Path(),
        begin_s=args.begin,
        until_s=args.until,
        validation_episodes=120,
    )
    inputs = read_inputs(plan.trace, plan.cluster, plan.partition)
    background = inputs.background
    drawing = Course.of(background, plan, inputs.partition).validation(background)
    law, rng = futures.read(args.futures).runtimes, np.random.default_rng(1)
    background = background.until(drawing.end_s)
    heavy = {
        it.begin_s: it
        for it in Samples.load(args.samples / "judged")
        if it.load is Load.HEAVY and len(it) > POINTS
    }
    plans = [plan for plan in map(drawing.plan, range(drawing.count)) if plan.begin_s in heavy]
    found = [row for plan in plans for row in rows(background, plan, heavy[plan.begin_s], law, rng)]
    hours = np.array(found) / HOUR_S
    print(f"{len(hours)} points, mean wait {hours[:, 0].mean():.1f} h")
    for column, name in enumerate(
        ("all to their limits", "predicted, medians", "predicted, means", "true run times"), 1
    ):
        correlation = spearmanr(hours[:, 0], hours[:, column]).statistic
        error_h = np.median(np.abs(hours[:, column] - hours[:, 0]))
        print(
            f"{name:<20} rank correlation {correlation:.2f}, median error {error_h:.1f} h",
            flush=True,
        )


if __name__ == "__main__":
    main()
