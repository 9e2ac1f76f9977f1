"""Where users ask the site's daemon about their chains: a Unix socket. The kernel tells who asks,
not the asker.

One JSON line in, one JSON line out. `SO_PEERCRED` gives the asker's uid, so users get their own
chains only; root and the daemon's own user get all. It changes nothing of chains and jobs: owners
can only have the page show a chain of theirs no more once that is over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import random
import socket
import socketserver
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage.chain.tag import MAX_JOB_ID
from mirage.daemon.chain_quota import ChainQuota
from mirage.daemon.connections import BoundedServer, in_background
from mirage.daemon.dismissed import Dismissed
from mirage.daemon.report import chain_reports, explain
from mirage.errors import InputError, MirageError
from mirage.peers import Connections, uid_at
from mirage.ports import Store
from slurm_sim.formats import parse_json

log = logging.getLogger(__name__)

MAX_QUESTION = 4096
"""Bytes; a question is far shorter."""
OPEN_TO = frozenset({0})
"""Uids that may see every chain, beside the daemon's own: root."""
PATIENCE_S = 5.0
"""So long a daemon is waited for."""
MOST_ASKERS, QUESTIONS_EACH = 32, 4
"""Connections at once: of all, and of one user."""
_NEEDED = frozenset({"chain", "user", "state", "created", "links", "watched_by", "next"})
"""Keys of a chain's report that the commands can't do without."""


Door = Callable[[str | None], str]
"""Gives a link to the web page for a user (None: who may see all). Works once, and not for long."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What questions are answered from. ``notice``: what everyone who asks for chains is to know,
    if anything.
    """

    store: Store
    notice: Callable[[], str] = str
    door: Door | None = None
    dismissed: Dismissed = field(default_factory=Dismissed)
    quota: ChainQuota = field(default_factory=lambda: ChainQuota(None))
    queue_read_s: Callable[[], int | None] = lambda: None
    """When the queue was looked at last, in Unix seconds: answers are as old as that."""
    poll_s: int | None = None
    """How often that happens."""
    better_sizes: Callable[[str, int, int], str] = lambda _partition, _nodes, _limit_s: ""
    """`sizes.better_sizes`."""


