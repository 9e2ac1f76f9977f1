"""What the routing plugin costs in a real slurmctld: paired blocks of submissions with and without it.

    scripts/slurm-up --set "PartitionName=left Nodes=n[1-2]" --set "PartitionName=right Nodes=n[3-4]"
    .venv/bin/python -m benchmarks.plugin_overhead [--blocks 20] [--each 50]

Without: no job_submit plugin at all, so slurmctld is started anew for each block. With: agents of the size that
`mirage route train` makes. Then once more with a clock around the plugin, inside slurmctld. Writes a JSON beside it.
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
from mirage.routing.state import PartitionState, Variant, width
from mirage.routing.table import AGENTS, STATE, agents_text, state_text, write
from tests.slurm.site import ALICE, ROOT, Site, the_site

HIDDEN = (24, 12)
SIZES = [Flavor(name, gpus, 2 * gpus, 2000 * gpus, 86400) for name, gpus in (("s", 1), ("m", 1), ("l", 2))]
KINDS = [PartitionKind(name, 2, 2, 4, 4000, 0.0, 0.0, tuple(SIZES)) for name in ("left", "right")]
CLOCK = """
local router = mirage.router
mirage.router = function(options)
    local route = router(options)
    return function(job, parts)
        local begin = os.clock()
        local outcome = route(job, parts)
        slurm.log_info("mirage_us=%.0f %s", (os.clock() - begin) * 1e6, outcome)
        return outcome
    end
end
"""


def an_agent(kind: PartitionKind, random: np.random.Generator) -> Agent:
    sizes = [width(kind, Variant.OURS), *HIDDEN, kind.actions.count]
    layers = [
        Layer(tuple(map(tuple, random.normal(size=(a, b)).tolist())), tuple(random.normal(size=b).tolist()))
        for a, b in pairwise(sizes)
    ]
    return Agent(kind, Variant.OURS, tuple(layers))


def publish(run: Path) -> None:
    random = np.random.default_rng(1)
    agents = agents_text([an_agent(kind, random) for kind in KINDS])
    table = Table(int(time.time()), 3600, tuple(PartitionState.empty(kind) for kind in KINDS))
    write(run, AGENTS, agents)
    write(run, STATE, state_text(table, agents))


def configure(site: Site, plugin: bool) -> None:
    line = "JobSubmitPlugins=lua" if plugin else "JobSubmitPlugins="
    subprocess.run(
        [str(ROOT / "scripts/slurm-up"), "--dir", str(site.folder), "--set", line], check=True, capture_output=True
    )


def submit(site: Site, count: int) -> float:
    """Seconds for so many submissions, one after the other, by one shell; they never start."""
    script = site.script(ALICE, "work.sh", "#!/bin/sh\n#SBATCH --gres=gpu:1 -t5 -o /dev/null\nexec sleep 1\n")
    loop = f"for i in $(seq {count}); do sbatch -Q --parsable {script} >/dev/null 2>&1 || exit 1; done"
    begin = time.perf_counter()
    site.run(ALICE, "sh", "-c", loop, timeout_s=600)
    return time.perf_counter() - begin


def routed(site: Site) -> int:
    names = site.run("root", "squeue", "-h", "-o", "%P").stdout.split()
    return sum(name in ("left", "right") for name in names)


def timed_inside(site: Site, count: int) -> list[float]:
    """Microseconds of CPU that each call took, by a clock inside slurmctld."""
    script = site.folder / "etc" / "job_submit.lua"
    text = script.read_text().replace("    if good then\n", "    if good then\n" + CLOCK, 1)
    script.write_text(text)
    later = int(time.time()) + 5
    os.utime(script, (later, later))
    submit(site, count)
    log = (site.folder / "log" / "slurmctld.log").read_text()
    return [float(value) for value in re.findall(r"mirage_us=(\d+) routed", log)][-count:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--each", type=int, default=50)
    args = parser.parse_args()
    site = the_site()
    run = site.folder / "routing"
    run.mkdir(exist_ok=True)
    # Nobody's jobs start, so that only submission is timed.
    site.run("root", "scontrol", "update", "nodename=ALL", "state=drain", "reason=benchmark", check=False)
    install(site.folder / "etc" / "job_submit.lua", PluginOptions(run=run))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for block in range(args.blocks):
        for plugin in (False, True) if block % 2 else (True, False):
            configure(site, plugin)
            publish(run)
            submit(site, 5)
            seconds[plugin].append(submit(site, args.each))
            jobs = routed(site)
            assert jobs == (args.each + 5 if plugin else 0), f"{jobs} jobs were routed"
            site.cancel_all()
    configure(site, True)
    publish(run)
    inside = timed_inside(site, args.each * args.blocks)
    site.cancel_all()
    ratio = [without / with_ for without, with_ in zip(seconds[False], seconds[True], strict=True)]
    result = {
        "pairs": args.blocks,
        "submissions_each": args.each,
        "without_ms": round(1000 * median(seconds[False]) / args.each, 3),
        "with_ms": round(1000 * median(seconds[True]) / args.each, 3),
        "throughput_ratio_of_medians": round(median(seconds[False]) / median(seconds[True]), 4),
        "throughput_ratio_of_pairs_median": round(median(ratio), 4),
        "throughput_ratio_each": [round(value, 4) for value in ratio],
        "load_average": os.getloadavg(),
        "inside_us": {
            "calls": len(inside),
            "median": float(np.median(inside)),
            "p99": float(np.percentile(inside, 99)),
            "max": max(inside),
        },
    }
    Path("benchmarks/plugin_overhead.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
