"""Which jobs would run faster elsewhere: a bounded local search on live jobs.

A job keeps its number of nodes and what it has of each, since Slurm cannot change a job's size. It
may go where its partition, GPU type, CPUs and memory allow. Moves: a job goes to free GPUs; where
none is worth its price, two jobs are placed anew together, which has swaps among them.

A move is worth its gain over a horizon, and the throughput of waiting jobs that it makes room for,
less what it costs: the moved job makes no progress while it is between nodes. Progress is measured
in GPUs' worth: 1 is a GPU without communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice

import numpy as np

from mirage.domain import Job
from mirage.placement.live import law
from mirage.placement.live.rooms import (
    JobStart,
    Rooms,
    has_room,
    relocated,
    share_of,
    shares_on,
    with_job,
    with_start,
    without_job,
)
from mirage.placement.live.state import LiveState, PlacedJob, TargetNode, free_gpus
from mirage.placement.topology import Bools, Floats

MOST_CHOICES = 2000
"""Placements of two jobs that are tried at a time; the pairs that lose most come first."""
_CHUNK = 100
"""Placements whose throughput is computed at once, which bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a move has to bring."""

    pause_s: float
    """Seconds in which a moved job makes no progress; measured, or assumed before the first move.
    """
    horizon_s: float
    """A gain counts for so long, or until the job's time limit, if that is sooner."""
    only_opted_in: bool = True
    most_moves: int = 5


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """One job to other nodes."""

    row: int
    """Of the state's jobs."""
    job_id: int
    user: str
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    has_opted_in: bool


@dataclass(frozen=True, kw_only=True)
class Move:
    """One or two jobs to other nodes, together."""

    relocations: tuple[Relocation, ...]
    before: Floats
    """Progress of each job, GPUs' worth, [J]."""
    after: Floats
    value_gpu_s: float
    """Gain over the horizon less the price, seconds of a GPU."""
    price_gpu_s: float
    pause_s: float
    """Without progress, of each job that moves."""
    assigned_before: Bools
    """GPUs of each job, [J, M]."""
    assigned: Bools
    """The same afterwards."""
    starts: tuple[JobStart, ...] = ()

    @property
    def gain(self) -> float:
        """Of the running jobs, GPUs' worth."""
        return float(self.after.sum() - self.before.sum())


def progress(state: LiveState, assigned: Bools) -> Floats:
    """GPUs' worth of each job's throughput: [..., J, M] -> [..., J]."""
    return law.progress(state.machine, state.topology, assigned, state.work)


def advise(state: LiveState, terms: Terms, resting: Collection[int] = ()) -> tuple[Move, ...]:
    """Moves in the order in which to take them, each on top of those before it.

    ``resting``: ids of jobs that stay this time.
    Steepest ascent: the move of the greatest value goes first; ends where none is worth its price.
    A job moves once.
    """
    moves: list[Move] = []
    moved = {row for row, each in enumerate(state.jobs) if each.job.job_id in resting}
    while state.jobs and len(moves) < terms.most_moves:
        found = _best(state, terms, moved)
        if found is None:
            break
        moves.append(found)
        moved |= {each.row for each in found.relocations}
        state = after(state, found)
    return tuple(moves)


def after(state: LiveState, move: Move) -> LiveState:
    """The state once the move is done."""
    jobs = list(state.jobs)
    for each in move.relocations:
        jobs[each.row] = relocated(jobs[each.row], each.to_nodes, move.assigned[each.row])
    rows = [each.row for each in move.relocations]
    rooms = _rooms_after(state, rows, [jobs[row] for row in rows])
    for start in move.starts:
        rooms = with_start(rooms, start)
    started = {start.job.job_id for start in move.starts}
    waiting = tuple(job for job in state.waiting if job.job_id not in started)
    return replace(state, rooms=rooms, jobs=tuple(jobs), waiting=waiting)


def _rooms_after(state: LiveState, rows: Sequence[int], moved: Sequence[PlacedJob]) -> Rooms:
    rooms = state.rooms
    for row in rows:
        rooms = without_job(rooms, state.jobs[row])
    for each in moved:
        rooms = with_job(rooms, each)
    return rooms


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """Rows that move, with their new nodes and GPUs."""

    rows: tuple[int, ...]
    nodes: tuple[tuple[str, ...], ...]
    gpus: tuple[Bools, ...]


