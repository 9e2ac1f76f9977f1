"""The Cluster port on slurmrestd, for sites that give no shell, and for services away from the
cluster (docs/rest.md).

Whoever owns the token acts. The API lacks two things: slurm.conf, and when nodes were down before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirage.chain.tag import submitted_tag
from mirage.domain import Job, NodeEvent, Oddity, Settings, Snapshot
from mirage.errors import (
    AccountingUnavailable,
    ClusterError,
    ClusterNonsense,
    ClusterUnavailable,
    InputError,
    Refused,
    Unreadable,
)
from mirage.ports import Cluster
from mirage.slurm import failures, parsing, rest_records
from mirage.slurm.oddities import OddityLog
from mirage.slurm.rest_client import Query, RestAnswer, RestClient, token_source
from mirage.slurm.rest_server import RestServer
from mirage.slurm.rest_submission import submission
from slurm_sim.slurm_json import Record, record_rows

if TYPE_CHECKING:
    from mirage.config import AdapterConfig

log = logging.getLogger(__name__)
R = TypeVar("R")

MOST_SINGLE = 8
"""More jobs than this are read with the whole queue, in one request."""
MOST_IDS = 500
"""Job ids in one request to slurmdbd: 22.05 takes no longer address than 8 KiB."""
NOTHING_FOUND = 9003
"""The number of slurmdbd's error where a query has no answer."""


def _unix_now() -> int:
    return int(time.time())


def client_of(config: AdapterConfig, retries: int = 2) -> RestClient:
    """The API as it is configured. Raises InputError where no usable address is, or others can read
    the token.
    """
    return RestClient(
        RestServer(config.rest_url, user=config.rest_user, ca_file=config.rest_ca_file),
        token_source(config.rest_token_file),
        version=config.rest_version,
        timeout_s=config.timeout_s,
        retries=retries,
    )


