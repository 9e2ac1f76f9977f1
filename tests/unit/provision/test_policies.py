import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.chain.durations import parse_duration
from mirage.config import TRAINED, UNTRAINED, GoodputConfig, PolicyConfig
from mirage.domain import (
    Action,
    ClusterNode,
    Job,
    JobState,
    Mode,
    Penalties,
    RunLaw,
    Snapshot,
    WaitSample,
)
from mirage.errors import InputError
from mirage.ports import Observation
from mirage.provision.learn.methods import METHODS
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Average, Reactive, Timer, now_is_nearest
from mirage.provision.policies.quantile import Quantile, penalty
from mirage.provision.policies.registry import POLICIES, make_policy
from mirage.provision.policies.wait_law import wait_law
from mirage.state.encoder import JobPair, encode, vector
from mirage.state.history import History
from mirage.state.likeness import Waits
from mirage.state.variables import VARIABLES

HOUR = 3600


def job(job_id=1, state=JobState.RUNNING, start_s=0, limit_s=48 * HOUR, nodes=1, partition="gpu"):
    return Job(
        job_id=job_id,
        user="alice",
        partition=partition,
        state=state,
        nodes=nodes,
        submit_s=0,
        time_limit_s=limit_s,
        eligible_s=0,
        start_s=start_s,
    )


def sample(wait_s, *, nodes=1, limit_s=48 * HOUR, partition="gpu"):
    return WaitSample(
        job_id=1, partition=partition, nodes=nodes, time_limit_s=limit_s, start_s=0, wait_s=wait_s
    )


def observe(remaining_s, waits=(), *, step_s=600, penalties=None, predecessor=None, successor=None):
    return Observation(
        now_s=48 * HOUR - remaining_s,
        step_s=step_s,
        predecessor=predecessor or job(),
        successor=successor or job(2, JobState.PENDING, None),
        penalties=penalties or Penalties(),
        waits=Waits(list(waits)),
    )


def releases(policy, remaining_s, waits=(), **more):
    return policy.decide(observe(remaining_s, waits, **more)).action is Action.RELEASE


def test_reactive_never_releases():
    assert not releases(Reactive(), 0, [sample(9999)])


@pytest.mark.parametrize("policy", [Timer(HOUR), Average(100), Quantile(100, 1)])
@pytest.mark.parametrize(
    "predecessor",
    [job(state=JobState.PENDING, start_s=None), job(limit_s=None)],
    ids=["pending", "unlimited"],
)
def test_without_an_end_to_aim_at_all_wait(policy, predecessor):
    assert not releases(policy, 0, [sample(HOUR)] * 9, predecessor=predecessor)


@pytest.mark.parametrize("policy", [Average(100), Quantile(100, 1)])
def test_without_known_waits_they_wait(policy):
    advice = policy.decide(observe(0))
    assert advice.action is Action.WAIT
    assert "has been seen to start" in advice.reason


@pytest.mark.parametrize(
    ("remaining_s", "released"),
    [(2 * HOUR, False), (HOUR + 301, False), (HOUR + 299, True), (HOUR, True), (0, True)],
)
def test_timer_takes_the_decision_point_nearest_to_its_lead(remaining_s, released):
    assert releases(Timer(HOUR), remaining_s) is released


@pytest.mark.parametrize(("limit_s", "warned"), [(HOUR, True), (HOUR + 1, False), (None, False)])
def test_a_timer_lead_of_a_whole_run_is_named_in_its_reason(limit_s, warned):
    advice = Timer(HOUR).decide(observe(60, predecessor=job(limit_s=limit_s)))
    assert ("ends each link as it starts" in advice.reason) is warned


def test_avg_is_the_mean_of_the_last_starts_whatever_their_size():
    waits = [sample(99 * HOUR), sample(HOUR), sample(3 * HOUR, nodes=8)]
    assert releases(Average(2), 2 * HOUR, waits)
    assert not releases(Average(2), 2 * HOUR + 400, waits)


@given(st.integers(0, 10_000), st.integers(1, 3000), st.floats(0, 10_000))
def test_exactly_one_release_point_is_nearest(end_s, step_s, lead_s):
    """Polling until it releases ends at the best of the points on offer, the end itself included."""
    points = [*range(end_s, 0, -step_s), 0]
    chosen = next((r for r in points if r > 0 and now_is_nearest(r, step_s, lead_s)), 0)
    assert abs(chosen - lead_s) == pytest.approx(min(abs(r - lead_s) for r in points))


