"""A Slurm made of one JSON file and fake commands that read and write it.

Run as `fake_slurm.py COMMAND ARGUMENTS...` it is one of Slurm's commands (for what Mirage sends;
anything else fails loudly). Each call is written to `calls`. A file `misbehave.COMMAND` makes the
command misbehave: garbage, empty, hang, fail, or down. TraceImport, `FakeSlurm` sets it up and lets
its time pass.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

COMMANDS = ("squeue", "sinfo", "sacct", "sacctmgr", "scontrol", "sbatch", "scancel")
OPERATOR = "operator"
DOWN = "Unable to contact slurm controller (connect failure)"
PENDING, RUNNING = "PENDING", "RUNNING"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
OVER = {COMPLETED, FAILED, CANCELLED, TIMEOUT}
DEFAULT_LIMIT_S = 3600

CONFIG = """\
AccountingStorageEnforce = associations,limits
AccountingStorageType = accounting_storage/slurmdbd
ClusterName = fake
JobSubmitPlugins = (null)
MinJobAge = 300 sec
OverTimeLimit = 0 min
PriorityFlags =
PriorityType = priority/multifactor
PrivateData = none
SchedulerParameters = (null)
SchedulerType = sched/backfill
SelectType = select/linear
SlurmUser = slurm(64030)
SLURM_VERSION = 22.05.8"""

Job = dict[str, Any]


class FakeSlurm:
    """The state, in a folder. First come, first served, on whole nodes; a pass a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, nodes: int, now_s: int) -> FakeSlurm:
        names = {f"n{i}": {"partitions": ["gpu"], "state": "idle"} for i in range(1, nodes + 1)}
        state = {"now": now_s, "next_id": 1, "nodes": names, "jobs": [], "events": []}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "bin").mkdir()
        for command in COMMANDS:
            program = folder / "bin" / command
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {command} "$@"\n')
            program.chmod(0o755)
        return cls(folder)

    @contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """The state; changes are saved."""
        with (self.folder / "state.json").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            try:
                yield state
            finally:
                file.seek(0)
                file.truncate()
                json.dump(state, file)

    def now_s(self) -> int:
        with self.state() as state:
            return int(state["now"])

    def advance(self, seconds: int) -> None:
        with self.state() as state:
            for _ in range(seconds):
                state["now"] += 1
                _pass(state)

    def calls(self) -> list[list[str]]:
        """The command lines so far."""
        log = self.folder / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def misbehave(self, command: str, how: str) -> None:
        (self.folder / f"misbehave.{command}").write_text(how)

    def behave(self) -> None:
        for file in self.folder.glob("misbehave.*"):
            file.unlink()


# --- the scheduler
# ---------------------------------------------------------------------------------------------------


def _pass(state: dict[str, Any]) -> None:
    now, jobs = state["now"], state["jobs"]
    for job in jobs:
        if job["state"] == RUNNING and now >= job["start"] + min(job["run"], job["limit"]):
            natural = FAILED if job["exit"] else COMPLETED
            _end(job, now, natural if job["run"] <= job["limit"] else TIMEOUT)
    over = {job["id"] for job in jobs if job["state"] in OVER}
    known = {job["id"] for job in jobs}
    for job in (job for job in jobs if job["state"] == PENDING):
        job["dependency"] = [pred for pred in job["dependency"] if pred in known - over]
        if not job["dependency"] and job["eligible"] is None:
            job["eligible"] = now
        free = sorted(set(state["nodes"]) - {name for other in jobs for name in _held(other)})
        required = job.get("required", [])
        free = [*required, *(name for name in free if name not in required)]
        is_kept_back = job.get("held") or job.get("begin", 0) > now
        are_taken = any(name in _held(other) for name in required for other in jobs)
        if not (job["dependency"] or is_kept_back or are_taken) and job["nodes"] <= len(free):
            job.update(state=RUNNING, start=now, on=free[: job["nodes"]])


def _held(job: Job) -> list[str]:
    return job["on"] if job["state"] == RUNNING else []


def _end(job: Job, now: int, state: str) -> None:
    job["end"], job["state"] = now, state
    job["start"] = (
        job["start"] or now
    )  # what slurmctld does to a job that is cancelled while pending
    job["status"] = job["exit"] << 8 if state == FAILED else 0


# --- the commands
# ----------------------------------------------------------------------------------------------------


def _fail(message: str, code: int = 1) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)


def _option(args: list[str], name: str) -> str | None:
    """The value of `name VALUE` or `name=VALUE`."""
    for index, word in enumerate(args):
        if word == name:
            return args[index + 1]
        if word.startswith(name + "=") or (
            len(name) == 2 and word.startswith(name) and word != name
        ):
            return word[len(name) :].removeprefix("=")
    return None


