"""Connections to slurmrestd that prove whose they are, before the token is sent on them.

Over TLS the certificate proves it. On a Unix socket and on this machine's loopback the kernel names
the user at the other end of that very connection. Plain HTTP to another machine proves nothing, so
it is refused (docs/decisions/0122-a-token-for-a-proven-server.md).
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import pwd
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from mirage.errors import ClusterUnavailable, InputError
from mirage.peers import uid_at, uid_behind, user_name

ALWAYS_TRUSTED = ("root", "slurm")
ACCEPT_S = 5.0
"""How long slurmrestd may take to accept a connection on loopback."""
_LOOK_S = 0.005


class RestServer:
    """Where slurmrestd is. ``url``: `https://HOST/PATH`, `unix:/FILE`, or `http://127.0.0.1:PORT`.

    ``user``: whom slurmrestd runs as, if not as root, slurm or the caller; for the last two forms.
    ``ca_file``: certificates (PEM) to trust; empty: the system's. Raises InputError.
    """

    def __init__(self, url: str, *, user: str = "", ca_file: str = "") -> None:
        check_url(url)
        self.url, self._user = url, user
        self._address = urlsplit(url)
        self.path = "" if self._is_unix else self._address.path.rstrip("/")
        self._tls = _tls(ca_file) if self._address.scheme == "https" else None

    @property
    def _is_unix(self) -> bool:
        return self._address.scheme == "unix"

    @contextlib.contextmanager
    def connected(self, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
        """A proven connection, which is hung up on after ``timeout_s``, however bytes trickle.

        Raises OSError: no connection, or a time-out. ClusterUnavailable: a stranger answers.
        """
        end_s = time.monotonic() + timeout_s
        raw = self._opened(timeout_s)
        watched = raw.dup()  # the same connection; TLS takes the first one over
        timer = threading.Timer(end_s - time.monotonic(), _hang_up, [watched])
        timer.daemon = True
        timer.start()
        connection = http.client.HTTPConnection(
            self._address.hostname or "localhost", self._address.port
        )
        connection.sock = raw
        try:
            connection.sock = self._proven(raw)
            yield connection
        except (OSError, http.client.HTTPException):
            if time.monotonic() < end_s:
                raise
        finally:
            timer.cancel()
            timer.join()
            connection.close()
            watched.close()
        if time.monotonic() >= end_s:
            raise TimeoutError

    def _opened(self, timeout_s: float) -> socket.socket:
        if self._is_unix:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(timeout_s)
            connection.connect(self._address.path)
            return connection
        usual = http.client.HTTPS_PORT if self._tls else http.client.HTTP_PORT
        place = self._address.hostname or "", self._address.port or usual
        return socket.create_connection(place, timeout=timeout_s)

    def _proven(self, connection: socket.socket) -> socket.socket:
        if self._tls:
            return self._tls.wrap_socket(connection, server_hostname=self._address.hostname)
        uid = uid_at(connection) if self._is_unix else _accepted_by(connection)
        trusted = [*ALWAYS_TRUSTED, *filter(None, [self._user])]
        if uid is None or uid not in {os.geteuid(), *_uids(trusted)}:
            who = "nobody whom the kernel names" if uid is None else user_name(uid)
            raise ClusterUnavailable(
                f"slurmrestd at {self.url}: {who} answers there, and none of {', '.join(trusted)},"
                " so the token was not sent. Start slurmrestd; where it runs as another user, set"
                " cluster.rest_user."
            )
        return connection


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end was faster
        connection.shutdown(socket.SHUT_RDWR)


def _accepted_by(connection: socket.socket) -> int | None:
    """Until somebody accepts it, a connection belongs to nobody. None: nobody of this machine."""
    end_s = time.monotonic() + ACCEPT_S
    while (uid := uid_behind(connection)) is None and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    return uid


def _uids(names: list[str]) -> Iterator[int]:
    for name in names:
        with contextlib.suppress(KeyError):
            yield pwd.getpwnam(name).pw_uid


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise InputError(
            f"cluster.rest_ca_file: {ca_file} can't be read as certificates: {error}."
        ) from error


def check_url(url: str) -> None:
    """Raises InputError unless `RestServer` can use it."""
    address = urlsplit(url)
    is_unix = address.scheme == "unix" and address.path.startswith("/")
    try:
        is_web = address.scheme in ("http", "https") and bool(address.hostname)
        _ = address.port
    except ValueError:
        is_web = False
    if not is_unix and not is_web:
        raise InputError(
            f"cluster.rest_url = {url!r}: expected https://HOST, unix:/FILE or"
            " http://127.0.0.1:PORT of slurmrestd."
        )
    if address.scheme == "http" and not _is_loopback(address):
        raise InputError(
            f"cluster.rest_url = {url!r}: plain http to another machine shows the token to whoever"
            " answers there. Use https://, or run Mirage beside slurmrestd with unix:/FILE or"
            " http://127.0.0.1:PORT."
        )


def _is_loopback(address: SplitResult) -> bool:
    try:
        return ipaddress.ip_address(address.hostname or "").is_loopback
    except ValueError:
        return address.hostname == "localhost"
