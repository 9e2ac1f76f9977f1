"""What Prometheus scrapes, and the dashboard over it."""

from __future__ import annotations

import json
import re
import socket
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from mirage.chain.handoff import Handoff
from mirage.daemon.metrics import Metrics, exposed, parse_address
from mirage.domain import (
    Action,
    ClusterNode,
    Decision,
    Job,
    JobState,
    Link,
    ReleaseOutcome,
    Snapshot,
)
from mirage.elastic.jobs.tag import TaskTag, format_task_tag
from mirage.errors import InputError

DASHBOARD = Path(__file__).resolve().parents[3] / "packaging" / "grafana.json"
Labels = tuple[tuple[str, str], ...]


def link(segment: int) -> Link:
    return Link(
        chain_id="c",
        user="ada",
        segment=segment,
        job_id=segment,
        predecessor_id=segment - 1 or None,
        state=JobState.COMPLETED,
        partition="gpu",
        nodes=1,
        time_limit_s=60,
        submit_s=0,
    )


def busy() -> Metrics:
    """After a cycle in which everything happened."""
    metrics = Metrics("enforce", "quantile")
    jobs = [
        Job(job_id=number, user="ada", partition="gpu", state=state, nodes=1, submit_s=0)
        for number, state in enumerate([JobState.PENDING, JobState.RUNNING] * 3)
    ]
    nodes = [
        ClusterNode(name="n1", partitions=("gpu",), up=True, idle=True),
        ClusterNode(name="n2", partitions=("gpu",), up=True, idle=False),
        ClusterNode(name="n3", partitions=("gpu",), up=False, idle=False),
    ]
    snapshot = Snapshot(
        at_s=1000,
        jobs=(
            *jobs,
            Job(
                job_id=9,
                user="ada",
                partition="gpu",
                state=JobState.COMPLETING,
                nodes=1,
                submit_s=0,
            ),
        ),
        nodes=tuple(nodes),
    )
    decision = Decision(
        at_s=1000,
        chain_id="c",
        user="ada",
        predecessor_id=1,
        successor_id=2,
        policy="quantile",
        action=Action.WAIT,
        reason="",
        inputs_hash="",
    )
    handovers = [
        Handoff(
            link=link(2),
            predecessor=link(1),
            works_s=90,
            interruption_s=90,
            overlap_s=0,
            cut_short_s=0,
        ),
        Handoff(
            link=link(3),
            predecessor=link(2),
            works_s=7200,
            interruption_s=7200,
            overlap_s=0,
            cut_short_s=0,
        ),
    ]
    metrics.queue_read(snapshot)
    metrics.decisions_made(snapshot, [decision] * 3)
    metrics.release_ended(decision, ReleaseOutcome.RELEASED, "", 1000)
    metrics.chains_followed(handovers, 2, 1000)
    metrics.cycle_ended(True, 0.2, 1001)
    metrics.cycle_ended(False, 5.0, 1601)
    return metrics


def test_services_are_counted_by_whether_a_replica_is_ready() -> None:
    words = "mirage/1 chain=abcdef{} seg=1/9 mode=service ei=1 eo=1 svc={} rep={} ready={}"
    jobs = [
        Job(
            job_id=number,
            user="ada",
            partition="gpu",
            state=JobState.RUNNING,
            nodes=1,
            submit_s=0,
            comment=words.format(number, service, number, ready_s),
        )
        for number, service, ready_s in ((1, "llm", 0), (2, "llm", 7), (3, "db", 0))
    ]
    metrics = Metrics("enforce", "quantile")
    metrics.queue_read(Snapshot(at_s=1000, jobs=tuple(jobs), nodes=()))
    found = scraped(metrics)
    assert found["mirage_services", (("state", "up"),)] == 1
    assert found["mirage_services", (("state", "down"),)] == 1
    assert found["mirage_service_replicas", (("state", "ready"),)] == 1
    assert found["mirage_service_replicas", (("state", "other"),)] == 2


def scraped(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    with (
        exposed(metrics, "127.0.0.1:0") as port,
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=240) as answer,
    ):
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_tells_the_last_cycle() -> None:
    found = scraped(busy())
    assert (
        found["mirage_jobs", (("state", "pending"),)]
        == found["mirage_jobs", (("state", "running"),)]
        == 3
    )
    assert [found["mirage_nodes", (("state", state),)] for state in ("up", "idle", "down")] == [
        2,
        1,
        1,
    ]
    assert found["mirage_chains", ()] == 2
    assert found["mirage_decisions_total", (("action", "wait"), ("policy", "quantile"))] == 3
    assert found["mirage_releases_total", (("outcome", "released"),)] == 1
    assert found["mirage_releases_total", (("outcome", "refused"),)] == 0
    assert found["mirage_interruption_seconds_bucket", (("le", "600.0"),)] == 1
    assert found["mirage_interruption_seconds_count", ()] == 2
    assert found["mirage_cycles_total", (("ok", "false"),)] == 1
    assert found["mirage_last_cycle_timestamp_seconds", ()] == 1001


