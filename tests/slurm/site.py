"""A site for tests and benchmarks: a real Slurm (scripts/slurm-up), and Mirage installed for its
users.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PYTHON = "/usr/bin/python3"
"""The system's: plain users can't run an interpreter that lies under /root."""

BUSY = 3
"""How often a busy machine takes the time of a quiet one. What is waited for costs no more."""
CORES = Path("/var/cache/mirage-slurm/cores")
"""Compiled cores, by what they were compiled from: a compile takes minutes of CPU time."""

ALICE, BOB, CAROL, OPERATOR = "mirage-alice", "mirage-bob", "mirage-carol", "mirage"


@dataclass(frozen=True)
class Site:
    """An instance of scripts/slurm-up in ``folder``, and Mirage installed in ``folder/site``."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "site" / "bin"

    def install(self) -> None:
        """Installs Mirage as a site would: from a wheel, for all users."""
        site = self.folder / "site"
        fresh = not (self.bin / "python").exists()
        if fresh:
            _check([PYTHON, "-m", "venv", str(site.resolve())])  # venv refuses a link
        pip = [str(self.bin / "pip"), "install", "-q", "--no-compile"]
        with TemporaryDirectory() as folder:
            core = _kept_core() if _fits(self.bin / "python") else None
            source = _wheel(Path(folder), core) if core else ROOT
            if fresh:
                # NetworkX is all that live placement needs of the extra `placement`.
                _check([*pip, "-c", str(ROOT / "constraints.txt"), f"{source}[web]", "networkx"])
            else:
                _check([*pip, "--no-deps", "--force-reinstall", str(source)])
        _check([str(self.bin / "python"), "-I", "-c", "import slurm_sim.core._core"])

    def install_elastic(self) -> None:
        """Adds what elastic jobs need: torch and pyzmq of this environment, where users can read
        it and it fits; otherwise they are installed.
        """
        libraries = Path(sysconfig.get_path("purelib"))
        lent = next((self.bin.parent / "lib").glob("python3*")) / "site-packages" / "lent.pth"
        code = "from importlib.util import find_spec as f; exit(not (f('torch') and f('zmq')))"
        probe = (str(self.bin / "python"), "-c", code)
        if self.run(ALICE, *probe, check=False).returncode:
            lent.write_text(f"{libraries}\n")
        if self.run(ALICE, *probe, check=False).returncode:
            lent.unlink()
            constraints = str(ROOT / "constraints.txt")
            _check([str(self.bin / "pip"), "install", "-q", "-c", constraints, "torch", "pyzmq"])

    def environment(self, user: str) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:{self.folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "SLURM_CONF": str(self.folder / "etc" / "slurm.conf"),
            "SLURM_TIME_FORMAT": "%s",
            "HOME": str(self.home(user)),
            "USER": user,
            "LOGNAME": user,
            "LC_ALL": "C.UTF-8",
            "MIRAGE_SOCKET": str(self.socket),
        }

    def home(self, user: str) -> Path:
        return Path("/root") if user == "root" else self.folder / "home" / user

    @property
    def socket(self) -> Path:
        return self.folder / "mirage" / "mirage.sock"

    def argv(self, user: str, words: Sequence[str]) -> list[str]:
        become = (
            []
            if user == "root"
            else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        )
        return ["env", "-C", str(self.home(user)), *become, *words]

    def run(
        self, user: str, *words: str, check: bool = True, timeout_s: float = 60 * BUSY
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as a user, in the user's home."""
        done = subprocess.run(
            self.argv(user, words),
            env=self.environment(user),
            capture_output=True,
            text=True,
            errors="replace",  # other tests leave jobs with any bytes in their comments
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{user}: {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def start(self, user: str, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Starts a long-running command as a user."""
        with log.open("ab") as sink:
            return subprocess.Popen(
                self.argv(user, words),
                env=self.environment(user),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def script(self, user: str, name: str, text: str) -> str:
        """Writes a batch script into a user's home."""
        path = self.home(user) / name
        path.write_text(text)
        path.chmod(0o755)
        _check(["chown", f"{user}:", str(path)])
        return str(path)

    def submit_chain(self, user: str, *words: str) -> tuple[str, list[int]]:
        """(chain id, job ids) of a chain started with mirage-submit."""
        told = json.loads(self.run(user, "mirage-submit", "--json", "--again", *words).stdout)
        return told["chain"], [job["job_id"] for job in told["jobs"]]

    def job(self, job_id: int) -> dict[str, str]:
        """A job as `scontrol show job` has it; empty if slurmctld does not know it."""
        text = self.run("root", "scontrol", "show", "job", "-o", str(job_id), check=False).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def state(self, job_id: int) -> str:
        return self.job(job_id).get("JobState", "")

    def chain_jobs(self, user: str, chain: str) -> dict[int, list[int]]:
        """segment -> job ids, of a chain's jobs that slurmctld knows, ended ones too."""
        rows = self.run(
            "root", "squeue", "-h", "-t", "all", "-u", user, "-o", "%A %k"
        ).stdout.splitlines()
        found: dict[int, list[int]] = {}
        for row in rows:
            job_id, _, comment = row.partition(" ")
            words = dict(word.split("=", 1) for word in comment.split() if "=" in word)
            if words.get("chain") == chain:
                found.setdefault(int(words["seg"].split("/")[0]), []).append(int(job_id))
        return {segment: sorted(ids) for segment, ids in sorted(found.items())}

    def cancel_all(self) -> None:
        """Ends every job and waits until the nodes are free. A link that starts just then may have
        queued the next one after the first try.
        """

        def is_empty() -> bool:
            for user in (ALICE, BOB, CAROL):
                self.run("root", "scancel", "-u", user, check=False)
            return not self.run("root", "squeue", "-h").stdout.strip()

        until(is_empty, 60, "all jobs to end", every_s=1)

    def slurm(self, action: str, daemon: str, *more: str) -> None:
        """`start` or `stop` a daemon of the instance, or `kill` it (SIGKILL)."""
        if action == "start":
            _check([str(ROOT / "scripts/slurm-up"), "--dir", str(self.folder), "--start", daemon])
        else:
            signal = ["--signal", "KILL"] if action == "kill" else []
            _check(
                [
                    str(ROOT / "scripts/slurm-down"),
                    "--dir",
                    str(self.folder),
                    "--only",
                    daemon,
                    *signal,
                    *more,
                ]
            )

    @contextmanager
    def full(
        self, *, backlog: int, run_s: tuple[int, int], limit_min: int = 3, nodes: int = 1
    ) -> Iterator[None]:
        """Keeps the nodes full of another user's jobs, and ``backlog`` of them waiting."""
        script = self.script(
            CAROL,
            "filler.sh",
            f"#!/bin/sh\nsleep $(({run_s[0]} + $$ % {run_s[1] - run_s[0] + 1}))\n",
        )
        stop = threading.Event()

        def fill() -> None:
            while not stop.is_set():
                waiting = self.run(
                    CAROL, "squeue", "-h", "-t", "PD", "-u", CAROL, check=False
                ).stdout.count("\n")
                for _ in range(backlog - waiting):
                    words = ["sbatch", "-o/dev/null", f"-N{nodes}", f"-t{limit_min}", script]
                    self.run(CAROL, *words, check=False)
                stop.wait(1.5)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        try:
            until(
                lambda: (
                    not self.run("root", "sinfo", "-h", "-t", "idle", "-o", "%n").stdout.strip()
                ),
                60,
                "full nodes",
            )
            yield
        finally:
            stop.set()
            thread.join()
            self.run("root", "scancel", "-u", CAROL, check=False)


def _fits(python: Path) -> bool:
    """Whether what this environment compiles runs under the site's Python, and it can compile
    (scripts/install).
    """
    tag = "import sys; print(sys.implementation.cache_tag)"
    theirs = subprocess.run([python, "-c", tag], capture_output=True, text=True, check=True)
    same = theirs.stdout.strip() == sys.implementation.cache_tag
    return same and find_spec("scikit_build_core") is not None


def core_key(root: Path) -> str:
    """Of the sources from which the core is compiled, and of the Python for which."""
    found = hashlib.sha256(str(sysconfig.get_config_var("EXT_SUFFIX")).encode())
    for path in [root / "CMakeLists.txt", *sorted((root / "slurm_sim" / "core").iterdir())]:
        if path.suffix in (".txt", ".cpp", ".hpp", ".inl", ".in"):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:24]


def _kept_core() -> Path:
    """The core compiled from these sources, by an earlier run of any checkout, or now."""
    kept = CORES / core_key(ROOT) / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not kept.exists():
        with TemporaryDirectory() as folder:
            with zipfile.ZipFile(_wheel(Path(folder), None)) as wheel:
                name = next(name for name in wheel.namelist() if name.endswith(kept.name))
                wheel.extract(name, folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(f".{os.getpid()}")
            shutil.copy(Path(folder, name), partial)
            partial.replace(kept)
    return kept


def _wheel(folder: Path, core: Path | None) -> Path:
    """A wheel of this checkout. With a core that is compiled already it takes seconds."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    if core:  # in a build folder of its own: it would stay in the other's cache
        build += [f"--config-setting=cmake.define.SLURM_SIM_CORE={core}"]
        build += [f"--config-setting=build-dir={folder / 'build'}"]
    _check([*build, str(ROOT)])
    return next(folder.glob("mirage_slurm-*.whl"))


def _check(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(
            f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )


def until(what: Callable[[], object], timeout_s: float, name: str, every_s: float = 0.3) -> object:
    """Waits for something to become true and returns it. ``timeout_s`` is enough on a quiet machine;
    AssertionError after as much as a busy one may need.
    """
    timeout_s *= BUSY
    deadline = time.monotonic() + timeout_s
    while True:
        if found := what():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:.0f} s for {name}")
        time.sleep(every_s)


def the_site() -> Site:
    """The instance that MIRAGE_SLURM_DIR names (default: scripts/slurm-up's)."""
    site = Site(Path(os.environ.get("MIRAGE_SLURM_DIR", "/var/tmp/mirage-slurm")))
    if not (site.folder / "env.sh").exists():
        sys.exit(f"{site.folder}: no Slurm here; start one: scripts/slurm-up --dir {site.folder}")
    return site


if __name__ == "__main__":
    Site(Path(sys.argv[1])).install()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
