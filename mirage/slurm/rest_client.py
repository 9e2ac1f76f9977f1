"""Questions to slurmrestd, Slurm's REST API: one request each, with a token, a time-out, a bounded
answer, retries of reads.

Slurm's pages: slurmrestd(8), https://slurm.schedmd.com/rest.html and /jwt.html. Tried on 22.05,
24.11 and 26.05.
"""

from __future__ import annotations

import base64
import contextlib
import http
import http.client
import json
import logging
import os
import random
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from mirage.errors import ClusterError, ClusterNonsense, ClusterUnavailable, InputError, Refused
from mirage.slurm.rest_server import RestServer
from slurm_sim.formats import parse_json

log = logging.getLogger(__name__)

VERSIONS = ("v0.0.42", "v0.0.38", "v0.0.45", "v0.0.44", "v0.0.43", "v0.0.41", "v0.0.40")
"""Of the API, in the order in which they are looked for: the first two are those of most releases
(24.11 to 26.05, and 21.08 to 23.11).
"""
MAX_ANSWER_BYTES = 512 << 20
"""A job takes up to 8 KiB: this is more than 60,000 jobs."""
_CHUNK_BYTES = 1 << 20
_NOT_AUTHENTICATED = "Protocol authentication error"
_SHOWN = 200
"""Characters of an answer that an error quotes."""
_ADVICE = "Nothing was done; retry later."
_TOKEN_ADVICE = "A token expires: put a new one (`scontrol token`) where yours is."  # noqa: S105

Json = Mapping[str, Any]
Query = Sequence[tuple[str, str]]


class RestError(NamedTuple):
    """One of `errors` in an answer."""

    number: int
    """As in slurm_errno.h; 0: none is given."""
    text: str


@dataclass(frozen=True)
class RestAnswer:
    """What slurmrestd answered: the document, and what it calls errors."""

    body: Json
    errors: tuple[RestError, ...]

    def words(self) -> str:
        """The errors, for people and for `mirage.slurm.failures`."""
        return "; ".join(dict.fromkeys(error.text for error in self.errors))


