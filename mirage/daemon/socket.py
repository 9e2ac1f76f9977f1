"""Where users ask the site's daemon about their chains: a Unix socket. The kernel tells who asks, not the asker.

One JSON line in, one JSON line out. `SO_PEERCRED` gives the asker's uid, so users get their own chains only; root and
the daemon's own user get all. It only reads: nothing can be changed through it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirage.daemon.report import chain_reports, explain
from mirage.errors import InputError, MirageError
from mirage.ports import Store

log = logging.getLogger(__name__)

MAX_QUESTION = 4096
"""Bytes; a question is far shorter."""
OPEN_TO = frozenset({0})
"""Uids that may see every chain, beside the daemon's own: root."""
PATIENCE_S = 5.0
"""An asker who sends nothing for this long is hung up on."""


def answer(store: Store, user: str | None, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question of ``user`` (None: may see all). Raises InputError."""
    match question:
        case {"ask": "chains", "chain": str() | None as chain_id}:
            return {"chains": chain_reports(store, user, chain_id)}
        case {"ask": "explain", "job": int() as job_id}:
            return explain(store, user, job_id)
    raise InputError("expected {'ask': 'chains', 'chain': ID or null} or {'ask': 'explain', 'job': N}")


class _Handler(socketserver.StreamRequestHandler):
    timeout = PATIENCE_S
    server: _Server

    def handle(self) -> None:
        try:
            question = json.loads(self.rfile.readline(MAX_QUESTION))
            reply = answer(self.server.store, _asker(self.request), question)
        except (ValueError, RecursionError, InputError) as error:
            reply = {"error": str(error)}
        except (MirageError, OSError) as error:
            log.warning("a question could not be answered: %s", error)
            reply = {"error": f"the daemon can't answer now: {error}"}
        with contextlib.suppress(OSError):  # the asker may have hung up
            self.wfile.write(json.dumps(reply).encode() + b"\n")


def _asker(connection: socket.socket) -> str | None:
    """User name of the peer; None for those who may see everything."""
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid in OPEN_TO or uid == os.getuid():
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise InputError(f"no user has the uid {uid} on the daemon's machine") from error


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, store: Store) -> None:
        self.store = store
        super().__init__(str(path), _Handler)


@contextlib.contextmanager
def serving(path: Path, store: Store) -> Iterator[None]:
    """Answers questions at ``path`` in the background. Raises InputError if the socket can't be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():  # left by a daemon that was killed: the store's lock says that none is running
            path.unlink()
        server = _Server(path, store)
        path.chmod(0o666)
    except OSError as error:
        raise InputError(f"daemon.socket: can't listen at {path}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="mirage-socket", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        path.unlink(missing_ok=True)


def ask(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Asks a daemon. Raises OSError if none listens, InputError with its words if it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as lines:
            reply: dict[str, Any] = json.loads(lines.readline() or b'{"error": "the daemon hung up"}')
    if "error" in reply:
        raise InputError(str(reply["error"]))
    return reply
