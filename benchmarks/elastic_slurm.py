"""Three elastic jobs of two users beside other users' queue on a real Slurm, against the same queue
without them.

    python -m benchmarks.elastic_slurm [--minutes 20] [--seed 1] [--port-base 16810]

Two instances of scripts/slurm-up get the same jobs of Carol's at the same seconds: mostly fewer
than there are nodes, and two bursts that queue. In one of them Alice has two elastic jobs and Bob
one, none of which has a GPU of its own (`workers.min = 0`). Alice's controller is killed twice
(SIGKILL) and started again. A job's delay is its wait with elastic jobs less its wait without. It
has two parts: the wait beside elastic tasks, which is theirs, and what Slurm makes of it where two
jobs come in another order.
Times are slurmdbd's. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.sim_common import write_json
from mirage.elastic.jobs.journal import JOURNAL
from mirage.elastic.jobs.tag import parse_task_tag
from mirage.figures.provenance import provenance
from mirage.store.events import read_events
from tests.slurm.site import ALICE, BOB, CAROL, ROOT, Site, until

Json = dict[str, Any]
NODES, GPUS = 7, 14
SLOT_S, POLL_S = 60, 5
JOBS = {"vision": (ALICE, 6), "text": (ALICE, 6), "speech": (BOB, 4)}
"""Name -> owner and most workers."""

TRAIN = """\
import sys, time, torch
from mirage.elastic.runtime.trainer import Elastic
torch.manual_seed(1)
x = torch.randn(960, 16)
data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
model = torch.nn.Linear(16, 2)
elastic = Elastic(model, torch.optim.Adam(model.parameters()), data, batch_size=96, epochs=1e5)
def loss(model, batch):
    time.sleep(0.2)  # in place of a GPU's work
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
while elastic.running:
    elastic.step(loss)
"""
REQUEST = """\
name = "{name}"
script = "train.py"
time = "2:00:00"
epochs = 1000
steps_per_epoch = 10
[workers]
min = 0
max = {most}
partition = "gpu"
[servers]
max = 1
partition = "cpu"
[coordinator]
partition = "cpu"
"""


@dataclass(frozen=True, kw_only=True)
class OtherJob:
    """A job of Carol's."""

    at_s: int
    nodes: int
    run_s: int


