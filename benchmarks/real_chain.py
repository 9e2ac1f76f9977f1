"""Interruption and overlap of chains on a real slurmctld whose nodes are kept full: reactive,
daemon, agent.

    scripts/slurm-up && .venv/bin/python -m benchmarks.real_chain [--links 4] [--limit 2]

Two phases, each with a control at its side: Alice's chain under Mirage (first the site's daemon,
then her own agent) and Bob's chain of plain sbatch lines with `--dependency=afterany`, both of
one-node links that run to their limit, while Carol keeps all nodes full and jobs waiting. The
handover ends a predecessor whose successor is there, so an early start shows as a predecessor cut
short of its limit rather than as overlap. Starts and ends are slurmdbd's. Prints a table and writes
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

from mirage.chain.folder import queued_jobs
from tests.slurm.site import ALICE, BOB, OPERATOR, Site, the_site, until

WORK = "#!/bin/sh\n#SBATCH -N1 -t{limit} -o /dev/null\nexec sleep 3600\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--links", type=int, default=4)
    parser.add_argument("--limit", type=int, default=2, help="minutes")
    parser.add_argument("--poll", type=int, default=3, help="seconds between two cycles")
    parser.add_argument("--backlog", type=int, default=5, help="jobs of Carol's that wait")
    parser.add_argument("--policy", default="quantile")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/real_chain.json"))
    args = parser.parse_args()
    site = the_site()
    site.install()
    site.cancel_all()
    results = [run_phase(site, who, args) for who in ("daemon", "agent")]
    args.out.write_text(
        json.dumps({"options": vars(args) | {"out": str(args.out)}, "phases": results}, indent=1)
        + "\n"
    )
    report(results, args.limit * 60)


def run_phase(site: Site, who: str, args: argparse.Namespace) -> dict[str, object]:
    """Alice's chain under Mirage and Bob's by hand, at the same time."""
    work = WORK.format(limit=args.limit)
    with site.full(backlog=args.backlog, run_s=(40, 80)):
        server = start_server(site, who, args)
        try:
            time.sleep(150)  # so that waits are known, as on any site where the service runs
            chain, _ = site.submit_chain(
                ALICE, f"--segments={args.links}", site.script(ALICE, "work.sh", work)
            )
            hand = by_hand(site, site.script(BOB, "work.sh", work), args.links)
            until(
                lambda: is_over(site, chain, hand, args.links),
                args.links * (args.limit * 60 + 400),
                "the chains",
                3,
            )
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)
    mine = queued_jobs(site.home(ALICE) / ".mirage" / "chains" / chain)
    return {who: handovers(site, mine), "reactive": handovers(site, dict(enumerate(hand, start=1)))}


def start_server(site: Site, who: str, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    folder = site.socket.parent
    subprocess.run(["rm", "-rf", str(folder), str(site.home(ALICE) / ".local")], check=True)
    folder.mkdir()
    (folder / "mirage.toml").write_text(
        f'[acting]\nmode = "enforce"\n[daemon]\nstore = "sqlite:///{folder}/mirage.db"\nsocket ='
        f' "{site.socket}"\n'
    )
    subprocess.run(["chown", "-R", f"{OPERATOR}:", str(folder)], check=True)
    words = [f"--poll={args.poll}", f"--policy={args.policy}"]
    if who == "agent":
        return site.start(ALICE, "mirage", "agent", *words, log=folder / "agent.log")
    return site.start(
        OPERATOR,
        "mirage",
        "daemon",
        "--config",
        str(folder / "mirage.toml"),
        *words,
        log=folder / "daemon.log",
    )


def by_hand(site: Site, script: str, links: int) -> list[int]:
    """The chain as users make it today."""
    jobs: list[int] = []
    for _ in range(links):
        after = [f"--dependency=afterany:{jobs[-1]}"] if jobs else []
        jobs.append(int(site.run(BOB, "sbatch", "--parsable", *after, script).stdout))
    return jobs


def is_over(site: Site, chain: str, hand: list[int], links: int) -> bool:
    last = [queued_jobs(site.home(ALICE) / ".mirage" / "chains" / chain).get(links), hand[-1]]
    return all(job and site.state(job) not in ("PENDING", "RUNNING", "COMPLETING") for job in last)


def handovers(site: Site, jobs: dict[int, int]) -> list[dict[str, int]]:
    times = {k: slurm_times(site, job) for k, job in jobs.items()}
    return [
        {
            "link": k,
            "interruption_s": max(0, times[k][0] - times[k - 1][1]),
            "overlap_s": max(0, times[k - 1][1] - times[k][0]),
            "ran_s": times[k - 1][1] - times[k - 1][0],
        }
        for k in sorted(times)
        if k > 1
    ]


def slurm_times(site: Site, job: int) -> tuple[int, int]:
    """(start, end) by slurmdbd."""
    row = site.run(
        "root", "sacct", "-XPnD", "-j", str(job), "-o", "Start,End", "-S", "now-2hours"
    ).stdout.split()[-1]
    start, end = row.split("|")
    return int(start), int(end)


def report(results: list[dict[str, object]], limit_s: int) -> None:
    for phase in results:
        for name, rows in phase.items():
            assert isinstance(rows, list)
            costs = [
                (r["interruption_s"], r["overlap_s"], max(0, limit_s - r["ran_s"])) for r in rows
            ]
            each = ", ".join("/".join(map(str, cost)) for cost in costs)
            means = "/".join(f"{fmean(column):.1f}" for column in zip(*costs, strict=True))
            print(
                f"{name:>9}: interruption/overlap/cut short, s by handover: {each}; means {means}"
            )


if __name__ == "__main__":
    sys.exit(main())
