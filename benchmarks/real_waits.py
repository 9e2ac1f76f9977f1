"""Forecasts of `mirage when` on a real Slurm against what happened; scripts/real-waits says what it is."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_chains import ChainWorld
from benchmarks.real_waits_plan import FEATURES, PlannedJob, jobs_of
from mirage.provision.starts.queue_scores import MINUTE_S
from slurm_sim.seconds import DAY_S, HOUR_S
from tests.conformance.soak_world import Clock, FastSite
from tests.slurm.site import ALICE, BOB, CAROL, Site, until

FIRST, EVERY = 150, 3
"""Of the jobs after so many, each third one is asked about."""
WAYS = ("options", "script", "options", "id")
"""How, in turn."""
RESERVED_DAY, RESERVED_H = 5, 6
COUNTED = ("squeue", "sinfo", "sacct", "sbatch", "scontrol", "sacctmgr")
_COUNTER = """#!/bin/sh
echo "$USER ${0##*/} $1" >> LOG
PATH=${PATH#*:}
exec "${0##*/}" "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One forecast. Times are Unix seconds."""

    job: str
    """Its id, of an array that of the first task."""
    way: str
    options: str
    method: str
    at_s: int
    low_s: float
    middle_s: float
    high_s: float


def prepare(site: Site) -> None:
    """Features, a QOS with a limit, a reservation, and a count of Slurm's commands."""
    for nodes, feature in FEATURES.items():
        words = (f"nodename={nodes}", f"availablefeatures={feature}", f"activefeatures={feature}")
        site.run("root", "scontrol", "update", *words)
    site.run("root", "sacctmgr", "-i", "add", "qos", "few", "MaxJobsPerUser=4", check=False)
    users = ",".join((ALICE, BOB, CAROL))
    site.run("root", "sacctmgr", "-i", "modify", "user", users, "set", "qos+=few", check=False)
    begins = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(_now_s(site) + RESERVED_DAY * DAY_S))
    site.run("root", "scontrol", "delete", "reservationname=works", check=False)
    works = ("nodes=n[9-12]", f"starttime={begins}", f"duration={RESERVED_H * 60}", "users=root")
    site.run("root", "scontrol", "create", "reservation", "reservationname=works", *works)
    log = site.folder / "calls"
    log.write_text("")
    log.chmod(0o666)
    for name in COUNTED:
        (site.bin / name).write_text(_COUNTER.replace("LOG", str(log)))
        (site.bin / name).chmod(0o755)


def _now_s(site: Site) -> int:
    return int(site.run("root", "date", "+%s").stdout)


