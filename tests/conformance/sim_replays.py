"""More replays on a real, accelerated slurmctld, for sim_truth: other parameters, dependencies,
GPUs, other days.

    .venv/bin/python -m tests.conformance.sim_replays --out DIR [--only NAME ...] .venv/bin/python -m
    benchmarks.sim_truth --gold DIR .venv/bin/python -m tests.conformance.sim_replays --out DIR --random 8
    [--seed 1] [--kind limits] .venv/bin/python -m tests.conformance.sim_replays --out DIR --again
    ../shared/gold/w0227 [--times 2] .venv/bin/python -m benchmarks.sim_truth --gold
    ../shared/gold/w0227 --beside DIR/w0227_1 DIR/w0227_2

As root, with apt's slurm-wlm, slurmdbd, mariadb-server and libslurm-dev. Copies ../shared/fastclock
(its README says how the clock works) to DIR/.fastclock and builds it there; a database and slurmdbd
run on loopback meanwhile. Two to six minutes each. Workloads have fixed seeds or are windows of
../shared/traces; slurmctld makes something else of them each time, as its passes take time: how
much else, `--again` shows, with the jobs and the scheduler of a replay made before.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import itertools
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.sim_common import SHARED
from tests.conformance.sim_replay_cases import (
    CASES,
    INSTANCE,
    KINDS,
    OF_REPLAY,
    Case,
    Drawn,
    Row,
    again,
    command,
    drawn,
    options_of,
    workload,
)

DBD_PORT, MARIADB_PORT = 16929, 33316
FIRST_EVENT = 1_000_000
"""The job id of the first event in what replay.py reads."""
SHOWN = {"qos": "qos.txt", "assoc tree": "assoc.txt"}
"""What sacctmgr shows, and where sim_truth finds it."""
WRAPPER = """#!{python}
import json, os, subprocess, sys
given = json.load(open({options!r})).get(sys.argv[sys.argv.index("-J") + 1], {{}})
if "event" in given:  # replay.py notes that no job was submitted, and goes on
    sys.exit(subprocess.run(given["event"]).returncode)
if "task" in given:  # of an array that was submitted with its first
    sys.exit(print("job 0"))
os.execv({sbatch!r}, ["sbatch", *given.get("before", []), *sys.argv[1:], *given.get("after", [])])
"""
TASK = """\
set -- {runtimes}
shift $SLURM_ARRAY_TASK_ID
exec {simjob} $1
"""
KNOWN = """\
ClusterName=known
SlurmctldHost=localhost
SlurmUser=root
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={place}/state
SlurmctldPidFile={place}/pid
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStorageTRES=gres/gpu
GresTypes=gpu
NodeName=n1 Gres=gpu:4
PartitionName=p Nodes=n1
"""


LIMITS = (
    (r"sched,nodelist\n", r"sched,nodelist,limit_min\n"),
    (r"""{d['NodeList']}\"\n""", r"""{d['NodeList']}\",{d['TimeLimit']}\n"""),
)
"""Of replay.py: what it writes of a job, and the limit that the job had at its end."""


LAST_COUNT = """try: n=sum(1 for _ in open(f'{RUN}/jobcomp.txt'))
        except OSError: n=0"""
"""Of replay.py: how many jobs have ended, after the last submission."""


WAITING_AGENT = (
    ("static void plog(char,int);", "static __thread int is_sched;\nstatic void plog(char,int);"),
    (
        "  int rc;\n  for(;;){ double s=sc_now(); if(s>=T-1e-7){ rc=ETIMEDOUT;",
        """  if(is_sched==1){ static int k=-1; if(k<0) k=sc_slot_get();
    sc_event(3,-1000); pthread_mutex_unlock(m); sc_sleep(k,T,-1,0,-1);
    sc_event(3,1); pthread_mutex_lock(m); return ETIMEDOUT; }
  int rc;
  for(;;){ double s=sc_now(); if(s>=T-1e-7){ rc=ETIMEDOUT;""",
    ),
)
"""Of preload.c: while main's thread waits for sched_min_interval it is not busy, and the clock goes
on.
"""


def tools(out: Path) -> Path:
    """The clock and the driver, built."""
    place = out / ".fastclock"
    if not place.exists():
        shutil.copytree(SHARED / "fastclock", place)
        for item in (place, *place.iterdir()):
            item.chmod(item.stat().st_mode | stat.S_IWUSR)
        preload = place / "preload.c"
        preload.write_text(_changed(preload.read_text(), WAITING_AGENT, preload))
    subprocess.run(["make", "-s", "-C", str(place)], check=True)
    return place