def squeue(state: dict[str, Any], args: list[str], user: str) -> None:
    assert {"-h", "-a", "-r"} <= set(args), args
    assert os.environ["SLURM_TIME_FORMAT"] == "%s"
    ids = [int(word) for word in (_option(args, "-j") or "").split(",") if word]
    whose = _option(args, "-u")
    alive = {PENDING, RUNNING, "COMPLETING"}
    states = alive if _option(args, "-t") is None else alive | OVER
    if len(ids) == 1 and not any(job["id"] == ids[0] for job in state["jobs"]):
        _fail("slurm_load_jobs error: Invalid job id specified")
    assert not {"-o", "-O"} & set(args), "everybody can read a command line"
    fields = [field.split(":", 1) for field in os.environ["SQUEUE_FORMAT2"].split(",")]
    for job in state["jobs"]:
        is_asked = (not ids or job["id"] in ids) and whose in {None, job["user"]}
        if job["state"] in states and is_asked:
            print("".join(_squeue_field(job, name) + suffix for name, suffix in fields))


def _squeue_field(job: Job, name: str) -> str:
    dependency = ",".join(f"afterany:{pred}(unfulfilled)" for pred in job["dependency"])
    queued = "Dependency" if job["dependency"] else job.get("reason", "Resources")
    days, rest = divmod(job["limit"], 86400)
    return {
        "JobID": str(job["id"]),
        "ArrayTaskID": job.get("task", "N/A"),
        "UserName": job["user"],
        "Partition": job["partition"],
        "Account": "research",
        "State": job["state"],
        "NumNodes": str(job["nodes"]),
        "SubmitTime": str(job["submit"]),
        "TimeLimit": f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}",
        "EligibleTime": str(job["eligible"] or "N/A"),
        "StartTime": str(job["start"] or job["submit"] + 7777),  # for a pending job an estimate
        "EndTime": str(job["end"] or (job["start"] or job["submit"] + 7777) + job["limit"]),
        "PriorityLong": "1",
        "exit_code": str(job["status"]),
        "tres-alloc": f"cpu={job['nodes']},node={job['nodes']},billing=1",
        "NodeList": ",".join(job["on"]),
        "Dependency": dependency or "(null)",
        "Reason": (
            ("JobHeldUser" if job.get("held") else queued) if job["state"] == PENDING else "None"
        ),
        "Name": job.get("name", "job.sh"),
        "Comment": job["comment"] or "(null)",
    }[name]


def sinfo(state: dict[str, Any], args: list[str], user: str) -> None:
    assert args == ["-h", "-a", "-N", "-O", "NodeList:|,PartitionName:|,StateComplete:|"], args
    held = {name for job in state["jobs"] for name in _held(job)}
    for name, node in state["nodes"].items():
        for partition in node["partitions"]:
            print(f"{name}|{partition}|{'allocated' if name in held else node['state']}|")


def sacct(state: dict[str, Any], args: list[str], user: str) -> None:
    if "-D" not in args:  # what `mirage doctor` asks
        assert {"-X", "-P", "-n", "-a"} <= set(args), args
        print("7" if _utc(_option(args, "-E")) > state["now"] - 40 * 86400 else "", end="")
        return
    users = (_option(args, "-u") or "").split(",")
    assert {"-X", "-n"} <= set(args), args
    assert ("-a" in args) is (users == [""]), args
    start, end = _utc(_option(args, "-S")), _utc(_option(args, "-E"))
    asked = _option(args, "-j")
    ids = [int(word) for word in (asked or "").split(",") if word]
    names = (_option(args, "-o") or "").split(",")
    for job in state["jobs"]:
        if users != [""] and job["user"] not in users:
            continue
        eligible = job["eligible"] is not None and job["eligible"] < end
        if (asked and job["id"] in ids) or (
            not asked and eligible and (job["end"] is None or job["end"] >= start)
        ):
            if "-P" in args:
                print("|".join(_sacct_field(job, name) for name in names))
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(
                    b"".join(_padded(job, *name.split("%-")) for name in names) + b"\n"
                )


def _padded(job: Job, name: str, width: str) -> bytes:
    """In a field of so many bytes; sacct shows by a plus that it is cut."""
    text, most = _sacct_field(job, name).encode(), int(width)
    return (text if len(text) <= most else text[: most - 1] + b"+").ljust(most) + b" "