def main() -> None:
    """The whole comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", default="/var/tmp/mirage-elastic", help="of both instances")
    parser.add_argument("--port-base", type=int, default=16810)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/elastic_slurm.json"))
    args = parser.parse_args()
    started_s = time.time()
    with_elastic = start_instance(Path(f"{args.dir}-a"), args.port_base)
    without = start_instance(Path(f"{args.dir}-b"), args.port_base + 30)
    if not os.environ.get("MIRAGE_SLURM_INSTALLED"):
        with_elastic.install()
    with_elastic.install_elastic()
    jobs = schedule(args.minutes * 60, args.seed)
    kills: list[Json] = []
    stopped_s = run(with_elastic, without, jobs, args.minutes * 60, kills)
    results = compare(with_elastic, without, jobs, (int(started_s), stopped_s)) | {"kills": kills}
    record = provenance(
        ["python", "-m", "benchmarks.elastic_slurm", f"--minutes={args.minutes}"],
        inputs={},
        split={},
        seed=args.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
    load = os.getloadavg()[2]
    write_json(args.out, results | {"load": load, "provenance": record})
    print(json.dumps(results["others"] | results["gpu_seconds"], indent=1))


def start_instance(folder: Path, ports: int) -> Site:
    """A Slurm whose jobs share nodes: seven with two GPUs, and one without for small tasks."""
    first, last = ports + 11, ports + 11 + NODES
    sets = (
        f"NodeName=n[1-{NODES + 1}] NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=16"
        " RealMemory=4000 Gres=gpu:2 State=UNKNOWN",
        f"PartitionName=gpu Nodes=n[1-{NODES}] Default=YES MaxTime=1-0 State=UP",
        f"PartitionName=cpu Nodes=n{NODES + 1} MaxTime=1-0 State=UP",
    )
    words = [str(ROOT / "scripts/slurm-up"), "--dir", str(folder), "--nodes", str(NODES + 1)]
    words += ["--port-base", str(ports), *(word for each in sets for word in ("--set", each))]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    site = Site(folder)
    site.cancel_all()
    for user in (ALICE, BOB):  # elastic jobs of an earlier run have the same names
        shutil.rmtree(site.home(user) / ".mirage", ignore_errors=True)
    return site


def schedule(length_s: int, seed: int) -> list[OtherJob]:
    """Fewer than there are nodes at any time, but for a burst at a third and at two thirds."""
    rng = random.Random(seed)
    found: list[OtherJob] = []
    at_s = 40.0
    bursts = (length_s // 3, 2 * length_s // 3)
    while at_s < length_s - 60:
        job = OtherJob(at_s=int(at_s), nodes=rng.randint(1, 3), run_s=rng.randint(60, 180))
        busy = sum(it.nodes for it in found if it.at_s + it.run_s + 15 > job.at_s)
        near = any(0 <= job.at_s - burst <= 200 for burst in bursts)
        if busy + job.nodes <= NODES - 1 and not near:
            found.append(job)
        at_s += rng.expovariate(1 / 25)
    for burst in bursts:
        found += [OtherJob(at_s=burst + nth, nodes=2, run_s=80) for nth in range(6)]
    return sorted(found, key=lambda job: job.at_s)


def run(
    site: Site, control: Site, jobs: Sequence[OtherJob], length_s: int, kills: list[Json]
) -> int:
    """Both instances side by side; returns when the elastic jobs were told to stop."""
    begin_s = int(time.time()) + 5
    submitters = [
        threading.Thread(target=submit_others, args=(each, jobs, begin_s), daemon=True)
        for each in (site, control)
    ]
    for thread in submitters:
        thread.start()
    controllers = {user: start_controller(site, user, first=True) for user in (ALICE, BOB)}
    try:
        for nth, share in enumerate((0.35, 0.75)):
            sleep_until(begin_s + share * length_s + nth)
            os.killpg(controllers[ALICE].pid, signal.SIGKILL)
            controllers[ALICE].wait()
            kills.append({"at_s": int(time.time()) - begin_s, "steps": steps(site)})
            time.sleep(15)
            controllers[ALICE] = start_controller(site, ALICE, first=False)
        sleep_until(begin_s + length_s)
        stopped_s = int(time.time())
        for name, (user, _) in JOBS.items():
            site.run(user, "mirage", "elastic", "stop", name, timeout_s=120)
        until(lambda: not elastic_rows(site, "squeue"), 300, "the elastic jobs to end", 2)
        for process in controllers.values():
            process.wait(120)
    finally:
        for process in controllers.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
    for thread in submitters:
        thread.join()
    for each in (site, control):
        until(lambda each=each: not queued(each), 600, "Carol's jobs to end", 2)
    time.sleep(15)  # slurmdbd is told a little later
    return stopped_s


def start_controller(site: Site, user: str, *, first: bool) -> subprocess.Popen[bytes]:
    """With the user's jobs at first; a later one takes them up from their journals."""
    words = []
    for name, (owner, most) in JOBS.items() if first else ():
        if owner == user:
            site.script(user, "train.py", TRAIN)
            words.append(site.script(user, f"{name}.toml", REQUEST.format(name=name, most=most)))
    command = ["mirage", "elastic", "run", *words, f"--slot={SLOT_S}s", f"--poll={POLL_S}s"]
    return site.start(user, *command, log=site.folder / f"controller-{user}.log")


def submit_others(site: Site, jobs: Sequence[OtherJob], begin_s: int) -> None:
    """At their seconds, as Carol."""
    for number, job in enumerate(jobs):
        sleep_until(begin_s + job.at_s)
        words = ["-J", f"other-{number}", f"-N{job.nodes}", "--gpus-per-node=2", "-t5"]
        words += ["-o/dev/null", f"--wrap=sleep {job.run_s}"]
        site.run(CAROL, "sbatch", *words)


def sleep_until(at_s: float) -> None:
    """Wall-clock time."""
    time.sleep(max(at_s - time.time(), 0))


def queued(site: Site) -> list[str]:
    """Lines of squeue."""
    return site.run("root", "squeue", "-h", "-o", "%k").stdout.splitlines()


def elastic_rows(site: Site, _command: str) -> list[str]:
    """Tasks of elastic jobs in the queue."""
    return [line for line in queued(site) if parse_task_tag(line.strip())]


def folder_of(site: Site, name: str) -> Path:
    """An elastic job's folder."""
    return site.home(JOBS[name][0]) / ".mirage" / "elastic" / name


def steps(site: Site) -> dict[str, int]:
    """Training steps of each job, as its runtime recorded them."""
    found = {}
    for name in JOBS:
        path = folder_of(site, name) / "runtime" / "losses.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found[name] = len({json.loads(line)[0] for line in lines})
    return found


# --- results


