"""Serves the page on this machine, in a thread of its own (waitress, imported here only)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mirage.daemon.metrics import parse_address
from mirage.errors import InputError
from mirage.peers import Connections

KEY = "daemon.web"
HOST = "127.0.0.1"
THREADS = 1
"""So many pages are made at once: Python runs one thread at a time, and the daemon's cycle needs it
too.
"""
VISITORS, VISITS_EACH = 64, 32
"""Connections at once: of all, and of one user (a proxy of the site's is one)."""
IDLE_S = 30
"""A connection that has sent no whole request for so long is hung up on."""
CHECK_S = 5
"""So often that is looked for."""
MOST_BYTES = 8192
"""Of a request."""


def port_of(address: str) -> int:
    """Of HOST:PORT. Raises InputError unless HOST is this machine: over a network it needs TLS,
    which it has not.
    """
    host, port = parse_address(address, KEY)
    if host not in (HOST, "localhost"):
        raise InputError(
            f"{KEY} is {address!r}: the page has no TLS, so it is served on this machine only; use"
            f" {HOST}:{port}. From elsewhere: ssh -L, or a proxy with TLS (docs/web.md)."
        )
    return port


@contextmanager
def served(app: Any, address: str) -> Iterator[str]:
    """Serves a WSGI application; gives its URL (`:0` is any free port). Raises InputError for an
    address in use.
    """
    from waitress.wasyncore import close_all, loop

    server = _server(app, address)
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            loop(
                server.adj.asyncore_loop_timeout, server.adj.asyncore_use_poll, server._map, count=1
            )

    thread = threading.Thread(target=serve, name="mirage-web", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.effective_port}"
    finally:
        server.task_dispatcher.shutdown()
        stopping.set()
        server.pull_trigger()
        thread.join()
        close_all(server._map)  # only now: nobody polls or wakes a file that is closed


def _server(app: Any, address: str) -> Any:
    """A waitress server that listens. Raises InputError."""
    from waitress import create_server

    from mirage.web.connection import visit_class

    port = port_of(address)
    # It warns of each request that waits for another one.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    try:
        server = create_server(
            app,
            host=HOST,
            port=port,
            threads=THREADS,
            connection_limit=2 * VISITORS,  # the guests' bound comes first
            channel_timeout=IDLE_S,
            cleanup_interval=CHECK_S,
            max_request_header_size=MOST_BYTES,
            max_request_body_size=MOST_BYTES,
            clear_untrusted_proxy_headers=True,
            asyncore_use_poll=True,
            ident=None,
        )
    except OSError as error:
        raise InputError(
            f"{KEY} is {address!r}, which can't be listened on: {error.strerror}; is another"
            " service there? Choose another port, or none."
        ) from error
    server.channel_class = visit_class(
        Connections(name="web page", most=VISITORS, share=VISITS_EACH)
    )
    return server
