"""Who may ask a service: a file of tokens, one a line, which its owner alone can read."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from pathlib import Path

from mirage.errors import InputError, system_says

_SCHEME = "bearer"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class Tokens:
    """The tokens of one service. A change of the file counts at once."""

    def __init__(self, path: Path) -> None:
        """Raises InputError: the file can't be read, others can read it, or it has no token."""
        self.path = path
        self._changed_ns = 0
        self._tokens: list[bytes] = []
        self.read()

    def read(self) -> bool:
        """Reads the file if it has changed since, and says whether it has. Raises InputError."""
        try:
            status = self.path.stat()
            if status.st_mtime_ns == self._changed_ns:
                return False
            if status.st_mode & 0o077 or status.st_uid != os.getuid():
                raise InputError(
                    f"{self.path}: others may read this file of tokens: chmod 600 {self.path}, and"
                    " change the tokens"
                )
            lines = self.path.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            said = system_says(error) if isinstance(error, OSError) else f"{self.path}: no text"
            raise InputError(f"{said}: a file with one token a line is needed") from error
        if not lines:
            raise InputError(f"{self.path}: it has no token; one a line is needed")
        if not all(_TOKEN.fullmatch(line) for line in lines):
            raise InputError(
                f"{self.path}: a token has letters, digits and -._~+/= (RFC 6750), one a line"
            )
        self._tokens, self._changed_ns = [line.encode() for line in lines], status.st_mtime_ns
        return True

    def allows(self, authorization: bytes) -> bool:
        """Whether this header `Authorization` has one of the tokens."""
        scheme, _, given = authorization.partition(b" ")
        is_right = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        return scheme.decode("latin-1").lower() == _SCHEME and any(is_right)

    def words(self) -> list[str]:
        """The tokens themselves, for a proxy's own file."""
        return [token.decode() for token in self._tokens]


def make_token(path: Path) -> bool:
    """Writes a file with a fresh token, mode 0600, if there is none; whether it did. Raises
    OSError.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(file, "w") as opened:
            opened.write(f"{secrets.token_urlsafe(24)}\n")
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True
