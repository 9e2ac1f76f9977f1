"""Goodput of a chain, by hand."""

from __future__ import annotations

import pytest

from mirage.chain.progress import chain_progress
from mirage.domain import JobState, Link


def link(segment, start_s, end_s):
    return Link(
        chain_id="c",
        user="u",
        segment=segment,
        job_id=segment,
        predecessor_id=segment - 1 or None,
        state=JobState.RUNNING,
        partition="gpu",
        nodes=1,
        time_limit_s=3600,
        submit_s=0,
        start_s=start_s,
        end_s=end_s,
    )


def test_interruption_overlap_and_handovers():
    progress = chain_progress(
        [link(1, 1000, 5000), link(2, 6000, 9000), link(3, 8500, None)], 11_000, 100
    )
    assert (progress.wall_s, progress.interrupted_s, progress.held_twice_s) == (10_000, 1000, 500)
    assert progress.goodput == pytest.approx(1 - 1200 / 10_000)


def test_a_chain_that_waits_is_interrupted_until_now():
    assert chain_progress([link(1, 0, 500), link(2, None, None)], 1000).interrupted_s == 500


def test_a_chain_that_is_over_is_judged_by_its_own_end():
    assert chain_progress([link(1, 0, 500)], 1000).wall_s == 500


def test_before_the_first_start_there_is_nothing_to_judge():
    progress = chain_progress([link(1, None, None)], 1000)
    assert (progress.wall_s, progress.goodput) == (0, 0)
