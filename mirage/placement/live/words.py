"""What `mirage place advise` says of live jobs: in words, and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mirage.domain import Job
from mirage.placement.live.advice import Move, progress
from mirage.placement.live.state import LiveState, PlacedJob
from mirage.placement.topology import Bools, Floats


def in_words(state: LiveState, moves: Sequence[Move]) -> str:
    """What `mirage place advise` prints."""
    now = progress(state, state.assigned)
    held = int(state.assigned.sum())
    lines = [
        f"{len(state.rooms)} nodes with {len(state.topology)} GPUs, {held} in use;"
        f" network: {state.topology.source}",
        *(f"note: {note}" for note in state.notes),
        *_table(state, now),
        *_speed_words(state, now),
    ]
    for number, move in enumerate(moves, start=1):
        lines += _move_words(state, number, move)
    if not moves:
        lines.append("no move is worth its price" if held else "no GPU job runs")
    return "\n".join(lines)


def _speed_words(state: LiveState, now: Floats) -> list[str]:
    if not state.is_named:
        return []
    return [
        f"throughput now: {now.sum():.2f} of {int(state.assigned.sum())} GPUs;"
        f" rates: {state.machine.source}"
    ]


def sharers(state: LiveState, assigned: Bools | None = None) -> list[list[int]]:
    """Of each job, the ids of the jobs that use a link between nodes that it uses."""
    assigned = state.assigned if assigned is None else assigned
    links = ["/" not in one + other for one, other in state.topology.links]
    used = state.topology.used(assigned)[:, links].astype(np.int64)
    ids = [each.job.job_id for each in state.jobs]
    return [
        [ids[other] for other in np.nonzero(row)[0] if other != nth]
        for nth, row in enumerate(used @ used.T)
    ]


def _table(state: LiveState, now: Floats) -> list[str]:
    rows = []
    racks = state.topology.racks(state.assigned)
    for row, (each, others) in enumerate(zip(state.jobs, sharers(state), strict=True)):
        needed = _fewest_racks(state, each)
        spare = f", {needed} would do" if racks[row] > needed else ""
        spread = f" in {racks[row]} racks{spare}" if racks[row] > 1 else ""
        why = f"stays: {each.obstacle}" if each.obstacle else ""
        why = why or ("" if each.opt_in else "not opted in")
        where = _nodes(share.node for share in each.shares) + spread
        rows.append(_row(each.job, f"{now[row]:.2f}", _ids(others), where, why))
    rows += [_row(job, "-", "-", "waits", job.reason) for job in state.waiting]
    note = "NOTE" if any(row[-1] for row in rows) else ""
    rows.insert(0, ("JOB", "USER", "GPUS", "THROUGHPUT", "SHARES LINKS WITH", "NODES", note))
    if not state.is_named:
        rows = [(*row[:3], *row[4:]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = (
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in padded]


def _row(job: Job, *cells: str) -> tuple[str, ...]:
    return (str(job.job_id), job.user, str(job.gpus), *cells)


def _ids(jobs: Sequence[int]) -> str:
    return ",".join(map(str, jobs)) or "-"


def _fewest_racks(state: LiveState, each: PlacedJob) -> int:
    """Racks with enough nodes for the job, were they empty."""
    sizes = sorted(Counter(room.rack for room in state.rooms.values()).values(), reverse=True)
    return 1 + int(np.searchsorted(np.cumsum(sizes), len(each.shares)))


def _nodes(names: Iterable[str]) -> str:
    """In the order of their numbers: n2 before n10."""
    order = sorted(names, key=lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(9), name))
    return ",".join(order)


def _move_words(state: LiveState, number: int, move: Move) -> list[str]:
    where = " and ".join(
        f"job {each.job_id} ({each.user}) from {_nodes(each.from_nodes)} to"
        f" {_nodes(each.to_nodes)}" + ("" if each.has_opted_in else ", if its owner opts in")
        for each in move.relocations
    )
    lines = [f"move {number}: {where}"]
    lines += _gain_words(state, move) if state.is_named else _link_words(state, move)
    if move.starts:
        begun = ", ".join(
            f"job {each.job.job_id} ({each.job.user}, {each.job.gpus} GPUs) on"
            f" {','.join(each.nodes)}"
            for each in move.starts
        )
        lines.append(f"  makes room for: {begun}")
    payers = ", ".join(
        f"job {each.job_id} ({state.jobs[each.row].job.gpus} GPUs)" for each in move.relocations
    )
    lines.append(f"  price: {payers} without progress for about {move.pause_s:.0f} s")
    return lines


def _gain_words(state: LiveState, move: Move) -> list[str]:
    lines = [
        f"  throughput {move.before.sum():.2f} -> {move.after.sum():.2f}"
        f" ({move.gain:+.2f}, {100 * move.gain / move.before.sum():+.0f} %)",
    ]
    change = move.after - move.before
    for words, rows in (("gains", change > 5e-3), ("loses", change < -5e-3)):
        if rows.any():
            named = ", ".join(
                f"job {state.jobs[row].job.job_id} {change[row]:+.2f}" for row in rows.nonzero()[0]
            )
            lines.append(f"  {words}: {named}")
    return lines


def _link_words(state: LiveState, move: Move) -> list[str]:
    """Racks and shared links of each job whose own change by the move."""
    before, after = move.assigned_before, move.assigned
    racks, then = state.topology.racks(before), state.topology.racks(after)
    shared, later = sharers(state, before), sharers(state, after)
    return [
        f"  job {each.job.job_id}: racks {racks[row]} -> {then[row]},"
        f" shares links with {_ids(shared[row])} -> {_ids(later[row])}"
        for row, each in enumerate(state.jobs)
        if racks[row] != then[row] or shared[row] != later[row]
    ]


def as_json(state: LiveState, moves: Sequence[Move]) -> dict[str, Any]:
    """What `mirage place advise --json` prints."""
    racks, others = state.topology.racks(state.assigned), sharers(state)
    jobs = [
        {
            "job_id": each.job.job_id,
            "user": each.job.user,
            "gpus": each.job.gpus,
            "nodes": [share.node for share in each.shares],
            "racks": int(racks[row]),
            "shares_links_with": others[row],
            "opted_in": each.opt_in is not None,
            "obstacle": each.obstacle,
        }
        for row, each in enumerate(state.jobs)
    ]
    return {
        "at": state.at_s,
        "topology": state.topology.source,
        "gpus": len(state.topology),
        **_speeds_json(state),
        "jobs": jobs,
        "waiting": [{"job_id": job.job_id, "gpus": job.gpus} for job in state.waiting],
        "moves": [move_json(state, move) for move in moves],
        "notes": list(state.notes),
    }


def _speeds_json(state: LiveState) -> dict[str, Any]:
    if not state.is_named:
        return {}
    now = progress(state, state.assigned)
    of_jobs = {
        str(each.job.job_id): round(float(speed), 4)
        for each, speed in zip(state.jobs, now, strict=True)
    }
    return {"rates": state.machine.source, "throughput": of_jobs}


def move_json(state: LiveState, move: Move) -> dict[str, Any]:
    """A move, as `as_json` and the journal have it."""
    return {
        "jobs": [
            {
                "job_id": each.job_id,
                "user": each.user,
                "from": list(each.from_nodes),
                "to": list(each.to_nodes),
                "opted_in": each.has_opted_in,
            }
            for each in move.relocations
        ],
        **(_gain_json(state, move) if state.is_named else {}),
        "makes_room_for": [
            {"job_id": each.job.job_id, "gpus": each.job.gpus, "nodes": list(each.nodes)}
            for each in move.starts
        ],
        "pause_s": round(move.pause_s),
    }


def _gain_json(state: LiveState, move: Move) -> dict[str, Any]:
    change = move.after - move.before
    return {
        "throughput": round(float(move.after.sum()), 4),
        "gain": round(move.gain, 4),
        "change": {
            str(each.job.job_id): round(float(change[row]), 4)
            for row, each in enumerate(state.jobs)
            if abs(change[row]) > 1e-9
        },
    }
