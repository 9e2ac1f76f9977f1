"""What every reader of a real Slurm's answers makes of them, on the release at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.domain import Job
from mirage.slurm.agreement import says_reserved
from mirage.slurm.job_details import parse_details
from mirage.slurm.reservations import hindrance, parse_reservations
from mirage.slurm.rest_client import RestClient
from mirage.slurm.rest_cluster import RestCluster
from mirage.slurm.rest_server import RestServer
from mirage.slurm.rest_survey import RestSurvey
from slurm_sim.clusters import read_live
from slurm_sim.clusters.slurm_conf import read_slurm_conf
from slurm_sim.config import ClusterConfig
from tests.slurm.site import ALICE, Site, until

pytestmark = pytest.mark.slurm


def whole_nodes(cluster: ClusterConfig) -> dict[str, bool]:
    return {partition.name: partition.exclusive for partition in cluster.partitions}


def show(site: Site, *words: str) -> str:
    return site.run(ALICE, "scontrol", "show", *words).stdout


def client(site: Site) -> RestClient:
    port = int((site.folder / "etc" / "port-base").read_text()) + 3
    token = site.run("root", "scontrol", "token", f"username={ALICE}").stdout
    token = token.strip().removeprefix("SLURM_JWT=")
    server = RestServer(f"http://127.0.0.1:{port}", user="nobody")  # as scripts/slurm-up starts it
    return RestClient(server, lambda: token, retries=0)


def rest(site: Site) -> RestSurvey:
    return RestSurvey(client(site))


def rest_cluster(site: Site) -> RestCluster:
    return RestCluster(client(site))


def test_partitions_and_jobs_of_whole_nodes_are_seen_by_every_reader(site: Site) -> None:
    """26.05 says Exclusive where older releases say OverSubscribe=EXCLUSIVE."""
    is_new = " Exclusive=" in show(site, "partition", "-o")
    word = "Exclusive" if is_new else "OverSubscribe"
    site.run("root", "scontrol", "update", "PartitionName=debug", f"{word}=NO")
    jobs = {
        partition: int(
            site.run(
                ALICE,
                "sbatch",
                "--parsable",
                "-o/dev/null",
                "-t1",
                "-p",
                partition,
                "--wrap=sleep 60",
            ).stdout
        )
        for partition in ("gpu", "debug")
    }
    try:
        texts = [show(site, "config"), show(site, "node", "-o"), show(site, "partition", "-o")]
        expected = {"gpu": True, "debug": False}
        assert whole_nodes(read_live(*texts).cluster) == expected
        if "= 22.05" not in texts[0]:  # whose API does not tell it (docs/rest.md)
            assert whole_nodes(rest(site).cluster()) == expected
        conf = read_slurm_conf(Path(site.folder / "etc" / "slurm.conf")).cluster
        assert whole_nodes(conf)["gpu"]
        for partition, job in jobs.items():
            until(lambda job=job: site.state(job) == "RUNNING", 60, f"job {job} to run")
            details = parse_details(show(site, "job", "-d", str(job)), job)
            assert details.takes_whole_nodes is expected[partition]
    finally:
        back = "Exclusive=NODE" if is_new else "OverSubscribe=EXCLUSIVE"
        site.run("root", "scontrol", "update", "PartitionName=debug", back)


def test_a_maintenance_is_seen_and_slurm_plans_by_it_as_we_do(site: Site) -> None:
    words = "StartTime=now+20minutes Duration=8:00:00 Nodes=ALL Flags=MAINT,IGNORE_JOBS Users=root"
    name = site.run(
        "root", "scontrol", "create", "reservation", "ReservationName=maint1", *words.split()
    )
    try:
        assert "maint1" in name.stdout
        found = parse_reservations(show(site, "reservation", "-o"))
        assert [(each.name, each.end_s - each.start_s) for each in found] == [("maint1", 8 * 3600)]
        assert rest(site).reservations() == found
        batch = ["sbatch", "--parsable", "-o/dev/null", "-p", "gpu", "--wrap=sleep 1"]
        long = int(site.run(ALICE, *batch, "-t60").stdout)
        short = int(site.run(ALICE, *batch, "-t10").stdout)

        def plan() -> Job | None:
            job = rest_cluster(site).snapshot().by_id.get(long)
            return job if job and job.planned_s and says_reserved(job) else None

        until(lambda: plan() is not None, 30, "Slurm to plan the job behind the maintenance")
        until(lambda: site.state(short) != "PENDING", 30, "the short job to start before it")
        snapshot = rest_cluster(site).snapshot()
        job = snapshot.by_id[long]
        seen = hindrance(job, snapshot, found)
        assert seen is not None
        assert job.planned_s is not None
        assert abs(snapshot.at_s + seen.wait_s - job.planned_s) <= 120
    finally:
        site.cancel_all()
        site.run("root", "scontrol", "delete", "ReservationName=maint1")
