"""sbatch's options -> the job that slurmrestd is asked to submit. Pure.

slurmrestd reads no `#SBATCH` lines, and each family of the API names fields in its own way. An
option that is not in the table is refused: a job without it would be another one.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from mirage.chain.batch_script import parse_script
from mirage.chain.durations import parse_time_limit
from mirage.chain.sbatch import SbatchOption, take_options
from mirage.errors import InputError

Fields = dict[str, Any]
PATH = "/usr/local/bin:/usr/bin:/bin"
"""What a job has in $PATH; it gets nothing else of the caller's environment."""
_UNLIMITED_MIN = 0xFFFFFFFF
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_LATER = re.compile(r"now(?:\+(\d+)(seconds?|minutes?|hours?|days?|weeks?)?)?")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def submission(
    options: Sequence[str],
    script: bytes,
    *,
    is_old: bool,
    folder: str,
    name: str,
    now_s: float | None = None,
) -> Fields:
    """The document for `job/submit`.

    ``options``: as words of sbatch's command line, which count more than the script's own.
    ``is_old``: the API is v0.0.39 or older. ``folder``: in which the job starts. ``name``: of
    the job, if no option says it. Raises InputError.
    """
    chosen = {each.name: each for each in (*parse_script(script).options, *_read(options))}
    convert = _Converter(is_old=is_old, now_s=time.time() if now_s is None else now_s)
    job: Fields = {"current_working_directory": folder, "name": name}
    for option in chosen.values():
        job |= convert(option)
    job["environment"] = {"PATH": PATH} if is_old else [f"PATH={PATH}"]
    return {"script": script.decode(), "job": job}


def _read(words: Sequence[str]) -> Iterable[SbatchOption]:
    rest = list(words)
    while rest:
        if not rest[0].startswith("-"):
            raise InputError(f"slurmrestd: {rest[0]!r} is no option of sbatch.")
        found, taken = take_options(rest)
        yield from found
        rest = rest[taken:]


class _Converter:
    """One option -> fields of the job."""

    def __init__(self, *, is_old: bool, now_s: float) -> None:
        self._is_old = is_old
        self._now_s = now_s

    def __call__(self, option: SbatchOption) -> Fields:
        name, value = option.name, option.value
        if name in ("parsable", "quiet"):
            return {}
        try:
            if name in _FLAGS and value is None:
                return dict(_FLAGS[name])
            if name in _SAME and value is not None:
                return {_SAME[name]: value}
            if name in _WHOLE and value is not None:
                return {_WHOLE[name]: int(value)}
            if name in _SPECIAL:
                return _SPECIAL[name](self, value or "")
        except ValueError as error:
            raise InputError(f"slurmrestd: --{name}={value}: {error}.") from error
        raise InputError(
            f"slurmrestd: --{name} can't be sent through Slurm's REST API by Mirage. Leave it out,"
            ' or submit where there is sbatch (cluster.adapter = "commands").'
        )

    def number(self, value: int) -> Any:
        return value if self._is_old else {"set": True, "infinite": False, "number": value}

    def time(self, name: str, value: str) -> Fields:
        limit_s = parse_time_limit(value)
        if limit_s is not None:
            return {name: self.number(math.ceil(limit_s / 60))}
        if self._is_old:
            return {name: _UNLIMITED_MIN}
        return {name: {"set": False, "infinite": True, "number": 0}}

    def begin(self, value: str) -> Fields:
        at_s = _begin_s(value, self._now_s)
        return {"begin_time": f"uts{at_s}" if self._is_old else self.number(at_s)}

    def memory(self, name: str, value: str) -> Fields:
        return {name: self.number(_mib(value))}

    def gres(self, value: str) -> Fields:
        if self._is_old:
            return {"gres": value}
        items = (f"gres/{item.removeprefix('gres/')}" for item in value.split(","))
        return {"tres_per_node": ",".join(items)}

    def gpus(self, name: str, field: str, value: str) -> Fields:
        return {name: value} if self._is_old else {field: f"gres/gpu:{value}"}

    def exclusive(self, value: str) -> Fields:
        if value:
            raise ValueError("only --exclusive without a value can be sent")
        return {"exclusive": "true"} if self._is_old else {"shared": ["none"]}

    def signal(self, value: str) -> Fields:
        if self._is_old:
            return {"signal": value}
        match = re.fullmatch(r"(B:)?(\w+)(?:@(\d+))?", value)
        if not match:
            raise ValueError("expected [B:]SIGNAL[@SECONDS]")
        return {
            "kill_warning_signal": match[2],
            "kill_warning_delay": self.number(int(match[3] or 60)),
        } | ({"kill_warning_flags": ["BATCH_JOB"]} if match[1] else {})

    def node_list(self, value: str) -> Fields:
        if self._is_old:
            raise ValueError("the API of this release has no field for it")
        return {"required_nodes": value}

    def excluded(self, value: str) -> Fields:
        if self._is_old:
            raise ValueError("the API of this release has no field for it")
        return {"excluded_nodes": value}

    def open_mode(self, value: str) -> Fields:
        return {"open_mode": value if self._is_old else [value.upper()]}


_FLAGS: dict[str, Fields] = {
    "hold": {"hold": True},
    "no-requeue": {"requeue": False},
    "requeue": {"requeue": True},
}
_SAME = {
    "account": "account",
    "array": "array",
    "chdir": "current_working_directory",
    "comment": "comment",
    "constraint": "constraints",
    "dependency": "dependency",
    "error": "standard_error",
    "input": "standard_input",
    "job-name": "name",
    "licenses": "licenses",
    "nodes": "nodes",  # 22.05 documents a list, and takes one node whatever is in it
    "output": "standard_output",
    "partition": "partition",
    "qos": "qos",
    "reservation": "reservation",
    "wckey": "wckey",
}
_WHOLE = {"cpus-per-task": "cpus_per_task", "ntasks": "tasks", "ntasks-per-node": "tasks_per_node"}
_SPECIAL: dict[str, Callable[[_Converter, str], Fields]] = {
    "begin": _Converter.begin,
    "exclude": _Converter.excluded,
    "exclusive": _Converter.exclusive,
    "gpus": lambda convert, value: convert.gpus("gpus", "tres_per_job", value),
    "gpus-per-node": lambda convert, value: convert.gpus("gpus_per_node", "tres_per_node", value),
    "gres": _Converter.gres,
    "mem": lambda convert, value: convert.memory("memory_per_node", value),
    "mem-per-cpu": lambda convert, value: convert.memory("memory_per_cpu", value),
    "nodelist": _Converter.node_list,
    "open-mode": _Converter.open_mode,
    "signal": _Converter.signal,
    "time": lambda convert, value: convert.time("time_limit", value),
    "time-min": lambda convert, value: convert.time("time_minimum", value),
}


def _begin_s(value: str, now_s: float) -> int:
    """Unix seconds of `now+1hour` or `2027-01-31T12:00:00`, of local time without an offset."""
    if match := _LATER.fullmatch(value):
        return int(now_s) + int(match[1] or 0) * _UNIT_S[(match[2] or "s")[0]]
    try:
        return int(datetime.fromisoformat(value).timestamp())
    except ValueError:
        raise ValueError("expected now+NUMBERUNIT or YYYY-MM-DDTHH:MM:SS") from None


def _mib(value: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if not match:
        raise ValueError("expected a number with K, M, G or T")
    return math.ceil(int(match[1]) * _MIB[match[2] or "M"])
