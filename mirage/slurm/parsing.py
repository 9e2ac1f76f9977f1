"""What Slurm's commands print -> records. Pure. Anything else than their documented output is
ClusterNonsense.

Three kinds of text are distinguished.

The *frame* (which field is which) no user can forge: every field that squeue prints ends with a
nonce that nobody can see (`argv.squeue_format`), sacct is asked for no free text but in fields of
fixed width. So a broken frame is Slurm's own doing, an answer cut short or a foreign message, and
the whole answer is refused.

The job's *id* says whose the rest of a row is. If it is wrong, the answer is not what we take it for,
and it is refused too.

All other fields hold what *users* asked for, and slurmctld takes nearly anything,
`--gres=gpu:1000000000000000000`, or what a newer release says. They cost one job at most: a number
that is too large becomes the largest that can be meant, a job with a value that can't be read is left
out. Both are reported (`Oddity`). Lines that are no rows are left out and logged, if others are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import NamedTuple, NoReturn, TypeVar

import hostlist

from mirage.chain.durations import parse_time_limit
from mirage.chain.sbatch import submitted_ids
from mirage.domain import MAX_NAME, ClusterNode, Job, JobState, NodeEvent, Oddity, Settings
from mirage.errors import ClusterNonsense
from mirage.slurm.argv import LINE_FIELDS, SACCT_FIELDS, SQUEUE_FIELDS
from mirage.slurm.failures import advice
from mirage.slurm.oddities import note_once
from slurm_sim.node_states import NodeState, node_state

Record = TypeVar("Record")

_NO_TIME = frozenset({"", "N/A", "NONE", "None", "Unknown"})
# NOT_SET and Partition_Limit: the job's owner set none. INVALID: squeue's word for more than a
# year.
_NO_LIMIT = frozenset({"", "INVALID", "NOT_SET", "Partition_Limit", "UNLIMITED"})
_NO_NODES = frozenset({"", "(null)", "None assigned"})
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3, "?": math.inf}
"""``?`` is Slurm's sign for more than petabytes."""
# States of newer releases, and flags that squeue shows in place of the state.
_SAME_STATE = {
    "EXPEDITING": JobState.PENDING,
    "LAUNCH_FAILED": JobState.PENDING,
    "POWER_UP_NODE": JobState.CONFIGURING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
}
_STATES = {state.value: state for state in JobState} | _SAME_STATE
_ENDED = frozenset(state for state in JobState if state.is_over) | {
    JobState.COMPLETING,
    JobState.REQUEUED,
}
_NOT_STARTED = frozenset({JobState.PENDING, JobState.SPECIAL_EXIT, JobState.REVOKED})

MAX_COUNT = 2**31 - 1
"""The largest number of nodes, CPUs or GPUs that can be meant; also what the store's integers hold.
"""
MAX_MEMORY_MIB = 2**50
MAX_S = 2**53
"""No time is later."""
_MAX_ARRAY_TASKS = 4_000_001
"""The largest MaxArraySize (slurm.conf(5))."""
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([1-9][0-9]{0,8}))?")
_BLOCK = 1 << 20
"""Characters of an answer that are split at once."""
_SHOWN = 80
"""Characters of an unreadable answer that an error quotes."""


class JobListing(NamedTuple):
    """What an answer holds: the jobs that can be read, and what is odd about some."""

    jobs: list[Job]
    oddities: list[Oddity]


def parse_output_files(text: str) -> tuple[str, ...]:
    """StdOut and StdErr of `scontrol show job` for one job; once if they are the same."""
    found = dict(re.findall(r"^ *(StdErr|StdOut)=(/.*)$", text, re.MULTILINE))
    return tuple(dict.fromkeys(found[key] for key in ("StdOut", "StdErr") if key in found))


