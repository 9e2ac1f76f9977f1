"""`mirage-submit --replicas`: a service of several chains, and a further one for `mirage scale`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mirage.chain.durations import format_duration
from mirage.chain.folder import chain_folder
from mirage.chain.sbatch import SbatchOption
from mirage.chain.script import ChainSettings
from mirage.chain.service import (
    ScaleRule,
    ServiceRecord,
    check_name,
    first_limit_s,
    forget_service,
    living_replicas,
    make_services_folder,
    parse_replica,
    parse_rule,
    read_service,
    service_of,
    write_service,
)
from mirage.chain.service_bounds import check_bounds
from mirage.chain.submission import Interruptions, new_chain_id, submit_chain
from mirage.cli.submit import PreparedChain, dry_run, in_full
from mirage.errors import InputError, MirageError
from mirage.user.service_check import is_watched, tell_who_watches

PROGRAM = "mirage-submit"


def run(chain: PreparedChain, words: Sequence[str]) -> int:
    """Starts the service, or with `--replica` one more of its chains. Returns the exit code."""
    own = chain.request.own
    if "replica" in own:
        return _add(chain, *parse_replica(own["replica"]))
    if "replicas" not in own:
        raise InputError("--scale-on, --target, --prometheus and --quiet need --replicas A..B")
    rule, name = parse_rule(own), chain.settings.job_name
    check_name(name)
    replicas = [_replica(chain, name, number, rule) for number in range(1, rule.least + 1)]
    shown = [dry_run(each) for each in replicas or [_replica(chain, name, 1, rule)]]
    if shown[0] is not None:
        return shown[0]
    _refuse_second(name)
    check_bounds(rule.most, _options(chain))
    return _start(chain, replicas, _record(chain, name, rule, words))


def _start(chain: PreparedChain, replicas: Sequence[PreparedChain], record: ServiceRecord) -> int:
    make_services_folder()
    write_service(record, chain.script.content)
    as_json, started = "json" in chain.request.own, []
    for each in replicas:
        try:
            started.append((each.settings, _submit(each)))
        except MirageError as error:
            if not started:
                forget_service(record.name)
                raise
            raise _partly(record, [one.replica or 0 for one, _ in started], error) from error
        if not as_json:
            print(f"Submitted replica {_words(*started[-1])}")
    if as_json:
        print(json.dumps({"service": record.name, "replicas": [_json(*each) for each in started]}))
    _tell(record, chain.settings, [one for one, _ in started])
    return 0


def _add(chain: PreparedChain, name: str, number: int) -> int:
    record = service_of(name)
    check_bounds(1, _options(chain))
    each = _replica(chain, name, number, record.rule, max(record.wanted, number))
    print(f"Submitted replica {_words(each.settings, _submit(each))}")
    return 0


def _options(chain: PreparedChain) -> tuple[SbatchOption, ...]:
    return (*chain.script.options, *chain.settings.options)


def _submit(chain: PreparedChain) -> list[int]:
    interruptions = Interruptions()
    with interruptions.deferred():
        return submit_chain(chain.settings, chain.script, interruptions)


def _replica(
    chain: PreparedChain, name: str, number: int, rule: ScaleRule, of: int | None = None
) -> PreparedChain:
    """Where nobody watches, first links have limits that are spread. A daemon or an agent keeps
    replicas apart without an end that no successor is there for.
    """
    settings, chain_id = chain.settings, new_chain_id()
    first_s = None
    if not settings.time_min_s and not is_watched():
        lead_s = settings.limit_signal.lead_s if settings.limit_signal else 0
        least_s = 2 * settings.startup_s + lead_s
        first_s = first_limit_s(settings.limit_s, number, of or max(rule.least, 1), least_s)
    changed = replace(
        settings,
        chain_id=chain_id,
        folder=chain_folder(chain_id),
        service=name,
        replica=number,
        first_limit_s=first_s,
    )
    return replace(chain, settings=changed)


def _record(
    chain: PreparedChain, name: str, rule: ScaleRule, words: Sequence[str]
) -> ServiceRecord:
    return ServiceRecord(
        name=name,
        words=list(words),
        source=str(chain.settings.source),
        cwd=str(Path.cwd()),
        environ=dict(os.environ),
        rule=rule,
        wanted=rule.least,
    )


def _refuse_second(name: str) -> None:
    record, running = read_service(name), living_replicas().get(name, [])
    if running or (record is not None and record.rule.least == 0):
        raise InputError(
            f"a service {name} is there already, with {len(running)} replicas: `mirage scale {name}"
            f" N` changes how many, `mirage cancel {name}` ends it, --job-name starts another"
        )


def _partly(record: ServiceRecord, numbers: Sequence[int], error: MirageError) -> MirageError:
    which = " and ".join(map(str, numbers))
    several = "s" if len(numbers) > 1 else ""
    partly = MirageError(
        f"replica{several} {which} of {record.rule.least} of service {record.name}"
        f" {'are' if several else 'is'} submitted, the next one is not: {error} `mirage scale"
        f" {record.name} {record.rule.least}` submits the rest, `mirage cancel {record.name}` ends"
        " it."
    )
    partly.exit_code = error.exit_code
    return partly


def _words(settings: ChainSettings, jobs: Sequence[int]) -> str:
    return (
        f"{settings.replica} of service {settings.service}: chain {settings.chain_id},"
        f" {in_full(settings, jobs)}"
    )


def _json(settings: ChainSettings, jobs: Sequence[int]) -> dict[str, object]:
    links = [{"segment": segment, "job_id": job} for segment, job in enumerate(jobs, start=1)]
    return {
        "replica": settings.replica,
        "chain": settings.chain_id,
        "folder": str(settings.folder),
        "jobs": links,
    }


def _tell(
    record: ServiceRecord, settings: ChainSettings, replicas: Sequence[ChainSettings]
) -> None:
    """On the error stream: what the spread costs, and who scales and watches."""
    short = [one for one in replicas if one.first_limit_s]
    if short:
        limits = ", ".join(format_duration(one.first_limit_s or 0) for one in short)
        _note(
            "so that no two replicas end together, the first links of the later ones have limits of"
            f" {limits}: {len(short)} more handover{'s' * (len(short) > 1)}, once"
        )
    if not record.rule.is_fixed:
        _note(
            f"between {record.rule.least} and {record.rule.most} replicas run by load, while `mirage"
            " agent` or `mirage gateway` runs as you"
        )
    tell_who_watches(PROGRAM, settings.limit_s)


def _note(text: str) -> None:
    print(f"{PROGRAM}: note: {text}.", file=sys.stderr)
