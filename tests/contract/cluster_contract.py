"""What every adapter of the Cluster port does. The test files beside this one run it on each of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mirage.domain import Job, JobState
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused
from mirage.ports import Cluster
from tests.contract.site import Site, ids

UNKNOWN_JOB = 99_999_999
DAY = 86_400


class ClusterContract:
    """Subclasses provide the fixture `site`: an idle cluster."""

    def test_it_is_a_cluster(self, site: Site) -> None:
        assert isinstance(site.cluster(site.alice), Cluster)

    # --- looking

    def test_the_nodes_are_seen(self, site: Site) -> None:
        nodes = site.cluster(site.alice).snapshot().nodes
        assert len(nodes) == site.nodes
        assert all(node.up and node.idle and node.partitions for node in nodes)

    def test_a_submitted_job_is_seen_by_everyone(self, site: Site) -> None:
        job_id = site.submit("--nodes=2", "--time=30")
        for user in (site.alice, site.bob, site.operator):
            snapshot = site.cluster(user).snapshot()
            job = snapshot.by_id[job_id]
            assert (job.user, job.nodes, job.time_limit_s) == (site.alice, 2, 1800)
            assert job.state in (JobState.PENDING, JobState.RUNNING)
            assert abs(snapshot.at_s - job.submit_s) < 60
            assert job.partition in snapshot.nodes[0].partitions

    def test_a_running_job(self, site: Site) -> None:
        job = site.reaches(site.submit("--nodes=2"), JobState.RUNNING)
        assert job.eligible_s is not None
        assert job.start_s is not None
        assert job.submit_s <= job.eligible_s <= job.start_s
        assert job.end_s is None
        snapshot = site.cluster(site.alice).snapshot()
        assert snapshot.by_id[job.job_id] == site.in_queue(job)
        assert sum(node.up and not node.idle for node in snapshot.nodes) == 2

    def test_a_job_that_waits_for_nodes(self, site: Site) -> None:
        site.fill()
        job_id = site.submit("--nodes=1")
        site.pause()
        job = site.cluster(site.alice).snapshot().by_id[job_id]
        assert job.is_queueing
        assert job.eligible_s is not None
        assert (job.start_s, job.end_s, job.dependency) == (None, None, "")

    def test_a_job_that_waits_for_another(self, site: Site) -> None:
        first = site.submit()
        job = site.job(site.submit(f"--dependency=afterany:{first}"))
        assert job.state is JobState.PENDING
        assert job.reason == "Dependency"
        assert not job.is_queueing
        assert f"afterany:{first}" in job.dependency
        assert (job.eligible_s, job.start_s) == (None, None)

    @pytest.mark.parametrize(
        "comment", ["mirage chain=a", "a|b,c 'd' \"e\" é", "one\n2|two|PENDING\n", "%s (x) $HOME"]
    )
    def test_comments_come_back_as_they_are(self, site: Site, comment: str) -> None:
        job_id = site.submit(f"--comment={comment}")
        snapshot = site.cluster(site.bob).snapshot()
        assert ids(snapshot.jobs) == {job_id}
        assert snapshot.by_id[job_id].comment == comment

    def test_the_queue_is_empty_when_nobody_wants_anything(self, site: Site) -> None:
        assert site.cluster(site.alice).snapshot().jobs == ()

    def test_settings(self, site: Site) -> None:
        settings = site.cluster(site.alice).settings()
        assert settings.version
        assert settings.cluster
        assert settings.accrue_always is False

    def test_the_queue_of_a_user_has_no_other_jobs(self, site: Site) -> None:
        mine, other = site.submit("--nodes=1"), site.submit("--nodes=1", user=site.bob)
        cluster = site.cluster(site.alice)
        assert ids(cluster.queue_of(site.alice).jobs) == {mine}
        assert ids(cluster.queue_of(site.bob).jobs) == {other}
        assert cluster.queue_of(site.operator).jobs == ()

    # --- jobs by id

    def test_an_ended_job_is_still_known_but_no_longer_in_the_queue(self, site: Site) -> None:
        job = site.reaches(site.submit(run_s=1), JobState.COMPLETED)
        assert job.start_s is not None
        assert job.end_s is not None
        assert job.start_s <= job.end_s
        assert job.exit_code == 0
        assert job.state.is_over
        assert site.cluster(site.alice).snapshot().jobs == ()

    def test_a_failed_job_has_its_exit_code(self, site: Site) -> None:
        job = site.reaches(site.submit(run_s=1, exit_code=3), JobState.FAILED)
        assert job.exit_code == 3

    def test_unknown_jobs_are_left_out(self, site: Site) -> None:
        job_id = site.submit()
        cluster = site.cluster(site.alice)
        assert set(cluster.jobs([job_id, UNKNOWN_JOB])) == {job_id}
        assert cluster.jobs([UNKNOWN_JOB]) == {}
        assert cluster.jobs([UNKNOWN_JOB, UNKNOWN_JOB + 1]) == {}
        assert cluster.jobs([]) == {}

    # --- release

    def test_a_released_job_competes(self, site: Site) -> None:
        first = site.fill()
        job_id = site.submit(f"--dependency=afterany:{first}", f"--nodes={site.nodes}")
        site.cluster(site.alice).release(job_id)
        site.until(lambda: site.job(job_id).is_queueing, lambda: f"{site.job(job_id)} to compete")
        job = site.job(job_id)
        assert job.dependency == ""
        assert job.eligible_s is not None
        site.cluster(site.bob).cancel([first])
        started = site.reaches(job_id, JobState.RUNNING)
        assert started.eligible_s == job.eligible_s

    def test_release_is_idempotent(self, site: Site) -> None:
        first = site.submit()
        job_id = site.submit(f"--dependency=afterany:{first}")
        cluster = site.cluster(site.alice)
        cluster.release(job_id)
        cluster.release(job_id)
        site.reaches(job_id, JobState.RUNNING)
        cluster.release(job_id)

    def test_others_may_not_release_but_the_operator_may(self, site: Site) -> None:
        job_id = site.submit(f"--dependency=afterany:{site.submit()}")
        with pytest.raises(Refused, match="Invalid user id"):
            site.cluster(site.bob).release(job_id)
        assert site.job(job_id).reason == "Dependency"
        site.cluster(site.operator).release(job_id)
        assert site.job(job_id).dependency == ""

    def test_what_can_not_be_released_any_more_is_refused(self, site: Site) -> None:
        over = site.submit()
        site.cluster(site.alice).cancel([over])
        site.reaches(over, JobState.CANCELLED)
        for job_id in (over, UNKNOWN_JOB):
            with pytest.raises(Refused, match=f"{job_id}"):
                site.cluster(site.alice).release(job_id)

    # --- cancel

    def test_cancelling_a_pending_and_a_running_job(self, site: Site) -> None:
        running = site.fill()
        pending = site.submit(user=site.bob)
        site.cluster(site.bob).cancel([running, pending])
        ended = site.reaches(running, JobState.CANCELLED)
        never = site.reaches(pending, JobState.CANCELLED)
        assert ended.start_s is not None
        assert ended.end_s is not None
        assert never.start_s is None
        assert never.end_s is not None

    def test_cancelling_what_is_over_or_unknown_is_no_error(self, site: Site) -> None:
        job_id = site.submit()
        cluster = site.cluster(site.alice)
        cluster.cancel([job_id])
        site.reaches(job_id, JobState.CANCELLED)
        cluster.cancel([job_id, UNKNOWN_JOB])
        cluster.cancel([])

    def test_nobody_cancels_the_job_of_another(self, site: Site) -> None:
        job_id = site.submit()
        with pytest.raises(Refused, match="denied"):
            site.cluster(site.bob).cancel([job_id])
        assert not site.job(job_id).state.is_over

    def test_a_denied_job_does_not_save_the_others(self, site: Site) -> None:
        mine, others = site.submit(), site.submit(user=site.bob)
        with pytest.raises(Refused, match=f"{others}"):
            site.cluster(site.alice).cancel([mine, others])
        site.reaches(mine, JobState.CANCELLED)
        assert not site.job(others).state.is_over

    # --- the fallback that Slurm itself holds

    def test_a_dependent_job_becomes_eligible_as_its_predecessor_ends(self, site: Site) -> None:
        first = site.submit(run_s=2)
        job = site.reaches(site.submit(f"--dependency=afterany:{first}"), JobState.RUNNING)
        ended = site.job(first).end_s
        assert job.eligible_s is not None
        assert ended is not None
        assert ended <= job.eligible_s <= ended + 60  # a busy Slurm looks late

    # --- submitting

    def test_a_refused_submission_has_slurms_words(self, site: Site) -> None:
        with pytest.raises(Refused, match=r"[Ii]nvalid partition"):
            site.submit("--partition=nowhere")
        assert site.cluster(site.alice).snapshot().jobs == ()

    def test_a_missing_script_is_refused(self, site: Site) -> None:
        with pytest.raises(Refused, match="/nonexistent"):
            site.cluster(site.alice).submit([], "/nonexistent")

    # --- accounting

    def test_accounting_has_what_was_pending_or_running_in_the_window(self, site: Site) -> None:
        cluster = site.cluster(site.bob)
        over = site.reaches(site.submit("--nodes=2", run_s=1), JobState.COMPLETED)
        running = site.fill()
        waiting = site.submit("--nodes=1")
        assert over.end_s
        until_s = cluster.snapshot().at_s + 60
        site.until(
            lambda: (
                {over.job_id, running, waiting} <= ids(cluster.accounting(over.submit_s, until_s))
            ),
            lambda: f"records of {over.job_id}, {running}, {waiting}",
        )
        jobs = {job.job_id: job for job in cluster.accounting(over.submit_s, until_s)}
        record = jobs[over.job_id]
        assert (record.user, record.state, record.nodes) == (site.alice, JobState.COMPLETED, 2)
        assert (record.start_s, record.end_s) == (over.start_s, over.end_s)
        assert (record.eligible_s, record.time_limit_s) == (over.eligible_s, over.time_limit_s)
        assert len(record.node_names) == 2
        assert jobs[running].end_s is None
        assert jobs[waiting].start_s is None
        assert over.job_id not in ids(cluster.accounting(over.end_s + 1, until_s))
        assert not {over.job_id, running} & ids(
            cluster.accounting(over.submit_s - DAY, over.submit_s - 1)
        )

    def test_accounting_of_some_jobs(self, site: Site) -> None:
        cluster = site.cluster(site.alice)
        job = site.reaches(site.submit(run_s=1, exit_code=2), JobState.FAILED)
        other = site.submit()
        window = (job.submit_s, job.submit_s + DAY)
        site.until(
            lambda: any(record.end_s for record in cluster.accounting(*window, [job.job_id])),
            lambda: f"the record of {job.job_id}",
        )
        (record,) = cluster.accounting(*window, [job.job_id, UNKNOWN_JOB])
        assert (record.job_id, record.exit_code) == (job.job_id, site.recorded_exit_code(2))
        assert other != record.job_id
        assert cluster.accounting(*window, []) == []

    def test_accounting_has_jobs_that_are_kept_back_only_by_id(self, site: Site) -> None:
        cluster = site.cluster(site.alice)
        first = site.reaches(site.submit(), JobState.RUNNING)
        kept_back = site.submit(f"--dependency=afterany:{first.job_id}")
        window = (first.submit_s, first.submit_s + DAY)
        both = [first.job_id, kept_back]
        site.until(
            lambda: ids(cluster.accounting(*window, both)) == set(both),
            lambda: f"the records of {both}",
        )
        site.until(
            lambda: first.job_id in ids(cluster.accounting(*window)),
            lambda: f"the record of {first.job_id}",
        )
        assert kept_back not in ids(cluster.accounting(*window))

    def test_what_users_submitted_in_the_window_is_known_by_its_tag(self, site: Site) -> None:
        cluster = site.cluster(site.operator)
        tag = "mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=0.5"
        job = site.reaches(site.submit(f"--comment={tag}", run_s=1), JobState.COMPLETED)
        window = (job.submit_s, job.submit_s + DAY)
        site.submit(user=site.bob)

        def told() -> list[Job]:
            return [
                record
                for record in cluster.submissions(*window, [site.alice])
                if record.job_id == job.job_id
            ]

        site.until(
            lambda: [record.state for record in told()] == [JobState.COMPLETED],
            lambda: (
                f"the record of {job.job_id}; there is {cluster.submissions(*window, [site.alice])}"
            ),
            pauses=1000,  # slurmdbd may hear of it late
        )
        (record,) = told()
        assert (record.comment, record.start_s, record.end_s) == (tag, job.start_s, job.end_s)
        assert {record.user for record in cluster.submissions(*window, [site.alice])} == {
            site.alice
        }
        assert cluster.submissions(*window, []) == []

    def test_no_node_was_down_a_year_ago(self, site: Site) -> None:
        cluster = site.cluster(site.alice)
        now_s = cluster.snapshot().at_s
        assert cluster.node_events(now_s - 366 * DAY, now_s - 365 * DAY) == []

    # --- down

    def test_a_cluster_that_does_not_answer_is_unavailable(self, site: Site) -> None:
        cluster, script = site.down(), site.script(1, 0)
        calls: list[Callable[[], object]] = [
            cluster.snapshot,
            cluster.settings,
            lambda: cluster.jobs([1, 2]),
            lambda: cluster.release(1),
            lambda: cluster.cancel([1]),
            lambda: cluster.submit([], script),
        ]
        accounting: list[Callable[[], object]] = [
            lambda: cluster.accounting(DAY, 2 * DAY),
            lambda: cluster.accounting(DAY, 2 * DAY, [1]),
            lambda: cluster.submissions(DAY, 2 * DAY, ["alice"]),
            lambda: cluster.node_events(DAY, 2 * DAY),
        ]
        with ThreadPoolExecutor(
            len(calls + accounting)
        ) as pool:  # a real Slurm takes 9 s to give up
            errors = list(pool.map(_error, calls + accounting))
        assert [type(error) for error in errors[: len(calls)]] == [ClusterUnavailable] * len(calls)
        assert [type(error) for error in errors[len(calls) :]] == [AccountingUnavailable] * len(
            accounting
        )


def _error(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        return error
    return None
