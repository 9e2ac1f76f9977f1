"""The pages (Flask, imported here only). Everything is read; what is written comes from templates
that escape it.

Without a session there are sums over the whole site. At `/s/ADDRESS/` are the pages of who came
through `mirage web`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask, abort, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

import mirage
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.host_names import known_names, only_known
from mirage.daemon.last_cycle import CycleView, LastCycle
from mirage.errors import StoreError
from mirage.peers import holder
from mirage.ports import Store
from mirage.web import filters
from mirage.web.allowance import Allowance
from mirage.web.chains import chain_list, link_rows, paged, waiting_list, whole
from mirage.web.digest import Digest, digest
from mirage.web.server import HOST
from mirage.web.sessions import SESSION_S, Visitors
from mirage.web.timeline import Window, in_words

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.walk import NightlyWaits

log = logging.getLogger(__name__)

COOKIE = "mirage"
DAYS = (1, 3, 7, 30)
MOST_ELASTIC = 100
"""Elastic jobs on a page."""
LOG_EVERY_S = 60
READING_S = 900
"""What the audit log says is shown for so long before somebody's visit has it read again."""
REFUSAL_S = 0.1
"""The one thread sleeps before it refuses: that costs time too, and so a flood gets ten refusals a
second at most.
"""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PROBLEMS = {
    400: "This request is not one that the page understands.",
    403: (
        "These are the pages of one user, and this browser has not come through that user's link,"
        " or too long ago. Run `mirage web` on the daemon's machine for a link of your own."
    ),
    404: "There is no such page, or no such chain among those that you may see.",
    405: "This page can only be read.",
    429: "You have reloaded these pages more often than is good for the daemon. Wait a minute.",
}


@dataclass(kw_only=True)
class Desk:
    """What the pages are made from, in one thread. Its store is for reading only and is not the
    daemon's own.
    """

    last_cycle: LastCycle
    store: Store
    visitors: Visitors
    audit_summary: AuditSummary
    learned: Callable[[], NightlyWaits | None] = lambda: None
    """What the nights learnt of this site's waits."""
    now_s: Callable[[], float] = time.time
    allowance: Allowance = field(default_factory=Allowance)
    _digest: tuple[CycleView, Digest] | None = None
    _logged_s: float = 0

    def digest(self) -> Digest | None:
        """Of the last cycle's queue, made once a cycle; None: there was no cycle yet."""
        view = self.last_cycle.view
        if view is None:
            return None
        if self._digest is None or self._digest[0] is not view:
            self._digest = view, digest(view.snapshot, self.learned())
        return self._digest[1]

    def complain(self, error: Exception) -> None:
        """To the log, at most once in LOG_EVERY_S: visits must not fill it."""
        if self.now_s() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = self.now_s()
            log.warning(
                "a page could not be made: %s", error, exc_info=not isinstance(error, StoreError)
            )


def make_app(desk: Desk, hosts: Sequence[str] = ()) -> Flask:
    """The WSGI application. ``hosts``: further names of this machine."""
    app = Flask(__name__)
    app.wsgi_app = only_known(app.wsgi_app, known_names(*hosts))  # type: ignore[method-assign]
    app.jinja_env.filters.update(filters.ALL)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.context_processor(lambda: _everywhere(desk))
    app.url_value_preprocessor(_take_address)
    app.url_defaults(partial(_put_address, app))
    app.before_request(lambda: _admit(desk))
    app.after_request(_with_headers)
    app.teardown_request(partial(_account, desk))
    _add_public(app, desk)
    _add_chains(app, desk)
    _add_site(app, desk)
    _add_errors(app, desk)
    return app


def _everywhere(desk: Desk) -> dict[str, object]:
    """What all templates know. ``viewer``: whose own pages this browser has; None: nobody's."""
    names = {"viewer": g.get("viewer"), "here": request.endpoint, "version": mirage.__version__}
    return names | {"last_cycle": desk.last_cycle, "now_s": desk.now_s()}


