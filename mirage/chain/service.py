"""A service of several replicas: `${MIRAGE_HOME:-~/.mirage}/services/NAME/`, mode 0700.

Each replica is a chain of its own. The folder has what they share: how the service was submitted, so
that a further replica is started the same way, and how many replicas there are to be.

    service.json    `ServiceRecord`, mode 0600: the environment of the submission is in it
    script          the user's script, as it was submitted
    scale.json      what the scaler saw last (`mirage/user/scaler.py`)
    demand.json     what the gateway counts: {"seen_s", "open", "waiting", "requests", "failed"}
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mirage.chain.durations import parse_duration
from mirage.chain.folder import (
    CHAIN_RECORD,
    chains_folder,
    make_chains_folder,
    over_marker,
    read_record,
)
from mirage.chain.tag import SERVICE_NAME
from mirage.errors import InputError
from slurm_sim.files import write_whole

SERVICE_OPTIONS = frozenset({"replicas", "replica", "scale-on", "target", "prometheus", "quiet"})
"""Of `mirage-submit`; `replica` is what `mirage scale` gives for each further one."""
MOST_REPLICAS = 64
QUIET_S = 600
"""A service becomes smaller once its load has been lower for so long."""
REQUESTS_EACH = 8.0
"""Requests at once that a replica takes, where its owner names no target."""
PROMETHEUS = "MIRAGE_PROMETHEUS"
"""An environment variable: the URL of the server, where --prometheus is not given."""
LEAST_FIRST_S = 120
_RECORD, _SCRIPT, DEMAND, SCALE = "service.json", "script", "demand.json", "scale.json"
_RANGE = re.compile(r"(\d{1,2})(?:\.\.(\d{1,2}))?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ScaleRule:
    """How many replicas there are to be, and by what load."""

    least: int
    most: int
    scale_on: str = ""
    """A shell command, or with ``prometheus`` a query; empty: the gateway's requests."""
    target: float = REQUESTS_EACH
    """The load that one replica takes."""
    prometheus: str = ""
    """URL of a Prometheus server; empty: ``scale_on`` is a command."""
    quiet_s: int = QUIET_S

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True, kw_only=True)
class ServiceRecord:
    """How a service was submitted, and how many replicas are wanted now."""

    name: str
    words: list[str]
    """The command line of `mirage-submit`, without its name."""
    source: str
    """The user's script, where it lay."""
    cwd: str
    environ: dict[str, str]
    rule: ScaleRule
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChain:
    """A chain of a service."""

    chain_id: str
    number: int
    """From 1."""
    gpus: int = 0
    is_over: bool = False


