"""`slurm-sim bench`: how fast the simulator is, in CPU seconds of the simulation alone."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from slurm_sim.cli import engine
from slurm_sim.cli.arguments import amount, positive, thread_count
from slurm_sim.cli.inputs import (
    add_cluster_arguments,
    add_engine_arguments,
    add_job_arguments,
    load_cluster,
    load_jobs,
    show_notes,
)
from slurm_sim.cli.main import package_version
from slurm_sim.jobfile.jobs import MISSING, Jobs
from slurm_sim.jobfile.prepare import SimulationInput, prepare
from slurm_sim.ranges import LAST_S
from slurm_sim.seconds import DAY_S
from slurm_sim.traces.errors import TraceError

MIB = 1024
TIMES = ("submit_s", "begin_s", "cancel_s")

console = Console(highlight=False, emoji=False)


@dataclass(frozen=True)
class Timing:
    """One repeat: building the simulators, then running them."""

    setup_cpu_s: float
    cpu_s: float
    wall_s: float
    span_s: int
    """Simulated time from the first submission to the last event, of one simulator."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    jobs = parser.add_argument_group("jobs")
    source = jobs.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--trace", type=Path, metavar="FILE", help="trace of jobs, from `mirage trace import`"
    )
    source.add_argument(
        "--jobs", type=Path, metavar="FILE", help="table of jobs, as for `slurm-sim run`"
    )
    source.add_argument(
        "--swf",
        type=Path,
        metavar="FILE",
        help="log in the Standard Workload Format; each of its processors is a node",
    )
    jobs.add_argument(
        "--first", type=positive, metavar="N", help="number of jobs to simulate (default: all)"
    )
    jobs.add_argument(
        "--load",
        type=amount,
        default=1.0,
        metavar="X",
        help="factor by which jobs arrive faster (default: %(default)s)",
    )
    add_job_arguments(jobs)
    add_cluster_arguments(parser, conf=False)
    _add_measurement_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", action="store_true", help="figures as JSON, for programs (docs/slurm-sim.md)"
    )


def _add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    measurement = parser.add_argument_group("measurement")
    measurement.add_argument(
        "--repeat",
        type=positive,
        default=5,
        metavar="N",
        help="number of runs, of which the median counts (default: %(default)s)",
    )
    measurement.add_argument(
        "--threads",
        type=thread_count,
        default=1,
        metavar="N",
        help="number of simulators at once, each in a thread (default: %(default)s)",
    )
    add_engine_arguments(measurement)


def run(args: argparse.Namespace) -> int:
    cluster, notes = load_cluster(args)
    jobs, started_s = load_jobs(args, _swf(args))
    jobs = _thinned(jobs, args.first, args.load)
    ready, more = prepare(cluster, jobs, started_s, args.skip_impossible, args.strict)
    if not args.json:
        show_notes([*notes, *more])
    before_mib = _memory_mib("VmRSS")
    timings = [_measure(ready, args.threads) for _ in range(args.repeat)]
    figures = _figures(ready, timings, args) | {
        "before_mib": before_mib,
        "peak_mib": _memory_mib("VmHWM"),
    }
    if args.json:
        console.file.write(json.dumps(figures, indent=2) + "\n")
    else:
        _show(figures)
    return 0


def _swf(args: argparse.Namespace) -> Any:
    if args.swf is None:
        return None
    from slurm_sim.traces.imports import import_swf

    return import_swf(args.swf).trace


def _thinned(jobs: Jobs, first: int | None, load: float) -> Jobs:
    if not len(jobs):
        raise TraceError(jobs.source, "at least one job", found="none")
    if first is not None:
        jobs = jobs.pick(jobs.numbers("submit_s").argsort(kind="stable")[:first])
    if load == 1:
        return jobs
    begin_s = int(jobs.numbers("submit_s").min())
    columns = dict(jobs.columns)
    for name in (each for each in TIMES if each in columns):
        given = columns[name]
        moved = begin_s + (given - begin_s) / load
        if moved.max() > LAST_S:
            raise TraceError(
                "--load",
                f"a factor with which all times stay below {LAST_S:,} s",
                found=f"{load:g}",
            )
        faster = moved.astype("int64")
        columns[name] = (
            faster
            if name == "submit_s"
            else (faster * (given != MISSING) + MISSING * (given == MISSING))
        )
    return replace(jobs, columns=columns)


def _measure(ready: SimulationInput, threads: int) -> Timing:
    begun = time.process_time()
    simulators = [engine.make(ready) for _ in range(threads)]
    workers = [threading.Thread(target=simulator.run) for simulator in simulators[1:]]
    made, wall = time.process_time(), time.perf_counter()
    for worker in workers:
        worker.start()
    simulators[0].run()
    for worker in workers:
        worker.join()
    done, wall_s = time.process_time(), time.perf_counter() - wall
    first_s = int(ready.jobs.numbers("submit_s").min()) + ready.shift_s
    return Timing(made - begun, done - made, wall_s, simulators[0].now_s - first_s)


def _figures(
    ready: SimulationInput, timings: list[Timing], args: argparse.Namespace
) -> dict[str, Any]:
    cpu_s = statistics.median(each.cpu_s for each in timings)
    wall_s = statistics.median(each.wall_s for each in timings)
    jobs = len(ready.jobs) * args.threads
    params = ready.cluster.params
    return {
        "jobs": len(ready.jobs),
        "cpu_s": cpu_s,
        "jobs_per_s": jobs / cpu_s,
        "sim_days_per_s": args.threads * timings[0].span_s / DAY_S / cpu_s,
        "wall_s": wall_s,
        "jobs_per_wall_s": jobs / wall_s,
        "setup_cpu_s": statistics.median(each.setup_cpu_s for each in timings),
        "repeats_cpu_s": [each.cpu_s for each in timings],
        "threads": args.threads,
        "workload": str(args.trace or args.jobs or args.swf),
        "load": args.load,
        "cluster": str(args.cluster) if args.cluster else f"{args.nodes} whole nodes",
        "nodes": len(ready.cluster.nodes),
        "select_type": params.select_type.value,
        "priority_type": (
            "priority/multifactor" if params.priority_multifactor else "priority/basic"
        ),
        "slurm_params": args.slurm_params,
        "machine": _processor(),
        "python": platform.python_version(),
        "version": package_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _memory_mib(name: str) -> float:
    """Of this process: VmRSS is what it has now, VmHWM the most it ever had (proc(5)).

    Not getrusage's maximum: that one begins with what the parent process had.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / MIB for line in lines if line.startswith(f"{name}:"))


def _show(figures: dict[str, Any]) -> None:
    spread = f"{min(figures['repeats_cpu_s']):.4g} to {max(figures['repeats_cpu_s']):.4g}"
    console.print(
        f"{figures['jobs']} jobs on {figures['cluster']} ({figures['select_type']},"
        f" {figures['priority_type']}), {figures['threads']}"
        f" thread{'s' if figures['threads'] > 1 else ''}"
    )
    console.print(
        f"CPU           {figures['cpu_s']:.4g} s (median of {len(figures['repeats_cpu_s'])}:"
        f" {spread})"
    )
    console.print(
        f"jobs/s        {figures['jobs_per_s']:,.0f} (of CPU), {figures['jobs_per_wall_s']:,.0f}"
        " (of wall)"
    )
    console.print(f"sim. days/s   {figures['sim_days_per_s']:,.1f}")
    console.print(
        f"peak memory   {figures['peak_mib']:.0f} MiB, {figures['before_mib']:.0f} before the"
        " first run"
    )
    console.print(f"set-up        {figures['setup_cpu_s']:.4g} s of CPU")
