"""Speed of the simulator beside the yardstick (a minimal C++ program): CPU seconds on one core.

    .venv/bin/python -m benchmarks.sim_speed [--repeat 5] [--only NAME ...] [--out
    FILE.json]

Compiles ../shared/yardstick/bound.cpp by its own line, and runs both on the same jobs. Parts: speed,
fork, threads, memory; without --only all of them. Results replace those of the same parts in
benchmarks/sim_speed.json. Reading and checking of jobs is outside the times, unless said. Random
choices have seed 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.sim_common import (
    HERE,
    SHARED,
    YARDSTICK_PARAMS,
    Workload,
    cpu_seconds,
    ls6,
    lublin,
    machine,
    spread,
    table,
    whole_node_cluster,
    write_json,
)
from slurm_sim.config import (
    Association,
    ClusterConfig,
    Params,
    Partition,
    Qos,
    SelectType,
    make_nodes,
)
from slurm_sim.seconds import DAY_S
from slurm_sim.simulator import Simulator
from slurm_sim.table import JobTable
from tests.reference.simulator import ReferenceSimulator as Reference


def workloads() -> dict[str, Workload]:
    """Those that the issue names."""
    return {"LS6": ls6(), "lublin_256": lublin(), "lublin_256 x4": lublin().faster(4)}


def jobs_of(workload: Workload) -> JobTable:
    return JobTable(*workload.columns)


# --- beside the yardstick


LOOKED_AT = range(500, 2001, 250)
"""Jobs that the yardstick looks at in a pass. Slurm, and we, count a job only if enough nodes are
unreserved at some time, and so look at more than bf_max_job_test (500): the one whose mean wait is
next to ours does as much as we do.
"""


def _with(text: str, *changes: tuple[str, str]) -> str:
    """bound.cpp with something before each of these places."""
    for place, before in changes:
        if place not in text:
            sys.exit(
                f"{SHARED}/yardstick/bound.cpp has no {place!r}; this script needs another one"
            )
        text = text.replace(place, before + place, 1)
    return text


FOR_ANY_PROCESSOR = (
    (
        "struct Cons4:",
        '#pragma GCC push_options\n#pragma GCC target("avx512f,avx512vl,avx512bw")\n',
    ),
    ("// ---------------- ConsBM", "#pragma GCC pop_options\n"),
)
"""One variant, which is not run here, has AVX-512 instructions: elsewhere g++ would refuse the
whole file.
"""
MORE_VARIANTS = (
    'bench("bitmap256 same"',
    f"for(int K:{{{','.join(map(str, LOOKED_AT[1:]))}}})"
    'bench(("count K="+to_string(K)+" 1d iv=30").c_str(),T,[&]{return Cons2(T,K,30,86400);},rep);',
)
"""In a program of their own: more variants in one make the others slower."""


class Bound(NamedTuple):
    """Of one variant of the yardstick."""

    jobs_per_s: float
    mean_wait_s: float


def yardstick(folder: Path) -> Callable[[Path, int], dict[str, Bound]]:
    """Compiled; gives what its variants need for an SWF file."""
    given = _with((SHARED / "yardstick" / "bound.cpp").read_text(), *FOR_ANY_PROCESSOR)
    programs = []
    for name, text in (
        ("more", _with(given, MORE_VARIANTS)),
        ("bound", given),
    ):  # the latter's figures count
        source, program = folder / f"{name}.cpp", folder / name
        source.write_text(text)
        flags = ["-O3", "-march=native", "-std=c++20", "-w"]
        subprocess.run(["g++", *flags, "-o", str(program), str(source)], check=True)
        programs.append(str(program))

    def run(swf: Path, repeat: int) -> dict[str, Bound]:
        found = dict[str, Bound]()
        for program in programs:
            text = subprocess.run(
                [program, str(swf), "fin", str(repeat)], check=True, capture_output=True, text=True
            ).stdout
            form = r"^(.{22}) +[0-9.]+ ms +([0-9]+) jobs/s .* avgwait ([0-9]+)"
            found |= {
                m[1].strip(): Bound(float(m[2]), float(m[3])) for m in re.finditer(form, text, re.M)
            }
        return found

    return run


def all_rules(workload: Workload, users: int = 60) -> tuple[ClusterConfig, JobTable]:
    """The same jobs with everything on: fairshare, two overlapping partitions, shared GPUs, limits.

    Nodes have 48 CPUs, 3 GPUs, 256 GiB. Jobs of one node ask for 1, 2 or 3 GPUs with that share of
    CPUs and memory, wider ones for whole nodes; a fifth goes to a partition of half the nodes with
    a higher tier. 60 users in 6 accounts, of whom some submit much more than others; at most 40
    jobs run per user, 300 per QOS.
    """
    rng = np.random.default_rng(1)
    count = len(workload)
    nodes = make_nodes(workload.cluster_nodes, cpus=48, memory_mib=256 * 1024, gpus=3)
    names = tuple(node.name for node in nodes)
    params = Params(
        SelectType.CONS_TRES,
        memory_is_consumable=True,
        bf_window_s=YARDSTICK_PARAMS.bf_window_s,
        priority_weight_fairshare=5000,
        priority_weight_partition=500,
        priority_weight_qos=500,
    )
    gpus = np.where(workload.nodes > 1, 3, rng.integers(1, 4, count))
    user = np.minimum(rng.zipf(1.4, count) - 1, users - 1)
    half = max(1, workload.cluster_nodes // 2)
    cluster = ClusterConfig(
        nodes,
        (
            Partition("gpu", names),
            Partition("short", names[:half], priority_tier=2, priority_job_factor=10),
        ),
        params,
        qos=(
            Qos("normal", max_jobs_per_user=40),
            Qos("high", priority=10, max_jobs_per_user=20, grp_jobs=300),
        ),
        associations=tuple(Association(f"a{number}", shares=1 + number) for number in range(6)),
    )
    short = (rng.random(count) < 0.2) & (workload.nodes <= half)
    jobs = JobTable(
        *workload.columns,
        user=np.char.add("u", user.astype(str)).tolist(),
        account=np.char.add("a", (user % 6).astype(str)).tolist(),
        partition=np.where(short, "short", "gpu").tolist(),
        qos=np.where(rng.random(count) < 0.1, "high", "normal").tolist(),
        cpus_per_node=16 * gpus,
        gpus_per_node=gpus,
        memory_mib_per_node=80 * 1024 * gpus,
    )
    return cluster, jobs


def timed(
    cluster: ClusterConfig, jobs: JobTable, repeat: int, simulator: Any = Simulator
) -> dict[str, Any]:
    """CPU seconds of a whole run, and what came out, to be compared with the yardstick's."""
    kept: list[Any] = []

    def prepare() -> Any:
        kept[:] = [simulator(cluster, jobs)]
        return kept[0]

    seconds = cpu_seconds(prepare, lambda sim: sim.run(), repeat)
    found: dict[str, Any] = {"cpu_s": spread(seconds), "jobs_per_s": len(jobs) / median(seconds)}
    if simulator is Simulator:
        results = kept[0].results()
        ran = results.start_s >= 0
        found["mean_wait_s"] = float((results.start_s - results.submit_s)[ran].mean())
        found["starts_crc32"] = zlib.crc32(results.start_s.tobytes())
        found["never_started"] = int((~ran).sum())
    return found


