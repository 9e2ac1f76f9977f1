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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mirage.chain.sbatch import submitted_ids
from mirage.domain import MAX_NAME, ClusterNode, Job, JobState, NodeEvent, Oddity, Settings
from mirage.errors import ClusterNonsense
from mirage.slurm.argv import LINE_FIELDS, SACCT_FIELDS, SQUEUE_FIELDS
from mirage.slurm.failures import advice
from mirage.slurm.fields import (
    MAX_COUNT,
    MAX_MEMORY_MIB,
    NO_NODES,
    array_tasks,
    first_word,
    known_state,
    needed_time,
    read_count,
    read_counts,
    read_exit_code,
    read_limit,
    read_node_names,
    read_number,
    read_state,
    read_time,
    read_user,
    read_word,
)
from mirage.slurm.frames import framed, lines_of, nonsense, records_of, shown_part

_ENDED = frozenset(state for state in JobState if state.is_over) | {
    JobState.COMPLETING,
    JobState.REQUEUED,
}
_NOT_STARTED = frozenset({JobState.PENDING, JobState.SPECIAL_EXIT, JobState.REVOKED})


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
    return read_queue("squeue", framed(text, nonce), now_s)


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
    return read_records("sacct", lines_of("sacct", text, len(SACCT_FIELDS)), now_s)


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
            found[read_number(job_id), needed_time(read_time(submit))] = line
        except ValueError as error:
            nonsense("sacct", number, record.decode(errors="replace"), str(error))
    return found


def parse_sinfo(text: str) -> tuple[ClusterNode, ...]:
    """The answer to `argv.sinfo()`, one record a node. A cluster without nodes is nonsense."""
    partitions: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    for _, (name, partition, state) in records_of(
        "sinfo", text.replace("|\n", "\n"), 3, _node_line
    ):
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
    return [event for _, event in records_of("sacctmgr", text, 3, _node_event)]


def _node_event(fields: list[str]) -> NodeEvent:
    name, start, end = fields
    return NodeEvent(read_word(name), needed_time(read_time(start)), read_time(end))


def parse_settings(text: str) -> Settings:
    """The answer to `argv.settings()`."""
    pairs = (line.split("=", 1) for line in text.split("\n") if "=" in line)
    parameters = {key.strip(): value.strip() for key, value in pairs}
    if not parameters.get("SLURM_VERSION"):
        nonsense("scontrol show config", 1, text, "no SLURM_VERSION in it")
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
            f"sbatch: expected a job id; it printed {shown_part(text)}. {advice('sbatch')}"
        )
    return ids[-1]


