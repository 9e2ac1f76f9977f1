"""What `mirage place advise` says of live jobs: in words, and for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from mirage.placement.live.advice import Move, progress
from mirage.placement.live.state import LiveState


def in_words(state: LiveState, moves: Sequence[Move]) -> str:
    """What `mirage place advise` prints."""
    now = progress(state, state.assigned)
    held = int(state.assigned.sum())
    lines = [
        f"{len(state.rooms)} nodes with {len(state.topology)} GPUs, {held} in use;"
        f" network: {state.topology.source}",
        *(f"note: {note}" for note in state.notes),
        *_table(state, now),
        f"throughput now: {now.sum():.2f} of {held} GPUs",
    ]
    for number, move in enumerate(moves, start=1):
        lines += _move_words(state, number, move)
    if not moves:
        lines.append("no move is worth its price" if held else "no GPU job runs")
    return "\n".join(lines)


def _table(state: LiveState, now: Any) -> list[str]:
    rows = []
    racks = state.topology.racks(state.assigned)
    for row, each in enumerate(state.jobs):
        where = _nodes(share.node for share in each.shares)
        spread = f" in {racks[row]} racks" if racks[row] > 1 else ""
        why = f"stays: {each.obstacle}" if each.obstacle else ""
        why = why or ("" if each.opt_in else "not opted in")
        job = each.job
        rows.append(
            (str(job.job_id), job.user, str(job.gpus), f"{now[row]:.2f}", where + spread, why)
        )
    for job in state.waiting:
        rows.append((str(job.job_id), job.user, str(job.gpus), "-", "waits", job.reason))
    note = "NOTE" if any(row[-1] for row in rows) else ""
    rows.insert(0, ("JOB", "USER", "GPUS", "THROUGHPUT", "NODES", note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = (
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in padded]


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
    total = float(move.after.sum())
    lines = [
        f"move {number}: {where}",
        f"  throughput {move.before.sum():.2f} -> {total:.2f}"
        f" ({move.gain:+.2f}, {100 * move.gain / move.before.sum():+.0f} %)",
    ]
    change = move.after - move.before
    for words, rows in (("gains", change > 5e-3), ("loses", change < -5e-3)):
        if rows.any():
            named = ", ".join(
                f"job {state.jobs[row].job.job_id} {change[row]:+.2f}" for row in rows.nonzero()[0]
            )
            lines.append(f"  {words}: {named}")
    if move.starts:
        begun = ", ".join(
            f"job {each.job.job_id} ({each.job.user}, {each.job.gpus} GPUs) on"
            f" {','.join(each.nodes)}"
            for each in move.starts
        )
        lines.append(f"  makes room for: {begun}")
    payers = ", ".join(f"job {each.job_id}" for each in move.relocations)
    lines.append(
        f"  price: {payers} without progress for a while, {move.price_gpu_s:.0f} GPU seconds;"
        f" worth {move.value_gpu_s + move.price_gpu_s:.0f} GPU seconds"
    )
    return lines


def as_json(state: LiveState, moves: Sequence[Move]) -> dict[str, Any]:
    """What `mirage place advise --json` prints."""
    now = progress(state, state.assigned)
    jobs = [
        {
            "job_id": each.job.job_id,
            "user": each.job.user,
            "gpus": each.job.gpus,
            "nodes": [share.node for share in each.shares],
            "throughput": round(float(now[row]), 4),
            "opted_in": each.opt_in is not None,
            "obstacle": each.obstacle,
        }
        for row, each in enumerate(state.jobs)
    ]
    return {
        "at": state.at_s,
        "topology": state.topology.source,
        "gpus": len(state.topology),
        "throughput": round(float(now.sum()), 4),
        "jobs": jobs,
        "waiting": [{"job_id": job.job_id, "gpus": job.gpus} for job in state.waiting],
        "moves": [move_json(state, move) for move in moves],
        "notes": list(state.notes),
    }


def move_json(state: LiveState, move: Move) -> dict[str, Any]:
    """A move, as `as_json` and the journal have it."""
    change = move.after - move.before
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
        "throughput": round(float(move.after.sum()), 4),
        "gain": round(move.gain, 4),
        "change": {
            str(each.job.job_id): round(float(change[row]), 4)
            for row, each in enumerate(state.jobs)
            if abs(change[row]) > 1e-9
        },
        "makes_room_for": [
            {"job_id": each.job.job_id, "gpus": each.job.gpus, "nodes": list(each.nodes)}
            for each in move.starts
        ],
        "price_gpu_s": round(move.price_gpu_s, 1),
        "value_gpu_s": round(move.value_gpu_s, 1),
    }
