"""One's chains as their own folders tell them: for those that no daemon or agent saw, since they were over too soon."""

from __future__ import annotations

from pathlib import Path

from mirage.chain.folder import (
    CHAIN_RECORD,
    LinkRecord,
    chains_folder,
    over_marker,
    queued_jobs,
    read_link,
    read_record,
)
from mirage.domain import Chain, ChainState, JobState, Link, Mode
from mirage.ports import Store


def add_chains(store: Store, user: str, chain_id: str | None, known: set[str]) -> None:
    """Writes one's chains (or one of them) that are not ``known`` into ``store``, as far as their folders tell."""
    folders = sorted(chains_folder().glob(chain_id or "*"))
    with store.transaction():
        for folder in folders:
            if folder.name not in known and (record := read_record(folder / CHAIN_RECORD)):
                chain = _chain(folder, user, record)
                store.save_chain(chain)
                for segment, job_id in queued_jobs(folder).items():
                    store.save_link(_link(chain, segment, job_id, folder))


def _chain(folder: Path, user: str, record: dict[str, str]) -> Chain:
    marker, reason = over_marker(folder) or (ChainState.UNKNOWN.value, "its jobs are not in the queue any more")
    submitted_s = int(record.get("submitted", "0"))
    return Chain(
        folder.name,
        user,
        int(record.get("segments", "1")),
        Mode(record.get("mode", Mode.TRAIN.value)),
        state=ChainState(marker),
        reason=reason,
        created_s=submitted_s,
        updated_s=submitted_s,
    )


def _link(chain: Chain, segment: int, job_id: int, folder: Path) -> Link:
    ended = read_link(folder, segment)
    start = read_record(folder / f"start.{segment}").get("start")
    return Link(
        chain.chain_id,
        chain.user,
        segment,
        job_id,
        queued_jobs(folder).get(segment - 1),
        _state(ended, start),
        partition="",
        nodes=0,
        time_limit_s=None,
        submit_s=chain.created_s,
        start_s=int(start) if start else None,
        end_s=ended.end_s if ended else None,
        exit_code=ended.exit_code if ended else 0,
    )


def _state(ended: LinkRecord | None, start: str | None) -> JobState:
    """Slurm's own word for it is gone; this is what the job's epilogue saw."""
    if ended is None:
        return JobState.UNKNOWN if start else JobState.CANCELLED
    if ended.how == "exit":
        return JobState.FAILED if ended.exit_code else JobState.COMPLETED
    return JobState.COMPLETED if ended.how == "handover" else JobState.CANCELLED
