"""One table of what Slurm's reasons mean for "queues for nodes"."""

from __future__ import annotations

import logging

import pytest

from mirage import reasons
from mirage.domain import queues_for_nodes
from mirage.reasons import KINDS, ReasonKind, kind_of, reasons_of
from tests.libslurm import RELEASES, Release

PRINT_REASONS = """
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
name = getattr(lib, "slurm_job_state_reason_string", None) or lib.slurm_job_reason_string
name.restype = ctypes.c_char_p
print(json.dumps([name(number).decode() for number in range(1000)]))
"""


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_table_has_every_reason_that_libslurm_has(release: Release) -> None:
    # Numbers that a release does not use are printed as they are, or as "InvalidReason" (24.11:
    # "InvaildReason").
    names = {
        name
        for name in release.ask(PRINT_REASONS)
        if name.isalpha() and not name.startswith("Inva")
    }
    names |= {
        name for name in release.ask(PRINT_REASONS) if name in ("InvalidAccount", "InvalidQOS")
    }
    assert len(names) > 190
    assert names <= KINDS.keys()
    known = reasons_of("22.05" if release.name == "machine" else release.name)
    assert names == known


def test_each_name_stands_in_the_table_once() -> None:
    assert sum(map(len, reasons._NAMES.values())) == len(KINDS)


@pytest.mark.parametrize("prefix", ["QOSGrp", "QOSMax", "QOSMin", "AssocGrp", "AssocMax", "Max"])
def test_limits_of_qos_association_and_account_are_no_queueing(prefix: str) -> None:
    names = [name for name in KINDS if name.startswith(prefix) and name != "MaxPoweredUpNodes"]
    assert names
    assert not any(map(queues_for_nodes, names))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("", ReasonKind.NODES),
        ("None", ReasonKind.NODES),
        ("Priority", ReasonKind.NODES),
        ("Resources", ReasonKind.NODES),
        ("WaitingForScheduling", ReasonKind.NODES),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", ReasonKind.NODES),
        ("ReqNodeNotAvail,_May_be_reserved_for_other_job", ReasonKind.NODES),
        (
            (
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"
                " partitions"
            ),
            ReasonKind.NODES,
        ),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
            ReasonKind.NODES,
        ),
        ("RaisedSignal:9(Killed)", ReasonKind.NODES),
        ("launch failed requeued held", ReasonKind.HELD),
        ("launch_failed_requeued_held", ReasonKind.HELD),
        ("launch failure limit exceeded requeued held", ReasonKind.HELD),
        ("user env retrieval failed requeued held", ReasonKind.HELD),
        ("job requeued in held state", ReasonKind.HELD),
        ("job requeued in special exit state", ReasonKind.HELD),
        ("ReservationDeleted", ReasonKind.HELD),
        ("JobHoldMaxRequeue", ReasonKind.HELD),
        ("DependencyNeverSatisfied", ReasonKind.DEPENDENCY),
        ("BeginTime", ReasonKind.BEGIN),
        ("JobArrayTaskLimit", ReasonKind.THROTTLE),
        ("Licenses", ReasonKind.RESOURCE),
        ("MaxMemPerLimit", ReasonKind.CANNOT_RUN),
        ("BadConstraints", ReasonKind.CANNOT_RUN),
        # names that a newer release may have
        ("MaxNVMeRunMinsPerAccount", ReasonKind.LIMIT),
        ("MaxNVMePerPartition", ReasonKind.LIMIT),
        ("QOSGrpNVMeMinutes", ReasonKind.LIMIT),
        ("AssocMaxNVMePerJob", ReasonKind.LIMIT),
        ("JobHeldByPlugin", ReasonKind.HELD),
        ("PartitionAsleep", ReasonKind.CANNOT_RUN),
        ("SomethingOfTomorrow", ReasonKind.NODES),
    ],
)
def test_what_a_reason_means(reason: str, kind: ReasonKind) -> None:
    assert kind_of(reason) is kind
    assert queues_for_nodes(reason) is (kind is ReasonKind.NODES)


def test_a_reason_of_a_newer_release_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            kind_of.cache_clear()
            kind_of("QOSGrpWarpCores")
            kind_of("Priority")
    (record,) = caplog.records
    assert (
        "QOSGrpWarpCores is not known here; by its name it is taken for: limit"
        in record.getMessage()
    )