def parse_squeue(text: str, nonce: str, now_s: int) -> JobListing:
    """The answer to `argv.squeue`, with the format that `argv.squeue_format` gives for the nonce.

    A task of an array that has not been split off yet shares its job id with its fellows; (job_id,
    array_task) is unique. ``now_s``: a begin time after it has not come yet. Raises
    ClusterNonsense.
    """
    return read_queue("squeue", _framed(text, nonce), now_s)


def read_queue(source: str, rows: Iterable[tuple[int, Sequence[str]]], now_s: int) -> JobListing:
    """Jobs of the queue out of rows of `argv.SQUEUE_FIELDS`, each with its number in the answer.

    ``source``: what errors name, `squeue`. Raises ClusterNonsense.
    """
    listed = JobListing([], [])
    for line, fields in rows:
        try:
            _add(listed, [queued_job(fields, now_s)])
        except ValueError as error:
            listed.oddities.append(_set_apart(source, line, SQUEUE_FIELDS, fields, error))
    if len({(job.job_id, job.array_task) for job in listed.jobs}) != len(listed.jobs):
        raise ClusterNonsense(f"{source}: a job is listed twice. Nothing was done; retry later.")
    return _checked(source, listed)


def parse_sacct(text: str, now_s: int) -> JobListing:
    """The answer to one of `argv.sacct` or `argv.submissions`. A record of several pending tasks
    becomes one each.

    slurmdbd may be seconds late: a job asked for by id can then have no partition, user or nodes
    yet. Raises ClusterNonsense.
    """
    return read_records("sacct", _lines("sacct", text, len(SACCT_FIELDS)), now_s)


def read_records(source: str, rows: Iterable[tuple[int, Sequence[str]]], now_s: int) -> JobListing:
    """Accounting records out of rows of `argv.SACCT_FIELDS`; else as `read_queue`."""
    listed = JobListing([], [])
    for line, fields in rows:
        try:
            _add(listed, _accounted_jobs(fields, now_s))
        except ValueError as error:
            listed.oddities.append(_set_apart(source, line, SACCT_FIELDS, fields, error))
    return _checked(source, listed)


def parse_submit_lines(answer: bytes) -> dict[tuple[int, int], str]:
    """The answer to one of `argv.submit_lines`: what sbatch was called with, by job and submit
    time.

    Bytes, since sacct counts them: each record has the same number. Raises ClusterNonsense.
    """
    ends = [0]
    for _, width in LINE_FIELDS:
        ends.append(ends[-1] + width + 1)  # a blank after each
    length = ends[-1] + 1
    found = {}
    for number, start in enumerate(range(0, len(answer), length), start=1):
        record = answer[start : start + length]
        job_id, submit, line = (
            record[first:last].decode(errors="replace").strip() for first, last in pairwise(ends)
        )
        try:
            if len(record) != length or not record.endswith(b"\n"):
                raise ValueError(f"cut short: it has no {length} characters")
            found[_number(job_id), _needed(_time(submit))] = line
        except ValueError as error:
            _nonsense("sacct", number, record.decode(errors="replace"), str(error))
    return found


def parse_sinfo(text: str) -> tuple[ClusterNode, ...]:
    """The answer to `argv.sinfo()`, one record a node. A cluster without nodes is nonsense."""
    partitions: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    for _, (name, partition, state) in _read("sinfo", text.replace("|\n", "\n"), 3, _node_line):
        partitions.setdefault(name, []).append(partition)
        states[name] = state
    if not states:
        raise ClusterNonsense(
            "sinfo: empty answer, but every cluster has nodes. Nothing was done; retry later."
        )
    return tuple(
        cluster_node(name, tuple(partitions[name]), state) for name, state in states.items()
    )


def parse_node_events(text: str) -> list[NodeEvent]:
    """The answer to `argv.node_events`."""
    return [event for _, event in _read("sacctmgr", text, 3, _node_event)]


def _node_event(fields: list[str]) -> NodeEvent:
    name, start, end = fields
    return NodeEvent(_word(name), _needed(_time(start)), _time(end))


