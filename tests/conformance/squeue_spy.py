"""A plain user watches all command lines for the separator of squeue's fields, and forges rows with
it.

    scripts/slurm-up --dir DIR && .venv/bin/python -m tests.conformance.squeue_spy DIR [--cycles 40]

Needs root. slurmctld is stopped for 0.4 s in each cycle, as if it were busy: that gives the user
time. Prints how many cycles failed or had a forged row.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mirage.errors import ClusterError
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from tests.slurm.site import ALICE, Site, until

PAUSE_S = 0.4

SPY = r"""
import os, re, subprocess, sys
job, log, parent = sys.argv[1:]
seen, stolen, last = set(), 0, ""
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read().decode(errors="replace")
            if f"PPid:\t{parent}\n" not in open(f"/proc/{pid}/status").read():
                continue  # of another program that runs beside
        except OSError:
            continue
        words = line.split("\0")
        name = os.path.basename(words[0])
        if name not in ("squeue", "sacct"):
            continue
        try:
            line += open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace")
        except OSError:
            pass
        mark = re.search(r"\|[0-9a-f]{16}\|", line)
        if mark and mark[0] != last:
            last, stolen = mark[0], stolen + 1
            text = last.join(["x\n666", "N/A", "root", "gpu", "root", "PENDING"] + 20 * ["1"])
            subprocess.run(["scontrol", "update", f"jobid={job}", f"comment={text}"], capture_output=True)
        if (pid, name) not in seen:
            seen.add((pid, name))
            with open(log + ".new", "w") as file:
                print(len(seen), stolen, file=file)
            os.replace(log + ".new", log)
"""
"""Reads all command lines and environments, takes the separator, and writes it into the comment of
its own job.
"""


@dataclass
class Spy:
    job_id: int
    """The job whose comment is forged."""
    seen: int = 0
    """Commands of this process that it saw;"""
    stolen: int = 0
    """and separators that it found, in their command lines or environments."""


@contextmanager
def spying(site: Site, cluster: CommandCluster) -> Iterator[Spy]:
    """Alice watches. What she saw is known at the end."""
    words = ["sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap", "hostname"]
    spy = Spy(int(site.run(ALICE, *words).stdout))
    program, log = site.script(ALICE, "spy.py", SPY), site.home(ALICE) / "spied"
    log.unlink(missing_ok=True)
    command = ["/usr/bin/python3", "-S", program, str(spy.job_id), str(log), str(os.getpid())]
    process = site.start(ALICE, *command, log=Path(os.devnull))
    try:
        until(lambda: cluster.snapshot() and log.exists(), 30, "the spy to watch", 0)
        yield spy
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        spy.seen, spy.stolen = map(int, log.read_text().split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cycles", type=int, default=40)
    args = parser.parse_args()
    site = Site(args.folder)
    cluster = CommandCluster(Runner(env=os.environ | site.environment("root"), retries=0))
    slurmctld = int((args.folder / "run" / "slurmctld.pid").read_text())
    failed = forged = 0
    try:
        with spying(site, cluster) as spy:
            for _ in range(args.cycles):
                os.kill(slurmctld, signal.SIGSTOP)
                threading.Timer(PAUSE_S, os.kill, (slurmctld, signal.SIGCONT)).start()
                try:
                    forged += 666 in cluster.snapshot().present
                except ClusterError as error:
                    failed += 1
                    print(error)
    finally:
        site.cancel_all()
    print(f"{args.cycles} cycles: {failed} failed, {forged} had a forged row")
    print(f"the user saw {spy.seen} commands and {spy.stolen} separators")


if __name__ == "__main__":
    main()