def _sacct_field(job: Job, name: str) -> str:
    ran = bool(job["on"])
    return {
        "JobIDRaw": str(job["id"]),
        "JobID": str(job["id"]),
        "User": job["user"],
        "Partition": job["partition"],
        "State": job["state"] + (" by 1001" if job["state"] == CANCELLED else ""),
        "NNodes": str(job["nodes"]),
        "Submit": str(job["submit"]),
        "TimelimitRaw": str(job["limit"] // 60),
        "Eligible": str(job["eligible"] or "Unknown"),
        "Start": str(job["start"]) if ran else "None" if job["end"] else "Unknown",
        "End": str(job["end"] or "Unknown"),
        "Priority": "1",
        "ExitCode": f"{job['exit'] if job['state'] == FAILED else 0}:0",
        "AllocTRES": f"node={job['nodes']}" if ran else "",
        "ReqTRES": f"node={job['nodes']}",
        "NodeList": ",".join(job["on"]) or "None assigned",
        "SubmitLine": job["line"],
    }[name]


def sacctmgr(state: dict[str, Any], args: list[str], user: str) -> None:
    assert args[:3] == ["-n", "-P", "show"], args
    if args[3] == "user":
        print(f"{user}|{'Operator' if user == OPERATOR else 'None'}")
        return
    if args[3] == "assoc":
        print(f"research|{user}||normal|1|5||")
        return
    if args[3] == "qos":
        print("normal||||")
        return
    assert args[:5] == ["-n", "-P", "show", "event", "event=node"], args
    assert args[-1] == "format=NodeName,Start,End"
    start, end = (_utc(_option(args, name)) for name in ("start", "end"))
    for node, down, up in state["events"]:
        if down < end and (up is None or up >= start):
            print(f"{node}|{down}|{up or 'Unknown'}")


def scontrol(state: dict[str, Any], args: list[str], user: str) -> None:
    if args == ["show", "config"]:
        print(f"Configuration data as of {int(time.time())}\n{CONFIG}")
        return
    if args == ["show", "node", "-o"]:
        for name, node in state["nodes"].items():
            print(
                f"NodeName={name} CPUTot=4 RealMemory=4000 State=IDLE"
                f" Partitions={','.join(node['partitions'])}"
            )
        return
    if args == ["show", "partition", "-o"]:
        print(f"PartitionName=gpu MaxTime=2-00:00:00 Nodes={','.join(state['nodes'])} State=UP")
        return
    if args == ["show", "reservation", "-o"]:
        print(state.get("reservations", "No reservations in the system"))
        return
    if args[0] == "requeue":
        _requeue(state, int(args[1]), user)
        return
    if args[0] == "update" and args[2].startswith("ReqNodeList="):
        names = [name for name in args[2].removeprefix("ReqNodeList=").split(",") if name]
        _require_nodes(state, int(args[1].removeprefix("JobId=")), names, user)
        return
    if args[0] in ("uhold", "release"):
        for job in (_job(state, int(word)) for word in args[1].split(",")):
            assert job, args
            job["held"] = args[0] == "uhold"
        return
    assert args[0] == "update", args
    if args[2].startswith("Comment="):
        job = _job(state, int(args[1].removeprefix("JobId=")))
        assert job, args
        job["comment"] = args[2].removeprefix("Comment=")
        return
    if args[2].startswith("Dependency=afterok:"):
        waiting = _job(state, int(args[1].removeprefix("JobId=")))
        assert waiting, args
        waiting["dependency"] = [int(args[2].rpartition(":")[2])]
        return
    assert args[2:] == ["Dependency="], args
    job_id = int(args[1].removeprefix("JobId="))
    job = _job(state, job_id)
    if job is None:
        _fail(f"Invalid job id specified for job {job_id}")
    if user not in (job["user"], OPERATOR):
        _fail(f"Invalid user id for job {job_id}")
    if job["state"] == RUNNING:
        _fail(f"Job is no longer pending execution for job {job_id}")
    if job["state"] in OVER:
        _fail(f"Job has already finished for job {job_id}")
    job["dependency"], job["eligible"] = [], job["eligible"] or state["now"]


def _requeue(state: dict[str, Any], job_id: int, user: str) -> None:
    job = _job(state, job_id)
    if job is None:
        _fail(f"scontrol: error: Invalid job id specified for job {job_id}")
    if user not in (job["user"], OPERATOR):
        _fail(f"Access/permission denied for job {job_id}")
    if job["state"] == PENDING:
        _fail(f"Job is pending execution for job {job_id}")
    if not job["requeue"]:
        _fail(f"Requested operation is presently disabled for job {job_id}")
    job.update(state=PENDING, start=None, end=None, eligible=None, on=[], begin=state["now"] + 2)


def _require_nodes(state: dict[str, Any], job_id: int, names: list[str], user: str) -> None:
    job = _job(state, job_id)
    if job is None:
        _fail(f"Invalid job id specified for job {job_id}")
    if user not in (job["user"], OPERATOR):
        _fail(f"Invalid user id for job {job_id}")
    if job["state"] != PENDING or not set(names) <= set(state["nodes"]):
        _fail(f"Invalid node name specified for job {job_id}")
    job["required"] = names


def sbatch(state: dict[str, Any], args: list[str], user: str) -> None:
    if "--test-only" in args:
        _test_only(state, args)
        return
    assert "--parsable" in args, args
    partition = _option(args, "--partition") or "gpu"
    if partition != "gpu":
        _fail(
            f"sbatch: error: invalid partition specified: {partition}\nsbatch: error: Batch job"
            " submission failed"
        )
    path = next(Path(word) for word in args if word.startswith("/"))
    if not path.exists():
        _fail(f"sbatch: error: Unable to open file {path}")
    script = path.read_text()
    dependency = (_option(args, "--dependency") or "").removeprefix("afterany:")
    limit = _option(args, "--time")
    job = {
        "id": state["next_id"],
        "user": user,
        "partition": partition,
        "state": PENDING,
        "nodes": int(_option(args, "--nodes") or 1),
        "submit": state["now"],
        "limit": int(limit) * 60 if limit else DEFAULT_LIMIT_S,
        "eligible": None if dependency else state["now"],
        "start": None,
        "end": None,
        "dependency": [int(pred) for pred in dependency.split(":") if pred],
        "comment": _option(args, "--comment") or "",
        "held": "--hold" in args,
        "requeue": "--no-requeue" not in args,
        "line": " ".join(["sbatch", *args]),
        "run": int(script.split("sleep ")[1].split()[0]),
        "exit": int(script.split("exit ")[1].split()[0]),
        "status": 0,
        "on": [],
    }
    state["next_id"] += 1
    state["jobs"].append(job)
    print(job["id"])


def _test_only(state: dict[str, Any], args: list[str]) -> None:
    partition = _option(args, "--partition") or _option(args, "-p") or "gpu"
    if partition != "gpu":
        _fail("sbatch: error: invalid partition specified: " + partition)
    if int(_option(args, "--nodes") or _option(args, "-N") or 1) > len(state["nodes"]):
        _fail("allocation failure: Requested node configuration is not available")
    sys.stderr.write(
        f"sbatch: Job 99 to start at {state['now'] + 600} using 4 processors on nodes n1 in"
        " partition gpu\n"
    )


def scancel(state: dict[str, Any], args: list[str], user: str) -> None:
    if args[0].startswith("--signal="):
        _signal(state, int(args[-1]), user)
        return
    denied = False
    for job in (_job(state, int(word)) for word in args):
        if job is None or job["state"] in OVER:
            continue
        if user not in (job["user"], OPERATOR):
            print(
                f"scancel: error: Kill job error on job id {job['id']}: Access/permission denied",
                file=sys.stderr,
            )
            denied = True
        else:
            _end(job, state["now"], CANCELLED)
    if denied:
        raise SystemExit(210)


def _signal(state: dict[str, Any], job_id: int, user: str) -> None:
    """Its scripts handle no signal: they end by it."""
    job = _job(state, job_id)
    problem = (
        "Invalid job id specified"
        if job is None or job["state"] in OVER
        else "Access/permission denied"
        if user not in (job["user"], OPERATOR)
        else ""
    )
    if problem or job is None:
        _fail(f"scancel: error: Kill job error on job id {job_id}: {problem}", 210)
    _end(job, state["now"], FAILED)
    job["status"] = 10


def _job(state: dict[str, Any], job_id: int) -> Job | None:
    return next((job for job in state["jobs"] if job["id"] == job_id), None)


def _utc(text: str | None) -> int:
    assert text, "an explicit window is needed"
    assert os.environ["TZ"] == "UTC"
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _misbehave(how: str) -> None:
    if how == "hang":
        time.sleep(600)
    if how == "fail":
        _fail("slurm_load_jobs error: something is wrong", 1)
    if how == "down":
        _fail(f"slurm_load_jobs error: {DOWN}")
    print({"garbage": "%@!? segmentation violation\n|||\n", "empty": ""}[how], end="")


def main(command: str, args: list[str]) -> None:
    fake = FakeSlurm(Path(os.environ["FAKE_SLURM_DIR"]))
    with (fake.folder / "calls").open("a") as log:
        log.write(json.dumps([command, *args]) + "\n")
    misbehaviour = fake.folder / f"misbehave.{command}"
    if misbehaviour.exists():
        _misbehave(misbehaviour.read_text())
        return
    with fake.state() as state:
        globals()[command](state, args, os.environ["FAKE_SLURM_USER"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