def parse_settings(text: str) -> Settings:
    """The answer to `argv.settings()`."""
    pairs = (line.split("=", 1) for line in text.split("\n") if "=" in line)
    parameters = {key.strip(): value.strip() for key, value in pairs}
    if not parameters.get("SLURM_VERSION"):
        _nonsense("scontrol show config", 1, text, "no SLURM_VERSION in it")
    return Settings(
        version=parameters["SLURM_VERSION"],
        cluster=parameters.get("ClusterName", ""),
        accrue_always="ACCRUE_ALWAYS" in parameters.get("PriorityFlags", "").upper().split(","),
        parameters=parameters,
    )


def parse_submitted(text: str) -> int:
    """The job id that `sbatch --parsable` printed, `123` or `123;cluster`, behind a banner or
    before one.
    """
    if not (ids := submitted_ids(text)):
        raise ClusterNonsense(
            f"sbatch: expected a job id; it printed {_shown(text)}. {advice('sbatch')}"
        )
    return ids[-1]


def queued_job(fields: Sequence[str], now_s: int) -> Job:
    """A job whose fields are those of `argv.SQUEUE_FIELDS`, as squeue prints them. Raises
    ValueError.

    Too large numbers are cut: `oddities_of` finds them.
    """
    shown = dict(zip(SQUEUE_FIELDS, fields, strict=True))
    priority, node_list = shown["PriorityLong"], shown["NodeList"]
    state = _state(_first(shown["State"]))
    if state is JobState.UNKNOWN:
        state = _by_nodes(shown, now_s)
    eligible_s, start_s, end_s = _queued_times(shown, state, now_s)
    counts = _counts(shown["tres-alloc"])
    return Job(
        job_id=_number(shown["JobID"]),
        user=_user(shown["UserName"]),
        partition=_word(shown["Partition"]),
        account="" if shown["Account"] == "(null)" else _shared(shown["Account"]),
        state=state,
        nodes=_count(shown["NumNodes"]),
        submit_s=_needed(_time(shown["SubmitTime"])),
        time_limit_s=_limit(shown["TimeLimit"]),
        reason="" if shown["Reason"] == "None" else _shared(shown["Reason"]),
        eligible_s=_eligible(eligible_s, start_s, end_s or now_s),
        begin_s=_begin(eligible_s, start_s, end_s or now_s),
        start_s=start_s,
        planned_s=_planned(shown, state, now_s),
        end_s=end_s,
        dependency="" if shown["Dependency"] == "(null)" else shown["Dependency"],
        priority=_number(priority or "0"),
        gpus=counts.gpus,
        cpus=counts.cpus,
        memory_mib=counts.memory_mib,
        exit_code=_exit_code(shown["exit_code"]),
        comment="" if shown["Comment"] == "(null)" else shown["Comment"],
        name=_job_name(shown["Name"]),
        # Of a pending job squeue shows the nodes that it is planned for.
        node_names=_node_names(node_list) if state.has_nodes else (),
        array_task="" if shown["ArrayTaskID"] == "N/A" else shown["ArrayTaskID"],
        has_zero_priority=state in _NOT_STARTED and priority == "0",
    )


@lru_cache(maxsize=1 << 12)
def _shared(text: str) -> str:
    """Jobs with the same text share one, which saves memory."""
    return text


@lru_cache(maxsize=1 << 12)
def _job_name(text: str) -> str:
    """For people to read: no control characters, which a terminal would obey, and no long text."""
    shown = "".join(each if each.isprintable() else "?" for each in text[: MAX_NAME + 1])
    return shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 1] + "…"


def _by_nodes(shown: Mapping[str, str], now_s: int) -> JobState:
    """Of a job in a state of a newer release: it runs if it has nodes now, and waits if it has none."""
    start_s, end_s = _time(shown["StartTime"]), _time(shown["EndTime"])
    if shown["NodeList"] in _NO_NODES:
        return JobState.PENDING
    has_begun, is_over = start_s is not None and start_s <= now_s, (end_s or math.inf) <= now_s
    return JobState.UNKNOWN if is_over else JobState.RUNNING if has_begun else JobState.PENDING


