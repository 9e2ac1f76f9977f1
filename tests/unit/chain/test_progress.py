"""Goodput of a chain, by hand."""

from __future__ import annotations

from dataclasses import replace

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


def ready(segment, start_s, ready_s, end_s=None):
    return replace(link(segment, start_s, end_s), ready_s=ready_s)


def test_a_service_is_up_from_the_first_readiness_while_a_link_is_ready():
    links = [ready(1, 0, 100, 5000), ready(2, 4990, 5010, 8000), ready(3, 7000, 7120, 10_000)]
    links += [ready(4, 10_000, 10_120)]
    progress = chain_progress(links, 12_100, start_up_s=60)
    assert (progress.wall_s, progress.interrupted_s, progress.longest_gap_s) == (12_000, 130, 120)
    assert (progress.held_twice_s, progress.handovers) == (1010, 3)
    assert progress.goodput == pytest.approx(1 - 130 / 12_000)


def test_a_service_is_not_up_while_a_server_is_started_again():
    links = [replace(ready(1, 0, 100, 5000), down_s=86), replace(ready(2, 4900, 5010), down_s=14)]
    progress = chain_progress(links, 10_100, start_up_s=60)
    assert (progress.wall_s, progress.interrupted_s, progress.longest_gap_s) == (10_000, 110, 10)


def test_a_service_that_does_not_tell_serves_from_its_start_up_on():
    links = [link(1, 0, 500), link(2, 500, None)]
    assert chain_progress(links, 1060, start_up_s=60).interrupted_s == 60
    assert chain_progress(links, 1060, start_up_s=0).interrupted_s == 0


def test_a_link_that_was_never_ready_serves_nothing():
    links = [ready(1, 0, 100, 500), ready(2, 400, 0, 700), ready(3, 700, 0)]
    assert chain_progress(links, 1100, start_up_s=60).interrupted_s == 600
    assert chain_progress(links[:2], 1100, start_up_s=60).interrupted_s == 200
    assert chain_progress(links[1:], 1100, start_up_s=60).wall_s == 0


def test_a_pause_of_its_owners_is_left_out():
    first, second = ready(1, 0, 100, 1000), ready(2, 1600, 1620, 2100)
    held = replace(second, was_held=True, eligible_s=1500)
    progress = chain_progress([first, held], 2600, start_up_s=0)
    assert (progress.wall_s, progress.interrupted_s) == (1500, 120)
    goes_on = replace(link(3, None, None), was_held=True)
    progress = chain_progress([first, held, goes_on], 2600, start_up_s=0)
    assert (progress.wall_s, progress.interrupted_s) == (1500, 120)
    queued = replace(goes_on, eligible_s=2500)
    assert chain_progress([first, held, queued], 2600, start_up_s=0).interrupted_s == 220


def test_before_the_first_start_there_is_nothing_to_judge():
    progress = chain_progress([link(1, None, None)], 1000)
    assert (progress.wall_s, progress.goodput) == (0, 0)
