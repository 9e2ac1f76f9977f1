"""What slurmrestd answers -> rows as squeue and sacct print them, so that one place judges what
they mean (`parsing.py`). Pure.

Two families of the API differ in form. Up to v0.0.39 a number is a number and a state a word. From
v0.0.40 on a number is `{"set": true, "infinite": false, "number": 2}` and a state a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mirage.domain import ClusterNode, NodeEvent, Oddity
from mirage.slurm import parsing

Record = Mapping[str, Any]
SOURCE = "slurmrestd"
_FLAGS = (
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "RESIZING",
    "REQUEUED",
    "EXPEDITING",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
)
"""Of a job's state, in the order in which squeue shows one in place of it (`job_state_string`)."""


UNBOUNDED = frozenset({"", "-1", "4294967295", "4294967294"})
"""What a limit that is not set looks like: of some releases INFINITE or NO_VAL of slurm.h."""


def queue_rows(
    records: Iterable[Record], oddities: list[Oddity]
) -> Iterator[tuple[int, list[str]]]:
    """Jobs of slurmctld in squeue's fields (`argv.SQUEUE_FIELDS`), a row an array task.

    A job whose list of tasks is cut short goes to ``oddities``: slurmrestd writes 64 bytes of it
    unless SLURM_BITSTR_LEN=0 is in its environment.
    """
    for number, record in enumerate(records, start=1):
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
            yield number, _queue_row(record, task)


def _queue_row(job: Record, task: str) -> list[str]:
    return [
        str(job.get("job_id", "")),
        task or "N/A",
        _text(job, "user_name"),
        _text(job, "partition"),
        _text(job, "account") or "(null)",
        state(job.get("job_state")),
        number(job.get("node_count")) or "0",
        _time(job.get("submit_time")),
        _limit(job.get("time_limit")),
        _time(job.get("eligible_time")),
        _time(job.get("start_time")),
        _time(job.get("end_time")),
        number(job.get("priority")),
        exit_code(job.get("exit_code")),
        _text(job, "tres_alloc_str") or _text(job, "tres_req_str"),
        _text(job, "nodes"),
        _text(job, "dependency") or "(null)",
        # As squeue: where slurmctld describes the reason, that.
        _text(job, "state_description") or _text(job, "state_reason") or "None",
        _text(job, "name") or "(null)",
        _text(job, "comment") or "(null)",
    ]


def _tasks(job: Record) -> list[str]:
    """Of no array: [""]. Raises ValueError."""
    if waiting := _text(job, "array_task_string"):
        return parsing.array_tasks(f"{job.get('job_id')}_[{waiting}]")
    is_task = number(job.get("array_job_id")) not in ("", "0")
    return [number(job.get("array_task_id")) if is_task else ""]


def record_rows(records: Iterable[Record]) -> Iterator[tuple[int, list[str]]]:
    """Jobs of slurmdbd in sacct's fields (`argv.SACCT_FIELDS`)."""
    for number, record in enumerate(records, start=1):
        yield number, _record_row(record)


def _record_row(job: Record) -> list[str]:
    times, tres = _part(job, "time"), _part(job, "tres")
    shown = state(_part(job, "state").get("current"))
    requested = _tres(tres.get("requested"))
    nodes = number(job.get("allocation_nodes"))
    is_open = shown in ("PENDING", "RUNNING", "SUSPENDED")  # its "end" is the time of the question
    return [
        str(job.get("job_id", "")),
        _shown_id(job),
        _text(job, "user") or _text(_part(job, "association"), "user"),
        _text(job, "partition"),
        shown,
        nodes if nodes not in ("", "0") else str(requested.get("node", 0)),
        _time(times.get("submission")),
        _limit(times.get("limit")),
        _time(times.get("eligible")),
        _time(times.get("start")),
        "Unknown" if is_open else _time(times.get("end")),
        number(job.get("priority")),
        _recorded_exit_code(job, shown),
        _tres_text(_tres(tres.get("allocated"))),
        _tres_text(requested),
        _text(job, "nodes"),
    ]


def _recorded_exit_code(job: Record, state_word: str) -> str:
    """22.05 to 23.02 tell 0 of every job: there 1 stands for any code of a job that failed."""
    code = exit_code(job.get("exit_code"))
    return "1:0" if state_word == "FAILED" and code == "0:0" else code


def _shown_id(job: Record) -> str:
    array = _part(job, "array")
    array_id = number(array.get("job_id"))
    if array_id in ("", "0"):
        return str(job.get("job_id", ""))
    if waiting := _text(array, "task"):
        return f"{array_id}_[{_task_list(waiting)}]"
    return f"{array_id}_{number(array.get('task_id'))}"


def _task_list(text: str) -> str:
    """slurmdbd keeps the waiting tasks as the bits of a number, `0xAA`: 1,3,5,7."""
    if not re.fullmatch(r"0x[0-9A-Fa-f]{1,1000000}", text):
        return text
    bits = int(text, 16)
    return ",".join(str(at) for at in range(bits.bit_length()) if bits >> at & 1)


def submitted_with(job: Record) -> str:
    """The command line of a job of slurmdbd, where the API has it (24.11 on); else its comment,
    which slurmdbd keeps if the site says so (AccountingStoreFlags=job_comment).
    """
    return _text(job, "submit_line") or f"--comment={_text(_part(job, 'comment'), 'job')!r}"