def _queued_times(
    shown: Mapping[str, str], state: JobState, now_s: int
) -> tuple[int | None, int | None, int | None]:
    """Eligible, start and end; what squeue only estimates is None."""
    eligible_s, start_s = _time(shown["EligibleTime"]), _time(shown["StartTime"])
    end_s = _time(shown["EndTime"])
    if state in _NOT_STARTED or (state in _ENDED and shown["NodeList"] in _NO_NODES):
        start_s = None  # an estimate or, of a job that was cancelled while pending, its end
    # Of a requeued job that leaves its nodes, too, it is when the limit would end it.
    is_taken_back = state is JobState.COMPLETING and end_s is not None and end_s > now_s
    if state not in _ENDED or state is JobState.REQUEUED or is_taken_back:
        end_s = None  # when the limit will end it
    return eligible_s, start_s, end_s


def _planned(shown: Mapping[str, str], state: JobState, now_s: int) -> int | None:
    at_s = _time(shown["StartTime"]) if state in _NOT_STARTED else None
    return at_s if at_s is not None and at_s > now_s else None


def _accounted_jobs(fields: Sequence[str], now_s: int) -> list[Job]:
    (
        raw_id,
        shown_id,
        user,
        partition,
        state_word,
        nodes,
        submit,
        limit,
        *times,
        priority,
        exit_code,
    ) = fields[:13]
    allocated, requested, node_list = fields[13:]
    state = _state(_first(state_word))
    eligible_s, start_s, end_s = map(_time, times)
    nodes_held, counts = _node_names(node_list), _counts(allocated or requested)
    if state in _NOT_STARTED or not nodes_held:
        start_s = None  # it has a value where slurmdbd has only a part of the record yet
    return [
        Job(
            job_id=_number(raw_id),
            user=user,
            partition=partition,
            state=state,
            nodes=_count(nodes),
            submit_s=_needed(_time(submit)),
            time_limit_s=_limit(limit),
            eligible_s=_eligible(eligible_s, start_s, end_s or now_s),
            start_s=start_s,
            end_s=end_s,
            priority=_number(priority or "0"),
            **counts._asdict(),
            exit_code=_exit_code(exit_code),
            node_names=nodes_held,
            array_task=task,
        )
        for task in array_tasks(shown_id)
    ]


def _eligible(at_s: int | None, start_s: int | None, until_s: int) -> int | None:
    """Slurm shows a begin time as the eligible time. Before it has come, the job does not compete."""
    return at_s if at_s is None or start_s is not None or at_s <= until_s else None


def _begin(at_s: int | None, start_s: int | None, until_s: int) -> int | None:
    """The begin time that is still to come."""
    return at_s if at_s is not None and start_s is None and at_s > until_s else None


def _node_line(fields: list[str]) -> tuple[str, str, str]:
    name, partition, state = fields
    return _word(name), _word(partition), state


def cluster_node(name: str, partitions: tuple[str, ...], state: str) -> ClusterNode:
    """Of a node whose state can't be read: down."""
    known = known_state(state)
    return ClusterNode(name=name, partitions=partitions, up=known.up, idle=known.idle, state=state)


@lru_cache(maxsize=1 << 10)
def known_state(text: str) -> NodeState:
    """What a node's state means; words that are not known here are logged once, and no capacity."""
    try:
        known = node_state(text)
    except ValueError:
        known = NodeState("UNKNOWN", frozenset({text}))
    if known.unknown:
        words = ", ".join(sorted(known.unknown))
        note_once(f"Slurm's node state {words!r} is not known here: such a node is no capacity")
    return known


def _first(state: str) -> str:
    """The state of "CANCELLED by 1000"."""
    return state.partition(" ")[0]


