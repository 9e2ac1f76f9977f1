"""What the routing plugin costs in a real slurmctld: submissions in turn to one with it and to one without.

    scripts/slurm-up --dir /var/tmp/with --port-base 18810
    scripts/slurm-up --dir /var/tmp/without --port-base 19810
    .venv/bin/python -m benchmarks.plugin_overhead /var/tmp/with /var/tmp/without [--pairs 1000]

Without: no job_submit plugin at all. With: agents of the size that `mirage route train` makes. Both run side by side,
so that what else the machine does falls on both; what they differ by before the plugin is there is measured first. Then
a clock around the plugin, inside slurmctld: of its own thread (Lua has none, and its `os.clock` counts all of
slurmctld's threads), so a C compiler is needed. Writes a JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from mirage.routing.agent import Agent, Layer
from mirage.routing.decide import Table
from mirage.routing.flavors import Flavor, PartitionKind
from mirage.routing.plugin import PluginOptions, install
from mirage.routing.state import PartitionState, Variant, actions_of, width
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from tests.slurm.site import ALICE, ROOT, Site

HIDDEN = (16, 8)
SIZES = [Flavor(name, gpus, 2 * gpus, 2000 * gpus, 86400) for name, gpus in (("s", 1), ("m", 1), ("l", 2))]
KINDS = [PartitionKind(name, 2, 2, 4, 4000, 0.0, 0.0, tuple(SIZES)) for name in ("left", "right")]
CLOCK = """
local thread_clock = package.loadlib("{library}", "thread_clock")
local router = mirage.router
mirage.router = function(options)
    local route = router(options)
    return function(job, parts)
        local cpu_us, wall_us = thread_clock()
        local outcome = route(job, parts)
        local cpu_end_us, wall_end_us = thread_clock()
        slurm.log_info("mirage_us=%.0f wall=%.0f %s", cpu_end_us - cpu_us, wall_end_us - wall_us, outcome)
        return outcome
    end
end
"""


def an_agent(kind: PartitionKind, random: np.random.Generator) -> Agent:
    sizes = [width(kind, Variant.COUNTS), *HIDDEN, actions_of(kind, Variant.COUNTS).count]
    layers = [
        Layer(tuple(map(tuple, random.normal(size=(a, b)).tolist())), tuple(random.normal(size=b).tolist()))
        for a, b in pairwise(sizes)
    ]
    return Agent(kind, Variant.COUNTS, tuple(layers))


def publish(run: Path) -> None:
    random = np.random.default_rng(1)
    agents = agents_text([an_agent(kind, random) for kind in KINDS])
    table = Table(int(time.time()), 3600, tuple(PartitionState.empty(kind) for kind in KINDS))
    write(run, AGENTS, agents)
    write(run, STATE, state_text(table, agents))


def configure(site: Site) -> None:
    words = [str(ROOT / "scripts/slurm-up"), "--dir", str(site.folder), "--set", "JobSubmitPlugins=lua"]
    words += ["--set", "PartitionName=left Nodes=n[1-2]", "--set", "PartitionName=right Nodes=n[3-4]"]
    subprocess.run(words, check=True, capture_output=True)


def drain(*sites: Site) -> None:
    for site in sites:
        site.run("root", "scontrol", "update", "nodename=ALL", "state=drain", "reason=benchmark")


PAIRS = """
for i in $(seq {count}); do
    if [ $((i % 2)) = 0 ]; then sides="{with_} {without}"; else sides="{without} {with_}"; fi
    for side in $sides; do
        begin=$EPOCHREALTIME
        SLURM_CONF=$side/etc/slurm.conf sbatch -Q --parsable {script} >/dev/null 2>&1 || exit 1
        end=$EPOCHREALTIME
        echo $side $((${{end/./}} - ${{begin/./}}))
    done
