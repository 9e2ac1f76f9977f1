"""Many jobs as columns: what a trace of a million jobs needs to fit in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import WHOLE, JobSpec

Ints = NDArray[np.int64]
_INT64_MAX = int(np.iinfo(np.int64).max)
_OPTIONAL = ("time_limit_s", "runtime_s", "cancel_s")


class JobTable(Sequence[JobSpec]):
    """Jobs as columns of equal length; each is one `JobSpec` when looked at. The columns' names are
    `JobSpec`'s.

    -1 in `time_limit_s`, `runtime_s` or `cancel_s` stands for None. `user`, `account`, `partition`,
    `qos` are strings, one for each job or one for all; `job_id` None: 1, 2, ... Raises InvalidJob.
    """

    def __init__(
        self,
        submit_s: ArrayLike,
        nodes: ArrayLike,
        time_limit_s: ArrayLike,
        runtime_s: ArrayLike,
        *,
        user: Sequence[str] | str = "user",
        account: Sequence[str] | str = "root",
        partition: Sequence[str] | str | None = None,
        qos: Sequence[str] | str | None = None,
        job_id: ArrayLike | None = None,
        cpus_per_node: ArrayLike = 1,
        memory_mib_per_node: ArrayLike = 0,
        gpus_per_node: ArrayLike = 0,
        exclusive: ArrayLike = False,
        exit_code: ArrayLike = 0,
        cancel_s: ArrayLike = -1,
    ) -> None:
        size = np.size(submit_s)
        given = {
            "job_id": np.arange(1, size + 1) if job_id is None else job_id,
            "submit_s": submit_s,
            "nodes": nodes,
            "time_limit_s": time_limit_s,
            "runtime_s": runtime_s,
            "cpus_per_node": cpus_per_node,
            "memory_mib_per_node": memory_mib_per_node,
            "gpus_per_node": gpus_per_node,
            "exclusive": exclusive,
            "exit_code": exit_code,
            "cancel_s": cancel_s,
        }
        self.columns = {name: _column(name, value, size) for name, value in given.items()}
        self._names: dict[str, list[str | None]] = {}
        texts = {"user": user, "account": account, "partition": partition, "qos": qos}
        for name, value in texts.items():
            self._names[name], self.columns[name] = _named(name, value, size)
        self._check_ids()
        self.persons = self._number_persons()

    def _check_ids(self) -> None:
        values, counts = np.unique(self.columns["job_id"], return_counts=True)
        if (twice := values[counts > 1]).size:
            raise InvalidJob(
                f"job_id {twice[0]} is there more than once; give each job its own, or none"
            )

    def _number_persons(self) -> list[tuple[str, str]]:
        """Account and user of each person, in the order of their first job, as if the jobs were
        submitted one by one. Fills the column `person` with indexes into it.
        """
        pairs, person = np.unique(
            np.stack([self.columns["account"], self.columns["user"]]), axis=1, return_inverse=True
        )
        size = len(person.ravel())
        first = np.full(pairs.shape[1], size, dtype=np.int64)
        np.minimum.at(first, person.ravel(), np.arange(size))
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self.columns["person"] = np.ascontiguousarray(rank[person.ravel()], dtype=np.int64)
        accounts, users = self._names["account"], self._names["user"]
        return [(str(accounts[a]), str(users[b])) for a, b in pairs[:, order].T]

    def __len__(self) -> int:
        return len(self.columns["job_id"])

    def __getitem__(self, row: int) -> JobSpec:  # type: ignore[override]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        value = {name: int(column[row]) for name, column in self.columns.items()}
        optional = {name: None if value[name] < 0 else value[name] for name in _OPTIONAL}
        return JobSpec(
            nodes=value["nodes"],
            time_limit_s=optional["time_limit_s"],
            runtime_s=optional["runtime_s"],
            user=str(self._names["user"][value["user"]]),
            partition=self._names["partition"][value["partition"]],
            submit_s=value["submit_s"],
            job_id=value["job_id"],
            exit_code=value["exit_code"],
            cpus_per_node=value["cpus_per_node"],
            memory_mib_per_node=value["memory_mib_per_node"],
            gpus_per_node=value["gpus_per_node"],
            exclusive=bool(value["exclusive"]),
            account=str(self._names["account"][value["account"]]),
            qos=self._names["qos"][value["qos"]],
            cancel_s=optional["cancel_s"],
        )

    @property
    def in_several_partitions(self) -> bool:
        """Whether some job is in more than one."""
        return any("," in (name or "") for name in self._names["partition"])

    def kinds(self) -> tuple[list[JobSpec], NDArray[np.intp]]:
        """One job of each kind (same partition, QOS and request), and each job's kind."""
        names = (
            "partition",
            "qos",
            "cpus_per_node",
            "memory_mib_per_node",
            "gpus_per_node",
            "exclusive",
        )
        if not len(self):
            return [], np.empty(0, dtype=np.intp)
        stacked = np.stack([self.columns[name] for name in names])
        _, first, kind = np.unique(stacked, axis=1, return_index=True, return_inverse=True)
        return [self[int(row)] for row in first], kind.ravel()


def _column(name: str, value: ArrayLike, size: int) -> Ints:
    array = np.asarray(value)
    if array.dtype.kind not in ("b" if name == "exclusive" else "") + "iu":
        raise InvalidJob(f"{name}: a column of {array.dtype}; give integers")
    if array.dtype == np.uint64 and array.size and array.max() > _INT64_MAX:
        raise InvalidJob(
            f"job {array.argmax()} of the table: {name} is {array.max()}; give at most"
            f" {_INT64_MAX:,}"
        )
    array = np.ascontiguousarray(
        np.broadcast_to(array, size) if array.ndim == 0 else array, dtype=np.int64
    )
    if array.shape != (size,):
        raise InvalidJob(f"{name}: {array.shape} values; give {size}, as submit_s")
    least, most = WHOLE.get(name, (0, 1))
    wrong = np.flatnonzero((array < least) & ~((array == -1) & (name in _OPTIONAL)))
    if wrong.size:
        raise InvalidJob(
            f"job {wrong[0]} of the table: {name} is {array[wrong[0]]}; give at least {least}"
        )
    if size and array.max() > most:
        seconds = "seconds, " if name.endswith("_s") else ""
        raise InvalidJob(
            f"job {array.argmax()} of the table: {name} is {array.max()}; give {seconds}at most"
            f" {most:,}"
        )
    return array


def _named(
    name: str, value: Sequence[str] | str | None, size: int
) -> tuple[list[str | None], Ints]:
    if value is None or isinstance(value, str):
        return [value], np.zeros(size, dtype=np.int64)
    given = np.asarray(value)
    if given.dtype.kind != "U" and (
        odd := [each for each in given.ravel().tolist() if not isinstance(each, str)]
    ):
        raise InvalidJob(f"{name}: {odd[0]!r} among the values; give strings, or one for all")
    names, index = np.unique(given.astype(np.str_), return_inverse=True)
    if index.shape != (size,):
        raise InvalidJob(f"{name}: {len(value)} values; give {size}, as submit_s")
    return [str(item) for item in names], np.ascontiguousarray(index, dtype=np.int64)
