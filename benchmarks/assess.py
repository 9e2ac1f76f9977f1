"""What `mirage assess` costs on histories that it has never seen: wall clock, CPU time, memory.

    python -m benchmarks.assess --name kth --trace kth_sp2.csv.gz --timezone Europe/Stockholm
    python -m benchmarks.assess --name pegasus --trace pegasus_dev.csv.gz --since 2020-05-25 --until 2020-07-01
    python -m benchmarks.assess --name "2.3 M jobs" --trace pegasus_dev.csv.gz --copies 6
    python -m benchmarks.assess --name "real Slurm" --slurm /var/tmp/mirage-slurm --load 2100
    python -m benchmarks.assess --name "its sacct alone" --sacct assessment/sacct.txt --out alone
    python -m benchmarks.assess --table

A job history is first written as sacct would print it. `--copies` puts it behind itself in time,
with other users each time. `--slurm DIR --load N` fills the accounting database of
scripts/slurm-up with N jobs of 40 days, which the simulator ran by that site's slurm.conf, and
assesses what sacct and scontrol say. Results: benchmarks/assess.json, by name.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.sim_common import write_json
from mirage.figures.provenance import provenance
from slurm_sim import JobSpec, Simulator
from slurm_sim.clusters import read_cluster
from slurm_sim.seconds import DAY_S, HOUR_S

RESULTS = Path(__file__).with_suffix(".json")
PROGRAM = Path(sys.executable).with_name("mirage")
TIMES = ("submit", "start", "end")
SLURM_DAYS = 40
PEOPLE = {
    "mirage-alice": ("research", 5),
    "mirage-bob": ("research", 6),
    "mirage-carol": ("others", 7),
}
"""Users of scripts/slurm-up: account and number of the association."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--name", help="of the result")
    parser.add_argument("--trace", type=Path, help="job history (docs/traces.md)")
    parser.add_argument("--since", help="first day of submissions that count")
    parser.add_argument("--until", help="day after the last one")
    parser.add_argument("--copies", type=int, default=1, help="of the history, one after the other")
    parser.add_argument("--slurm", type=Path, help="folder of scripts/slurm-up")
    parser.add_argument("--load", type=int, default=0, help="jobs for its accounting database")
    parser.add_argument("--sacct", type=Path, help="what sacct printed, in place of --trace")
    parser.add_argument("--slurm-conf", type=Path, help="the site's scheduler")
    parser.add_argument("--timezone", default="UTC")
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("assessment"), help="folder of the page")
    parser.add_argument("--kept", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--table", action="store_true", help="only print the results")
    args = parser.parse_args()
    if not args.table:
        _keep(args.kept, args.name, _run(args))
    print(_table(args.kept))
    return 0


def _run(args: argparse.Namespace) -> dict[str, Any]:
    began, words = time.time(), ["assess", "--out", str(args.out), "--timezone", args.timezone]
    words += [] if args.thorough else ["--quick"]
    words += ["--workers", str(args.workers)]
    args.out.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if args.slurm:
        environment["SLURM_CONF"] = str(args.slurm / "etc" / "slurm.conf")
        if args.load:
            fill_accounting(args.slurm, args.load)
        words += ["--days", str(SLURM_DAYS)]
    elif args.sacct:
        words += ["--sacct", str(args.sacct)]
    else:
        path = args.out / "sacct-input.txt"
        jobs = write_sacct(args.trace, path, args.since, args.until, args.copies)
        print(f"{jobs:,} jobs, {path.stat().st_size / 2**20:.0f} MiB: {path}", file=sys.stderr)
        words += ["--sacct", str(path)]
    if args.slurm_conf:
        words += ["--slurm-conf", str(args.slurm_conf)]
    figures = measure([str(PROGRAM), *words], environment)
    found = json.loads((args.out / "assessment.json").read_text())
    return figures | {
        "jobs": found["facts"]["jobs"],
        "days": round(found["facts"]["days"], 1),
        "begins": found["chains"][0]["begins"] if found["chains"] else 0,
        "steps_s": found["steps_s"],
        "provenance": provenance(
            ["python", "-m", "benchmarks.assess", *sys.argv[1:]],
            inputs={},
            split={},
            seed=1,
            started_s=began,
            wall_s=time.time() - began,
        ),
    }


def measure(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Runs it; of all its processes together CPU seconds and the largest memory at once (PSS)."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, env=environment)
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    load = os.getloadavg()[0]
    if process.wait():
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "peak_mib": round(peak[0]),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def _watch(process: subprocess.Popen[bytes], peak: list[float]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(_mib(pid) for pid in _family(process.pid)))
        time.sleep(2)  # reading the pages of gigabytes takes a while


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(each for child in children for each in _family(int(child)))]


def _mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def write_sacct(trace: Path, path: Path, since: str | None, until: str | None, copies: int) -> int:
    """As `sacct -X -P -D` prints it; returns the number of jobs."""
    jobs = pd.read_csv(trace, dtype={"job_id": str, "user": str})
    first, last = (
        pd.Timestamp(day, tz="UTC").timestamp() if day else None for day in (since, until)
    )
    jobs = jobs[(jobs.submit >= (first or 0)) & (jobs.submit < (last or np.inf))]
    span = int(np.nanmax(jobs["end"]) - jobs.submit.min()) + DAY_S
    path.unlink(missing_ok=True)
    for copy in range(copies):
        shift_s = (copy + 1 - copies) * span  # the last copy is the history as it is
        part = jobs.assign(**{name: jobs[name] + shift_s for name in TIMES})
        if copies > 1:
            part["job_id"] = [str(copy * len(jobs) + number) for number in range(1, len(jobs) + 1)]
            part["user"] = _other_users(jobs, copy)
        _sacct_table(part).to_csv(path, sep="|", index=False, mode="a", header=copy == 0)
    return copies * len(jobs)


def _other_users(jobs: pd.DataFrame, copy: int) -> pd.Series:
    """Of a later copy of the history. A history without users gets one for each kind of job."""
    kinds = jobs.groupby(["partition", "nodes", "timelimit_s"], dropna=False).ngroup()
    known = jobs.user.fillna("")
    return known.where(known != "", "k" + kinds.astype(str)) + f"c{copy}"


def _sacct_table(jobs: pd.DataFrame) -> pd.DataFrame:
    def moment(name: str) -> list[str]:
        stamps = pd.to_datetime(jobs[name], unit="s")
        return stamps.dt.strftime("%Y-%m-%dT%H:%M:%S").astype(object).fillna("Unknown").tolist()

    return pd.DataFrame(
        {
            "JobID": jobs.job_id,
            "User": jobs.user.fillna(""),
            "Partition": jobs.partition,
            "Submit": moment("submit"),
            "Start": moment("start"),
            "End": moment("end"),
            "TimelimitRaw": (jobs.timelimit_s / 60).fillna(0).astype(int),
            "NNodes": jobs.nodes,
            "NCPUS": jobs.cpus.fillna(1).astype(int),
            "State": jobs.state,
            "ReqTRES": [f"gres/gpu={int(gpus)}" if gpus > 0 else "" for gpus in jobs.gpus],
        }
    )


def fill_accounting(folder: Path, count: int) -> None:
    """Jobs of the last `SLURM_DAYS`, into the tables of which sacct reads."""
    base = int(time.time()) - (SLURM_DAYS + 1) * DAY_S
    cluster = read_cluster(folder / "etc" / "slurm.conf").cluster
    simulator = Simulator(cluster, _site_jobs(count))
    simulator.run_until(SLURM_DAYS * DAY_S)
    rows = []
    for number in range(1, count + 1):
        job = simulator.job(number)
        if job.start_s is None or job.end_s is None:
            continue
        account, association = PEOPLE[job.spec.user]
        uid = int(subprocess.check_output(["id", "-u", job.spec.user]))
        nodes = job.spec.nodes
        tres = f"1={4 * nodes},4={nodes},5={4 * nodes},1001={2 * nodes}"
        state = 3 if job.end_s - job.start_s < (job.time_limit_s or 0) else 6
        eligible_s = job.eligible_s if job.eligible_s is not None else job.submit_s
        rows.append(
            f"({base},'{account}',{nodes},'work',{association},{1_000_000 + number},1,0,0,{uid},"
            f"{uid},0,4294967294,0,'n[1-{nodes}]',{nodes},'0','gpu',100,{state},"
            f"{(job.time_limit_s or 0) // 60},{base + job.submit_s},{base + eligible_s},"
            f"{base + job.start_s},{base + job.end_s},'{tres}','{tres}')"
        )
    columns = (
        "mod_time,account,cpus_req,job_name,id_assoc,id_job,id_qos,id_resv,id_wckey,id_user,id_group,"
        "het_job_id,het_job_offset,state_reason_prev,nodelist,nodes_alloc,node_inx,`partition`,"
        "priority,state,timelimit,time_submit,time_eligible,time_start,time_end,tres_alloc,tres_req"
    )
    sql = "delete from mirage_job_table where id_job > 1000000;\n"
    sql += f"insert into mirage_job_table ({columns}) values {','.join(rows)};\n"
    socket = folder / "state" / "mariadb" / "s.sock"
    subprocess.run(
        ["mysql", f"--socket={socket}", "slurm_acct_db"], input=sql, text=True, check=True
    )
    print(f"{len(rows):,} jobs in slurmdbd", file=sys.stderr)


def _site_jobs(count: int) -> list[JobSpec]:
    """Bursts of many sizes that fill 16 nodes, and chains of two users."""
    random, users = np.random.default_rng(1), list(PEOPLE)
    jobs = [
        JobSpec(
            2,
            24 * HOUR_S,
            None,
            user=users[chain % 2],
            submit_s=chain * 3 * DAY_S + link,
            job_id=chain * 8 + link + 1,
            dependency=f"afterany:{chain * 8 + link}" if link else "",
            partition="gpu",
        )
        for chain in range(8)
        for link in range(8)
    ]
    submits = np.sort(random.integers(0, (SLURM_DAYS - 2) * DAY_S, count - len(jobs)))
    for number, submit_s in enumerate(submits.tolist(), len(jobs) + 1):
        limit_s = int(random.choice([1, 4, 12, 24], p=[0.4, 0.35, 0.15, 0.1])) * HOUR_S
        jobs.append(
            JobSpec(
                int(random.choice([1, 2, 4, 8], p=[0.55, 0.25, 0.15, 0.05])),
                limit_s,
                max(60, int(limit_s * min(1.0, random.lognormal(-1.3, 0.9)))),
                user=users[int(random.choice(3, p=[0.2, 0.3, 0.5]))],
                submit_s=submit_s,
                job_id=number,
                partition="gpu",
            )
        )
    return sorted(jobs, key=lambda job: (job.submit_s, job.job_id))


def _keep(kept: Path, name: str, figures: dict[str, Any]) -> None:
    results = json.loads(kept.read_text()) if kept.exists() else {}
    results[name] = figures
    write_json(kept, results)


def _table(kept: Path) -> str:
    results = json.loads(kept.read_text()) if kept.exists() else {}
    lines = [
        "| history | jobs | days | wall clock | CPU | memory | begins judged |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, it in results.items():
        lines.append(
            f"| {name} | {it['jobs']:,} | {it['days']:.0f} | {it['wall_s']:.0f} s at load"
            f" {max(it['load']):.0f} | {it['cpu_s']:.0f} s | {it['peak_mib']} MiB |"
            f" {it['begins']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
