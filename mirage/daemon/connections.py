"""Servers with a thread a connection, which no user can keep to himself (`mirage.peers`)."""

from __future__ import annotations

import contextlib
import logging
import socketserver
import threading
from collections.abc import Iterator
from typing import Any, cast

from mirage.peers import Connection, Connections

log = logging.getLogger(__name__)


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
