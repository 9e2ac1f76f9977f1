"""Who is connected to a listener, and who has to leave: no user may keep the others out, or take
the daemon's files.

A listener has ``most`` connections, and one peer (a local user, or a remote address) at most
``share`` of them. Who opens more loses their own oldest connection that has not asked yet. Each
connection has a time to ask in, and a life.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from mirage.daemon.logs import Sparingly
from mirage.peers import holder, uid_at, user_name

log = logging.getLogger(__name__)

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


class BoundedServer(socketserver.ThreadingMixIn):
    """Mixed into a socketserver: one thread a connection, bounded by ``guests``."""

    daemon_threads = True
    request_queue_size = 128
    guests: Connections

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.guests.admit(Connection(request, self.guests.now_s())):
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
def in_background(server: BoundedServer) -> Iterator[None]:
    """Serves in a thread of its own."""
    base = cast(socketserver.BaseServer, server)
    thread = threading.Thread(
        target=base.serve_forever, name=f"mirage-{server.guests.name}", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        base.shutdown()
        server.guests.hang_up()
        base.server_close()
        thread.join()