@lru_cache(maxsize=1 << 10)
def _state(word: str) -> JobState:
    if not re.fullmatch(r"[A-Za-z0-9_+-]+", word):
        raise ValueError(f"{word!r} is no job state")
    if word not in _STATES:
        note_once(
            f"Slurm's job state {word} is not known here: such a job counts as running if it has"
            " nodes"
        )
    return _STATES.get(word, JobState.UNKNOWN)


@lru_cache(maxsize=1 << 10)
def _limit(text: str) -> int | None:
    """squeue prints [days-]hours:minutes:seconds, sacct minutes: both are forms of sbatch's --time."""
    return None if text in _NO_LIMIT else parse_time_limit(text)


class _Counts(NamedTuple):
    gpus: int
    cpus: int
    memory_mib: int


@lru_cache(maxsize=1 << 10)
def _counts(tres: str) -> _Counts:
    """Of `cpu=4,mem=1.50G,gres/gpu=2,gres/gpu:a100=2`.

    0 where Slurm does not count one: GPUs where AccountingStorageTRES lacks them, memory where jobs
    are not given any.
    """
    counts = dict(item.partition("=")[::2] for item in tres.split(","))
    gpus = [_count(count) for name, count in counts.items() if name.startswith("gres/gpu:")]
    return _Counts(
        _count(counts["gres/gpu"]) if "gres/gpu" in counts else min(sum(gpus), MAX_COUNT),
        _count(counts.get("cpu", "0")),
        _mib(counts.get("mem", "0")),
    )


def _mib(text: str) -> int:
    """Slurm prints memory with at most two decimals and a suffix; without one it means MiB."""
    number, suffix = (text[:-1], text[-1]) if text[-1:] in _MIB else (text, "M")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number, re.ASCII):
        raise ValueError(f"{text!r} is no amount of memory")
    mib = float(number) * _MIB[suffix]
    return (
        math.ceil(mib) if mib < MAX_MEMORY_MIB else MAX_MEMORY_MIB
    )  # 0 of infinity is no number: it counts as all


@lru_cache(maxsize=1 << 10)
def _exit_code(text: str) -> int:
    """As a shell shows it: 128 + signal if one ended the job. squeue prints wait(2)'s status, sacct
    `code:signal`.
    """
    code, colon, signal = text.partition(":")
    if not colon:
        code, signal = str(_number(text) >> 8), str(_number(text) & 0x7F)
    return 128 + _number(signal) if _number(signal) else _number(code)


@lru_cache(maxsize=1 << 12)
def _node_names(text: str) -> tuple[str, ...]:
    if text in _NO_NODES:
        return ()
    try:
        return tuple(hostlist.expand_hostlist(text))
    except hostlist.BadHostlist as error:
        raise ValueError(f"{text!r} is no node list: {error}") from error


