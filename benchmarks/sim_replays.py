"""More replays on a real, accelerated slurmctld, for sim_truth: other parameters, dependencies, GPUs, other days.

    .venv/bin/python -m benchmarks.sim_replays --out DIR [--only NAME ...]
    .venv/bin/python -m benchmarks.sim_truth --gold DIR
    .venv/bin/python -m benchmarks.sim_replays --out DIR --random 8 [--seed 1] [--kind partitions]
    .venv/bin/python -m benchmarks.sim_replays --out DIR --again ../shared/gold/w0227 [--times 2]
    .venv/bin/python -m benchmarks.sim_truth --gold ../shared/gold/w0227 --beside DIR/w0227_1 DIR/w0227_2

As root, with apt's slurm-wlm, slurmdbd, mariadb-server and libslurm-dev. Copies ../shared/fastclock (its README says
how the clock works) to DIR/.fastclock and builds it there; a database and slurmdbd run on loopback meanwhile. Two to
six minutes each. Workloads have fixed seeds or are windows of ../shared/traces; slurmctld makes something else of them
each time, as its passes take time: how much else, `--again` shows, with the jobs and the scheduler of a replay made
before.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import json
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.sim_common import SHARED
from slurm_sim.config import DAY_S

BEGIN_S = 1893456120
"""Second 0 of a replay on replay.py's clock (its EPOCH and --offset)."""
DBD_PORT, MARIADB_PORT, INSTANCE = 16929, 33316, 3
WRAPPER = """#!{python}
import json, os, sys
given = json.load(open({options!r}))
os.execv({sbatch!r}, ["sbatch", *given.get(sys.argv[sys.argv.index("-J") + 1], []), *sys.argv[1:]])
"""
OF_REPLAY = {
    "node": "CPUs=1 RealMemory=1000",
    "partitions": "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=EXCLUSIVE State=UP",
}
"""What replay.py writes into its slurm.conf, where a replay may want something else."""


@dataclass(frozen=True)
class Window:
    """Of a trace: jobs that ran or waited at the begin, submitted at once, then the submissions of some hours."""

    trace: str
    begin: str
    """UTC."""
    hours: int


@dataclass(frozen=True)
class Drawn:
    """Random jobs, of one of `KINDS`."""

    kind: str
    seed: int


@dataclass(frozen=True)
class Case:
    """One replay."""

    workload: str | Window | Path | Drawn
    """Path: a jobs.csv."""
    nodes: int
    options: tuple[str, ...] = ()
    """Of replay.py."""
    conf: tuple[tuple[str, str], ...] = ()
    """Instead of OF_REPLAY."""


def _sched(text: str) -> tuple[str, str]:
    return "--sched", text


def _prio(text: str) -> tuple[str, str]:
    return "--prio", text