def test_on_a_quiet_cluster_nothing_is_released_early():
    for policy in (Average(100), Quantile(100, 1)):
        assert not any(releases(policy, r, [sample(0)] * 50) for r in range(0, 7200, 300))


def test_quantile_releases_no_later_than_at_the_newsvendor_quantile():
    waits = [sample(h * HOUR) for h in range(1, 11)]
    assert releases(Quantile(100, 1), 5 * HOUR, waits)
    assert not releases(Quantile(100, 1), 7 * HOUR, waits)
    averse = Penalties(interruption=9, overlap=1)
    assert releases(Quantile(100, 1), 9 * HOUR, waits, penalties=averse)
    thrifty = Penalties(interruption=1, overlap=9)
    assert not releases(Quantile(100, 1), 2 * HOUR, waits, penalties=thrifty)
    assert releases(Quantile(100, 1), HOUR, waits, penalties=thrifty)


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=40),
    st.integers(1, 30_000),
    st.sampled_from([(1, 1), (4, 1), (1, 4)]),
)
def test_polling_with_quantile_ends_at_the_cheapest_point(waits, end_s, weights):
    penalties = Penalties(*map(float, weights))
    points = [*range(end_s, 0, -600), 0]
    samples = [sample(w) for w in waits]
    chosen = next(
        (
            r
            for r in points
            if r > 0 and releases(Quantile(100, 1), r, samples, penalties=penalties)
        ),
        0,
    )
    law = wait_law(np.array(waits, dtype=float), np.empty(0))
    costs = [penalty(law, r, penalties) for r in points]
    assert penalty(law, chosen, penalties) == pytest.approx(min(costs))


@pytest.mark.parametrize(
    ("idle", "queued", "released"),
    [(1, 0, False), (0, 0, True), (1, 1, True)],
    ids=["free", "full", "others queue"],
)
def test_quantile_does_not_release_what_would_start_at_once(idle, queued, released):
    """Waits of an hour ago say nothing once nodes are free and nobody is before us."""
    pending = [job(90 + n, JobState.PENDING, None) for n in range(queued)]
    nodes = tuple(
        ClusterNode(name=f"n{n}", partitions=("gpu",), up=True, idle=n < idle) for n in range(2)
    )
    history = History("gpu")
    history.add(encode(Snapshot(at_s=48 * HOUR, jobs=tuple(pending), nodes=nodes), "gpu"))
    observation = replace(observe(HOUR, [sample(5 * HOUR)] * 30), history=history)
    assert (Quantile(100, 1).decide(observation).action is Action.RELEASE) is released


def test_quantile_reports_what_it_expects():
    advice = Quantile(100, 1).decide(observe(2 * HOUR, [sample(HOUR), sample(5 * HOUR)]))
    assert (advice.wait_p10_s, advice.wait_p90_s) == (HOUR, 5 * HOUR)
    assert (advice.expected_interruption_s, advice.expected_overlap_s) == (1.5 * HOUR, 0.5 * HOUR)


def test_like_jobs_widen_until_there_are_enough():
    alike = [sample(1), sample(2, nodes=2)]
    other_limit = [sample(3, limit_s=HOUR)]
    other_size = [sample(4, nodes=8)]
    elsewhere = [sample(5, partition="debug")]
    waits = Waits([*alike, *other_limit, *other_size, *elsewhere])
    successor = job(2, JobState.PENDING, None)
    for at_least in (2, 3, 4):
        assert waits.like(successor, at_least).wait_s.tolist() == list(range(1, at_least + 1))
    assert waits.like(successor, 5).wait_s.tolist() == [1, 2, 3, 4], "rather few of its own"
    assert waits.like(job(2, partition="debug,none"), 1).wait_s.tolist() == [5]
    assert waits.like(job(2, limit_s=None), 1).wait_s.tolist() == [1, 2, 3]


