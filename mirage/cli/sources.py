"""Where the answers about chains come from: the site's daemon, one's own agent, or, with neither, Slurm itself."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import Any

from mirage.cli.folders import add_chains, add_records
from mirage.config import ClusterConfig, DaemonConfig
from mirage.config_sources import load, store_url, user_file
from mirage.daemon.app import Daemon
from mirage.daemon.report import chain_reports, explain
from mirage.daemon.restraint import Acting
from mirage.daemon.scheduler import WallClock
from mirage.daemon.socket import ask
from mirage.domain import ActingMode, ChainState
from mirage.errors import ClusterError, InputError, StoreError
from mirage.provision.heuristics import Reactive
from mirage.slurm.commands import CommandCluster
from mirage.store.alone import is_held
from mirage.store.repository import SqlStore
from mirage.store.sqlite import file_of
from mirage.store.url import parse_url

Json = dict[str, Any]

UNWATCHED = "No Mirage daemon or agent is watching: the chain goes on reactively, by Slurm's own dependency."


def me() -> str:
    """One's user name by uid: environment variables may say anything."""
    return pwd.getpwuid(os.getuid()).pw_name


def agent_folder() -> Path:
    """The agent's state folder, after the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mirage"


def default_agent_store() -> str:
    """Where the agent's store is if its configuration does not say."""
    return f"sqlite:///{agent_folder() / 'mirage.db'}"


def agent_store() -> str:
    """The store of one's agent, as its configuration says. Raises InputError."""
    name = os.environ.get("MIRAGE_CONFIG")
    loaded = load(Path(name) if name else None, user_file())
    return store_url(loaded.config.daemon, default_agent_store())


def find_chains(chain_id: str | None = None) -> tuple[list[Json], str]:
    """Reports on one's chains, newest first, and a note where something is amiss. InputError: the chain is not known.

    What the site's daemon says goes before what one's own machine can tell.
    """
    watched, notice = _from_daemon(chain_id)
    store, note = _own_view(chain_id)
    own = chain_reports(store, None, chain_id)
    if _agent_runs():  # what acts on a chain tells of it, not what only looks on
        agents = {report["chain"] for report in own if report["acting"] == ActingMode.ENFORCE.value}
        watched = [r for r in watched if r.get("acting") == ActingMode.ENFORCE.value or r["chain"] not in agents]
    known = {report["chain"] for report in watched}
    own = [report for report in own if report["chain"] not in known]
    reports = sorted([*watched, *own], key=lambda report: report["created"], reverse=True)
    add_records(reports, me())
    if chain_id and not reports:
        raise InputError(f"chain {chain_id}: not known. `mirage status --all` lists your chains.")
    if any(report["state"] == ChainState.ACTIVE for report in own) and not _agent_runs():
        note = note or UNWATCHED
    return reports, " ".join(filter(None, (note, notice)))


def find_explanation(job_id: int) -> Json:
    """Raises InputError if the job is in no chain of one's own."""
    try:
        told = ask(_socket(), {"ask": "explain", "job": job_id})
    except (OSError, ValueError, InputError):  # no daemon here, or it has not seen the job: one's own agent may have
        return explain(_own_view(None, job_id)[0], None, job_id)
    if told.get("acting") != ActingMode.ENFORCE.value and _agent_runs():
        with contextlib.suppress(InputError):
            own = explain(_own_view(None, job_id)[0], None, job_id)
            return own if own["acting"] == ActingMode.ENFORCE.value else told
    return told


def _socket() -> Path:
    return Path(os.environ.get("MIRAGE_SOCKET") or DaemonConfig.socket)


def _from_daemon(chain_id: str | None) -> tuple[list[Json], str]:
    """What it tells of chains, and what it wants everyone to know."""
    try:
        told = ask(_socket(), {"ask": "chains", "chain": chain_id})
    except (OSError, ValueError, InputError):  # none listens here, or it can't answer now
        return [], ""
    return told["chains"], str(told.get("notice", ""))


def _agent_runs() -> bool:
    try:
        return is_held(agent_store())
    except StoreError:
        return False


def _agent_store() -> SqlStore | None:
    url = parse_url(agent_store())
    if url.get_backend_name() == "sqlite" and not ((path := file_of(url)) and path.exists()):
        return None
    return SqlStore.open(agent_store(), readonly=True)


def _own_view(chain_id: str | None, job_id: int | None = None) -> tuple[SqlStore, str]:
    """What agent, Slurm and the chains' own folders know together, in a store in memory; and a note.

    The agent's store may be old, if it does not run; so what Slurm shows now is put on top, by the daemon's own code.
    """
    store = SqlStore.open("sqlite://")
    if agent := _agent_store():
        _copy(agent, store, job_id)
    add_chains(store, me(), chain_id, known={chain.chain_id for chain in store.chains()})
    note = ""
    cluster = CommandCluster.from_config(ClusterConfig())
    try:
        observer = Acting(ActingMode.OBSERVE)
        daemon = Daemon(
            cluster, store, WallClock(), Reactive(), poll_s=DaemonConfig.poll_s, acting=observer, only_user=me()
        )
        daemon.observe_once()
    except ClusterError as error:
        note = f"Slurm can't be asked now, so this may be old: {error}"
    return store, note


def _copy(source: SqlStore, target: SqlStore, job_id: int | None) -> None:
    """With the decisions on links that wait or run, and on this job: nothing shows the others'."""
    with target.transaction():
        for chain in source.chains():
            target.save_chain(chain)
            for link in source.links(chain.user, chain.chain_id):
                target.save_link(link)
                if not link.state.is_over or link.job_id == job_id:
                    _copy_decisions(source, target, link.job_id)


def _copy_decisions(source: SqlStore, target: SqlStore, job_id: int) -> None:
    intents = {intent.decision: intent for intent in source.intents(job_id)}
    for decision in reversed(source.decisions(job_id, limit=10)):
        if intent := intents.get(decision):
            copy = target.open_intent(decision, intent.created_s)
            if intent.outcome:
                target.close_intent(copy, intent.outcome, intent.detail, intent.finished_s or 0)
        else:
            target.add_decision(decision)