def _best(state: LiveState, terms: Terms, moved: set[int]) -> Move | None:
    movable = [
        row
        for row, each in enumerate(state.jobs)
        if row not in moved
        and not each.obstacle
        and (each.opt_in is not None or not terms.only_opted_in)
    ]
    return _best_of(state, terms, list(_single(state, movable))) or _best_of(
        state, terms, list(islice(_double(state, movable), MOST_CHOICES))
    )


def _best_of(state: LiveState, terms: Terms, choices: Sequence[_Choice]) -> Move | None:
    best: Move | None = None
    before, counted_s = progress(state, state.assigned), _counted_s(state, terms)
    already = {start.job.job_id for start in starts(state, state.rooms)}
    for first in range(0, len(choices), _CHUNK):
        some = choices[first : first + _CHUNK]
        assigned = np.repeat(state.assigned[None], len(some), axis=0)
        prices, begun_s = np.zeros(len(some)), np.zeros(len(some))
        begun = [_begun(state, choice, already) for choice in some]
        for nth, choice in enumerate(some):
            assigned[nth, list(choice.rows)] = choice.gpus
            prices[nth] = before[list(choice.rows)].sum() * terms.pause_s
            begun_s[nth] = sum(
                start.worth * min(terms.horizon_s, start.job.time_limit_s or terms.horizon_s)
                for start in begun[nth]
            )
        then = progress(state, assigned)
        values = ((then - before) * counted_s).sum(axis=1) + begun_s - prices
        nth = int(values.argmax())
        if values[nth] > (best.value_gpu_s if best else 0.0):
            best = Move(
                relocations=_relocations(state, some[nth]),
                before=before,
                after=then[nth],
                value_gpu_s=float(values[nth]),
                price_gpu_s=float(prices[nth]),
                pause_s=terms.pause_s,
                assigned_before=state.assigned,
                assigned=assigned[nth],
                starts=begun[nth],
            )
    return best


def _begun(state: LiveState, choice: _Choice, already: Collection[int]) -> tuple[JobStart, ...]:
    """Waiting jobs for which a choice makes room, and which had none before."""
    if len(already) == len(state.waiting):
        return ()
    moved = [
        relocated(state.jobs[row], nodes, gpus)
        for row, nodes, gpus in zip(choice.rows, choice.nodes, choice.gpus, strict=True)
    ]
    rooms = _rooms_after(state, choice.rows, moved)
    return tuple(each for each in starts(state, rooms) if each.job.job_id not in already)


def starts(state: LiveState, rooms: Rooms) -> list[JobStart]:
    """Waiting jobs that there is room for, by priority. Who is tied to certain nodes is left out,
    and so are all where nodes have different types of GPU, which squeue does not show.
    """
    found: list[JobStart] = []
    if len({room.gpu_type for room in rooms.values()}) > 1:
        return found
    for job in state.waiting:
        details = state.waiting_details.get(job.job_id)
        if details is None or details.ties or details.required_nodes:
            continue
        each = share_of(job, next(iter(rooms.values())).gpu_type)
        partitions = job.partition.split(",")
        usable = sorted(
            (
                name
                for name, room in rooms.items()
                if has_room(room, partitions, [each], whole=details.takes_whole_nodes)
            ),
            key=lambda name: (int(rooms[name].gpus.sum()), len(name), name),
        )
        if len(usable) >= job.nodes:
            start = _start(state, job, usable[: job.nodes], each.gpus, rooms)
            found.append(start)
            rooms = with_start(rooms, start)
    return found


def _start(state: LiveState, job: Job, nodes: Sequence[str], gpus: int, rooms: Rooms) -> JobStart:
    chosen = np.zeros(len(state.topology), dtype=bool)
    for node in nodes:
        chosen |= free_gpus(state.topology, rooms[node].gpus, gpus)
    worth = float(law.progress(state.machine, state.topology, chosen[None], state.usual_work)[0])
    return JobStart(job=job, nodes=tuple(nodes), gpus=chosen, worth=worth)


