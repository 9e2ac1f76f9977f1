"""How many replicas of a service run, by load: `scale_once`, for `mirage agent` and `mirage gateway`.

It becomes larger at once, and smaller after the load was lower for `ScaleRule.quiet_s`. What can't be
measured scales nothing.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from mirage.chain.demand import ServiceDemand, read_demand
from mirage.chain.folder import (
    CHAIN_RECORD,
    FAILED,
    chain_folder,
    chains_folder,
    is_paused,
    read_record,
)
from mirage.chain.service import (
    SCALE,
    ScaleRule,
    ServiceRecord,
    living_replicas,
    read_service,
    service_folder,
    service_names,
)
from mirage.errors import ClusterNonsense, MirageError
from mirage.peers import Sparingly
from mirage.slurm.runner import run_bounded
from mirage.user.replicas import set_replicas
from slurm_sim.files import write_whole

log = logging.getLogger(__name__)

EVERY_S = 10
APART_S = 1800
"""Looks further apart prove no quiet; cron looks each ten minutes."""
MEASURE_S = 10
"""A command or a query may take so long."""
MOST_BYTES = 1 << 20
"""Of an answer of Prometheus, and of what a command prints."""
AFTER_FAILURE_S = 600
"""So long after a replica failed no further one is started."""


class NoLoad(Exception):
    """The load is not known; the words say why."""


@dataclass(kw_only=True)
class ScaleState:
    """What was seen of a service's load, as its folder keeps it."""

    at_s: int = 0
    load: float | None = None
    wanted: int | None = None
    problem: str = ""
    """Why nothing is scaled; empty: nothing keeps it back."""
    requests: int | None = None
    """Counted by the gateway since its start."""
    needs: list[tuple[int, int]] = field(default_factory=list)
    """(when, replicas that the load needs), oldest first, over the quiet time."""


def scale_once(now_s: int, sparingly: Sparingly | None = None) -> list[str]:
    """Looks at the load of each of one's services with a range of replicas, and starts or ends some.
    Returns what was done, a sentence each. A fault of one service does not keep others from it.

    ``sparingly``: says which problems are logged now, each once an hour; None: all.
    """
    done: list[str] = []
    for name in service_names():
        try:
            record = read_service(name)
            if record is not None and not record.rule.is_fixed:
                done += _scale(record, now_s)
        except (MirageError, OSError, NoLoad) as error:
            _note_problem(name, str(error), now_s)
            if sparingly is None or sparingly.may(f"{name}: {error}", now_s):
                log.warning("service %s: nothing is scaled: %s", name, error)
    return done


def _scale(record: ServiceRecord, now_s: int) -> list[str]:
    living = living_replicas().get(record.name, [])
    if any(is_paused(chain_folder(one.chain_id)) for one in living):
        raise NoLoad("it is paused")
    state = read_state(record.name)
    demand = read_demand(record.name)
    demand = demand if demand and demand.is_fresh(now_s) else None
    load = _load(record, demand, state.requests)
    need = need_of(record.rule, load, demand.waiting if demand else 0)
    needs = kept_needs([*state.needs, (now_s, need)], record.rule.quiet_s)
    wanted = wanted_replicas(record.rule, needs, len(living))
    requests = demand.requests if demand else state.requests
    seen = ScaleState(at_s=now_s, load=load, wanted=wanted, requests=requests, needs=needs)
    if wanted > len(living) and (why := _lately_failed(record.name, now_s)):
        seen.problem = why
    _write_state(record.name, seen)
    if seen.problem:
        raise NoLoad(seen.problem)
    if wanted == len(living) == record.wanted:
        return []
    return set_replicas(record.name, wanted)


def need_of(rule: ScaleRule, load: float, waiting: int = 0) -> int:
    """Replicas that a load needs, within the rule's bounds."""
    need = math.ceil(min(load / rule.target, rule.most))
    return min(rule.most, max(rule.least, need, 1 if waiting > 0 else 0))


def kept_needs(needs: Sequence[tuple[int, int]], quiet_s: int) -> list[tuple[int, int]]:
    """Those of the quiet time, and one from before it. Looks that are far apart prove no quiet: then
    the newest alone.
    """
    if len(needs) > 1 and needs[-1][0] - needs[-2][0] > APART_S:
        return [needs[-1]]
    since_s = needs[-1][0] - quiet_s
    older = [need for need in needs if need[0] <= since_s]
    return [*older[-1:], *(need for need in needs if need[0] > since_s)]


