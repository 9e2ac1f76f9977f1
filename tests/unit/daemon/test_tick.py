from dataclasses import dataclass, replace

import pytest

from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.tick import (
    LookUp,
    Release,
    SaveChain,
    SaveLink,
    Wait,
    awaited,
    obstacle,
    tick,
    with_leads,
)
from mirage.domain import (
    UPTIME,
    Action,
    Chain,
    ChainState,
    ClusterNode,
    Job,
    JobState,
    Link,
    Mode,
    Penalties,
    Snapshot,
)
from mirage.ports import Advice
from mirage.state.likeness import Waits
from mirage.store.repository import SqlStore

NOW = 10_000
NODES = (ClusterNode(name="n1", partitions=("gpu",), up=True, idle=False),)


@dataclass
class Always:
    """A policy that says one thing and keeps what it was given."""

    action: Action
    name: str = "always"

    def __post_init__(self):
        self.given = []

    def decide(self, observation):
        self.given.append(observation)
        return Advice(action=self.action, reason="because")


class At:
    def now_s(self):
        return NOW


class Nothing:
    def waits(self, pool):
        return Waits([])

    def history(self, pool):
        return None

    def digest(self, pool):
        return pool


def tag(segment, predecessor=None, chain="chain1", segments=3):
    return ChainTag(
        chain_id=chain,
        segment=segment,
        segments=segments,
        predecessor_id=predecessor,
        mode=Mode.TRAIN,
        penalties=Penalties(2, 1),
    )


def running(job_id=10, user="alice", **more):
    job = Job(
        job_id=job_id,
        user=user,
        partition="gpu",
        state=JobState.RUNNING,
        nodes=1,
        submit_s=0,
        time_limit_s=3600,
        reason="None",
        eligible_s=0,
        start_s=8000,
        comment=format_tag(tag(1)),
    )
    return replace(job, **more)


def waiting(job_id=11, user="alice", predecessor=10, **more):
    job = Job(
        job_id=job_id,
        user=user,
        partition="gpu",
        state=JobState.PENDING,
        nodes=1,
        submit_s=0,
        time_limit_s=3600,
        reason="Dependency",
        dependency=f"afterany:{predecessor}(unfulfilled)",
        comment=format_tag(tag(2, predecessor)),
    )
    return replace(job, **more)


@pytest.fixture
def store():
    return SqlStore.open("sqlite://")


def step(jobs, store, policy=None, **more):
    policy = policy or Always(Action.RELEASE)
    return tick(
        Snapshot(at_s=NOW, jobs=tuple(jobs), nodes=NODES),
        store,
        At(),
        policy,
        Nothing(),
        step_s=600,
        **more,
    )


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


def test_a_pair_is_decided_on_and_the_decision_says_on_what_grounds(store):
    policy = Always(Action.RELEASE)
    (release,) = of(Release, step([running(), waiting()], store, policy))
    decision = release.decision
    assert (decision.predecessor_id, decision.successor_id, decision.user) == (10, 11, "alice")
    assert (decision.policy, decision.reason, decision.remaining_s) == (
        "always",
        "because",
        8000 + 3600 - NOW,
    )
    assert policy.given[0].penalties == Penalties(2, 1)
    assert policy.given[0].step_s == 600
    (again,) = of(Release, step([running(), waiting()], store, policy))
    (other,) = of(Release, step([running(start_s=8001), waiting()], store, policy))
    assert again.decision.inputs_hash == decision.inputs_hash != other.decision.inputs_hash


def test_a_policy_is_told_what_it_said_of_the_pair_before_even_after_a_restart(tmp_path):
    class Counting(Always):
        def decide(self, observation):
            super().decide(observation)
            return Advice(action=self.action, reason="because", gain=float(len(observation.gains)))

    url = f"sqlite:///{tmp_path}/mirage.db"
    for cycle in range(3):
        with SqlStore.open(url) as store:
            policy = Counting(Action.WAIT)
            actions = step(
                [running(), waiting(), running(20, "bob"), waiting(21, "bob", 20)], store, policy
            )
            for wait in of(Wait, actions):
                store.add_decision(replace(wait.decision, at_s=NOW - 600 * (3 - cycle)))
    last = [(NOW - 1800, 0.0), (NOW - 1200, 1.0)]
    assert [list(observation.gains) for observation in policy.given] == [last, last]
    with SqlStore.open(url) as store:
        other = Counting(Action.WAIT, name="other")
        step([running(), waiting()], store, other)
    assert list(other.given[0].gains) == [], "another policy said that"