def queued_job(fields: Sequence[str], now_s: int) -> Job:
    """A job of the fields `argv.SQUEUE_FIELDS`, as squeue prints them. Raises ValueError.

    Too large numbers are cut: `oddities_of` finds them.
    """
    shown = dict(zip(SQUEUE_FIELDS, fields, strict=True))
    priority, node_list = shown["PriorityLong"], shown["NodeList"]
    state = read_state(first_word(shown["State"]))
    if state is JobState.UNKNOWN:
        state = _by_nodes(shown, now_s)
    eligible_s, start_s, end_s = _queued_times(shown, state, now_s)
    counts = read_counts(shown["tres-alloc"])
    return Job(
        job_id=read_number(shown["JobID"]),
        user=read_user(shown["UserName"]),
        partition=read_word(shown["Partition"]),
        account="" if shown["Account"] == "(null)" else _shared(shown["Account"]),
        state=state,
        nodes=read_count(shown["NumNodes"]),
        submit_s=needed_time(read_time(shown["SubmitTime"])),
        time_limit_s=read_limit(shown["TimeLimit"]),
        reason="" if shown["Reason"] == "None" else _shared(shown["Reason"]),
        eligible_s=_eligible(eligible_s, start_s, end_s or now_s),
        begin_s=_begin(eligible_s, start_s, end_s or now_s),
        start_s=start_s,
        planned_s=_planned(shown, state, now_s),
        end_s=end_s,
        dependency="" if shown["Dependency"] == "(null)" else shown["Dependency"],
        priority=read_number(priority or "0"),
        gpus=counts.gpus,
        cpus=counts.cpus,
        memory_mib=counts.memory_mib,
        exit_code=read_exit_code(shown["exit_code"]),
        comment="" if shown["Comment"] == "(null)" else shown["Comment"],
        name=_job_name(shown["Name"]),
        # Of a pending job squeue shows the nodes that it is planned for.
        node_names=read_node_names(node_list) if state.has_nodes else (),
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
    start_s, end_s = read_time(shown["StartTime"]), read_time(shown["EndTime"])
    if shown["NodeList"] in NO_NODES:
        return JobState.PENDING
    has_begun, is_over = start_s is not None and start_s <= now_s, (end_s or math.inf) <= now_s
    return JobState.UNKNOWN if is_over else JobState.RUNNING if has_begun else JobState.PENDING


def _queued_times(
    shown: Mapping[str, str], state: JobState, now_s: int
) -> tuple[int | None, int | None, int | None]:
    """Eligible, start and end; what squeue only estimates is None."""
    eligible_s, start_s = read_time(shown["EligibleTime"]), read_time(shown["StartTime"])
    end_s = read_time(shown["EndTime"])
    if state in _NOT_STARTED or (state in _ENDED and shown["NodeList"] in NO_NODES):
        start_s = None  # an estimate or, of a job that was cancelled while pending, its end
    # Of a requeued job that leaves its nodes, too, it is when the limit would end it.
    is_taken_back = state is JobState.COMPLETING and end_s is not None and end_s > now_s
    if state not in _ENDED or state is JobState.REQUEUED or is_taken_back:
        end_s = None  # when the limit will end it
    return eligible_s, start_s, end_s


def _planned(shown: Mapping[str, str], state: JobState, now_s: int) -> int | None:
    at_s = read_time(shown["StartTime"]) if state in _NOT_STARTED else None
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
    state = read_state(first_word(state_word))
    eligible_s, start_s, end_s = map(read_time, times)
    nodes_held, counts = read_node_names(node_list), read_counts(allocated or requested)
    if state in _NOT_STARTED or not nodes_held:
        start_s = None  # it has a value where slurmdbd has only a part of the record yet
    return [
        Job(
            job_id=read_number(raw_id),
            user=user,
            partition=partition,
            state=state,
            nodes=read_count(nodes),
            submit_s=needed_time(read_time(submit)),
            time_limit_s=read_limit(limit),
            eligible_s=_eligible(eligible_s, start_s, end_s or now_s),
            start_s=start_s,
            end_s=end_s,
            priority=read_number(priority or "0"),
            **counts._asdict(),
            exit_code=read_exit_code(exit_code),
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
    return read_word(name), read_word(partition), state


def cluster_node(name: str, partitions: tuple[str, ...], state: str) -> ClusterNode:
    """Of a node whose state can't be read: down."""
    known = known_state(state)
    return ClusterNode(name=name, partitions=partitions, up=known.up, idle=known.idle, state=state)


_Checks = Mapping[str, Callable[[str], object]]

_IDS: _Checks = {
    "JobID": lambda text: read_number(text.partition("_")[0].partition("+")[0]),
    "JobIDRaw": read_number,
}
_VALUES: _Checks = {
    "UserName": read_user,
    "Partition": read_word,
    "State": lambda text: read_state(first_word(text)),
    "SubmitTime": lambda text: needed_time(read_time(text)),
    "Submit": lambda text: needed_time(read_time(text)),
    "JobID": lambda text: array_tasks(text),
    "NumNodes": read_count,
    "NNodes": read_count,
    "TimeLimit": read_limit,
    "TimelimitRaw": read_limit,
    "EligibleTime": read_time,
    "Eligible": read_time,
    "StartTime": read_time,
    "Start": read_time,
    "EndTime": read_time,
    "End": read_time,
    "PriorityLong": lambda text: read_number(text or "0"),
    "Priority": lambda text: read_number(text or "0"),
    "exit_code": read_exit_code,
    "ExitCode": read_exit_code,
    "tres-alloc": read_counts,
    "AllocTRES": read_counts,
    "ReqTRES": read_counts,
    "NodeList": read_node_names,
}


def _set_apart(
    command: str, line: int, names: Sequence[str], fields: Sequence[str], error: ValueError
) -> Oddity:
    """Which field of the record can't be read. Raises ClusterNonsense if it is the job's id."""
    row = dict(zip(names, fields, strict=True))
    is_late = names is SACCT_FIELDS  # slurmdbd may not have the partition yet
    for name in [name for name in names if name in _IDS]:
        if problem := _problem(_IDS[name], row[name]):
            nonsense(command, line, "|".join(fields), problem)
    checked = {name for name in names if name in _VALUES and not (is_late and name == "Partition")}
    bad = next(
        (name for name in names if name in checked and _problem(_VALUES[name], row[name])), ""
    )
    if not bad:
        nonsense(command, line, "|".join(fields), str(error))
    job_id, user = (row["JobIDRaw"], row["User"]) if is_late else (row["JobID"], row["UserName"])
    return Oddity(
        job_id=read_number(job_id),
        user=user,
        field=bad,
        text=shown_part(row[bad]),
        is_set_apart=True,
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
