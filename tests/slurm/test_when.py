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
        assert "sbatch refuses such a job" in too_many.stderr
    finally:
        site.run(ALICE, "scancel", str(first), str(second))


def test_choose_tells_start_finish_and_cost_of_each_place(site):
    """Two partitions share n1; `debug` allows 30 minutes, so a longer job has one place."""
    for name in ("gpu", "debug"):
        site.run(ALICE, "sbatch", "-W", "-p", name, "-t2", "-o", "/dev/null", "--wrap", "true")
    short = site.script(ALICE, "short.sh", "#!/bin/sh\n#SBATCH -t 20\n#SBATCH --gres=gpu:1\ntrue\n")
    told = json.loads(site.run(ALICE, "mirage", "when", "--choose", short, "--json").stdout)
    found = {place["partition"]: place for place in told["places"]}
    assert found.keys() == {"gpu", "debug"}
    for place in found.values():
        assert place["accounts"] == ["research"]
        assert place["run_s"] == 1200
        assert place["finish_p50_s"] == place["wait_p50_s"] + 1200
        assert place["billing_h"] > 0
    shown = site.run(ALICE, "mirage", "when", "--choose", short).stdout
    assert "research" in shown
    assert "billing h" in shown
    long = site.script(ALICE, "long.sh", "#!/bin/sh\n#SBATCH -t 60\n#SBATCH -N 2\ntrue\n")
    told = json.loads(site.run(ALICE, "mirage", "when", "--choose", long, "--json").stdout)
    assert [place["partition"] for place in told["places"]] == ["gpu"]
    wide = site.script(ALICE, "wide.sh", "#!/bin/sh\n#SBATCH -N 99\ntrue\n")
    done = site.run(ALICE, "mirage", "when", "--choose", wide, check=False)
    assert done.returncode == 2
    assert "no place is known" in done.stderr
