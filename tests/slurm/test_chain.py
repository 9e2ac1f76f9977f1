"""Whole chains on a real Slurm, as their owners run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from urllib.request import urlopen

import pytest

from tests.slurm.site import ALICE, BOB, BUSY, CAROL, until

pytestmark = pytest.mark.slurm

TRAINING = """#!/bin/sh
#SBATCH -N1 -t5 -o /dev/null --signal=B:USR1@30
log() { echo "$MIRAGE_SEGMENT $1" >>"$HOME/log.$MIRAGE_CHAIN_ID"; }
trap 'log saved; exit 0' USR1
log resumed
sleep 300 & wait $!
"""
SINGLETON = """#!/bin/sh
#SBATCH -N1 -t5 -o /dev/null -J one --dependency=singleton
log() { echo "$MIRAGE_CHAIN_ID $MIRAGE_SEGMENT $1" >>"$HOME/log.singleton"; }
log begins
sleep 4
log ends
"""
WHOLE = ("--min-runtime=0", "--max-short=0")
FLEXIBLE = """#!/bin/sh
#SBATCH -N1 -o /dev/null
log() { echo "$MIRAGE_SEGMENT $1" >>"$HOME/log.$MIRAGE_CHAIN_ID"; }
trap 'log saved; exit 0' TERM
log resumed
sleep 900 & wait $!
"""
SERVICE = """#!/bin/sh
#SBATCH -N1 -t5 -o serve.log --open-mode=append
log() { echo "$MIRAGE_SEGMENT $1" >>"$HOME/log.$MIRAGE_CHAIN_ID"; }
log up
sleep 8
log serves
echo $$ >"$HOME/server.$MIRAGE_SEGMENT"
exec python3 -m http.server $((PORT + MIRAGE_SEGMENT)) 2>/dev/null
"""
# The nodes here are one machine: so each link has a port of its own, and none has the one of --health-http.
ASKS = "python3 -c \"import urllib.request as u; u.urlopen('http://localhost:$((PORT+MIRAGE_SEGMENT))')\""


class Client(threading.Thread):
    """Asks each second, from outside, whether any link of a service answers."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.ports, self.silent_s, self.stop_asked = ports, 0, threading.Event()

    def run(self) -> None:
        while not self.stop_asked.wait(1):
            self.silent_s += not any(map(answers, self.ports))


