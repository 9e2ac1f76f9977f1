"""What `benchmarks/real_waits.py` makes of jobs and of answers."""

from __future__ import annotations

import pytest

from benchmarks.real_waits import Asked, scores
from benchmarks.real_waits_plan import CPUS, KINDS, NODES, jobs_of


def asked(low_s: float, middle_s: float, high_s: float) -> Asked:
    return Asked(
        job="1",
        way="options",
        options="-n1",
        method="trees",
        at_s=0,
        low_s=low_s,
        middle_s=middle_s,
        high_s=high_s,
    )


def test_waits_beside_the_range_are_counted_on_their_side_to_the_minute():
    one = asked(600, 1200, 2400)
    found = scores([(one, 530.0), (one, 570.0), (one, 1300.0), (one, 9000.0)], slack_s=60)
    assert (found["covered"], found["sooner"], found["later"]) == (0.5, 0.25, 0.25)
    assert (found["within_2"], found["within_3"], found["p90_over_p10"]) == (0.25, 0.75, 4.0)


def test_jobs_come_with_every_kind_of_option_and_ask_for_the_load():
    jobs = jobs_of(2000, 0.72, seed=1)
    assert jobs == jobs_of(2000, 0.72, seed=1)
    assert {job.options[:-1] for job in jobs} == {options for _, options in KINDS}
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    busy_s = sum(job.cpus * job.run_s for job in jobs)
    assert busy_s / (NODES * CPUS * jobs[-1].submit_s) == pytest.approx(0.72, rel=0.05)