def test_jobs_that_are_less_alike_are_not_called_like_jobs():
    waits = Waits(
        [sample(1), sample(3, limit_s=HOUR), sample(4, nodes=8), sample(5, partition="debug")]
    )
    waits = Waits([*waits, sample(6, partition="debug")])
    words = [
        waits.like(job(2, JobState.PENDING, None), at_least).words for at_least in (1, 2, 3, 4, 9)
    ]
    assert words == [
        "like jobs",
        "jobs of like size and any time limit",
        "jobs of the same partition and any size",
        "jobs of partitions debug, gpu and like size, as too few of gpu have started,",
        "jobs of the same partition and any size",
    ]
    assert (
        Waits([sample(5, partition=name) for name in "abcde"])
        .like(job(2), 1)
        .words.startswith("jobs of partitions a, b, c and 2 more and like size, as too few of gpu")
    )


def test_few_jobs_of_one_partition_are_not_set_against_it():
    assert Waits([sample(5)]).like(job(2), 30).words == "jobs of the same partition and any size"


SMALL_AND_BUSY = tuple(
    ClusterNode(name=name, partitions=partitions, up=True, idle=False)
    for name, partitions in (
        ("n1", ("small",)),
        ("n2", ("small", "shared")),
        ("n3", ("shared", "busy")),
    )
)
"""One pool: `small` and `busy` share no node."""


def test_waits_are_those_of_jobs_that_competed_for_the_same_nodes():
    sharing = Snapshot(at_s=0, jobs=(), nodes=SMALL_AND_BUSY).sharing
    assert sharing["small"] == {"small", "shared"}
    busy = [sample(9 * HOUR, partition="busy")] * 50
    shared = [sample(60, partition="shared"), sample(5, nodes=16, partition="shared")]
    successor = job(2, JobState.PENDING, None, partition="small")
    assert not len(Waits(busy, sharing).like(successor, 20).wait_s)
    assert Waits([*busy, *shared], sharing).like(successor, 20).wait_s.tolist() == [60]
    assert len(Waits(busy).like(successor, 20).wait_s) == 50, "as if all partitions were one"


@pytest.mark.parametrize("policy", [Quantile(100, 20), Goodput(GoodputConfig())])
def test_a_busy_partitions_waits_burn_no_links_of_a_small_one(policy):
    """Links of 180 s in a partition without recent starts were let go after 12 s by the waits of
    another one.
    """
    sharing = Snapshot(at_s=0, jobs=(), nodes=SMALL_AND_BUSY).sharing
    busy = Waits([sample(9 * HOUR, partition="busy")] * 50, sharing)
    link = job(limit_s=180, partition="small")
    successor = job(2, JobState.PENDING, None, limit_s=180, partition="small")
    observation = replace(
        observe(0), predecessor=link, successor=successor, waits=busy, now_s=12, mode=Mode.TRAIN
    )
    advice = policy.decide(observation)
    assert advice.action is Action.WAIT
    assert "no job that competes for the nodes of partition small has been seen" in advice.reason
    as_before = replace(observation, waits=Waits(list(busy)))
    assert policy.decide(as_before).action is Action.RELEASE


def test_waits_of_other_partitions_are_told_as_such():
    elsewhere = [sample(5 * HOUR, partition="debug")] * 3
    assert "3 jobs of partition debug and like size, as too few of gpu have started, waited" in (
        Quantile(100, 1).decide(observe(2 * HOUR, elsewhere)).reason
    )
    assert "the last 3 jobs to start in partition debug waited 5 h on average" in (
        Average(100).decide(observe(2 * HOUR, elsewhere)).reason
    )
    both = Average(2).decide(observe(2 * HOUR, [*elsewhere, sample(HOUR)])).reason
    assert "in partitions debug, gpu waited 3 h" in both


def seconds(words):
    """`2 h 10 min` -> 7800."""
    return sum(
        parse_duration(f"{number} {unit}") for number, unit in re.findall(r"(\d+) (\w+)", words)
    )


@pytest.mark.parametrize("ratio", [0.001, 0.1, 1, 9, 19, 1000])
def test_the_range_that_is_told_has_the_quantile_in_it(ratio):
    waits_s = [60 * minutes for minutes in (0, 1, 5, 20, 60, 120, 300, 600, 1200, 3000)]
    observation = observe(100 * HOUR, [sample(wait_s) for wait_s in waits_s])
    advice = Quantile(100, 1).decide(replace(observation, penalties=Penalties(ratio, 1)))
    told = re.search(r"waited (.+) to (.+) \(the \d+% quantile is (.+)\);", advice.reason)
    low, high, quantile = map(seconds, told.groups())
    assert low <= quantile <= high
    assert advice.wait_p10_s <= advice.wait_p50_s <= advice.wait_p90_s