FAST = "PartitionName=fast Nodes=n[1-6] MaxTime=INFINITE OverSubscribe=EXCLUSIVE PriorityTier=5 State=UP"
SIDE = "PartitionName=side Nodes=n[5-12] MaxTime=INFINITE OverSubscribe=EXCLUSIVE PriorityJobFactor=9 State=UP"
TWO_PARTITIONS = (("partitions", f"{OF_REPLAY['partitions']}\n{FAST}"),)
THREE_PARTITIONS = (("partitions", f"{OF_REPLAY['partitions']}\n{FAST}\n{SIDE}"),)
SHARED_NODES = ("partitions", "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
LONG = _sched("bf_window=2880,bf_continue")
BY_AGE = _prio("PriorityWeightAge=10000;PriorityMaxAge=7-0;PriorityWeightJobSize=1000;PriorityCalcPeriod=5")
CASES = {
    "small_first": Case(
        "steady",
        16,
        _prio("PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=5000;PriorityFavorSmall=YES"),
    ),
    "few_tested": Case("steady", 16, _sched("bf_interval=60,bf_max_job_test=20,bf_resolution=300,bf_window=720")),
    "no_weights": Case("steady", 16, _prio("PriorityWeightAge=0")),
    "builtin": Case("steady", 16, ("--schedtype", "sched/builtin")),
    "by_partition": Case("steady", 16, _sched("bf_max_job_part=15,bf_max_job_start=1,bf_continue")),
    "quick_age": Case(
        "steady",
        16,
        _prio(
            "PriorityWeightAge=100;PriorityMaxAge=0-2;PriorityWeightJobSize=100;PriorityFavorSmall=YES;"
            "PriorityCalcPeriod=1"
        ),
    ),
    "defaults": Case("bursts", 16, _sched("")),
    "main_alone": Case("bursts", 16, _sched("default_queue_depth=2,sched_interval=300,bf_interval=600")),
    "cons_tres": Case(
        "bursts",
        16,
        ("--select", "select/cons_tres", "--extra", "SelectTypeParameters=CR_Core_Memory"),
    ),
    "deferred": Case("wider", 24, _sched("bf_window=2880,bf_continue,defer")),
    "short_window": Case("wider", 24, _sched("bf_window=120,bf_max_job_test=50")),
    "timers": Case(
        "wider",
        24,
        _sched("sched_interval=30,batch_sched_delay=10,bf_interval=15,bf_continue,default_queue_depth=5"),
    ),
    "by_age": Case("steady", 16, _sched("bf_window=2880,bf_min_age_reserve=1800")),
    "by_priority": Case(
        "steady",
        16,
        (
            *_sched("bf_window=2880,bf_min_prio_reserve=300"),
            *_prio("PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=1000"),
        ),
    ),
    "few_reserved": Case("wider", 24, _sched("bf_window=2880,bf_job_part_count_reserve=2,bf_max_job_user_part=40")),
    "main_few": Case(
        "bursts", 16, _sched("partition_job_depth=3,sched_max_job_start=1,defer,bf_interval=120,sched_interval=45")
    ),
    "dependencies": Case("dependencies", 16, conf=TWO_PARTITIONS),
    "partitions": Case(
        "partitions",
        16,
        _prio("PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=500;PriorityWeightPartition=300"),
        THREE_PARTITIONS,
    ),
    "shared_gpus": Case(
        "shared",
        12,
        (
            "--select",
            "select/cons_tres",
            "--extra",
            "SelectTypeParameters=CR_Core_Memory;GresTypes=gpu;SlurmdParameters=config_overrides",
        ),
        (
            ("node", "CPUs=16 RealMemory=64000 Gres=gpu:4"),
            SHARED_NODES,
        ),
    ),
    "ls6_december": Case(Window("ls6_a100_dev", "2022-12-15T12:00", 30), 64, (*LONG, *BY_AGE)),
    "ls6_january": Case(Window("ls6_a100_dev", "2023-01-20T06:00", 30), 76, (*LONG, *BY_AGE)),
    "ls6_early_february": Case(Window("ls6_a100_dev", "2023-02-07T06:00", 30), 76, (*LONG, *BY_AGE)),
    "ls6_mid_february": Case(Window("ls6_a100_dev", "2023-02-13T12:00", 30), 76, (*_sched(""), *BY_AGE)),
    "kth_october": Case(Window("kth_sp2", "1996-10-22T12:00", 24), 100, (*LONG, *BY_AGE)),
    "kth_february": Case(
        Window("kth_sp2", "1997-02-11T06:00", 24),
        100,
        (
            *_sched("bf_window=2880,bf_continue,bf_max_job_test=1000,default_queue_depth=1000,bf_resolution=300"),
            *_prio("PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=1000;PriorityFavorSmall=YES"),
        ),
    ),
}
Row = dict[str, object]
WIDTHS = [1, 2, 3, 4, 6, 8, 12, 16], [40, 18, 6, 14, 6, 10, 3, 3]


def _runtime_s(dice: random.Random, limit_min: int) -> int:
    """A twelfth of the jobs is killed at the limit; most others end long before."""
    if dice.random() < 0.08:
        return 60 * limit_min + 1
    return max(5, int(60 * limit_min * dice.uniform(0.02, 1.0) ** 1.3))


def _jobs(seed: int, count: int, gap_s: float, kind: str) -> list[Row]:
    dice, now_s, rows = random.Random(seed), 0.0, list[Row]()
    for number in range(1, count + 1):
        if kind != "bursts":
            now_s += dice.expovariate(1 / gap_s)
        elif number % 20 == 1:
            now_s += dice.randint(600, 3600)
        elif dice.random() < 0.5:
            now_s += dice.choice([0, 0, 1, 2, 5, 17, 40])
        limit_min = dice.choice([10, 20, 30, 30, 60, 60, 120, 120, 240, 480])
        row: Row = {"job_id": number, "submit_s": int(now_s), "nodes": dice.choices(*WIDTHS)[0]}
        row |= {"timelimit_min": limit_min, "runtime_s": _runtime_s(dice, limit_min)}
        if kind == "dependencies":
            row |= {"partition": "gpu", "dependency": "", "begin_s": ""}
            if int(str(row["nodes"])) <= 6 and dice.random() < 0.25:
                row["partition"] = "fast"
            if number > 3 and dice.random() < 0.25:
                other = dice.randint(max(1, number - 25), number - 1)
                row["dependency"] = f"{dice.choice(['afterany', 'afterany', 'after'])}:{other}"
            elif dice.random() < 0.1:
                row["begin_s"] = int(now_s) + dice.randint(100, 9000)
        if kind == "partitions":
            fitting = [name for name, most in (("gpu", 16), ("fast", 6), ("side", 8)) if int(str(row["nodes"])) <= most]
            row["partition"] = dice.choice(fitting)
        if kind == "shared":
            row |= {"nodes": dice.choices([1, 2, 4], [80, 15, 5])[0], "cpus": dice.choice([1, 2, 4, 4, 8, 16])}
            row |= {"mem_mib": dice.choice([2000, 4000, 8000, 16000, 32000]), "gpus": dice.choices([0, 1, 2, 4])[0]}
            row["exclusive"] = int(dice.random() < 0.1)
        rows.append(row)
    return rows


def _of_window(window: Window, nodes: int) -> list[Row]:
    """Without jobs wider than the cluster, cancelled ones, and those that wait over 20 days (most likely held)."""
    begin_s = int(datetime.fromisoformat(window.begin).replace(tzinfo=UTC).timestamp())
    running, pending, later = list[Row](), list[Row](), list[Row]()
    with gzip.open(SHARED / "traces" / f"{window.trace}.csv.gz", "rt") as file:
        for job in csv.DictReader(file):
            submit_s, start_s, end_s, limit_s, wide = (
                int(job[name]) for name in ("submit", "start", "end", "timelimit_s", "nodes")
            )
            if end_s <= start_s or wide > nodes:
                continue
            row: Row = {
                "submit_s": 0,
                "nodes": wide,
                "timelimit_min": max(1, limit_s // 60),
                "runtime_s": end_s - start_s,
            }
            if begin_s < submit_s <= begin_s + 3600 * window.hours:
                later.append(row | {"submit_s": submit_s - begin_s})
            elif submit_s <= begin_s < start_s < submit_s + 20 * DAY_S:
                pending.append(row)
            elif start_s <= begin_s < end_s:
                left_s = max(60, limit_s - (begin_s - start_s))
                running.append(row | {"timelimit_min": left_s // 60, "runtime_s": min(end_s - begin_s, left_s + 60)})
    return [{"job_id": number} | row for number, row in enumerate((*running, *pending, *later), start=1)]


KINDS = {
    "whole": (),
    "dependencies": TWO_PARTITIONS,
    "partitions": THREE_PARTITIONS,
    "shared": (("node", "CPUs=16 RealMemory=64000"), SHARED_NODES),
}
"""Random cases, and what each has in its slurm.conf: jobs on whole nodes; such jobs with dependencies and begin times,
or in partitions that overlap; jobs that share nodes by CPUs and memory."""
DRAWN: dict[str, tuple[object, ...]] = {
    "bf_interval": (15, 20, 45, 60, 120),
    "bf_window": (720, 2880, 4320, 10080),
    "bf_resolution": (30, 120, 300, 600),
    "bf_max_job_test": (5, 20, 50, 1000),
    "bf_max_job_part": (10, 30),
    "bf_max_job_user": (8, 40),
    "bf_max_job_user_part": (10, 25),
    "bf_max_job_start": (1, 2, 5),
    "bf_min_age_reserve": (300, 3600),
    "bf_min_prio_reserve": (20, 500),
    "bf_job_part_count_reserve": (1, 3, 10),
    "bf_node_space_size": (10, 30),
    "bf_continue": ("",),
    "default_queue_depth": (1, 3, 20, 1000),
    "sched_interval": (20, 45, 120, 300),
    "batch_sched_delay": (1, 5, 20),
    "partition_job_depth": (1, 4, 20),
    "sched_max_job_start": (1, 3),
    "defer": ("",),
}
"""SchedulerParameters of random cases, and values that are not the default. Each is given in a sixth of them."""


def drawn(kind: str, seed: int) -> Case:
    """A random case: parameters, weights, a selection plugin, nodes, and jobs."""
    dice = random.Random(seed)
    chosen = {name: dice.choice(values) for name, values in DRAWN.items() if dice.random() < 1 / 6}
    if "bf_max_job_user" in chosen:
        chosen.pop("bf_max_job_user_part", None)
    parameters = ",".join(f"{name}={value}" if value != "" else name for name, value in chosen.items())
    weights = {
        "PriorityWeightAge": dice.choice([0, 100, 1000, 10000, 100000]),
        "PriorityMaxAge": dice.choice(["0-2", "1-0", "7-0"]),
        "PriorityWeightJobSize": dice.choice([0, 100, 1000, 10000]),
        "PriorityFavorSmall": dice.choice(["NO", "NO", "YES"]),
        "PriorityCalcPeriod": dice.choice([1, 2, 5, 10]),
    }
    options = [*_sched(parameters), *_prio(";".join(f"{name}={value}" for name, value in weights.items()))]
    if kind == "partitions":
        options[-1] += ";PriorityWeightPartition=300"
    if dice.random() < 0.3 or kind == "shared":
        options += ["--select", "select/cons_tres", "--extra", "SelectTypeParameters=CR_Core_Memory"]
    if kind == "shared":
        options[-1] += ";SlurmdParameters=config_overrides"
    if dice.random() < 0.1:
        options += ["--schedtype", "sched/builtin"]
    nodes = dice.choice([8, 16, 24, 40]) if kind in ("whole", "shared") else 16
    return Case(Drawn(kind, seed), nodes, tuple(options), KINDS[kind])


def _drawn_jobs(case: Drawn, nodes: int) -> list[Row]:
    """Some 200 jobs that ask for 0.9 to 1.6 times what the nodes can give."""
    dice = random.Random(f"jobs {case.seed}")
    shared = case.kind == "shared"
    rows = _jobs(case.seed, 200, 1, dice.choice(["steady", "bursts"]) if case.kind == "whole" else case.kind)
    for row in rows:
        if case.kind == "whole":
            row["nodes"] = min(nodes, max(1, round(int(str(row["nodes"])) * nodes / 16)))
        if shared:
            row["gpus"] = 0
    share = [max(int(str(row["cpus"])) / 16, int(str(row["mem_mib"])) / 64000) if shared else 1.0 for row in rows]
    asked = sum(
        part * int(str(row["nodes"])) * int(str(row["runtime_s"])) for part, row in zip(share, rows, strict=True)
    )
    stretch = asked / (nodes * dice.uniform(0.9, 1.6)) / max(1, int(str(rows[-1]["submit_s"])))
    for row in rows:
        before_s, row["submit_s"] = int(str(row["submit_s"])), int(int(str(row["submit_s"])) * stretch)
        if row.get("begin_s"):
            row["begin_s"] = int(str(row["submit_s"])) + int(str(row["begin_s"])) - before_s
    return rows


def workload(name: str | Window | Path | Drawn, nodes: int) -> list[Row]:
    """Its jobs, as sim_truth.py's jobs.csv has them."""
    if isinstance(name, Drawn):
        return _drawn_jobs(name, nodes)
    if isinstance(name, Path):
        with name.open() as file:
            return [dict(row) for row in csv.DictReader(file)]
    if isinstance(name, Window):
        return _of_window(name, nodes)
    seed, count, gap_s = {
        "steady": (11, 200, 90),
        "bursts": (77, 200, 0),
        "wider": (12, 260, 240),
        "dependencies": (41, 260, 150),
        "partitions": (51, 260, 150),
        "shared": (21, 350, 40),
    }[name]
    return _jobs(seed, count, gap_s, name)


def again(folder: Path) -> Case:
    """The jobs of a replay, under its scheduler. Raises SystemExit for one on shared nodes or with partitions."""
    lines = [line.strip().partition("=") for line in (folder / "slurm.conf").read_text().splitlines()]
    conf = {name: value for name, _, value in lines}
    if conf["SelectType"] != "select/linear" or sum(name == "PartitionName" for name, _, _ in lines) > 1:
        sys.exit(f"{folder}: not on whole nodes of one partition; add it to CASES with what its jobs ask for")
    with (folder / "actual_ext.csv").open() as file:
        nodes = max(int(number) for row in csv.DictReader(file) for number in re.findall(r"\d+", row["nodelist"]))
    weights = ";".join(
        f"{name}={value}" for name, value in conf.items() if name.startswith("Priority") and name != "PriorityType"
    )
    options = ("--schedtype", conf["SchedulerType"], *_sched(conf.get("SchedulerParameters", "")), *_prio(weights))
    return Case(folder / "jobs.csv", nodes, options)


def options_of(row: Row) -> list[str]:
    """What replay.py does not tell sbatch. Ids are slurmctld's: it counts from 1, too, in the same order."""
    given = {"partition": "--partition={}", "dependency": "--dependency={}", "mem_mib": "--mem={}"}
    found = [form.format(row[name]) for name, form in given.items() if row.get(name)]
    if row.get("cpus"):
        found += ["--ntasks-per-node=1", f"--cpus-per-task={row['cpus']}"]
    if row.get("gpus"):
        found.append(f"--gres=gpu:{row['gpus']}")
    if row.get("exclusive"):
        found.append("--exclusive")
    if row.get("begin_s"):
        begin = datetime.fromtimestamp(BEGIN_S + int(str(row["begin_s"])), UTC)
        found.append(f"--begin={begin:%Y-%m-%dT%H:%M:%S}")
    return found


def tools(out: Path) -> Path:
    """The clock and the driver, built."""
    place = out / ".fastclock"
    if not place.exists():
        shutil.copytree(SHARED / "fastclock", place)
        for item in (place, *place.iterdir()):
            item.chmod(item.stat().st_mode | stat.S_IWUSR)
    subprocess.run(["make", "-s", "-C", str(place)], check=True)
    return place


def _gres(out: Path) -> str:
    """gres.conf, with files that stand for GPUs."""
    (out / ".dev").mkdir(exist_ok=True)
    for number in range(4):
        file = out / ".dev" / f"gpu{number}"
        if not file.exists():
            os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    return f"Name=gpu File={out}/.dev/gpu[0-3]\n"


def replay(name: str, case: Case, out: Path, place: Path) -> bool:
    """Runs it; whether it came to its end. Its output is in DIR/NAME.log."""
    rows = workload(case.workload, case.nodes)
    jobs, options, driver = out / f"{name}.csv", out / f"{name}.json", place / f"replay_{name}.py"
    with jobs.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    options.write_text(json.dumps({f"J{row['job_id']}": options_of(row) for row in rows}))
    text = (place / "replay.py").read_text()
    for part, wanted in case.conf:
        if OF_REPLAY[part] not in text:
            sys.exit(f"{place}/replay.py has no line {OF_REPLAY[part]!r}; this script needs another one")
        text = text.replace(OF_REPLAY[part], wanted)
    if "Gres=" in text:
        text = text.replace("jobs=[(", f"open(f'{{RUN}}/gres.conf', 'w').write({_gres(out)!r})\njobs=[(", 1)
    driver.write_text(text)
    wrapper = out / ".bin" / "sbatch"
    wrapper.parent.mkdir(exist_ok=True)
    sbatch = shutil.which("sbatch")
    wrapper.write_text(WRAPPER.format(python=sys.executable, options=str(options), sbatch=sbatch))
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "FASTCLOCK_DBD_PORT": str(DBD_PORT), "FASTCLOCK_RUN": str(out / ".run")}
    command = [sys.executable, str(driver), "--jobs", str(jobs), "--out", str(out / name), "--nodes", str(case.nodes)]
    with (out / f"{name}.log").open("w") as log:
        done = subprocess.run(
            [*command, "--k", str(INSTANCE), *case.options], env=environment, stdout=log, stderr=log, check=False
        )
    passes = out / name / "passes.csv"
    if done.returncode or not passes.exists():
        return False
    with gzip.open(out / name / "passes.csv.gz", "wb") as file:
        file.write(passes.read_bytes())
    passes.unlink()
    (out / name / "notes.md").write_text("replay t=0 is 120.0 s after slurmctld's clock start\n")
    return True


def wait_for_slurmdbd() -> None:
    for _ in range(60):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", DBD_PORT), timeout=1):
            return
        time.sleep(0.5)
    sys.exit(f"slurmdbd does not answer on port {DBD_PORT}; see slurmdbd.log in .database of the folder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the replays, which sim_truth takes")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="default: all")
    parser.add_argument("--random", type=int, metavar="N", help="so many random ones, instead of these")
    parser.add_argument("--kind", choices=list(KINDS), default="whole", help="of the random ones (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first (%(default)s); the others have the next")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="a replay to make again, instead of these")
    parser.add_argument("--times", type=int, default=2, help="how often (%(default)s)")
    options = parser.parse_args()
    cases = {name: CASES[name] for name in options.only}
    if options.random is not None:
        seeds = range(options.seed, options.seed + options.random)
        cases = {f"{options.kind}_{seed}": drawn(options.kind, seed) for seed in seeds}
    elif options.again:
        case = again(options.again.resolve())
        cases = {f"{options.again.name}_{number}": case for number in range(1, options.times + 1)}
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    place = tools(out)
    database = str(out / ".database")
    subprocess.run([str(place / "dbd-up"), database, str(DBD_PORT), str(MARIADB_PORT)], check=True)
    try:
        wait_for_slurmdbd()
        failed = [name for name, case in cases.items() if not replay(name, case, out, place)]
    finally:
        subprocess.run([str(place / "dbd-up"), "--down", database], check=False)
    if failed:
        sys.exit(f"not done: {', '.join(failed)}; see NAME.log in {out}")


if __name__ == "__main__":
    main()