def node(record: Record) -> ClusterNode:
    """A node of slurmctld."""
    state = "+".join(_node_words(record)).lower()
    return parsing.cluster_node(_text(record, "name"), tuple(record.get("partitions") or ()), state)


def _node_words(record: Record) -> list[str]:
    base, flags = record.get("state"), record.get("state_flags") or ()
    words = [base] if isinstance(base, str) else list(base or ())
    return [str(word).upper() for word in (*words, *flags)]


def node_line(record: Record) -> str:
    """A node of slurmctld as `scontrol show node -o` prints what the simulator needs of it."""
    words = {
        "NodeName": _text(record, "name"),
        "CPUTot": number(record.get("cpus")),
        "ThreadsPerCore": number(record.get("threads")),
        "Gres": _text(record, "gres"),
        "RealMemory": number(record.get("real_memory")),
        "Sockets": number(record.get("sockets")),
        "CoresPerSocket": number(record.get("cores")),
        "State": "+".join(_node_words(record)),
        "Weight": number(record.get("weight")) or "1",
    }
    return _line(words)


def partition_line(record: Record) -> str:
    """A partition of slurmctld as `scontrol show partition -o` prints what the simulator needs."""
    most, default = _part(record, "maximums"), _part(record, "defaults")
    priority, nodes = _part(record, "priority"), record.get("nodes")
    state_of = _part(record, "partition").get("state", record.get("state"))
    words = {
        "PartitionName": _text(record, "name"),
        "Default": "YES" if "DEFAULT" in _upper(record.get("flags")) else "NO",
        "DefaultTime": number(default.get("time", record.get("default_time_limit"))),
        "MaxNodes": _bound(most.get("nodes", record.get("maximum_nodes_per_job"))),
        "MaxTime": _bound(most.get("time", record.get("max_time_limit"))),
        "MinNodes": number(_part(record, "minimums").get("nodes", record.get("min nodes per job"))),
        "OverTimeLimit": number(most.get("over_time_limit", record.get("over_time_limit"))),
        "Exclusive": _exclusive(record),
        "Nodes": nodes if isinstance(nodes, str) else _text(_part(record, "nodes"), "configured"),
        "PriorityJobFactor": number(priority.get("job_factor", record.get("priority_job_factor"))),
        "PriorityTier": number(priority.get("tier", record.get("priority_tier"))),
        "State": (_upper(state_of) or ["UP"])[0],
    }
    return _line(words)


def reservation(record: Record) -> dict[str, str]:
    """A reservation as `scontrol show reservation` shows it."""
    return {
        "reservationname": _text(record, "name"),
        "starttime": number(record.get("start_time")),
        "endtime": number(record.get("end_time")),
        "nodes": _text(record, "node_list"),
        "users": _text(record, "users") or "(null)",
    }


def _exclusive(record: Record) -> str:
    """As slurm.conf of 26.05 has it. The API says it from v0.0.45 on; before that such a partition lets
    0 jobs share a resource.
    """
    most = _part(record, "maximums")
    if said := _text(_part(record, "partition"), "exclusive"):
        return said
    shared = _part(most, "oversubscribe")
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
    since = _time(record.get("reason_changed_at"))
    found = node(record)
    return None if found.up or since == "N/A" else NodeEvent(found.name, int(since), None)


def state(value: object) -> str:
    """One word, as squeue shows it: of a state with flags the flag."""
    if not isinstance(value, list):
        return str(value or "")
    flag = next((flag for flag in _FLAGS if flag in value), "")
    return flag or str(value[0] if value else "")


def exit_code(value: object) -> str:
    """`code:signal`, or wait(2)'s status where that is what there is."""
    if not isinstance(value, Mapping):
        return number(value) or "0"
    if "return_code" not in value:
        return number(value) or "0"
    signal = value.get("signal")
    code = signal.get("id", signal.get("signal_id")) if isinstance(signal, Mapping) else None
    return f"{number(value['return_code']) or 0}:{number(code) or 0}"


def number(value: object) -> str:
    """A number in either form of the API; empty: not set."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _time(value: object) -> str:
    text = number(value)
    return "N/A" if text in ("", "0") else text


def _limit(value: object) -> str:
    """Minutes, as sacct's TimelimitRaw and one of the forms of squeue's."""
    return number(value) or "UNLIMITED"


def _tres(value: object) -> dict[str, int]:
    """`[{"type": "gres", "name": "gpu", "count": 2}, ...]` by Slurm's name: `gres/gpu`."""
    found = {}
    for each in value if isinstance(value, list) else ():
        count = each.get("count")
        name = "/".join(filter(None, (each.get("type"), each.get("name"))))
        if isinstance(count, int) and count >= 0:
            found[name] = count
    return found


def _tres_text(tres: Mapping[str, int]) -> str:
    return ",".join(f"{name}={count}" for name, count in tres.items())


def _text(record: Record, name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _part(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def listed(body: Record, name: str) -> Sequence[Record]:
    """The records of an answer. Raises ValueError where there are none."""
    value = body.get(name)
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError(f"there is no list {name!r}")
    return value
