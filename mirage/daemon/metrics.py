"""What the service shows to Prometheus (prometheus.io/docs/instrumenting/writing_exporters).

Values are those of the last cycle: a scrape asks Slurm nothing. No label holds a job, a chain or a
user, so the number of series stays the same however many there are.
"""

from __future__ import annotations

import socket
from collections import Counter as Count
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

import mirage
from mirage.chain.handoff import Handoff
from mirage.daemon.connections import BoundedServer, in_background
from mirage.daemon.drift import DriftKind
from mirage.daemon.host_names import known_names, only_known
from mirage.daemon.observers import Observer
from mirage.daemon.tick import tagged_jobs
from mirage.domain import Decision, JobState, ReleaseOutcome, Snapshot
from mirage.elastic.jobs.queue import queued_elastic_jobs
from mirage.elastic.jobs.request import Role
from mirage.errors import InputError
from mirage.peers import Connections
from slurm_sim.seconds import MINUTE_S

GAPS_S = tuple(MINUTE_S * minutes for minutes in (1, 10, 30, 60, 120, 240, 480, 960, 1920))
"""Bounds of the histograms of interruption and overlap; the paper counts pairs under 10 minutes."""
CYCLES_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MOST_SCRAPERS, SCRAPES_EACH = 32, 8
"""Connections at once: of all, and of one user or remote address."""


