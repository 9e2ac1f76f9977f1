"""The daemon against a real slurmctld with a long queue and many chains: CPU time, memory, calls,
slurmctld's own CPU.

    scripts/slurm-up --dir D --set MaxJobCount=60000 --set MaxArraySize=30000 MIRAGE_SLURM_DIR=D
    .venv/bin/python -m benchmarks.real_load [--queued 20000] [--chains 2000] [--cycles 5]

One job array of another user is the queue; each chain is a running or waiting link and its
successor, submitted with Mirage's tag by plain sbatch. The daemon only observes, as root. All jobs
are ended afterwards.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from mirage.config import PolicyConfig
from mirage.daemon.audit import Audit
from mirage.daemon.cycle import Daemon
from mirage.daemon.restraint import Acting
from mirage.daemon.wall_clock import WallClock
from mirage.domain import ActingMode
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.provision.policies.registry import make_policy
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import CommandResult, Runner, run_bounded
from mirage.store.journal import Journal
from mirage.store.repository import SqlStore
from tests.slurm.site import ALICE, BOB, CAROL, Site, the_site, until

FILL = """
set -e
for n in $(seq -f %05g {chains}); do
    tag="mirage/1 chain=load$n seg"
    first=$(sbatch --parsable -o/dev/null -n1 -t60 --comment="$tag=1/9 mode=train ei=1 eo=1" {script})
    tag="$tag=2/9 pred=$first mode=train"
    sbatch -o/dev/null -n1 -t60 -d afterany:$first --comment="$tag ei=1 eo=1" {script} >/dev/null
done
"""


class Calls:
    """Runs commands and counts them."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def execute(
        self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float, limit: int
    ) -> CommandResult:
        self.asked[Path(argv[0]).name] += 1
        return run_bounded(argv, env, timeout_s, limit)


def fill(site: Site, queued: int, chains: int) -> None:
    """Nodes full, then the queue, then the chains."""
    scripts = {
        user: site.script(user, "load.sh", "#!/bin/sh\nexec sleep 3600\n")
        for user in (ALICE, BOB, CAROL)
    }
    for _ in range(16):
        site.run(CAROL, "sbatch", "-o/dev/null", "-n1", "-t60", scripts[CAROL])
    site.run(ALICE, "sh", "-c", FILL.format(chains=chains, script=scripts[ALICE]), timeout_s=900)
    site.run(BOB, "sbatch", "-o/dev/null", "-n1", "-t60", f"--array=0-{queued - 1}", scripts[BOB])
    until(lambda: queue_length(site) >= queued + 2 * chains, 60, "all jobs to be in the queue", 1)


def queue_length(site: Site) -> int:
    return site.run("root", "squeue", "-r", "-h", "-o", "%A").stdout.count("\n")


def slurmctld_cpu_s(site: Site) -> float:
    pid = next(site.folder.rglob("slurmctld.pid")).read_text().strip()
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def cpu_s() -> tuple[float, float]:
    """Our own, and that of the commands that ended."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=2_000)
    parser.add_argument("--cycles", type=int, default=5)
    args = parser.parse_args()
    site = the_site()
    os.environ |= {"SLURM_CONF": str(site.folder / "etc" / "slurm.conf")}
    fill(site, args.queued, args.chains)
    calls, rows = Calls(), []
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore.open(f"sqlite:///{Path(folder) / 'mirage.db'}")
        acting = Acting(mode=ActingMode.OBSERVE)
        journal = Journal(
            path=Path(folder) / "audit.jsonl", max_bytes=64 << 20, max_age_s=7 * 86_400, keep=20
        )
        daemon = Daemon(
            CommandCluster(Runner(timeout_s=120, execute=calls.execute)),
            store,
            WallClock(),
            make_policy(PolicyConfig()),
            poll_s=600,
            acting=acting,
            observers=(Audit(journal, acting.mode),),
            baselines=(Reactive(), Timer(10_800)),
        )
        for _ in range(args.cycles):
            calls.asked.clear()
            (own_s, commands_s), controller_s, wall_s = (
                cpu_s(),
                slurmctld_cpu_s(site),
                time.monotonic(),
            )
            assert daemon.run_cycle()
            after = cpu_s()
            spent = (after[0] - own_s, after[1] - commands_s, slurmctld_cpu_s(site) - controller_s)
            rows.append((*spent, time.monotonic() - wall_s, dict(calls.asked)))
        chains = len(store.active_chains())
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{queue_length(site)} jobs in the queue, {chains} chains; peak memory {peak_mib:.0f} MiB"
    )
    print(f"first cycle: {rows[0][0]:.2f} CPU s, commands {rows[0][4]}")
    names = ("daemon CPU s", "commands CPU s", "slurmctld CPU s", "wall s")
    figures = ", ".join(
        f"{name} {median(row[index] for row in rows[1:]):.2f}" for index, name in enumerate(names)
    )
    site.cancel_all()
    print(f"then medians of a cycle: {figures}; commands {[row[4] for row in rows[1:]]}")


if __name__ == "__main__":
    main()
