"""Why a pending job waits: every reason that Slurm has, and what it means for "queues for nodes".

Names are those that libslurm of 22.05, 24.11 and 26.05 has (`job_state_reason_string`); meanings
are those of Slurm's page job_reason_codes.html and of squeue(1), JOB REASON CODES. In place of a
name squeue may print a sentence of slurmctld, `launch failed requeued held`: `kind_of` reads those
too.
"""

from __future__ import annotations

import logging
import re
from enum import Enum
from functools import lru_cache

log = logging.getLogger(__name__)


class ReasonKind(str, Enum):
    """What keeps a pending job from starting."""

    NODES = "nodes"
    """It competes for nodes with the others."""
    HELD = "held"
    """Somebody, or slurmctld, holds it until somebody lets it go."""
    DEPENDENCY = "dependency"
    BEGIN = "begin time"
    """Its begin time, or that of its reservation, has not come."""
    THROTTLE = "array throttle"
    """Its array may not have more tasks running (`--array=1-9%2`)."""
    LIMIT = "limit"
    """Of its QOS, association or account."""
    RESOURCE = "another resource"
    """It waits for something that is no part of a node: licences, burst buffers, power."""
    CANNOT_RUN = "cannot run"
    """As the job and the site are now, no free node would start it."""


COMPETING = frozenset({ReasonKind.NODES})
BEFORE_ELIGIBLE = frozenset({ReasonKind.BEGIN, ReasonKind.DEPENDENCY, ReasonKind.HELD})
"""With these Slurm does not count a job as eligible."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES: dict[ReasonKind, frozenset[str]] = {
    # The reasons of the second line tell how the last run of a requeued job ended: it competes
    # again.
    ReasonKind.NODES: _names("""
        None Priority Resources ReqNodeNotAvail Cleaning FedJobLock Prolog SchedDefer MaxPoweredUpNodes
        InactiveLimit JobLaunchFailure NonZeroExitCode OutOfMemory RaisedSignal SystemFailure TimeLimit
        """),
    ReasonKind.HELD: _names("""
        JobHeldAdmin JobHeldUser JobHoldMaxRequeue BurstBufferOperation ReservationDeleted ReservationInvalid
        """),
    ReasonKind.DEPENDENCY: _names("Dependency DependencyNeverSatisfied"),
    ReasonKind.BEGIN: _names("BeginTime Reservation"),
    ReasonKind.THROTTLE: _names("JobArrayTaskLimit"),
    ReasonKind.RESOURCE: _names("""
        Licenses BurstBufferResources BurstBufferStageIn MpiPortsBusy NvidiaImexChannels PowerNotAvail PowerReserved
        """),
    ReasonKind.CANNOT_RUN: _names("""
        AccountNotAllowed BadConstraints BlockFreeAction BlockMaxError Constraints DeadLine FrontEndDown InvalidAccount
        InvalidQOS MaxMemPerLimit NodeDown PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit
        PartitionTimeLimit QOSNotAllowed
        """),
    ReasonKind.LIMIT: _names("""
        AccountingPolicy AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
        AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes AssocGrpBilling AssocGrpBillingMinutes
        AssocGrpBillingRunMinutes AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpCpuLimit AssocGrpEnergy
        AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
        AssocGrpJobsLimit AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocGrpMemLimit
        AssocGrpMemMinutes AssocGrpMemRunMinutes AssocGrpNodeLimit AssocGrpNodeMinutes AssocGrpNodeRunMinutes
        AssocGrpSubmitJobsLimit AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocGrpWallLimit
        AssocMaxBBMinutesPerJob AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxBillingMinutesPerJob AssocMaxBillingPerJob
        AssocMaxBillingPerNode AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode
        AssocMaxEnergyMinutesPerJob AssocMaxEnergyPerJob AssocMaxEnergyPerNode AssocMaxGRESMinutesPerJob
        AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxJobsLimit AssocMaxLicenseMinutesPerJob AssocMaxLicensePerJob
        AssocMaxMemMinutesPerJob AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxNodeMinutesPerJob
        AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit AssocMaxUnknownMinutesPerJob AssocMaxUnknownPerJob
        AssocMaxUnknownPerNode AssocMaxWallDurationPerJobLimit
        QOSGrpBB QOSGrpBBMinutes QOSGrpBBRunMinutes QOSGrpBilling QOSGrpBillingMinutes QOSGrpBillingRunMinutes
        QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpCpuLimit QOSGrpEnergy QOSGrpEnergyMinutes
        QOSGrpEnergyRunMinutes QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes QOSGrpJobsLimit QOSGrpLicense
        QOSGrpLicenseMinutes QOSGrpLicenseRunMinutes QOSGrpMemLimit QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes
        QOSGrpNodeLimit QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSGrpSubmitJobsLimit QOSGrpUnknown
        QOSGrpUnknownMinutes QOSGrpUnknownRunMinutes QOSGrpWallLimit
        QOSJobLimit QOSResourceLimit QOSTimeLimit QOSUsageThreshold
        QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBBPerUser QOSMaxBillingMinutesPerJob QOSMaxBillingPerJob
        QOSMaxBillingPerNode QOSMaxBillingPerUser QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode
        QOSMaxCpuPerUserLimit QOSMaxEnergyMinutesPerJob QOSMaxEnergyPerJob QOSMaxEnergyPerNode QOSMaxEnergyPerUser
        QOSMaxGRESMinutesPerJob QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser QOSMaxJobsPerUserLimit
        QOSMaxLicenseMinutesPerJob QOSMaxLicensePerJob QOSMaxLicensePerUser QOSMaxMemoryMinutesPerJob
        QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxNodeMinutesPerJob QOSMaxNodePerJobLimit
        QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxUnknownMinutesPerJob QOSMaxUnknownPerJob
        QOSMaxUnknownPerNode QOSMaxUnknownPerUser QOSMaxWallDurationPerJobLimit
        QOSMinBB QOSMinBilling QOSMinCpuNotSatisfied QOSMinEnergy QOSMinGRES QOSMinLicense QOSMinMemory QOSMinNode
        QOSMinUnknown
        MaxBBPerAccount MaxBillingPerAccount MaxCpuPerAccount MaxEnergyPerAccount MaxGRESPerAccount MaxJobsPerAccount
        MaxLicensePerAccount MaxMemoryPerAccount MaxNodePerAccount MaxSubmitJobsPerAccount MaxUnknownPerAccount
        MaxBBRunMinsPerAccount MaxBillingRunMinsPerAccount MaxCpuRunMinsPerAccount MaxEnergyRunMinsPerAccount
        MaxGRESRunMinsPerAccount MaxLicenseRunMinsPerAccount MaxMemoryRunMinsPerAccount MaxNodeRunMinsPerAccount
        MaxUnknownRunMinsPerAccount
        MaxBBRunMinsPerUser MaxBillingRunMinsPerUser MaxCpuRunMinsPerUser MaxEnergyRunMinsPerUser
        MaxGRESRunMinsPerUser MaxLicenseRunMinsPerUser MaxMemoryRunMinsPerUser MaxNodeRunMinsPerUser
        MaxUnknownRunMinsPerUser
        """),
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
"""Each name of Slurm's and what it means."""

