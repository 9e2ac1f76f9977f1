"""`mirage scale NAME [N]`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from mirage.chain.service import (
    MOST_REPLICAS,
    ScaleRule,
    ServiceRecord,
    living_replicas,
    parse_rule,
    service_of,
    turn,
    write_service,
)
from mirage.errors import InputError
from mirage.user.replicas import set_replicas
from mirage.user.scaler import read_state

_LOAD = ("scale-on", "target", "prometheus", "quiet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="NAME", help="name of a service of several replicas")
    parser.add_argument(
        "replicas",
        metavar="N | A..B",
        nargs="?",
        help=f"number of replicas, 0 to {MOST_REPLICAS}, or a range by load; default: only show",
    )
    parser.add_argument("--scale-on", metavar="CMD", help="shell command, or query, of the load")
    parser.add_argument("--target", metavar="X", help="load that one replica takes")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="server that --scale-on is a query of (default: $MIRAGE_PROMETHEUS; '': it is a command)",
    )
    parser.add_argument("--quiet", metavar="D", help="time of lower load before it gets smaller")


def run(args: argparse.Namespace) -> int:
    record = service_of(args.service)
    own = {
        name: value
        for name in _LOAD
        if (value := getattr(args, name.replace("-", "_"))) is not None
    }
    if args.replicas is None:
        if own:
            raise InputError(f"--{min(own)} needs a range: mirage scale {record.name} 1..8 ...")
        _show(record)
        return 0
    rule = _rule(args.replicas, own)
    with turn(record.name):
        write_service(replace(service_of(record.name), rule=rule))
    now = len(living_replicas().get(record.name, []))
    wanted = min(max(now, rule.least), rule.most)
    for words in set_replicas(record.name, wanted):
        print(words)
    _show(service_of(record.name))
    return 0


def _rule(replicas: str, own: Mapping[str, str]) -> ScaleRule:
    if replicas != "0":
        return parse_rule({**own, "replicas": replicas})
    if own:
        raise InputError(f"--{min(own)} needs a range, such as 0..4")
    return ScaleRule(least=0, most=0)


def _show(record: ServiceRecord) -> None:
    living, rule = living_replicas().get(record.name, []), record.rule
    which = ", ".join(f"{one.number} (chain {one.chain_id})" for one in living) or "none"
    print(f"service {record.name}: {len(living)} of {record.wanted} replicas: {which}")
    if rule.is_fixed:
        return
    state = read_state(record.name)
    by = rule.scale_on or "the gateway's requests, open and waiting"
    by += f" at {rule.prometheus}" if rule.prometheus else ""
    print(
        f"between {rule.least} and {rule.most} by load: {by}, {rule.target:g} a replica; smaller"
        f" after {rule.quiet_s} s of less"
    )
    if state.at_s:
        print(f"last look: load {state.load}, {state.wanted} wanted. {state.problem}".rstrip())