def _counts(looked_at: int) -> str:
    """The yardstick's variant with counts of nodes that looks at so many jobs."""
    return f"count K={looked_at} 1d iv=30"


def speed(repeat: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bound = yardstick(folder)
        for name, workload in workloads().items():
            swf = folder / "jobs.swf"
            workload.write_swf(swf)
            entry: dict[str, Any] = {"jobs": len(workload), "nodes": workload.cluster_nodes}
            entry["ours"] = timed(
                whole_node_cluster(workload.cluster_nodes), jobs_of(workload), repeat
            )
            found = bound(swf, repeat)
            entry["yardstick"] = {variant: each.jobs_per_s for variant, each in found.items()}
            entry["all_rules"] = timed(*all_rules(workload), repeat)
            fastest = found[_counts(LOOKED_AT[0])].jobs_per_s
            entry["ratio"] = {
                which: entry[which]["jobs_per_s"] / fastest for which in ("ours", "all_rules")
            }
            like_ours = min(
                LOOKED_AT,
                key=lambda looked_at: abs(
                    found[_counts(looked_at)].mean_wait_s - entry["ours"]["mean_wait_s"]
                ),
            )
            same = found[_counts(like_ours)]
            entry["as_much_work"] = {
                "looked_at": like_ours,
                "mean_wait_s": same.mean_wait_s,
                "ratio": entry["ours"]["jobs_per_s"] / same.jobs_per_s,
            }
            result[name] = entry
            print(speed_row(name, entry), flush=True)
    few = ls6().first(2000)
    result["reference (Python), first 2000 of LS6"] = timed(
        whole_node_cluster(76), jobs_of(few), 1, Reference
    )
    return result


SPEED_HEADER = (
    "jobs",
    "ours, jobs/s",
    "yardstick: counts",
    "its bitmaps: narrowest",
    "ours / counts",
    "ours / counts that look at as many",
    "all rules on, jobs/s",
    "all rules / counts",
)


def speed_row(name: str, entry: dict[str, Any]) -> str:
    bound = entry["yardstick"]
    cells = [
        name,
        f"{entry['ours']['jobs_per_s']:,.0f}",
        f"{bound[_counts(LOOKED_AT[0])]:,.0f}",
        f"{bound['bitmap256 same']:,.0f}",
        f"{entry['ratio']['ours']:.2f}",
        f"{entry['as_much_work']['ratio']:.2f} ({entry['as_much_work']['looked_at']})",
        f"{entry['all_rules']['jobs_per_s']:,.0f}",
        f"{entry['ratio']['all_rules']:.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


# --- forks


def warm_states(workload: Workload, count: int, known_only: bool) -> Iterator[Simulator]:
    """The cluster at times spread over the workload; `known_only`: without the jobs that come
    later.
    """
    first_s, last_s = int(workload.submit_s[0]), int(workload.submit_s[-1])
    cluster = whole_node_cluster(workload.cluster_nodes)
    sim = Simulator(cluster, jobs_of(workload))
    for at_s in (
        np.linspace(first_s + (last_s - first_s) // 2, last_s - 2 * DAY_S, count)
        .astype(int)
        .tolist()
    ):
        if known_only:
            sim = Simulator(
                cluster,
                jobs_of(workload.first(int(np.searchsorted(workload.submit_s, at_s, "right")))),
            )
        sim.run_until(at_s)
        yield sim


def per_call(call: Callable[[], object], repeats: int) -> float:
    """Microseconds of CPU a call: the least of five rounds, without the loop's own cost."""
    rounds = []
    gc.disable()
    try:
        for _ in range(5):
            begin = time.process_time()
            for _ in range(repeats):
                call()
            middle = time.process_time()
            for _ in range(repeats):
                pass
            rounds.append((middle - begin) - (time.process_time() - middle))
    finally:
        gc.enable()
    return 1e6 * min(rounds) / repeats


def fork() -> dict[str, Any]:
    result: dict[str, Any] = {}
    closest = min(
        (sim.fork() for sim in warm_states(ls6(), 200, known_only=False)),
        key=lambda sim: abs(_jobs_in(sim) - 100),
    )
    result["jobs_in_state"] = _jobs_in(closest)
    result["fork_python_us"] = per_call(closest.fork, 20_000)
    result["fork_core_call_us"] = per_call(closest._core.fork, 20_000)
    result["fork_cpp_us"] = 1e6 * min(closest._core.time_forks(20_000) for _ in range(5)) / 20_000
    for name, known_only in (("with_arrivals", False), ("known_jobs_only", True)):
        costs, forks = [], []
        for sim in warm_states(ls6(), 20, known_only):

            def day(sim: Simulator = sim) -> None:
                twin = sim.fork()
                twin.run_until(sim.now_s + DAY_S)

            costs.append(per_call(day, 100))
            forks.append(_jobs_in(sim))
        result[f"fork_and_day_{name}_us"] = {
            "mean": float(np.mean(costs)),
            "median": median(costs),
            "most": max(costs),
        }
        result[f"jobs_in_states_{name}"] = {"mean": float(np.mean(forks)), "most": max(forks)}
    return result


def _jobs_in(sim: Any) -> int:
    return len(sim.pending()) + len(sim.running())


# --- threads


def threads(runs: int = 60) -> dict[str, Any]:
    """Whole runs of LS6, in one thread and shared between two; of seven of each, taken in turn, the
    shortest.

    `times_on_idle_cores` is from CPU seconds: what two threads would reach if only other programs,
    and no waiting for each other, held them back; `cores_got_with_two` says how much of the machine
    they got.
    """
    workload = ls6()
    made = Simulator(whole_node_cluster(workload.cluster_nodes), jobs_of(workload))

    def work(count: int) -> None:
        for _ in range(count):
            made.fork().run()

    def seconds(number: int) -> tuple[float, float]:
        crew = [threading.Thread(target=work, args=(runs // number,)) for _ in range(number)]
        begin, cpu = time.perf_counter(), time.process_time()
        for one in crew:
            one.start()
        for one in crew:
            one.join()
        return time.perf_counter() - begin, time.process_time() - cpu

    one, two = zip(*((seconds(1), seconds(2)) for _ in range(7)), strict=True)
    (one_s, one_cpu_s), (two_s, two_cpu_s) = min(one), min(two)
    return {
        "runs": runs,
        "one_thread": {"wall_s": one_s, "cpu_s": one_cpu_s},
        "two_threads": {"wall_s": two_s, "cpu_s": two_cpu_s},
        "times": one_s / two_s,
        "times_on_idle_cores": 2 * one_cpu_s / two_cpu_s,
        "cores_got_with_two": two_cpu_s / two_s,
    }


# --- memory

MEMORY_CHILD = """
import json, resource, sys, time
from benchmarks import sim_speed
peak_mib = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak_mib()
jobs = sim_speed.jobs_of(sim_speed.many(int(sys.argv[1])))
table = peak_mib()
begin = time.process_time()
sim = sim_speed.Simulator(sim_speed.whole_node_cluster(76), jobs)
made = time.process_time()
sim.run()
ran = time.process_time()
results = sim.results()
print(json.dumps({"jobs": len(jobs), "imports_mib": before, "with_jobs_as_columns_mib": table, "peak_mib": peak_mib(),
                  "make_s": made - begin, "run_s": ran - made, "started": int((results.start_s >= 0).sum())}))
"""


def many(count: int) -> Workload:
    """The LS6 jobs one history after the other, until there are so many; each history 20 days
    longer than the log.
    """
    one = ls6()
    span_s = int(one.submit_s[-1]) + 20 * DAY_S
    times = -(-count // len(one))
    submit_s = np.concatenate([one.submit_s + number * span_s for number in range(times)])
    return replace(one.each(lambda column: np.tile(column, times)), submit_s=submit_s).first(count)


def memory(count: int = 1_000_000) -> dict[str, Any]:
    """Of a process of its own that makes and runs so many jobs."""
    command = [sys.executable, "-c", MEMORY_CHILD, str(count)]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "fork": fork,
    "threads": threads,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=("speed", *PARTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = options.only or ["speed", *PARTS]
    on = machine()
    result: dict[str, Any] = {}
    if "speed" in chosen:
        print(table(SPEED_HEADER, []))
        result["speed"] = speed(options.repeat) | {"machine": on}
    for name, part in PARTS.items():
        if name in chosen:
            result[name] = part() | {"machine": on}
            print(f"\n{name}: {json.dumps(result[name], indent=1)}", flush=True)
    out = options.out or HERE / "sim_speed.json"
    write_json(out, (json.loads(out.read_text()) if out.exists() else {}) | result)


if __name__ == "__main__":
    main()