def test_a_job_that_backfill_may_shorten_is_like_jobs_of_its_time_min():
    waits = Waits([sample(1), sample(2, limit_s=HOUR)])
    flexible = replace(job(2, JobState.PENDING, None), time_min_s=HOUR)
    assert waits.like(flexible, 1).wait_s.tolist() == [2]


def test_no_limit_is_like_no_limit_only():
    waits = Waits([sample(1, limit_s=None), sample(2)])
    assert waits.like(job(2, limit_s=None), 1).wait_s.tolist() == [1]


def test_the_registry_makes_every_policy_under_its_own_name():
    for name in POLICIES:
        assert make_policy(PolicyConfig(name=name)).name == name


def test_the_configuration_knows_the_same_policies():
    (name,) = (field for field in fields(PolicyConfig) if field.name == "name")
    assert set(name.metadata["choices"]) == {*POLICIES, *METHODS} == {*UNTRAINED, *TRAINED}
    assert set(POLICIES) == set(UNTRAINED)
    assert set(METHODS) == set(TRAINED)


@pytest.mark.parametrize("name", sorted(set(TRAINED) - set(UNTRAINED)))
def test_a_method_that_learns_needs_a_model(name):
    with pytest.raises(InputError, match=r"set policy\.model"):
        make_policy(PolicyConfig(name=name))


def test_a_model_that_can_not_be_used_is_an_error_at_the_start(tmp_path):
    with pytest.raises(InputError, match="takes no model"):
        make_policy(PolicyConfig(name="timer", model=str(tmp_path)))
    with pytest.raises(InputError, match=r"no recipe\.toml"):
        make_policy(PolicyConfig(name="quantile", model=str(tmp_path)))


@pytest.mark.parametrize("policy", [Timer(HOUR), Average(100), Quantile(100, 1)])
def test_policies_aim_at_the_predecessors_signal_and_say_so(policy):
    predecessor = replace(job(), lead_s=300)
    waits = [sample(HOUR)] * 9
    assert releases(policy, HOUR + 360, waits, predecessor=predecessor)
    assert not releases(policy, 2 * HOUR + 360, waits, predecessor=predecessor)
    assert not releases(policy, HOUR + 360, waits, step_s=60)
    reason = policy.decide(observe(HOUR + 360, waits, predecessor=predecessor)).reason
    assert reason.endswith("its predecessor's signal, 5 min before its limit, may come in 1 h")


def test_the_quantile_weighs_all_ends_that_the_predecessor_may_have():
    """Waits of 1 h; the predecessor ends in 1 h or in 3 h. Now it costs half of 2 h of overlap,
    later half of an interruption: the user's penalties decide.
    """
    waits, step_s = [sample(HOUR)] * 20, 600
    observation = observe(3 * HOUR, waits, step_s=step_s)
    start_s = observation.predecessor.start_s
    runs_s = tuple(observation.now_s + in_s - start_s for in_s in (HOUR, 3 * HOUR))
    predecessor = replace(observation.predecessor, usual_run_s=runs_s[0])
    both = replace(observation, predecessor=predecessor, run_law=RunLaw(runs_s, (0.5, 0.5), 1))
    costly = replace(both, penalties=Penalties(4, 1))
    advice = Quantile(100, 1).decide(costly)
    assert advice.action is Action.RELEASE
    assert advice.penalty_now_s == pytest.approx(0.5 * 2 * HOUR)
    assert advice.penalty_later_s == pytest.approx(0.5 * 4 * step_s + 0.5 * (2 * HOUR - step_s))
    cheap = replace(both, penalties=Penalties(1, 4))
    assert Quantile(100, 1).decide(cheap).action is Action.WAIT
    assert Quantile(100, 1).decide(observation).action is Action.WAIT


def test_the_states_limit_is_the_expected_one():
    """In training a predecessor runs to its limit; so a signal before it makes the limit shorter."""
    pair = JobPair(replace(job(), lead_s=300), job(2, JobState.PENDING, None))
    row = vector(encode(Snapshot(at_s=HOUR, jobs=(), nodes=()), "gpu"), pair)
    names = [variable.name for variable in VARIABLES]
    assert row[names.index("predecessor_limit_s")] == 48 * HOUR - 360
    assert row[names.index("successor_limit_s")] == 48 * HOUR
