"""Futures: what is learnt of run times and arrivals, and what is drawn from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain import Job, JobState, Snapshot
from mirage.errors import InputError
from mirage.provision.learn.arrivals import DAY_S, Arrivals, is_weekend
from mirage.provision.learn.futures import Futures, train_futures
from mirage.provision.learn.futures import read as read_futures
from mirage.provision.learn.runtimes import JobQuery, fit_runtimes
from mirage.provision.starts.drawn import Aging, DrawnFutures
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import NodeAction, NodeChange, Params, whole_nodes
from slurm_sim.seconds import HOUR_S
from tests.futures_folder import history, write_futures

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
    return cluster, history(cluster)


def test_what_is_learnt_from_a_trace_comes_back_from_its_folder(tmp_path):
    cluster, log = synthetic()
    futures = train_futures(log, cluster, 0, 6 * DAY_S)
    assert futures.arrivals.at_s[-1] < 6 * DAY_S
    assert len(futures.arrivals) > 300
    write_futures(tmp_path / "f", cluster)
    again = read_futures(tmp_path / "f")
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


def test_the_clusters_timetable_is_not_learnt():
    cluster, log = synthetic()
    told = replace(cluster, node_changes=(NodeChange(7 * DAY_S, "n1", NodeAction.DOWN),))
    assert train_futures(log, told, 0, 6 * DAY_S).cluster == cluster


def test_a_job_that_is_held_back_beyond_the_part_makes_no_empty_days():
    cluster, log = synthetic()
    eligible_s = log.column("submit_s").copy()
    eligible_s[100] += 60 * DAY_S
    late = replace(log, columns={**log.columns, "eligible_s": eligible_s})
    assert train_futures(late, cluster, 0, 6 * DAY_S).arrivals.at_s[-1] < 6 * DAY_S


def test_a_part_without_jobs_is_refused():
    cluster, log = synthetic()
    with pytest.raises(InputError, match="no job with a time limit ran"):
        train_futures(log, cluster, 10**9, 10**9 + DAY_S)


@pytest.mark.parametrize("name", ["futures.safetensors", "names.json", "cluster.toml"])
def test_files_that_are_none_are_refused(tmp_path, name):
    cluster, log = synthetic()
    train_futures(log, cluster, 0, 6 * DAY_S).write(tmp_path)
    (tmp_path / name).write_text('{"users": {"a/1": 99999}, "partitions": []}')
    with pytest.raises(InputError, match=r"train (it|the model) again"):
        read_futures(tmp_path)


# ---- what is drawn

RUNS_H = (1, 5)
"""All jobs ask for six hours of one node; they take one or five, as likely."""
LAW = fitted([("bob", 1, 6 * HOUR_S, hours * HOUR_S) for hours in RUNS_H * 45])
FAIR = Params(
    sched_interval_s=60,
    bf_interval_s=30,
    limit_check_s=1,
    priority_weight_fairshare=1000,
    priority_weight_age=700,
    priority_max_age_s=7 * DAY_S,
)


def hourly(days=9):
    """One job each hour, a minute after it, for ever."""
    at_s = np.arange(60, days * DAY_S, HOUR_S, dtype=np.int64)
    equal = np.ones(len(at_s), dtype=np.int64)
    return Arrivals(at_s, equal, 6 * HOUR_S * equal, HOUR_S * equal, -equal, equal, 0 * equal)


def drawn(params=FAIR, seed=0, queued=6):
    """Of two nodes and a queue, 2 hours in."""
    sim = Simulator(whole_nodes(2, params))
    for submit_s in [0] * queued + list(range(60, DAY_S, HOUR_S)):
        sim.submit(JobSpec(1, 6 * HOUR_S, 3 * HOUR_S, user="bob", submit_s=submit_s))
    sim.run_until(2 * HOUR_S)
    snapshot = SimulatedCluster(sim).snapshot()
    return DrawnFutures(Futures(sim.config, LAW, hourly(), ("batch",)), snapshot, 30 * HOUR_S, seed)


def starts_s(futures, number):
    """By job id, in one of them."""
    future = futures.future(number)
    future.run_until(futures.snapshot.at_s + 30 * HOUR_S)
    return {job.job_id: future.job(job.job_id).start_s for job in futures.snapshot.jobs}


def test_under_fair_share_who_comes_later_is_behind_by_the_age_of_those_before():
    futures = drawn()
    snapshot, future, aging = futures.snapshot, futures.future(0), futures.aging()
    queued = {job.job_id: job.priority for job in snapshot.jobs if job.is_queueing}
    assert {future.job(job_id).spec.priority - priority for job_id, priority in queued.items()} == {
        aging.raised
    }
    assert set(aging.fresh) <= {
        priority - aged for priority in queued.values() for aged in range(10)
    }
    first = max(snapshot.by_id) + 1
    future.run_until(snapshot.at_s + 30 * HOUR_S)
    arrived = [future.job(job_id) for job_id in range(first, first + 20)]
    lost = [(job.submit_s - snapshot.at_s) * 700 / (7 * DAY_S) for job in arrived]
    assert lost[-1] > 50
    for job, its in zip(arrived, lost, strict=True):
        assert (
            min(aging.fresh) - 1 <= job.spec.priority - aging.raised + its <= max(aging.fresh) + 1
        )


def test_without_fair_share_the_simulator_gives_priorities():
    futures = drawn(replace(FAIR, priority_weight_fairshare=0))
    assert futures.aging() is None
    first = max(futures.snapshot.by_id) + 1
    future = futures.future(0)
    future.run_until(futures.snapshot.at_s + 2 * HOUR_S)
    assert future.job(first).spec.priority is None


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


def test_outages_to_come_are_not_known():
    """Folders of before have them, too, and the live cluster may be another one by now."""
    futures = drawn()
    cluster = futures.futures.cluster
    told = replace(cluster, node_changes=(NodeChange(3 * HOUR_S, "n2", NodeAction.DOWN),))
    warned = replace(futures, futures=replace(futures.futures, cluster=told))
    assert starts_s(warned, 0) == starts_s(futures, 0)


def test_the_same_queue_seed_and_number_give_the_same_future():
    assert starts_s(drawn(), 0) == starts_s(drawn(), 0)
    assert starts_s(drawn(), 0) != starts_s(drawn(seed=1), 0)
    assert len({tuple(starts_s(drawn(), number).values()) for number in range(4)}) > 1


def test_a_partition_that_the_cluster_lacks_is_refused():
    futures = drawn()
    strange = replace(futures.snapshot.jobs[-1], job_id=99, partition="debug")
    jobs = (*futures.snapshot.jobs, strange)
    with pytest.raises(InputError, match="Job 99 is in partition 'debug'"):
        replace(futures, snapshot=replace(futures.snapshot, jobs=jobs)).future(0)
