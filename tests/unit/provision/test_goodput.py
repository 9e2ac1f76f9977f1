"""The policy of training chains: its law of waits, its loss and its releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirage.config import GoodputConfig, PolicyConfig
from mirage.domain import Action, JobState, Mode, Penalties, RunLaw, Snapshot
from mirage.provision.policies.goodput import Goodput, least_run_s
from mirage.provision.policies.registry import make_policy
from mirage.provision.policies.wait_law import Begun, Changes, least_loss, mixed, wait_law
from tests.unit.provision.test_policies import HOUR, job, observe, sample

GOODPUT = Goodput(GoodputConfig(at_least=1))


def train(remaining_s, waits, now_h=None, **more):
    """``now_h``: the present, if it is not the age of a predecessor that started at 0."""
    observation = replace(observe(remaining_s, waits, **more), mode=Mode.TRAIN)
    if now_h is None:
        return observation
    began = replace(observation.predecessor, eligible_s=None)
    began = replace(began, start_s=now_h * HOUR - 48 * HOUR + remaining_s)
    return replace(observation, now_s=now_h * HOUR, predecessor=began)


def test_the_law_without_waits_under_way_is_the_empirical_one():
    law = wait_law(np.array([3.0, 1.0, 2.0, 2.0]), np.array([]))
    assert law.waits_s.tolist() == [1, 2, 2, 3]
    assert law.shares == pytest.approx([0.25] * 4)
    assert law.share_above(2) == pytest.approx(0.25)
    assert [law.quantile(level) for level in (0.1, 0.5, 0.75, 0.9)] == [1, 2, 2, 3]


def test_waits_under_way_move_the_law_to_longer_ones():
    """Product limit by hand: of 4 at risk at 1 one ends; of 2 at risk at 3 one does."""
    law = wait_law(np.array([1.0, 3.0]), np.array([2.0, 5.0]))
    assert law.waits_s.tolist() == [1, 3, 7.5]
    assert law.shares == pytest.approx([0.25, 0.375, 0.375])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.lists(st.floats(0, 1e6), max_size=20)
)
def test_a_law_is_a_distribution(ended, under_way):
    law = wait_law(np.array(ended), np.array(under_way))
    assert law.shares.sum() == pytest.approx(1)
    assert (law.shares >= 0).all()
    assert (np.diff(law.waits_s) >= 0).all()


def test_without_waits_a_link_loses_its_handover():
    law = wait_law(np.array([0.0]), np.array([]))
    assert least_loss(law, RunLaw((48 * HOUR,), (1.0,)), 600) == pytest.approx(600 / (48 * HOUR))


def test_the_least_loss_of_two_waits_by_hand():
    """Waits of 0 or 10 h, links of 20 h. Released at 10 h a link lasts 15 h in the mean and is never
    late; released at 20 h it lasts 25 h and is 5 h late in the mean.
    """
    law = wait_law(np.array([0.0, 10 * HOUR]), np.array([]))
    assert least_loss(law, RunLaw((20 * HOUR,), (1.0,)), HOUR) == pytest.approx(1 / 15, rel=0.02)


def test_links_that_may_end_early_are_released_for_that_end_too():
    """Two waits in a hundred are 6 h. 24 h before the limit that matters only if the link leaves at
    half of it, as one of two may.
    """
    waits = [sample(60)] * 98 + [sample(6 * HOUR)] * 2
    at_limit = train(27 * HOUR, waits)
    assert GOODPUT.decide(at_limit).action is Action.WAIT
    early = replace(at_limit, run_law=RunLaw((24 * HOUR, 48 * HOUR), (0.5, 0.5), 1))
    predecessor = replace(early.predecessor, usual_run_s=24 * HOUR)
    early = replace(early, predecessor=predecessor)
    assert early.remaining_s == 3 * HOUR
    advice = GOODPUT.decide(early)
    assert advice.action is Action.RELEASE
    assert advice.expected_interruption_s == pytest.approx(0.5 * 0.02 * 3 * HOUR)
    assert "an earlier link did" in advice.reason


def test_the_least_loss_over_two_run_times_by_hand():
    """Nobody waits: released at 20 h, a link of 10 or 20 h lasts 15 h in the mean."""
    law = wait_law(np.array([0.0]), np.array([]))
    runs = RunLaw((10 * HOUR, 20 * HOUR), (0.5, 0.5))
    assert least_loss(law, runs, HOUR) == pytest.approx(1 / 15)


def test_it_is_released_once_a_long_wait_costs_more_than_a_handover():
    waits = [sample(HOUR)] * 94 + [sample(20 * HOUR)] * 6
    releases = [
        remaining_h
        for remaining_h in range(31, 0, -1)
        if GOODPUT.decide(train(remaining_h * HOUR, waits)).action is Action.RELEASE
    ]
    assert releases == list(range(19, 0, -1)), (
        "6 % would wait longer than 19 h; a handover is 0.5 %"
    )


def test_it_is_not_released_while_it_would_start_too_soon():
    waits = [sample(HOUR)] * 90 + [sample(45 * HOUR)] * 10
    advice = GOODPUT.decide(train(40 * HOUR, waits))
    assert advice.action is Action.WAIT
    assert "too soon" in advice.reason
    assert GOODPUT.decide(train(32 * HOUR, waits)).action is Action.RELEASE


def test_it_is_released_also_once_its_predecessor_may_end_at_any_moment():
    assert GOODPUT.decide(train(0, [sample(HOUR)])).action is Action.RELEASE


def test_after_short_links_a_predecessor_runs_for_a_quarter_of_its_time():
    observation = train(48 * HOUR, [sample(60 * HOUR)] * 9)
    once = replace(observation, short_handovers=1)
    assert GOODPUT.decide(once).action is Action.RELEASE
    advice = GOODPUT.decide(replace(observation, short_handovers=2))
    assert advice.action is Action.WAIT
    assert advice.reason.startswith("[short-links] 2 of this chain's last 4 handovers")
    for remaining_h, action in ((37, Action.WAIT), (36, Action.RELEASE)):
        later = train(remaining_h * HOUR, [sample(60 * HOUR)] * 9)
        assert GOODPUT.decide(replace(later, short_handovers=2)).action is action
    idle = replace(later, short_handovers=2, idle_s=HOUR)
    assert GOODPUT.decide(idle).action is Action.WAIT, "its work began an hour after its job"


def queued(number, eligible_s, limit_h):
    return replace(
        job(number, JobState.PENDING, None),
        reason="Priority",
        eligible_s=eligible_s,
        time_limit_s=limit_h * HOUR,
    )


@pytest.mark.parametrize(("jobs", "action"), [(4, Action.WAIT), (5, Action.RELEASE)])
def test_it_is_released_where_more_is_queued_than_any_known_job_found(jobs, action):
    """Four jobs of 48 h are known, which began to wait together: each found four queued. So four
    more, which have waited for a minute, are no news, and a fifth is.
    """
    waits = [replace(sample(600), start_s=600)] * 4
    calm = train(20 * HOUR, waits)
    queue = tuple(queued(number, calm.now_s - 60, 48) for number in range(10, 10 + jobs))
    snapshot = Snapshot(at_s=calm.now_s, jobs=queue, nodes=())
    advice = GOODPUT.decide(replace(calm, snapshot=snapshot))
    assert advice.action is action
    assert ("more work is queued" in advice.reason) is (action is Action.RELEASE)


def test_with_waits_beyond_a_link_it_is_released_at_once():
    assert GOODPUT.decide(train(48 * HOUR, [sample(60 * HOUR)] * 9)).action is Action.RELEASE


def test_a_queue_that_grows_is_seen_before_its_waits_end():
    waits = [sample(60)] * 50
    queue = tuple(
        replace(job(number, JobState.PENDING, None), reason="Priority", eligible_s=0)
        for number in range(10, 60)
    )
    calm = train(20 * HOUR, waits)
    assert GOODPUT.decide(calm).action is Action.WAIT
    snapshot = Snapshot(at_s=calm.now_s, jobs=queue, nodes=())
    assert GOODPUT.decide(replace(calm, snapshot=snapshot)).action is Action.RELEASE


def test_the_next_one_follows_a_predecessor_that_waits_itself_after_part_of_a_link():
    waiting = replace(job(1, JobState.PENDING, None), reason="Priority", eligible_s=0)
    for waited_h, action in ((28, Action.WAIT), (29, Action.RELEASE)):
        observation = train((48 - waited_h) * HOUR, [sample(60 * HOUR)], predecessor=waiting)
        assert GOODPUT.decide(observation).action is action


@pytest.mark.parametrize(
    ("handover_s", "run_h"),
    [(600, 28), (2 * HOUR, 32), (12 * HOUR, 32)],
    ids=["cheap", "dear", "dearer than the link is worth"],
)
def test_a_dear_handover_leaves_its_predecessor_more_of_its_time(handover_s, run_h):
    """Of the waits 10 % are 20 h, the others an hour. Links of 48 h: five handovers of 10 minutes are
    1.7 % of one, those of 2 h are 21 %.
    """
    law = wait_law(np.array([HOUR] * 90 + [20 * HOUR] * 10, dtype=float), np.array([]))
    assert least_run_s(law, 48 * HOUR, handover_s) == run_h * HOUR


def test_a_predecessor_runs_for_a_third_of_its_time_however_long_waits_are():
    law = wait_law(np.array([90.0 * HOUR]), np.array([]))
    assert least_run_s(law, 48 * HOUR, 600) == 16 * HOUR


def test_a_predecessor_that_is_kept_back_is_not_followed():
    held = replace(job(1, JobState.PENDING, None), reason="Dependency", eligible_s=None)
    observation = train(HOUR, [sample(HOUR)], predecessor=held)
    assert GOODPUT.decide(observation).action is Action.WAIT


def floats(*hours):
    return np.array(hours, dtype=np.float64) * HOUR


NONE = Begun(floats(), floats())


def test_a_mixed_law_has_the_waits_of_both():
    law = mixed([wait_law(floats(1, 3), floats()), wait_law(floats(2), floats())])
    assert (law.waits_s / HOUR).tolist() == [1, 2, 3]
    assert law.shares == pytest.approx([0.25, 0.5, 0.25])


def test_a_changed_law_adds_what_waits_changed_by_within_a_day():
    """Waits of 5 h, and a day later of 7 h: 2 h more than the chain's last one. A fall below 0 is 0."""
    began = floats(*range(10), *range(24, 34))
    waits = floats(*[5] * 10, *[7] * 10)
    law = Changes.of(Begun(began, waits), NONE).law_after(3 * HOUR)
    assert law is not None
    assert set(law.waits_s / HOUR) == {5}
    fallen = Changes.of(Begun(began, waits[::-1]), NONE).law_after(3 * HOUR)
    assert fallen is not None
    assert set(fallen.waits_s / HOUR) == {1}
    ended = Changes.of(Begun(began, waits[::-1]), NONE).law_after(0)
    assert ended is not None
    assert set(ended.waits_s) == {0}