class RestClient:
    """Speaks to one slurmrestd as the user whose token it has.

    ``server``: where it is; or its address alone. ``token``: called for each request, so that a
    renewed token counts. ``version``: of the API, `v0.0.42`; empty: the first of `VERSIONS` that is
    served. ``timeout_s``: of a whole exchange. ``retries``: of requests that got no connection.
    """

    def __init__(
        self,
        server: RestServer | str,
        token: Callable[[], str],
        *,
        version: str = "",
        timeout_s: float = 30,
        retries: int = 2,
        backoff_s: float = 1.0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._server = server if isinstance(server, RestServer) else RestServer(server)
        self.url = self._server.url
        self._token = token
        self._version = version
        self._timeout_s = timeout_s
        self._retries = retries
        self._backoff_s = backoff_s
        self._max_answer_bytes = max_answer_bytes

    def get(self, system: str, path: str, query: Query = ()) -> RestAnswer:
        """``system``: `slurm` (slurmctld) or `slurmdb`; ``path``: `jobs`. Raises ClusterError."""
        return self._once("GET", system, path, query)

    def post(self, path: str, body: Json) -> RestAnswer:
        """To slurmctld; never repeated. Raises ClusterError."""
        return self._once("POST", "slurm", path, body=body)

    def delete(self, path: str) -> RestAnswer:
        """To slurmctld; never repeated. Raises ClusterError."""
        return self._once("DELETE", "slurm", path)

    @property
    def version(self) -> str:
        """Of the API. Asks for it once. Raises ClusterError."""
        if not self._version:
            self._version = next(filter(self._serves, VERSIONS), "")
        if not self._version:
            raise ClusterNonsense(
                f"slurmrestd at {self.url}: it serves none of the API's versions"
                f" {', '.join(VERSIONS)}. Set cluster.rest_url to the address without /slurm."
            )
        return self._version

    def _serves(self, version: str) -> bool:
        status, answer = self._exchange("GET", f"/slurm/{version}/ping", None)
        if status != http.HTTPStatus.NOT_FOUND:
            self._read("ping", status, answer)
        return status != http.HTTPStatus.NOT_FOUND

    def _once(
        self,
        method: str,
        system: str,
        path: str,
        query: Query = (),
        *,
        body: Json | None = None,
    ) -> RestAnswer:
        target = f"/{system}/{self.version}/{path}" + (f"?{urlencode(query)}" if query else "")
        begun = time.monotonic()
        status, answer = self._exchange(method, target, body)
        log.debug("%.2f s, status %d: %s %s", time.monotonic() - begun, status, method, target)
        return self._read(path, status, answer)

    def _read(self, path: str, status: int, answer: bytes) -> RestAnswer:
        """Raises ClusterError where the answer is none of the API's."""
        where = f"slurmrestd at {self.url}, {path}"
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            raise Refused(f"{where}: the token is not accepted ({status}). {_TOKEN_ADVICE}")
        try:
            body = parse_json(answer)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise _foreign_answer(where, status, answer)
        errors = tuple(_error(each) for each in body.get("errors") or () if isinstance(each, dict))
        states = body.get("status") or ()
        errors += tuple(filter(None, (_refusal(each) for each in states if isinstance(each, dict))))
        if any(_NOT_AUTHENTICATED in error.text for error in errors):
            raise Refused(f"{where}: slurmctld does not accept the token. {_TOKEN_ADVICE}")
        if status >= http.HTTPStatus.BAD_REQUEST and not errors:
            raise _foreign_answer(where, status, answer)
        return RestAnswer(body, errors)

    def _exchange(self, method: str, target: str, body: Json | None) -> tuple[int, bytes]:
        """Status and answer. Raises ClusterError."""
        token = self._token()
        if (expiry_s := token_claims(token).get("exp")) and float(expiry_s) < time.time():
            raise Refused(f"slurmrestd at {self.url}: the token has expired. {_TOKEN_ADVICE}")
        headers = {"X-SLURM-USER-TOKEN": token, "Accept": "application/json"}
        if user := token_claims(token).get("sun"):
            headers["X-SLURM-USER-NAME"] = str(user)
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        try:
            with contextlib.ExitStack() as stack:
                connection = self._connected(stack)
                connection.request(method, self._server.path + target, data, headers)
                response = connection.getresponse()
                return response.status, self._bounded(response)
        except TimeoutError:
            raise ClusterUnavailable(
                f"slurmrestd at {self.url}: no answer within {self._timeout_s:g} s."
                f" {_after_silence(method)}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise ClusterUnavailable(
                f"slurmrestd at {self.url}: the answer was cut short"
                f" ({error or type(error).__name__}). {_after_silence(method)}"
            ) from error

    def _connected(self, stack: contextlib.ExitStack) -> http.client.HTTPConnection:
        """Tried again where it fails, whatever the request: nothing is sent yet. ``stack`` ends it."""
        for attempt in range(self._retries + 1):
            try:
                return stack.enter_context(self._server.connected(self._timeout_s))
            except OSError as error:
                problem = error
            if attempt < self._retries:
                jitter = random.uniform(0.5, 1.5)  # noqa: S311 - keeps many clients apart; no secret
                time.sleep(self._backoff_s * 2**attempt * jitter)
        raise ClusterUnavailable(
            f"slurmrestd at {self.url}: no connection ({problem or type(problem).__name__}). Is"
            " cluster.rest_url right and slurmrestd up? Retry later."
        ) from problem

    def _bounded(self, response: http.client.HTTPResponse) -> bytes:
        chunks, size = [], 0
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_answer_bytes:
                raise ClusterNonsense(
                    f"slurmrestd at {self.url}: more than {self._max_answer_bytes >> 20} MiB in one"
                    f" answer, so it was ended. {_ADVICE}"
                )
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(chunks)


def _after_silence(method: str) -> str:
    if method == "POST":
        return "Slurm may have done it all the same: look at the queue before you try again."
    return "Retry later; is slurmctld up?"


def _error(each: Json) -> RestError:
    number = each.get("error_number", each.get("error_code", 0))
    error, more = str(each.get("error") or ""), str(each.get("description") or "")
    text = more if error in more else f"{error} ({more})" if more else error
    return RestError(number if isinstance(number, int) else 0, text or str(dict(each)))


def _refusal(status: Json) -> RestError | None:
    """What became of one job, in the answer to a DELETE of 24.11 or newer; None: all is well."""
    error = status.get("error")
    if not isinstance(error, dict) or not error.get("code"):
        return None
    return RestError(int(error["code"]), f"{error.get('string')} for job {status.get('step_id')}")


def _foreign_answer(where: str, status: int, answer: bytes) -> ClusterError:
    text = answer[:_SHOWN].decode(errors="replace").strip()
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return ClusterUnavailable(f"{where}: it failed with status {status}: {text!r}. {_ADVICE}")
    if not answer:
        return ClusterNonsense(f"{where}: an empty answer with status {status}. {_ADVICE}")
    return ClusterNonsense(
        f"{where}: status {status}, and no JSON of Slurm's: {text!r}. Is cluster.rest_url that of"
        " slurmrestd, and cluster.rest_version one that it serves?"
    )


def token_claims(token: str) -> Json:
    """What a JSON web token says: `sun`, whose it is; `exp`, until when it holds. Empty: it can't
    be read.

    Not verified: slurmctld does that.
    """
    parts = token.split(".")
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = parse_json(base64.urlsafe_b64decode(padded))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def token_source(file: str, environ: Mapping[str, str] = os.environ) -> Callable[[], str]:
    """Reads the token from the file, at each call, or from $SLURM_JWT where none is named.

    What it returns raises Refused if there is no token, or others can read it. Raises InputError:
    they can by now.
    """
    with contextlib.suppress(OSError):  # it may be put there later
        if file and (problem := _open_to_others(file, Path(file).expanduser().stat())):
            raise InputError(problem)

    def read() -> str:
        if not file:
            token = environ.get("SLURM_JWT", "")
        else:
            try:
                with Path(file).expanduser().open() as opened:
                    if problem := _open_to_others(file, os.fstat(opened.fileno())):
                        raise Refused(problem)
                    token = opened.read()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "no text"
                raise Refused(f"{file}: the token can't be read: {reason}.") from error
        # `scontrol token` prints SLURM_JWT=TOKEN
        token = token.strip().removeprefix("SLURM_JWT=")
        if not token or not token.isascii() or len(token.split()) != 1:
            raise Refused(f"{file or '$SLURM_JWT'}: there is no token. {_TOKEN_ADVICE}")
        return token

    return read


def _open_to_others(file: str, facts: os.stat_result) -> str:
    """What to do about a token that others than its owner can read; empty: they can't."""
    if not facts.st_mode & 0o077:
        return ""
    return (
        f"{file}: others may have read the token (mode {stat.S_IMODE(facts.st_mode):04o}). Make it"
        " 0600, and put a new token there."
    )
