"""Command lines of Slurm's tools: pure functions that return argv lists, to be run by
`slurm/runner.py`.

Everything in them is explicit, because users and sites change defaults through the environment. The
formats were tried on 22.05, 24.11 and 26.05; `Name:SUFFIX` (squeue(1), sinfo(1)) prints a field
unpadded and uncut, with SUFFIX after it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from slurm_sim.slurm_json import RECORD_FIELDS

SQUEUE_FIELDS = (
    "JobID",
    "ArrayTaskID",
    "UserName",
    "Partition",
    "Account",
    "State",
    "NumNodes",
    "SubmitTime",
    "TimeLimit",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "PriorityLong",
    "exit_code",
    "tres-alloc",
    "NodeList",
    "Dependency",
    "Reason",
    "Name",
    "Comment",
)
SACCT_FIELDS = RECORD_FIELDS
LINE_FIELDS = (("JobIDRaw", 20), ("Submit", 20), ("SubmitLine", 2048))
"""What sbatch was called with, and of which job; sacct pads or cuts each field to so many bytes.

Users write this text, so no separator is safe: they see sacct's command line, and with it its
delimiter, in /proc. With fixed widths no text can end its own field. Comments would say less: most
sites do not keep them in accounting.
"""
HISTORY_FIELDS = (
    "JobID",
    "Submit",
    "User",
    "Account",
    "Partition",
    "State",
    "Eligible",
    "Start",
    "End",
    "TimelimitRaw",
    "NNodes",
    "AllocTRES",
    "ReqTRES",
    "ExitCode",
)
"""None that users can write a separator into."""
MAX_IDS = 1000
"""Job ids in one command line. Linux allows 128 KiB an argument; an id has at most 10 digits."""
MAX_USERS = 300
"""Names in one command line; one has up to 255 characters."""

_READS = frozenset({"squeue", "sinfo", "sacct", "sacctmgr"})


def new_nonce() -> str:
    """A separator that nobody can predict (64 bits). Users write job comments, so no fixed one
    could be trusted.
    """
    return f"|{os.urandom(8).hex()}|"


def squeue(job_ids: Collection[int] | None = None, user: str = "") -> list[str]:
    """The whole queue (of a user) or, in any state, these jobs. What is printed of each:
    `squeue_format`.

    ``-r``: one row an array task. ``--noconvert``: 2048 nodes, not 2K. Without ``-t`` squeue shows
    jobs that are pending or hold nodes.
    """
    some = (
        []
        if job_ids is None
        else ["-t", "all", *(_jobs_option(job_ids) if len(job_ids) <= MAX_IDS else [])]
    )
    whose = ["-u", user] if user else []
    return ["squeue", "-h", "-a", "-r", "--noconvert", *whose, *some]


def squeue_format(nonce: str) -> dict[str, str]:
    """The environment that has squeue print the fields of a job, each with the nonce after it.

    Not by ``-O``: all users of the machine can read a command line in /proc while it runs, but not
    an environment.
    """
    return {"SQUEUE_FORMAT2": ",".join(f"{name}:{nonce}" for name in SQUEUE_FIELDS)}


def sinfo() -> list[str]:
    """All nodes, also of hidden partitions; a line for each node and partition. StateComplete: with
    all flags.
    """
    return ["sinfo", "-h", "-a", "-N", "-O", "NodeList:|,PartitionName:|,StateComplete:|"]


def sacct(start_s: int, end_s: int, job_ids: Collection[int] | None = None) -> list[list[str]]:
    """One command, or several for many ids. A record a line, `|` between fields.

    ``-D``: a requeued job has one record for each time that it was submitted, not only the last
    one.
    """
    command = ["sacct", "-X", "-P", "-D", "-n", "-a", "--noconvert", *_window(start_s, end_s)]
    command += ["-o", ",".join(SACCT_FIELDS)]
    if job_ids is None:
        return [command]
    ids = sorted(set(job_ids))
    return [command + _jobs_option(ids[i : i + MAX_IDS]) for i in range(0, len(ids), MAX_IDS)]


def submissions(start_s: int, end_s: int, users: Collection[str]) -> list[list[str]]:
    """As `sacct`, of all jobs of these users."""
    command = [
        "sacct",
        "-X",
        "-P",
        "-D",
        "-n",
        "--noconvert",
        *_window(start_s, end_s),
        "-o",
        ",".join(SACCT_FIELDS),
    ]
    return [[*command, *option] for option in _users_options(users)]


def submit_lines(start_s: int, end_s: int, users: Collection[str]) -> list[list[str]]:
    """What sbatch was called with for each of `submissions`: records of `LINE_FIELDS`."""
    fields = ",".join(f"{name}%-{width}" for name, width in LINE_FIELDS)
    command = ["sacct", "-X", "-D", "-n", *_window(start_s, end_s), "-o", fields]
    return [[*command, *option] for option in _users_options(users)]


def recorded_jobs(start_s: int, end_s: int) -> list[str]:
    """Just the ids of the jobs in a window, to see whether there are any."""
    return [
        "sacct",
        "-X",
        "-P",
        "-n",
        "-a",
        "-S",
        _utc(start_s),
        "-E",
        _utc(end_s + 1),
        "-o",
        "JobIDRaw",
    ]


def history(start_s: int, end_s: int) -> list[str]:
    """The records that a model learns from, one a line, fields with `|` between them."""
    window = ["-S", _utc(start_s), "-E", _utc(end_s)]
    return [
        "sacct",
        "-X",
        "-P",
        "-D",
        "-n",
        "-a",
        "--noconvert",
        *window,
        "-o",
        ",".join(HISTORY_FIELDS),
    ]


def node_events(start_s: int, end_s: int) -> list[str]:
    """When nodes of the local cluster were down or drained."""
    window = [f"start={_utc(start_s)}", f"end={_utc(end_s + 1)}"]
    return [
        "sacctmgr",
        "-n",
        "-P",
        "show",
        "event",
        "event=node",
        *window,
        "format=NodeName,Start,End",
    ]


def settings() -> list[str]:
    return ["scontrol", "show", "config"]


def sbatch(args: Sequence[str], script: str) -> list[str]:
    return ["sbatch", "--parsable", *args, script]


def release(job_id: int) -> list[str]:
    return ["scontrol", "update", f"JobId={job_id}", "Dependency="]


def cancel(job_ids: Collection[int]) -> list[list[str]]:
    """One command, or several for many ids."""
    ids = sorted(set(job_ids))
    return [["scancel", *map(str, ids[i : i + MAX_IDS])] for i in range(0, len(ids), MAX_IDS)]


def hold(job_ids: Collection[int]) -> list[list[str]]:
    """As the owner would: `uhold` (scontrol(1)), which the owner may undo, whoever runs it."""
    return _scontrol_jobs("uhold", job_ids)


def unhold(job_ids: Collection[int]) -> list[list[str]]:
    return _scontrol_jobs("release", job_ids)


def job_details(job_id: int) -> list[str]:
    return ["scontrol", "show", "job", str(job_id)]


def wait_for(job_id: int, awaited_id: int) -> list[str]:
    """A pending job starts once that one has ended well, in place of what it waited for."""
    return ["scontrol", "update", f"JobId={job_id}", f"Dependency=afterok:{awaited_id}"]


def signal(job_id: int, name: str, *, batch: bool) -> list[str]:
    """scancel(1): without ``--batch`` all steps but the batch script get the signal."""
    return ["scancel", f"--signal={name}", *(["--batch"] if batch else []), str(job_id)]


def requeue(job_id: int) -> list[str]:
    return ["scontrol", "requeue", str(job_id)]


def require_nodes(job_id: int, nodes: Sequence[str]) -> list[str]:
    return ["scontrol", "update", f"JobId={job_id}", f"ReqNodeList={','.join(nodes)}"]


def set_partition(job_id: int, partitions: str) -> list[str]:
    return ["scontrol", "update", f"JobId={job_id}", f"Partition={partitions}"]


def set_comment(job_id: int, comment: str) -> list[str]:
    return ["scontrol", "update", f"JobId={job_id}", f"Comment={comment}"]


def set_limit(job_id: int, minutes: int) -> list[str]:
    return ["scontrol", "update", f"JobId={job_id}", f"TimeLimit={minutes}"]


def _scontrol_jobs(verb: str, job_ids: Collection[int]) -> list[list[str]]:
    ids = sorted(set(job_ids))
    return [
        ["scontrol", verb, ",".join(map(str, ids[i : i + MAX_IDS]))]
        for i in range(0, len(ids), MAX_IDS)
    ]


def may_be_repeated(argv: Sequence[str]) -> bool:
    """Whether running it twice is the same as running it once. Never true for sbatch: it would
    queue two jobs.
    """
    return argv[0] in _READS or (
        argv[0] == "scontrol" and (argv[1] == "show" or argv[-1] == "Dependency=")
    )


def _jobs_option(job_ids: Collection[int]) -> list[str]:
    return ["-j", ",".join(map(str, sorted(set(job_ids))))]


def _users_options(users: Collection[str]) -> list[list[str]]:
    names = sorted(set(users))
    return [["-u", ",".join(names[i : i + MAX_USERS])] for i in range(0, len(names), MAX_USERS)]


def _window(start_s: int, end_s: int) -> list[str]:
    return ["-S", _utc(start_s), "-E", _utc(end_s + 1)]  # sacct's own -E is exclusive


def _utc(at_s: int) -> str:
    """As sacct(1) reads times; it takes 0 as not given. The runner sets TZ=UTC: local time repeats
    an hour a year.
    """
    return datetime.fromtimestamp(max(at_s, 1), UTC).strftime("%Y-%m-%dT%H:%M:%S")
