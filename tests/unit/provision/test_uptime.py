"""The policy of services: the latest release that keeps them up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.domain import Action, JobState, Mode, Snapshot
from mirage.provision.policies.forecasts import WaitsOfLikeJobs
from mirage.provision.policies.uptime import Uptime
from mirage.state.encoder import HistoryStep, JobMatrix
from mirage.state.history import History
from tests.unit.provision.test_goodput import queued, train
from tests.unit.provision.test_policies import HOUR, job, sample

UPTIME = Uptime(WaitsOfLikeJobs(last=400, at_least=1))
MINUTE = 60


def service(remaining_s, waits, **more):
    observation = train(remaining_s, waits, **more)
    return replace(observation, mode=Mode.SERVICE, uptime=0.999, handover_s=10 * MINUTE)


def released(observation):
    return UPTIME.decide(observation).action is Action.RELEASE


def test_it_is_released_at_the_last_moment_that_keeps_the_service_up():
    """All wait 50 minutes, which count as an hour. A link is ready after 10 minutes, decisions come
    every 10 minutes.
    """
    waits = [sample(50 * MINUTE)] * 9
    assert not released(service(80 * MINUTE, waits))
    assert released(service(80 * MINUTE - 1, waits))


def test_it_may_be_late_for_as_long_as_the_owner_allows():
    """Two of five wait 50 minutes, the others not at all. 0.1 % of 48 hours are 172.8 s, which two
    fifths of 7 minutes after 80 are not yet.
    """
    waits = [sample(0)] * 3 + [sample(50 * MINUTE)] * 2
    assert not released(service(73 * MINUTE, waits))
    advice = UPTIME.decide(service(72 * MINUTE, waits))
    assert advice.action is Action.RELEASE
    assert (
        ". A release 10 min from now would leave the service down for 3 min 12 s on average. The"
        " wanted up-time allows each link 2 min 53 s. The chance of being down at all would be 40%. "
    ) in advice.reason


def test_where_waits_are_long_it_comes_with_three_fifths_of_a_link_left():
    """Two hours are more than 20 times what a link may lose."""
    waits = [sample(2 * HOUR)] * 9
    at = service(int(28.8 * HOUR), waits)
    assert "too soon" in UPTIME.decide(service(29 * HOUR, waits)).reason
    assert "Waits may grow" in UPTIME.decide(at).reason
    assert released(at)
    assert not released(replace(at, uptime=0.99)), "then 9.6 hours are"


def test_who_wants_more_of_the_time_is_released_earlier():
    """Two of 100 wait for 20 hours: at 20 hours before the end 5 minutes are lost in the mean."""
    waits = [sample(HOUR)] * 98 + [sample(20 * HOUR)] * 2
    at = service(20 * HOUR, waits)
    assert released(at)
    assert not released(replace(at, uptime=0.99)), "29 minutes a link may be lost"


def test_a_longer_start_up_comes_earlier():
    waits = [sample(50 * MINUTE)] * 9
    at = service(2 * HOUR, waits)
    assert not released(at)
    advice = UPTIME.decide(replace(at, handover_s=HOUR, is_handover_known=True))
    assert advice.action is Action.RELEASE
    assert advice.reason.endswith(". A link is ready 1 h after its start")
    assert advice.expected_interruption_s == 0


def test_a_replica_hands_over_earlier_where_another_one_ends_at_that_time():
    waits = [sample(50 * MINUTE)] * 9
    at = service(2 * HOUR, waits)
    assert not released(at)
    advice = UPTIME.decide(replace(at, earlier_s=HOUR))
    assert advice.action is Action.RELEASE
    assert ". It is to hand over 1 h earlier, apart from other replicas. A link" in advice.reason


def idle(remaining_s, waits):
    """Two nodes are free and nobody queues."""
    at = service(remaining_s, waits)
    history = History("gpu")
    nobody = JobMatrix.of([], [], [], [])
    history.add(HistoryStep(at_s=at.now_s, queued=nobody, running=nobody, idle_nodes=2, up_nodes=8))
    return replace(at, history=history)


@pytest.mark.parametrize("waits", [[sample(HOUR)] * 9, []], ids=["busy before", "nothing known"])
def test_on_an_idle_queue_it_comes_a_start_up_and_a_decision_before_the_end(waits):
    assert not released(idle(20 * MINUTE, waits))
    advice = UPTIME.decide(idle(20 * MINUTE - 1, waits))
    assert advice.action is Action.RELEASE
    assert "2 nodes are free and nothing is queued" in advice.reason


def test_it_is_not_released_while_it_would_end_a_link_before_half_of_its_time():
    waits = [sample(HOUR)] * 90 + [sample(45 * HOUR)] * 10
    advice = UPTIME.decide(service(40 * HOUR, waits))
    assert advice.action is Action.WAIT
    why = "would probably come too soon: its predecessor should first run for another 16 h. Its"
    assert f". A release now {why} predecessor's limit" in advice.reason
    assert released(service(24 * HOUR, waits))
    assert released(service(48 * HOUR, [sample(60 * HOUR)] * 9)), "waits beyond a link"


@pytest.mark.parametrize(("jobs", "is_released"), [(4, False), (5, True)])
def test_more_work_queued_than_any_known_job_found_releases(jobs, is_released):
    calm = service(20 * HOUR, [replace(sample(600), start_s=600)] * 4)
    queue = tuple(queued(number, calm.now_s - 60, 48) for number in range(10, 10 + jobs))
    snapshot = Snapshot(at_s=calm.now_s, jobs=queue, nodes=())
    assert released(replace(calm, snapshot=snapshot)) is is_released


def test_a_further_successor_follows_one_that_waits_if_waits_exceed_a_link():
    waiting = replace(job(1, JobState.PENDING, None), reason="Priority", eligible_s=0)
    often, rarely = (15, 1), (19, 1)
    for waited_h, short_and_long, expected in (
        (19, often, False),
        (20, often, True),
        (20, rarely, False),
    ):
        short, long = short_and_long
        waits = [sample(HOUR)] * short + [sample(60 * HOUR)] * (long + 1)
        at = service((48 - waited_h) * HOUR, waits, predecessor=waiting)
        assert released(at) is expected


def test_without_a_known_wait_or_an_end_it_waits():
    assert "no wait is known" in UPTIME.decide(service(HOUR, [])).reason
    assert not released(service(HOUR, [sample(HOUR)], predecessor=job(limit_s=None)))
