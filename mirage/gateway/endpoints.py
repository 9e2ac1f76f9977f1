"""Where a service's links are now: the files `endpoint.K` that its jobs write into their chains'
folders (`mirage/chain/job.sh`).
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mirage.chain.folder import CHAIN_RECORD, chains_folder, is_chain_id, over_marker, read_record
from mirage.chain.service import read_service
from mirage.chain.tag import SERVICE_NAME, parse_tag
from mirage.domain import Job, Mode
from mirage.errors import ClusterError, InputError
from mirage.user.folders import name_in
from mirage.user.slurm_access import adapter_config, glance_of

_PREFIX = "endpoint."
_ASK_EACH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A link that is ready."""

    chain_id: str
    replica: int | None
    """Of a service of several replicas, from 1."""
    link: int
    host: str
    port: int
    ready_s: int
    """Since when, by the clock of its node."""
    job_id: int

    @property
    def address(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Service:
    """One service of one owner: the chain, or the chains of its replicas."""

    def __init__(self, name: str, chains: Path, owner: str | None = None) -> None:
        """``name``: the service's, its only chain's job name, or that chain's id. ``chains``: the
        folder of the owner's chains; ``owner`` None: one's own.
        """
        self.name = name
        self.owner = owner
        self._chains = chains
        self._records: dict[str, dict[str, str]] = {}
        self._members: list[str] = []
        self._in_queue: set[str] = set()
        self._asked_s = -_ASK_EACH_S

    def look(self) -> None:
        """Finds its chains anew. InputError: there is none, or two services have this name."""
        groups: dict[str, list[str]] = {}
        for chain_id in self._candidates():
            of_many = self._records[chain_id].get("service")
            key = f"service {of_many}" if of_many else f"chain {chain_id}"
            groups.setdefault(key, []).append(chain_id)
        living = {key: ids for key, ids in groups.items() if any(map(self._lives, ids))}
        if len(living) > 1:  # jobs that were cancelled one by one leave a chain that is not over
            queued = self._queued()
            living = {key: ids for key, ids in living.items() if queued & set(ids)} or living
        if len(living) > 1:
            raise InputError(
                f"{self.name} means {len(living)} services: {', '.join(sorted(living))}. Requests"
                " of one must not reach the other: give a chain's id, or cancel one"
            )
        found = living or groups
        if not found and not (self.owner is None and _is_scaled_to_none(self.name)):
            raise InputError(
                f"there is no service {self.name}{f' of {self.owner}' if self.owner else ''}:"
                " `mirage status` lists yours; `mirage-submit --mode service` starts one"
            )
        self._members = sorted({chain_id for ids in found.values() for chain_id in ids})

    def endpoints(self) -> list[Endpoint]:
        """Of all links that are ready, as their jobs say, in the order of chains and links."""
        found = (self._of_chain(chain_id) for chain_id in self._members)
        return [endpoint for endpoints in found for endpoint in endpoints]

    def folder(self, chain_id: str) -> Path:
        """Of a chain."""
        return self._chains / chain_id

    def _candidates(self) -> list[str]:
        found = []
        for chain_id in sorted(filter(is_chain_id, _names_in(self._chains))):
            if chain_id not in self._records:
                record = read_record(self.folder(chain_id) / CHAIN_RECORD)
                if not record:
                    continue  # mirage-submit is about to write it
                self._records[chain_id] = record
            record = self._records[chain_id]
            names = (chain_id, record.get("service") or name_in(record))
            if record.get("mode") == Mode.SERVICE.value and self.name in names:
                found.append(chain_id)
        return found

    def _lives(self, chain_id: str) -> bool:
        return over_marker(self.folder(chain_id)) is None

    def _queued(self) -> set[str]:
        """One's chains that have jobs in the queue, as of a minute ago at most; empty: not known."""
        if time.monotonic() - self._asked_s > _ASK_EACH_S:
            self._asked_s = time.monotonic()
            try:
                jobs = _queue_of(self.owner)
            except (ClusterError, InputError):
                return set()
            tags = [parse_tag(job.comment) for job in jobs]
            self._in_queue = {tag.chain_id for tag in tags if tag}
        return self._in_queue

    def _of_chain(self, chain_id: str) -> list[Endpoint]:
        folder = self.folder(chain_id)
        names = set(_names_in(folder))  # opening a folder makes NFS ask its server
        links = sorted(int(name[len(_PREFIX) :]) for name in names if _is_endpoint(name))
        read = (self._read(folder, link) for link in links if f"link.{link}" not in names)
        return [endpoint for endpoint in read if endpoint is not None]

    def _read(self, folder: Path, link: int) -> Endpoint | None:
        """None: it has gone meanwhile, or somebody else wrote it."""
        replica = self._records[folder.name].get("replica", "")
        try:
            told = json.loads((folder / f"{_PREFIX}{link}").read_text())
            return Endpoint(
                chain_id=folder.name,
                replica=int(replica) if replica.isdecimal() else None,
                link=link,
                host=str(told["host"]),
                port=int(told["port"]),
                ready_s=int(told["ready_s"]),
                job_id=int(told["job"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


def find_service(text: str, environ: Mapping[str, str] = os.environ) -> Service:
    """The service that ``text`` names: one's own, or as OWNER/NAME another user's, if that one lets
    others read his folders. Raises InputError.
    """
    owner, _, name = text.rpartition("/")
    chains = chains_folder(environ)
    if owner:
        try:
            chains = Path(pwd.getpwnam(owner).pw_dir) / ".mirage" / "chains"
            next(chains.iterdir(), None)
        except KeyError:
            raise InputError(f"{text}: there is no user {owner}") from None
        except OSError as error:
            raise InputError(
                f"{text}: {owner}'s services are not yours to see ({chains}: {error.strerror})"
            ) from None
    service = Service(name, chains, owner or None)
    service.look()
    return service


def not_running(endpoints: Iterable[Endpoint], owner: str | None = None) -> Collection[Endpoint]:
    """Those whose job Slurm does not run: it was killed outright, and could not take its file away.
    Another program may have the port by now. Empty where Slurm does not answer.
    """
    asked = list(endpoints)
    try:
        running = {job.job_id for job in _queue_of(owner) if job.state.has_nodes}
    except (ClusterError, InputError):
        return []
    return [endpoint for endpoint in asked if endpoint.job_id not in running]


def _queue_of(owner: str | None) -> Iterable[Job]:
    user = owner or pwd.getpwuid(os.getuid()).pw_name
    return glance_of(adapter_config()).queue_of(user).jobs


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _is_endpoint(name: str) -> bool:
    return name.startswith(_PREFIX) and name[len(_PREFIX) :].isdecimal()


def _is_scaled_to_none(name: str) -> bool:
    """One's own service of several replicas, of which none runs now."""
    return re.fullmatch(SERVICE_NAME, name, re.ASCII) is not None and read_service(name) is not None
