"""Where the answers about chains come from: the site's daemon, one's own agent, or, with neither,
Slurm itself.
"""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mirage.chain.cluster_name import other_cluster_of
from mirage.chain.folder import chain_folder, over_marker
from mirage.chain.pace import shortest_s, too_slow
from mirage.chain.runs import by_job, link_of_runs
from mirage.chain.service import read_service, service_names
from mirage.daemon.reconcile import Reconciler
from mirage.daemon.report import FRESH_S, chain_reports, explain
from mirage.daemon.services import no_replica, service_rows
from mirage.daemon.socket import ask
from mirage.daemon.waiting_reason import AGENT, DAEMON
from mirage.daemon.wall_clock import WallClock
from mirage.domain import ActingMode, ChainState, JobState
from mirage.errors import ClusterError, InputError, StoreError
from mirage.store.fast_reader import read_chains
from mirage.store.memory import MemoryStore
from mirage.store.places import file_in
from mirage.user.folders import add_chains, add_names, add_records, chain_ids, started_again
from mirage.user.service_check import (
    LOOKS_OFTEN,
    NOBODY,
    agent_runs,
    agent_store,
    cron_every_s,
    socket_path,
)
from mirage.user.slurm_access import adapter_config, glance_of

Json = dict[str, Any]

_WHO_ACTED = frozenset({DAEMON, AGENT})


def me() -> str:
    """One's user name by uid: environment variables may say anything."""
    return pwd.getpwuid(os.getuid()).pw_name


@dataclass
class _Own:
    """What one's own side knows: the agent's store, the chains' folders, and Slurm."""

    store: MemoryStore
    agent_runs: bool
    notes: list[str]

    def reports(self, chain_id: str | None) -> list[Json]:
        return chain_reports(self.store, None, chain_id, AGENT, decides=self.agent_runs)


def find_chains(chain_id: str | None = None) -> tuple[list[Json], str]:
    """Reports on one's chains, newest first, and a note where something is amiss. InputError: the
    chain is not known.

    One chain has one report, whoever watches it: the service that acts speaks, and what the other
    did is put in.
    """
    from_daemon = _from_daemon(chain_id)
    watched: list[Json] = from_daemon["chains"] if from_daemon else []
    own = _own_view(chain_id, watched if from_daemon else None)
    reports = _joined(watched, own.reports(chain_id), own.agent_runs)
    reports.sort(key=lambda report: report["created"], reverse=True)
    add_records(reports, me())
    add_names(reports, me())
    if chain_id and not reports:
        raise InputError(f"chain {chain_id}: not known. `mirage status --all` lists your chains.")
    notes = own.notes
    if (
        not from_daemon
        and not own.agent_runs
        and any(report["state"] == ChainState.ACTIVE for report in reports)
    ):
        notes = [*notes, NOBODY[0].upper() + NOBODY[1:]]
    if from_daemon:
        notes += [_age(from_daemon.get("seen"), reports), str(from_daemon.get("notice", ""))]
    notes = [*notes, _pace(reports, from_daemon.get("every_s") if from_daemon else None)]
    return reports, " ".join(filter(None, notes))


def find_services(reports: Sequence[Json], since_s: int | None = None) -> list[Json]:
    """A row for each service of several replicas, of the reports that `find_chains` gave.

    ``since_s``: as of `service_rows`.
    """
    wanted: dict[str, int] = {}
    for name in service_names():
        with suppress(InputError):  # `mirage scale` says what is wrong with it
            wanted |= {name: record.wanted} if (record := read_service(name)) else {}
    replicas = (report.get("replica") for report in reports)
    found = service_rows(replicas, int(time.time()), wanted, since_s)
    asleep = wanted.keys() - {row["service"] for row in found}
    return [*found, *(no_replica(name, me(), wanted[name]) for name in sorted(asleep))]


def _age(seen_s: int | None, reports: Sequence[Json]) -> str:
    """As of when the daemon speaks: it looks at the queue every ten minutes or so, and jobs may
    have moved since.
    """
    speaks = any(
        report["watched_by"] == DAEMON and not ChainState(report["state"]).is_over
        for report in reports
    )
    if not speaks or seen_s is None or time.time() - seen_s < FRESH_S:
        return ""
    return (
        "As the site's daemon saw the queue at"
        f" {time.strftime('%H:%M:%S', time.localtime(seen_s))}."
    )