class RestCluster(Cluster):
    """A real Slurm behind slurmrestd. Acts as the user of the token."""

    def __init__(self, client: RestClient, *, now_s: Callable[[], int] = _unix_now) -> None:
        self._client = client
        self._now_s = now_s
        self._oddities = OddityLog()
        self._cluster = ""
        self._has_warned = False

    @classmethod
    def from_config(cls, config: AdapterConfig, retries: int = 2) -> RestCluster:
        """``retries``: of requests that got no connection. Raises InputError where no usable
        address is configured.
        """
        return cls(client_of(config, retries))

    def snapshot(self) -> Snapshot:
        """The whole queue and all nodes: two requests."""
        at_s = self._now_s()
        listed = self._queue(self._records("jobs"), at_s)
        nodes = tuple(
            self._checked("nodes", lambda: list(map(rest_records.node, self._records("nodes"))))
        )
        if not nodes:
            raise self._nonsense("nodes", "no nodes, but every cluster has some")
        self._oddities.report(listed.oddities)
        jobs = tuple(job for job in listed.jobs if not job.state.is_over)
        return Snapshot(at_s=at_s, jobs=jobs, nodes=nodes, oddities=tuple(listed.oddities))

    def queue_of(self, user: str) -> Snapshot:
        """This user's jobs, and no nodes. The API gives the whole queue: the others are left out."""
        at_s = self._now_s()
        own = [each for each in self._records("jobs") if each.get("user_name") == user]
        listed = self._queue(own, at_s)
        self._oddities.report(listed.oddities)
        jobs = tuple(job for job in listed.jobs if not job.state.is_over)
        return Snapshot(at_s=at_s, jobs=jobs, nodes=(), oddities=tuple(listed.oddities))

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        """As `CommandCluster.jobs`. A request a job, or one for all where they are many."""
        if not job_ids:
            return {}
        if len(set(job_ids)) > MOST_SINGLE:
            records = [each for each in self._records("jobs") if each.get("job_id") in job_ids]
        else:
            records = [each for job_id in sorted(set(job_ids)) for each in self._job(job_id)]
        listed = self._queue(records, self._now_s())
        found: dict[int, Job] = {}
        for job in listed.jobs:
            found.setdefault(job.job_id, job)
        self._oddities.report(listed.oddities)
        lost = [each for each in listed.oddities if each.is_set_apart and each.job_id not in found]
        if lost:
            raise Unreadable(lost, found)
        return found

    def accounting(
        self, start_s: int, end_s: int, job_ids: Collection[int] | None = None
    ) -> list[Job]:
        """As `CommandCluster.accounting`."""
        records = self._accounted(start_s, end_s, job_ids)
        return [job for _, jobs in self._read_accounted(records) for job in jobs]

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        """As `accounting`. The tag is that of the command line; in 22.05, which does not tell it,
        of the comment that slurmdbd keeps.
        """
        if not users:
            return []
        records = self._accounted(start_s, end_s, None)
        return [
            replace(job, comment=submitted_tag(rest_records.submitted_with(record)))
            for record, jobs in self._read_accounted(records)
            for job in jobs
            if job.user in users
        ]

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:  # noqa: ARG002
        """Of the nodes that are down now. The API does not tell which were down before."""
        if not self._has_warned:
            log.warning(
                "slurmrestd does not tell when nodes were down before, so the rebuilt history"
                " counts nodes as up that are up now"
            )
            self._has_warned = True
        try:
            records = self._records("nodes")
        except (ClusterUnavailable, Refused) as error:
            raise AccountingUnavailable(str(error)) from error
        events = self._checked("nodes", lambda: list(map(rest_records.down_since, records)))
        return [event for event in events if event and event.start_s <= end_s]

    def settings(self) -> Settings:
        """Version and name of the cluster: the API does not show slurm.conf."""
        meta = self._get("slurm", "ping").body.get("meta")
        slurm = _mapping(_mapping(meta).get("slurm", _mapping(meta).get("Slurm")))
        if not slurm.get("release"):
            raise self._nonsense("ping", "no release of Slurm in it")
        name = str(slurm.get("cluster") or self._only_cluster())
        return Settings(version=str(slurm["release"]), cluster=name)

    def submit(self, args: Sequence[str], script: str) -> int:
        """Submits with the options that `rest_submission` knows. Refused: one that it does not."""
        try:
            document = submission(
                args,
                Path(script).read_bytes(),
                is_old=self._is_old(),
                folder=str(Path.cwd()),
                name=Path(script).name,
            )
        except (OSError, UnicodeDecodeError, InputError) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            raise Refused(f"{script}: {words}") from error
        answer = self._client.post("job/submit", document)
        self._raise_for(answer, "job/submit")
        job_id = answer.body.get("job_id")
        if not isinstance(job_id, int) or not job_id:
            raise ClusterNonsense(
                f"slurmrestd at {self._client.url}: expected a job id. {failures.advice('sbatch')}"
            )
        return job_id

    def release(self, job_id: int) -> None:
        """As `CommandCluster.release`."""
        answer = self._client.post(f"job/{job_id}", {"dependency": ""})
        if not failures.is_started(answer.words()):
            self._raise_for(answer, f"job {job_id}")

    def cancel(self, job_ids: Collection[int]) -> None:
        """A request a job; all are made before the first refusal is raised."""
        problems: list[ClusterError] = []
        for job_id in sorted(set(job_ids)):
            answer = self._client.delete(f"job/{job_id}")
            if failures.not_cancelled(answer.words()):
                problems.append(self._error(answer, f"job {job_id}"))
        if problems:
            raise problems[0]

    def _is_old(self) -> bool:
        return int(self._client.version.rpartition(".")[2]) < 40

    def _only_cluster(self) -> str:
        """The name of the cluster where the answer does not tell it (22.05): that of slurmdbd's
        only one; empty: it has several, or can't be asked.
        """
        if not self._cluster:
            try:
                found = rest_records.listed(self._get("slurmdb", "clusters").body, "clusters")
            except (ClusterError, ValueError):
                return ""
            self._cluster = str(found[0].get("name", "")) if len(found) == 1 else ""
        return self._cluster

    def _job(self, job_id: int) -> Sequence[Record]:
        path = f"job/{job_id}"
        answer = self._client.get("slurm", path)
        if failures.is_unknown_job(answer.words()):
            return []
        self._raise_for(answer, path, is_read=True)
        records = self._checked(path, lambda: rest_records.listed(answer.body, "jobs"))
        return [each for each in records if each.get("job_id") == job_id]

    def _queue(self, records: Sequence[Record], at_s: int) -> parsing.JobListing:
        cut_short: list[Oddity] = []
        rows = rest_records.queue_rows(records, cut_short)
        listed = parsing.read_queue(rest_records.SOURCE, rows, at_s)
        return parsing.JobListing(listed.jobs, listed.oddities + cut_short)

    def _accounted(self, start_s: int, end_s: int, job_ids: Collection[int] | None) -> list[Record]:
        window = [("start_time", f"uts{max(start_s, 1)}"), ("end_time", f"uts{end_s + 1}")]
        ids = sorted(set(job_ids or ()))
        chunks = [ids[at : at + MOST_IDS] for at in range(0, len(ids), MOST_IDS)]
        if job_ids is not None and not ids:
            return []
        try:
            name = self.settings().cluster
            found = [
                each
                for chunk in chunks or [[]]
                for each in self._slurmdbd_jobs([*window, *self._steps(chunk)])
            ]
        except (ClusterUnavailable, Refused) as error:
            raise AccountingUnavailable(f"{error} The queue can still be read.") from error
        return [each for each in found if not name or each.get("cluster", name) == name]

    def _steps(self, job_ids: Sequence[int]) -> list[tuple[str, str]]:
        """The part of the query that asks for these jobs; the old API takes a list of them."""
        names = [str(job_id) for job_id in job_ids]
        joined = [",".join(names)] if names and self._is_old() else names
        return [("step", value) for value in joined]

    def _slurmdbd_jobs(self, query: Query) -> Sequence[Record]:
        answer = self._client.get("slurmdb", "jobs", query)
        if {error.number for error in answer.errors} != {NOTHING_FOUND}:
            self._raise_for(answer, "accounting", is_read=True)
        return self._checked("accounting", lambda: rest_records.listed(answer.body, "jobs"))

    def _read_accounted(self, records: Sequence[Record]) -> list[tuple[Record, list[Job]]]:
        rows = list(record_rows(records))
        listed = parsing.read_records(rest_records.SOURCE, rows, self._now_s())
        self._oddities.report(listed.oddities)
        by_key: dict[tuple[int, int], list[Job]] = {}
        for job in listed.jobs:
            by_key.setdefault((job.job_id, job.submit_s), []).append(job)
        keys = [(int(row[0]), int(row[6])) for _, row in rows]
        return [(record, by_key.pop(key, [])) for record, key in zip(records, keys, strict=True)]

    def _records(self, name: str) -> Sequence[Record]:
        body = self._get("slurm", name).body
        return self._checked(name, lambda: rest_records.listed(body, name))

    def _get(self, system: str, path: str) -> RestAnswer:
        answer = self._client.get(system, path)
        self._raise_for(answer, path, is_read=True)
        return answer

    def _raise_for(self, answer: RestAnswer, what: str, *, is_read: bool = False) -> None:
        if answer.errors:
            raise self._error(answer, what, is_read=is_read)

    def _error(self, answer: RestAnswer, what: str, *, is_read: bool = False) -> ClusterError:
        where = f"slurmrestd at {self._client.url}, {what}"
        read = failures.read_failure if is_read else failures.write_failure
        return read([where], answer.words())

    def _checked(self, what: str, read: Callable[[], R]) -> R:
        try:
            return read()
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise self._nonsense(what, str(error)) from error

    def _nonsense(self, what: str, problem: str) -> ClusterNonsense:
        return ClusterNonsense(
            f"slurmrestd at {self._client.url}, {what}: {problem}. Nothing was done; retry later."
        )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
