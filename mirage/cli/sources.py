"""Where the answers about chains come from: the site's daemon, one's own agent, or, with neither, Slurm itself."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

from mirage.config import Config, DaemonConfig
from mirage.daemon.app import Daemon
from mirage.daemon.report import chain_reports, explain
from mirage.daemon.scheduler import WallClock
from mirage.daemon.socket import ask
from mirage.errors import InputError
from mirage.provision.heuristics import Reactive
from mirage.slurm.commands import CommandCluster
from mirage.store.repository import SqlStore

Json = dict[str, Any]

UNWATCHED = "No Mirage daemon or agent is watching: the chain goes on reactively, by Slurm's own dependency."


def me() -> str:
    """One's user name by uid: environment variables may say anything."""
    return pwd.getpwuid(os.getuid()).pw_name


def agent_folder() -> Path:
    """The agent's state folder, after the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mirage"


def agent_store() -> str:
    return f"sqlite:///{agent_folder() / 'mirage.db'}"


def find_chains(chain_id: str | None = None) -> tuple[list[Json], str]:
    """Reports on one's chains, and a note if nobody watches them. Raises InputError if the chain is not known."""
    question = {"ask": "chains", "chain": chain_id}
    reports = _merged([*_from_daemon(question), *_from_agent(chain_id)])
    note = ""
    if not any(report["state"] == "active" for report in reports):
        known = {report["chain"] for report in reports}
        live = [report for report in _from_slurm(chain_id) if report["chain"] not in known]
        note = UNWATCHED if live else ""
        reports = live + reports
    if chain_id and not reports:
        raise InputError(f"chain {chain_id}: not known. `mirage status` lists your chains.")
    return reports, note


def find_explanation(job_id: int) -> Json:
    """Raises InputError if the job is in no chain of one's own."""
    question = {"ask": "explain", "job": job_id}
    try:
        return ask(_socket(), question)
    except (OSError, InputError):
        pass  # no daemon here, or it has not seen the job: the agent may have
    store = _agent_store() or _live_store()
    return explain(store, None, job_id)


def _merged(reports: list[Json]) -> list[Json]:
    """One report a chain: that of whoever saw it last."""
    best: dict[tuple[str, str], Json] = {}
    for report in reports:
        key = (report["user"], report["chain"])
        if key not in best or report["updated"] > best[key]["updated"]:
            best[key] = report
    return list(best.values())


def _socket() -> Path:
    return Path(os.environ.get("MIRAGE_SOCKET") or DaemonConfig.socket)


def _from_daemon(question: Json) -> list[Json]:
    try:
        chains: list[Json] = ask(_socket(), question)["chains"]
    except OSError:
        return []
    return chains


def _agent_store() -> SqlStore | None:
    if not (agent_folder() / "mirage.db").exists():
        return None
    return SqlStore.open(agent_store(), readonly=True)


def _from_agent(chain_id: str | None) -> list[Json]:
    store = _agent_store()
    return chain_reports(store, None, chain_id) if store else []


def _from_slurm(chain_id: str | None) -> list[Json]:
    return chain_reports(_live_store(), None, chain_id)


def _live_store() -> SqlStore:
    """A store in memory, filled by one cycle that decides nothing."""
    store = SqlStore.open("sqlite://")
    config = Config()
    cluster = CommandCluster.from_config(config.cluster)
    Daemon(cluster, store, WallClock(), Reactive(), poll_s=config.daemon.poll_s, only_user=me()).observe_once()
    return store