def wanted_replicas(rule: ScaleRule, needs: Sequence[tuple[int, int]], now: int) -> int:
    """How many there are to be, where ``now`` are there. More at once; fewer, as many as were needed
    at most over a whole quiet time.
    """
    now = min(max(now, rule.least), rule.most)
    (first_s, _), (last_s, newest) = needs[0], needs[-1]
    if newest >= now:
        return newest
    if last_s - first_s < rule.quiet_s:
        return now
    return min(now, max(need for _, need in needs))


def _load(record: ServiceRecord, demand: ServiceDemand | None, before: int | None) -> float:
    """Raises NoLoad."""
    rule = record.rule
    if rule.prometheus:
        return _of_prometheus(rule.prometheus, rule.scale_on)
    if rule.scale_on:
        return _of_command(record)
    if demand is None:
        raise NoLoad("no gateway counts its requests: start `mirage gateway`, or give --scale-on")
    load = float(demand.open + demand.waiting)
    # A request that came and went between two looks is load, too.
    came = before is not None and demand.requests > before
    return max(load, 1.0) if came else load


def _of_command(record: ServiceRecord) -> float:
    """The number that the owner's command prints; it and its children have `MEASURE_S`."""
    what = f"--scale-on {record.rule.scale_on!r}"
    environ = {**record.environ, "MIRAGE_SERVICE": record.name}
    command = ["/bin/sh", "-c", record.rule.scale_on]
    try:
        done = run_bounded(command, environ, MEASURE_S, MOST_BYTES, record.cwd)
    except TimeoutError as error:
        raise NoLoad(f"{what} took longer than {MEASURE_S} s") from error
    except (OSError, ClusterNonsense) as error:
        raise NoLoad(f"{what}: {error}") from error
    if done.returncode:
        raise NoLoad(f"{what} ended with exit code {done.returncode}")
    return _number(done.stdout, what)


def _number(text: str, what: str) -> float:
    words = text.split()
    try:
        value = float(words[0]) if len(words) == 1 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise NoLoad(f"{what} printed {text.strip()[:60]!r}: expected one number, 0 or more")
    return value


def _of_prometheus(url: str, query: str) -> float:
    """An instant query that has one sample (https://prometheus.io/docs/prometheus/latest/querying/api)."""
    what = f"--scale-on {query!r} at {url}"
    try:
        address = f"{url.rstrip('/')}/api/v1/query?query={quote(query)}"
        with urlopen(address, timeout=MEASURE_S) as answer:  # noqa: S310  http or https, checked
            found = json.loads(answer.read(MOST_BYTES))["data"]
        samples = (
            [found["result"]]
            if found["resultType"] == "scalar"
            else [each["value"] for each in found["result"]]
        )
        if len(samples) != 1:
            raise NoLoad(f"{what}: {len(samples)} samples: expected one, as of sum(...)")
        return _number(str(samples[0][1]), what)
    except (URLError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise NoLoad(f"{what}: {error}") from error


def _lately_failed(name: str, now_s: int) -> str:
    """That a replica failed a short time ago; empty: none did."""
    for path in chains_folder().glob(f"*/{FAILED}"):
        try:
            is_late = now_s - path.stat().st_mtime < AFTER_FAILURE_S
            record = read_record(path.with_name(CHAIN_RECORD)) if is_late else {}
            if record.get("service") == name:
                why = path.read_text(errors="replace").strip().partition("\n")[0]
                return f"replica {record.get('replica')} failed less than 10 min ago: {why}"
        except OSError:
            continue
    return ""


def read_state(name: str) -> ScaleState:
    """As good as new where none is kept, or it can't be read."""
    try:
        found = json.loads((service_folder(name) / SCALE).read_text())
        needs = [(int(at_s), int(need)) for at_s, need in found.pop("needs")]
        return ScaleState(**found, needs=needs)
    except (OSError, ValueError, TypeError, KeyError):
        return ScaleState()


def _write_state(name: str, state: ScaleState) -> None:
    write_whole(service_folder(name) / SCALE, json.dumps(asdict(state)), 0o600)


def _note_problem(name: str, words: str, now_s: int) -> None:
    with suppress(OSError):  # the log has it
        state = read_state(name)
        state.at_s, state.problem = now_s, words
        _write_state(name, state)


@contextmanager
def scaling(may: Callable[[], bool]) -> Iterator[None]:
    """Scales in a thread of its own, each `EVERY_S`, while ``may()``."""
    stop, sparingly = threading.Event(), Sparingly(3600)

    def run() -> None:
        while not stop.wait(EVERY_S):
            if not may():
                continue
            try:
                for words in scale_once(int(time.time()), sparingly):
                    log.info("%s", words)
            except Exception:  # a fault of ours must not end it
                log.exception("services are not scaled: a fault in Mirage; please report it")

    thread = threading.Thread(target=run, name="scaler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