def test_no_series_names_a_job_a_chain_or_a_user() -> None:
    names = {name for _, labels in scraped(busy()) for name, _ in labels}
    assert names == {
        "version",
        "mode",
        "policy",
        "ok",
        "le",
        "state",
        "action",
        "outcome",
        "why",
        "role",
        "share",
    }


def test_an_address_that_is_taken_or_none() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(InputError, match=r"daemon\.metrics is .*can't be listened on"),
            exposed(busy(), f"127.0.0.1:{taken.getsockname()[1]}"),
        ):
            pass
    for wrong in ("9815", "localhost:", "localhost:http", "localhost:99999"):
        with pytest.raises(InputError, match="expected HOST:PORT"):
            parse_address(wrong, "daemon.metrics")
    assert parse_address("[::1]:9815", "daemon.metrics") == ("::1", 9815)
    assert parse_address(":9815", "daemon.metrics") == ("127.0.0.1", 9815)


def test_grafana_knows_every_word_of_the_dashboard() -> None:
    """Read into the types that Grafana makes from its schema, and written again, nothing is
    missing.
    """
    register_default_plugins()
    written = json.loads(DASHBOARD.read_text())
    assert (
        missing(written, json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder)))
        == []
    )
    written["panels"][0]["fieldConfig"]["defaults"]["unitt"] = "s"
    read = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
    assert missing(written, read) == ["/panels/0/fieldConfig/defaults/unitt"], "the check can fail"


def missing(part: object, whole: object, path: str = "") -> list[str]:
    """What ``part`` has and ``whole`` has not, or otherwise."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return [
            word for key in part for word in missing(part[key], whole.get(key), f"{path}/{key}")
        ]
    if isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        pairs = enumerate(zip(part, whole, strict=True))
        return [
            word
            for number, (ours, theirs) in pairs
            for word in missing(ours, theirs, f"{path}/{number}")
        ]
    return [] if part == whole else [path]


def test_the_dashboard_asks_for_what_there_is() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    plugin = (files("mirage.routing") / "lua" / "mirage_routing.lua").read_text()
    there = {name for name, _ in scraped(busy())} | set(
        re.findall(r"# TYPE (mirage_\w+) counter", plugin)
    )
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"mirage_\w+", target["expr"])
    }
    assert asked <= there
    assert {re.sub(r"_(sum|count|bucket|total|created)$", "", name) for name in there} == {
        re.sub(r"_(sum|count|bucket|total)$", "", name) for name in asked
    }


def test_elastic_jobs_are_counted_by_their_tags() -> None:
    def task(job_id: int, name: str, state: JobState, *, extra: bool, user: str = "ada") -> Job:
        tag = TaskTag(job="k3m9pq2xha", task=name, is_extra=extra)
        return Job(
            job_id=job_id,
            user=user,
            partition="gpu",
            state=state,
            nodes=1,
            submit_s=0,
            gpus=2 if name.startswith("w") else 0,
            comment=format_task_tag(tag),
        )

    metrics = Metrics("enforce", "quantile")
    jobs = (
        task(1, "c1", JobState.RUNNING, extra=False),
        task(2, "w1", JobState.RUNNING, extra=False),
        task(3, "w2", JobState.RUNNING, extra=True),
        task(4, "w3", JobState.PENDING, extra=True),
        task(5, "w1", JobState.RUNNING, extra=False, user="bea"),
    )
    metrics.queue_read(Snapshot(at_s=0, jobs=jobs, nodes=()))
    found = scraped(metrics)
    assert found["mirage_elastic_jobs", ()] == 2
    assert found["mirage_elastic_tasks", (("role", "worker"), ("share", "base"))] == 2
    assert found["mirage_elastic_tasks", (("role", "worker"), ("share", "extra"))] == 1
    assert found["mirage_elastic_tasks", (("role", "server"), ("share", "base"))] == 0
    assert found["mirage_elastic_gpus", (("share", "base"),)] == 4
    assert found["mirage_elastic_gpus", (("share", "extra"),)] == 2


def test_waits_of_jobs_that_started_since_the_last_look_are_counted():
    metrics = Metrics("observe", "quantile")

    def look(at_s: int, *starts_s: int) -> None:
        jobs = [
            Job(
                job_id=start_s,
                user="ada",
                partition="gpu",
                state=JobState.RUNNING,
                nodes=1,
                submit_s=0,
                eligible_s=start_s - 500,
                start_s=start_s,
            )
            for start_s in starts_s
        ]
        metrics.queue_read(Snapshot(at_s=at_s, jobs=tuple(jobs), nodes=()))

    look(1000, 900)
    look(2000, 900, 1500)
    look(3000, 1500)
    value = metrics.registry.get_sample_value
    assert value("mirage_wait_seconds_count") == 1
    assert value("mirage_wait_seconds_sum") == 500
