"""What users ask and say about their chains, on a real Slurm: with the site's daemon, an agent, and
neither.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, BUSY, Site, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -t10 -o /dev/null\n#SBATCH --job-name=night\nexec sleep 300\n"
BAD = "#!/bin/sh\n#SBATCH -N1 -t10 -o /dev/null\nexit 3\n"


@pytest.fixture
def clean_home(site: Site) -> None:
    subprocess.run(
        ["rm", "-rf", site.home(ALICE) / ".mirage", site.home(ALICE) / ".local"], check=True
    )


def status(site: Site, *words: str) -> list[dict]:
    return json.loads(site.run(ALICE, "mirage", "status", "--json", *words).stdout)["chains"]


def says(site: Site, words: str) -> None:
    """Waits until status has these words: for some seconds after a change Slurm gives no reason."""
    until(lambda: words in the_next(site), 60, f"status to say {words!r}")


def the_next(site: Site) -> str:
    (report,) = status(site)
    return report["next"]


@contextmanager
def agent(site: Site, tmp_path: Path, *words: str) -> Iterator[None]:
    process = site.start(
        ALICE, "mirage", "agent", "--poll", "1s", *words, log=tmp_path / "agent.log"
    )
    try:
        until(
            lambda: " started: " in (tmp_path / "agent.log").read_text(), 30, "the agent to start"
        )
        yield
    finally:
        process.terminate()
        process.wait(60 * BUSY)


def test_a_chain_from_its_submission_to_cancel_all(site: Site, clean_home: None) -> None:
    """With neither a daemon nor an agent."""
    script = site.script(ALICE, "night.sh", WORK)
    done = site.run(ALICE, "mirage-submit", "--segments=3", script)
    assert (
        "no Mirage daemon answers on this machine, and no agent of yours is seen to run"
        in done.stderr
    )
    (report,) = status(site)
    first, second = (link["job_id"] for link in report["links"])
    until(lambda: site.state(first) == "RUNNING", 30, "the first link to run")
    assert (report["name"], report["script"]) == ("night", script)
    says(
        site,
        f"Job {second} (link 2) waits for job {first}. Slurm starts it after job {first} ends.",
    )

    chain = report["chain"]
    for name in (chain[:4], str(first), str(second)):
        assert [each["chain"] for each in status(site, name)] == [chain]
    for verb in ("history", "explain"):
        assert chain in site.run(ALICE, "mirage", verb, "--json", chain[:5]).stdout

    site.run(ALICE, "scontrol", "hold", str(second))
    says(site, f"its owner has paused the chain. It goes on with `mirage resume {chain}`")
    site.run(ALICE, "scontrol", "release", str(second))
    says(site, f"Slurm starts it after job {first} ends.")
    site.run("root", "scontrol", "hold", str(second))
    says(site, "an administrator holds it")
    site.run("root", "scontrol", "release", str(second))
    site.run(ALICE, "scontrol", "update", f"JobId={second}", f"Dependency=afterok:{first}")
    says(site, f"it waits for afterok:{first}(unfulfilled), which is not afterany:{first} alone")
    site.run(ALICE, "scontrol", "update", f"JobId={second}", "Dependency=", "StartTime=now+1hour")
    says(site, "and Slurm does not start it sooner")
    site.run(ALICE, "scontrol", "update", f"JobId={second}", "StartTime=now")
    until(lambda: site.state(second) == "RUNNING", 60, "the second link to run")
    # Who let it in is known once Slurm shows its start.
    until(
        lambda: [link["let_in_by"] for link in status(site)[0]["links"][:2]] == ["slurm", "owner"],
        30,
        "the owner to be named as who let it in",
    )

    refused = site.run(ALICE, "mirage", "cancel", "--all", check=False)
    assert (refused.returncode, site.state(second)) == (2, "RUNNING")
    assert (
        f"chain {chain} is cancelled"
        in site.run(ALICE, "mirage", "cancel", "--all", "--yes").stdout
    )
    until(
        lambda: not site.run(ALICE, "squeue", "-h", "-u", ALICE).stdout, 60, "the queue to be empty"
    )
    assert status(site) == []


def test_a_failed_chain_is_shown_until_it_is_old(site: Site, clean_home: None) -> None:
    chain, _jobs = site.submit_chain(ALICE, "--segments=2", site.script(ALICE, "bad.sh", BAD))
    until(lambda: [each["state"] for each in status(site)] == ["failed"], 60, "the chain to fail")
    text = site.run(ALICE, "mirage", "status").stdout
    assert f"Ended badly within 3 days\nchain {chain} failed (train, {ALICE}, ran " in text
    assert " of 2 time limits): ~/bad.sh\n" in text
    assert "No further link: " in text


def test_daemon_and_agent_side_by_side_tell_one_truth(
    site: Site, service: Service, clean_home: None, tmp_path: Path
) -> None:
    """The agent lets the successor in while the daemon only observes; neither hides it or says it
    was another.
    """
    # It takes some seconds to save, so that its successor is in the queue before it has ended.
    script = site.script(
        ALICE,
        "night.sh",
        WORK.replace("exec sleep 300", "trap 'sleep 4; exit' TERM\nsleep 300 & wait"),
    )
    service.configure(mode="observe", policy="reactive")
    with service.running():
        done = site.run(ALICE, "mirage-submit", "--segments=3", "--json", script)
        assert done.stderr == ""
        told = json.loads(done.stdout)
        first, second = (job["job_id"] for job in told["jobs"])
        until(lambda: "Mirage only observes here" in the_next(site), 60, "the daemon to observe")
        assert status(site)[0]["watched_by"] == "daemon"
        with agent(site, tmp_path, "--policy", "timer"):
            until(
                lambda: status(site)[0]["links"][1]["let_in_by"] == "agent", 60, "the agent to act"
            )
            until(lambda: site.state(second) == "RUNNING", 60, "the second link to run")
        until(lambda: len(status(site)[0]["links"]) == 3, 60, "the third link")
        report = status(site)[0]
        assert [link["let_in_by"] for link in report["links"][:2]] == ["slurm", "agent"]
        assert report["links"][1]["released"]
        said = site.run(ALICE, "mirage", "explain", str(second)).stdout
        assert "it was let into the queue by its owner's Mirage agent" in said
        of_root = json.loads(
            site.run("root", "mirage", "status", "--json", told["chain"][:6]).stdout
        )["chains"][0]
        assert of_root["links"][1]["let_in_by"] == "owner"
    assert first < second