RELEASES = ("22.05", "24.11", "26.05")
"""The releases whose lists these are."""
_NEW = {
    "24.11": _names("""
        Constraints MaxPoweredUpNodes MpiPortsBusy RaisedSignal ReservationInvalid
        MaxBBRunMinsPerAccount MaxBillingRunMinsPerAccount MaxCpuRunMinsPerAccount MaxEnergyRunMinsPerAccount
        MaxGRESRunMinsPerAccount MaxLicenseRunMinsPerAccount MaxMemoryRunMinsPerAccount MaxNodeRunMinsPerAccount
        MaxUnknownRunMinsPerAccount
        MaxBBRunMinsPerUser MaxBillingRunMinsPerUser MaxCpuRunMinsPerUser MaxEnergyRunMinsPerUser
        MaxGRESRunMinsPerUser MaxLicenseRunMinsPerUser MaxMemoryRunMinsPerUser MaxNodeRunMinsPerUser
        MaxUnknownRunMinsPerUser
        """),
    "26.05": _names("NvidiaImexChannels"),
}
_GONE = {
    "24.11": _names("BlockFreeAction BlockMaxError PowerNotAvail PowerReserved"),
    "26.05": _names("FrontEndDown"),
}

# Sentences that squeue prints in place of a name, by how they begin. scontrol prints `_` for each
# blank.
_SENTENCES = (
    ("launch failed requeued held", ReasonKind.HELD),
    ("job requeued in held state", ReasonKind.HELD),
    ("job requeued in special exit", ReasonKind.HELD),
    ("nodes required for job are down, drained or reserved", ReasonKind.NODES),
    ("waitingforscheduling", ReasonKind.NODES),  # squeue(1): no reason has been set yet
)
# A name that a newer release may have, by its shape: Slurm's limits have names like these.
_SHAPES = (
    (
        re.compile(r"(QOS|Assoc)(Grp|Max|Min|iation|\w*Limit)|Max\w*(Per[A-Z]|Limit)"),
        ReasonKind.LIMIT,
    ),
    (re.compile(r"\w*(Held|Hold)|\w*Reservation(Deleted|Invalid)"), ReasonKind.HELD),
    (re.compile(r"Dependency"), ReasonKind.DEPENDENCY),
    (re.compile(r"\w*Licen[sc]e|BurstBuffer|Power"), ReasonKind.RESOURCE),
    (re.compile(r"Partition|Invalid|\w*NotAllowed|BadConstraint"), ReasonKind.CANNOT_RUN),
)
_NAME = re.compile(r"[A-Za-z]+")


def reasons_of(release: str) -> frozenset[str]:
    """The names that a release of `RELEASES` has."""
    later = RELEASES[RELEASES.index(release) + 1 :]
    upto = RELEASES[: RELEASES.index(release) + 1]
    not_yet = frozenset[str]().union(*(_NEW.get(other, ()) for other in later))
    no_more = frozenset[str]().union(*(_GONE.get(other, ()) for other in upto))
    return frozenset(KINDS) - not_yet - no_more


@lru_cache(maxsize=1 << 10)
def kind_of(reason: str) -> ReasonKind:
    """What a reason means, as squeue or scontrol prints it; empty counts as `None`.

    A name that is not in the table is judged by its shape, and logged once.
    """
    first = match[0] if (match := _NAME.match(reason)) else "None"
    if first in KINDS:  # also `ReqNodeNotAvail, UnavailableNodes:n1` and `RaisedSignal:9(Killed)`
        return KINDS[first]
    sentence = reason.replace("_", " ").casefold()
    for start, kind in _SENTENCES:
        if sentence.startswith(start):
            return kind
    if re.search(r"\bheld\b", sentence):
        return ReasonKind.HELD
    if first == reason:
        kind = next((kind for shape, kind in _SHAPES if shape.match(reason)), ReasonKind.NODES)
        _log_unknown(reason, kind)
        return kind
    return ReasonKind.NODES


_logged: set[str] = set()


def _log_unknown(reason: str, kind: ReasonKind) -> None:
    if reason not in _logged and len(_logged) < 100:
        _logged.add(reason)
        log.warning(
            "Slurm's reason %s is not known here; by its name it is taken for: %s",
            reason,
            kind.value,
        )