def _pace(reports: Sequence[Json], daemon_every_s: int | None) -> str:
    """Where links are shorter than the cycle of who watches them."""
    living = [report for report in reports if not ChainState(report["state"]).is_over]
    for who, every_s in ((DAEMON, daemon_every_s), (AGENT, cron_every_s(agent_store()))):
        links = [link for each in living if each["watched_by"] == who for link in each["links"]]
        limit_s = shortest_s(link.get("limit_s") for link in links if not link["end"])
        if words := too_slow(every_s, limit_s) if every_s else "":
            return f"{words[0].upper()}{words[1:]}. {LOOKS_OFTEN}"
    return ""


def find_explanation(job_id: int) -> Json:
    """Raises InputError if the job is in no chain of one's own."""
    try:
        from_daemon = ask(socket_path(), {"ask": "explain", "job": job_id})
    except (
        OSError,
        ValueError,
        InputError,
    ):  # no daemon here, or it has not seen the job: one's own side may have
        own = _own_view(None, None, job_id)
        return explain(own.store, None, job_id, AGENT, decides=own.agent_runs)
    if over := _of_chain_over(from_daemon["chain"], job_id):
        return from_daemon | {"explanation": over}
    own = _own_view(from_daemon["chain"], [{"chain": from_daemon["chain"]}], job_id)
    link = own.store.link_of_job(job_id)
    if link is None or link.chain_id != from_daemon["chain"]:
        return from_daemon
    said = explain(own.store, None, job_id, AGENT, decides=own.agent_runs)
    return said if _speaks(said, from_daemon, own.agent_runs) else from_daemon


def _of_chain_over(chain_id: str, job_id: int) -> str | None:
    """What the chain's folder says of a link that never started; None: nothing, or the chain is not
    over.

    The daemon may not have seen the queue since the chain ended, and takes such a link for a
    waiting one.
    """
    store = MemoryStore()
    add_chains(store, me(), [chain_id])
    link = store.link_of_job(job_id)
    if link is None or not link.is_over or link.has_started:
        return None
    return str(explain(store, None, job_id, decides=False)["explanation"])


def job_of(chain_id: str) -> int:
    """The job of a chain that `explain` is about: the one that waits, else the last. Raises
    InputError.
    """
    (report,) = find_chains(chain_id)[0][:1]
    jobs = [link["job_id"] for link in report["links"]]
    if not jobs:
        raise InputError(f"chain {chain_id}: no job of it is known")
    waiting = (
        link["job_id"] for link in report["links"] if link["state"] == JobState.PENDING.value
    )
    return int(next(waiting, jobs[-1]))


def _speaks(own: Json, from_daemon: Json, runs: bool) -> bool:
    """Whether the agent speaks of a link rather than the daemon: it acted; or it acts, and the
    daemon does not.
    """
    if from_daemon.get("let_in_by") == DAEMON:
        return False
    acts = (
        runs
        and own["acting"] == ActingMode.ENFORCE.value
        and from_daemon.get("acting") != ActingMode.ENFORCE.value
    )
    return acts or own.get("let_in_by") == AGENT


def _joined(watched: Sequence[Json], own: Sequence[Json], runs: bool) -> list[Json]:
    """One report a chain."""
    mine = {(report["user"], report["chain"]): report for report in own}
    joined = []
    for report in watched:
        other = mine.pop((report["user"], report["chain"]), None)
        if other is None:
            joined.append(report)
            continue
        base, second = (other, report) if _speaks(other, report, runs) else (report, other)
        joined.append(_with_acts(base, second))
    return [*joined, *mine.values()]


def _with_acts(report: Json, other: Json) -> Json:
    """The report, with what only the other service knows of its own releases."""
    acts = {link["job_id"]: link for link in other["links"] if link["let_in_by"] in _WHO_ACTED}
    links, waits = [], None
    for link in report["links"]:
        act = acts.get(link["job_id"]) if link["let_in_by"] not in _WHO_ACTED else None
        if act and link["state"] == JobState.PENDING.value:
            waits = act
        links.append(
            link | {"let_in_by": act["let_in_by"], "released": act["released"]} if act else link
        )
    return report | {"links": links} | ({"next": other["next"]} if waits else {})


