"""How long training stands still when an elastic job gets a parameter server or a worker, beside
checkpoint and restart of the same training by torchrun.

    .venv/bin/python -m benchmarks.elastic_runtime [--repeats 15] [--restarts 5] [--width 1024]

In each repeat four members are added one by one, as in the paper (section 6.3), and drained.
`nth.N` is of the N-th of them, `sum.N` of the first N together. `suspended_ms` is what workers say
themselves: for a server, from when a worker has pushed its gradients at the scaling clock until it
has the new view (what it computes while slices migrate is no suspension); for a worker of an
all-reduce job, from when a running worker leaves its group until it has formed the next one.
`gap_ms` is measured from outside: the longest step of any worker that was there before, from the
start of the scaling until 0.2 s after its end, less the median step; a loaded machine makes it
longer. Workers that are added to a job with servers suspend nobody, so only the gap counts.
`growth_ms`: by how much the N-th addition takes longer than the one before it, least squares over
all additions; its interval is over repeats. Time is linear in the number added where it is 0.
`line`: through the medians of `sum`. `torchrun`: from the last step before a checkpoint to the
first step after the restart with one process more. Results go to elastic_runtime.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.sim_common import machine
from mirage.elastic.runtime import folder
from mirage.elastic.runtime.client import Client
from mirage.elastic.runtime.local import LocalJob
from mirage.elastic.runtime.protocol import ALL_REDUCE, SERVER, SERVERS, WORKER
from mirage.elastic.world import Floats
from mirage.figures.resample import mean_interval
from slurm_sim.files import write_whole

HERE = Path(__file__).parent
RESULTS = HERE / "elastic_runtime.json"
MOST = 4
"""Members that are added in a repeat."""
TIMING = ["--beat", "0.2", "--silent", "20", "--snapshot", "1000"]
FOREVER = "100000000"
WAIT_S = 600.0
KINDS = (SERVER, ALL_REDUCE, WORKER, "torchrun")
"""What is measured; each kind is written as it is done."""

EDGES = {
    SERVER: ("prepare", "commit"),
    WORKER: ("register", "roster"),
    ALL_REDUCE: ("roster", "group"),
}
"""Events in which a scaling begins and ends."""

Steps = list[tuple[int, float]]


def read_steps(path: Path) -> Steps:
    """Number and end time of each step that a process has finished."""
    rows = [line.split() for line in path.read_text().splitlines() if line.count(" ") == 1]
    return [(int(number), float(when)) for number, when in rows]


def longest_s(files: list[Path], first_s: float, last_s: float) -> float | None:
    """The longest time between two steps in a window, less the median time of a step."""
    found = []
    for path in files:
        times = [when for _, when in read_steps(path)]
        steps = [(a, b - a) for a, b in pairwise(times)]
        inside = [took for began, took in steps if first_s - took <= began <= last_s]
        if inside:
            found.append(max(inside) - median(took for _, took in steps[-500:]))
    return max(found) if found else None


# --- elastic


def measure_elastic(base: Path, kind: str, repeats: int, width: int) -> dict[str, Any]:
    """Adds `MOST` members one by one and drains them, `repeats` times in one job."""
    role, plane = (WORKER, ALL_REDUCE) if kind == ALL_REDUCE else (kind, SERVERS)
    shutil.rmtree(base, ignore_errors=True)
    times = base / "times"
    command = [str(HERE / "elastic_training.py"), "--steps", FOREVER, "--width", str(width)]
    command += ["--times", str(times)]
    found: dict[str, list[list[float]]] = {"gap_ms": []}
    if kind != WORKER:
        found["suspended_ms"] = []
    with LocalJob(base, command, timing=TIMING, log=True, plane=plane) as job:
        times.mkdir()
        job.start_coordinator()
        first = [job.start(each) for each in (SERVER, WORKER)[plane == ALL_REDUCE :]]
        with Client(base) as client:
            wait_active(client, first)
            files = list(times.iterdir())
            for _ in range(repeats):
                rows: dict[str, list[float]] = {name: [] for name in found}
                names = []
                for _ in range(MOST):
                    began, place = time.time(), (base / folder.EVENTS).stat().st_size
                    names.append(_add(job, client, role))
                    events = _events_until(base, place, EDGES[kind][1])
                    rows["gap_ms"].append(1000 * _gap_s(files, events, kind, began))
                    if kind != WORKER:
                        rows["suspended_ms"].append(1000 * _suspended_s(events, kind))
                for name, row in rows.items():
                    found[name].append(row)
                for name in names:
                    client.drain(name)
            client.stop()
    return {name: summary(np.array(rows)) for name, rows in found.items()}


def _add(job: LocalJob, client: Client, role: str) -> str:
    name = job.start(role)
    wait_active(client, [name])
    return name


def wait_active(client: Client, names: list[str]) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        status = client.status(WAIT_S)
        active = {member.name for member in status.members if member.state == "active"}
        if active >= set(names) and status.state == "training" and status.step > 5:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{names} did not become active in {WAIT_S:.0f} s")


def _events_until(base: Path, place: int, last: str) -> list[dict[str, Any]]:
    """The events from this place in the log to 0.3 s after the first ``last``."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if any(each["event"] == last for each in _events(base, place)):
            time.sleep(0.3)
            return _events(base, place)
        time.sleep(0.02)
    raise RuntimeError(f"no {last} in {WAIT_S:.0f} s")