def array_tasks(shown_id: str) -> list[str]:
    """`7` -> [""], `7_3` -> ["3"], `7_[1-5:2,9%4]` -> ["1", "3", "5", "9"]: the tasks that a record
    stands for.
    """
    tasks = shown_id.partition("_")[2]
    if not tasks.startswith("["):
        return [tasks]
    found: list[str] = []
    for part in tasks.strip("[]").partition("%")[0].split(","):
        match = _SPAN.fullmatch(part)
        numbers = (
            range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)) if match else ()
        )
        if not 0 < len(numbers) <= _MAX_ARRAY_TASKS - len(found):
            raise ValueError(f"{shown_id!r} is no list of array tasks")
        found.extend(map(str, numbers))
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _count(text: str) -> int:
    """A number that users choose. slurmctld keeps some in 64 bits."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is no number")
    return min(int(text), MAX_COUNT) if len(text) <= 20 else MAX_COUNT


def _time(text: str) -> int | None:
    """A begin time may be thousands of years off."""
    return None if text in _NO_TIME else min(_number(text), MAX_S)


def _needed(at_s: int | None) -> int:
    if at_s is None:
        raise ValueError("a time is missing")
    return at_s


@lru_cache(maxsize=1 << 12)
def _word(text: str) -> str:
    if text.split() != [text]:
        raise ValueError(f"{text!r} is no name")
    return text


@lru_cache(maxsize=1 << 12)
def _user(text: str) -> str:
    """Directories have names with blanks."""
    if not text.strip() or "\n" in text:
        raise ValueError(f"{text!r} is no user's name")
    return text


_Checks = Mapping[str, Callable[[str], object]]

_IDS: _Checks = {
    "JobID": lambda text: _number(text.partition("_")[0].partition("+")[0]),
    "JobIDRaw": _number,
}
_VALUES: _Checks = {
    "UserName": _user,
    "Partition": _word,
    "State": lambda text: _state(_first(text)),
    "SubmitTime": lambda text: _needed(_time(text)),
    "Submit": lambda text: _needed(_time(text)),
    "JobID": lambda text: array_tasks(text),
    "NumNodes": _count,
    "NNodes": _count,
    "TimeLimit": _limit,
    "TimelimitRaw": _limit,
    "EligibleTime": _time,
    "Eligible": _time,
    "StartTime": _time,
    "Start": _time,
    "EndTime": _time,
    "End": _time,
    "PriorityLong": lambda text: _number(text or "0"),
    "Priority": lambda text: _number(text or "0"),
    "exit_code": _exit_code,
    "ExitCode": _exit_code,
    "tres-alloc": _counts,
    "AllocTRES": _counts,
    "ReqTRES": _counts,
    "NodeList": _node_names,
}


def _set_apart(
    command: str, line: int, names: Sequence[str], fields: Sequence[str], error: ValueError
) -> Oddity:
    """Which field of the record can't be read. Raises ClusterNonsense if it is the job's id."""
    row = dict(zip(names, fields, strict=True))
    is_late = names is SACCT_FIELDS  # slurmdbd may not have the partition yet
    for name in [name for name in names if name in _IDS]:
        if problem := _problem(_IDS[name], row[name]):
            _nonsense(command, line, "|".join(fields), problem)
    checked = {name for name in names if name in _VALUES and not (is_late and name == "Partition")}
    bad = next(
        (name for name in names if name in checked and _problem(_VALUES[name], row[name])), ""
    )
    if not bad:
        _nonsense(command, line, "|".join(fields), str(error))
    job_id, user = (row["JobIDRaw"], row["User"]) if is_late else (row["JobID"], row["UserName"])
    return Oddity(
        job_id=_number(job_id), user=user, field=bad, text=_shown(row[bad]), is_set_apart=True
    )


def _problem(check: Callable[[str], object], text: str) -> str:
    try:
        check(text)
    except ValueError as error:
        return str(error)
    return ""


def _add(listed: JobListing, jobs: Sequence[Job]) -> None:
    listed.jobs.extend(jobs)
    for job in jobs[:1]:
        listed.oddities.extend(oddities_of(job))


def oddities_of(job: Job) -> list[Oddity]:
    """The numbers of the job that are as large as can be: it asks for that much or more."""
    # One comparison each for a whole queue: this is on the way of every job in every cycle.
    if (
        job.nodes < MAX_COUNT
        and job.cpus < MAX_COUNT
        and job.gpus < MAX_COUNT
        and job.memory_mib < MAX_MEMORY_MIB
    ):
        return []
    most = {"nodes": MAX_COUNT, "cpus": MAX_COUNT, "gpus": MAX_COUNT, "memory_mib": MAX_MEMORY_MIB}
    return [
        Oddity(
            job_id=job.job_id,
            user=job.user,
            field=name,
            text=f"{number} or more",
            is_set_apart=False,
        )
        for name, number in most.items()
        if getattr(job, name) >= number
    ]


def _checked(command: str, listed: JobListing) -> JobListing:
    """Raises ClusterNonsense where no job of several users, or of nobody, can be read: then it is the
    format that is not ours.
    """
    lost = [oddity for oddity in listed.oddities if oddity.is_set_apart]
    users = {oddity.user for oddity in lost}
    if not listed.jobs and (len(users) > 1 or "" in users):
        raise ClusterNonsense(
            f"{command}: none of {len(lost)} jobs can be read; {lost[0]}. Is its release supported?"
        )
    return listed


def _framed(text: str, nonce: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of squeue, whose fields all end with the nonce, and that end with a newline. With the
    line of each. Lines between them are no user's.
    """
    width, count = len(SQUEUE_FIELDS), text.count(nonce)
    rest = text[text.rfind(nonce) + len(nonce) :] if count else text
    if text and (not count or count % width or not _is_between(rest)):
        line = text.count("\n") + 1 if count else 1
        _nonsense("squeue", line, rest, "cut short, or something foreign in it")
    line, pieces = 1, chain.from_iterable(_blocks(text, nonce))
    for number, fields in enumerate(iter(lambda: list(islice(pieces, width)), [])):
        before, newline, fields[0] = fields[0].rpartition("\n")
        if number and not newline:
            _nonsense("squeue", line, "|".join(fields), f"expected a new line before {fields[0]!r}")
        line += bool(number)
        _note_lines("squeue", line, before.split("\n"))
        yield line + before.count("\n") + bool(before), fields
        line += before.count("\n") + bool(before) + fields[-1].count("\n")
    _note_lines("squeue", line, rest.split("\n"))


