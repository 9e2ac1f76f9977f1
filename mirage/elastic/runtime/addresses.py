"""Where a process can be reached: the addresses of its own interfaces, never a host name.

On many clusters a host's name resolves to loopback, so names are not asked. A listener binds all
interfaces and publishes their addresses; who connects tries each until one answers.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_SIOCGIFADDR = 0x8915
"""ioctl of an interface's IPv4 address: netdevice(7)."""
PROBE_S = 1.0


@cache
def boot_id() -> str:
    """Names this machine since its last start: random(4)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def own_addresses() -> list[str]:
    """IPv4 addresses of all interfaces that are up, then global IPv6 ones; loopback last."""
    found = [_ipv4(name) for _, name in socket.if_nameindex()]
    addresses = [each for each in found if each] + _ipv6()
    return sorted(addresses, key=lambda text: ipaddress.ip_address(text).is_loopback)


def _ipv4(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError:  # an interface without an IPv4 address
            return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6() -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    addresses = [ipaddress.IPv6Address(int(line.split()[0], 16)) for line in lines]
    return [str(each) for each in addresses if not (each.is_link_local or each.is_loopback)]


def endpoints(port: int) -> tuple[str, ...]:
    """`tcp://ADDRESS:PORT` for each own address."""
    return tuple(f"tcp://{_bracketed(address)}:{port}" for address in own_addresses())


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def reachable(candidates: Sequence[str], their_boot_id: str) -> str | None:
    """The first endpoint that takes a TCP connection; None: none does.

    A loopback address is tried first on the same machine, and never on another.
    """
    same = their_boot_id == boot_id()
    loopback = [each for each in candidates if _address(each)[0].is_loopback]
    others = [each for each in candidates if each not in loopback]
    for endpoint in [*loopback, *others] if same else others:
        address, port = _address(endpoint)
        try:
            with socket.create_connection((str(address), port), timeout=PROBE_S):
                return endpoint
        except OSError:
            continue
    return None


def _address(endpoint: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Raises ValueError: not `tcp://ADDRESS:PORT` with a numeric address."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return ipaddress.ip_address(host.strip("[]")), int(port)
