"""A simulator made of a real slurmctld's snapshot starts the pending jobs when slurmctld then does."""

from __future__ import annotations

import os
import time

import pytest

from mirage.domain import Job
from mirage.slurm.commands import CommandCluster
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.runner import Runner
from slurm_sim.clusters import read_cluster
from tests.slurm.site import ALICE, BOB, until

pytestmark = pytest.mark.slurm

TOLERANCE_S = 8
"""The phases of slurmctld's timers are not known, and sleep, prolog and accounting take a second
each.
"""


def test_the_simulator_starts_pending_jobs_as_slurm_does(site):
    config = read_cluster(site.folder / "etc" / "slurm.conf").cluster
    every = len(config.nodes)
    scripts = {user: site.script(user, "nap.sh", "#!/bin/sh\nsleep $1\n") for user in (ALICE, BOB)}
    runtimes = {}

    def sbatch(user, seconds, *options):
        words = [
            "sbatch",
            "--parsable",
            "-o/dev/null",
            "--exclusive",
            "-t2",
            *options,
            scripts[user],
            str(seconds),
        ]
        job_id = int(site.run(user, *words).stdout)
        runtimes[job_id] = seconds
        return job_id

    first = [sbatch(ALICE, 20, f"-N{every - 2}"), sbatch(BOB, 26, "-N2")]
    until(lambda: all(site.state(job_id) == "RUNNING" for job_id in first), 30, "the nodes to fill")
    wide, narrow, last = (
        sbatch(BOB, 8, f"-N{every}"),
        sbatch(ALICE, 6, "-N2"),
        sbatch(ALICE, 5, "-N1"),
    )
    follower = sbatch(BOB, 4, "-N1", f"-dafterany:{last}")
    held = sbatch(BOB, 4, "-N1", "--hold")
    time.sleep(2)

    cluster = CommandCluster(Runner(env=os.environ | site.environment("root")))
    snapshot = cluster.snapshot()
    waiting = [wide, narrow, last, follower]
    assert all(snapshot.by_id[job_id].start_s is None for job_id in waiting)
    sim = simulator_from(snapshot, config, Known(runtimes=runtimes))
    sim.run_until(snapshot.at_s + 300)
    expected = {job_id: sim.job(job_id).start_s for job_id in waiting}
    assert sim.job(held).start_s is None

    def ended() -> dict[int, Job] | None:
        jobs = cluster.jobs(waiting)
        return jobs if all(job_id in jobs and jobs[job_id].start_s for job_id in waiting) else None

    real = until(ended, 80, "the waiting jobs to start")
    print({job_id: (expected[job_id], real[job_id].start_s) for job_id in waiting})
    for job_id in waiting:
        assert expected[job_id] is not None
        assert abs(expected[job_id] - real[job_id].start_s) <= TOLERANCE_S
