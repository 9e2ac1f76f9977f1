"""What longer links or fewer nodes would give."""

import pytest

from mirage.daemon.sizes import LEAST_JOBS, better_sizes
from mirage.domain import WaitSample
from mirage.state.likeness import Waits

H = 3600


def jobs(nodes, limit_h, wait_h, count=LEAST_JOBS, partition="gpu"):
    return [
        WaitSample(
            job_id=number,
            partition=partition,
            nodes=nodes,
            time_limit_s=limit_h * H,
            start_s=number,
            wait_s=int(wait_h * H),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([], ""),
        (jobs(8, 6, 2), ""),  # short waits
        (jobs(8, 6, 14), ""),  # nothing else is known
        (jobs(8, 6, 14, LEAST_JOBS - 1) + jobs(8, 48, 14), ""),  # too few
        (jobs(8, 6, 14) + jobs(8, 48, 100), ""),  # no better
        (jobs(8, 6, 14) + jobs(8, 48, 14), "with links of 2 d 77% (a wait of 14 h)"),
        (jobs(8, 6, 14) + jobs(2, 6, 1), "on 4 nodes or fewer 86% (a wait of 1 h)"),
        (jobs(8, 6, 14) + jobs(2, 6, 1, partition="cpu"), ""),
    ],
)
def test_a_better_size_is_told_where_it_is_known(known, said):
    words = better_sizes(Waits(known), "gpu", 8, 6 * H)
    assert said in words
    assert bool(words) is bool(said)
    if said:
        assert "wait here for as long as 14 h (median)" in words
        assert "run 30% of the time" in words
