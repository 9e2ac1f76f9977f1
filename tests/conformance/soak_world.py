"""Where the soak happens: a real Slurm, PostgreSQL, a small disk and the site's daemon, all on one
fast clock.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.slurm.site import ALICE, BOB, CAROL, OPERATOR, ROOT, Site, until

POLL_S = 600
LEAD_S = 1800
RESTART_REAL_S = 5
"""Between two starts of a daemon that ends by itself."""
_DISK_MIB = 8
_TAKERS = 3
_SQUEUE = r"""#!/bin/sh
real=$(PATH=${PATH#*:} command -v squeue)
[ -e LIES ] || exec "$real" "$@"
answer=$("$real" "$@") || exit
case $(($$ % 3)) in
    0) ;;
    1) printf '%s\n' "$answer" | head -n $(($(printf '%s\n' "$answer" | wc -l) / 2)) ;;
    2) printf %s "$answer" | head -c $((${#answer} / 2)) ;;
esac
"""


class Clock:
    """The file that soak_clock.c maps."""

    def __init__(self, path: Path, speed: float) -> None:
        self.path, self.speed, self._step_s = path, speed, 0.0
        self._real0, self._unix0 = time.monotonic(), time.time()
        path.write_bytes(struct.pack("4d", self._real0, self._unix0, speed, 0.0))
        path.chmod(0o644)

    def elapsed_s(self) -> float:
        """Simulated seconds since the start, whatever jumps there were."""
        return (time.monotonic() - self._real0) * self.speed

    def now_s(self) -> int:
        """Unix time as all programs of the soak see it."""
        return int(self._unix0 + self.elapsed_s() + self._step_s)

    def jump(self, by_s: float) -> None:
        self._step_s += by_s
        with self.path.open("r+b") as file:
            file.seek(24)
            file.write(struct.pack("d", self._step_s))


@dataclass(frozen=True)
class FastSite(Site):
    """Whose users' commands and jobs live on the fast clock."""

    library: str = ""
    clock: str = ""

    def environment(self, user: str) -> dict[str, str]:
        # Half a second and less: job.sh gives other processes time to do something, which no clock
        # shortens.
        fast = {"LD_PRELOAD": self.library, "SOAK_CLOCK": self.clock, "SOAK_REAL_BELOW": "0.5"}
        return super().environment(user) | fast


@dataclass
class DaemonWorld:
    """A Slurm and the site's daemon on the fast clock, and how they are disturbed."""

    site: FastSite
    clock: Clock
    daemon: subprocess.Popen[bytes] | None = None
    _held: Counter[str] = field(default_factory=Counter)
    _started: float = 0

    @property
    def folder(self) -> Path:
        return self.site.folder / "mirage"

    def held(
        self, name: str, down: Callable[[], None], up: Callable[[], None]
    ) -> Callable[[], None]:
        """Two faults may take the same thing away: only the first one does, and the last one gives
        it back.
        """
        if not self._held[name]:
            down()
        self._held[name] += 1

        def give_back() -> None:
            if self._held[name] == 1:
                up()
            self._held[name] -= 1

        return give_back

    def is_held(self, name: str) -> bool:
        """A fault has taken it away."""
        return self._held[name] > 0

    # ---- the daemon

    def start_daemon(self) -> None:
        self._started = time.monotonic()
        config = str(self.folder / "mirage.toml")
        self.daemon = self.site.start(
            OPERATOR, "mirage", "daemon", "--config", config, log=self.folder / "daemon.log"
        )

    def kill_daemon(self) -> None:
        assert self.daemon
        if self.daemon.poll() is None:
            os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait(30)

    def restart_dead_daemon(self) -> bool:
        """As systemd would (Restart=always): it may have ended because its store was away at its
        start.
        """
        if self._held["daemon"] or self.daemon is None or self.daemon.poll() is None:
            return False
        if time.monotonic() < self._started + RESTART_REAL_S:
            return False
        self.start_daemon()
        return True

    def stop_daemon(self) -> None:
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(60)
            except subprocess.TimeoutExpired:
                self.kill_daemon()

    def await_daemon(self) -> None:
        until(
            lambda: " started: " in (self.folder / "daemon.log").read_text(),
            60,
            "the daemon to start",
        )

    def give_folder(self) -> None:
        """To the Operator, as whom the daemon runs."""
        checked(["chown", "-R", f"{OPERATOR}:", str(self.folder)])

    def quicken(self) -> None:
        """Ends Slurm's daemons and starts them on the fast clock."""
        lines = [f"LD_PRELOAD={self.site.library}", f"SOAK_CLOCK={self.site.clock}"]
        (self.site.folder / "etc" / "environment").write_text("\n".join(lines) + "\n")
        for name in ("slurmctld", "slurmd", "slurmdbd"):
            self.site.slurm("stop", name)
        for name in ("slurmdbd", "slurmctld", "slurmd"):
            self.site.slurm("start", name)
        until(
            lambda: "idle" in self.site.run("root", "sinfo", "-h", "-o", "%T", check=False).stdout,
            60,
            "idle nodes",
        )


@dataclass
class World(DaemonWorld):
    """With a store on PostgreSQL and a small disk."""

    databases_dir: Path = field(kw_only=True)
    port_base: int = field(kw_only=True)

    @property
    def disk(self) -> Path:
        """The daemon's state: a small file system."""
        return self.folder / "disk"

    def databases(self, verb: str) -> None:
        where = ["--dir", str(self.databases_dir)] + (
            ["--port-base", str(self.port_base)] if verb == "up" else []
        )
        checked([str(ROOT / "scripts/databases"), verb, *where, "postgresql"])

    def store_url(self, database: str) -> str:
        url = (self.databases_dir / "postgresql.url").read_text().strip()
        return url.rpartition("/")[0] + f"/{database}"

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.store_url("mirage_soak")) as connection:
            return connection.execute(sql.encode()).fetchall()

    def kill_as_a_link_starts(self, most_real_s: float = 60) -> None:
        """Kills slurmctld once a link has queued its successor, or after some time: none may do
        so. At once, since slurmctld saves its state every five seconds of the fast clock.
        """
        chains = [self.site.home(user) / ".mirage" / "chains" for user in (ALICE, BOB, CAROL)]

        def queued() -> set[Path]:
            return {file for folder in chains for file in folder.glob("*/queued.[0-9]*")}

        before, until_s = queued(), time.monotonic() + most_real_s
        while time.monotonic() < until_s and not self.is_held("slurmctld") and queued() <= before:
            time.sleep(0.005)
        if not self.is_held("slurmctld"):
            os.kill(int((self.site.folder / "run" / "slurmctld.pid").read_text()), signal.SIGKILL)

    @property
    def lies(self) -> Path:
        """While this file is there, squeue answers the daemon, users and jobs with part of the
        truth, or nothing, and exit code 0.
        """
        return self.site.folder / "squeue.lies"

    def _let_squeue_lie(self) -> None:
        program = self.site.bin / "squeue"
        program.write_text(_SQUEUE.replace("LIES", str(self.lies)))
        program.chmod(0o755)

    def take_ids(self) -> None:
        """Another user's short jobs, so that ids that slurmctld has forgotten are used again."""
        for _ in range(_TAKERS):
            words = ("sbatch", "-N1", "-t5", "-o", "/dev/null", "--wrap", "sleep 100")
            self.site.run(OPERATOR, *words, check=False)

    def release_failed_launches(self) -> None:
        """As an administrator does: Slurm holds a job whose second launch after a crash failed."""
        told = self.site.run("root", "squeue", "-h", "-o", "%A %r", check=False)
        for line in told.stdout.splitlines():
            job_id, _, reason = line.partition(" ")
            if reason.startswith("launch failed"):
                self.site.run("root", "scontrol", "release", job_id, check=False)

    def fill_disk(self) -> None:
        with (self.disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(b"\0" * 4096):
                pass

    def free_disk(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)

    # ---- up and down

    def up(self) -> None:
        self.databases("up")
        with psycopg.connect(self.store_url("postgres"), autocommit=True) as connection:
            connection.execute("drop database if exists mirage_soak")
            connection.execute("create database mirage_soak")
        self.quicken()
        checked(["rm", "-rf", str(self.folder)])
        self.disk.mkdir(parents=True)
        checked(["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(self.disk)])
        self._let_squeue_lie()
        self._configure()
        self.give_folder()
        self.start_daemon()
        self.await_daemon()

    def _configure(self) -> None:
        (self.folder / "url").write_text(self.store_url("mirage_soak") + "\n")
        (self.folder / "url").chmod(0o600)
        (self.folder / "mirage.toml").write_text(
            f'[daemon]\npoll_s = {POLL_S}\nstore_file = "{self.folder}/url"\nsocket ='
            f' "{self.site.socket}"\n[acting]\nmode = "enforce"\ndisable_file ='
            f' "{self.folder}/disabled"\nmax_age_s = 900\n[audit]\nfile ='
            f' "{self.disk}/audit.jsonl"\nmax_mib = 1\nkeep = 2\n[policy]\nname ='
            f' "timer"\n[policy.timer]\nlead_s = {LEAD_S}\n'
        )

    def down(self) -> None:
        self.stop_daemon()
        subprocess.run(["umount", str(self.disk)], check=False, capture_output=True)
        (self.site.folder / "etc" / "environment").unlink(missing_ok=True)


def checked(words: list[str]) -> None:
    """Runs a command; AssertionError with what it printed if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (
        f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    )