def _gres(out: Path, conf: str) -> str:
    """gres.conf for this slurm.conf, with files that stand for GPUs."""
    (out / ".dev").mkdir(exist_ok=True)
    for number in range(4):
        file = out / ".dev" / f"gpu{number}"
        if not file.exists():
            os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    nodes = re.findall(r"^NodeName=(\S+) .*Gres=gpu:(\d)", conf, re.M)
    return "".join(
        f"NodeName={names} Name=gpu File={out}/.dev/gpu[0-{int(gpus) - 1}]\n"
        for names, gpus in nodes
    )


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _changed(text: str, changes: Iterable[tuple[str, str]], file: Path) -> str:
    """This file's text with other parts in it. Raises SystemExit where it is not as expected."""
    for part, wanted in changes:
        if part not in text:
            sys.exit(f"{file} has no line {part!r}; this script needs another one")
        text = text.replace(part, wanted, 1)
    return text


def _driver(text: str, name: str, case: Case, out: Path, place: Path) -> str:
    """replay.py for this case."""
    text = _changed(
        text, [(OF_REPLAY[part], wanted) for part, wanted in case.conf], place / "replay.py"
    )
    if "Gres=" in text:
        nodes = text.replace("{a.nodes}", str(case.nodes))
        gres = f"open(f'{{RUN}}/gres.conf', 'w').write({_gres(out, nodes)!r})\n"
        text = _changed(text, [("jobs=[(", f"{gres}jobs=[(")], place / "replay.py")
    if case.accounting:
        calls = [f"sacctmgr -i {arguments}" for arguments in case.accounting]
        calls += [f"sacctmgr -P show {what} >{out}/{name}/{file}" for what, file in SHOWN.items()]
        tell = (
            f"for c in {calls!r}: subprocess.run(c, shell=True, env=os.environ | {{'SLURM_CONF':"
            " RUN+'/slurm.conf'})"
        )
        changes = [
            ("L=ctypes.CDLL", f"{tell}\nL=ctypes.CDLL"),
            ("procs=[]", "os.chmod(CLK, 0o666)\nprocs=[]"),
        ]
        text = _changed(text, changes, place / "replay.py")  # the clock runs from its making on
    # a task's row comes so long after its array's
    row_of = "str(int(d['Name'][1:]) + int(d.get('ArrayTaskId', 0)))"
    stamp = (  # Unknown: never eligible
        "datetime.fromisoformat(s if s[0].isdigit() else '1970-01-01')"
    )
    changes = [("rec[d['Name'][1:]]=d", f"rec[{row_of}]=d"), ("datetime.fromisoformat(s)", stamp)]
    kind = case.workload.kind if isinstance(case.workload, Drawn) else None
    if kind == "flexible":
        changes += LIMITS
    if kind == "requeues":  # a requeued job has a line for each run
        changes.append((LAST_COUNT, "n=len(ids)-len(run(['squeue','-h']).stdout.split(chr(10)))+1"))
    if kind in ("arrays", "gpu_arrays"):  # whose ids are told as they start
        changes.append(("{jid},{d['JobId']},", "{jid},{jid},"))
    return _changed(text, changes, place / "replay.py")


def _given(rows: Sequence[Row], case: Case, place: Path) -> dict[str, dict[str, object]]:
    """For the wrapper of sbatch, by name of the job."""
    given: dict[str, dict[str, object]] = {
        f"J{row['job_id']}": {"before": options_of(row)} for row in rows
    }
    for row in rows:
        if row.get("requeue"):
            given[f"J{row['job_id']}"]["after"] = ["--requeue"]
    for first, found in itertools.groupby(rows, lambda row: row.get("array_job_id") or None):
        if first is not None:
            members = list(found)
            given |= {f"J{row['job_id']}": {"task": True} for row in members}
            throttle = f"%{members[0]['array_throttle']}" if members[0]["array_throttle"] else ""
            runtimes = " ".join(str(row["runtime_s"]) for row in members)
            script = TASK.format(runtimes=runtimes, simjob=place / "simjob")
            array = [f"--array=0-{len(members) - 1}{throttle}", "--wrap", script]
            given[f"J{first}"] = {"before": options_of(members[0]), "after": array}
    return given | {
        f"J{FIRST_EVENT + at}": {"event": command(event)} for at, event in enumerate(case.events)
    }


