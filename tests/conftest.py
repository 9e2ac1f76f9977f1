from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, so that a failure is of the change at hand. `scripts/fuzz-core`
# looks for new ones. How long an example takes depends on the machine's load.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# A shell starts what it puts into the background with SIGINT ignored. Tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DEFAULT_SLURM_DIR = "/var/tmp/mirage-slurm"


@pytest.fixture(scope="session")
def real_slurm() -> Path:
    """The folder of a running Slurm that scripts/slurm-up started; of several in MIRAGE_SLURM_DIR
    this process's own.

    Without one the tests that need it are skipped, or fail where MIRAGE_SLURM_REQUIRED is set.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    folder = Path(os.environ.get("MIRAGE_SLURM_DIR", DEFAULT_SLURM_DIR).split(":")[worker])
    problem = _problem(folder)
    if not problem:
        return folder
    reason = (
        f"needs a real Slurm and root: {problem}. Start one with scripts/slurm-up, or run"
        " scripts/test-slurm."
    )
    if os.environ.get("MIRAGE_SLURM_REQUIRED"):
        pytest.fail(reason)
    pytest.skip(reason)


def _problem(folder: Path) -> str:
    conf = folder / "etc" / "slurm.conf"
    if os.geteuid() != 0:
        return "this user is not root"
    if not conf.exists():
        return f"no {conf}"
    env = os.environ | {"SLURM_CONF": str(conf), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    try:
        ping = subprocess.run(
            ["scontrol", "ping"], env=env, capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if "UP" in ping.stdout.split() else f"the Slurm of {folder} does not run"
