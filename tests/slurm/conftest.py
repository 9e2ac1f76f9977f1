from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.site import OPERATOR, Site, until


@pytest.fixture(scope="session")
def site(real_slurm) -> Site:
    """The real Slurm with Mirage installed for its users."""
    site = Site(Path(real_slurm))
    if not os.environ.get("MIRAGE_SLURM_INSTALLED"):
        site.install()
    return site


@pytest.fixture(autouse=True)
def clean_queue(site: Site) -> Iterator[None]:
    site.cancel_all()
    yield
    site.cancel_all()


@dataclass
class Service:
    """The site's daemon, run as the Operator."""

    site: Site
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def store(self) -> Path:
        return self.folder / "mirage.db"

    def configure(
        self,
        policy: str = "timer",
        lead_s: int = 3600,
        poll_s: int = 2,
        mode: str = "enforce",
        acting: str = "",
        web: str = "",
        metrics: str = "",
    ) -> None:
        """``acting``: more lines of that table."""
        (self.folder / "mirage.toml").write_text(
            f'[daemon]\npoll_s = {poll_s}\nstore = "sqlite:///{self.store}"\nsocket ='
            f' "{self.site.socket}"\nweb = "{web}"\nmetrics = "{metrics}"\n[acting]\nmode ='
            f' "{mode}"\ndisable_file = "{self.folder}/disabled"\n{acting}\n[cluster]\ntimeout_s ='
            f' 10\n[policy]\nname = "{policy}"\n[policy.timer]\nlead_s = {lead_s}\n'
        )

    def start(self, *crash_at: str, files: int | None = None) -> subprocess.Popen[bytes]:
        """Starts the daemon; with a point of crashing_daemon.py, one that dies there.

        ``files``: the soft limit of open files that it starts with.
        """
        config = ["--config", str(self.folder / "mirage.toml")]
        crashing = [
            str(self.site.bin / "python"),
            str(self.folder / "crashing_daemon.py"),
            *crash_at,
        ]
        words = [*crashing, *config] if crash_at else ["mirage", "daemon", *config]
        words = ["prlimit", f"--nofile={files}:", *words] if files else words
        self.process = self.site.start(OPERATOR, *words, log=self.log)
        return self.process

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, how)
            self.process.wait(
                90
            )  # a cycle under way is finished; with slurmctld down that takes some time-outs
        self.process = None

    @contextmanager
    def running(self, files: int | None = None) -> Iterator[None]:
        starts = self._starts()
        self.start(files=files)
        try:
            until(lambda: self._starts() > starts, 30, "the daemon to start")
            yield
        finally:
            self.stop()

    def _starts(self) -> int:
        return self.log.read_text().count(" started: ") if self.log.exists() else 0

    def query(self, sql: str) -> list[dict[str, object]]:
        """Rows of the daemon's database; none before it is there."""
        if not self.store.exists():
            return []
        words = [str(self.site.bin / "python"), "-c", _QUERY, str(self.store), sql]
        return json.loads(self.site.run("root", *words).stdout)

    def chain_state(self, chain: str) -> str:
        rows = self.query(f"select state from chains where chain_id = '{chain}'")
        return str(rows[0]["state"]) if rows else ""

    def wait_for(self, chain: str, state: str, timeout_s: float = 60) -> None:
        until(
            lambda: self.chain_state(chain) == state, timeout_s, f"chain {chain} to be {state}", 0.5
        )


_QUERY = """
import json, sqlite3, sys
rows = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
rows.row_factory = sqlite3.Row
print(json.dumps([dict(row) for row in rows.execute(sys.argv[2])]))
"""


@pytest.fixture
def service(site: Site, tmp_path: Path) -> Iterator[Service]:
    folder = site.socket.parent
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir(mode=0o755)
    crashing = folder / "crashing_daemon.py"
    crashing.write_text((Path(__file__).parent / "crashing_daemon.py").read_text())
    service = Service(site, folder)
    service.configure()
    subprocess.run(["chown", "-R", f"{OPERATOR}:", str(folder)], check=True)
    yield service
    service.stop(signal.SIGKILL)
    if service.log.exists():
        print(service.log.read_text()[-4000:])
