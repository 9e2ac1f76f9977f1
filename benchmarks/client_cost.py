"""CPU and wall time of what users call, beside Slurm's own commands, in one run, in turn, median of
the rounds.

    scripts/slurm-up && .venv/bin/python -m benchmarks.client_cost [--rounds 15] [--jobs 1000] [--keep]

CPU time is that of the command and all that it runs (squeue, sbatch), user and system. `env` is how
all of them are started as a user; it is not taken off. ``--jobs``: so many jobs of another user
wait meanwhile. A chain has two links. With ``--keep`` the result goes to client_cost.json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.sim_common import HERE, machine, write_json
from tests.slurm.site import ALICE, CAROL, OPERATOR, Site, the_site, until

KEPT = HERE / "client_cost.json"
LATER = "--begin=now+1hour"
"""Never starts: only the submission is timed."""


def measured(site: Site, words: tuple[str, ...]) -> tuple[float, float]:
    """(CPU, wall) in ms of one call."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        site.argv(ALICE, words),
        env=site.environment(ALICE),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"{' '.join(words)}: exit {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000, (time.perf_counter() - begin) * 1000


@contextlib.contextmanager
def service(site: Site, user: str, folder: Path, *words: str) -> Iterator[None]:
    """A daemon or agent that has had its first cycles."""
    log = folder / "log"
    process = site.start(user, "mirage", *words, log=log)
    try:
        until(lambda: " started: " in log.read_text(), 60, f"{words[0]} to start")
        time.sleep(5)
        yield
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--keep", nargs="?", type=Path, const=KEPT, help=f"writes {KEPT.name}")
    args = parser.parse_args()
    site = the_site()
    if not os.environ.get("MIRAGE_SLURM_INSTALLED"):
        site.install()
    site.cancel_all()
    plain = site.script(
        ALICE, "plain.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nexec sleep 1\n"
    )
    chain = site.script(
        ALICE,
        "chain.sh",
        "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\n#MIRAGE --segments=2 --again\nsleep 1\n",
    )
    filler = site.script(
        CAROL, "filler.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nexec sleep 1\n"
    )
    for left in range(args.jobs, 0, -1000):  # slurmctld splits no array whose tasks do not start
        site.run(CAROL, "sbatch", LATER, f"--array=1-{min(left, 1000)}", filler)
    _chain, jobs = site.submit_chain(ALICE, "--segments=3", LATER, plain)
    asks = {
        "mirage status": ("mirage", "status"),
        "mirage explain": ("mirage", "explain", str(jobs[1])),
    }
    calls = {
        "env": ("true",),
        "squeue": ("squeue",),
        "squeue --me": ("squeue", "--me"),
        "sbatch": ("sbatch", LATER, plain),
        "mirage-sbatch, a plain job": ("mirage-sbatch", LATER, plain),
        "mirage-sbatch, a chain": ("mirage-sbatch", LATER, chain),
        "mirage-submit": ("mirage-submit", "--again", "--segments=2", LATER, plain),
        **asks,
    }
    found = {"alone": show(site, args.rounds, "neither daemon nor agent", calls)}
    with TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        config = folder / "mirage.toml"
        config.write_text(
            f'[daemon]\npoll_s = 600\nstore = "sqlite:///{folder}/d/m.db"\nsocket ='
            f' "{site.socket}"\n'
        )
        for path in (folder / "d", site.socket.parent):
            path.mkdir(exist_ok=True)
            subprocess.run(["chown", f"{OPERATOR}:", str(path)], check=True)
        (folder / "log").touch()
        with service(site, ALICE, folder, "agent", "--poll", "10min"):
            found["agent"] = show(site, args.rounds, "one's agent runs", asks)
        (folder / "log").write_text("")
        with service(site, OPERATOR, folder, "daemon", "--config", str(config)):
            found["daemon"] = show(
                site,
                args.rounds,
                "the site's daemon runs",
                {**asks, "mirage-submit": calls["mirage-submit"]},
            )
    site.cancel_all()
    if args.keep:
        write_json(
            args.keep, {**found, "rounds": args.rounds, "jobs": args.jobs, "machine": machine()}
        )


def show(
    site: Site, rounds: int, title: str, calls: dict[str, tuple[str, ...]]
) -> dict[str, dict[str, float]]:
    """Prints and returns the medians, in ms."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, words in calls.items():
            found[name].append(measured(site, words))
    print(
        f"{title}: median of {rounds}, ms ({os.getloadavg()[0]:.0f} processes wanted the"
        f" {os.cpu_count()} cores)"
    )
    medians = {
        name: {
            "cpu_ms": median(cpu for cpu, _ in times),
            "wall_ms": median(wall for _, wall in times),
        }
        for name, times in found.items()
    }
    for name, each in medians.items():
        print(f"  {name:28} CPU {each['cpu_ms']:5.0f}   wall {each['wall_ms']:5.0f}")
    return medians


if __name__ == "__main__":
    main()
