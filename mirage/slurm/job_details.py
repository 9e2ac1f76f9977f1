"""What `scontrol show job -d` says of one job beyond squeue: GPUs by number, node lists, restarts.

Jobs are asked for one by one. Users can write line breaks into the names of their jobs, and so
further lines into this text, but only into that of their own jobs. What it says of nodes and GPUs
counts only where squeue agrees (`JobDetails.fits`). The format was tried on 22.05, 24.11 and 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import hostlist

from mirage.domain import Job
from mirage.errors import ClusterNonsense
from mirage.slurm import failures
from mirage.slurm.runner import Runner

_RECORD = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_SHARE = re.compile(r"^ +Nodes=\S+ .*$", re.MULTILINE)
_GPU = re.compile(
    r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)(?:\(IDX:(?P<index>[0-9,-]+)\))?"
)
_EMPTY = frozenset({"", "(null)", "0", "N/A"})
_WISHES = {
    "Features": "asks for features",
    "Reservation": "runs in a reservation",
    "ExcNodeList": "excludes nodes",
    "Contiguous": "asks for contiguous nodes",
    "Licenses": "uses licences",
    "Switches": "asks for a number of switches",
    "SegmentSize": "asks for segments of a block (--segment)",
    "Network": "asks for a network",
}
"""What ties a job to where it is, beyond its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """What a job has of a node."""

    node: str
    gpus: int
    gpu_numbers: tuple[int, ...]
    """Empty: Slurm does not say which."""
    gpu_type: str
    """As in gres.conf; empty: none is given."""
    cpus: int
    memory_mib: int
    """0: memory is not given to jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """Of one job."""

    job_id: int
    restarts: int
    """How often it was requeued."""
    shares: tuple[NodeShare, ...]
    """By node; empty while it has none."""
    required_nodes: tuple[str, ...]
    ties: tuple[str, ...]
    """Why it must not be moved, in words that follow "job 7"; empty: nothing ties it."""
    takes_whole_nodes: bool

    def fits(self, job: Job) -> bool:
        """Whether squeue says the same of its nodes and its number of GPUs."""
        nodes = sorted(share.node for share in self.shares)
        return (
            nodes == sorted(job.node_names) and sum(share.gpus for share in self.shares) == job.gpus
        )


def details_argv(job_id: int) -> list[str]:
    return ["scontrol", "show", "job", "-d", str(job_id)]


def read_details(runner: Runner, job_id: int) -> JobDetails | None:
    """None: slurmctld does not know the job. Raises ClusterError."""
    command = details_argv(job_id)
    result = runner.run(command)
    if result.returncode and failures.is_unknown_job(result.stderr):
        return None
    if result.returncode:
        raise failures.read_failure(command, result.stderr)
    return parse_details(result.stdout, job_id)


def parse_details(text: str, job_id: int) -> JobDetails:
    """The job's own record; of an array scontrol shows all tasks. Raises ClusterNonsense."""
    starts = [match.start() for match in _RECORD.finditer(text)]
    records = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    record = next((each for each in records if each.startswith(f"JobId={job_id} ")), None)
    names = ("Requeue", "Restarts", "BatchFlag")
    counts = [_value(record, name) for name in names] if record else []
    if not record or not all(map(str.isdecimal, counts)):
        raise ClusterNonsense(
            f"scontrol show job -d {job_id}: no Requeue= and Restarts= in {text[:80]!r}. Nothing"
            " was done; retry later."
        )
    try:
        return JobDetails(
            job_id=job_id,
            restarts=int(counts[1]),
            shares=_shares(record),
            required_nodes=_hosts(_value(record, "ReqNodeList")),
            ties=_ties(record, may_requeue=counts[0] != "0", is_batch=counts[2] != "0"),
            takes_whole_nodes=_takes_whole_nodes(record),
        )
    except ValueError as error:
        raise ClusterNonsense(
            f"scontrol show job -d {job_id}: {error}. Nothing was done."
        ) from None


def _takes_whole_nodes(record: str) -> bool:
    """From 26.05 on OverSubscribe is NO of every such job, and Exclusive says it."""
    exclusive = _value(record, "Exclusive").upper()
    shared = _value(record, "OverSubscribe").upper()
    return exclusive in ("NODE", "TOPO") if exclusive else shared in ("NO", "EXCLUSIVE", "TOPO")


def _ties(record: str, *, may_requeue: bool, is_batch: bool) -> tuple[str, ...]:
    head = record.partition("\n")[0]
    found = [words for key, words in _WISHES.items() if _value(record, key) not in _EMPTY]
    if "TOPO" in (_value(record, "Exclusive"), _value(record, "OverSubscribe")):
        found.append("has a whole switch or block (--exclusive=topo)")
    if not may_requeue:
        found.insert(0, "may not be requeued (--no-requeue)")
    if not is_batch:
        found.insert(0, "is no batch job")
    if "ArrayJobId=" in head:
        found.insert(0, "is a task of a job array")
    if "HetJobId=" in head:
        found.insert(0, "is a part of a heterogeneous job")
    return tuple(found)


def _value(record: str, key: str) -> str:
    match = re.search(rf"^   (?:\S.* )?{key}=(\S*)", record, re.MULTILINE)
    return match[1] if match else ""


def _shares(record: str) -> tuple[NodeShare, ...]:
    found = []
    for match in _SHARE.finditer(record):
        shown = dict(word.partition("=")[::2] for word in match[0].split())
        gpus = list(_GPU.finditer(shown.get("GRES", "")))
        found += [
            NodeShare(
                node=node,
                gpus=sum(int(gpu["count"]) for gpu in gpus),
                gpu_numbers=tuple(n for gpu in gpus for n in _numbers(gpu["index"] or "")),
                gpu_type=",".join(sorted({gpu["type"] or "" for gpu in gpus})),
                cpus=len(_numbers(shown.get("CPU_IDs", ""))),
                memory_mib=int(shown.get("Mem") or 0),
            )
            for node in _hosts(shown["Nodes"])
        ]
    return tuple(found)


def _numbers(text: str) -> list[int]:
    """`0-2,5` -> [0, 1, 2, 5]. Raises ValueError."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        if int(last or first) - int(first) > 1 << 16:
            raise ValueError(f"{text[:80]!r} is no list of numbers")
        found += range(int(first), int(last or first) + 1)
    return found


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return () if text in _EMPTY else tuple(hostlist.expand_hostlist(text))
    except hostlist.BadHostlist as error:
        raise ValueError(f"{text[:80]!r} is no list of nodes: {error}") from None