def parse_rule(own: Mapping[str, str]) -> ScaleRule:
    """What `--replicas` and the options beside it say. Raises InputError."""
    text = own.get("replicas", "1")
    match = _RANGE.fullmatch(text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not (0 <= least <= most <= MOST_REPLICAS and most > 0):
        raise InputError(
            f"--replicas: {text!r} is neither a number from 1 to {MOST_REPLICAS} nor a range such"
            " as 1..8 or 0..4"
        )
    lost = own.keys() & {"scale-on", "target", "prometheus", "quiet"}
    if least == most and lost:
        raise InputError(f"--{min(lost)} needs a range, such as --replicas 1..8")
    if "scale-on" in own and not own["scale-on"].strip():
        raise InputError("--scale-on needs a shell command that prints the load, or a query")
    if ("scale-on" in own) != ("target" in own) and "scale-on" in own:
        raise InputError("--scale-on needs --target X: the load that one replica takes")
    return ScaleRule(
        least=least,
        most=most,
        scale_on=own.get("scale-on", ""),
        target=_target(own),
        prometheus=_prometheus(own),
        quiet_s=_quiet_s(own),
    )


def _prometheus(own: Mapping[str, str]) -> str:
    source, url = "--prometheus", own.get("prometheus", "")
    if url and "scale-on" not in own:
        raise InputError("--prometheus needs --scale-on QUERY")
    if "scale-on" in own and "prometheus" not in own:
        source, url = PROMETHEUS, os.environ.get(PROMETHEUS, "")
    if url and not re.fullmatch(r"https?://[!-~]+", url, re.ASCII):
        raise InputError(f"{source}: {url!r} is no URL such as http://prometheus:9090")
    return url


def _target(own: Mapping[str, str]) -> float:
    text = own.get("target", str(REQUESTS_EACH))
    try:
        target = float(text)
    except ValueError:
        target = 0
    if not 0 < target < 1e12:
        raise InputError(f"--target: {text!r} is no number above 0: give the load of one replica")
    return target


def _quiet_s(own: Mapping[str, str]) -> int:
    try:
        return parse_duration(own.get("quiet", f"{QUIET_S}s"))
    except ValueError as error:
        raise InputError(f"--quiet: {error}") from error


def check_name(name: str) -> None:
    """InputError: a service can't be called so."""
    if not re.fullmatch(SERVICE_NAME, name, re.ASCII):
        raise InputError(
            f"a service of several replicas can't be called {name!r}: give --job-name, of at most"
            " 64 letters, digits, dots, dashes and underscores"
        )


def first_limit_s(limit_s: int | None, number: int, of: int, least_s: int) -> int | None:
    """The time limit of replica ``number``'s first link, by which the ``of`` replicas end apart:
    they are spread over one limit. None: as of all links. ``least_s``: no shorter one.
    """
    if limit_s is None or number == 1:
        return None
    share = (of - (number - 1) % of) / of
    first_s = max(int(limit_s * share), least_s, LEAST_FIRST_S)
    first_s = -(-first_s // 60) * 60  # Slurm rounds limits up to minutes
    return first_s if first_s < limit_s else None


def parse_replica(text: str) -> tuple[str, int]:
    """The service and the number in `NAME:R`. Raises InputError."""
    name, _, number = text.rpartition(":")
    if not number.isdecimal() or not 1 <= int(number) <= MOST_REPLICAS:
        raise InputError(f"--replica: {text!r} is not NAME:R; `mirage scale NAME N` adds replicas")
    check_name(name)
    return name, int(number)


def script_of_replica(text: str) -> tuple[Path, Path]:
    """Of `--replica`: where the service's script lay, and its copy. Raises InputError."""
    name, _ = parse_replica(text)
    return Path(service_of(name).source), service_folder(name) / _SCRIPT


def make_services_folder() -> None:
    """For its owner alone. Raises InputError."""
    make_chains_folder()
    services_folder().mkdir(mode=0o700, exist_ok=True)


def services_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return chains_folder(environ).with_name("services")


def service_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Whether it exists or not. InputError: no service can be called so."""
    check_name(name)
    return services_folder(environ) / name


def service_names() -> list[str]:
    """Services that were not ended by their owner."""
    return sorted(path.parent.name for path in services_folder().glob(f"*/{_RECORD}"))


def read_service(name: str) -> ServiceRecord | None:
    """None: there is none, or it was ended. InputError: its record can't be read."""
    import json  # mirage-submit must feel like sbatch

    path = service_folder(name) / _RECORD
    try:
        found = json.loads(path.read_text())
        return ServiceRecord(**{**found, "rule": ScaleRule(**found["rule"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: can't be read ({error}): cancel the service, or remove it"
        ) from error


def service_of(name: str) -> ServiceRecord:
    """As `read_service`; InputError: there is none."""
    record = read_service(name)
    if record is None:
        raise InputError(
            f"there is no service of several replicas called {name}: `mirage status` lists yours"
        )
    return record


def write_service(record: ServiceRecord, script: bytes | None = None) -> None:
    """Raises OSError. ``script``: at submission."""
    import json

    folder = service_folder(record.name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if script is not None:
        for name in (DEMAND, SCALE):  # of an earlier service of this name
            (folder / name).unlink(missing_ok=True)
        write_whole(folder / _SCRIPT, script, 0o600)
    write_whole(folder / _RECORD, json.dumps(asdict(record), indent=1), 0o600)


def forget_service(name: str) -> None:
    """It is over: nothing scales it, and its name is free. A replica that is being started is there
    once this returns.
    """
    with turn(name):
        (service_folder(name) / _RECORD).unlink(missing_ok=True)


def is_service(text: str) -> bool:
    """Whether a service of several replicas, that was not ended, is called so."""
    return (
        re.fullmatch(SERVICE_NAME, text) is not None and (service_folder(text) / _RECORD).exists()
    )


def living_replicas() -> dict[str, list[ReplicaChain]]:
    """By service: one's own replicas that are not over, by number."""
    every = all_replicas().items()
    living = {name: [one for one in each if not one.is_over] for name, each in every}
    return {name: each for name, each in living.items() if each}


def all_replicas() -> dict[str, list[ReplicaChain]]:
    """As `living_replicas`, with those that are over; of one number the newest is last."""
    found: dict[str, list[tuple[int, int, ReplicaChain]]] = {}
    for path in chains_folder().glob(f"*/{CHAIN_RECORD}"):
        record = read_record(path)
        if "replica" not in record or "service" not in record:
            continue
        words = (record.get(key, "") for key in ("replica", "gpus", "submitted"))
        number, gpus, at_s = (int(word) if word.isdecimal() else 0 for word in words)
        is_over = over_marker(path.parent) is not None
        one = ReplicaChain(chain_id=path.parent.name, number=number, gpus=gpus, is_over=is_over)
        found.setdefault(record["service"], []).append((number, at_s, one))
    return {
        name: [one for *_, one in sorted(each, key=lambda it: it[:2])]
        for name, each in found.items()
    }


@contextmanager
def turn(name: str) -> Iterator[None]:
    """While one process changes how many replicas there are, others wait."""
    with (service_folder(name) / ".scaling").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