def test_a_changed_law_counts_waits_under_way_and_needs_some_to_compare():
    began, waits = floats(*range(10), *range(24, 34)), floats(*[0] * 20)
    law = Changes.of(
        Begun(began, waits), Begun(floats(*range(30, 40)), floats(*[9] * 10))
    ).law_after(0)
    assert law is not None
    assert law.share_above(9 * HOUR) == pytest.approx(0.5)
    assert Changes.of(Begun(began[:15], waits[:15]), NONE).law_after(0) is None


def starts(hours_and_waits):
    """Samples that began to wait at these hours, for so many hours."""
    return [
        replace(sample(wait_h * HOUR), start_s=int((at_h + wait_h) * HOUR))
        for at_h, wait_h in hours_and_waits
    ]


def test_a_burst_is_seen_as_it_comes_from_what_is_queued():
    """Jobs that found nothing queued started at once. Those in a burst waited for 40 hours."""
    calm = starts((hour / 4, 0) for hour in range(200))
    burst = starts((60 + hour / 20, 40) for hour in range(100))
    observation = train(30 * HOUR, [*calm, *burst], now_h=110)
    nothing = Snapshot(at_s=observation.now_s, jobs=(), nodes=())
    observation = replace(observation, snapshot=nothing)
    assert GOODPUT.decide(observation).action is Action.WAIT
    queue = tuple(
        replace(
            job(number, JobState.PENDING, None),
            reason="Priority",
            eligible_s=observation.now_s - 60,
        )
        for number in range(10, 70)
    )
    seen = replace(observation, snapshot=Snapshot(at_s=observation.now_s, jobs=queue, nodes=()))
    assert GOODPUT.decide(seen).action is Action.RELEASE


