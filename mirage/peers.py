"""What the kernel says of the other end of a connection, and how many files a process may open."""

from __future__ import annotations

import pwd
import resource
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

Address = IPv4Address | IPv6Address

FILES = 4096
"""Open files that a process with listeners asks for. Its listeners take less than 200, Slurm's
commands and the store a few.
"""
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_UID = struct.Struct("=II")
_UID_AT = 80
"""Where a `struct inet_diag_msg` behind its header has uid and inode."""
ANY = 0xFFFFFFFF


def holder(theirs: Sequence[Any], ours: Sequence[Any]) -> str:
    """Who holds the other end of a TCP connection, for people: a user of this machine, or an
    address. ``theirs``, ``ours``: address and port of each end.
    """
    uid = _uid_of(_plain(theirs[0]), theirs[1], _plain(ours[0]), ours[1])
    return str(theirs[0]) if uid is None else user_name(uid)


def uid_behind(connection: socket.socket) -> int | None:
    """Who accepted this TCP connection. Raises OSError: it is gone.

    None: nobody has yet, it is no program of this machine, or the kernel does not say.
    """
    theirs, ours = connection.getpeername(), connection.getsockname()
    return _uid_of(_plain(theirs[0]), theirs[1], _plain(ours[0]), ours[1])


def _uid_of(theirs: Address, their_port: int, ours: Address, our_port: int) -> int | None:
    """Whose the other end is (sock_diag(7)), asked for at the same cost however many connections
    there are.
    """
    family = socket.AF_INET if theirs.version == 4 else socket.AF_INET6
    ends = struct.pack("!HH16s16s", their_port, our_port, theirs.packed, ours.packed)
    request = (
        struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, ANY)
        + ends
        + struct.pack("=III", 0, ANY, ANY)
    )
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(
                _HEADER.pack(_HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
                + request
            )
            answer = kernel.recv(4096)
    except OSError:
        return None
    if _HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:  # an error: there is none
        return None
    uid, inode = _UID.unpack_from(answer, _UID_AT)
    return uid if inode else None  # without an inode no program has it, and it is shown as root's


def _plain(address: str) -> Address:
    """Without a zone; an IPv4 address that came through an IPv6 socket as itself."""
    found = ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def uid_at(connection: socket.socket) -> int:
    """Who connected through a Unix socket, or listens at it (unix(7), SO_PEERCRED)."""
    _pid, uid, _gid = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return int(uid)


def user_name(uid: int) -> str:
    """For people: `user NAME`, or `uid N` of one without a name."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


def allow_files(most: int = FILES) -> None:
    """Raises the soft limit of open files towards ``most`` (getrlimit(2)), as far as the hard one
    permits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
