"""What `mirage doctor` and `mirage when` ask, by slurmrestd. The API does not show slurm.conf, so the
scheduler's parameters are assumed, and marked so.

The documents of v0.0.38 (22.05) and of v0.0.40 on (24.11, 26.05) differ in where limits stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mirage.domain import Settings
from mirage.errors import ClusterNonsense, ClusterUnavailable
from mirage.slurm import failures, rest_records
from mirage.slurm.reservations import reservation_of
from mirage.slurm.rest_client import RestClient
from mirage.slurm.rest_cluster import NOTHING_FOUND, RestCluster, client_of
from mirage.slurm.survey import JobLimits, SlurmAbout, noted
from slurm_sim.clusters.scontrol import read_live_nodes
from slurm_sim.config import ClusterConfig, Reservation
from slurm_sim.seconds import DAY_S
from slurm_sim.slurm_json import number

if TYPE_CHECKING:
    from mirage.config import AdapterConfig

Record = Mapping[str, Any]
_NO_CLOCK = "slurmrestd does not tell slurmctld's time"


class RestSurvey:
    """Asks a Slurm behind slurmrestd. Every method raises ClusterError."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._cluster = RestCluster(client)

    @classmethod
    def from_config(cls, config: AdapterConfig) -> RestSurvey:
        """Raises InputError where no usable address is configured."""
        return cls(client_of(config, retries=0))

    def about(self) -> SlurmAbout:
        settings: Settings = self._cluster.settings()
        return SlurmAbout(settings=settings, time_s=ClusterUnavailable(_NO_CLOCK))

    def cluster(self) -> ClusterConfig:
        """Nodes and partitions as slurmctld describes them, with an assumed scheduler."""
        from slurm_sim.traces.guess import ASSUMED  # pandas takes half a second to import

        nodes = self._records("slurm", "nodes", "nodes")
        partitions = self._records("slurm", "partitions", "partitions")
        name = self._cluster.settings().cluster
        return noted(
            lambda: read_live_nodes(
                name or "cluster",
                ASSUMED,
                "\n".join(map(rest_records.node_line, nodes)),
                "\n".join(map(rest_records.partition_line, partitions)),
            )
        )

    def reservations(self) -> tuple[Reservation, ...]:
        records = self._records("slurm", "reservations", "reservations")
        found = (reservation_of(rest_records.reservation(record)) for record in records)
        return tuple(each for each in found if each is not None)

    def admin_level(self, user: str) -> str:
        """`None`, `Operator` or `Administrator`; empty for a user that accounting does not know."""
        for record in self._records("slurmdb", f"user/{user}", "users"):
            if record.get("name") == user:
                level = record.get("administrator_level")
                return str(level[0] if isinstance(level, list) and level else level or "None")
        return ""

    def limits(self, cluster: str, user: str | None) -> list[JobLimits]:
        """Of all associations, or those of a user."""
        query = [("cluster", cluster)] if cluster else []
        found = self._records("slurmdb", "associations", "associations", query)
        return [
            _association_limits(record)
            for record in found
            if user is None or record.get("user") == user
        ]

    def qos(self) -> list[JobLimits]:
        old = self._client.version == "v0.0.38"
        return list(map(_qos_limits, self._records("slurmdb", "qos", "QOS" if old else "qos")))

    def has_records(self, day_s: int) -> bool:
        """Whether accounting has a job that was pending or running in the 24 hours from ``day_s``."""
        return bool(self._cluster.accounting(day_s, day_s + DAY_S))

    def _records(
        self, system: str, path: str, name: str, query: Sequence[tuple[str, str]] = ()
    ) -> Sequence[Record]:
        answer = self._client.get(system, path, query)
        where = f"slurmrestd at {self._client.url}, {path}"
        if {error.number for error in answer.errors} == {NOTHING_FOUND}:
            return []
        if answer.errors:
            raise failures.read_failure([where], answer.words())
        try:
            return rest_records.listed(answer.body, name)
        except ValueError as error:
            raise ClusterNonsense(f"{where}: {error}. Nothing was done; retry later.") from error


def _association_limits(record: Record) -> JobLimits:
    jobs = _at(record, "max", "jobs")
    return JobLimits(
        user=str(record.get("user") or ""),
        account=str(record.get("account") or ""),
        partition=str(record.get("partition") or ""),
        qos=",".join(record.get("qos") or ()),
        max_jobs=_limit(_at(jobs, "active")),
        max_submit=_limit(_at(jobs, "total")),
        group_jobs=_limit(_at(jobs, "per", "count")),
        group_submit=_limit(_at(jobs, "per", "submitted")),
    )


def _qos_limits(record: Record) -> JobLimits:
    most = _at(record, "limits", "max")
    return JobLimits(
        user="",
        account="",
        partition="",
        qos=str(record.get("name") or ""),
        max_jobs=_limit(_at(most, "jobs", "active_jobs", "per", "user")),
        max_submit=_limit(_at(most, "jobs", "per", "user")),
        group_jobs=_limit(_at(most, "active_jobs", "count")),
        group_submit=_limit(_at(most, "jobs", "count")),
    )


def _at(record: object, *names: str) -> Any:
    """A part of a nested document; None: it is not there."""
    for name in names:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _limit(value: object) -> int | None:
    text = number(value)
    return None if text in rest_records.UNBOUNDED else int(text)
