"""What the folders of one's chains add: chains that no daemon or agent saw, and why the jobs
themselves ended one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mirage.chain.folder import (
    CHAIN_RECORD,
    USER_SCRIPT,
    LinkRecord,
    chain_folder,
    chains_folder,
    down_s,
    is_chain_id,
    is_dismissed,
    is_paused,
    over_marker,
    queued_jobs,
    read_handover,
    read_link,
    read_record,
    read_then,
    ready_s,
    refused_link,
)
from mirage.daemon.attention import Trouble
from mirage.daemon.waiting_reason import OWNER, SLURM
from mirage.domain import USED_UP_EXIT, Chain, ChainState, JobState, Link, Mode
from mirage.ports import ChainStore

Json = dict[str, Any]


def chain_ids(chain_id: str | None) -> list[str]:
    """The chain, or all that have a folder here."""
    return (
        [chain_id]
        if chain_id
        else sorted(path.name for path in chains_folder().glob("*") if is_chain_id(path.name))
    )


def add_chains(store: ChainStore, user: str, chains: Iterable[str]) -> None:
    """Writes these chains of one's own into ``store``, as far as their folders tell.

    A chain that its folder does not call over is active: Slurm is asked about its jobs after this.
    """
    for folder in map(chain_folder, chains):
        try:
            chain, links = _read(folder, user)
        except (OSError, ValueError, KeyError):
            continue  # not a chain's folder, or not a whole one
        with store.transaction():
            store.save_chain(chain)
            for link in links:
                store.save_link(link)


def started_again(link: Link) -> bool:
    """Whether a link of one's own went on after Slurm had requeued it: its folder then has its last
    run alone.
    """
    record = read_record(chain_folder(link.chain_id) / f"start.{link.segment}")
    return record.get("restart", "0") != "0"


def add_records(reports: list[Json], user: str) -> None:
    """Puts in what the chains' own jobs wrote down: why a chain ended, how links were asked to end,
    what follows.
    """
    for report in reports:
        folder = chain_folder(report["chain"]) if report["user"] == user else None
        asked = {path.name for path in folder.glob("handover.*")} if folder else set()
        for link in report["links"]:
            is_asked = f"handover.{link['segment']}" in asked
            link["handover"] = _handover(folder, link["segment"]) if folder and is_asked else None
        _settle_ties(report["links"])
        report["dismissed"] = folder is not None and is_dismissed(folder)
        report["then"] = [
            {"script": then.script, "job_id": then.job_id, "problem": then.problem or None}
            for then in (read_then(folder) if folder else [])
        ]
    _add_markers(reports, user)
    _add_refusals(reports, user)


def _settle_ties(links: list[Json]) -> None:
    """Slurm's times are whole seconds: of a link that became eligible in the second of its
    predecessor's end they can't tell who let it in. If it asked that one to end, Slurm did not.
    """
    by_job = {link["job_id"]: link for link in links}
    for link in links:
        before = by_job.get(link["predecessor"])
        handover = before["handover"] if before else None
        is_tie = before is not None and link["eligible"] == before["end"]
        if is_tie and link["let_in_by"] == SLURM and handover:
            link["let_in_by"] = OWNER if handover["successor"] == link["job_id"] else SLURM


def _handover(folder: Path, segment: int) -> Json | None:
    record = read_handover(folder, segment)
    if record is None:
        return None
    return {
        "successor": record.job_id,
        "asked_by": record.asked_by,
        "asked": record.asked_s,
        "grace_s": record.grace_s,
        "cut_off": record.cut_s,
        "cut_off_by": record.cut_by or None,
        "gone": record.gone_s,
    }


def _add_markers(reports: list[Json], user: str) -> None:
    """Puts in why a chain's own jobs ended it: a done-file, the failure policy, a crash loop,
    `mirage cancel`.

    From outside these look alike: a link that ended and a successor that was cancelled.
    """
    for report in reports:
        if report["user"] != user:
            continue
        folder = chain_folder(report["chain"])
        marker = over_marker(folder)
        if marker is None:
            _add_pause(report, folder)
            continue
        state, reason = marker
        is_ending = report["state"] == ChainState.ACTIVE.value
        if not is_ending:
            report |= {"state": state, "reason": reason}
        logs = (
            f"; what it wrote: mirage logs {report['chain']}"
            if state == ChainState.FAILED.value
            else ""
        )
        until = (
            ". The chain is active until its last job is seen to have ended" if is_ending else ""
        )
        report["next"] = f"No further link: {reason}{logs}{until}"


def _add_pause(report: Json, folder: Path) -> None:
    """A paused chain may have no held job: its running link has not queued the next one, or Slurm
    has lost it.
    """
    if is_paused(folder) and report["state"] != ChainState.PAUSED.value:
        resume = f"No further link starts before `mirage resume {report['chain']}`."
        report |= {
            "state": ChainState.PAUSED.value,
            "reason": "",
            "next": f"The chain is paused. {resume}",
        }


def _add_refusals(reports: list[Json], user: str) -> None:
    """Puts in that the next link could not be queued, as the running link or the last one found."""
    for report in reports:
        folder = chain_folder(report["chain"])
        if report["user"] != user or over_marker(folder) or not (refused := refused_link(folder)):
            continue
        segment, error = refused
        ways = f"`mirage resume {report['chain']}` or `mirage agent`, where jobs may be submitted,"
        words = f"Link {segment} could not be queued: {' '.join(error.split())}. {ways} queues it."
        report["attention"] = {"trouble": Trouble.UNQUEUED.value, "words": words}
        if ChainState(report["state"]).is_over:
            report["reason"] = words
            report["next"] = words
        else:
            report["next"] = f"{report['next']} {words}"


def add_names(reports: list[Json], user: str) -> None:
    """Puts in the name of a chain's jobs and its script, as its folder has them. Where there is
    none here, the name stays as Slurm shows it, and the script is empty.
    """
    for report in reports:
        record = _record(report["chain"]) if report["user"] == user else {}
        name = name_in(record) or report["name"]
        script = record.get("script", "")
        report |= {"name": name, "script": script}
        report["script_changed"] = bool(script) and _has_changed(report["chain"], script)


def _has_changed(chain_id: str, script: str) -> bool:
    """Whether the script differs by now from the copy that the chain runs."""
    try:
        return Path(script).read_bytes() != (chain_folder(chain_id) / USER_SCRIPT).read_bytes()
    except OSError:
        return False


def name_of(chain_id: str) -> str:
    """What the jobs of a chain of one's own are called; empty where it has no folder here."""
    return name_in(_record(chain_id))