def test_a_service_without_a_model_sees_the_same_burst():
    """Recent waits are those of the burst, 40 hours. With nothing queued, jobs started at once."""
    calm = starts((hour / 4, 0) for hour in range(200))
    burst = starts((60 + hour / 20, 40) for hour in range(120))
    service = replace(
        train(30 * HOUR, [*calm, *burst], now_h=110), mode=Mode.SERVICE, penalties=Penalties(4, 1)
    )
    queue = tuple(queued(number, service.now_s - 60, 48) for number in range(10, 70))
    quiet, busy = (
        replace(service, snapshot=Snapshot(at_s=service.now_s, jobs=jobs, nodes=()))
        for jobs in ((), queue)
    )
    policy = make_policy(PolicyConfig())
    assert policy.decide(quiet).action is Action.WAIT
    advice = policy.decide(busy)
    assert advice.action is Action.RELEASE
    assert "with about as much work queued as now" in advice.reason
    assert policy.decide(service).wait_p50_s == 0, "no snapshot: the law of all known waits"


def test_waits_under_way_count_for_a_service_too():
    """All waits that ended took a minute; as many jobs wait for 20 hours already."""
    service = replace(train(10 * HOUR, starts((hour, 0) for hour in range(40)), now_h=60))
    service = replace(service, mode=Mode.SERVICE, penalties=Penalties(4, 1))
    calm = replace(service, snapshot=Snapshot(at_s=service.now_s, jobs=(), nodes=()))
    queue = tuple(queued(number, service.now_s - 20 * HOUR, 48) for number in range(10, 60))
    grown = replace(calm, snapshot=Snapshot(at_s=service.now_s, jobs=queue, nodes=()))
    policy = make_policy(PolicyConfig())
    assert policy.decide(calm).action is Action.WAIT
    assert policy.decide(grown).action is Action.RELEASE


def test_a_chain_that_waits_longer_than_like_jobs_is_let_in_earlier():
    """Like jobs wait for an hour or two. The chain's own last link waited for 30 hours."""
    waits = starts((hour, 1 + hour % 2) for hour in range(96))
    usual = train(29 * HOUR, waits)
    late = replace(usual.predecessor, eligible_s=usual.predecessor.start_s - 30 * HOUR)
    assert GOODPUT.decide(usual).action is Action.WAIT
    assert GOODPUT.decide(replace(usual, predecessor=late)).action is Action.RELEASE
