"""What every adapter of the port JobMover does."""

from __future__ import annotations

from typing import cast

import pytest

from mirage.domain import Job, JobState
from mirage.errors import ClusterUnavailable, Refused
from mirage.ports import Cluster, JobMover
from tests.contract.cluster_contract import UNKNOWN_JOB
from tests.contract.site import Site


def mover(cluster: Cluster) -> JobMover:
    assert isinstance(cluster, JobMover)
    return cast(JobMover, cluster)


class MoverContract:
    """Subclasses provide the fixture `site`: an idle cluster."""

    def test_a_requeued_job_starts_again_on_the_nodes_that_it_is_given(self, site: Site) -> None:
        job = site.reaches(site.submit("--requeue"), JobState.RUNNING)
        (before,) = job.node_names
        other = next(
            node.name
            for node in reversed(site.cluster(site.alice).snapshot().nodes)
            if node.name != before
        )
        operator = mover(site.cluster(site.operator))
        operator.requeue(job.job_id)
        site.reaches(job.job_id, JobState.PENDING)
        operator.require_nodes(job.job_id, [before])
        operator.require_nodes(job.job_id, [other])
        operator.require_nodes(job.job_id, [other])
        again = site.reaches(job.job_id, JobState.RUNNING)
        assert again.node_names == (other,)

    def test_without_required_nodes_a_job_starts_anywhere(self, site: Site) -> None:
        blocker = site.fill()
        job_id = site.submit("--nodes=1")
        alice = mover(site.cluster(site.alice))
        busy = site.reaches(blocker, JobState.RUNNING).node_names
        alice.require_nodes(job_id, [busy[-1]])
        alice.require_nodes(job_id, [])
        site.cluster(site.bob).cancel([blocker])
        assert len(site.reaches(job_id, JobState.RUNNING).node_names) == 1

    def test_a_job_that_its_signal_ended_can_be_requeued(self, site: Site) -> None:
        job = site.reaches(site.submit("--requeue"), JobState.RUNNING)
        operator = mover(site.cluster(site.operator))
        operator.signal(job.job_id, "USR1", batch=True)
        ended = site.reaches(job.job_id, JobState.FAILED)
        assert ended.exit_code == 128 + 10
        operator.requeue(job.job_id)
        site.reaches(job.job_id, JobState.PENDING, JobState.RUNNING)

    def test_what_is_refused_has_slurms_words(self, site: Site) -> None:
        running: Job = site.reaches(site.submit("--requeue"), JobState.RUNNING)
        firm = site.reaches(site.submit("--no-requeue"), JobState.RUNNING).job_id
        alice, bob = mover(site.cluster(site.alice)), mover(site.cluster(site.bob))
        with pytest.raises(Refused, match="denied"):
            bob.signal(running.job_id, "USR1", batch=True)
        with pytest.raises(Refused, match="denied"):
            bob.requeue(running.job_id)
        with pytest.raises(Refused, match="disabled"):
            alice.requeue(firm)
        with pytest.raises(Refused, match="Invalid node name"):
            alice.require_nodes(running.job_id, ["nowhere"])
        for act in (
            lambda: alice.signal(UNKNOWN_JOB, "USR1", batch=True),
            lambda: alice.requeue(UNKNOWN_JOB),
            lambda: alice.require_nodes(UNKNOWN_JOB, []),
        ):
            with pytest.raises(Refused, match="Invalid job id"):
                act()

    def test_a_pending_job_is_not_requeued_and_a_running_one_keeps_its_nodes(
        self, site: Site
    ) -> None:
        running = site.reaches(site.submit("--requeue"), JobState.RUNNING)
        waiting = site.submit(f"--dependency=afterany:{running.job_id}")
        alice = mover(site.cluster(site.alice))
        with pytest.raises(Refused, match="pending"):
            alice.requeue(waiting)
        names = [node.name for node in site.cluster(site.alice).snapshot().nodes]
        for nodes in ([], [next(name for name in names if name not in running.node_names)]):
            with pytest.raises(Refused, match="Invalid node name"):
                alice.require_nodes(running.job_id, nodes)
        assert site.job(running.job_id).node_names == running.node_names

    def test_a_cluster_that_does_not_answer_is_unavailable_to_who_moves(self, site: Site) -> None:
        down = mover(site.down())
        for act in (
            lambda: down.signal(1, "USR1", batch=False),
            lambda: down.requeue(1),
            lambda: down.require_nodes(1, ["n1"]),
        ):
            with pytest.raises(ClusterUnavailable):
                act()