@dataclass(kw_only=True)
class WaitsRun:
    world: ChainWorld
    asked: list[Asked]
    unanswered: list[str]

    def run(self, jobs: Iterable[PlannedJob]) -> None:
        clock = self.world.clock
        for number, job in enumerate(jobs):
            while clock.elapsed_s() < job.submit_s:
                self.world.restart_dead_daemon()
                time.sleep(min(0.1, (job.submit_s - clock.elapsed_s()) / 1000 + 0.01))
            if number % 100 == 0:
                behind_s = clock.elapsed_s() - job.submit_s
                print(
                    f"{clock.elapsed_s() / HOUR_S:5.1f} h: job {number},"
                    f" {behind_s:.0f} s behind, {len(self.asked)} answers",
                    flush=True,
                )
            way = ""
            if number >= FIRST and number % EVERY == 0:
                way = WAYS[number // EVERY % len(WAYS)]
            self._submit(job, way)

    def _submit(self, job: PlannedJob, way: str) -> None:
        site, words = self.world.site, [*job.options]
        last = ["--wrap", f"sleep {job.run_s}"]
        if way == "script":
            given = "".join(f"#SBATCH {word}\n" for word in job.options)
            text = f"#!/bin/sh\n{given}sleep {job.run_s}\n"
            words, last = [], [site.script(job.user, "job.sh", text)]
        told = None
        if way in ("options", "script"):
            told = self._ask(job, last if way == "script" else words)
        command = ("sbatch", "--parsable", "-o/dev/null", *words, *last)
        done = site.run(job.user, *command, check=False, timeout_s=300)
        number = done.stdout.strip()
        if done.returncode:
            self.unanswered.append(f"sbatch: {done.stderr.strip()[-200:]}")
            return
        name = number + "_0" * any(word.startswith("--array") for word in job.options)
        if way == "id":
            told = self._ask(job, [name])
        if told:
            self.asked.append(_asked(name, way, job, told))

    def _ask(self, job: PlannedJob, words: list[str]) -> dict[str, Any] | None:
        command = ("mirage", "when", "--json", *words)
        done = self.world.site.run(job.user, *command, check=False, timeout_s=300)
        if done.returncode:
            self.unanswered.append(f"{' '.join(words)}: {done.stderr.strip()[-200:]}")
            return None
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def _asked(name: str, way: str, job: PlannedJob, told: dict[str, Any]) -> Asked:
    first = told["forecasts"][0]
    return Asked(
        job=name,
        way=way,
        options=" ".join(job.options[:-1]),
        method="free nodes"
        if "are free" in first["reason"] or "is free" in first["reason"]
        else told["method"],
        at_s=told["at"],
        low_s=first["wait_p10_s"],
        middle_s=first["wait_p50_s"],
        high_s=first["wait_p90_s"],
    )


def starts(site: Site, since_s: int) -> dict[str, int]:
    """By id, of all jobs that started."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_s - DAY_S))
    words = ("-a", "-n", "-X", "-P", "-S", begin, "--format=JobID,Start")
    told = site.run("root", "sacct", *words, timeout_s=300).stdout
    rows = (line.split("|") for line in told.splitlines())
    return {name: int(start) for name, start in rows if start.isdecimal()}


def scores(rows: list[tuple[Asked, float]], slack_s: float) -> dict[str, float]:
    """Of forecasts and real waits. ``slack_s``: what a start itself takes on the fast clock."""
    wait_s = np.array([wait for _, wait in rows])
    low_s, middle_s, high_s = np.array([(a.low_s, a.middle_s, a.high_s) for a, _ in rows]).T
    ratios = np.maximum(middle_s, MINUTE_S) / np.maximum(wait_s, MINUTE_S)
    below, above = wait_s < low_s - slack_s, wait_s > high_s + slack_s
    return {
        "jobs": len(rows),
        "covered": round(float((~below & ~above).mean()), 3),
        "sooner": round(float(below.mean()), 3),
        "later": round(float(above.mean()), 3),
        "within_2": round(float(((ratios >= 1 / 2) & (ratios <= 2)).mean()), 3),
        "within_3": round(float(((ratios >= 1 / 3) & (ratios <= 3)).mean()), 3),
        "p90_over_p10": round(float(np.median(np.maximum(high_s, 60) / np.maximum(low_s, 60))), 1),
    }


def by(rows: list[tuple[Asked, float]], name: str, slack_s: float) -> dict[str, dict[str, float]]:
    kinds = sorted({getattr(asked, name) for asked, _ in rows})
    return {
        kind: scores([row for row in rows if getattr(row[0], name) == kind], slack_s)
        for kind in kinds
    }


def judged(run: WaitsRun, began_s: int, speed: float) -> dict[str, Any]:
    slack_s = max(MINUTE_S, speed)  # a second of work
    known = starts(run.world.site, began_s)
    rows = [
        (asked, float(known[asked.job] - asked.at_s))
        for asked in run.asked
        if known.get(asked.job, 0) >= asked.at_s
    ]
    calls = (run.world.site.folder / "calls").read_text().splitlines()
    return {
        "all": scores(rows, slack_s),
        "by source": by(rows, "method", slack_s),
        "by way": by(rows, "way", slack_s),
        "by options": by(rows, "options", slack_s),
        "asked": len(run.asked),
        "unanswered": run.unanswered,
        "calls": Counter(calls).most_common(),
        "rows": [asdict(asked) | {"wait_s": wait_s} for asked, wait_s in rows],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="folder of scripts/slurm-up")
    parser.add_argument("--clock-library", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--load", type=float, default=0.72)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", type=float, default=300)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    clock = Clock(args.dir / "clock", args.speed)
    began_s = clock.now_s()
    site = FastSite(args.dir, str(args.clock_library), str(clock.path))
    run = WaitsRun(world=ChainWorld(site, clock), asked=[], unanswered=[])
    try:
        run.world.up("observe")
        prepare(site)
        late_s = int(clock.elapsed_s())  # what the start took
        jobs = jobs_of(args.jobs, args.load, args.seed)
        run.run(replace(job, submit_s=job.submit_s + late_s) for job in jobs)
        until(lambda: not site.run("root", "squeue", "-h", "-tPD").stdout, 300, "all starts", 2)
    finally:
        run.world.down()
    found = judged(run, began_s, args.speed) | {
        "seed": args.seed,
        "load": args.load,
        "speed": args.speed,
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    for name in ("by source", "by way", "by options"):
        for kind, figures in found[name].items():
            print(kind, figures)
    print(found["all"], dict(found["calls"]), found["unanswered"][:5])


if __name__ == "__main__":
    main()
