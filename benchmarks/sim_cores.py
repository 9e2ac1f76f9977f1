"""Speed of builds of the simulator's core beside each other: in turn, each time in a process of its
own.

    .venv/bin/python -m benchmarks.sim_cores A.so B.so [...] [--repeat 5]

The workloads are those of sim_speed.py, first with whole nodes, then with all rules on. Of each
process the median of three runs counts (CPU seconds on one core); of those the table has median,
least and most, as jobs/s, and the ratio to the first core: the median of the rounds, as the
machine's speed changes between them. Also whether all starts are equal. The Python around the core
is this checkout's, so a core of another one may refuse its parameters.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.sim_common import machine, table
from tests.fuzz_core import load

HEADER = ("jobs", "core", "jobs/s", "least", "most", "to the first", "starts")


def measure(core: Path) -> dict[str, Any]:
    """By workload, in this process."""
    load(core)
    from benchmarks.sim_speed import all_rules, jobs_of, timed, whole_node_cluster, workloads

    given = workloads()
    found = {
        name: timed(whole_node_cluster(each.cluster_nodes), jobs_of(each), 3)
        for name, each in given.items()
    }
    return found | {
        f"{name}, all rules": timed(*all_rules(each), 3) for name, each in given.items()
    }


def in_turn(cores: list[Path], repeat: int) -> list[list[dict[str, Any]]]:
    """By core, then by round."""
    found: list[list[dict[str, Any]]] = [[] for _ in cores]
    for _ in range(repeat):
        for rounds, core in zip(found, cores, strict=True):
            command = [sys.executable, "-m", "benchmarks.sim_cores", "--here", str(core)]
            done = subprocess.run(command, stdout=subprocess.PIPE)
            if done.returncode:
                sys.exit(
                    f"{core}: not measured, see above; build it from sources that fit this"
                    " checkout's Python"
                )
            rounds.append(json.loads(done.stdout))
    return found


def rows(cores: list[Path], found: list[list[dict[str, Any]]]) -> Iterator[list[str]]:
    for name, first in found[0][0].items():
        speeds = [[each[name]["jobs_per_s"] for each in rounds] for rounds in found]
        for core, rounds, of_core in zip(cores, found, speeds, strict=True):
            ratio = median(one / other for one, other in zip(of_core, speeds[0], strict=True))
            same = rounds[0][name]["starts_crc32"] == first["starts_crc32"]
            starts = (
                "equal" if same else f"differ: mean wait {rounds[0][name]['mean_wait_s']:,.0f} s"
            )
            shown = [f"{speed:,.0f}" for speed in (median(of_core), min(of_core), max(of_core))]
            yield [name, str(core), *shown, f"{ratio:.2f}", starts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cores", nargs="+", type=Path, metavar="CORE.so", help="_core*.so of a build"
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds (5)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.cores[0])))
        return
    found = in_turn(options.cores, options.repeat)
    print(table(HEADER, rows(options.cores, found)))
    print(f"\n{json.dumps(machine())}")


if __name__ == "__main__":
    main()
