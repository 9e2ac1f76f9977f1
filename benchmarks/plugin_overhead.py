"""What the routing plugin costs in a real slurmctld: blocks of submissions in turn with it and
without.

    scripts/slurm-up
    .venv/bin/python -m benchmarks.plugin_overhead [--rounds 20] [--block 50]

One slurmctld, since two of them differ by more than the plugin costs. Without: no job_submit plugin
at all; `scontrol reconfigure` takes it in and out. With: places and forecasts, or with `--agents`
agents of the size that `mirage route train` makes. A round is a block with it and two without, in an
order that turns; the two tell what chance alone makes. The queue is emptied before each block. Then a
clock around the plugin, inside slurmctld: of its own thread (Lua has none, and its `os.clock` counts
all of slurmctld's threads), so a C compiler is needed. Writes a JSON.
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

from benchmarks.sim_common import write_json
from mirage.routing.agent import Agent, Layer
from mirage.routing.decide import Table
from mirage.routing.flavors import Flavor, PartitionKind
from mirage.routing.places import ExpectedWait, NodeShape, Place
from mirage.routing.plugin import PluginOptions, install
from mirage.routing.publish import LIMITS_S, NODES
from mirage.routing.state import PartitionState, Variant, width
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from tests.slurm.site import ALICE, ROOT, Site, the_site

HIDDEN = (16, 8)
SIZES = [
    Flavor(name, gpus, 2 * gpus, 2000 * gpus, 86400)
    for name, gpus in (("s", 1), ("m", 1), ("l", 2))
]
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
    sizes = [width(kind, Variant.CHOICE, 2), *HIDDEN, 1]
    layers = [
        Layer(
            tuple(map(tuple, random.normal(size=(a, b)).tolist())),
            tuple(random.normal(size=b).tolist()),
        )
        for a, b in pairwise(sizes)
    ]
    return Agent(kind, Variant.CHOICE, tuple(layers))


def publish(run: Path, with_agents: bool) -> None:
    """Places with forecast waits, as `mirage route publish --partitions` makes them, or agents."""
    random = np.random.default_rng(1)
    shape = NodeShape(count=2, cpus=4, memory_mib=4000, gpus=2, gpu_type="-")
    waits = tuple(
        ExpectedWait(nodes=nodes, limit_s=limit_s, wait_s=600)
        for nodes in NODES
        for limit_s in LIMITS_S
    )
    places = tuple(Place(name=kind.name, shapes=(shape,), waits=waits) for kind in KINDS)
    now_s = int(time.time())
    if not with_agents:
        write(run, STATE, state_text(Table(now_s, 36000, (), places)))
        return
    agents = agents_text([an_agent(kind, random) for kind in KINDS])
    states = tuple(PartitionState.empty(kind) for kind in KINDS)
    write(run, AGENTS, agents)
    write(run, STATE, state_text(Table(now_s, 36000, states, places), agents))


def configure(site: Site) -> None:
    words = [
        str(ROOT / "scripts/slurm-up"),
        "--dir",
        str(site.folder),
        "--set",
        "JobSubmitPlugins=lua",
    ]
    words += [
        "--set",
        "PartitionName=left Nodes=n[1-2]",
        "--set",
        "PartitionName=right Nodes=n[3-4]",
    ]
    subprocess.run(words, check=True, capture_output=True)


def switch(site: Site, is_on: bool) -> None:
    conf = site.folder / "etc" / "slurm.conf"
    conf.write_text(
        re.sub("(?m)^#?(JobSubmitPlugins=)", r"\1" if is_on else r"#\1", conf.read_text())
    )
    site.run("root", "scontrol", "reconfigure")
    told = site.run("root", "scontrol", "show", "config").stdout
    assert bool(re.search("(?m)^JobSubmitPlugins += lua", told)) is is_on


def drain(site: Site) -> None:
    site.run("root", "scontrol", "update", "nodename=ALL", "state=drain", "reason=benchmark")


def a_script(site: Site) -> str:
    """A job for one GPU. Nothing starts: the nodes are drained."""
    return site.script(
        ALICE, "work.sh", "#!/bin/sh\n#SBATCH --gres=gpu:1 -t5 -o /dev/null\nexec sleep 1\n"
    )


SUBMISSIONS = """
for i in $(seq {count}); do
    begin=$EPOCHREALTIME
    sbatch -Q --parsable {script} >/dev/null 2>&1 || exit 1
    end=$EPOCHREALTIME
    echo $((${{end/./}} - ${{begin/./}}))
done
"""
WARM_UP = 5


def submit(site: Site, count: int) -> list[int]:
    """Microseconds of each submission."""
    loop = SUBMISSIONS.format(count=count, script=a_script(site))
    return [int(us) for us in site.run(ALICE, "bash", "-c", loop, timeout_s=900).stdout.split()]


def timed_block(site: Site, is_on: bool, count: int) -> list[int]:
    site.cancel_all()
    switch(site, is_on)
    times_us = submit(site, WARM_UP + count)[WARM_UP:]
    partitions = site.run("root", "squeue", "-h", "-o", "%P").stdout.split()
    assert len(partitions) == WARM_UP + count
    routed = [set(names.split(",")) <= {"left", "right"} for names in partitions]
    assert routed == [is_on] * len(partitions)
    return times_us


def rounds_of(site: Site, rounds: int, count: int) -> dict[str, list[list[int]]]:
    """Microseconds of each submission, by block."""
    blocks: dict[str, list[list[int]]] = {"with": [], "without": [], "without again": []}
    names = list(blocks)
    for number in range(rounds):
        for place in range(3):
            name = names[(number + place) % 3]
            blocks[name].append(timed_block(site, name == "with", count))
    return blocks


def ratio(above: list[list[int]], below: list[list[int]]) -> dict[str, float]:
    """Of throughputs, block by block: the median of the rounds, and half of them."""
    each = [median(b) / median(a) for a, b in zip(above, below, strict=True)]
    low, middle, high = np.percentile(each, [25, 50, 75])
    return {"median": round(middle, 4), "p25": round(low, 4), "p75": round(high, 4)}


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
    """Microseconds that each call took inside slurmctld: of its thread's CPU, and by the wall
    clock.
    """
    library = site.folder / "thread_clock.so"
    subprocess.run(
        ["cc", "-xc", "-", "-O2", "-shared", "-fPIC", "-o", library],
        input=CLOCK_C,
        text=True,
        check=True,
    )
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
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block", type=int, default=50, help="submissions in a block")
    parser.add_argument("--agents", action="store_true", help="with agents of two partitions")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/plugin_overhead.json"))
    args = parser.parse_args()
    site = the_site()
    run = site.folder / "routing"
    run.mkdir(exist_ok=True)
    install(site.folder / "etc" / "job_submit.lua", PluginOptions(run=run))
    configure(site)
    drain(site)
    publish(run, args.agents)
    blocks = rounds_of(site, args.rounds, args.block)
    site.cancel_all()
    switch(site, True)
    cpu_us, wall_us = timed_inside(site, args.rounds * args.block)
    site.cancel_all()
    result = {
        "rounds": args.rounds,
        "block": args.block,
        "us_median": {name: float(np.median(each)) for name, each in blocks.items()},
        "throughput_with_over_without": ratio(blocks["with"], blocks["without"]),
        "throughput_without_over_without": ratio(blocks["without again"], blocks["without"]),
        "inside_us": {"cpu": spread(cpu_us), "wall": spread(wall_us)},
        "load_average": os.getloadavg(),
    }
    write_json(args.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
