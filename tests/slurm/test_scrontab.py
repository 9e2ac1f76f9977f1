"""`mirage agent --once` from Slurm's own cron (scrontab(1)), for sites that end long processes on
login nodes.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.slurm.site import ALICE, until

pytestmark = pytest.mark.slurm

LINK = """#!/bin/sh
#SBATCH -N1 -t30 -o /dev/null --signal=B:USR1@60
trap 'exit 0' USR1
sleep 600 & wait $!
"""


@pytest.fixture
def every_minute(site):
    """Runs a command of alice's every minute, its output in a file."""
    if not shutil.which("scrontab", path=site.environment(ALICE)["PATH"]):
        pytest.skip("the packages of this Slurm release have no scrontab (22.05 of Debian 12)")
    log = site.home(ALICE) / "scron.log"
    log.unlink(missing_ok=True)

    def start(command: str):
        # The users' homes in /etc/passwd may be of another instance on this machine.
        kept = ("PATH", "SLURM_CONF", "HOME", "MIRAGE_SOCKET")
        values = " ".join(f"{key}={site.environment(ALICE)[key]}" for key in kept)
        table = f"#SCRON --time=5 --output={log} --open-mode=append\n#SCRON --chdir=/tmp\n"
        table += f"* * * * * env {values} {command}\n"
        site.run(ALICE, "scrontab", site.script(ALICE, "scrontab.txt", table))
        return log

    yield start
    site.run(ALICE, "scrontab", "-r")


def test_an_agent_from_scrontab_lets_a_successor_in_and_says_nothing(site, every_minute):
    state = site.home(ALICE) / ".local" / "state" / "mirage"
    shutil.rmtree(state, ignore_errors=True)
    log = every_minute("MIRAGE__POLICY__TIMER__LEAD_S=3600 mirage agent --once --policy timer")
    once = until(lambda: next(state.rglob("mirage.once"), None), 150, "the first look")
    words = ["mirage-submit", "--json", "--segments=2", site.script(ALICE, "link.sh", LINK)]
    told = site.run(ALICE, *words)
    assert "is seen to run" not in told.stderr, "cron looks"
    chain = json.loads(told.stdout)["chain"]
    until(lambda: _let_in_by(site, chain, 2) == "agent", 200, "the agent to let link 2 in")
    assert not log.exists() or log.read_text() == "", "it would be a mail each minute"
    last_s = once.stat().st_mtime
    until(lambda: once.stat().st_mtime > last_s, 150, "one look more")
    assert int(once.read_text()) > 0, "how long after the one before"
    assert _let_in_by(site, chain, 2) == "agent", "what is done is not done again"


def _let_in_by(site, chain, segment):
    (report,) = json.loads(site.run(ALICE, "mirage", "status", chain, "--json").stdout)["chains"]
    links = {link["segment"]: link for link in report["links"]}
    return links[segment]["let_in_by"] if segment in links else None
