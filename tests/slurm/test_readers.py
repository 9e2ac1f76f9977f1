"""What every reader of a real Slurm's answers makes of them, on the release at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.slurm.job_details import parse_details
from mirage.slurm.rest_client import RestClient
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


def rest(site: Site) -> RestSurvey:
    port = int((site.folder / "etc" / "port-base").read_text()) + 3
    token = site.run("root", "scontrol", "token", f"username={ALICE}").stdout
    token = token.strip().removeprefix("SLURM_JWT=")
    return RestSurvey(RestClient(f"http://127.0.0.1:{port}", lambda: token, retries=0))


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
