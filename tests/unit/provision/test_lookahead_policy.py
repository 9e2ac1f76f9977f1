"""Looking ahead: what is learnt of run times and arrivals, and that the policy finds the best
moment on a queue.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.config import LookaheadConfig, PolicyConfig
from mirage.domain import Action, Job, JobState, Penalties, Snapshot
from mirage.errors import InputError
from mirage.models.folder import write_folder
from mirage.models.recipe import Recipe
from mirage.ports import Advice, BatchPolicy, Observation
from mirage.provision.learn.arrivals import DAY_S, Arrivals, is_weekend
from mirage.provision.learn.futures import Futures, train_lookahead
from mirage.provision.learn.futures import read as read_futures
from mirage.provision.learn.joblog import log_of
from mirage.provision.learn.runtimes import JobQuery, fit_runtimes
from mirage.provision.policies.lookahead import (
    Aging,
    Lookahead,
    SharedFutures,
    release_points,
    starts_in,
    waiting_is_clear,
)
from mirage.provision.policies.registry import make_policy
from mirage.slurm.simulated import SimulatedCluster
from mirage.state.likeness import Waits
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import NodeAction, NodeChange, Params, whole_nodes
from slurm_sim.seconds import HOUR_S
from slurm_sim.workload import generate, load_model

STEP_S = 600


# ---- run times


def ints(*values):
    return np.array(values, dtype=np.int64)


def fitted(jobs, gap_s=10 * HOUR_S):
    """Of (user, nodes, limit_s, runtime_s), submitted so far apart."""
    users, nodes, limits_s, runtimes_s = zip(*jobs, strict=True)
    return fit_runtimes(
        list(users),
        ints(*nodes),
        ints(*limits_s),
        ints(*runtimes_s),
        np.arange(len(jobs), dtype=np.int64) * gap_s,
    )


def draw(runtimes, user, limit_s, elapsed_s=0, nodes=1, times=2000):
    asked = JobQuery([user], ints(nodes), ints(limit_s), ints(elapsed_s))
    return runtimes.drawn(asked, np.random.default_rng(0), times)[:, 0]


HALVES = (
    [("ann", 1, 7200, 3600)] * 40
    + [("bob", 1, 7200, 720 * k) for k in range(1, 10)]
    + [("bob", 1, 7200, 7200)]
)


def test_run_times_are_those_of_the_user_mixed_with_everyones():
    runtimes = fitted(HALVES)
    ann, bob, new = (draw(runtimes, user, 7200) for user in ("ann", "bob", "eve"))
    assert np.mean(ann == 3600) == pytest.approx(0.8 + 0.2 * 41 / 50, abs=0.03)
    assert np.mean(bob == 3600) == pytest.approx(0.5 * 0.1 + 0.5 * 41 / 50, abs=0.03)
    assert np.mean(new == 3600) == pytest.approx(41 / 50, abs=0.03)
    assert np.mean(new == -1) == pytest.approx(1 / 50, abs=0.01)


def test_other_limits_scale_and_unknown_ones_last_until_the_limit():
    runtimes = fitted(HALVES)
    assert set(draw(runtimes, "eve", 6400)) <= {*(640 * k for k in range(1, 10)), 3200, -1}
    assert set(draw(runtimes, "eve", 40 * HOUR_S)) == {-1}
    assert set(draw(runtimes, "ann", 7200, nodes=4)) == {3600}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(1, 3), st.integers(60, 9000), st.integers(1, 9000)
        ),
        min_size=1,
    ),
    st.integers(60, 9000),
    st.data(),
)
@settings(max_examples=50, deadline=None)
def test_a_job_that_runs_is_drawn_among_those_that_ran_longer(jobs, limit_s, data):
    elapsed_s = data.draw(st.integers(0, limit_s + 30))
    drawn = draw(fitted(jobs), "a", limit_s, elapsed_s, times=30)
    assert ((drawn == -1) | ((drawn > elapsed_s) & (drawn < limit_s))).all()


def test_what_is_left_of_a_run_time_is_the_samples():
    """Of 0.1, 0.2, ... 1.0 times the limit, each as likely, half are left after half the limit."""
    runtimes = fitted([("eve", 1, 1000, 100 * k) for k in range(1, 11)])
    drawn = draw(runtimes, "new", 1000, 550, times=5000)
    assert {600, 700, 800, 900, -1} == set(drawn.tolist())
    assert np.mean(drawn == 600) == pytest.approx(0.2, abs=0.03)


def test_equal_jobs_of_a_user_end_alike_if_they_did():
    generator = np.random.default_rng(5)
    batches = [
        ("u", 1, 7200, int(seconds))
        for seconds in generator.integers(1, 7200, 200)
        for _ in range(5)
    ]
    single = [("u", 1, 7200, int(seconds)) for seconds in generator.integers(1, 7200, 1000)]
    assert fitted(batches, gap_s=60).alike > 0.8
    assert fitted(single, gap_s=60).alike < 0.4
    assert fitted(batches).alike == 0
    asked = JobQuery(["u", "u", "v"], ints(1, 1, 1), ints(7200, 7200, 7200), ints(0, 0, 0))
    together = replace(fitted(batches, gap_s=60), alike=1.0).drawn(asked, generator, 500)
    assert np.mean(together[:, 0] == together[:, 1]) > 0.9
    assert np.mean(together[:, 0] == together[:, 2]) < 0.1


# ---- arrivals

MONDAY_S = 4 * DAY_S


def week(weeks=3):
    """Each day's hour h has h jobs; jobs of Saturdays and Sundays ask for two nodes."""
    at_s = np.array(
        [
            MONDAY_S + day * DAY_S + hour * HOUR_S + i
            for day in range(7 * weeks)
            for hour in range(24)
            for i in range(hour)
        ],
        dtype=np.int64,
    )
    equal = np.ones(len(at_s), dtype=np.int64)
    return Arrivals(
        at_s, np.where(is_weekend(at_s), 2, 1), 7200 * equal, 3600 * equal, -equal, equal, 0 * equal
    )