def test_a_policy_that_fails_on_one_pair_does_not_stop_the_others(store):
    class Fragile(Always):
        def decide(self, observation):
            if observation.successor.user == "alice":
                raise ZeroDivisionError("0/0")
            return super().decide(observation)

    jobs = [running(), waiting(), running(20, "bob"), waiting(21, "bob", 20)]
    actions = step(jobs, store, Fragile(Action.RELEASE))
    assert [release.decision.successor_id for release in of(Release, actions)] == [21]
    assert "ZeroDivisionError" in of(Wait, actions)[0].decision.reason


class Batch(Always):
    """Decides all pairs at once, and counts how often it is asked."""

    def __post_init__(self):
        super().__post_init__()
        self.batches = []

    def decide_all(self, observations):
        self.batches.append(len(observations))
        return [self.decide(observation) for observation in observations]


def two_pairs():
    return [running(), waiting(), running(20, "bob"), waiting(21, "bob", 20)]


def test_a_policy_that_can_decides_all_pairs_in_one_call(store):
    policy = Batch(Action.RELEASE)
    actions = step(two_pairs(), store, policy)
    assert policy.batches == [2]
    assert [release.decision.successor_id for release in of(Release, actions)] == [11, 21]
    assert [observation.successor.job_id for observation in policy.given] == [11, 21]
    assert policy.given[0].snapshot.at_s == NOW
    assert not of(Release, step([], store, policy))
    assert policy.batches == [2]


@pytest.mark.parametrize("answers", ["none", "too few"])
def test_a_batch_that_fails_is_decided_one_by_one(store, answers):
    class Fragile(Batch):
        def decide_all(self, observations):
            if answers == "none":
                raise ZeroDivisionError("0/0")
            return super().decide_all(observations[1:])

        def decide(self, observation):
            if observation.successor.user == "alice":
                raise ValueError("not alice")
            return super().decide(observation)

    actions = step(two_pairs(), store, Fragile(Action.RELEASE))
    assert [release.decision.successor_id for release in of(Release, actions)] == [21]
    assert "not alice" in of(Wait, actions)[0].decision.reason


def test_waiting_is_a_decision_too(store):
    (wait,) = of(Wait, step([running(), waiting()], store, Always(Action.WAIT)))
    assert wait.decision.action is Action.WAIT


@pytest.mark.parametrize(
    "jobs",
    [
        [running()],
        [waiting()],
        [running(), waiting(comment="")],
        [running(), waiting(comment="mirage/1 chain=chain1 seg=2/3 pred=10 mode=train")],
        [running(), waiting(dependency="")],
        [running(), waiting(dependency="afterok:10(unfulfilled)")],
        [running(), waiting(dependency="afterany:10(unfulfilled),afterany:9(unfulfilled)")],
        [running(), waiting(dependency="afterany:99(unfulfilled)")],
        [running(), waiting(reason="JobHeldUser")],
        [running(), waiting(state=JobState.RUNNING, dependency="", start_s=NOW)],
        [running(user="bob"), waiting()],
        [running(state=JobState.COMPLETED), waiting()],
    ],
    ids=[
        "no successor",
        "no predecessor",
        "no tag",
        "half a tag",
        "no dependency",
        "afterok",
        "two dependencies",
        "other predecessor",
        "held",
        "running",
        "stranger's predecessor",
        "predecessor over",
    ],
)
def test_anything_but_a_plain_pair_is_left_alone(store, jobs):
    actions = step(jobs, store)
    assert of(Release, actions) == of(Wait, actions) == []


def test_a_stranger_with_the_same_chain_id_is_another_chain(store):
    actions = step([running(), running(20, "bob"), waiting(21, "bob", 10)], store)
    assert {(c.chain.user, c.chain.chain_id) for c in of(SaveChain, actions)} == {
        ("alice", "chain1"),
        ("bob", "chain1"),
    }
    assert of(Release, actions) == []


def test_an_agent_sees_only_its_own_user(store):
    jobs = [running(), waiting(), running(20, "bob"), waiting(21, "bob", 20)]
    actions = step(jobs, store, only_user="bob")
    assert [release.decision.successor_id for release in of(Release, actions)] == [21]
    assert {chain.chain.user for chain in of(SaveChain, actions)} == {"bob"}


