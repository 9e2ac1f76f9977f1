"""When a link leaves by its own signal, when its grace is over, and what follows a chain, on a real
Slurm.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.site import ALICE, until

pytestmark = pytest.mark.slurm

LOG = 'log() { echo "$MIRAGE_SEGMENT $1" >>"$HOME/log.$MIRAGE_CHAIN_ID"; }\n'
LEAVES_EARLY = f"""#!/bin/sh
#SBATCH -N1 -t3 -o /dev/null --signal=B:USR1@30
{LOG}trap 'log saved; exit 0' USR1
log resumed
sleep 300 & wait $!
"""
ENDS_BY_ITSELF = f"""#!/bin/sh
#SBATCH -N1 -t5 -o /dev/null
{LOG}trap 'log saved; exit 0' TERM
log resumed
sleep 100 & wait $!
"""
SAVES_AT_ITS_END = """#!/bin/sh
#SBATCH -N1 -t2 -o /dev/null --signal=B:USR1@20
[ "$MIRAGE_SEGMENT" = 2 ] || exit 0
trap '[ -z "$1" ] || touch "$MIRAGE_DONE_FILE"; exit 0' USR1
sleep 300 & wait $!
"""
SAVES_TOO_LONG = f"""#!/bin/sh
#SBATCH -N1 -t5 -o out.%j
{LOG}trap 'log saving; sleep 300' USR2
trap '' TERM
log resumed
sleep 300 & wait $!
wait
"""


def log_of(site, chain):
    path = site.home(ALICE) / f"log.{chain}"
    return path.read_text().splitlines() if path.exists() else []


def report_of(site, chain, verb="history"):
    (report,) = json.loads(site.run(ALICE, "mirage", verb, chain, "--json").stdout)["chains"]
    return report


def test_handovers_come_before_the_chains_own_signal_and_a_cut_checkpoint_is_told(site, service):
    """Slurm sends the signal 30 to 90 s before the limit of 180 s; with a lead of 60 s Mirage acts
    30 s from the start, so Slurm has a minute at least to start the next link.
    """
    service.configure(lead_s=60)
    with service.running():
        words = ["--segments=2", site.script(ALICE, "early.sh", LEAVES_EARLY)]
        early, early_jobs = site.submit_chain(ALICE, *words)
        words = ["--segments=2", "--handover-signal=B:USR2", "--handover-grace=3s"]
        slow, slow_jobs = site.submit_chain(
            ALICE, *words, site.script(ALICE, "slow.sh", SAVES_TOO_LONG)
        )
        until(lambda: "1 resumed" in log_of(site, slow), 60, "the first link's work")
        site.run(ALICE, "scontrol", "update", f"JobId={slow_jobs[1]}", "Dependency=")
        until(
            lambda: log_of(site, early)[-1:] == ["2 resumed"], 75, "the handover before the signal"
        )
        until(lambda: log_of(site, slow)[-1:] == ["2 resumed"], 75, "the end of the grace")
        until(
            lambda: report_of(site, early)["links"][0]["end"], 20, "the daemon to have seen it", 1
        )
        first, second = report_of(site, early)["links"][:2]
    assert log_of(site, early) == ["1 resumed", "1 saved", "2 resumed"]
    assert second["released"]
    assert second["interruption_s"] == 0
    # Of an end and a start in one second nobody knows which came first.
    allowed = {max(0, 180 - 90 - (first["end"] - first["start"]))}
    allowed |= {0} if second["start"] == first["end"] else set()
    assert first["cut_short_s"] in allowed, "from the signal, not the limit"
    assert log_of(site, slow) == ["1 resumed", "1 saving", "2 resumed"]
    asked = report_of(site, slow, "status")["links"][0]["handover"]
    assert (asked["successor"], asked["grace_s"], asked["cut_off_by"]) == (slow_jobs[1], 3, "grace")
    assert asked["gone"] >= asked["cut_off"] >= asked["asked"] + 3
    for verb in ("history", "status"):
        assert (
            "was cancelled by its successor 3 s after it was asked"
            in site.run(ALICE, "mirage", verb, slow).stdout
        )
    said = [(site.home(ALICE) / f"out.{job}").read_text() for job in slow_jobs]
    assert f"job {slow_jobs[1]} takes over and cancels this link" in said[0]
    assert f"link 1 (job {slow_jobs[0]}) is cancelled, since it did not end within 3 s" in said[1]
    assert all("--handover-grace=60s" in text for text in said)
    assert early_jobs[1] == second["job_id"]


def test_a_chain_whose_links_end_early_is_followed_at_that_end(site, service):
    """Links of 5 min end after 100 s by themselves. With a lead of 60 s the second one's successor
    is let in 60 s before that, not before the limit.
    """
    service.configure(lead_s=60)
    with service.running():
        words = ["--segments=3", "--min-runtime=5s", site.script(ALICE, "100s.sh", ENDS_BY_ITSELF)]
        chain, _ = site.submit_chain(ALICE, *words)
        until(lambda: "3 resumed" in log_of(site, chain), 180, "the third link's work")
        until(lambda: report_of(site, chain)["links"][1]["end"], 20, "the daemon to see it", 1)
        first, second, third = report_of(site, chain)["links"][:3]
        site.run(ALICE, "mirage", "cancel", chain)
    assert second["released"] is None, "nothing was known of the first link's end"
    assert third["released"]
    assert 30 <= third["released"] - second["start"] < 100
    assert third["interruption_s"] == 0
    assert log_of(site, chain)[:4] == ["1 resumed", "2 resumed", "2 saved", "3 resumed"]
    assert first["end"] - first["start"] >= 100


def test_a_last_link_that_leaves_at_its_signal_is_used_up_for_everybody(site, service):
    """One chain has work left, the other says at the same signal that its work is done."""
    script = site.script(ALICE, "saves.sh", SAVES_AT_ITS_END)
    post = site.script(ALICE, "post.end.sh", "#!/bin/sh\n#SBATCH -n1 -t1 -o /dev/null\n:\n")
    words = ["--segments=2", "--min-runtime=0", f"--then={post}"]
    service.configure(mode="observe")
    with service.running():
        left, left_jobs = site.submit_chain(ALICE, "--mail-type=END,FAIL", *words, script)
        ready, ready_jobs = site.submit_chain(ALICE, *words, script, "ready")
        last = (left_jobs[1], ready_jobs[1])
        until(lambda: all(site.state(job) in ("COMPLETED", "FAILED") for job in last), 150, "ends")
        until(
            lambda: all(ends_of(site, chain)["root"] != "active" for chain in (left, ready)),
            30,
            "the daemon to have seen it",
            1,
        )
        told = ends_of(site, left), ends_of(site, ready)
    assert told == (
        dict.fromkeys(("root", "status", "history", "wait"), "used-up"),
        dict.fromkeys(("root", "status", "history", "wait"), "done"),
    )
    alone = ends_of(site, left, "status"), ends_of(site, ready, "status")
    assert alone == ({"status": "used-up"}, {"status": "done"}), "without a daemon"
    assert [site.job(job)["ExitCode"] for job in last] == ["75:0", "0:0"]
    assert site.job(last[0])["MailType"] == "END", "no mail of a failure"
    posts = [report_of(site, chain)["then"][0]["job_id"] for chain in (left, ready)]
    assert [post is None for post in posts] == [True, False]


def ends_of(site, chain, *views):
    """How a chain stands: to its owner by each verb, and to root, whom only the daemon tells."""
    found = {}
    for view in views or ("root", "status", "history", "wait"):
        if view == "wait":
            done = site.run(ALICE, "mirage", "wait", "--timeout=20s", chain, check=False)
            found[view] = re.search(rf"chain {chain} is ([a-z-]+)", done.stdout + done.stderr)[1]
        elif view == "root":
            listed = site.run("root", "mirage", "status", "--all", "--json").stdout
            reports = json.loads(listed)["chains"]
            found[view] = next(each["state"] for each in reports if each["chain"] == chain)
        else:
            found[view] = report_of(site, chain, view)["state"]
    return found


def chain_with_post(site, name, body, *options):
    """(chain, its jobs, what it and its script of --then wrote)."""
    written = site.home(ALICE) / f"written.{name}"
    written.unlink(missing_ok=True)
    head = "#!/bin/sh\n#SBATCH -n1 -t5 -o /dev/null\n"
    post = site.script(ALICE, f"post.{name}.sh", f'{head}echo "post $SLURM_JOB_NAME" >>{written}\n')
    work = site.script(
        ALICE, f"work.{name}.sh", f'{head}say() {{ echo "$1" >>{written}; }}\n{body}\n'
    )
    chain, jobs = site.submit_chain(ALICE, "--min-runtime=0", f"--then={post}", *options, work)
    return chain, jobs, lambda: written.read_text().split("\n")[:-1] if written.exists() else []


def test_then_follows_a_chain_that_is_done_once_and_no_other(site):
    ends = 'say "$MIRAGE_SEGMENT begins"; sleep 2; say "$MIRAGE_SEGMENT ends"'
    done, _, of_done = chain_with_post(site, "done", ends, "--segments=2")
    failed, _, of_failed = chain_with_post(site, "failed", "say 1; exit 3", "--segments=2")
    early_body = 'say begins; touch "$MIRAGE_DONE_FILE"; sleep 3; say ends'
    _, _, of_early = chain_with_post(site, "early", early_body, "--segments=3", "--up-front")
    lost, _, of_lost = chain_with_post(site, "lost", "say 1; exit 3", "--segments=3", "--up-front")
    said, said_jobs, of_said = chain_with_post(
        site, "said", "say begins; sleep 9; say ends", "--segments=3"
    )
    until(lambda: of_said() == ["begins"], 60, "the chain that its owner ends")
    site.run(ALICE, "mirage", "done", said)
    until(lambda: site.state(said_jobs[1]) == "CANCELLED", 20, "its queued link to go")
    assert of_said() == ["begins"], "what follows waits for the running link"
    assert site.run(ALICE, "mirage", "wait", done, check=False).returncode == 0
    assert site.run(ALICE, "mirage", "wait", failed, check=False).returncode == 1
    assert site.run(ALICE, "mirage", "wait", lost, check=False).returncode == 1
    assert site.run(ALICE, "mirage", "wait", said, check=False).returncode == 0
    until(lambda: not site.run(ALICE, "squeue", "-h", "-u", ALICE).stdout.strip(), 60, "all to end")
    assert of_done() == ["1 begins", "1 ends", "2 begins", "2 ends", "post post.done.sh"]
    assert of_early() == ["begins", "ends", "post post.early.sh"]
    assert of_said() == ["begins", "ends", "post post.said.sh"]
    assert of_failed() == of_lost() == ["1"]
    assert [then["job_id"] is None for then in report_of(site, failed)["then"]] == [True]
    assert site.state(report_of(site, lost)["then"][0]["job_id"]) == "CANCELLED"
    assert f"follows the chain as job {report_of(site, done)['then'][0]['job_id']}" in (
        site.run(ALICE, "mirage", "status", done).stdout
    )
