"""A module like PySlurm 25.11.2, over the state of `FakeSlurm`: the part of it that Mirage uses.

Names, types and what they lose are those of its source, which each line names; written from reading
it, not copied.
"""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import Any

from tests.fakes.fake_slurm import DOWN, OVER, PENDING, RUNNING, FakeSlurm

__version__ = "25.11.2"  # pyslurm/version.py


class PyslurmError(Exception):
    """core/error.pyx."""


class RPCError(PyslurmError):
    """core/error.pyx: `str()` is Slurm's text of the errno, or a text of PySlurm's own."""

    def __init__(self, errno: int = -1, msg: str | None = None) -> None:
        self.errno, self.msg = errno, msg
        super().__init__(msg)


class GPU:
    """db/tres.pyx."""

    def __init__(self, count: int, gpu_type: str | None = None) -> None:
        self.count, self.type = count, gpu_type


class Job:
    """core/job/job.pyx, class Job. ``raw`` has slurm_job_info_t's values as Slurm sends them."""

    def __init__(self, **raw: Any) -> None:
        self._raw = raw

    def _text(self, name: str) -> str | None:
        """cstr.to_unicode (utils/cstr.pyx): nothing, and the word None, are None; bytes are decoded
        strictly.
        """
        value = self._raw.get(name)
        value = value.decode() if isinstance(value, bytes) else value
        return None if value in (None, "", "None") else value

    def _at(self, name: str) -> int | None:
        """_raw_time (utils/ctime.pyx)."""
        return self._raw.get(name) or None

    id = property(lambda self: self._raw["job_id"])
    user_id = property(lambda self: self._raw["user_id"])
    user_name = property(
        lambda self: self._raw["user"]
    )  # uid_to_name (utils/helpers.pyx): the number if unknown
    account = property(lambda self: self._text("account"))
    partition = property(lambda self: self._text("partition"))
    state = property(lambda self: self._text("job_state"))
    state_reason = property(lambda self: self._text("state_reason"))
    name = property(lambda self: self._text("name"))
    comment = property(lambda self: self._text("comment"))
    allocated_nodes = property(lambda self: self._text("nodes"))
    priority = property(lambda self: self._raw.get("priority", 0))
    num_nodes = property(
        lambda self: self._raw["num_nodes"] or None
    )  # u32_parse (utils/uint.pyx): 0 is None
    time_limit = property(lambda self: self._at("time_limit"))  # minutes; unlimited is None too
    submit_time = property(lambda self: self._at("submit_time"))
    eligible_time = property(lambda self: self._at("eligible_time"))
    start_time = property(lambda self: self._at("start_time"))
    end_time = property(lambda self: self._at("end_time"))
    array_id = property(lambda self: self._raw.get("array_job_id") or None)
    array_task_id = property(
        lambda self: self._raw.get("array_task_id") or None
    )  # so task 0 is None
    gpus = property(
        lambda self: {name: GPU(count) for name, count in self._raw.get("gpus", {}).items()}
    )

    @property
    def array_tasks_waiting(self) -> str | None:
        text = self._text("array_task_str")
        return text and text.partition("%")[0]

    @property
    def exit_code(self) -> int:
        """_get_exit_code (utils/helpers.pyx): of codes from 128 on, 128 is taken off."""
        code = self._raw.get("exit_code", 0) >> 8
        return code - 128 if code >= 128 else code

    @property
    def exit_code_signal(self) -> int:
        return self._raw.get("exit_code", 0) & 0x7F

    @property
    def dependencies(self) -> dict[str, Any] | None:
        """dependency_str_to_dict (core/job/util.pyx): what it does not know is left out."""
        text = self._text("dependency")
        if text is None:
            return None
        kinds = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok")
        found: dict[str, Any] = {kind: [] for kind in kinds} | {
            "singleton": False,
            "satisfy": "all",
        }
        found["satisfy"] = "any" if "?" in text else "all"
        for item in text.split("?" if "?" in text else ","):
            kind, colon, jobs = item.partition(":")
            found["singleton"] |= item == "singleton"
            if colon and kind in kinds:
                found[kind] += [int(job) if job.isdigit() else job for job in jobs.split(":")]
        return found


class Node:
    """core/node.pyx, class Node; ``state`` from slurm_node_state_string_complete."""

    def __init__(self, name: str, state: str, partitions: list[str]) -> None:
        self.name, self.state, self.partitions = name, state, partitions


class _Map(UserDict[Any, Any]):
    """xcollections.pyx, class MultiClusterMap: `values()` goes through the elements of all
    clusters.
    """


def module(slurm: FakeSlurm) -> Any:
    """The module `pyslurm` of a process that reaches this Slurm."""

    def load_jobs() -> _Map:
        with slurm.state() as state:
            _answer(slurm)
            return _Map({job["id"]: _job(job) for job in state["jobs"]})

    def load_nodes() -> _Map:
        with slurm.state() as state:
            _answer(slurm)
            held = {name for job in state["jobs"] if job["state"] == RUNNING for name in job["on"]}
            return _Map(
                {
                    name: Node(
                        name,
                        "ALLOCATED" if name in held else node["state"].upper(),
                        node["partitions"],
                    )
                    for name, node in state["nodes"].items()
                }
            )

    return SimpleNamespace(
        __version__=__version__,
        Jobs=SimpleNamespace(load=load_jobs),
        Nodes=SimpleNamespace(load=load_nodes),
        RPCError=RPCError,
        PyslurmError=PyslurmError,
    )


def _answer(slurm: FakeSlurm) -> None:
    if (slurm.folder / "misbehave.squeue").exists():
        raise RPCError(1800, DOWN)


def _job(job: dict[str, Any]) -> Job:
    """What slurmctld sends: of a pending job an estimated start, of a job without dependencies
    none.
    """
    dependency = ",".join(f"afterany:{pred}(unfulfilled)" for pred in job["dependency"])
    start = job["start"] or job["submit"] + 7777
    queued = "Dependency" if job["dependency"] else "Resources"
    return Job(
        job_id=job["id"],
        user_id=sum(job["user"].encode()),
        user=job["user"],
        account="research",
        partition=job["partition"],
        job_state=job["state"],
        state_reason=queued if job["state"] == PENDING else "None",
        name=job.get("name", "job.sh"),
        comment=job["comment"],
        nodes=",".join(job["on"]),
        priority=1,
        num_nodes=job["nodes"],
        time_limit=job["limit"] // 60,
        submit_time=job["submit"],
        eligible_time=job["eligible"] or 0,
        start_time=start,
        end_time=job["end"] if job["state"] in OVER else start + job["limit"],
        exit_code=job["status"],
        dependency=dependency,
    )