def _take_address(_endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Out of the views' arguments: only `_admit` and links need it."""
    g.address = (values or {}).pop("address", None)


def _put_address(app: Flask, endpoint: str, values: dict[str, Any]) -> None:
    """Into links from one's own pages to one's own pages."""
    if app.url_map.is_endpoint_expecting(endpoint, "address"):
        values.setdefault("address", g.get("address"))


def _admit(desk: Desk) -> None:
    """Who has the session of this address; 403 for anybody else, 429 for who has visited too much
    of late.
    """
    g.begun_s = time.thread_time()
    if g.address is not None:
        g.viewer = desk.visitors.find(g.address, request.cookies.get(COOKIE, ""))
    if desk.allowance.left_s(_payer()) < 0:
        time.sleep(REFUSAL_S)
        abort(429)
    if g.address is not None and g.viewer is None:
        abort(403)


def _payer() -> str:
    """Who pays: a user, `root` for who may see all, without a session whoever holds the
    connection's other end.

    Style sheets pay for themselves.
    """
    if request.endpoint == "static":
        return " static"
    if viewer := g.get("viewer"):
        return viewer.user or "root"
    if "caller" not in g:
        ours = HOST, int(request.environ["SERVER_PORT"])
        g.caller = holder((request.remote_addr, int(request.environ["REMOTE_PORT"])), ours)
    return str(g.caller)


def _account(desk: Desk, _error: BaseException | None) -> None:
    desk.allowance.take(_payer(), time.thread_time() - g.begun_s)


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint == "static":
        response.headers["Cache-Control"] = "max-age=3600"
    return response


def _add_public(app: Flask, desk: Desk) -> None:
    @app.get("/")
    def site() -> str:
        return _site(desk)

    @app.get("/enter/<ticket>")
    def enter(ticket: str) -> Response:
        entered = desk.visitors.enter(ticket)
        if entered is None:
            abort(403)
        address, session = entered
        path = url_for("chains", address=address)
        response = redirect(path, 303)
        response.set_cookie(
            COOKIE, session.secret, SESSION_S, path=path, httponly=True, samesite="Lax"
        )
        return response


def _add_chains(app: Flask, desk: Desk) -> None:
    """A visitor's own chains (root: those of all users)."""

    @app.get("/s/<address>/")
    def chains() -> str:
        days = _number("days", 3, DAYS)
        show_all = request.args.get("show") == "all"
        user = g.viewer.user or request.args.get("user") or None
        window = Window.of_days(days, int(desk.now_s()))
        found = chain_list(
            desk.store,
            user,
            window,
            _number("page", 1),
            all_states=show_all,
            dismissed=desk.last_cycle.dismissed,
        )
        asked = {
            "days": days,
            "show": "all" if show_all else "active",
            "user": request.args.get("user", ""),
        }
        return render_template("chains.html", found=found, asked=asked, every=DAYS)

    @app.get("/s/<address>/chain/<chain_id>/<path:user>")
    def chain(chain_id: str, user: str) -> str:
        found = desk.store.chain(user, chain_id) if g.viewer.user in (None, user) else None
        if found is None:
            abort(404)
        links = desk.store.links(user, chain_id)
        window = whole(links, int(desk.now_s()))
        rows = link_rows(desk.store, found, links, window)
        return render_template(
            "chain.html", chain=found, rows=rows, window=window, words=in_words(found, links)
        )


def _add_site(app: Flask, desk: Desk) -> None:
    """Decisions, queue, service; and the way out."""

    @app.get("/s/<address>/decisions")
    def decisions() -> str:
        page, pages, found = waiting_list(
            desk.store, g.viewer.user, _number("page", 1), int(desk.now_s())
        )
        return render_template("decisions.html", found=found, page=page, pages=pages)

    @app.get("/s/<address>/queue")
    def queue() -> str:
        summed = desk.digest()
        jobs = summed.jobs(g.viewer.user) if summed else ()
        page, pages, shown = paged(jobs, _number("page", 1))
        elastic = summed.elastic(g.viewer.user) if summed else ()
        return render_template(
            "queue.html",
            digest=summed,
            jobs=shown,
            page=page,
            pages=pages,
            total=len(jobs),
            elastic=elastic[:MOST_ELASTIC],
        )

    @app.get("/s/<address>/site", endpoint="own_site")
    def own_site() -> str:
        return _site(desk)

    @app.post("/s/<address>/leave")
    def leave() -> Response:
        desk.visitors.leave(g.address)
        response = redirect(url_for("site"), 303)
        response.delete_cookie(COOKIE, path=url_for("chains"), httponly=True, samesite="Lax")
        return response


def _add_errors(app: Flask, desk: Desk) -> None:
    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        code = error.code or 500
        return _problem(
            code, PROBLEMS.get(code, "The page could not be made; the daemon's log says why.")
        )

    @app.errorhandler(StoreError)
    def unreadable(error: StoreError) -> Response:
        desk.complain(error)
        return _problem(
            503,
            "The daemon's store can't be read now; its log says why. Nothing is lost: Slurm itself"
            " starts each successor after its predecessor ends. Reload the page in a while.",
        )

    @app.errorhandler(Exception)
    def broken(error: Exception) -> Response:
        desk.complain(error)
        return _problem(
            500, "The page could not be made; the daemon's log says why. The daemon itself goes on."
        )


def _site(desk: Desk) -> str:
    last_cycle = desk.last_cycle
    decided = (
        Counter(decision.action.value for decision in last_cycle.view.decisions)
        if last_cycle.view
        else Counter()
    )
    summary = desk.audit_summary.latest(READING_S)
    return render_template("site.html", digest=desk.digest(), decided=decided, summary=summary)


def _problem(code: int, words: str) -> Response:
    response = make_response(render_template("problem.html", code=code, words=words), code)
    if code == 429:
        response.headers["Retry-After"] = "60"
    return response


def _number(name: str, default: int, among: tuple[int, ...] | None = None) -> int:
    """A number of the query; the default for what is none."""
    text = request.args.get(name, "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else default
    return number if among is None or number in among else default
