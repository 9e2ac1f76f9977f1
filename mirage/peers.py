"""Who is at the other end of a connection, as the kernel says; and which of them has to leave, so that
nobody keeps others out, takes a listener's files, or fills a log.

A listener has ``most`` connections, and one peer (a local user, or a remote address) at most
``share`` of them. Who opens more loses their own oldest connection that has not asked yet. Each
connection has a time to ask in, and a life.
"""

from __future__ import annotations

import contextlib
import logging
import pwd
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

log = logging.getLogger(__name__)

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


class Sparingly:
    """Whether something is to be logged: once in ``every_s`` for each name, so that nobody can fill
    the log.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._at_s: dict[str, float] = {}

    def may(self, name: str, now_s: float) -> bool:
        self._at_s = {
            each: at_s for each, at_s in self._at_s.items() if abs(now_s - at_s) < self._every_s
        }
        is_new = name not in self._at_s
        self._at_s.setdefault(name, now_s)
        return is_new


ASK_S = 5.0
"""A connection that has not asked after this long, however it trickles, is hung up on;"""
LIFE_S = 30.0
"""any other after this long."""
LOG_EVERY_S = 60.0


class Connection:
    """One connection."""

    def __init__(self, connection: socket.socket, since_s: float) -> None:
        self.connection = connection
        self.since_s = since_s
        self.who = ""
        """Found out when it is crowded."""
        self.has_asked = False

    @property
    def is_busy(self) -> bool:
        """It has asked, and is being answered."""
        return self.has_asked

    def hang_up(self) -> None:
        """Wakes the thread that reads or writes, which closes the connection."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@dataclass(kw_only=True)
class Connections:
    """Of one listener. For several threads. ``name``: what the log calls it."""

    name: str
    most: int
    share: int
    now_s: Callable[[], float] = time.monotonic
    _guests: list[Connection] = field(default_factory=list)
    """Oldest first."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _log: Sparingly = field(default_factory=lambda: Sparingly(LOG_EVERY_S))

    def admit(self, guest: Connection) -> bool:
        """Takes a new connection in, and hangs up on another one where it is too many. False: on
        this very one.
        """
        with self._lock:
            self._guests.append(guest)
            surplus = self._surplus()
            if surplus:
                self._guests.remove(surplus)
        if surplus and surplus is not guest:
            surplus.hang_up()
        return surplus is not guest

    def asked(self, connection: socket.socket) -> bool:
        """It is to be answered now, and nobody displaces it. False: it was hung up on."""
        with self._lock:
            found = [guest for guest in self._guests if guest.connection is connection]
            for guest in found:
                guest.has_asked = True
            return bool(found)

    def leave(self, connection: socket.socket) -> None:
        """It is about to be closed."""
        with self._lock:
            self._guests = [guest for guest in self._guests if guest.connection is not connection]

    def hang_up_late(self) -> None:
        """On those whose time is over."""
        now_s = self.now_s()
        self._hang_up(lambda guest: now_s - guest.since_s > (LIFE_S if guest.is_busy else ASK_S))

    def hang_up(self) -> None:
        """On all."""
        self._hang_up(lambda _guest: True)

    def _hang_up(self, on: Callable[[Connection], bool]) -> None:
        with self._lock:
            found = [guest for guest in self._guests if on(guest)]
        for guest in found:
            guest.hang_up()

    def _surplus(self) -> Connection | None:
        if len(self._guests) <= self.share:  # then nobody can have more than that
            return None
        for guest in self._guests:
            guest.who = guest.who or _peer(guest.connection)
        who, held = Counter(guest.who for guest in self._guests).most_common(1)[0]
        if held <= self.share and len(self._guests) <= self.most:
            return None
        self._complain(who, held)
        return next(
            (guest for guest in self._guests if guest.who == who and not guest.is_busy),
            self._guests[-1],
        )

    def _complain(self, who: str, held: int) -> None:
        if self._log.may(who, self.now_s()):
            log.warning(
                "%s: %s has %d connections; one user may have %d, all together %d, so some are"
                " ended",
                self.name,
                who,
                held,
                self.share,
                self.most,
            )


def _peer(connection: socket.socket) -> str:
    try:
        if connection.family == socket.AF_UNIX:
            return user_name(uid_at(connection))
        return holder(connection.getpeername(), connection.getsockname())
    except OSError:  # it is gone already
        return "who left"