def _record(chain_id: str) -> dict[str, str]:
    return read_record(chain_folder(chain_id) / CHAIN_RECORD)


def name_in(record: dict[str, str]) -> str:
    """What a chain's jobs are called, of its folder's record; empty: not known."""
    return record.get("name") or Path(record.get("script", "")).name


def _read(folder: Path, user: str) -> tuple[Chain, list[Link]]:
    record = read_record(folder / CHAIN_RECORD)
    submitted_s = int(record["submitted"])
    state, reason = over_marker(folder) or (ChainState.ACTIVE.value, "")
    chain = Chain(
        chain_id=folder.name,
        user=user,
        segments=int(record["segments"]),
        length=record.get("length", ""),
        mode=Mode(record["mode"]),
        service=record.get("service"),
        replica=int(record["replica"]) if "service" in record else None,
        state=ChainState(state),
        reason=reason,
        created_s=submitted_s,
        updated_s=_over_s(folder, state) or submitted_s,
    )
    jobs = queued_jobs(folder)
    return chain, [
        _link(chain, segment, job_id, jobs.get(segment - 1), folder)
        for segment, job_id in jobs.items()
    ]


def _over_s(folder: Path, state: str) -> int | None:
    """When the chain was marked as over."""
    try:
        return int((folder / state).stat().st_mtime)
    except FileNotFoundError:
        return None


def _link(
    chain: Chain, segment: int, job_id: int, predecessor_id: int | None, folder: Path
) -> Link:
    ended = read_link(folder, segment)
    start = read_record(folder / f"start.{segment}").get("start")
    exit_code = _exit_code(chain, ended)
    state = _state(chain, ended, start, exit_code)
    if state is JobState.UNKNOWN and _was_cancelled(chain, segment, folder):
        state = JobState.CANCELLED
    waits = state is JobState.PENDING and predecessor_id is not None
    return Link(
        chain_id=chain.chain_id,
        user=chain.user,
        segment=segment,
        job_id=job_id,
        predecessor_id=predecessor_id,
        state=state,
        partition="",
        nodes=0,
        time_limit_s=None,
        submit_s=chain.created_s,
        start_s=int(start) if start else None,
        end_s=ended.end_s if ended else None,
        ready_s=(ready_s(folder, segment) or 0) if start and chain.mode is Mode.SERVICE else None,
        down_s=down_s(folder, segment) if chain.mode is Mode.SERVICE else 0,
        exit_code=exit_code,
        dependency=f"afterany:{predecessor_id}" if waits else "",  # as it was submitted
    )


def _exit_code(chain: Chain, ended: LinkRecord | None) -> int:
    """What the link's job ended with; its record has what the user's script ended with."""
    if ended is None:
        return 0
    at_signal = ended.how == "slurm" and not ended.is_swept
    is_used_up = at_signal and ended.segment >= chain.segments and not chain.state.is_over
    return USED_UP_EXIT if is_used_up else ended.exit_code


def _was_cancelled(chain: Chain, segment: int, folder: Path) -> bool:
    """Of a link without a record of its end: it ran as its owner cancelled the chain."""
    is_last = not (folder / f"start.{segment + 1}").exists()
    return chain.state is ChainState.CANCELLED and is_last


def _state(chain: Chain, ended: LinkRecord | None, start: str | None, exit_code: int) -> JobState:
    """As far as the job's own records tell; Slurm may know better, and is asked of open chains."""
    if ended is None or (ended.how == "slurm" and ended.is_swept):
        if ended and ended.reason == "TimeLimit":
            return JobState.TIMEOUT
        if not chain.state.is_over:
            return JobState.RUNNING if start else JobState.PENDING
        return JobState.UNKNOWN if start else JobState.CANCELLED
    if ended.how in ("exit", "slurm"):
        return JobState.FAILED if exit_code else JobState.COMPLETED
    return JobState.COMPLETED if ended.how == "handover" else JobState.CANCELLED