def carry_out(actions, store):
    for action in actions:
        if isinstance(action, SaveChain):
            store.save_chain(action.chain)
        elif isinstance(action, SaveLink):
            store.save_link(action.link)


def test_what_is_known_is_not_written_again(store):
    jobs = [running(), waiting()]
    first = step(jobs, store)
    assert [action.chain.chain_id for action in of(SaveChain, first)] == ["chain1"]
    assert [action.link.segment for action in of(SaveLink, first)] == [1, 2]
    carry_out(first, store)
    second = step(jobs, store)
    assert of(SaveChain, second) == of(SaveLink, second) == of(LookUp, second) == []
    changed = step([running(), waiting(state=JobState.RUNNING, dependency="", start_s=NOW)], store)
    assert [action.link.state for action in of(SaveLink, changed)] == [JobState.RUNNING]


def test_a_job_that_left_the_queue_is_looked_up_and_nothing_is_concluded(store):
    carry_out(step([running(), waiting()], store), store)
    actions = step([], store)
    assert [link.job_id for link in of(LookUp, actions)[0].links] == [10, 11]
    assert of(SaveChain, actions) == of(SaveLink, actions) == []


def test_that_mirage_released_a_link_is_not_forgotten(store):
    carry_out(step([running(), waiting()], store), store)
    store.save_link(replace(store.link_of_job(11), released_s=9000))
    carry_out(
        step([running(), waiting(state=JobState.RUNNING, dependency="", start_s=NOW)], store), store
    )
    assert store.link_of_job(11).released_s == 9000


def test_a_chain_that_turns_out_to_be_alive_is_active_again(store):
    store.save_chain(
        Chain(
            chain_id="chain1",
            user="alice",
            segments=3,
            state=ChainState.DONE,
            reason="it seemed so",
            created_s=1,
        )
    )
    (action,) = of(SaveChain, step([running()], store))
    assert (action.chain.state, action.chain.reason, action.chain.created_s) == (
        ChainState.ACTIVE,
        "",
        1,
    )


def test_a_link_whose_owner_opted_out_is_followed_to_its_end(store):
    carry_out(step([running(), waiting()], store), store)
    opted_out = [running(comment=""), waiting(comment="")]
    assert of(LookUp, step(opted_out, store)) == []
    assert [link.job_id for link in store.open_links()] == [10, 11]


@pytest.mark.parametrize(
    ("dependency", "job_id"),
    [
        ("afterany:10(unfulfilled)", 10),
        ("afterany:10", 10),
        ("", None),
        ("(null)", None),
        ("afterany:10_*(unfulfilled)", None),
        ("afterany:10(unfulfilled)?afterany:11(unfulfilled)", None),
        ("after:10(unfulfilled)", None),
    ],
)
def test_the_awaited_job(dependency, job_id):
    assert awaited(waiting(dependency=dependency)) == job_id


def test_obstacles_are_said_in_words():
    assert "does not know" in obstacle(None, running(), tag(2, 10))
    assert "changed or removed" in obstacle(waiting(comment="x"), running(), tag(2, 10))
    assert obstacle(waiting(), running(), tag(2, 10)) is None


@pytest.mark.parametrize("reason", ["JobHeldUser", "job requeued in held state"])
def test_a_chain_whose_owner_holds_its_next_link_is_paused(store, reason):
    carry_out(step([running(), waiting()], store), store)
    carry_out(step([running(), waiting(reason=reason)], store), store)
    assert [chain.state for chain in store.active_chains()] == [ChainState.PAUSED]
    carry_out(step([waiting(reason=reason)], store), store)
    assert [link.job_id for link in store.open_links()] == [10, 11], "it is followed on"
    assert of(SaveChain, step([waiting(reason=reason)], store)) == []
    carry_out(step([running(), waiting()], store), store)
    assert [chain.state for chain in store.active_chains()] == [ChainState.ACTIVE]


def test_an_operators_hold_is_no_pause(store):
    carry_out(step([running(), waiting(reason="JobHeldAdmin")], store), store)
    assert [chain.state for chain in store.active_chains()] == [ChainState.ACTIVE]


def test_a_chain_is_called_what_its_last_job_is_called(store):
    carry_out(step([replace(running(), name="night"), waiting()], store), store)
    (action,) = of(SaveChain, step([running(), replace(waiting(), name="day")], store))
    assert action.chain.name == "day"


