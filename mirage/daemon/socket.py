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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mirage.chain.tag import MAX_JOB_ID
from mirage.daemon.report import chain_reports, explain
from mirage.errors import InputError, MirageError
from mirage.ports import Store

log = logging.getLogger(__name__)

MAX_QUESTION = 4096
"""Bytes; a question is far shorter."""
OPEN_TO = frozenset({0})
"""Uids that may see every chain, beside the daemon's own: root."""
PATIENCE_S = 5.0
"""An asker who has not asked after this long is hung up on."""
MAX_ASKERS = 16
"""At once."""


Door = Callable[[str | None], str]
"""Gives a link to the web page for a user (None: who may see all). Works once, and not for long."""


def answer(
    store: Store, user: str | None, question: dict[str, Any], notice: str = "", door: Door | None = None
) -> dict[str, Any]:
    """The answer to one question of ``user`` (None: may see all). Raises InputError."""
    match question:
        case {"ask": "web"}:
            if door is None:
                raise InputError("this daemon has no web page: `daemon.web` is not set (docs/web.md)")
            return {"url": door(user), "user": user}
        case {"ask": "chains", "chain": str() | None as chain_id}:
            return {"chains": chain_reports(store, user, chain_id), "notice": notice}
        case {"ask": "explain", "job": int() as job_id} if 0 < job_id <= MAX_JOB_ID:
            return explain(store, user, job_id)
    raise InputError("expected {'ask': 'chains', 'chain': ID or null}, {'ask': 'explain', 'job': N} or {'ask': 'web'}")


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        try:
            question = json.loads(_read_line(self.request))
            reply = answer(self.server.store, _asker(self.request), question, self.server.notice(), self.server.door)
        except (ValueError, RecursionError, InputError) as error:
            reply = {"error": str(error)}
        except (MirageError, OSError) as error:
            log.warning("a question could not be answered: %s", error)
            reply = {"error": f"the daemon can't answer now: {error}"}
        with contextlib.suppress(OSError):  # the asker may have hung up
            self.request.settimeout(PATIENCE_S)
            self.request.sendall(json.dumps(reply).encode() + b"\n")


def _read_line(connection: socket.socket) -> bytes:
    """What was asked, within PATIENCE_S in all. Raises TimeoutError, an OSError."""
    deadline = time.monotonic() + PATIENCE_S
    line = b""
    while b"\n" not in line and len(line) < MAX_QUESTION:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (part := connection.recv(MAX_QUESTION)):
            break
        line += part
    return line


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

    def __init__(self, path: Path, store: Store, notice: Callable[[], str], door: Door | None) -> None:
        self.store = store
        self.notice = notice
        self.door = door
        self._slots = threading.BoundedSemaphore(MAX_ASKERS)
        super().__init__(str(path), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hangs up on who comes when too many ask at once: the daemon needs its threads and files itself."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


@contextlib.contextmanager
def serving(path: Path, store: Store, notice: Callable[[], str] = str, door: Door | None = None) -> Iterator[None]:
    """Answers questions at ``path`` in the background. Raises InputError if the socket can't be made.

    ``notice``: what everyone who asks for chains is told, if anything.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():
            _refuse_if_in_use(path)
            path.unlink()  # left by a daemon that was killed
        server = _Server(path, store, notice, door)
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


def _refuse_if_in_use(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, contextlib.suppress(OSError):
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        raise InputError(f"daemon.socket: another daemon listens at {path}; stop it, or give this one another path")


def ask(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Asks a daemon. Raises OSError if none listens, InputError with its words if it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError(f"the daemon at {path} hung up")
    reply: dict[str, Any] = json.loads(line)
    if "error" in reply:
        raise InputError(str(reply["error"]))
    return reply