def answer(source: Source, user: str | None, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question of ``user`` (None: may see all). Raises InputError."""
    match question:
        case {"ask": "web"}:
            if source.door is None:
                raise InputError(
                    "this daemon has no web page: `daemon.web` is not set (docs/web.md)"
                )
            return {"url": source.door(user), "user": user}
        case {"ask": "chains", "chain": str() | None as chain_id}:
            words = " ".join(filter(None, (source.notice(), source.quota.words(user))))
            return {
                "chains": chain_reports(source.store, user, chain_id),
                "notice": words,
                "seen": source.queue_read_s(),
                "every_s": source.poll_s,
            }
        case {"ask": "explain", "job": int() as job_id} if 0 < job_id <= MAX_JOB_ID:
            return source.quota.explain(user, job_id) or explain(source.store, user, job_id)
        case {"ask": "dismiss", "chain": str() as chain_id}:
            return _dismissed(source, user, chain_id)
        case {"ask": "intake"}:
            over = source.quota.over(user)
            return {"most": source.quota.most, "over": over, "every_s": source.poll_s}
        case {
            "ask": "sizes",
            "partition": str() as partition,
            "nodes": int() as nodes,
            "limit_s": int() as limit_s,
        }:
            known = partition and nodes > 0 and limit_s > 0
            words = source.better_sizes(partition, nodes, limit_s) if known else ""
            return {"words": words, "every_s": source.poll_s}
    raise InputError(
        "expected {'ask': 'chains', 'chain': ID or null}, {'ask': 'explain', 'job': N}, {'ask':"
        " 'dismiss', 'chain': ID}, {'ask': 'intake'}, {'ask': 'sizes', 'partition': P, 'nodes': N,"
        " 'limit_s': S} or {'ask': 'web'}"
    )


def _dismissed(source: Source, user: str | None, chain_id: str) -> dict[str, Any]:
    """Raises InputError: no chain of this user that is over."""
    chains = (chain for chain in source.store.chains(user) if chain.chain_id == chain_id)
    chain = next(chains, None)
    if chain is None or not chain.state.is_over:
        raise InputError(f"chain {chain_id}: no chain of yours that the daemon has seen end")
    source.dismissed.add(chain)
    return {"dismissed": chain_id}


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline(MAX_QUESTION)
        if not self.server.guests.asked(self.request):
            return
        with contextlib.suppress(OSError):  # the asker may have hung up
            self.request.sendall(json.dumps(self._reply(line)).encode() + b"\n")

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            return answer(self.server.source, _asker(self.request), parse_json(line))
        except (ValueError, InputError) as error:
            return {"error": str(error)}
        except (MirageError, OSError) as error:
            log.warning("a question could not be answered: %s", error)
            return {"error": f"the daemon can't answer now: {error}"}


def _asker(connection: socket.socket) -> str | None:
    """User name of the peer; None for those who may see everything."""
    uid = uid_at(connection)
    if uid in OPEN_TO or uid == os.getuid():
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise InputError(f"no user has the uid {uid} on the daemon's machine") from error


class _Server(BoundedServer, socketserver.UnixStreamServer):
    def __init__(self, path: Path, source: Source) -> None:
        self.source = source
        self.guests = Connections(name="socket", most=MOST_ASKERS, share=QUESTIONS_EACH)
        super().__init__(str(path), _Handler)


@contextlib.contextmanager
def serving(path: Path, source: Source) -> Iterator[None]:
    """Answers questions at ``path`` in the background. Raises InputError if the socket can't be
    made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():
            _refuse_if_in_use(path)
            path.unlink()  # left by a daemon that was killed
        server = _Server(path, source)
        path.chmod(0o666)
        if closed := closed_folder(path):
            log.warning("%s", closed)
    except OSError as error:
        raise InputError(f"daemon.socket: can't listen at {path}: {error}") from error
    try:
        with in_background(server):
            yield
    finally:
        path.unlink(missing_ok=True)


def closed_folder(path: Path) -> str:
    """What keeps other users from the socket, in words: a folder that is closed to them. Empty:
    nothing is seen to.
    """
    # A link may lead into a folder that is closed.
    for folder in (*reversed(path.absolute().parents), *reversed(path.resolve().parents)):
        try:
            mode = folder.stat().st_mode
        except OSError:
            return ""
        if not mode & 0o001:
            return (
                f"daemon.socket: other users can't reach {path}: {folder} is closed to them (mode"
                f" {mode & 0o7777:04o}); give a folder that is open, such as /run/mirage"
            )
    return ""


def _refuse_if_in_use(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        raise InputError(
            f"daemon.socket: another daemon listens at {path}; stop it, or give this one another"
            " path"
        )


def ask(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Asks a daemon. Raises OSError if none listens, InputError with its words if it refuses,
    ValueError if what it says is no answer of this release.

    One that hangs up since the same user asks too much at once is asked again, for PATIENCE_S.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return _ask(path, question)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - keeps several apart; no secret


def _ask(path: Path, question: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError(f"the daemon at {path} hung up")
    reply = parse_json(line.decode(errors="replace"))
    if isinstance(reply, dict) and "error" in reply:
        raise InputError(str(reply["error"]))
    if not _is_answer(question["ask"], reply):
        raise ValueError("its answer is not of this release")
    return dict(reply)


def _is_answer(asked: str, reply: object) -> bool:
    """Whether it has what users of `answer` rely on: any program may listen at the path."""
    match asked, reply:
        case "chains", {"chains": list(reports), "notice": str(), "seen": int() | None}:
            return all(isinstance(report, dict) and report.keys() >= _NEEDED for report in reports)
        case "explain", {"chain": str(), "explanation": str()}:
            return True
        case "web", {"url": str(), "user": str() | None}:
            return True
        case "intake", {"most": int(), "over": dict()}:
            return True
        case "sizes", {"words": str(), "every_s": int() | None}:
            return True
        case "dismiss", {"dismissed": str()}:
            return True
    return False
