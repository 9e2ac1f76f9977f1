"""Handovers of chains whose script leaves at its own `--signal`, on a real slurmctld whose nodes
are kept full.

    scripts/slurm-up --dir DIR && MIRAGE_SLURM_DIR=DIR python -m benchmarks.signal_chain

Two chains of three links (limit 3 min, `--signal=B:USR1@60`) beside another user's jobs of 20 to 40
s; an agent with the timer policy looks every two seconds. Takes up to ten minutes. Prints
interruption, overlap, limit given up (s).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from tests.slurm.site import ALICE, Site, the_site, until

SCRIPT = """#!/bin/sh
#SBATCH -N1 -t3 -o /dev/null --signal=B:USR1@60
trap 'sleep 1; exit 0' USR1
sleep 300 & wait $!
"""
CHAINS, LINKS = 2, 3


def has_started(site: Site, chain: str) -> bool:
    last = site.chain_jobs(ALICE, chain).get(LINKS, [])
    return any(site.state(job) != "PENDING" for job in last)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lead", type=int, default=40, help="the timer's, seconds (40)")
    args = parser.parse_args()
    site = the_site()
    if not os.environ.get("MIRAGE_SLURM_INSTALLED"):
        site.install()
    site.cancel_all()
    subprocess.run(["rm", "-rf", str(site.home(ALICE) / ".local")], check=True)
    config = Path(
        site.script(
            ALICE,
            "signal.toml",
            f'[policy]\nname = "timer"\n[policy.timer]\nlead_s = {args.lead}\n',
        )
    )
    with site.full(backlog=3, run_s=(20, 40)), tempfile.TemporaryDirectory() as folder:
        script = site.script(ALICE, "signal.sh", SCRIPT)
        chains = [site.submit_chain(ALICE, f"--segments={LINKS}", script)[0] for _ in range(CHAINS)]
        words = ["mirage", "agent", "--config", str(config), "--poll=2"]
        agent = site.start(ALICE, *words, log=Path(folder) / "agent.log")
        try:
            until(
                lambda: all(has_started(site, chain) for chain in chains), 580, "the last links", 5
            )
            until(
                lambda: all(_ended(site, chain) for chain in chains), 30, "the ends to be known", 2
            )
            for chain in chains:
                for link in _links(site, chain)[1:]:
                    print(
                        {key: link[key] for key in ("segment", "interruption_s", "overlap_s")},
                        bool(link["released"]),
                    )
                print("given up", sum(link["cut_short_s"] for link in _links(site, chain)))
        finally:
            agent.terminate()
            agent.wait(20)
    site.cancel_all()


def _links(site: Site, chain: str) -> list[dict[str, int]]:
    (report,) = json.loads(site.run(ALICE, "mirage", "history", chain, "--json").stdout)["chains"]
    return report["links"]


def _ended(site: Site, chain: str) -> bool:
    return all(link["end"] for link in _links(site, chain)[: LINKS - 1])


if __name__ == "__main__":
    main()