def records(site: Site, since_s: int) -> list[dict[str, str]]:
    """All jobs submitted since then, as sacct has them."""
    names = ("JobName", "User", "Submit", "Start", "End", "State", "AllocTRES", "Comment")
    words = ["sacct", "-a", "-n", "-X", "-P", "-S", "now-3hours", "-o", ",".join(names)]
    lines = site.run("root", *words).stdout.splitlines()
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines]
    return [row for row in rows if int(row["Submit"]) >= since_s]


def compare(site: Site, control: Site, jobs: Sequence[OtherJob], window: tuple[int, int]) -> Json:
    """Delays of others, GPU-seconds, and whether every task was submitted once.

    ``window``: when the run began and when the elastic jobs were told to stop.
    """
    started_s, stopped_s = window
    mine, theirs = records(site, started_s), records(control, started_s)
    waits = {
        name: {row["JobName"]: int(row["Start"]) - int(row["Submit"]) for row in rows}
        for name, rows in (("with", others(mine)), ("without", others(theirs)))
    }
    delays = [
        waits["with"][f"other-{number}"] - waits["without"][f"other-{number}"]
        for number in range(len(jobs))
    ]
    tasks = [row for row in mine if parse_task_tag(row["Comment"])]
    beside = [wait_beside(row, tasks) for row in others(mine)]
    names = Counter(row["Comment"].rpartition(" ")[0] for row in tasks)
    used = {
        "others": sum(gpu_seconds(row, stopped_s) for row in others(mine)),
        "elastic": sum(gpu_seconds(row, stopped_s) for row in tasks),
    }
    begin_s = min(int(row["Submit"]) for row in tasks)
    used["all"] = GPUS * (stopped_s - begin_s)
    return {
        "slot_s": SLOT_S,
        "others": {
            "jobs": len(jobs),
            "wait_s_without_mean": round(fmean(waits["without"].values()), 1),
            "wait_s_without_max": max(waits["without"].values()),
            "delay_s_mean": round(fmean(delays), 1),
            "delay_s_median": median(delays),
            "delay_s_max": max(delays),
            "delayed_by_more_than_a_slot": sum(delay > SLOT_S for delay in delays),
            "delays_s": delays,
            "wait_beside_elastic_s_mean": round(fmean(beside), 1),
            "wait_beside_elastic_s_max": max(beside),
            "wait_beside_elastic_more_than_a_slot": sum(each > SLOT_S for each in beside),
        },
        "gpu_seconds": used,
        "share_of_gpus": {
            name: round(used[name] / used["all"], 3) for name in ("others", "elastic")
        },
        "tasks": {
            "submitted": len(tasks),
            "submitted_twice": sum(count > 1 for count in names.values()),
            "states": Counter(row["State"].split()[0] for row in tasks),
        },
        "jobs": {name: job_result(site, name) for name in JOBS},
    }


def others(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Carol's jobs of this run."""
    return [row for row in rows if row["JobName"].startswith("other-")]


def wait_beside(row: dict[str, str], tasks: Sequence[dict[str, str]]) -> int:
    """Seconds of a job's wait in which an elastic task had a GPU anywhere: what it can have cost
    the job directly, at most.
    """
    begin_s, end_s = int(row["Submit"]), int(row["Start"])
    held = [
        range(max(int(task["Start"]), begin_s), min(int(task["End"]), end_s))
        for task in tasks
        if "gres/gpu" in task["AllocTRES"] and task["Start"].isdigit() and task["End"].isdigit()
    ]
    return len({second for each in held for second in each})


def gpu_seconds(row: dict[str, str], until_s: int) -> int:
    """Of one record, up to a moment."""
    if not row["Start"].isdigit() or not row["End"].isdigit():
        return 0
    held = dict(part.split("=") for part in row["AllocTRES"].split(",") if "=" in part)
    return int(held.get("gres/gpu", 0)) * max(min(int(row["End"]), until_s) - int(row["Start"]), 0)


def job_result(site: Site, name: str) -> Json:
    """How one elastic job went."""
    folder = folder_of(site, name)
    events = list(read_events(folder / JOURNAL))
    losses = [
        json.loads(line) for line in (folder / "runtime" / "losses.jsonl").read_text().splitlines()
    ]
    numbers = sorted({step for step, _ in losses})
    end = next((event for event in events if event["event"] == "end"), {})
    return {
        "owner": JOBS[name][0],
        "end": end.get("state"),
        "steps": len(numbers),
        "steps_without_gap": numbers == list(range(len(numbers))),
        "events": Counter(str(event["event"]) for event in events),
        "drained_for_others": sum(
            event["event"] == "drain" and "queues" in event["why"] for event in events
        ),
    }


if __name__ == "__main__":
    main()
