"""What the service tells Prometheus (prometheus.io/docs/instrumenting/writing_exporters).

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
from mirage.daemon.connections import Guests, GuestServer, in_background
from mirage.daemon.drift import Kind
from mirage.daemon.host_names import known_names, only_known
from mirage.domain import Decision, JobState, Outcome, Snapshot
from mirage.errors import InputError

MINUTE_S = 60
GAPS_S = tuple(MINUTE_S * minutes for minutes in (1, 10, 30, 60, 120, 240, 480, 960, 1920))
"""Bounds of the histograms of interruption and overlap; the paper counts pairs under 10 minutes."""
CYCLES_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MOST_SCRAPERS, SCRAPES_EACH = 32, 8
"""Connections at once: of all, and of one user or remote address."""


class Metrics:
    """One service's series, in a registry of their own."""

    def __init__(self, mode: str, policy: str) -> None:
        self.registry = CollectorRegistry()
        about = Gauge(
            "mirage_info",
            "What runs; always 1",
            ["version", "mode", "policy"],
            registry=self.registry,
        )
        about.labels(mirage.__version__, mode, policy).set(1)
        self._cycles = Counter(
            "mirage_cycles", "Cycles, by whether they went through", ["ok"], registry=self.registry
        )
        self._seconds = Histogram(
            "mirage_cycle_seconds",
            "How long a cycle took",
            buckets=CYCLES_S,
            registry=self.registry,
        )
        self._at_s = Gauge(
            "mirage_last_cycle_timestamp_seconds",
            "End of the last cycle that went through",
            registry=self.registry,
        )
        self._jobs = Gauge(
            "mirage_jobs", "Jobs that squeue shows", ["state"], registry=self.registry
        )
        self._nodes = Gauge(
            "mirage_nodes", "Nodes that sinfo shows", ["state"], registry=self.registry
        )
        self._chains = Gauge("mirage_chains", "Chains that are active", registry=self.registry)
        self._decisions = Counter(
            "mirage_decisions", "Decisions", ["policy", "action"], registry=self.registry
        )
        self._releases = Counter(
            "mirage_releases", "Releases, by how they came out", ["outcome"], registry=self.registry
        )
        self._interruption_s = Histogram(
            "mirage_interruption_seconds",
            "Of each handover",
            buckets=GAPS_S,
            registry=self.registry,
        )
        self._overlap_s = Histogram(
            "mirage_overlap_seconds", "Of each handover", buckets=GAPS_S, registry=self.registry
        )
        self._drift = Gauge(
            "mirage_drift",
            "Whether the model no longer fits (mirage retrain), by why",
            ["why"],
            registry=self.registry,
        )
        for kind in Kind:
            self._drift.labels(kind.value).set(0)
        for ok in ("true", "false"):
            self._cycles.labels(ok)
        for outcome in Outcome:
            self._releases.labels(outcome.value)

    def cycle(self, ok: bool, seconds: float, at_s: int) -> None:
        """A cycle is over; ``at_s``: now, Unix seconds."""
        self._cycles.labels("true" if ok else "false").inc()
        self._seconds.observe(seconds)
        if ok:
            self._at_s.set(at_s)

    def saw(self, snapshot: Snapshot) -> None:
        """What Slurm showed in this cycle."""
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

    def follows(self, chains: int) -> None:
        """So many chains are active now."""
        self._chains.set(chains)

    def decided(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._decisions.labels(decision.policy, decision.action.value).inc()

    def drifted(self, alarms: Collection[str]) -> None:
        """These alarms (`drift.Kind`) are on."""
        for kind in Kind:
            self._drift.labels(kind.value).set(kind.value in alarms)

    def came_out(self, outcome: Outcome) -> None:
        """A release is done, or was refused."""
        self._releases.labels(outcome.value).inc()

    def handed_over(self, handoffs: Sequence[Handoff]) -> None:
        for handoff in handoffs:
            self._interruption_s.observe(handoff.interruption_s)
            self._overlap_s.observe(handoff.overlap_s)


class _Server(GuestServer, WSGIServer):
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
    server.guests = Guests("metrics port", MOST_SCRAPERS, SCRAPES_EACH)
    return server


def parse_address(address: str, key: str) -> tuple[str, int]:
    """HOST:PORT, as the configuration's ``key`` says it. Raises InputError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{key} is {address!r}; expected HOST:PORT, as in 127.0.0.1:9815.")
    return host.strip("[]") or "127.0.0.1", int(port)
