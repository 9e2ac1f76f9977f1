"""Does an elastic job compute the same bits, whatever its members, and whoever is killed when?

    .venv/bin/python -m benchmarks.elastic_kills bits [--folder DIR]
    .venv/bin/python -m benchmarks.elastic_kills kills [--kills 200] [--seed 1] [--folder DIR]

`bits`: 1 to 6 servers and 1 to 6 workers, and a chain of scalings in one job, against one server
and one worker. `kills`: SIGKILL of coordinator, servers and workers, at random times and right
after the coordinator has announced a phase; each is started again. Results go to
elastic_kills.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.sim_common import machine
from mirage.elastic.runtime import folder
from mirage.elastic.runtime.client import Client, NoCoordinator
from mirage.elastic.runtime.local import COORDINATOR, LocalJob
from mirage.elastic.runtime.protocol import SERVER, WORKER
from slurm_sim.files import write_whole

HERE = Path(__file__).parent
RESULTS = HERE / "elastic_kills.json"
TRAINING = [str(HERE / "elastic_training.py")]
TIMING = ["--beat", "0.1", "--silent", "2", "--snapshot", "1"]
PHASES = ("prepare", "migrate", "switch", "commit", "restore", "snapshot", "register", "roster")
"""Events of the coordinator after which a victim is killed; beside these, any time."""
KILLS_A_JOB, KILL_STEPS, BIT_STEPS = 20, 200, 200
END_S = 1500.0


def outcome(path: Path) -> dict[str, str]:
    """Hashes of the final model and of the loss of every step, to the last bit."""
    losses: dict[int, float] = {}
    for line in (path / folder.LOSSES).read_text().splitlines():
        try:
            step, value = json.loads(line)
        except ValueError:  # torn by a kill; the line came again
            continue
        losses[step] = value
    curve = [losses[step].hex() for step in range(len(losses))]
    return {
        "model": hashlib.sha256((path / folder.MODEL).read_bytes()).hexdigest()[:16],
        "losses": hashlib.sha256("\n".join(curve).encode()).hexdigest()[:16],
        "steps": str(len(curve)),
    }


class Trial:
    """One job with its processes, in a fresh folder."""

    def __init__(self, path: Path, *, optimizer: str, steps: int, pace: float) -> None:
        shutil.rmtree(path, ignore_errors=True)
        command = [*TRAINING, "--optimizer", optimizer, "--steps", str(steps), "--pace", str(pace)]
        self.path, self.hurry = path, path.with_suffix(".hurry")
        self.hurry.unlink(missing_ok=True)
        command += ["--hurry", str(self.hurry)]
        self.job = LocalJob(path, command, timing=TIMING, log=True)

    def start(self, servers: int, workers: int) -> None:
        self.job.start_coordinator()
        for role, count in ((SERVER, servers), (WORKER, workers)):
            for _ in range(count):
                self.job.start(role)


def undisturbed(path: Path, optimizer: str, steps: int) -> dict[str, str]:
    trial = Trial(path, optimizer=optimizer, steps=steps, pace=0.0)
    with trial.job as job:
        trial.start(1, 1)
        job.wait(END_S)
    return outcome(path)


# --- bits


def chain(trial: Trial) -> list[str]:
    """Scalings in one job: up to six of each, down to one, with a check that each happened."""
    done = []
    with trial.job as job, Client(trial.path) as client:
        trial.start(1, 1)
        for _ in range(5):
            job.start(SERVER)
            job.start(WORKER)
            _until(client, servers=1 + len(done) // 2 + 1, workers=1 + len(done) // 2 + 1)
            done += ["+server", "+worker"]
        for number in range(1, 6):
            client.drain(f"server-{number}")
            client.drain(f"worker-{number}")
            done += ["-server", "-worker"]
        assert client.status(END_S).state != "finished"
        trial.hurry.touch()
        job.wait(END_S)
    return done


def _until(client: Client, *, servers: int, workers: int) -> None:
    end = time.monotonic() + END_S
    while time.monotonic() < end:
        members = client.status(END_S).members
        active = Counter(member.role for member in members if member.state == "active")
        if active[SERVER] >= servers and active[WORKER] >= workers:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the members did not become active in {END_S:.0f} s")


def measure_bits(base: Path) -> None:
    """Each row is written as it is done."""
    for optimizer in ("sgd", "adam"):
        wanted = undisturbed(base / "undisturbed", optimizer, BIT_STEPS)
        rows = {}
        trial = Trial(base / "chain", optimizer=optimizer, steps=BIT_STEPS, pace=0.3)
        scalings = chain(trial)
        name = f"1 to 6 and back to 1: {len(scalings)} scalings"
        rows[name] = outcome(base / "chain") == wanted
        save_bits(optimizer, wanted, rows)
        for count in range(6, 1, -1):
            trial = Trial(base / "fixed", optimizer=optimizer, steps=BIT_STEPS, pace=0.0)
            with trial.job as job:
                trial.start(count, count)
                job.wait(END_S)
            rows[f"{count} servers, {count} workers"] = outcome(base / "fixed") == wanted
            save_bits(optimizer, wanted, rows)


def save_bits(optimizer: str, wanted: dict[str, str], rows: dict[str, bool]) -> None:
    print(optimizer, rows, flush=True)
    record = read_results()
    found = {"undisturbed": wanted, "identical": rows, "machine": machine()}
    record["bits"] = record.get("bits", {}) | {optimizer: found}
    write_whole(RESULTS, json.dumps(record, indent=1) + "\n")


# --- kills


class Killer:
    """Kills members of one job by a random plan, and starts each again."""

    def __init__(self, trial: Trial, client: Client, rng: random.Random) -> None:
        self._trial, self._client, self._random = trial, client, rng
        self._events = trial.path / folder.EVENTS
        self._numbers = Counter({SERVER: 2, WORKER: 2})
        self.log: list[dict[str, Any]] = []

    def kill(self) -> None:
        """One kill, and a new process in place of the killed."""
        victim = self._random.choice([COORDINATOR, SERVER, WORKER])
        phase = self._random.choice([*PHASES, "any", "any"])
        place = self._events.stat().st_size
        self._stir(phase)
        happened = self._wait_for(phase, place)
        name = self._victim(victim)
        if name is None:
            return
        self._trial.job.kill(name)
        self.log.append({"role": victim, "phase": happened})
        time.sleep(self._random.choice([0.0, 0.0, self._random.uniform(0, 1)]))
        if victim == COORDINATOR:
            self._trial.job.start_coordinator()
        else:
            self._trial.job.start(victim, name)

    def _stir(self, phase: str) -> None:
        """Something that leads to the phase: a new member, or one that is to leave."""
        if phase in ("prepare", "migrate", "switch", "commit", "register"):
            self._change(SERVER)
        elif phase == "roster":
            self._change(WORKER)

    def _change(self, role: str) -> None:
        alive = self._alive(role)
        if len(alive) < 4:
            self._numbers[role] += 1
            self._trial.job.start(role, f"{role}-{self._numbers[role]}")
        else:
            with contextlib.suppress(NoCoordinator):  # it leaves later
                self._client.drain(self._random.choice(alive), timeout_s=0.3)

    def _alive(self, role: str) -> list[str]:
        members = self._trial.job.processes.items()
        return [n for n, p in members if n.startswith(role) and p.exitcode is None]

    def _victim(self, role: str) -> str | None:
        alive = self._alive(role)
        return self._random.choice(alive) if alive else None

    def _wait_for(self, phase: str, place: int) -> str:
        """The phase, if it began within some seconds; else the kill comes at any time."""
        if phase == "any":
            time.sleep(self._random.uniform(0, 1))
            return "any"
        end = time.monotonic() + 4
        while time.monotonic() < end:
            with self._events.open() as file:
                file.seek(place)
                if f'"event": "{phase}"' in file.read():
                    time.sleep(self._random.choice([0.0, self._random.uniform(0, 0.05)]))
                    return phase
            time.sleep(0.002)
        return "any"


def one_job(base: Path, optimizer: str, wish: int, seed: int) -> tuple[list[Any], dict[str, str]]:
    trial = Trial(base / f"kills-{seed}", optimizer=optimizer, steps=KILL_STEPS, pace=0.02)
    with trial.job as job, Client(trial.path) as client:
        trial.start(2, 2)
        killer = Killer(trial, client, random.Random(seed))
        end = time.monotonic() + 120
        while not (trial.path / folder.EVENTS).exists() and time.monotonic() < end:
            time.sleep(0.05)
        while len(killer.log) < wish and _runs(job):
            killer.kill()
        _revive(job)
        job.wait(END_S)
    return killer.log, outcome(trial.path)


def _runs(job: LocalJob) -> bool:
    return job.processes[COORDINATOR].exitcode != 0


def _revive(job: LocalJob) -> None:
    """Every job needs one of each to finish."""
    for role in (SERVER, WORKER):
        if not any(n.startswith(role) and p.exitcode is None for n, p in job.processes.items()):
            job.start(role, f"{role}-last")
    if job.processes[COORDINATOR].exitcode is not None:
        job.start_coordinator()


def measure_kills(base: Path, wish: int, seed: int) -> None:
    wanted = {name: undisturbed(base / "undisturbed", name, KILL_STEPS) for name in ("sgd", "adam")}
    log: list[dict[str, Any]] = []
    jobs = []
    while len(log) < wish:
        optimizer = ("sgd", "adam")[len(jobs) % 2]
        number = seed * 1000 + len(jobs)
        done, got = one_job(base, optimizer, min(KILLS_A_JOB, wish - len(log)), number)
        log += done
        jobs.append({"seed": number, "kills": len(done), "same": got == wanted[optimizer]})
        print(jobs[-1], len(log), flush=True)
        found = {
            "jobs": jobs,
            "by_role": dict(Counter(each["role"] for each in log)),
            "by_phase": dict(Counter(each["phase"] for each in log)),
            "undisturbed": wanted,
        }
        save_kills(f"seed {seed}", found)


def save_kills(run: str, found: dict[str, Any]) -> None:
    """Writes this run's kills, and the sums over all runs in the file."""
    record = read_results()
    runs = record.get("kills", {}).get("runs", {}) | {run: found | {"machine": machine()}}
    jobs = [job for each in runs.values() for job in each["jobs"]]
    record["kills"] = {
        "kills": sum(job["kills"] for job in jobs),
        "jobs": len(jobs),
        "identical": all(job["same"] for job in jobs),
        "by_role": dict(sum((Counter(each["by_role"]) for each in runs.values()), Counter())),
        "by_phase": dict(sum((Counter(each["by_phase"]) for each in runs.values()), Counter())),
        "runs": runs,
    }
    write_whole(RESULTS, json.dumps(record, indent=1) + "\n")


def read_results() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["bits", "kills"])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the jobs' folders there")
    given = parser.parse_args()
    base = given.folder or Path(tempfile.mkdtemp(prefix="elastic-"))
    if given.what == "kills":
        measure_kills(base, given.kills, given.seed)
        return
    measure_bits(base)


if __name__ == "__main__":
    main()