def _from_daemon(chain_id: str | None) -> Json | None:
    """What it tells of chains, and what it wants everyone to know; None: none answers."""
    try:
        return ask(socket_path(), {"ask": "chains", "chain": chain_id})
    except PermissionError:
        sys.stderr.write(
            f"note: {socket_path()}: permission denied, so the site's daemon can't be asked. Its"
            " folder must be open to all users.\n"
        )
        return None
    except (OSError, ValueError, InputError):  # none listens here, or it can't answer now
        return None


def _own_view(
    chain_id: str | None, watched: Sequence[Json] | None, job_id: int | None = None
) -> _Own:
    """What agent, folders and Slurm know together.

    ``watched``: the daemon's reports; None: there is no daemon. Slurm is asked only for chains that
    nobody watches, and for what an agent watches. The agent's store may be old, if it does not run;
    so what Slurm shows now is put on top, by the daemon's own code.
    """
    own = _of_agent(job_id)
    known = {report["chain"] for report in watched or ()} | {
        chain.chain_id for chain in own.store.chains()
    }
    unknown = {each: other_cluster_of(each) for each in chain_ids(chain_id) if each not in known}
    of_folders = [each for each, cluster in unknown.items() if not cluster]
    add_chains(own.store, me(), of_folders)
    _add_runs(own, of_folders)
    own.notes += _elsewhere(unknown)
    alone = {chain.chain_id for chain in own.store.active_chains()} - {
        report["chain"] for report in watched or ()
    }
    let_in = any(
        link.released_s is not None and not link.has_started for link in own.store.open_links()
    )
    if watched is None or own.agent_runs or alone or let_in:
        _ask_slurm(own)
    return own


def _elsewhere(clusters: Mapping[str, str]) -> list[str]:
    """One sentence for each other cluster with chains that their folders don't call over."""
    found: dict[str, list[str]] = {}
    for chain, cluster in clusters.items():
        if cluster and over_marker(chain_folder(chain)) is None:
            found.setdefault(cluster, []).append(chain)
    return [
        f"On cluster {name}, whose Slurm can't be asked here: {', '.join(ids)}."
        for name, ids in found.items()
    ]


def _add_runs(own: _Own, chains: Sequence[str]) -> None:
    """The earlier runs of links that are known from their folders alone."""
    every = {each: own.store.links(me(), each) for each in chains}
    again = [link for links in every.values() for link in links if started_again(link)]
    if not again:
        return
    since_s, jobs = min(link.submit_s for link in again), [link.job_id for link in again]
    try:
        records = by_job(glance_of(adapter_config()).accounting(since_s, int(time.time()), jobs))
    except ClusterError as error:
        own.notes.append(f"Of links that Slurm requeued only the last run is known: {error}")
        return
    for link in again:
        if told := records.get(link.job_id):
            own.store.save_link(link_of_runs(link, told, every[link.chain_id]))


def _of_agent(job_id: int | None) -> _Own:
    where = agent_store()
    own = _Own(MemoryStore(), agent_runs(where), [])
    try:
        own.store = read_agent_store(where, job_id)
    except StoreError as error:
        own.notes.append(str(error))
    return own


def read_agent_store(url: str, job_id: int | None = None) -> MemoryStore:
    """An agent's chains, with the decisions on living links and on this job; empty if it has no
    store yet.

    Raises StoreError.
    """
    if file := file_in(url):
        return read_chains(file, job_id) if file.exists() else MemoryStore()
    return _of_server(url, job_id)


def _of_server(url: str, job_id: int | None) -> MemoryStore:
    """As `peek.read_chains`, of an agent whose store is on a database server."""
    from mirage.store.repository import SqlStore

    store = MemoryStore()
    with SqlStore.open(url, readonly=True) as source:
        for chain in source.chains():
            store.save_chain(chain)
            for link in source.links(chain.user, chain.chain_id):
                store.save_link(link)
                if not link.is_over or link.job_id == job_id:
                    intents = {intent.decision: intent for intent in source.intents(link.job_id)}
                    for decision in reversed(source.decisions(link.job_id)):
                        store.put(decision, intents.get(decision))
    return store


def _ask_slurm(own: _Own) -> None:
    try:
        cluster = glance_of(adapter_config())
        Reconciler(cluster, own.store, WallClock(), me()).observe(cluster.queue_of(me()))
    except ClusterError as error:
        own.notes.append(f"Slurm can't be asked now, so this may be old: {error}")
