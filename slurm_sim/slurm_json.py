"""What Slurm's JSON says of jobs: of `sacct --json`, and of slurmrestd -> values and rows as the commands
print them. Pure; imports nothing heavy.

Two families differ in form. Up to v0.0.39 a number is a number and a state a word. From v0.0.40 on a
number is `{"set": true, "infinite": false, "number": 2}` and a state a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]
RECORD_FIELDS = (
    "JobIDRaw",
    "JobID",
    "User",
    "Partition",
    "State",
    "NNodes",
    "Submit",
    "TimelimitRaw",
    "Eligible",
    "Start",
    "End",
    "Priority",
    "ExitCode",
    "AllocTRES",
    "ReqTRES",
    "NodeList",
)
"""Of sacct. None that users can write a separator into: no Comment, no SubmitLine, no JobName."""
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


def record_rows(records: Iterable[Record]) -> Iterator[tuple[int, list[str]]]:
    """Jobs of slurmdbd in sacct's fields (`RECORD_FIELDS`), each with its number."""
    for number, record in enumerate(records, start=1):
        yield number, _record_row(record)


def _record_row(job: Record) -> list[str]:
    times, tres = part_of(job, "time"), part_of(job, "tres")
    shown = state(part_of(job, "state").get("current"))
    requested = _tres(tres.get("requested"))
    nodes = number(job.get("allocation_nodes"))
    is_open = shown in ("PENDING", "RUNNING", "SUSPENDED")  # its "end" is the time of the question
    return [
        str(job.get("job_id", "")),
        _shown_id(job),
        text_of(job, "user") or text_of(part_of(job, "association"), "user"),
        text_of(job, "partition"),
        shown,
        nodes if nodes not in ("", "0") else str(requested.get("node", 0)),
        time_of(times.get("submission")),
        limit_of(times.get("limit")),
        time_of(times.get("eligible")),
        time_of(times.get("start")),
        "Unknown" if is_open else time_of(times.get("end")),
        number(job.get("priority")),
        _recorded_exit_code(job, shown),
        _tres_text(_tres(tres.get("allocated"))),
        _tres_text(requested),
        text_of(job, "nodes"),
    ]


def _recorded_exit_code(job: Record, state_word: str) -> str:
    """22.05 to 23.02 tell 0 of every job: there 1 stands for any code of a job that failed."""
    code = exit_code(job.get("exit_code"))
    return "1:0" if state_word == "FAILED" and code == "0:0" else code


def _shown_id(job: Record) -> str:
    array = part_of(job, "array")
    array_id = number(array.get("job_id"))
    if array_id in ("", "0"):
        return str(job.get("job_id", ""))
    if waiting := text_of(array, "task"):
        return f"{array_id}_[{_task_list(waiting)}]"
    return f"{array_id}_{number(array.get('task_id'))}"


def _task_list(text: str) -> str:
    """slurmdbd keeps the waiting tasks as the bits of a number, `0xAA`: 1,3,5,7."""
    if not re.fullmatch(r"0x[0-9A-Fa-f]{1,1000000}", text):
        return text
    bits = int(text, 16)
    return ",".join(str(at) for at in range(bits.bit_length()) if bits >> at & 1)


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


def time_of(value: object) -> str:
    text = number(value)
    return "N/A" if text in ("", "0") else text


def limit_of(value: object) -> str:
    """Minutes, as sacct's TimelimitRaw and one of the forms of squeue's."""
    return number(value) or "UNLIMITED"


def _tres(value: object) -> dict[str, int]:
    """`[{"type": "gres", "name": "gpu", "count": 2}, ...]` by Slurm's name: `gres/gpu`."""
    found = {}
    for each in value if isinstance(value, list) else ():
        if not isinstance(each, Mapping):
            continue
        count = each.get("count")
        name = "/".join(filter(None, (text_of(each, "type"), text_of(each, "name"))))
        if name and isinstance(count, int) and count >= 0:
            found[name] = count
    return found


def _tres_text(tres: Mapping[str, int]) -> str:
    return ",".join(f"{name}={count}" for name, count in tres.items())


def text_of(record: Record, name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def part_of(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}