class Metrics(Observer):
    """One service's series, in a registry of their own."""

    def __init__(self, mode: str, policy: str) -> None:
        self.registry = CollectorRegistry()
        self._info(mode, policy)
        self._cycles = self._counter("cycles", "Cycles, by whether they went through", "ok")
        self._seconds = self._histogram("cycle_seconds", "How long a cycle took", CYCLES_S)
        self._at_s = self._gauge(
            "last_cycle_timestamp_seconds", "End of the last cycle that went through"
        )
        self._jobs = self._gauge("jobs", "Jobs that squeue shows", "state")
        self._nodes = self._gauge("nodes", "Nodes that sinfo shows", "state")
        self._chains = self._gauge("chains", "Chains that are active")
        self._elastic_jobs = self._gauge("elastic_jobs", "Elastic jobs with a task in the queue")
        self._elastic_tasks = self._gauge(
            "elastic_tasks", "Running tasks of elastic jobs", "role", "share"
        )
        self._elastic_gpus = self._gauge("elastic_gpus", "GPUs of these tasks", "share")
        self._services = self._gauge(
            "services", "Services of several replicas: up with one that is ready", "state"
        )
        self._replicas = self._gauge("service_replicas", "Replicas of these services", "state")
        self._decisions = self._counter("decisions", "Decisions", "policy", "action")
        self._releases = self._counter("releases", "Releases, by how they came out", "outcome")
        self._interruption_s = self._histogram(
            "interruption_seconds", "Of each handover or requeue, and in all within a run", GAPS_S
        )
        self._overlap_s = self._histogram("overlap_seconds", "Of each handover", GAPS_S)
        self._wait_s = self._histogram(
            "wait_seconds", "In the queue, of each job that was seen to have started", GAPS_S
        )
        self._seen_s: int | None = None
        self._drift = self._gauge(
            "drift", "Whether the model no longer fits (mirage retrain), by why", "why"
        )
        # All values of a label at once: an alert on a series that has no sample yet never fires.
        for kind in DriftKind:
            self._drift.labels(kind.value).set(0)
        for ok in ("true", "false"):
            self._cycles.labels(ok)
        for outcome in ReleaseOutcome:
            self._releases.labels(outcome.value)

    def _info(self, mode: str, policy: str) -> None:
        info = self._gauge("info", "What runs; always 1", "version", "mode", "policy")
        info.labels(mirage.__version__, mode, policy).set(1)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"mirage_{name}", words, labels, registry=self.registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"mirage_{name}", words, labels, registry=self.registry)

    def _histogram(self, name: str, words: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(f"mirage_{name}", words, buckets=bounds, registry=self.registry)

    def queue_read(self, snapshot: Snapshot) -> None:
        jobs = Count(job.state for job in snapshot.jobs)
        for state in (JobState.PENDING, JobState.RUNNING):
            self._jobs.labels(state.value.lower()).set(jobs[state])
        # Jobs with values that can't be used: left out, or (and counted above too) with a number
        # cut.
        for what, is_set_apart in (("unreadable", True), ("out_of_range", False)):
            odd = {
                oddity.job_id for oddity in snapshot.oddities if oddity.is_set_apart is is_set_apart
            }
            self._jobs.labels(what).set(len(odd))
        up = sum(node.up for node in snapshot.nodes)
        idle = sum(node.idle for node in snapshot.nodes)
        for name, nodes in (("up", up), ("idle", idle), ("down", len(snapshot.nodes) - up)):
            self._nodes.labels(name).set(nodes)

        self._show_waits(snapshot)
        self._show_elastic(snapshot)
        self._show_services(snapshot)

    def _show_waits(self, snapshot: Snapshot) -> None:
        """Of the starts since the last look; at the first look none is new."""
        for job in snapshot.jobs:
            is_new = job.start_s is not None and job.start_s > (self._seen_s or snapshot.at_s)
            if is_new and job.state.has_nodes and job.wait_s is not None:
                self._wait_s.observe(job.wait_s)
        self._seen_s = snapshot.at_s

    def _show_services(self, snapshot: Snapshot) -> None:
        stands: dict[tuple[str, str], dict[int, bool]] = {}
        for job, tag in tagged_jobs(snapshot):
            if tag.service is not None and tag.replica is not None:
                replicas = stands.setdefault((job.user, tag.service), {})
                is_ready = job.state.has_nodes and tag.ready_s != 0
                replicas[tag.replica] = replicas.get(tag.replica, False) or is_ready
        self._services.labels("up").set(sum(any(each.values()) for each in stands.values()))
        self._services.labels("down").set(sum(not any(each.values()) for each in stands.values()))
        ready = sum(sum(each.values()) for each in stands.values())
        self._replicas.labels("ready").set(ready)
        self._replicas.labels("other").set(sum(map(len, stands.values())) - ready)

    def _show_elastic(self, snapshot: Snapshot) -> None:
        found = queued_elastic_jobs(snapshot.jobs)
        self._elastic_jobs.set(len(found))
        running = [(tag, job) for each in found for tag, job in each.tasks if job.state.has_nodes]
        for share, is_extra in (("base", False), ("extra", True)):
            own = [(tag, job) for tag, job in running if tag.is_extra is is_extra]
            self._elastic_gpus.labels(share).set(sum(job.gpus for _, job in own))
            for role in Role:
                count = sum(tag.role is role for tag, _ in own)
                self._elastic_tasks.labels(role.value, share).set(count)

    def decisions_made(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._decisions.labels(decision.policy, decision.action.value).inc()

    def release_ended(
        self, decision: Decision, outcome: ReleaseOutcome, detail: str, now_s: int
    ) -> None:
        self._releases.labels(outcome.value).inc()

    def chains_followed(self, handovers: Sequence[Handoff], active_chains: int, now_s: int) -> None:
        self._chains.set(active_chains)
        for handover in handovers:
            self._interruption_s.observe(handover.interruption_s)
            if handover.predecessor.down_s:
                self._interruption_s.observe(handover.predecessor.down_s)
            if not handover.is_requeue:
                self._overlap_s.observe(handover.overlap_s)

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:
        self._cycles.labels("true" if succeeded else "false").inc()
        self._seconds.observe(seconds)
        if succeeded:
            self._at_s.set(now_s)

    def drift_checked(self, alarms: Collection[str]) -> None:
        for kind in DriftKind:
            self._drift.labels(kind.value).set(kind.value in alarms)


class _Server(BoundedServer, WSGIServer):
    pass


class _Handler(WSGIRequestHandler):
    """One request a connection; scrapes are not logged."""

    server: _Server

    def get_environ(self) -> dict[str, Any]:
        self.server.guests.asked(self.connection)
        return super().get_environ()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def exposed(metrics: Metrics, address: str, hosts: Sequence[str] = ()) -> Iterator[int]:
    """Serves ``http://HOST:PORT/metrics`` in a thread of its own; gives the port (that of ``:0`` is
    any free one).

    ``hosts``: further names of this machine. Raises InputError for an address that is none, or is
    taken.
    """
    host, port = parse_address(address, "daemon.metrics")
    try:
        server = _server(host, port)
    except OSError as error:
        raise InputError(
            f"daemon.metrics is {address!r}, which can't be listened on: {error.strerror}; is"
            " another service there? Choose another port, or none."
        ) from error
    server.set_app(only_known(make_wsgi_app(metrics.registry), known_names(host, *hosts)))
    with in_background(server):
        yield server.server_port


def _server(host: str, port: int) -> _Server:
    family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    kind = type("_Server", (_Server,), {"address_family": family})
    server: _Server = kind(where[:2], _Handler)
    server.guests = Connections(name="metrics port", most=MOST_SCRAPERS, share=SCRAPES_EACH)
    return server


def parse_address(address: str, key: str) -> tuple[str, int]:
    """HOST:PORT, as the configuration's ``key`` says it. Raises InputError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{key} is {address!r}; expected HOST:PORT, as in 127.0.0.1:9815.")
    return host.strip("[]") or "127.0.0.1", int(port)
