"""What slurmrestd answers -> rows as squeue and sacct print them, so that one place judges what
they mean (`parsing.py`). Pure. What `sacct --json` says in the same form: `slurm_sim.slurm_json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mirage.domain import ClusterNode, NodeEvent, Oddity
from mirage.slurm import fields, parsing
from slurm_sim.slurm_json import (
    Record,
    exit_code,
    limit_of,
    number,
    part_of,
    state,
    text_of,
    time_of,
)

SOURCE = "slurmrestd"
UNBOUNDED = frozenset({"", "-1", "4294967295", "4294967294"})
"""What a limit that is not set looks like: of some releases INFINITE or NO_VAL of slurm.h."""


def queue_rows(
    records: Iterable[Record], oddities: list[Oddity]
) -> Iterator[tuple[int, list[str]]]:
    """Jobs of slurmctld in squeue's fields (`argv.SQUEUE_FIELDS`), a row an array task.

    A job whose list of tasks is cut short goes to ``oddities``: slurmrestd writes 64 bytes of it
    unless SLURM_BITSTR_LEN=0 is in its environment.
    """
    for nth, record in enumerate(records, start=1):
        try:
            tasks = _tasks(record)
        except ValueError:
            oddities.append(
                Oddity(
                    job_id=int(record["job_id"]),
                    user=str(record.get("user_name", "")),
                    field="array_task_string",
                    text=str(record["array_task_string"])[:80],
                    is_set_apart=True,
                )
            )
            continue
        for task in tasks:
            yield nth, _queue_row(record, task)


def _queue_row(job: Record, task: str) -> list[str]:
    return [
        str(job.get("job_id", "")),
        task or "N/A",
        text_of(job, "user_name"),
        text_of(job, "partition"),
        text_of(job, "account") or "(null)",
        state(job.get("job_state")),
        number(job.get("node_count")) or "0",
        time_of(job.get("submit_time")),
        limit_of(job.get("time_limit")),
        time_of(job.get("eligible_time")),
        time_of(job.get("start_time")),
        time_of(job.get("end_time")),
        number(job.get("priority")),
        exit_code(job.get("exit_code")),
        text_of(job, "tres_alloc_str") or text_of(job, "tres_req_str"),
        text_of(job, "nodes"),
        text_of(job, "dependency") or "(null)",
        # As squeue: where slurmctld describes the reason, that.
        text_of(job, "state_description") or text_of(job, "state_reason") or "None",
        text_of(job, "name") or "(null)",
        text_of(job, "comment") or "(null)",
    ]


def _tasks(job: Record) -> list[str]:
    """Of no array: [""]. Raises ValueError."""
    if waiting := text_of(job, "array_task_string"):
        return fields.array_tasks(f"{job.get('job_id')}_[{waiting}]")
    is_task = number(job.get("array_job_id")) not in ("", "0")
    return [number(job.get("array_task_id")) if is_task else ""]


def submitted_with(job: Record) -> str:
    """The command line of a job of slurmdbd, where the API has it (24.11 on); else its comment,
    which slurmdbd keeps if the site says so (AccountingStoreFlags=job_comment).
    """
    return text_of(job, "submit_line") or f"--comment={text_of(part_of(job, 'comment'), 'job')!r}"


def node(record: Record) -> ClusterNode:
    """A node of slurmctld."""
    state = "+".join(_node_words(record)).lower()
    return parsing.cluster_node(
        text_of(record, "name"), tuple(record.get("partitions") or ()), state
    )


def _node_words(record: Record) -> list[str]:
    base, flags = record.get("state"), record.get("state_flags") or ()
    words = [base] if isinstance(base, str) else list(base or ())
    return [str(word).upper() for word in (*words, *flags)]


def node_line(record: Record) -> str:
    """A node of slurmctld as `scontrol show node -o` prints what the simulator needs of it."""
    words = {
        "NodeName": text_of(record, "name"),
        "CPUTot": number(record.get("cpus")),
        "ThreadsPerCore": number(record.get("threads")),
        "Gres": text_of(record, "gres"),
        "RealMemory": number(record.get("real_memory")),
        "Sockets": number(record.get("sockets")),
        "CoresPerSocket": number(record.get("cores")),
        "State": "+".join(_node_words(record)),
        "Weight": number(record.get("weight")) or "1",
    }
    return _line(words)


def partition_line(record: Record) -> str:
    """A partition of slurmctld as `scontrol show partition -o` prints what the simulator needs."""
    most, default = part_of(record, "maximums"), part_of(record, "defaults")
    priority, nodes = part_of(record, "priority"), record.get("nodes")
    state_of = part_of(record, "partition").get("state", record.get("state"))
    words = {
        "PartitionName": text_of(record, "name"),
        "Default": "YES" if "DEFAULT" in _upper(record.get("flags")) else "NO",
        "DefaultTime": number(default.get("time", record.get("default_time_limit"))),
        "MaxNodes": _bound(most.get("nodes", record.get("maximum_nodes_per_job"))),
        "MaxTime": _bound(most.get("time", record.get("max_time_limit"))),
        "MinNodes": number(
            part_of(record, "minimums").get("nodes", record.get("min nodes per job"))
        ),
        "OverTimeLimit": number(most.get("over_time_limit", record.get("over_time_limit"))),
        "Exclusive": _exclusive(record),
        "Nodes": nodes
        if isinstance(nodes, str)
        else text_of(part_of(record, "nodes"), "configured"),
        "PriorityJobFactor": number(priority.get("job_factor", record.get("priority_job_factor"))),
        "PriorityTier": number(priority.get("tier", record.get("priority_tier"))),
        "State": (_upper(state_of) or ["UP"])[0],
    }
    return _line(words)


def reservation(record: Record) -> dict[str, str]:
    """A reservation as `scontrol show reservation` shows it."""
    return {
        "reservationname": text_of(record, "name"),
        "starttime": number(record.get("start_time")),
        "endtime": number(record.get("end_time")),
        "nodes": text_of(record, "node_list"),
        "users": text_of(record, "users") or "(null)",
    }


def _exclusive(record: Record) -> str:
    """As slurm.conf of 26.05 has it. The API says it from v0.0.45 on; before that such a partition lets
    0 jobs share a resource.
    """
    most = part_of(record, "maximums")
    if said := text_of(part_of(record, "partition"), "exclusive"):
        return said
    shared = part_of(most, "oversubscribe")
    jobs = number(most.get("shares", record.get("max_share")))
    return "NODE" if jobs == "0" or "EXCLUSIVE" in _upper(shared.get("flags")) else "NO"


def _line(words: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in words.items() if value)


def _bound(value: object) -> str:
    text = number(value)
    return "UNLIMITED" if text in UNBOUNDED else text


def _upper(value: object) -> list[str]:
    return [str(each).upper() for each in (value if isinstance(value, list) else [value]) if each]


def down_since(record: Record) -> NodeEvent | None:
    """Since when a node is down or drained; None: it is up, or slurmctld does not say. Raises
    ValueError.
    """
    since = time_of(record.get("reason_changed_at"))
    found = node(record)
    return None if found.up or since == "N/A" else NodeEvent(found.name, int(since), None)


def listed(body: Record, name: str) -> Sequence[Record]:
    """The records of an answer. Raises ValueError where there are none."""
    value = body.get(name)
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError(f"there is no list {name!r}")
    return value
