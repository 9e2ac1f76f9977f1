"""Serves the page on this machine, in threads of its own (waitress, imported here only)."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mirage.daemon.metrics import parse_address
from mirage.errors import InputError

KEY = "daemon.web"
THREADS = 2
"""So many pages are made at once: Python runs one thread at a time, so a flood of visits leaves the cycle a third."""
VISITORS = 64
"""Connections at once; more wait to be accepted."""
IDLE_S = 30
"""A connection that says nothing for so long is hung up on."""
MOST_BYTES = 8192
"""Of a request."""


def loopback(address: str) -> tuple[str, int]:
    """HOST:PORT of this machine alone. Raises InputError: what goes over a network needs TLS, which this has not."""
    host, port = parse_address(address, KEY)
    host = "127.0.0.1" if host == "localhost" else host
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise InputError(
            f"{KEY} is {address!r}: the page has no TLS, so it is served on this machine only; use 127.0.0.1:{port}. "
            "From elsewhere: ssh -L, or a proxy with TLS (docs/web.md)."
        )
    return host, port


@contextmanager
def served(app: Any, address: str) -> Iterator[str]:
    """Serves a WSGI application; gives its URL (`:0` is any free port). Raises InputError for an address in use."""
    from waitress import create_server
    from waitress.wasyncore import close_all

    host, port = loopback(address)
    logging.getLogger("waitress").setLevel(logging.ERROR)  # it warns of each request that waits for another one
    try:
        server = create_server(
            app,
            host=host,
            port=port,
            threads=THREADS,
            connection_limit=VISITORS,
            channel_timeout=IDLE_S,
            max_request_header_size=MOST_BYTES,
            max_request_body_size=MOST_BYTES,
            clear_untrusted_proxy_headers=True,
            asyncore_use_poll=True,
            ident=None,
        )
    except OSError as error:
        raise InputError(
            f"{KEY} is {address!r}, which can't be listened on: {error.strerror}; is another service there? "
            "Choose another port, or none."
        ) from error
    thread = threading.Thread(target=server.run, name="mirage-web", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.effective_port}"
    finally:
        server.task_dispatcher.shutdown()
        # In its own thread: to close what another thread polls is not safe.
        server.trigger.pull_trigger(lambda: close_all(server._map))
        thread.join()
