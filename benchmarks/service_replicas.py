"""Three replicas of a service against three chains that a user submits at once.

usage: python -m benchmarks.service_replicas [--backgrounds 'demo 1,2023-02'] [--links 48]
           [--nodes 1] [--replicas 3] [--arms 'reactive;apart;lead:3h;chains;replicas'] [--trace CSV]
           [--out benchmarks/service_replicas.json]

Backgrounds as in `benchmarks.service_chains`; all are submitted at once and watched for 21 days. A
link is ready 10 minutes after its start. Arms:

reactive   chains that Slurm alone runs
apart      one service that Slurm alone runs: its first links have limits that are spread
lead:D     chains whose successors enter the queue D before their predecessor's limit
chains     chains of their own under Mirage's rule for services
replicas   one service under that rule, which keeps its replicas apart

`one`, `every`: share of the time with at least one up, and with all, in %, since the first was ready.
`twice_node_h`: two links of one replica held nodes. `node_h`: all node-hours held. Each row is written
as it is measured; rows that `--out` has are kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import service_chains
from benchmarks.chain_goodput import TRACE
from benchmarks.sim_common import write_json
from mirage.chain.progress import chain_progress
from mirage.chain.serving import serving
from mirage.chain.together import Span, Together, together
from mirage.domain import HANDOVER_S, Link
from slurm_sim.seconds import DAY_S, HOUR_S

LASTS_S = 21 * DAY_S
KEY = ("background", "nodes", "link_h", "replicas", "arm")


def measured(
    name: str, trace: Path, nodes: int, link_h: int, count: int, arm: str
) -> dict[str, Any]:
    """A row."""
    begun_s = time.process_time()
    service_chains.LONG = replace(
        service_chains.LONG, chains=count, apart_s=0, lasts_s=LASTS_S, has_one_user=True
    )
    on = service_chains.background(name, trace, nodes, link_h)
    rule = {"apart": "reactive", "chains": "uptime", "replicas": "uptime"}.get(arm, arm)
    policy, ahead = service_chains.policy_of(rule, on.simulator, on.scenario.limit_s)
    service = "service" if arm in ("apart", "replicas") else None
    scenario = replace(on.scenario, service=service, first_links_end_apart=arm == "apart")
    on = replace(on, scenario=replace(scenario, ahead=ahead))
    links, until_s = service_chains.links_of(on, policy), on.scenario.end_s
    parts = [chain_progress(each, until_s, start_up_s=HANDOVER_S) for each in links]
    found = up_together(links, until_s)
    held_s = sum(held(each, until_s) for each in links)
    return {
        "background": name,
        "nodes": nodes,
        "link_h": link_h,
        "replicas": count,
        "arm": arm,
        "wall_h": round(found.wall_s / HOUR_S, 2),
        "one": round(100 * (found.one or 0), 3),
        "every": round(100 * (found.all or 0), 3),
        "node_h": round(nodes * held_s / HOUR_S, 1),
        "twice_node_h": round(nodes * sum(part.held_twice_s for part in parts) / HOUR_S, 1),
        "handovers": sum(part.handovers for part in parts),
        "cpu_s": round(time.process_time() - begun_s, 1),
    }


def up_together(replicas: Sequence[Sequence[Link]], until_s: int) -> Together:
    """All are to serve from when the first one was ready."""
    every = [served(links, until_s) for links in replicas]
    first_s = min((since_s for spans in every for since_s, _ in spans), default=until_s)
    return together([((first_s, until_s), spans) for spans in every])


def served(links: Sequence[Link], until_s: int) -> list[Span]:
    spans = [span for link in links if (span := serving(link, HANDOVER_S))]
    cut = [(since_s, min(end_s or until_s, until_s)) for since_s, end_s in spans]
    return [(since_s, end_s) for since_s, end_s in cut if since_s < end_s]


def held(links: Sequence[Link], until_s: int) -> int:
    """Seconds for which the links had their nodes."""
    runs = [(link.start_s, min(link.end_s or until_s, until_s)) for link in links]
    return sum(max(0, end_s - start_s) for start_s, end_s in runs if start_s is not None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backgrounds", default="demo 1,demo 2,demo 3,demo 4,2023-02")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--links", type=int, default=48, help="time limit of a link, hours")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--arms", default="reactive;apart;lead:10min;lead:3h;chains;replicas")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    known = {tuple(row[name] for name in KEY): row for row in rows}
    for name in args.backgrounds.split(","):
        for arm in args.arms.split(";"):
            key = (name, args.nodes, args.links, args.replicas, arm)
            if key not in known:
                row = measured(name, args.trace, args.nodes, args.links, args.replicas, arm)
                known[key] = row
                rows.append(row)
                write_json(args.out, rows)
            print(json.dumps(known[key]), flush=True)


if __name__ == "__main__":
    main()
