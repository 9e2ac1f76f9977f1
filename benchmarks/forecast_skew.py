"""The forecast in service against the one in training, for the same moments.

    .venv/bin/python -m benchmarks.forecast_skew --trace ../shared/traces/ls6_a100_dev.csv.gz
        --cluster models/ls6-a100/quantile/cluster.toml --from 2022-11-10 --until 2023-01-20

Pairs begin at even distances in the range, as in training. At decision points of each the training's
forecast forks the simulation itself; the service's is made from the snapshot of that moment alone.
Printed and written: the share of equal ones, within a minute, within ten, over an hour off, and the
worst; and the same with slurmctld's timers told, which squeue does not show. No chance is in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mirage.cli.learning import instant
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.forecast import forecast_s
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.sampler import submit_pair
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.seconds import DAY_S, HOUR_S

OUT = Path(__file__).with_suffix(".json")
BEYOND_S = 10 * DAY_S


def points(
    background: Background, plan: EpisodePlan, every_s: int
) -> Iterator[tuple[int, int, int]]:
    """Forecasts at each point while the predecessor runs: of training, of the service, and of the
    service that knows the timers. Seconds.
    """
    until_s = min(plan.begin_s + BEYOND_S, background.log.last_s)
    simulation = background.warm(plan.begin_s, plan.warm_up, until_s)
    predecessor, successor = submit_pair(simulation, plan)
    start_s = simulation.run_until_start(predecessor, until_s)
    if start_s is None:
        return
    for at_s in range(start_s + 60, start_s + plan.pair.predecessor.time_limit_s, every_s):
        simulation.run_until(at_s)
        snapshot = SimulatedCluster(simulation).snapshot()
        timed = Known(timers=simulation.timers())
        yield (
            forecast_s(simulation, successor),
            forecast_s(simulator_from(snapshot, background.cluster), successor),
            forecast_s(simulator_from(snapshot, background.cluster, timed), successor),
        )


def figures(off_s: Sequence[int]) -> dict[str, float]:
    """Of absolute differences in seconds."""
    off = np.abs(np.array(off_s))
    return {
        "points": len(off),
        "equal": round(float(np.mean(off == 0)), 4),
        "within_a_minute": round(float(np.mean(off <= 60)), 4),
        "within_ten_minutes": round(float(np.mean(off <= 600)), 4),
        "over_an_hour": round(float(np.mean(off > HOUR_S)), 4),
        "worst_h": round(float(off.max()) / HOUR_S, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--cluster", required=True, type=Path)
    parser.add_argument("--from", dest="begin", required=True, type=instant)
    parser.add_argument("--until", required=True, type=instant)
    parser.add_argument("--pairs", type=int, default=24, help="pairs, half of them on 8 nodes (24)")
    parser.add_argument(
        "--every", type=int, default=2 * HOUR_S, help="seconds between points (7200)"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    background = read_inputs(args.trace, args.cluster, None).background
    begins = np.linspace(args.begin, args.until, args.pairs).astype(int).tolist()
    found: list[tuple[int, int, int]] = []
    for number, begin_s in enumerate(begins):
        plan = EpisodePlan(begin_s, fixed_pair((1, 8)[number % 2]))
        found += points(background, plan, args.every)
        print(number, len(found), flush=True)
    table = np.array(found)
    result = {
        "command": "python -m benchmarks.forecast_skew",
        "trace": args.trace.name,
        "range_s": [args.begin, args.until],
        "pairs": args.pairs,
        "busy_points": int((table[:, 0] > HOUR_S).sum()),
        "service": figures(table[:, 1] - table[:, 0]),
        "service_of_busy_points": figures((table[:, 1] - table[:, 0])[table[:, 0] > HOUR_S]),
        "with_timers": figures(table[:, 2] - table[:, 0]),
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
