"""Links whose jobs Slurm requeues, on a real Slurm: what Mirage says of them against `sacct -D`."""

from __future__ import annotations

import json
import time

import pytest

from tests.slurm.site import ALICE, BUSY, until
from tests.slurm.truth import assert_history_is_slurms, history_of

pytestmark = pytest.mark.slurm

REQUEUES_ITSELF = """#!/bin/sh
#SBATCH -N1 -t10 -o /dev/null --signal=B:USR1@60
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
echo "$MIRAGE_SEGMENT" >>"$HOME/begun.$MIRAGE_CHAIN_ID"
if [ "$MIRAGE_SEGMENT" = 3 ]; then sleep 3; touch "$MIRAGE_DONE_FILE"; exit 0; fi
sleep 600 & wait $!
wait
"""


TIE_S = 3
"""Of what happens within one of Slurm's seconds nobody knows what came first."""


def begun(site, chain):
    path = site.home(ALICE) / f"begun.{chain}"
    return path.read_text().split() if path.exists() else []


def let_in(site, chain, segment) -> int:
    """The link starts although its predecessor runs, as when Mirage has let it in."""
    jobs = until(lambda: site.chain_jobs(ALICE, chain).get(segment), 60, f"link {segment}")
    site.run(ALICE, "scontrol", "update", f"JobId={jobs[0]}", "Dependency=")
    return jobs[0]


def test_history_of_links_that_requeue_themselves_or_are_requeued_is_that_of_sacct(site, service):
    service.configure(mode="observe")
    with service.running():
        words = ["--segments=3", site.script(ALICE, "requeue.sh", REQUEUES_ITSELF)]
        chain, jobs = site.submit_chain(ALICE, *words)
        until(lambda: begun(site, chain) == ["1"], 60, "link 1 at work")
        time.sleep(TIE_S)
        jobs = [jobs[0], let_in(site, chain, 2)]
        until(lambda: begun(site, chain) == ["1", "2"], 60, "link 2 to take over")
        until(lambda: site.state(jobs[0]) == "PENDING", 90, "link 1's job to wait for nothing")
        first = until(lambda: _over(site, chain, 1), 60, "link 1 to be over for Mirage")
        assert first["state"] == "REQUEUED"
        assert f"Job {jobs[0]}" not in history_of(site, chain)["next"]
        # Of a link that no later one has taken over from, all runs count.
        site.run("root", "scontrol", "requeue", str(jobs[1]))
        until(lambda: begun(site, chain) == ["1", "2", "2"], 90, "link 2 at work again")
        until(lambda: site.state(jobs[0]) == "COMPLETED", 90, "link 1's empty run to end")
        time.sleep(TIE_S)
        jobs.append(let_in(site, chain, 3))
        until(lambda: begun(site, chain)[3:] == ["3"], 60, "link 3 to take over")
        for job in jobs:
            until(lambda job=job: site.state(job) == "COMPLETED", 90, f"job {job} to end")
        until(lambda: history_of(site, chain)["state"] == "done", 60, "the chain to be done")
        told = assert_history_is_slurms(site, chain, jobs)
        assert [len(link["runs"]) for link in told["links"][:3]] == [1, 2, 1]
        assert told["links"][1]["interruption_s"] > 0
        _audit_says_the_same(service, told)
    # From the chain's folder, without a service: times are the jobs' own, a moment after Slurm's.
    alone = history_of(site, chain)
    assert alone["links"][1]["runs"] == told["links"][1]["runs"]
    assert [len(link["runs"]) for link in alone["links"][:3]] == [1, 2, 1]
    late_s = alone["totals"]["interruption_s"] - told["totals"]["interruption_s"]
    assert 0 <= late_s <= 10 * BUSY


def _over(site, chain, segment):
    link = history_of(site, chain)["links"][segment - 1]
    return link if link["end"] else None


def _audit_says_the_same(service, told) -> None:
    lines = (service.folder / "audit.jsonl").read_text().splitlines()
    records = [record for line in lines if (record := json.loads(line))["kind"] == "handover"]
    own = [record for record in records if record["chain"] == told["chain"]]
    for name in ("interruption_s", "overlap_s", "cut_short_s"):
        assert sum(record[name] for record in own) == told["totals"][name]
