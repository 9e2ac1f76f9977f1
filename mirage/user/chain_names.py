"""What users may call a chain: its id, the beginning of it, a job of it, or its jobs' name."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.chain.cluster_name import other_cluster_of, refuse_other_cluster
from mirage.chain.folder import (
    CHAIN_RECORD,
    chain_folder,
    over_marker,
    queued_jobs,
    read_record,
)
from mirage.chain.service import ReplicaChain, all_replicas
from mirage.domain import ChainState
from mirage.errors import InputError, StoreError
from mirage.user.folders import chain_ids, name_in
from mirage.user.service_check import agent_store, socket_path

_ID = re.compile(r"[a-z0-9]{1,32}", re.ASCII)
MOST_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class KnownChain:
    """What a chain may be called by."""

    jobs: Sequence[int]
    name: str = ""
    is_over: bool = False
    created_s: int = 0

    def words(self, chain_id: str) -> str:
        """For a list of candidates."""
        since = time.strftime(" of %m-%d %H:%M", time.localtime(self.created_s))
        what = f"{self.name or 'no name'}{since if self.created_s else ''}"
        return f"{chain_id} ({what}{', over' if self.is_over else ''})"


Known = Mapping[str, KnownChain]
"""By chain id."""


def resolve_chain(text: str) -> str:
    """The id of the one chain that ``text`` means.

    Looked at are one's chain folders, what the site's daemon shows and the agent's store has, and,
    if they know nothing, one's jobs in the queue. Of chains of one job name, those that are not
    over go before the others, and chains of this cluster before those of others. Raises
    InputError: ``text`` means no chain, several, or one of another cluster; ClusterError: nobody
    knows it, and Slurm can't be asked.
    """
    name, _, number = text.rpartition(":")
    if name and number.isdecimal():
        return _replica(name, int(number))
    chain = _resolved(text)
    refuse_other_cluster(chain)
    return chain


def resolve_chains(text: str) -> list[str]:
    """As `resolve_chain`; of a service of several replicas all of them that are not over."""
    return [one.chain_id for one in replicas_of(text)] or [resolve_chain(text)]


def replicas_of(text: str) -> list[ReplicaChain]:
    """One's own replicas of the service that is called so: those that are not over, else all. Empty:
    there is no such service.
    """
    every = all_replicas().get(text, [])
    return [one for one in every if not one.is_over] or every


def _replica(name: str, number: int) -> str:
    found = [one.chain_id for one in replicas_of(name) if one.number == number]
    if not found:
        raise InputError(f"{name}:{number}: no service of yours called {name} has such a replica")
    return found[-1]


def own_folder(chain_id: str) -> Path:
    """The chain's folder. Raises InputError: it is not there."""
    folder = chain_folder(chain_id)
    if not folder.is_dir():
        raise InputError(
            f"chain {chain_id}: its folder {folder} is not there: it was removed, or the chain is"
            " another user's. `mirage status --all` lists your chains."
        )
    return folder


def _resolved(text: str) -> str:
    found: dict[str, KnownChain] = {}
    for known in _sources():
        if text in known:
            return text
        found = {**{chain: known[chain] for chain in meant(text, known)}, **found}
    if not found:
        known = _in_queue()
        found = {chain: known[chain] for chain in meant(text, known)}
    if all(chain.name == text for chain in found.values()):
        found = {key: chain for key, chain in found.items() if not chain.is_over} or found
    if len(found) > 1:
        found = {key: chain for key, chain in found.items() if not other_cluster_of(key)} or found
    if len(found) == 1:
        return found.popitem()[0]
    raise InputError(_several(text, found) if found else _none(text))


def _several(text: str, found: Known) -> str:
    newest = sorted(found, key=lambda chain: (-found[chain].created_s, chain))
    shown = ", ".join(found[chain].words(chain) for chain in newest[:MOST_SHOWN])
    more = ", ..." if len(found) > MOST_SHOWN else ""
    return f"{text} means {len(found)} chains: {shown}{more}. Give the id of one."


def _none(text: str) -> str:
    shown = text if _ID.fullmatch(text) else repr(text)
    return (
        f"{shown}: no chain of yours has this id or this job name, or an id that begins so, and"
        " none has such a job. `mirage status --all` lists your chains."
    )


def meant(text: str, known: Known) -> set[str]:
    """The chains that begin with ``text``, have a job of this id, or are called so."""
    job_id = int(text) if text.isdecimal() else None
    return {
        chain_id
        for chain_id, chain in known.items()
        if (text and chain_id.startswith(text)) or job_id in chain.jobs or text == chain.name != ""
    }


def _sources() -> Iterator[Known]:
    """Each is asked only if those before have no chain of just this id."""
    yield _in_folders()
    yield _of_daemon()
    yield _of_agent()


def _in_folders() -> Known:
    return {chain: _in_folder(chain_folder(chain)) for chain in chain_ids(None)}


def _in_folder(folder: Path) -> KnownChain:
    record = read_record(folder / CHAIN_RECORD)
    return KnownChain(
        # another cluster's job ids mean other jobs here
        jobs=[] if other_cluster_of(folder.name) else list(queued_jobs(folder).values()),
        name=name_in(record),
        is_over=over_marker(folder) is not None,
        created_s=int(submitted) if (submitted := record.get("submitted", "")).isdecimal() else 0,
    )


def _of_daemon() -> Known:
    from mirage.daemon.socket import ask

    try:
        answer = ask(socket_path(), {"ask": "chains", "chain": None})
    except (OSError, ValueError, InputError):
        return {}
    return {
        chain["chain"]: KnownChain(
            jobs=[link["job_id"] for link in chain["links"]],
            name=chain["name"],
            is_over=ChainState(chain["state"]).is_over,
            created_s=chain["created"],
        )
        for chain in answer["chains"]
    }


def _of_agent() -> Known:
    from mirage.user.sources import read_agent_store

    try:
        store = read_agent_store(agent_store())
    except StoreError:
        return {}
    return {
        chain.chain_id: KnownChain(
            jobs=[link.job_id for link in store.links(chain.user, chain.chain_id)],
            name=chain.name,
            is_over=chain.state.is_over,
            created_s=chain.created_s,
        )
        for chain in store.chains()
    }


def _in_queue() -> Known:
    from mirage.chain.tag import parse_tag
    from mirage.user.slurm_access import adapter_config, glance_of
    from mirage.user.sources import me

    jobs = glance_of(adapter_config()).queue_of(me()).jobs
    found: dict[str, KnownChain] = {}
    for job in jobs:
        if tag := parse_tag(job.comment):
            before = found.get(tag.chain_id, KnownChain(jobs=[]))
            found[tag.chain_id] = KnownChain(jobs=[*before.jobs, job.job_id], name=job.name)
    return found