def answers(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://localhost:{port}", timeout=3):
        return True
    return False


def log_of(site, chain):
    path = site.home(ALICE) / f"log.{chain}"
    return path.read_text().splitlines() if path.exists() else []


def start(site, *options, script, wait_s=30):
    chain, jobs = site.submit_chain(ALICE, *options, site.script(ALICE, "work.sh", script))
    until(lambda: site.state(jobs[0]) == "RUNNING", wait_s, "the first link")
    until(lambda: log_of(site, chain), 30, "the first link's work")
    return chain, jobs


def test_a_training_chain_hands_over_checkpoint_first_and_ends_with_mirage_done(site, service):
    """One writer at any time: the old link has saved before the new one resumes; and so from link
    to link. Two time limits are more than two links, since each link is ended early: the service
    lets its successor in 30 s after its start.
    """
    service.configure(
        lead_s=180
    )  # of 300 s, 90 s before the limit at the earliest comes the signal
    with service.running():
        chain, jobs = start(site, "--segments=2", script=TRAINING)
        until(lambda: "2 resumed" in log_of(site, chain), 90, "the second link's work")
        assert log_of(site, chain)[:3] == ["1 resumed", "1 saved", "2 resumed"]
        until(
            lambda: "3 resumed" in log_of(site, chain),
            120,
            "the third link, which the second one queued",
        )
        assert log_of(site, chain) == ["1 resumed", "1 saved", "2 resumed", "2 saved", "3 resumed"]
        links = site.chain_jobs(ALICE, chain)
        assert [len(links[segment]) for segment in (1, 2, 3)] == [1, 1, 1]
        assert links[1] == jobs[:1]
        site.run(ALICE, "mirage", "done", chain)
        site.run(ALICE, "scancel", "--batch", "--signal=USR1", str(links[3][0]))
        service.wait_for(chain, "done", 60)


def test_a_service_answers_through_handovers_and_soon_after_its_server_is_killed(site, service):
    port = next(
        port for port in range(21000, 30000, 10) if not any(map(answers, range(port, port + 4)))
    )
    client = Client([port + segment for segment in (1, 2, 3)])
    words = (f"--export=ALL,PORT={port}", f"--health-command={ASKS}", "--health-count=1")
    service.configure(lead_s=3600)
    with service.running():
        chain, jobs = start(
            site, "--mode=service", "--segments=3", "--up-front", *words, script=SERVICE
        )
        until(lambda: answers(port + 1), 90, "the first link's answer")
        client.start()
        until(lambda: "3 serves" in log_of(site, chain), 180, "the third link")
        until(lambda: not answers(port + 2), 60, "the second link's end")
    by_handovers_s = client.silent_s
    until(lambda: site.job(jobs[2])["ready"] != "0", 60, "the third link's own word")
    pid = int((site.home(ALICE) / "server.3").read_text())
    os.kill(pid, signal.SIGKILL)
    until(lambda: log_of(site, chain).count("3 serves") == 2, 60, "the server's second start")
    until(lambda: answers(port + 3), 60, "its answer")
    until(lambda: site.job(jobs[2]).get("down"), 60, "the third link's word that it is back")
    client.stop_asked.set()
    client.join(30)
    killed_s = client.silent_s - by_handovers_s
    said = site.run(ALICE, "mirage", "history", chain, "--json").stdout
    told = json.loads(said)["chains"][0]["links"][2]["down_s"]
    print(f"silent {by_handovers_s} s in two handovers, {killed_s} s once killed, history {told} s")
    assert by_handovers_s == 0
    assert abs(told - killed_s) <= 3
    assert site.state(jobs[2]) == "RUNNING"


def test_two_singleton_chains_of_one_name_never_run_beside_each_other(site, service):
    script = site.script(ALICE, "one.sh", SINGLETON)
    with service.running():
        chains = [site.submit_chain(ALICE, *WHOLE, "--segments=3", script)[0] for _ in range(2)]
        log = site.home(ALICE) / "log.singleton"
        until(lambda: log.exists() and log.read_text().count("ends") == 6, 150, "six links")
    lines = log.read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["begins", "ends"] * 6
    assert {line.split()[0] for line in lines} == set(chains)


def test_a_chain_without_a_length_ends_as_its_script_exits_with_0(site):
    body = "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nsleep 3\n"
    chain, jobs = site.submit_chain(ALICE, site.script(ALICE, "short.sh", body))
    until(lambda: site.state(jobs[1]) == "CANCELLED", 60, "the queued link to be cancelled")
    until(lambda: site.state(jobs[0]) == "COMPLETED", 30, "the first link's end")
    said = site.run(ALICE, "mirage", "status", chain, "--json").stdout
    assert "link 1 ended by itself with exit code 0" in said


def test_the_work_says_that_it_is_done(site):
    chain, jobs = site.submit_chain(
        ALICE,
        "--segments=3",
        site.script(
            ALICE,
            "work.sh",
            '#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nsleep 3\ntouch "$MIRAGE_DONE_FILE"\n',
        ),
    )
    until(lambda: site.state(jobs[1]) == "CANCELLED", 60, "the queued link to be cancelled")
    until(
        lambda: site.state(jobs[0]) == "COMPLETED",
        30,
        "the running link, which cancelled it, to end",
    )
    assert set(site.chain_jobs(ALICE, chain)) == {1, 2}
    assert '"done"' in site.run(ALICE, "mirage", "status", chain, "--json").stdout


def test_up_front_all_links_are_queued_at_once_and_run_without_sbatch_in_the_job(site):
    script = (
        '#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\necho "$MIRAGE_SEGMENT ran"'
        ' >>"$HOME/log.$MIRAGE_CHAIN_ID"\nsleep 2\n'
    )
    options = ("--segments=3", "--up-front", "--min-runtime=0")
    chain, jobs = site.submit_chain(ALICE, *options, site.script(ALICE, "work.sh", script))
    assert len(jobs) == 3
    until(lambda: len(log_of(site, chain)) == 3, 90, "all links")
    assert log_of(site, chain) == ["1 ran", "2 ran", "3 ran"]
    assert site.chain_jobs(ALICE, chain) == {1: [jobs[0]], 2: [jobs[1]], 3: [jobs[2]]}


def test_a_crash_loop_is_stopped(site):
    script = site.script(ALICE, "work.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nexit 0\n")
    chain, _ = site.submit_chain(ALICE, "--segments=9", "--max-short=2", script)
    until(
        lambda: (
            '"failed"' in site.run(ALICE, "mirage", "status", chain, "--json", check=False).stdout
        ),
        60,
        "the chain to be stopped",
        1,
    )
    assert "crash loop" in site.run(ALICE, "mirage", "status", chain).stdout
    (second,) = site.chain_jobs(ALICE, chain)[2]
    until(
        lambda: site.state(second) == "FAILED", 30, "Slurm's records to say that not all went well"
    )
    assert max(site.chain_jobs(ALICE, chain)) <= 3


def test_a_script_that_requeues_itself_runs_again_as_the_same_link(site):
    """`wait` in bash ends with 138 after a trapped USR1, as in docs/from-your-habit.md."""
    body = (
        "#!/bin/bash\n#SBATCH -N1 -t5 --requeue --open-mode=append -o requeued.%j\n"
        'echo "begins $SLURM_RESTART_COUNT"\n[ -z "$SLURM_RESTART_COUNT" ] || exec sleep 300\n'
        'scontrol requeue "$SLURM_JOB_ID"\nexit 138\n'
    )
    chain, jobs = site.submit_chain(ALICE, "--segments=2", site.script(ALICE, "requeued.sh", body))
    folder = site.home(ALICE) / ".mirage" / "chains" / chain
    # Bounds for a loaded machine, where each look takes seconds.
    until(lambda: (folder / "link.1").exists(), 180, "the link's record")
    until(lambda: site.state(jobs[0]) == "PENDING", 120, "the job to be back in the queue")
    assert "how=slurm\nswept=1\n" in (folder / "link.1").read_text()
    assert not (folder / "failed").exists()
    # Slurm lets a requeued job begin two minutes later; its owner need not wait.
    log = site.home(ALICE) / f"requeued.{jobs[0]}"

    def runs_again() -> bool:
        if site.state(jobs[0]) == "PENDING":  # Slurm may set the begin time after a first request
            site.run(ALICE, "scontrol", "update", f"JobId={jobs[0]}", "StartTime=now")
        return "begins 1" in log.read_text()

    until(runs_again, 180, "the link to run again", every_s=2)
    assert site.state(jobs[1]) == "PENDING"


def test_cancel_ends_the_chain_and_not_only_its_running_link(site):
    chain, jobs = start(site, "--segments=3", script=TRAINING)
    site.run(ALICE, "mirage", "cancel", chain)
    until(lambda: all(site.state(job) == "CANCELLED" for job in jobs), 30, "both links to end")
    assert set(site.chain_jobs(ALICE, chain)) == {1, 2}
    assert '"cancelled"' in site.run(ALICE, "mirage", "status", chain, "--json").stdout


def test_a_plain_users_agent_carries_a_chain_through_a_full_cluster(site, tmp_path):
    """As the benchmark does at length: the successor is let in while its predecessor runs and the
    nodes are taken.
    """
    subprocess.run(["rm", "-rf", str(site.home(ALICE) / ".local")], check=True)
    script = site.script(
        ALICE, "work.sh", "#!/bin/sh\n#SBATCH -N1 -t1 -o /dev/null\nexec sleep 300\n"
    )
    with site.full(backlog=3, run_s=(15, 30)):
        chain, jobs = site.submit_chain(ALICE, "--segments=2", script)
        agent = site.start(
            ALICE, "mirage", "agent", "--poll=2", "--policy=avg", log=tmp_path / "agent.log"
        )
        try:
            until(lambda: site.state(jobs[0]) == "RUNNING", 120, "the first link")
            until(lambda: site.state(jobs[1]) == "RUNNING", 240, "the second link")
            until(
                lambda: site.state(jobs[0]) not in ("RUNNING", "COMPLETING"),
                60,
                "the first link to end",
            )
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(60 * BUSY) == 0
            print((tmp_path / "agent.log").read_text())
    assert "release: released" in (tmp_path / "agent.log").read_text()
    assert "Mirage agent" in site.run(ALICE, "mirage", "explain", str(jobs[1])).stdout
    assert chain not in site.run(BOB, "mirage", "history").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--segments=2", "nothing.sh"], 2, "nothing.sh"),
        (["--segments=0", "work.sh"], 2, "segments"),
        (["--up-front", "work.sh"], 2, "--segments"),
        (
            ["--segments=2", "--partition=nosuch", "work.sh"],
            1,
            "invalid partition specified: nosuch",
        ),
        (["--segments=2", "--array=1-3", "work.sh"], 2, "array"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(site, words, code, said):
    site.script(ALICE, "work.sh", TRAINING)
    before = sorted((site.home(ALICE) / ".mirage" / "chains").glob("*"))
    done = site.run(ALICE, "mirage-submit", *words, check=False)
    assert done.returncode == code, done
    assert said in done.stderr
    assert sorted((site.home(ALICE) / ".mirage" / "chains").glob("*")) == before
    assert not site.run("root", "squeue", "-h").stdout


def test_a_link_that_backfill_shortens_hands_over_at_the_limit_it_got(site, service):
    """Two nodes are free until a job on four ends, for which one on all six waits. The link fits
    with its --time-min alone.
    """
    sleep = site.script(CAROL, "sleep.sh", "#!/bin/sh\nsleep 900\n")
    lead_s = 120  # so long may Slurm take to start the next link
    service.configure(lead_s=lead_s)
    with service.running():
        site.run(CAROL, "sbatch", "-o/dev/null", "-N4", "-t7", sleep)
        running = ["squeue", "-h", "-t", "R", "-u"]
        until(lambda: site.run("root", *running, CAROL).stdout, 60, "the job on four nodes")
        site.run(CAROL, "sbatch", "-o/dev/null", "-N6", "-t10", sleep)
        words = ["--segments=2", "-t10", "--time-min=3"]
        chain, jobs = start(site, *words, script=FLEXIBLE, wait_s=150)
        limit_s = _seconds(site.job(jobs[0])["TimeLimit"])
        assert 180 <= limit_s < 600
        assert site.job(jobs[0])["Scheduler"] == "Backfill"
        site.run("root", "scancel", "-u", CAROL)
        until(lambda: "2 resumed" in log_of(site, chain), limit_s + 120, "the handover", 1)
        folder = site.home(ALICE) / ".mirage" / "chains" / chain
        until(lambda: (folder / "link.1").exists(), 30, "the first link's record")
        link = dict(line.split("=", 1) for line in (folder / "link.1").read_text().splitlines())
        assert link["how"] == "handover"
        ran_s = int(link["end"]) - int(link["start"])
        assert limit_s - lead_s - 15 < ran_s < limit_s
        (row,) = service.query("select time_limit_s from links where segment = 1")
        assert row["time_limit_s"] == limit_s
    # The next one asks for the whole limit again. Slurm's main scheduler gives it; backfill of
    # 22.05 and 24.11 gives the least one, also where all nodes are free (docs/simulator.md).
    second = site.job(jobs[1])
    got_s = _seconds(second["TimeLimit"])
    assert got_s == 600 if second["Scheduler"] == "Main" else 180 <= got_s <= 600


def _seconds(clock):
    hours, minutes, seconds = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes + seconds
