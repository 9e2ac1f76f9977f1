from dataclasses import replace

import pytest

from mirage.chain.handoff import handoffs, short_handovers, waited_for_predecessor_s
from mirage.domain import JobState, Link


def link(segment, job_id, predecessor, start_s, end_s, nodes=2):
    return Link(
        chain_id="abc123",
        user="alice",
        segment=segment,
        job_id=job_id,
        predecessor_id=predecessor,
        state=JobState.COMPLETED,
        partition="gpu",
        nodes=nodes,
        time_limit_s=60,
        submit_s=0,
        start_s=start_s,
        end_s=end_s,
    )


def test_a_gap_is_interruption_and_an_early_start_is_overlap():
    links = [link(3, 13, 12, 4000, None), link(1, 11, None, 0, 1000), link(2, 12, 11, 1600, 4400)]
    second, third = handoffs(links)
    assert (second.interruption_s, second.overlap_s) == (600, 0)
    assert (third.interruption_s, third.overlap_s) == (0, 400)


def test_a_successor_that_ends_first_overlaps_only_while_it_runs():
    (handoff,) = handoffs([link(1, 11, None, 0, 1000), link(2, 12, 11, 100, 110)])
    assert (handoff.interruption_s, handoff.overlap_s) == (0, 10)


def test_a_service_is_interrupted_until_its_next_link_is_ready():
    first = link(1, 11, None, 0, 1000)
    links = [
        first,
        replace(link(2, 12, 11, 990, 2000), ready_s=1012),
        replace(link(3, 13, 12, 1500, 3000), ready_s=1620),
        replace(link(4, 14, 13, 3000, 3050), ready_s=0),
        replace(link(5, 15, 14, 3060, 4000), ready_s=3080),
        link(6, 16, 15, 3990, None),
    ]
    costs = [(each.interruption_s, each.overlap_s) for each in handoffs(links, 60)]
    assert costs == [(12, 10), (0, 500), (50, 0), (30, 0), (50, 10)]
    waits = replace(link(6, 16, 15, 3990, None), ready_s=0)
    assert len(handoffs([*links[:-1], waits], 60)) == 4, "nobody knows yet how long it will be"
    assert handoffs(links)[0].interruption_s == 0, "of a training chain as ever"


def test_a_link_that_gave_up_beside_one_that_serves_interrupts_nothing():
    first = replace(link(1, 11, None, 0, 2000), ready_s=60)
    links = [first, replace(link(2, 12, 11, 500, 900), ready_s=0)]
    links += [replace(link(3, 13, 12, 1000, None), ready_s=2010)]
    assert [each.interruption_s for each in handoffs(links, 60)] == [0, 10]
    links[0] = replace(first, end_s=None)
    assert [each.interruption_s for each in handoffs(links, 60)] == [0]


def test_a_pause_of_the_owners_is_no_interruption():
    """He let it go on 100 s before it started."""
    held = replace(link(2, 12, 11, 1600, 4400), eligible_s=1500, was_held=True)
    (handoff,) = handoffs([link(1, 11, None, 0, 1000), held])
    assert handoff.interruption_s == 100
    early = replace(held, start_s=900, eligible_s=800)
    assert handoffs([link(1, 11, None, 0, 1000), early])[0].interruption_s == 0
    assert (
        handoffs([link(1, 11, None, 0, 1000), replace(held, was_held=False)])[0].interruption_s
        == 600
    )


def test_unknown_ends_are_not_counted():
    assert (
        handoffs(
            [link(1, 11, None, 0, None), link(2, 12, 11, 5, None), link(3, 13, 12, None, None)]
        )
        == []
    )
    assert handoffs([link(2, 12, 11, 5, 9)]) == []


@pytest.mark.parametrize(("eligible_s", "cut_short_s"), [(160, 0), (159, 40)])
def test_a_link_that_ended_by_itself_was_not_cut_short(eligible_s, cut_short_s):
    """Slurm starts the successor in the same second; only one that was let in sooner was there."""
    first = replace(link(1, 11, None, 100, 160), time_limit_s=100)
    second = replace(link(2, 12, 11, 160, 200), eligible_s=eligible_s)
    (handoff,) = handoffs([first, second])
    assert handoff.cut_short_s == cut_short_s


def test_what_a_link_gave_up_counts_from_its_signal_if_it_has_one():
    """With a limit of 1 h and `--signal=USR1@300` it would have left 6 min before the limit at the
    latest.
    """
    first = replace(link(1, 11, None, 0, 3000), time_limit_s=3600)
    second = link(2, 12, 11, 2900, 4000)
    assert handoffs([first, second])[0].cut_short_s == 600
    assert handoffs([replace(first, lead_s=300), second])[0].cut_short_s == 240
    assert handoffs([replace(first, lead_s=600), second])[0].cut_short_s == 0


def chain(*runs_s, wait_s=10, limit_s=4000):
    """Links that ran so long each until their successor, which waited ``wait_s``, asked them."""
    found, at_s = [], 0
    for segment, run_s in enumerate(runs_s, start=1):
        one = link(segment, segment, segment - 1 or None, at_s, at_s + run_s + 5)
        entered_s = at_s - wait_s
        found.append(replace(one, time_limit_s=limit_s, eligible_s=entered_s, released_s=entered_s))
        at_s += run_s
    return found


def test_handovers_that_end_a_link_too_early_are_counted():
    """Of links of 4000 s; the last one still runs. The successor hardly waited."""
    assert short_handovers(chain(100, 3000, 200, 3000, 300, 3000), None) == 2, "of the last four"
    assert short_handovers(chain(100, 200, 300, 300, 300, 4000), None) == 4
    assert short_handovers(chain(999, 3000), 995) == 0, "its owner's least run time"
    assert short_handovers(chain(999, 3000), 1005) == 1
    assert short_handovers([], None) == 0


def test_a_link_that_a_long_wait_ended_was_not_let_go_for_nothing():
    assert short_handovers(chain(100, 200, 3000, wait_s=2000), None) == 0


def test_a_link_that_ended_by_itself_was_not_cut():
    first, second = chain(100, 3000)
    second = replace(second, start_s=first.end_s + 50)
    assert short_handovers([first, second], None) == 0


def test_a_young_link_is_judged_from_the_start_of_its_work():
    """Four links of 4 min with a signal 1 min before, as seen: each ran for 35 s and more, and its
    program, which needs 15 to 40 s to start, for 44, 9, 37 and 0 s.
    """
    starts_s = (51, 70, 104, 120, 141)
    ends_s = (95, 104, 141, 141, None)
    links = [
        replace(
            link(number, number, number - 1 or None, start_s, end_s),
            time_limit_s=240,
            lead_s=60,
            eligible_s=start_s - 1,
        )
        for number, (start_s, end_s) in enumerate(zip(starts_s, ends_s, strict=True), start=1)
    ]
    assert waited_for_predecessor_s(links, 2) == 25
    assert short_handovers(links, None) == 2
    assert short_handovers(links, None, start_up_s=24) == 4
