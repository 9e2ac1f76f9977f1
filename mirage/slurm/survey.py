"""What only `mirage doctor` asks: command lines, and what they print. Pure, but for `Survey`, which
runs them.

The formats were tried on 22.05. `Configuration data as of` is slurmctld's own time, in seconds with
SLURM_TIME_FORMAT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mirage.domain import Settings
from mirage.errors import ClusterError, ClusterNonsense, ClusterUnavailable
from mirage.slurm import argv, failures, parsing
from mirage.slurm.oddities import note_once
from mirage.slurm.reservations import ARGV, parse_reservations
from mirage.slurm.runner import Runner
from slurm_sim.clusters import ClusterDescription, NoteKind, read_live
from slurm_sim.config import ClusterConfig, Reservation
from slurm_sim.errors import InvalidCluster
from slurm_sim.seconds import DAY_S

T = TypeVar("T")

LIMIT_FIELDS = ("MaxJobs", "MaxSubmitJobs", "GrpJobs", "GrpSubmitJobs")
_QOS_FIELDS = ("MaxJobsPerUser", "MaxSubmitJobsPerUser", "GrpJobs", "GrpSubmitJobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """Of an association (user and account) or a QOS; None: no limit."""

    user: str
    """Empty: the account's own, for all its users together; or a QOS."""
    account: str
    partition: str
    qos: str
    """Its name, or those that the association may use, separated by commas."""
    max_jobs: int | None
    """Jobs of one user that run at once."""
    max_submit: int | None
    """Jobs of one user that are queued or run."""
    group_jobs: int | None
    """Jobs of all users together that run at once."""
    group_submit: int | None
    """Jobs of all users together that are queued or run."""


@dataclass(frozen=True)
class SlurmAbout:
    """What slurmctld says of itself."""

    settings: Settings | ClusterError
    time_s: int | ClusterError
    """Its own time as it answered."""


class SiteSurvey(Protocol):
    """What is asked of a site beside the Cluster port. Every method raises ClusterError. Adapters:
    `Survey` (the commands), `rest_survey.py` (slurmrestd).
    """

    def about(self) -> SlurmAbout: ...

    def cluster(self) -> ClusterConfig:
        """The cluster as slurmctld describes it, for the simulator."""

    def reservations(self) -> tuple[Reservation, ...]:
        """Of nodes, those that are over too."""

    def admin_level(self, user: str) -> str:
        """`None`, `Operator` or `Administrator`; empty for a user that accounting does not know."""

    def limits(self, cluster: str, user: str | None) -> list[JobLimits]:
        """Of all associations, or those of a user."""

    def qos(self) -> list[JobLimits]: ...

    def has_records(self, day_s: int) -> bool:
        """Whether accounting has a job that was pending or running in the 24 hours from ``day_s``."""


@dataclass(frozen=True)
class Survey:
    """Asks a Slurm by its commands."""

    runner: Runner

    def about(self) -> SlurmAbout:
        text = self.config()
        return SlurmAbout(
            settings=answer_of(lambda: parsing.parse_settings(text)),
            time_s=answer_of(lambda: controller_time_s(text)),
        )

    def config(self) -> str:
        return self._read(argv.settings())

    def nodes(self) -> str:
        return self._read(["scontrol", "show", "node", "-o"])

    def partitions(self) -> str:
        return self._read(["scontrol", "show", "partition", "-o"])

    def cluster(self) -> ClusterConfig:
        """The cluster as slurmctld describes it, for the simulator. Raises ClusterError."""
        return noted(lambda: read_live(self.config(), self.nodes(), self.partitions()))

    def reservations(self) -> tuple[Reservation, ...]:
        return parse_reservations(self._read(ARGV))

    def admin_level(self, user: str) -> str:
        """`None`, `Operator` or `Administrator`; empty for a user that accounting does not know."""
        text = self._read(
            ["sacctmgr", "-n", "-P", "show", "user", f"name={user}", "format=User,AdminLevel"]
        )
        return next((row[1] for row in _rows(text, 2) if row[0] == user), "")

    def limits(self, cluster: str, user: str | None) -> list[JobLimits]:
        """Of all associations, or those of a user."""
        whose = [f"user={user}"] if user else []
        fields = ",".join(("Account", "User", "Partition", "QOS", *LIMIT_FIELDS))
        where = [f"cluster={cluster}"] if cluster else []
        text = self._read(
            ["sacctmgr", "-n", "-P", "show", "assoc", *where, *whose, f"format={fields}"]
        )
        return [
            _limits(row[4:], user=row[1], account=row[0], partition=row[2], qos=row[3])
            for row in _rows(text, 8)
        ]

    def qos(self) -> list[JobLimits]:
        text = self._read(
            ["sacctmgr", "-n", "-P", "show", "qos", f"format={','.join(('Name', *_QOS_FIELDS))}"]
        )
        return [
            _limits(row[1:], user="", account="", partition="", qos=row[0])
            for row in _rows(text, 5)
        ]

    def usage_factors(self) -> dict[str, float]:
        """Of each QOS: how often its jobs' use counts for fair share."""
        text = self._read(["sacctmgr", "-n", "-P", "show", "qos", "format=Name,UsageFactor"])
        return {name: float(factor or 1) for name, factor in _rows(text, 2)}

    def has_records(self, day_s: int) -> bool:
        """Whether accounting has a job that was pending or running in the 24 hours from ``day_s``."""
        return bool(self._read(argv.recorded_jobs(day_s, day_s + DAY_S)).strip())

    def _read(self, command: Sequence[str]) -> str:
        result = self.runner.run(command)
        if result.returncode:
            raise failures.read_failure(command, result.stderr)
        return result.stdout


def noted(describe: Callable[[], ClusterDescription]) -> ClusterConfig:
    """A live cluster; what is unknown in its description is logged once. Raises ClusterUnavailable."""
    try:
        found = describe()
    except InvalidCluster as error:
        raise ClusterUnavailable(f"the live cluster can't be described: {error}") from error
    for note in found.notes:
        if note.kind is NoteKind.UNKNOWN:
            note_once(str(note))
    return found.cluster


def answer_of(ask: Callable[[], T]) -> T | ClusterError:
    """What it returns, or the error that it raises."""
    try:
        return ask()
    except ClusterError as error:
        return error


def controller_time_s(config_text: str) -> int:
    """slurmctld's time as it answered `scontrol show config`. Raises ClusterNonsense."""
    match = re.match(r"Configuration data as of (\d{1,12})\s", config_text)
    if not match:
        raise ClusterNonsense(
            f"scontrol show config: no time in its first line {config_text[:80]!r}."
        )
    return int(match[1])


def _rows(text: str, width: int) -> list[list[str]]:
    rows = [line.split("|") for line in text.splitlines() if line]
    if any(len(row) != width for row in rows):
        raise ClusterNonsense(f"sacctmgr: expected {width} columns, got {text[:80]!r}.")
    return rows


def _limits(
    values: Sequence[str], *, user: str, account: str, partition: str, qos: str
) -> JobLimits:
    """``values``: in the order of LIMIT_FIELDS."""
    max_jobs, max_submit, group_jobs, group_submit = map(_limit, values)
    return JobLimits(
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        max_jobs=max_jobs,
        max_submit=max_submit,
        group_jobs=group_jobs,
        group_submit=group_submit,
    )


def _limit(text: str) -> int | None:
    """Empty, and -1 of some releases: none."""
    if text and not re.fullmatch(r"-?\d{1,18}", text):
        raise ClusterNonsense(f"sacctmgr: expected a limit, got {text!r}.")
    return int(text) if text and int(text) >= 0 else None
