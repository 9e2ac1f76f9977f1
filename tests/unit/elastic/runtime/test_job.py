"""Whole jobs of real processes: the same bits whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mirage.elastic.runtime import folder
from mirage.elastic.runtime.client import Client, NoCoordinator
from mirage.elastic.runtime.local import COORDINATOR, LocalJob
from mirage.elastic.runtime.protocol import SERVER, WORKER, Status

SCRIPT = """
import os, sys, time, torch
from mirage.elastic.runtime.trainer import Elastic
steps, pace = int(sys.argv[1]), float(sys.argv[2])
inputs = torch.randn(300, 10, generator=torch.Generator().manual_seed(5))
data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(10, 100), torch.nn.Dropout(0.1), torch.nn.Linear(100, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
elastic = Elastic(model, optimizer, data, batch_size=24, micro_shards=6, steps=steps)
shards = 0
def loss(model, batch):
    global shards
    shards += 1
    if not os.path.exists(sys.argv[3]):
        time.sleep(pace if shards < 100 else 10 * pace)
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
while elastic.running:
    elastic.step(loss)
"""
TIMING = ["--beat", "0.1", "--silent", "60", "--snapshot", "0.5"]
"""A member that a busy machine holds up is not lost."""
END_S = 120.0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run(path: Path, script: Path, pace: float, meddle: Callable[[LocalJob], None]) -> list[str]:
    """The losses' bits and the model's.

    ``pace``: seconds that each micro-shard is delayed until ``meddle`` is over, and ten times that
    after a worker's first hundred, so that the job lasts that long on a busy machine, too.
    """
    hurry = path.with_suffix(".hurry")
    with LocalJob(path, [str(script), "60", str(pace), str(hurry)], timing=TIMING) as job:
        job.start_coordinator()
        job.start(SERVER)
        job.start(WORKER)
        meddle(job)
        hurry.touch()
        job.wait(END_S)
    return outcome(path)


def outcome(path: Path) -> list[str]:
    """The bits of the loss of each step, and of the model."""
    losses = {}
    for line in (path / folder.LOSSES).read_text().splitlines():
        step, loss = json.loads(line)
        losses[step] = loss.hex()
    assert sorted(losses) == list(range(60))
    return [*(losses[step] for step in range(60)), (path / folder.MODEL).read_bytes().hex()]


def until(client: Client, reached: Callable[[Status], bool]) -> None:
    end = time.monotonic() + END_S
    while not reached(client.status(timeout_s=END_S)):
        assert time.monotonic() < end
        time.sleep(0.02)


def active(status: Status, role: str) -> int:
    return sum(m.role == role and m.state == "active" for m in status.members)


def meddle(job: LocalJob) -> None:
    """Scales servers and workers, kills each role, drains the first members."""
    with Client(job.path) as client:
        until(client, lambda status: status.step > 3)
        job.start(SERVER)
        job.start(WORKER)
        until(client, lambda s: active(s, SERVER) == 2 and active(s, WORKER) == 2)
        job.kill(COORDINATOR)
        job.start_coordinator()
        client.drain("worker-1", timeout_s=END_S)
        job.processes["worker-1"].join(END_S)  # two processes of one name replace each other
        assert job.processes["worker-1"].exitcode == 0
        job.start(WORKER, "worker-1")
        job.kill("server-2")
        client.gone("server-2")
        job.start(SERVER, "server-2")
        until(client, lambda s: active(s, SERVER) == 2 and s.incarnation >= 2)
        job.kill("worker-2")
        client.gone("worker-2")
        client.drain("server-1", timeout_s=END_S)


def test_scalings_and_kills_leave_every_bit_as_it_is(tmp_path: Path, script: Path) -> None:
    calm = run(tmp_path / "calm", script, 0.0, lambda _job: None)
    assert run(tmp_path / "stormy", script, 0.15, meddle) == calm


@pytest.mark.long
def test_a_stopped_job_goes_on_where_it_was(tmp_path: Path, script: Path) -> None:
    calm = run(tmp_path / "calm", script, 0.0, lambda _job: None)

    def stop(job: LocalJob) -> None:
        with Client(job.path) as client:
            until(client, lambda status: status.step > 5)
            version = client.stop()
            assert version is not None
            job.wait(END_S)
            assert version < 60
            job.start_coordinator()
            job.start(SERVER)
            job.start(WORKER)

    assert run(tmp_path / "stopped", script, 0.02, stop) == calm


@pytest.mark.long
def test_a_terminated_server_gives_its_slices_away_first(tmp_path: Path, script: Path) -> None:
    def terminate(job: LocalJob) -> None:
        with Client(job.path) as client:
            job.start(SERVER)
            until(client, lambda s: active(s, SERVER) == 2 and s.step > 3)
            job.processes["server-1"].terminate()
            until(client, lambda s: active(s, SERVER) == 1 and s.incarnation == 1)

    run(tmp_path / "job", script, 0.03, terminate)


@pytest.mark.long
def test_members_that_start_first_wait_for_the_coordinator(tmp_path: Path, script: Path) -> None:
    path = tmp_path / "job"
    (hurry := path.with_suffix(".hurry")).touch()
    with LocalJob(path, [str(script), "60", "0", str(hurry)], timing=TIMING) as job:
        names = [job.start(SERVER), job.start(WORKER)]
        time.sleep(5)
        assert all(job.processes[name].is_alive() for name in names)
        job.start_coordinator()
        job.wait(END_S)
    outcome(path)


@pytest.mark.long
def test_the_example_learns_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    example = Path(__file__).parents[4] / "docs" / "examples" / "elastic_digits.py"
    command = [sys.executable, "-m", "mirage.elastic.runtime.local", "--folder"]
    command += [str(tmp_path / "job"), "--workers", "2", "--servers", "2", "--", str(example)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ}, check=False
    )
    assert ended.returncode == 0, ended.stderr
    accuracies = [line.split()[-1] for line in ended.stdout.splitlines() if "accuracy" in line]
    assert accuracies
    assert min(map(float, accuracies)) > 0.85


def test_a_client_without_a_coordinator_says_so(tmp_path: Path) -> None:
    folder.create_folder(tmp_path / "job")
    with (
        Client(tmp_path / "job") as client,
        pytest.raises(NoCoordinator, match=r"start it again in the same folder"),
    ):
        client.status(timeout_s=0.2)


LAUNCH = """\
import sys, time
from pathlib import Path
from mirage.elastic.runtime.local import COORDINATOR, LocalJob

if __name__ == "__main__":
    with LocalJob(Path(sys.argv[1]), ["none.py"]) as job:
        job.start_coordinator()
        print(job.processes[COORDINATOR].pid, flush=True)
        time.sleep(3600)
"""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_launcher_that_a_signal_ends_leaves_nobody_behind(tmp_path, sign):
    (tmp_path / "launch.py").write_text(LAUNCH)
    command = [sys.executable, str(tmp_path / "launch.py"), str(tmp_path / "job")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        member = Path(f"/proc/{int(launcher.stdout.readline())}/stat")
        assert member.exists()
        launcher.send_signal(sign)
    end = time.monotonic() + END_S
    while member.exists() and member.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)