def test_a_chain_has_as_many_links_as_its_last_link_says(store):
    carry_out(step([running(), waiting()], store), store)
    longer = format_tag(tag(2, 10, segments=5))
    (action,) = of(SaveChain, step([running(), waiting(comment=longer)], store))
    assert (action.chain.segments, action.chain.state, action.chain.created_s) == (
        5,
        ChainState.ACTIVE,
        store.active_chains()[0].created_s,
    )


LEAD_S = 300


def with_lead(job, lead_s=LEAD_S):
    return replace(job, comment=f"{job.comment} lead={lead_s}")


def observed(jobs, store):
    policy = Always(Action.WAIT)
    (wait,) = of(Wait, step(jobs, store, policy))
    return wait.decision, policy.given[0]


def test_all_aim_at_the_signal_where_the_chain_has_one(store):
    """Slurm may send it up to 60 s before its time (sbatch(1))."""
    plain, _ = observed([running(), waiting()], store)
    decision, observation = observed([with_lead(running()), with_lead(waiting())], store)
    assert decision.remaining_s == plain.remaining_s - LEAD_S - 60
    assert observation.predecessor.expected_end_s == 8000 + 3600 - LEAD_S - 60
    assert observation.predecessor.time_limit_s == 3600
    assert observation.snapshot.by_id[10] == observation.predecessor
    assert decision.inputs_hash != plain.inputs_hash


def test_a_predecessor_whose_comment_was_replaced_still_leaves_at_the_chains_signal(store):
    decision, _ = observed([running(comment="50 %"), with_lead(waiting())], store)
    assert decision.remaining_s == 8000 + 3600 - LEAD_S - 60 - NOW


def test_a_lead_beyond_the_limit_ends_the_job_at_its_start(store):
    decision, observation = observed(
        [with_lead(running(), 65535), with_lead(waiting(), 65535)], store
    )
    assert decision.remaining_s == 0
    assert observation.predecessor.expected_end_s == 8000
    decision, _ = observed([with_lead(running(time_limit_s=None)), with_lead(waiting())], store)
    assert decision.remaining_s is None


def test_the_chain_tells_what_its_handovers_cost(store):
    plain, observation = observed([running(), waiting()], store)
    assert (observation.handover_s, observation.is_handover_known) == (360, False)  # of 1 h
    _, brief = observed([running(time_limit_s=120), waiting()], store)
    assert brief.handover_s == 12  # no link would be worth ten minutes
    comment = f"{waiting().comment} cost=90"
    decision, observation = observed([running(), waiting(comment=comment)], store)
    assert (observation.handover_s, observation.is_handover_known) == (90, True)
    assert decision.inputs_hash != plain.inputs_hash
    (wait,) = of(Wait, step([running(), waiting(comment=comment)], store, Always(Action.WAIT)))
    assert wait.grounds.handover_s == 90


def test_a_service_without_penalties_tells_its_uptime(store):
    service = replace(tag(2, 10), mode=Mode.SERVICE, penalties=Penalties())

    def asked(its_tag):
        return observed([running(), waiting(comment=format_tag(its_tag))], store)

    plain, observation = asked(service)
    assert observation.uptime == UPTIME
    decision, observation = asked(replace(service, uptime=0.95))
    assert observation.uptime == 0.95
    assert decision.inputs_hash != plain.inputs_hash
    for other in (
        replace(service, penalties=Penalties(4, 1)),
        replace(service, mode=Mode.TRAIN),
    ):
        assert asked(other)[1].uptime is None


def test_a_chains_short_links_are_counted_for_its_policy(store):
    """Two links of 3600 s ended 100 s after their start, each by a successor that had not waited."""
    jobs = [
        running(comment=format_tag(tag(3, 2, segments=9))),
        waiting(comment=format_tag(tag(4, 10, segments=9))),
    ]
    store.save_chain(Chain(chain_id="chain1", user="alice", segments=9))
    for segment, start_s in ((1, 7800), (2, 7900)):
        past = past_link(segment, start_s, start_s + 110)
        store.save_link(replace(past, eligible_s=start_s - 5))
    third = past_link(3, 8000, None)
    store.save_link(replace(third, job_id=10, eligible_s=7995, state=JobState.RUNNING))
    _, observation = observed(jobs, store)
    assert observation.short_handovers == 2
    assert observation.idle_s == 10 + 360, "the end of link 2 came first, and a start takes time"