done
"""


def submit_pairs(with_: Site, without: Site, count: int) -> tuple[list[int], list[int]]:
    """Microseconds of each submission: with, without."""
    loop = PAIRS.format(count=count, script=a_script(with_), with_=with_.folder, without=without.folder)
    rows = [line.split() for line in with_.run(ALICE, "bash", "-c", loop, timeout_s=900).stdout.splitlines()]
    by_side = {
        str(site.folder): [int(us) for side, us in rows if side == str(site.folder)] for site in (with_, without)
    }
    return by_side[str(with_.folder)], by_side[str(without.folder)]


def a_script(site: Site) -> str:
    """A job for one GPU. Nothing starts: the nodes are drained."""
    return site.script(ALICE, "work.sh", "#!/bin/sh\n#SBATCH --gres=gpu:1 -t5 -o /dev/null\nexec sleep 1\n")


def submit(site: Site, count: int) -> None:
    loop = f"for i in $(seq {count}); do sbatch -Q --parsable {a_script(site)} >/dev/null 2>&1 || exit 1; done"
    site.run(ALICE, "sh", "-c", loop, timeout_s=900)


def routed(site: Site) -> int:
    names = site.run("root", "squeue", "-h", "-o", "%P").stdout.split()
    return sum(name in ("left", "right") for name in names)


CLOCK_C = """
#include <time.h>
extern void lua_pushnumber(void *, double);
static double us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}
int thread_clock(void *lua) {
    lua_pushnumber(lua, us(CLOCK_THREAD_CPUTIME_ID));
    lua_pushnumber(lua, us(CLOCK_MONOTONIC));
    return 2;
}
"""


def timed_inside(site: Site, count: int) -> tuple[list[float], list[float]]:
    """Microseconds that each call took inside slurmctld: of its thread's CPU, and by the wall clock."""
    library = site.folder / "thread_clock.so"
    subprocess.run(["cc", "-xc", "-", "-O2", "-shared", "-fPIC", "-o", library], input=CLOCK_C, text=True, check=True)
    script = site.folder / "etc" / "job_submit.lua"
    text = script.read_text().replace(
        "    if good then\n", "    if good then\n" + CLOCK.replace("{library}", str(library)), 1
    )
    script.write_text(text)
    later = int(time.time()) + 5
    os.utime(script, (later, later))
    submit(site, count)
    log = (site.folder / "log" / "slurmctld.log").read_text()
    found = re.findall(r"mirage_us=(\d+) wall=(\d+) routed", log)[-count:]
    return [float(cpu) for cpu, _ in found], [float(wall) for _, wall in found]


def spread(values_us: list[float]) -> dict[str, float]:
    return {
        "calls": len(values_us),
        "median": float(np.median(values_us)),
        "p99": float(np.percentile(values_us, 99)),
        "max": max(values_us),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs=2, type=Path, metavar="DIR", help="of slurm-up: with the plugin, without")
    parser.add_argument("--pairs", type=int, default=1000)
    args = parser.parse_args()
    with_, without = (Site(folder) for folder in args.folders)
    drain(with_, without)
    neither = submit_pairs(with_, without, args.pairs // 4)
    with_.cancel_all()
    without.cancel_all()
    run = with_.folder / "routing"
    run.mkdir(exist_ok=True)
    install(with_.folder / "etc" / "job_submit.lua", PluginOptions(run=run))
    configure(with_)
    drain(with_, without)
    publish(run)
    submit(with_, 5)  # reads the agents
    times = submit_pairs(with_, without, args.pairs)
    assert (routed(with_), routed(without)) == (args.pairs + 5, 0)
    with_.cancel_all()
    without.cancel_all()
    cpu_us, wall_us = timed_inside(with_, args.pairs)
    with_.cancel_all()
    middle = [median(each) for each in times]
    result = {
        "pairs": args.pairs,
        "with_us_median": middle[0],
        "without_us_median": middle[1],
        "throughput_ratio": round(middle[1] / middle[0], 4),
        "paired_difference_us_median": median(a - b for a, b in zip(*times, strict=True)),
        "before_the_plugin": {
            "throughput_ratio": round(median(neither[1]) / median(neither[0]), 4),
            "paired_difference_us_median": median(a - b for a, b in zip(*neither, strict=True)),
        },
        "inside_us": {"cpu": spread(cpu_us), "wall": spread(wall_us)},
        "load_average": os.getloadavg(),
    }
    Path("benchmarks/plugin_overhead.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