def _is_between(text: str) -> bool:
    """Whether what follows a row may be further lines."""
    return text.startswith("\n") and text.endswith("\n")


def _note_lines(command: str, number: int, lines: Iterable[str]) -> None:
    """Of lines that are no rows. Raises ClusterNonsense where they say that the rows are another
    cluster's.
    """
    for line in filter(None, lines):
        if line.startswith("CLUSTER:"):
            _nonsense(command, number, line, "an answer of another cluster")
        note_once(f"{command}: a line that is no row of it is left out: {_shown(line)}")


def _blocks(text: str, end: str) -> Iterator[list[str]]:
    """What stands before each ``end``. Not all at once: 100,000 jobs have two million pieces."""
    first = 0
    while True:
        last = text.find(end, first + _BLOCK)
        last = last if last >= 0 else text.rfind(end, first)
        if last < 0:
            return
        yield text[first:last].split(end)
        first = last + len(end)


def _lines(command: str, text: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """Lines of ``width`` fields, for output that users can't write into."""
    return _read(command, text, width, list)


def _read(
    command: str, text: str, width: int, parse: Callable[[list[str]], Record]
) -> Iterator[tuple[int, Record]]:
    """What ``parse`` makes of each line of ``width`` fields; lines that are none are left out, unless
    all are.
    """
    if text and not text.endswith("\n"):
        _nonsense(command, text.count("\n") + 1, text.rpartition("\n")[2], "cut short")
    found, strange = False, list[tuple[int, str, str]]()
    for number, line in enumerate(filter(None, text.split("\n")), start=1):
        fields = line.split("|")
        try:
            if len(fields) != width:
                raise ValueError(f"expected {width} fields, got {len(fields)}")
            record = parse(fields)
        except ValueError as error:
            strange.append((number, line, str(error)))
            continue
        found = True
        yield number, record
    if strange and not found:
        _nonsense(command, *strange[0])
    for number, line, _ in strange:
        _note_lines(command, number, [line])


def _nonsense(command: str, line: int, text: str, problem: str) -> NoReturn:
    problem = problem if len(problem) <= 2 * _SHOWN else problem[: 2 * _SHOWN] + "..."
    raise ClusterNonsense(
        f"{command}, line {line}: {problem}; it printed {_shown(text)}. Nothing was done; retry"
        " later."
    ) from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