def replay(name: str, case: Case, out: Path, place: Path) -> bool:
    """Runs it; whether it came to its end. Its output is in DIR/NAME.log."""
    rows = workload(case.workload, case.nodes)
    jobs, options, driver = out / f"{name}.csv", out / f"{name}.json", place / f"replay_{name}.py"
    (out / name).mkdir(exist_ok=True)  # sacctmgr shows into it
    nothing: Row = dict.fromkeys(rows[0], 1)
    told = [
        nothing | {"job_id": FIRST_EVENT + at, "submit_s": event.time_s}
        for at, event in enumerate(case.events)
    ]
    _write(jobs, [*rows, *told])
    options.write_text(json.dumps(_given(rows, case, place)))
    driver.write_text(_driver((place / "replay.py").read_text(), name, case, out, place))
    wrapper = out / ".bin" / "sbatch"
    wrapper.parent.mkdir(exist_ok=True)
    sbatch = shutil.which("sbatch")
    wrapper.write_text(WRAPPER.format(python=sys.executable, options=str(options), sbatch=sbatch))
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "FASTCLOCK_DBD_PORT": str(DBD_PORT),
        "FASTCLOCK_RUN": str(out / ".run"),
    }
    call = [
        sys.executable,
        str(driver),
        "--jobs",
        str(jobs),
        "--out",
        str(out / name),
        "--nodes",
        str(case.nodes),
    ]
    with (out / f"{name}.log").open("w") as log:
        done = subprocess.run(
            [*call, "--k", str(INSTANCE), *case.options],
            env=environment,
            stdout=log,
            stderr=log,
            check=False,
        )
    passes = out / name / "passes.csv"
    if done.returncode or not passes.exists():
        return False
    with gzip.open(out / name / "passes.csv.gz", "wb") as file:
        file.write(passes.read_bytes())
    passes.unlink()
    _write(out / name / "jobs.csv", rows)
    if case.events:
        _write(out / name / "events.csv", [event._asdict() for event in case.events])
    (out / name / "notes.md").write_text("replay t=0 is 120.0 s after slurmctld's clock start\n")
    return True


def wait_for_slurmdbd() -> None:
    for _ in range(60):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", DBD_PORT), timeout=1),
        ):
            return
        time.sleep(0.5)
    sys.exit(
        f"slurmdbd does not answer on port {DBD_PORT}; see slurmdbd.log in .database of the folder"
    )


def make_gpus_known(out: Path) -> None:
    """slurmdbd takes limits of GPUs once it has heard of them, from a slurmctld: this one runs for
    a moment.
    """
    place = out / ".known"
    place.mkdir(exist_ok=True)
    conf = KNOWN.format(place=place, dbd=DBD_PORT, port=DBD_PORT + 1)
    (place / "gres.conf").write_text(_gres(out, conf))
    (place / "slurm.conf").write_text(conf)
    environment = os.environ | {"SLURM_CONF": str(place / "slurm.conf")}
    with (place / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["slurmctld", "-D", "-c"], env=environment, stdout=log, stderr=log
        )
    try:
        for _ in range(60):
            call = ["sacctmgr", "-nP", "show", "tres", "format=type,name"]
            shown = subprocess.run(
                call, env=environment, capture_output=True, text=True, check=False
            )
            if "gres|gpu" in shown.stdout.split():
                return
            time.sleep(0.5)
        sys.exit(f"slurmdbd does not get to know GPUs; see {place}/log")
    finally:
        daemon.terminate()
        daemon.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the replays, which sim_truth takes"
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(CASES), default=list(CASES), help="default: all"
    )
    parser.add_argument(
        "--random", type=int, metavar="N", help="so many random ones, instead of these"
    )
    parser.add_argument(
        "--kind", choices=list(KINDS), default="whole", help="of the random ones (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first (%(default)s); the others have the next"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FOLDER", help="a replay to make again, instead of these"
    )
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
        if any("gres/gpu" in command for case in cases.values() for command in case.accounting):
            make_gpus_known(out)
        failed = [name for name, case in cases.items() if not replay(name, case, out, place)]
    finally:
        subprocess.run([str(place / "dbd-up"), "--down", database], check=False)
    if failed:
        sys.exit(f"not done: {', '.join(failed)}; see NAME.log in {out}")


if __name__ == "__main__":
    main()