def past_link(segment, start_s, end_s):
    return Link(
        chain_id="chain1",
        user="alice",
        segment=segment,
        job_id=segment,
        predecessor_id=segment - 1 or None,
        state=JobState.COMPLETED,
        partition="gpu",
        nodes=1,
        time_limit_s=3600,
        submit_s=0,
        start_s=start_s,
        end_s=end_s,
    )


def test_all_aim_at_the_end_that_the_chains_earlier_links_had(store):
    """They left after 2400 s, 20 min before their limit; the running one is 2000 s old."""
    jobs = [
        running(comment=format_tag(tag(3, 2, segments=9))),
        waiting(comment=format_tag(tag(4, 10, segments=9))),
    ]
    plain, _ = observed(jobs, store)
    assert plain.remaining_s == 8000 + 3600 - NOW
    store.save_chain(Chain(chain_id="chain1", user="alice", segments=9))
    for segment, start_s in ((1, 0), (2, 5000)):
        store.save_link(past_link(segment, start_s, start_s + 2400))
    decision, observation = observed(jobs, store)
    assert decision.remaining_s == 8000 + 2400 - NOW
    assert observation.ends == [
        (8000 + 2400 - NOW, pytest.approx(2 / 3)),
        (8000 + 3600 - NOW, pytest.approx(1 / 3)),
    ]
    assert observation.snapshot.by_id[10] == observation.predecessor
    assert decision.inputs_hash != plain.inputs_hash


def test_nobody_sets_the_lead_of_anothers_job(store):
    (action,) = of(SaveLink, step([running(), with_lead(waiting(user="mallory"))], store))[:1]
    assert action.link.lead_s == 0
    seen = with_leads(
        Snapshot(at_s=NOW, jobs=(running(), with_lead(waiting(user="mallory"))), nodes=NODES)
    )
    assert seen.by_id[10].lead_s == 0


def test_policies_see_the_limit_that_a_shortened_link_got_and_what_the_next_one_may_get(store):
    flexible = {"comment": f"{waiting().comment} min=1200"}
    decision, observation = observed(
        [running(time_limit_s=2400, comment=f"{running().comment} min=1200"), waiting(**flexible)],
        store,
    )
    assert decision.remaining_s == 8000 + 2400 - NOW
    assert observation.predecessor.time_min_s == 0
    assert (observation.successor.time_limit_s, observation.successor.time_min_s) == (3600, 1200)


def test_the_store_keeps_the_lead_of_a_link(store):
    saved = of(SaveLink, step([with_lead(running()), with_lead(waiting())], store))
    store.save_chain(Chain(chain_id="chain1", user="alice", segments=3))
    for action in saved:
        store.save_link(action.link)
    assert [link.lead_s for link in store.links("alice", "chain1")] == [LEAD_S, LEAD_S]
    assert store.links("alice", "chain1")[0].expected_end_s == 8000 + 3600 - LEAD_S - 60


def replica(number, start_s, ready_s=8000):
    """The two links of a replica, of which the first runs; its jobs are `number`0 and `number`1."""
    words = {"mode": Mode.SERVICE, "penalties": Penalties(), "service": "llm", "replica": number}
    first = replace(tag(1, chain=f"chain{number}"), **words, ready_s=ready_s)
    second = replace(tag(2, 10 * number, chain=f"chain{number}"), **words, ready_s=0)
    return (
        running(10 * number, start_s=start_s, comment=format_tag(first)),
        waiting(10 * number + 1, predecessor=10 * number, comment=format_tag(second)),
    )


def test_replicas_that_end_together_are_to_hand_over_one_after_the_other(store):
    policy = Always(Action.WAIT)
    jobs = [job for number in (1, 2, 3) for job in replica(number, 8000)]
    step([*jobs, *replica(4, 9800)], store, policy)
    told = {each.predecessor.job_id: each.earlier_s for each in policy.given}
    assert told == {10: 0, 20: 450, 30: 900, 40: 0}, "an eighth of a link of an hour apart"


def test_a_service_of_another_user_or_name_moves_nothing(store):
    policy = Always(Action.WAIT)
    other = [replace(job, user="bob") for job in replica(2, 8000)]
    step([*replica(1, 8000), *other], store, policy)
    assert [each.earlier_s for each in policy.given] == [0, 0]


def test_the_store_keeps_which_replica_a_chain_is(store):
    carry_out(step(list(replica(3, 8000)), store), store)
    chain = store.chain("alice", "chain3")
    assert (chain.service, chain.replica) == ("llm", 3)