def _counted_s(state: LiveState, terms: Terms) -> Floats:
    """For how long a gain of each job counts, [J]."""
    ends = [each.job.limit_end_s for each in state.jobs]
    return np.array(
        [
            terms.horizon_s if end is None else min(terms.horizon_s, max(end - state.at_s, 0))
            for end in ends
        ]
    )


def _relocations(state: LiveState, choice: _Choice) -> tuple[Relocation, ...]:
    found = []
    for row, nodes in zip(choice.rows, choice.nodes, strict=True):
        each = state.jobs[row]
        found.append(
            Relocation(
                row=row,
                job_id=each.job.job_id,
                user=each.job.user,
                from_nodes=tuple(share.node for share in each.shares),
                to_nodes=nodes,
                has_opted_in=each.opt_in is not None,
            )
        )
    return tuple(found)


def _single(state: LiveState, movable: Sequence[int]) -> Iterator[_Choice]:
    for row in movable:
        rooms = without_job(state.rooms, state.jobs[row])
        for nodes, gpus in _targets(state, row, rooms):
            yield _Choice(rows=(row,), nodes=(nodes,), gpus=(gpus,))


def _double(state: LiveState, movable: Sequence[int]) -> Iterator[_Choice]:
    for one, other in _pairs(state, movable):
        rooms = without_job(without_job(state.rooms, state.jobs[one]), state.jobs[other])
        for first, second in ((one, other), (other, one)):
            yield from _together(state, first, second, rooms)


def _pairs(state: LiveState, movable: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs with a job of several nodes; those that lose most to communication first."""
    worth = progress(state, state.assigned)
    lost = [float(each.gpus.sum() - worth[row]) for row, each in enumerate(state.jobs)]
    pairs = [
        pair
        for pair in combinations(movable, 2)
        if max(len(state.jobs[row].shares) for row in pair) > 1
    ]
    return sorted(pairs, key=lambda pair: -lost[pair[0]] - lost[pair[1]])


def _together(state: LiveState, first: int, second: int, rooms: Rooms) -> Iterator[_Choice]:
    """Both placed anew, the first with the first choice."""
    for nodes, gpus in _targets(state, first, rooms):
        left = with_job(rooms, relocated(state.jobs[first], nodes, gpus))
        for other_nodes, other_gpus in _targets(state, second, left):
            yield _Choice(rows=(first, second), nodes=(nodes, other_nodes), gpus=(gpus, other_gpus))


def _targets(state: LiveState, row: int, rooms: Rooms) -> list[tuple[tuple[str, ...], Bools]]:
    """Other nodes for a job, with its GPUs there: for each rack one choice, else one over racks.

    Own nodes first, so that little moves; then those with the least room, so that gaps stay large.
    """
    each = state.jobs[row]
    own, count = {share.node for share in each.shares}, len(each.shares)
    usable = sorted(
        (name for name, room in rooms.items() if _takes(room, each)),
        key=lambda name: (name not in own, int(rooms[name].gpus.sum()), len(name), name),
    )
    racks: dict[str, list[str]] = defaultdict(list)
    for name in usable:
        racks[rooms[name].rack].append(name)
    groups = [names for names in racks.values() if len(names) >= count]
    if not groups:
        largest_first = sorted(racks.values(), key=lambda names: -len(names))
        groups = [list(chain.from_iterable(largest_first))]
    found = []
    for names in groups:
        nodes = tuple(names[:count])
        if set(nodes) == own:  # elsewhere in its rack, which may make room for a waiting job
            nodes = tuple(name for name in names if name not in own)[:count]
        if len(nodes) == count:
            gpus = np.zeros(len(state.topology), dtype=bool)
            for share in shares_on(each, nodes):
                gpus |= free_gpus(state.topology, rooms[share.node].gpus, share.gpus)
            found.append((nodes, gpus))
    return found


def _takes(room: TargetNode, each: PlacedJob) -> bool:
    """Whether a node may take the job, and has room for its largest share."""
    whole = each.details.takes_whole_nodes
    return has_room(room, [each.job.partition], each.shares, whole=whole)
