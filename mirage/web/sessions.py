"""Who looks at the page. A TCP port can't know who connects; the daemon's Unix socket does.

`mirage web` asks there and gets a link with a ticket, which works once. It opens a session: an
address that nobody can guess, and a cookie that the browser sends to that address only. Browsers
send cookies to every port of a host, so a cookie for all of 127.0.0.1 would reach whoever else
listens there; and an address alone is seen over shoulders, in histories and in `ps` (decision
0015). All of it is in memory: a daemon that starts again knows nobody.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

TICKET_S = 120
SESSION_S = 12 * 3600
MOST = 8
"""Tickets, and sessions, of one user: the oldest goes."""


@dataclass(frozen=True)
class Session:
    """``user`` None: may see all chains, as at the daemon's socket."""

    user: str | None
    secret: str
    """What the cookie holds."""
    ends_s: float


@dataclass(frozen=True)
class _Ticket:
    user: str | None
    ends_s: float


_Held = TypeVar("_Held", _Ticket, Session)


class Visitors:
    """Tickets and sessions. For several threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._tickets: dict[str, _Ticket] = {}
        self._sessions: dict[str, Session] = {}

    def ticket(self, user: str | None) -> str:
        """A word that opens one session, within TICKET_S."""
        with self._lock:
            self._tickets = _kept(self._tickets, user, self._now_s())
            word = secrets.token_urlsafe(24)
            self._tickets[word] = _Ticket(user, self._now_s() + TICKET_S)
            return word

    def enter(self, ticket: str) -> tuple[str, Session] | None:
        """A new session and its address; None: the ticket was used, is too old, or never was one."""
        with self._lock:
            now_s = self._now_s()
            known = self._tickets.pop(ticket, None)
            if known is None or known.ends_s <= now_s:
                return None
            self._sessions = _kept(self._sessions, known.user, now_s)
            address = secrets.token_urlsafe(18)
            self._sessions[address] = Session(
                known.user, secrets.token_urlsafe(24), now_s + SESSION_S
            )
            return address, self._sessions[address]

    def find(self, address: str, secret: str) -> Session | None:
        """The session at this address, if the cookie is its."""
        with self._lock:
            known = self._sessions.get(address)
        if known is None or known.ends_s <= self._now_s():
            return None
        return known if secrets.compare_digest(known.secret.encode(), secret.encode()) else None

    def leave(self, address: str) -> None:
        with self._lock:
            self._sessions.pop(address, None)


def _kept(known: dict[str, _Held], user: str | None, now_s: float) -> dict[str, _Held]:
    """Those that still hold, with room for one more of ``user``."""
    valid = {word: each for word, each in known.items() if each.ends_s > now_s}
    own = [word for word, each in valid.items() if each.user == user]
    for word in own[: max(0, len(own) - MOST + 1)]:
        del valid[word]
    return valid
