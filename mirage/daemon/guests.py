"""Who is connected to a listener, and who has to leave: no user may keep the others out, or take the daemon's files.

A listener has ``most`` connections, and one peer (a local user, or a remote address) at most ``share`` of them. Who
opens more loses their own oldest connection that has not asked yet. Each connection has a time to ask in, and a life.
"""

from __future__ import annotations

import contextlib
import logging
import pwd
import resource
import socket
import socketserver
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from mirage.daemon.logs import Sparingly

log = logging.getLogger(__name__)

ASK_S = 5.0
"""A connection that has not asked after this long, however it trickles, is hung up on;"""
LIFE_S = 30.0
"""any other after this long."""
LOG_EVERY_S = 60.0
FILES = 4096
"""Open files that the service asks for. Its listeners take less than 200, Slurm's commands and the store a few."""


class Guest:
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


@dataclass
class Guests:
    """Of one listener. For several threads. ``name``: what the log calls it."""

    name: str
    most: int
    share: int
    now_s: Callable[[], float] = time.monotonic
    _guests: list[Guest] = field(default_factory=list)
    """Oldest first."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _log: Sparingly = field(default_factory=lambda: Sparingly(LOG_EVERY_S))

    def admit(self, guest: Guest) -> bool:
        """Takes a new connection in, and hangs up on another one where it is too many. False: on this very one."""
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

    def _hang_up(self, on: Callable[[Guest], bool]) -> None:
        with self._lock:
            found = [guest for guest in self._guests if on(guest)]
        for guest in found:
            guest.hang_up()

    def _surplus(self) -> Guest | None:
        if len(self._guests) <= self.share:  # then nobody can have more than that
            return None
        self._find_out()
        who, held = Counter(guest.who for guest in self._guests).most_common(1)[0]
        if held <= self.share and len(self._guests) <= self.most:
            return None
        self._complain(who, held)
        return next((guest for guest in self._guests if guest.who == who and not guest.is_busy), self._guests[-1])

    def _find_out(self) -> None:
        """Whose connections these are. One reading of the kernel's table serves all."""
        new = [guest for guest in self._guests if not guest.who]
        owners = local_owners() if any(guest.connection.family != socket.AF_UNIX for guest in new) else {}
        for guest in new:
            guest.who = _peer(guest.connection, owners)

    def _complain(self, who: str, held: int) -> None:
        if self._log.may(who, self.now_s()):
            log.warning(
                "%s: %s has %d connections; %d are allowed, so some are ended", self.name, who, held, self.share
            )


Ends = tuple[str, int, str, int]
"""Address and port of one's own end of a TCP connection, then of the other end."""
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def local_owners(tables: Sequence[Path] = TABLES) -> dict[Ends, int]:
    """Uids of the TCP connections that programs of this machine hold (proc(5), `/proc/net/tcp`)."""
    owners = {}
    for table in tables:
        with contextlib.suppress(OSError):  # a kernel without IPv6
            for row in table.read_text().splitlines()[1:]:
                fields = row.split()
                if fields[9] != "0":  # no inode: its program has closed it, and the table calls it root's
                    owners[*_end(fields[1]), *_end(fields[2])] = int(fields[7])
    return owners


def _end(text: str) -> tuple[str, int]:
    """`0100007F:1F90`: the address in words of 32 bits, in this machine's order of bytes."""
    address, _, port = text.partition(":")
    words = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    return _plain(str(ip_address(b"".join(words)))), int(port, 16)


def _plain(address: str) -> str:
    """Without a zone; an IPv4 address that came through an IPv6 socket as itself."""
    found = ip_address(address.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)


def holder(theirs: Sequence[Any], ours: Sequence[Any], owners: Mapping[Ends, int]) -> str:
    """Who holds the other end of a TCP connection, for people: a user of this machine, or an address."""
    uid = owners.get((_plain(theirs[0]), theirs[1], _plain(ours[0]), ours[1]))
    return str(theirs[0]) if uid is None else _user(uid)


def uid_at(connection: socket.socket) -> int:
    """Who connected through a Unix socket (unix(7), SO_PEERCRED)."""
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def _peer(connection: socket.socket, owners: Mapping[Ends, int]) -> str:
    try:
        if connection.family == socket.AF_UNIX:
            return _user(uid_at(connection))
        return holder(connection.getpeername(), connection.getsockname(), owners)
    except OSError:  # it is gone already
        return "who left"


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


class GuestServer(socketserver.ThreadingMixIn):
    """Mixed into a socketserver: one thread a connection, bounded by ``guests``."""

    daemon_threads = True
    request_queue_size = 128
    guests: Guests

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.guests.admit(Guest(request, self.guests.now_s())):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self.guests.leave(request)
        super().shutdown_request(request)  # type: ignore[misc]

    def service_actions(self) -> None:
        """Called twice a second, and after each new connection."""
        self.guests.hang_up_late()

    def handle_error(self, *_: Any) -> None:
        """Who hangs up in the middle is no news."""
        log.debug("%s: a connection broke", self.guests.name, exc_info=True)


@contextlib.contextmanager
def in_background(server: GuestServer) -> Iterator[None]:
    """Serves in a thread of its own."""
    base = cast(socketserver.BaseServer, server)
    thread = threading.Thread(target=base.serve_forever, name=f"mirage-{server.guests.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        base.shutdown()
        server.guests.hang_up()
        base.server_close()
        thread.join()


def allow_files(most: int = FILES) -> None:
    """Raises the soft limit of open files towards ``most`` (getrlimit(2)), as far as the hard one permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