def _events(base: Path, place: int) -> list[dict[str, Any]]:
    with (base / folder.EVENTS).open() as file:
        file.seek(place)
        whole = file.read().rpartition("\n")[0]  # the last line may be half-written
    return [json.loads(line) for line in whole.splitlines()]


def _suspended_s(events: list[dict[str, Any]], kind: str) -> float:
    """Mean over workers that were there before, summed over scalings."""
    times: list[list[float]]
    if kind == ALL_REDUCE:  # the newest is the last
        times = [each["suspended_s"][:-1] for each in events if each["event"] == "group"]
    else:
        times = [each["suspended_s"] for each in events if each["event"] == "commit"]
    return sum(sum(each) / len(each) for each in times if each)


def _gap_s(files: list[Path], events: list[dict[str, Any]], kind: str, began: float) -> float:
    """Summed over the members that were added."""
    first, last = EDGES[kind]
    firsts = [each["time"] for each in events if each["event"] == first]
    lasts = [each["time"] for each in events if each["event"] == last]
    spans = [longest_s(files, a, b + 0.2) for a, b in zip(firsts, lasts, strict=False)]
    return sum(max(0.0, each) for each in spans if each is not None)


def summary(times: Floats) -> dict[str, Any]:
    """Of the additions of all repeats, [repeats, MOST], ms."""
    sums = times.cumsum(axis=1)
    medians, counts = np.median(sums, axis=0), np.arange(1, times.shape[1] + 1)
    slope, start = np.polyfit(counts, medians, 1)
    spread = float(((medians - medians.mean()) ** 2).sum())
    residuals = medians - (start + slope * counts)
    growths = [np.polyfit(counts, row, 1)[0] for row in times]
    return {
        "nth": {str(n): _column(column) for n, column in zip(counts, times.T, strict=True)},
        "sum": {str(n): _column(column) for n, column in zip(counts, sums.T, strict=True)},
        "growth_ms": [float(np.mean(growths)), *mean_interval(np.array(growths))],
        "line": {
            "ms_per_member": round(float(slope), 3),
            "ms_at_zero": round(float(start), 3),
            "r_squared": round(1 - float((residuals**2).sum()) / spread, 3) if spread else 1.0,
        },
    }


def _column(times: Floats) -> dict[str, Any]:
    ordered = sorted(times.tolist())
    return {
        "median": round(median(ordered), 3),
        "p10": round(ordered[len(ordered) // 10], 3),
        "p90": round(ordered[(len(ordered) * 9) // 10], 3),
        "n": len(ordered),
        "samples": [round(each, 3) for each in times.tolist()],
    }


# --- torchrun


def measure_torchrun(base: Path, restarts: int, width: int) -> dict[str, Any]:
    """From one process to two, by a checkpoint."""
    found = []
    for _ in range(restarts):
        shutil.rmtree(base, ignore_errors=True)
        times = base / "times"
        times.mkdir(parents=True)
        first = _torchrun(base, 1, width)
        _wait_steps(times, 50)
        (base / "stop").touch()
        first.wait(WAIT_S)
        last = max(when for path in times.iterdir() for _, when in read_steps(path))
        old = set(times.iterdir())
        (base / "stop").unlink()
        second = _torchrun(base, 2, width)
        _wait_steps(times, 5, old)
        new = [path for path in times.iterdir() if path not in old]
        found.append(min(when for path in new for _, when in read_steps(path)) - last)
        (base / "stop").touch()
        second.wait(WAIT_S)
    return _column(1000 * np.array(found))


def _torchrun(base: Path, count: int, width: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={count}", "-m", "benchmarks.elastic_torchrun"]
    command += ["--steps", FOREVER, "--width", str(width), "--times", str(base / "times")]
    command += ["--checkpoint", str(base / "checkpoint.pt"), "--stop", str(base / "stop")]
    with (base / "log.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=HERE.parent, stdout=log, stderr=log)


def _wait_steps(times: Path, count: int, but: set[Path] | None = None) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        files = [path for path in times.iterdir() if path not in (but or set())]
        if any(len(read_steps(path)) >= count for path in files):
            return
        time.sleep(0.02)
    raise RuntimeError("torchrun took no steps; see log.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="times that members are added")
    parser.add_argument("--restarts", type=int, default=5, help="restarts by torchrun")
    parser.add_argument("--width", type=int, default=1024, help="hidden units of the network")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="what to measure")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="elastic-"))
    command = " ".join(["benchmarks.elastic_runtime", *sys.argv[1:]])
    for kind in given.kinds:
        started = time.time()
        if kind == "torchrun":
            found: dict[str, Any] = {
                "restart_ms": measure_torchrun(base, given.restarts, given.width)
            }
        else:
            found = measure_elastic(base, kind, given.repeats, given.width)
        print(kind, found, flush=True)
        found |= {"command": command, "machine": machine(), "wall_s": round(time.time() - started)}
        record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        write_whole(RESULTS, json.dumps(record | {kind: found}, indent=1) + "\n")
    shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
