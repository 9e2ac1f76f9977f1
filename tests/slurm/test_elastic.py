"""An elastic job on a real Slurm: it grows, gives back, survives its controller, and is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirage.elastic.jobs.journal import JobJournal
from mirage.elastic.jobs.tag import parse_task_tag
from tests.slurm.site import ALICE, BUSY, CAROL, Site, until

pytestmark = pytest.mark.slurm

TRAIN = """\
import time, torch
from mirage.elastic.runtime.trainer import Elastic
torch.manual_seed(1)
x = torch.randn(480, 8)
data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
model = torch.nn.Linear(8, 2)
elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), data, batch_size=48, epochs=1e4)
def loss(model, batch):
    time.sleep(0.02)
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
while elastic.running:
    elastic.step(loss)
"""
REQUEST = """\
name = "toy"
script = "train.py"
time = "1:00:00"
epochs = 1000
steps_per_epoch = 10
[workers]
max = 3
"""


started: list[subprocess.Popen[bytes]] = []
"""Controllers of the present test."""


@pytest.fixture
def folder(site: Site) -> Iterator[Path]:
    """Of the job, once it runs. A failed test leaves no controller and no task."""
    site.install_elastic()
    root = site.home(ALICE) / ".mirage" / "elastic"
    shutil.rmtree(root, ignore_errors=True)
    site.script(ALICE, "train.py", TRAIN)
    site.script(ALICE, "toy.toml", REQUEST)
    yield root / "toy"
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if started:
        site.cancel_all()
    started.clear()
    shutil.rmtree(root, ignore_errors=True)


def start(site: Site, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = ["mirage", "elastic", "run", *words, "--slot=10s", "--poll=2s"]
    process = site.start(ALICE, *command, log=folder.parents[2] / "controller.log")
    started.append(process)
    return process


def tasks(site: Site, state: str = "R") -> dict[str, int]:
    """Running tasks: name -> Slurm job."""
    lines = site.run("root", "squeue", "-h", "-t", state, "-o", "%A %k").stdout.splitlines()
    pairs = (line.split(" ", 1) for line in lines)
    return {tag.task: int(job) for job, text in pairs if (tag := parse_task_tag(text.strip()))}


def status(site: Site) -> dict[str, Any]:
    done = site.run(ALICE, "mirage", "elastic", "status", "toy", "--json")
    return json.loads(done.stdout)["jobs"][0]


def test_an_elastic_job_lives_with_its_neighbours(site: Site, folder: Path) -> None:
    first = start(site, folder, "toy.toml", "--reserve=0")
    # Six whole nodes: a coordinator, a PS, and as many workers as the job may have.
    until(lambda: len(tasks(site)) == 5, 90, "the job to grow")
    until(lambda: (status(site)["step"] or 0) > 0, 120, "the first step", 1)
    assert (folder / "runtime" / "keys.json").stat().st_mode & 0o777 == 0o600
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()

    script = site.script(CAROL, "work.sh", "#!/bin/sh\nexec sleep 600\n")
    words = ["sbatch", "--parsable", "-N2", "-t20", "-o/dev/null", script]
    waiting = int(site.run(CAROL, *words).stdout)
    second = start(site, folder, "--reserve=0")
    until(lambda: site.state(waiting) == "RUNNING", 90, "Carol's job to start")
    record = JobJournal(folder).record
    assert sum(task.drained_s is not None for task in record.tasks.values()) == 1
    until(lambda: len(tasks(site)) == 4, 60, "a worker to leave")
    assert status(site)["state"] == "running"

    site.run(CAROL, "scancel", str(waiting))
    until(lambda: len(tasks(site)) == 5, 60, "the job to grow again")
    site.run(ALICE, "mirage", "elastic", "stop", "toy")
    assert second.wait(120 * BUSY) == 0
    assert not tasks(site, "R,PD")
    record = JobJournal(folder).record
    assert record.end == "stopped"
    assert all(task.end in ("COMPLETED", "CANCELLED") for task in record.tasks.values()), record
    ids = [task.job_id for task in record.tasks.values()]
    assert len(set(ids)) == len(ids) == 6

    losses = folder / "runtime" / "losses.jsonl"
    before = losses.read_text().count("\n")
    third = start(site, folder, "--resume", "toy")
    until(lambda: losses.read_text().count("\n") > before, 120, "further steps", 1)
    site.run(ALICE, "mirage", "elastic", "stop", "toy")
    assert third.wait(120 * BUSY) == 0
    assert JobJournal(folder).record.end == "stopped"
    steps = [json.loads(line)[0] for line in losses.read_text().splitlines()]
    assert steps == list(range(steps[0], steps[0] + len(steps)))


def test_extra_tasks_leave_when_their_controller_died(site: Site, folder: Path) -> None:
    process = start(site, folder, "toy.toml")

    def workers() -> set[str]:
        return {name for name in tasks(site) if name[0] == "w"}

    until(lambda: len(workers()) == 3, 240, "the job to grow", 1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: len(workers()) == 1, 240, "the extra tasks to leave", 1)
    assert {"c1", "s1"} <= tasks(site).keys()
    logs = [path.read_text() for path in (folder / "logs").glob("w*.out")]
    assert sum("no controller has renewed the lease" in text for text in logs) == 2
    start(site, folder)
    until(lambda: len(workers()) == 3, 240, "the job to grow again", 1)


def test_without_a_controller_stop_does_it_alone(site: Site, folder: Path) -> None:
    first = start(site, folder, "toy.toml")
    until(lambda: "c1" in tasks(site), 60, "the coordinator")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    site.run(ALICE, "mirage", "elastic", "stop", "toy", timeout_s=150 * BUSY)
    assert not tasks(site, "R,PD")
    assert JobJournal(folder).record.end == "stopped"


def test_bad_input_costs_nothing(site: Site, folder: Path) -> None:
    site.script(ALICE, "bad.toml", REQUEST.replace("max = 3", "max = 0"))
    done = site.run(ALICE, "mirage", "elastic", "run", "bad.toml", check=False)
    assert done.returncode == 2
    assert "bad.toml:7: workers.max: expected at least 1, got 0" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not folder.exists()
    assert not tasks(site, "R,PD")


def test_workers_that_reduce_among_themselves(site: Site, folder: Path) -> None:
    """No parameter servers; one worker's job is cancelled, and the training continues."""
    reduced = REQUEST.replace("[workers]", 'plane = "all-reduce"\n[workers]')
    controller = start(site, folder, site.script(ALICE, "reduced.toml", reduced))
    until(lambda: {"c1", "w1", "w2", "w3"} <= set(tasks(site)), 120, "the job to grow")
    until(lambda: (status(site)["step"] or 0) > 0, 240, "the first step", 1)
    assert not any(name.startswith("s") for name in tasks(site))
    site.run(ALICE, "scancel", "--signal=KILL", str(tasks(site)["w1"]))
    until(lambda: "w4" in tasks(site), 120, "another worker in its place")
    before = status(site)["step"]
    until(lambda: status(site)["step"] > before + 5, 240, "further steps", 1)
    site.run(ALICE, "mirage", "elastic", "stop", "toy")
    assert controller.wait(120 * BUSY) == 0
    assert JobJournal(folder).record.end == "stopped"
