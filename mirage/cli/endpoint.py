"""`mirage endpoint NAME`: where a service is now."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from mirage.gateway.endpoints import Endpoint, Service, find_service, not_running
from mirage.gateway.pool import CONNECT_S

LOOK_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints HOST:PORT of each link of a service that is ready and accepts a connection, a line"
        " each. Exit code 0: there is one; 1: there is none now; 2: there is no such service."
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help="service: its name, its job name, or a chain's id; as OWNER/NAME another user's, where"
        " that user's folders may be read",
    )
    parser.add_argument(
        "--watch", action="store_true", help="a line at each change, with its time, until Ctrl-C"
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    service = find_service(args.name)
    if args.watch:
        return _watch(service, args.json)
    ready = reachable(service)
    if args.json:
        print(_as_json(service, ready))
    for endpoint in [] if args.json else ready:
        print(endpoint.address)
    if not ready:
        print(f"mirage endpoint: {_why_none(service)}", file=sys.stderr)
    return 0 if ready else 1


def reachable(service: Service) -> list[Endpoint]:
    """Its endpoints that accept a connection, and whose job Slurm does not deny."""
    found = service.endpoints()
    if not found:
        return []
    with ThreadPoolExecutor(len(found)) as pool:
        accepting = [
            one for one, is_up in zip(found, pool.map(_accepts, found), strict=True) if is_up
        ]
    gone = not_running(accepting, service.owner) if accepting else []
    return [endpoint for endpoint in accepting if endpoint not in gone]


def _accepts(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection((endpoint.host, endpoint.port), CONNECT_S).close()
    except OSError:
        return False
    return True


def _why_none(service: Service) -> str:
    listed = service.endpoints()
    if listed:
        where = ", ".join(endpoint.address for endpoint in listed)
        return f"{service.name}: {where} accepts no connection from here; does the server listen on all addresses?"
    return (
        f"no link of {service.name} is ready; `mirage status` tells more. A link is found by --port,"
        " by the port of its health check, or by what its script writes into $MIRAGE_ENDPOINT"
    )


def _watch(service: Service, as_json: bool) -> int:
    shown: Sequence[Endpoint] | None = None
    looked_s = time.monotonic()
    while True:
        ready = service.endpoints()
        if ready != shown:
            at = time.strftime("%Y-%m-%dT%H:%M:%S")
            words = " ".join(endpoint.address for endpoint in ready) or "none"
            print(_as_json(service, ready) if as_json else f"{at} {words}", flush=True)
            shown = ready
        time.sleep(LOOK_S)
        if time.monotonic() - looked_s > 5:
            service.look()
            looked_s = time.monotonic()


def _as_json(service: Service, endpoints: Sequence[Endpoint]) -> str:
    return json.dumps({"service": service.name, "endpoints": [asdict(one) for one in endpoints]})
