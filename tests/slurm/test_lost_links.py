"""A job id is no identity: slurmctld is killed in the second in which a link queues the next one,
and gives that one's id to another user's job. And links that can't queue the next one at all.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, CAROL, Site, until

pytestmark = pytest.mark.slurm

LINK = """#!/bin/sh
#SBATCH -N1 -t10 -o /dev/null
touch {home}/work.$MIRAGE_SEGMENT
[ $MIRAGE_SEGMENT -gt 2 ] || until [ -e {home}/go.$MIRAGE_SEGMENT ]; do sleep 0.2; done
"""
"""The last links end at once: between two looks of the daemon."""
TRIES = 4
"""slurmctld saves its state every few seconds: it may just have done so."""


@pytest.fixture
def home(site: Site) -> Path:
    home = site.home(ALICE)
    for file in [*home.glob("go.*"), *home.glob("work.*")]:
        file.unlink()
    return home


def started_chain(site: Site, home: Path, path: str = "") -> tuple[str, Path]:
    script = site.script(ALICE, "lost.sh", LINK.format(home=home))
    words = ["mirage-submit", "--json", "--segments=4", "--min-runtime=1s", "--max-short=0", script]
    done = site.run(ALICE, *(["env", f"PATH={path}"] if path else []), *words)
    chain = json.loads(done.stdout)["chain"]
    return chain, home / ".mirage" / "chains" / chain


def await_save(site: Site) -> None:
    """Until slurmctld has saved its jobs."""
    state = site.folder / "state" / "slurmctld" / "job_state"
    before = time.time()
    until(lambda: state.stat().st_mtime > before + 1, 60, "slurmctld to save its state")


def is_done(site: Site, folder: Path, held: int) -> bool:
    """Releases a link that slurmctld holds: its second launch after a crash may have failed."""
    if site.job(held).get("Reason", "").startswith("launch_failed"):
        site.run("root", "scontrol", "release", str(held))
    return (folder / "done").exists()


def test_a_lost_successor_whose_id_another_user_got_is_queued_again(
    site: Site, service: Service, home: Path
) -> None:
    service.configure(mode="observe")
    with service.running():
        for _ in range(TRIES):
            chain, folder = started_chain(site, home)
            until((home / "work.1").exists, 30, "link 1 to work")
            until(lambda: service.chain_state(chain) == "active", 30, "the daemon's view")  # noqa: B023
            await_save(site)  # of link 2, or the crash takes it along
            (home / "go.1").touch()
            until((folder / "queued.3").exists, 60, "link 2 to queue link 3", every_s=0.02)
            site.slurm("kill", "slurmctld")
            lost = int((folder / "queued.3").read_text())
            site.slurm("start", "slurmctld")
            if not site.job(lost):
                break
            site.run(ALICE, "mirage", "cancel", chain)
            site.cancel_all()
            for file in [*home.glob("go.*"), *home.glob("work.*")]:
                file.unlink()
        else:
            pytest.fail(f"slurmctld had saved the job each of {TRIES} times")
        taken = [
            int(site.run(CAROL, "sbatch", "--parsable", "-N1", "-t5", "--wrap=sleep 900").stdout)
            for _ in range(3)
        ]
        assert lost in taken, "her job has the id of Alice's lost link"
        second = int((folder / "queued.2").read_text())
        (home / "go.2").touch()
        until(lambda: is_done(site, folder, second), 120, "the chain to run to its end", every_s=2)
        service.wait_for(chain, "done")
    links = json.loads(site.run(ALICE, "mirage", "status", chain, "--json").stdout)["chains"][0]
    jobs = {link["segment"]: link["job_id"] for link in links["links"]}
    assert sorted(jobs) == [1, 2, 3, 4]
    assert not set(jobs.values()) & set(taken)
    assert site.state(lost) in ("RUNNING", "PENDING"), "her job is left alone"


WRAPPER = """#!/bin/sh
if tr '\\0' '\\n' </proc/$PPID/environ | grep -q ^SLURM_JOB_ID=; then
    echo "sbatch: error: Batch job submission failed: Access/permission denied" >&2
    exit 1
fi
exec "$(PATH=${PATH#*:} command -v sbatch)" "$@"
"""


def test_where_jobs_may_not_submit_it_is_said_early_and_the_owners_commands_and_agent_go_on(
    site: Site, home: Path
) -> None:
    """The wrapper stands for a site's own one on its compute nodes, or for AllocNodes."""
    (home / "wrapper").mkdir(exist_ok=True)
    site.script(ALICE, "wrapper/sbatch", WRAPPER)
    path = f"{home}/wrapper:{site.environment(ALICE)['PATH']}"
    words = ("env", f"PATH={path}", "mirage", "doctor", "--try-job", "")
    assert "may not submit jobs" in site.run(ALICE, *words, check=False).stdout
    chain, folder = started_chain(site, home, path)
    until((folder / "queued.3.error").exists, 60, "link 1 to find out")

    def report() -> dict[str, object]:
        told = site.run(ALICE, "mirage", "status", chain, "--json").stdout
        return json.loads(told)["chains"][0]

    told = report()
    assert "denied" in told["attention"]["words"]
    assert f"mirage resume {chain}" in told["attention"]["words"]
    (home / "go.1").touch()
    until((home / "work.2").exists, 60, "link 2 to work")
    done = site.run(ALICE, "mirage", "resume", chain)
    assert "queued link 3" in done.stdout
    assert report()["attention"] is None
    (home / "go.2").touch()
    until((home / "work.3").exists, 60, "link 3 to work")
    with Agent(site, home):
        until((home / "work.4").exists, 120, "the agent to queue link 4")
    until((folder / "done").exists, 60, "the chain's end")


class Agent:
    """`mirage agent` of Alice's, which looks every two seconds."""

    def __init__(self, site: Site, home: Path) -> None:
        config = home / "agent.toml"
        config.write_text(
            f'[daemon]\npoll_s = 2\nstore = "sqlite:///{home}/agent.db"\n[policy]\nname = "reactive"\n'
        )
        self._words = ["mirage", "agent", "--config", str(config)]
        self._site, self._home = site, home

    def __enter__(self) -> None:
        log = self._home / "agent.log"
        self._process = self._site.start(ALICE, *self._words, log=log)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        print((self._home / "agent.log").read_text()[-3000:])