def test_weekends_are_saturday_and_sunday():
    days = MONDAY_S + DAY_S * np.arange(9, dtype=np.int64)
    assert is_weekend(days).tolist() == [False] * 5 + [True] * 2 + [False] * 2


@given(st.integers(0, 10**9), st.integers(0, 4 * DAY_S), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_days_are_put_one_after_the_other_at_their_own_hours(now_s, horizon_s, seed):
    arrivals = week()
    rows, times_s = arrivals.drawn(now_s, horizon_s, np.random.default_rng(seed))
    assert ((times_s > now_s) & (times_s <= now_s + horizon_s)).all()
    assert (np.diff(times_s) >= 0).all()
    assert np.array_equal(times_s % DAY_S, arrivals.at_s[rows] % DAY_S)
    again = arrivals.drawn(now_s, horizon_s, np.random.default_rng(seed))
    assert np.array_equal(again[0], rows)


def test_a_working_day_is_one_of_a_working_day():
    friday_s = MONDAY_S + 4 * DAY_S + 3 * 7 * DAY_S
    rows, times_s = week().drawn(friday_s, 3 * DAY_S, np.random.default_rng(0))
    assert np.array_equal(week().nodes[rows] == 2, is_weekend(times_s - 1))
    assert len(rows) == 3 * 276


def test_a_short_history_is_refused():
    short = Arrivals(*(ints(0, DAY_S) for _ in range(7)))
    with pytest.raises(InputError, match="shorter than two days"):
        short.drawn(0, DAY_S, np.random.default_rng(0))


# ---- training and files


def synthetic():
    cluster = whole_nodes(76)
    trace = generate(load_model("ls6_a100"), 1, 8 * DAY_S)
    jobs = trace.jobs.assign(partition="batch")
    return cluster, log_of(replace(trace, jobs=jobs, _cache={}), cluster)


def test_what_is_learnt_from_a_trace_comes_back_from_its_folder(tmp_path):
    cluster, log = synthetic()
    futures = train_lookahead(log, cluster, 0, 6 * DAY_S)
    assert futures.arrivals.at_s[-1] < 6 * DAY_S
    assert len(futures.arrivals) > 300
    recipe = Recipe(system="provision", method="lookahead", seed=0)
    write_folder(tmp_path / "la", futures, recipe, "")
    again = read_futures(tmp_path / "la")
    assert again.cluster == cluster
    assert again.runtimes.users == futures.runtimes.users
    assert again.runtimes.alike == futures.runtimes.alike
    asked = JobQuery(["s0001", "s0002"], ints(1, 2), ints(HOUR_S, 9000), ints(0, 60))
    for one, other in ((futures, again),):
        drawn = [each.runtimes.drawn(asked, np.random.default_rng(1), 50) for each in (one, other)]
        assert np.array_equal(*drawn)
        rows = [
            each.arrivals.drawn(10**9, 2 * DAY_S, np.random.default_rng(1))[0]
            for each in (one, other)
        ]
        assert np.array_equal(*rows)
    assert (
        make_policy(PolicyConfig(name="lookahead", model=str(tmp_path / "la"))).name == "lookahead"
    )


def test_the_clusters_timetable_is_not_learnt():
    cluster, log = synthetic()
    told = replace(cluster, node_changes=(NodeChange(7 * DAY_S, "n1", NodeAction.DOWN),))
    assert train_lookahead(log, told, 0, 6 * DAY_S).cluster == cluster


def test_a_job_that_is_held_back_beyond_the_part_makes_no_empty_days():
    cluster, log = synthetic()
    eligible_s = log.column("submit_s").copy()
    eligible_s[100] += 60 * DAY_S
    late = replace(log, columns={**log.columns, "eligible_s": eligible_s})
    assert train_lookahead(late, cluster, 0, 6 * DAY_S).arrivals.at_s[-1] < 6 * DAY_S


def test_a_part_without_jobs_is_refused():
    cluster, log = synthetic()
    with pytest.raises(InputError, match="no job with a time limit ran"):
        train_lookahead(log, cluster, 10**9, 10**9 + DAY_S)


@pytest.mark.parametrize("name", ["futures.safetensors", "names.json", "cluster.toml"])
def test_files_that_are_none_are_refused(tmp_path, name):
    cluster, log = synthetic()
    train_lookahead(log, cluster, 0, 6 * DAY_S).write(tmp_path)
    (tmp_path / name).write_text('{"users": {"a/1": 99999}, "partitions": []}')
    with pytest.raises(InputError, match=r"train (it|the model) again"):
        read_futures(tmp_path)


# ---- the policy

LIMIT_S = 8 * HOUR_S
EACH_MINUTE = Params(sched_interval_s=60, bf_interval_s=30, limit_check_s=1)
RUNS_S = {"ann": (3 * HOUR_S,), "bob": (1 * HOUR_S, 5 * HOUR_S)}
"""All jobs ask for six hours of one node. Ann's take three, every time; Bob's one or five, as
likely.
"""
LAWS = {
    user: fitted([(user, 1, 6 * HOUR_S, run_s) for run_s in runs_s * 45])
    for user, runs_s in RUNS_S.items()
}


def stream(every_s, run_s, days=9):
    """One job each so often, a minute after the hour, for ever."""
    at_s = np.arange(60, days * DAY_S, every_s, dtype=np.int64)
    equal = np.ones(len(at_s), dtype=np.int64)
    return Arrivals(at_s, equal, 6 * HOUR_S * equal, run_s * equal, -equal, equal, 0 * equal)


class Stuck:
    name = "stuck"

    def decide(self, observation):
        return Advice(action=Action.WAIT, reason="no look-ahead")


def small_queue(user="ann", queued=2, every_s=2 * HOUR_S, run_s=3 * HOUR_S, params=EACH_MINUTE):
    """Two nodes, 2 hours in: the predecessor is on one until 8 h, on the other jobs of one user
    come and go.
    """
    sim = Simulator(whole_nodes(2, params))
    ids = [sim.submit(JobSpec(1, LIMIT_S, LIMIT_S, user="you"))]
    ids.append(
        sim.submit(JobSpec(1, LIMIT_S, LIMIT_S, user="you", dependency=f"afterany:{ids[0]}"))
    )
    for submit_s in [0] * queued + stream(every_s, run_s, days=3).at_s.tolist():
        sim.submit(JobSpec(1, 6 * HOUR_S, run_s, user=user, submit_s=submit_s))
    sim.run_until(2 * HOUR_S)
    return sim, *ids


def observe(sim, predecessor, successor, penalties=None):
    snapshot = SimulatedCluster(sim).snapshot()
    return Observation(
        now_s=sim.now_s,
        step_s=STEP_S,
        predecessor=snapshot.by_id[predecessor],
        successor=snapshot.by_id[successor],
        penalties=penalties or Penalties(),
        waits=Waits([]),
        snapshot=snapshot,
    )


def policy(sim, user="ann", every_s=2 * HOUR_S, run_s=3 * HOUR_S, **config):
    futures = Futures(sim.config, LAWS[user], stream(every_s, run_s), ("batch",))
    return Lookahead(futures, LookaheadConfig(**config), Stuck())


def lived(sim, predecessor, successor, decides, penalties=None):
    """The outcome of polling until the release, and of a release at each poll: start - end of the
    predecessor.
    """
    outcomes, chosen = [], None
    while sim.job(predecessor).state.value == "RUNNING":
        fork = sim.fork()
        fork.drop_dependency(successor)
        outcomes.append((fork.run_until_start(successor, 10**6) or 0) - LIMIT_S)
        if (
            chosen is None
            and decides.decide(observe(sim, predecessor, successor, penalties)).action
            is Action.RELEASE
        ):
            chosen = len(outcomes) - 1
        sim.run_until(sim.now_s + STEP_S)
    outcomes.append((sim.run_until_start(successor, 10**6) or 0) - LIMIT_S)
    return outcomes, len(outcomes) - 1 if chosen is None else chosen


QUEUES = {"quiet": (0, 12), "some": (1, 4), "busy": (2, 2), "busier": (2, 1), "full": (4, 1)}


@pytest.mark.parametrize("queue", list(QUEUES))
def test_with_known_futures_it_finds_the_best_moment(queue):
    """Limits alone would say that each job takes six hours, and the snapshot alone that nobody will
    come.
    """
    queued, every_h = QUEUES[queue]
    sim, *pair = small_queue(queued=queued, every_s=every_h * HOUR_S)
    outcomes, chosen = lived(sim, *pair, policy(sim, every_s=every_h * HOUR_S, futures=2))
    assert abs(outcomes[chosen]) <= min(map(abs, outcomes)) + 60


FAIR = replace(
    EACH_MINUTE,
    priority_weight_fairshare=1000,
    priority_weight_age=700,
    priority_max_age_s=7 * DAY_S,
)


def test_under_fair_share_who_comes_later_is_behind_by_the_age_of_those_before():
    sim, *pair = small_queue(queued=6, every_s=HOUR_S, params=FAIR)
    seen = observe(sim, *pair)
    looks = policy(sim, every_s=HOUR_S)
    shared = SharedFutures(looks.futures, looks.config, [seen])
    future, aging = shared.future(seen.snapshot, 0), shared.aging(seen.snapshot)
    queued = {job.job_id: job.priority for job in seen.snapshot.jobs if job.is_queueing}
    assert {future.job(job_id).spec.priority - priority for job_id, priority in queued.items()} == {
        aging.raised
    }
    assert set(aging.fresh) <= {
        priority - aged for priority in queued.values() for aged in range(10)
    }
    first = max(seen.snapshot.by_id) + 1
    future.run_until(sim.now_s + 30 * HOUR_S)
    arrived = [future.job(job_id) for job_id in range(first, first + 20)]
    lost = [(job.submit_s - sim.now_s) * 700 / (7 * DAY_S) for job in arrived]
    assert lost[-1] > 50
    for job, its in zip(arrived, lost, strict=True):
        assert (
            min(aging.fresh) - 1 <= job.spec.priority - aging.raised + its <= max(aging.fresh) + 1
        )


def test_running_jobs_tell_of_priorities_as_they_were_at_their_start():
    def job(job_id, state, **more):
        return Job(
            job_id=job_id,
            user="alice",
            partition="batch",
            state=state,
            nodes=1,
            submit_s=0,
            time_limit_s=3600,
            **more,
        )

    jobs = (
        job(1, JobState.RUNNING, eligible_s=0, start_s=2 * DAY_S, priority=5200),
        job(
            2, JobState.PENDING, eligible_s=3 * DAY_S, start_s=5 * DAY_S, priority=3100
        ),  # slurmctld's expected start
        job(3, JobState.PENDING, priority=0),  # held
        job(4, JobState.COMPLETED, eligible_s=0, start_s=10, end_s=20, priority=9000),
    )
    aging = Aging.of(Snapshot(at_s=4 * DAY_S, jobs=jobs, nodes=()), FAIR, DAY_S)  # 100 a day
    assert aging.fresh.tolist() == [5000, 3000]


def test_under_fair_share_an_earlier_release_is_an_earlier_start_where_many_come():
    age_decides = replace(FAIR, priority_weight_fairshare=1, priority_weight_age=700_000)
    sim, *pair = small_queue(queued=4, every_s=HOUR_S, params=age_decides)
    seen = observe(sim, *pair)
    looks = policy(sim, every_s=HOUR_S)
    shared, points_s = SharedFutures(looks.futures, looks.config, [seen]), release_points(seen)
    future = shared.future(seen.snapshot, 0)
    starts_s = starts_in(future, pair[1], points_s, shared.aging(seen.snapshot))
    assert (np.diff(starts_s) >= 0).all()
    assert starts_s[-1] > starts_s[0] + HOUR_S
    outcomes, chosen = lived(sim, *pair, looks)
    assert abs(outcomes[chosen]) <= min(map(abs, outcomes)) + HOUR_S


def test_outages_to_come_are_not_known():
    """Folders of before have them, too, and the live cluster may be another one by now."""
    sim, *pair = small_queue()
    looks, seen = policy(sim), observe(sim, *pair)
    told = replace(sim.config, node_changes=(NodeChange(3 * HOUR_S, "n2", NodeAction.DOWN),))
    warned = replace(looks, futures=replace(looks.futures, cluster=told))
    assert warned.decide(seen) == looks.decide(seen)


def test_taste_decides_how_early():
    """Nobody knows how long Bob's jobs take: whoever minds interruption more goes before more of
    them.
    """
    sim, *pair = small_queue("bob", 1, 3 * HOUR_S)
    looks = policy(sim, "bob", 3 * HOUR_S, futures=16)
    chosen = [
        lived(sim.fork(), *pair, looks, Penalties(*taste))[1] for taste in ((9, 1), (1, 1), (1, 9))
    ]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[2]


def test_the_same_cluster_and_seed_give_the_same_answer():
    sim, *pair = small_queue("bob", 3)
    first, again, other = (
        policy(sim, "bob", futures=6, seed=seed).decide(observe(sim, *pair)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_time_is_bounded_and_told():
    sim, *pair = small_queue("bob", 3)
    ticks = iter(range(10_000))
    slow = replace(policy(sim, "bob", futures=32, seconds=4), clock=lambda: float(next(ticks)))
    assert "in only 4 futures, for lack of time," in slow.decide(observe(sim, *pair)).reason
    stopped = replace(slow, clock=lambda: float(10 * next(ticks)))
    assert "in only 1 futures, for lack of time," in stopped.decide(observe(sim, *pair)).reason


def test_futures_are_added_until_it_is_clear_that_waiting_is_right():
    """Nobody comes for hours, so a few futures say so; near the end all are asked."""
    sim, *pair = small_queue(queued=0, every_s=12 * HOUR_S)
    looks = policy(sim, every_s=12 * HOUR_S, futures=20)
    assert looks.decide(observe(sim, *pair)).reason.startswith("in 8 futures ")
    sim.run_until(LIMIT_S - HOUR_S)
    assert looks.decide(observe(sim, *pair)).reason.startswith("in 20 futures ")


@pytest.mark.parametrize(
    ("count", "gains", "clear"),
    [
        (40, [-2, -2], True),
        (40, [2, 2], False),
        (40, [-2, 2], True),
        (40, [0, 0], False),
        (5, [-99, -99], False),
    ],
)
def test_waiting_is_clear_if_a_later_release_is_cheaper_beyond_chance(count, gains, clear):
    costs = np.random.default_rng(0).normal(0, 1, (count, 3))
    assert waiting_is_clear(np.add(costs, [0, *gains])) is clear
    assert not waiting_is_clear(np.zeros((count, 3)))
    assert not waiting_is_clear(np.zeros((count, 1)))


def test_pairs_of_a_cycle_share_the_futures_and_their_answers_are_as_one_by_one():
    sim, predecessor, successor = small_queue("bob", 2)
    looks = policy(sim, "bob", futures=4)
    assert isinstance(looks, BatchPolicy)
    seen = observe(sim, predecessor, successor)
    pending = replace(
        seen, predecessor=replace(seen.predecessor, state=JobState.PENDING, start_s=None)
    )
    together = looks.decide_all([seen, pending, replace(seen, penalties=Penalties(9, 1))])
    assert together[0] == looks.decide(seen)
    assert "has not started yet" in together[1].reason
    assert together[2] == looks.decide(replace(seen, penalties=Penalties(9, 1)))


def test_without_a_future_the_fallback_decides_and_says_why():
    sim, *pair = small_queue()
    looks, seen = policy(sim, futures=2), observe(sim, *pair)
    assert looks.decide(replace(seen, snapshot=None)).reason.startswith(
        "[no-futures: there is no snapshot"
    )
    strange = replace(
        seen.snapshot,
        jobs=(*seen.snapshot.jobs, replace(seen.successor, job_id=99, partition="debug")),
    )
    reason = looks.decide(replace(seen, snapshot=strange)).reason
    assert reason.startswith("[no-futures: Job 99 is in partition 'debug'")
    assert reason.endswith("] no look-ahead")


def test_release_points_begin_now_and_end_with_the_predecessor():
    sim, *pair = small_queue()
    seen = observe(sim, *pair)
    points = release_points(seen) - seen.now_s
    assert points[:6].tolist() == [0, 600, 1200, 1800, 2400, 3600]
    assert points[-1] == seen.remaining_s
    assert seen.remaining_s == pytest.approx(6 * HOUR_S, abs=60)
    assert (np.diff(points) > 0).all()
