"""What the folders of one's chains add: chains that no daemon or agent saw, and why the jobs themselves ended one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirage.chain.folder import (
    CHAIN_RECORD,
    LinkRecord,
    chain_folder,
    chains_folder,
    is_paused,
    over_marker,
    queued_jobs,
    read_handover,
    read_link,
    read_record,
    read_then,
)
from mirage.domain import Chain, ChainState, JobState, Link, Mode
from mirage.ports import Store

Json = dict[str, Any]


def add_chains(store: Store, user: str, chain_id: str | None, known: set[str]) -> None:
    """Writes one's chains (or one of them) that are not ``known`` into ``store``, as far as their folders tell.

    A chain that its folder does not call over is active: Slurm is asked about its jobs after this.
    """
    folders = [chain_folder(chain_id)] if chain_id else sorted(chains_folder().glob("*"))
    for folder in folders:
        if folder.name in known:
            continue
        try:
            chain, links = _read(folder, user)
        except (OSError, ValueError, KeyError):
            continue  # not a chain's folder, or not a whole one
        with store.transaction():
            store.save_chain(chain)
            for link in links:
                store.save_link(link)


def add_records(reports: list[Json], user: str) -> None:
    """Puts in what the chains' own jobs wrote down: why a chain ended, how links were asked to end, what follows."""
    for report in reports:
        folder = chain_folder(report["chain"]) if report["user"] == user else None
        asked = {path.name for path in folder.glob("handover.*")} if folder else set()
        for link in report["links"]:
            is_asked = f"handover.{link['segment']}" in asked
            link["handover"] = _handover(folder, link["segment"]) if folder and is_asked else None
        report["then"] = [
            {"script": then.script, "job_id": then.job_id, "problem": then.problem or None}
            for then in (read_then(folder) if folder else [])
        ]
    _add_markers(reports, user)


def _handover(folder: Path, segment: int) -> Json | None:
    record = read_handover(folder, segment)
    if record is None:
        return None
    return {
        "successor": record.job_id,
        "asked": record.asked_s,
        "grace_s": record.grace_s,
        "cut_off": record.cut_s,
        "cut_off_by": record.cut_by or None,
        "gone": record.gone_s,
    }


def _add_markers(reports: list[Json], user: str) -> None:
    """Puts in why a chain's own jobs ended it: a done-file, the failure policy, a crash loop, `mirage cancel`.

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
        if report["state"] != ChainState.ACTIVE.value:
            report |= {"state": state, "reason": reason}
        report["next"] = f"No further link: {reason}"


def _add_pause(report: Json, folder: Path) -> None:
    """A paused chain may have no held job: its running link has not queued the next one, or Slurm has lost it."""
    if is_paused(folder) and report["state"] != ChainState.PAUSED.value:
        resume = f"No further link starts before `mirage resume {report['chain']}`."
        report |= {"state": ChainState.PAUSED.value, "reason": "", "next": f"The chain is paused. {resume}"}


def _read(folder: Path, user: str) -> tuple[Chain, list[Link]]:
    record = read_record(folder / CHAIN_RECORD)
    submitted_s = int(record["submitted"])
    state, reason = over_marker(folder) or (ChainState.ACTIVE.value, "")
    chain = Chain(
        folder.name,
        user,
        int(record["segments"]),
        Mode(record["mode"]),
        state=ChainState(state),
        reason=reason,
        created_s=submitted_s,
        updated_s=submitted_s,
    )
    jobs = queued_jobs(folder)
    return chain, [_link(chain, segment, job_id, jobs.get(segment - 1), folder) for segment, job_id in jobs.items()]


def _link(chain: Chain, segment: int, job_id: int, predecessor_id: int | None, folder: Path) -> Link:
    ended = read_link(folder, segment)
    start = read_record(folder / f"start.{segment}").get("start")
    return Link(
        chain.chain_id,
        chain.user,
        segment,
        job_id,
        predecessor_id,
        _state(chain, ended, start),
        partition="",
        nodes=0,
        time_limit_s=None,
        submit_s=chain.created_s,
        start_s=int(start) if start else None,
        end_s=ended.end_s if ended else None,
        exit_code=ended.exit_code if ended else 0,
    )


def _state(chain: Chain, ended: LinkRecord | None, start: str | None) -> JobState:
    """As far as the job's own records tell; Slurm may know better."""
    if ended is None and not chain.state.is_over:
        return JobState.RUNNING if start else JobState.PENDING
    if ended is None:
        return JobState.UNKNOWN if start else JobState.CANCELLED
    if ended.how == "exit":
        return JobState.FAILED if ended.exit_code else JobState.COMPLETED
    return JobState.COMPLETED if ended.how == "handover" else JobState.CANCELLED
