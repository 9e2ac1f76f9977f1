"""Telling systemd how the service is (sd_notify(3), Type=notify). Without systemd nothing is sent."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


def notify(*lines: str, environ: Mapping[str, str] = os.environ) -> None:
    """Sends `READY=1`, `STATUS=...`, `WATCHDOG=1` and the like. Never fails: a service works
    without its manager.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    # An abstract address starts with a null byte, which systemd writes as @.
    address = "\0" + address[1:] if address.startswith("@") else address
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.sendto("\n".join(lines).encode(), address)


def watchdog_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants to hear from us: half of WatchdogSec. None: it does not, or not from
    this process.
    """
    microseconds, pid = (
        environ.get("WATCHDOG_USEC", ""),
        environ.get("WATCHDOG_PID", str(os.getpid())),
    )
    if not microseconds.isdecimal() or int(microseconds) == 0 or pid != str(os.getpid()):
        return None
    return int(microseconds) / 2e6
