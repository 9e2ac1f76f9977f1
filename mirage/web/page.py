"""Puts the page together: its store, its visitors, its server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mirage.config import DaemonConfig
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.last_cycle import LastCycle
from mirage.daemon.waits import LEARNT
from mirage.provision.starts.learnt import Learnt
from mirage.store.repository import SqlStore
from mirage.web.app import READING_S, Desk, make_app
from mirage.web.server import served
from mirage.web.sessions import Visitors

log = logging.getLogger(__name__)

BUSY_S = 2
"""A visitor waits so long for a store that another program has locked."""


@contextmanager
def opened(
    config: DaemonConfig, last_cycle: LastCycle, audit_summary: AuditSummary
) -> Iterator[Callable[[str | None], str]]:
    """Serves the page at ``config.web``; gives what makes a link for a user (None: one who may see
    all).

    The store is opened once more, for audit_summary only, so that no visit can write, or take a
    connection that the daemon needs. Raises InputError for the address, StoreError.
    """
    visitors = Visitors()
    learnt = Learnt(folders=[Path(config.socket).parent / LEARNT], warn=log.warning)
    with (
        SqlStore.open(config.store, readonly=True, busy_timeout_s=BUSY_S) as store,
        served(
            make_app(
                Desk(
                    last_cycle=last_cycle,
                    store=store,
                    visitors=visitors,
                    audit_summary=audit_summary,
                    learned=learnt.waits,
                ),
                config.hosts,
            ),
            config.web,
        ) as url,
    ):
        log.info("the web page is at %s", url)
        audit_summary.latest(READING_S)
        yield lambda user: f"{url}/enter/{visitors.ticket(user)}"
