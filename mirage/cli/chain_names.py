"""What users may call a chain: its id, the beginning of it, or the id of a job of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mirage.chain.folder import chains_folder, queued_jobs
from mirage.cli.service_check import agent_store, socket_path
from mirage.errors import InputError, StoreError

_NAME = re.compile(r"[a-z0-9]{1,32}", re.ASCII)
MOST_SHOWN = 10

Known = Mapping[str, Sequence[int]]
"""Chain id -> the ids of its jobs."""


def resolve_chain(text: str) -> str:
    """The id of the one chain that ``text`` means.

    Looked at are one's chain folders, what the site's daemon shows and the agent's store has, and,
    if they know nothing, one's jobs in the queue. Raises InputError: ``text`` can be no such name,
    means no chain, or several; ClusterError: nobody knows it, and Slurm can't be asked.
    """
    if not _NAME.fullmatch(text):
        raise InputError(
            f"{text!r} is no chain: expected a chain id as mirage-submit printed it, its beginning,"
            " or a job id"
        )
    found: set[str] = set()
    for known in _sources():
        if text in known:
            return text
        found |= meant(text, known)
    if not found:
        found = meant(text, _in_queue())
    if len(found) == 1:
        return found.pop()
    if not found:
        raise InputError(
            f"{text}: no chain of yours has this id or begins so, and none has such a job. `mirage"
            " status --all` lists your chains."
        )
    shown = ", ".join(sorted(found)[:MOST_SHOWN]) + (", ..." if len(found) > MOST_SHOWN else "")
    raise InputError(f"{text} means {len(found)} chains: {shown}. Give more of the id.")


def meant(text: str, known: Known) -> set[str]:
    """The chains that begin with ``text``, or have a job of this id."""
    job_id = int(text) if text.isdecimal() else None
    return {
        chain
        for chain, jobs in known.items()
        if chain == text or chain.startswith(text) or job_id in jobs
    }


def _sources() -> Iterator[Known]:
    """Each is asked only if those before have no chain of just this id."""
    yield _in_folders()
    yield _of_daemon()
    yield _of_agent()


def _in_folders() -> Known:
    folders = [path for path in chains_folder().glob("*") if path.is_dir()]
    return {path.name: list(queued_jobs(path).values()) for path in folders}


def _of_daemon() -> Known:
    from mirage.daemon.socket import ask

    try:
        answer = ask(socket_path(), {"ask": "chains", "chain": None})
    except (OSError, ValueError, InputError):
        return {}
    return {
        chain["chain"]: [link["job_id"] for link in chain["links"]] for chain in answer["chains"]
    }


def _of_agent() -> Known:
    from mirage.cli.sources import read_agent_store

    try:
        store = read_agent_store(agent_store())
    except StoreError:
        return {}
    return {
        chain.chain_id: [link.job_id for link in store.links(chain.user, chain.chain_id)]
        for chain in store.chains()
    }


def _in_queue() -> Known:
    from mirage.chain.tag import parse_tag
    from mirage.cli.slurm_access import adapter_config, glance_of
    from mirage.cli.sources import me

    jobs = glance_of(adapter_config()).queue_of(me()).jobs
    found: dict[str, list[int]] = {}
    for job in jobs:
        if tag := parse_tag(job.comment):
            found.setdefault(tag.chain_id, []).append(job.job_id)
    return found
