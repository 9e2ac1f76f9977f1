"""`mirage when` as a plain user on a real Slurm."""

from __future__ import annotations

import json

import pytest

from tests.slurm.site import ALICE, BOB, until

pytestmark = pytest.mark.slurm


def test_a_plain_user_is_told_when_a_job_would_start(site):
    nap = site.script(ALICE, "nap.sh", "#!/bin/sh\nsleep $1\n")
    nodes = int(site.run(ALICE, "sinfo", "-h", "-s", "-p", "gpu", "-o", "%D").stdout)

    def sbatch(*words: str) -> int:
        command = ["sbatch", "--parsable", "-o/dev/null", "--exclusive", "-t2", "-pgpu"]
        return int(site.run(ALICE, *command, *words, nap, "60").stdout)

    first = sbatch(f"-N{nodes}")
    until(lambda: site.state(first) == "RUNNING", 30, "the nodes to fill")
    second = sbatch(f"-N{nodes}")
    until(lambda: site.state(second) == "PENDING", 10, "the second job to queue")
    try:
        done = site.run(BOB, "mirage", "when", "-N1", "-t2", "-pgpu", "--json")
        (asked, *_), job = (
            json.loads(done.stdout)["forecasts"],
            json.loads(site.run(BOB, "mirage", "when", str(second), "--json").stdout),
        )
        assert asked["nodes"] == 1
        assert 0 <= asked["wait_p10_s"] <= asked["wait_p50_s"] <= asked["wait_p90_s"]
        assert job["job"] == second
        too_many = site.run(BOB, "mirage", "when", f"-N{nodes + 1}", "-pgpu", check=False)
        assert too_many.returncode == 2
        assert "could never start" in too_many.stderr
    finally:
        site.run(ALICE, "scancel", str(first), str(second))
