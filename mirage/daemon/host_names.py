"""Whether a browser or scraper calls this machine by a name of its own.

A foreign name that leads here (DNS rebinding) would let its owner's web page read what this machine
serves.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/@,]+))(?::\d*)?")


def known_names(*more: str) -> frozenset[str]:
    """The loopback's names, this machine's, and ``more``."""
    return frozenset(
        name.lower() for name in (*LOOPBACK, socket.gethostname(), socket.getfqdn(), *more) if name
    )


def is_known(header: str, names: Collection[str]) -> bool:
    """Whether a `Host:` header has one of these names, or an address of this machine."""
    match = _HOST.fullmatch(header.strip())
    if match is None:
        return False
    name = (match[1] or match[2]).lower().rstrip(".")
    return name in names or _is_own_address(name)


def _is_own_address(text: str) -> bool:
    try:
        address = ip_address(text)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except (ValueError, OSError):  # no address; not one of ours
        return False
    return not address.is_unspecified


def only_known(
    app: Callable[..., Iterable[bytes]], names: Collection[str]
) -> Callable[..., Iterable[bytes]]:
    """The WSGI application, for who calls this machine by one of these names; 400 for others."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if is_known(environ.get("HTTP_HOST", ""), names):
            return app(environ, start_response)
        start_response(
            "400 Bad Request", [("Content-Type", "text/plain"), ("Cache-Control", "no-store")]
        )
        return [b"This machine is not called so: use localhost, or set daemon.hosts.\n"]

    return checked
