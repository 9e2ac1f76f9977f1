"""Which jobs would run faster elsewhere: a bounded local search on equation 3, on live jobs.

A job keeps its number of nodes and what it has of each, since Slurm cannot change a job's size. It
may go where its partition, GPU type, CPUs and memory allow. Moves: a job goes to free GPUs; where
none is worth its price, two jobs are placed anew together, which has swaps among them.

A move is worth its gain over a horizon, less what it costs: the moved job makes no progress while
it is between nodes. Progress is measured in GPUs' worth: 1 is a GPU without communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np

from mirage.placement.live_state import LiveState, PlacedJob, TargetNode, free_gpus
from mirage.placement.speed import speeds
from mirage.placement.topology import Bools, Floats
from mirage.slurm.job_details import NodeShare

Rooms = Mapping[str, TargetNode]
MOST_PAIRS = 400
"""Pairs of jobs that are tried together; those that share the narrowest links first."""


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
    assigned: Bools
    """GPUs of each job afterwards, [J, M]."""

    @property
    def gain(self) -> float:
        """GPUs' worth."""
        return float(self.after.sum() - self.before.sum())


def progress(state: LiveState, assigned: Bools) -> Floats:
    """GPUs' worth of each job's throughput (equation 3): [..., J, M] -> [..., J]."""
    one_gpu = state.model.efficiency * state.model.gpu_flops
    flops = speeds(
        state.model,
        state.topology,
        assigned,
        minibatch_distance=state.minibatch_distance,
        per_root_s=state.reduction_per_root_s,
    )
    worth: Floats = flops / one_gpu
    return worth


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
    rooms = state.rooms
    jobs = list(state.jobs)
    for each in move.relocations:
        rooms = _left(rooms, jobs[each.row])
    for each in move.relocations:
        jobs[each.row] = _moved(jobs[each.row], each.to_nodes, move.assigned[each.row])
        rooms = _entered(rooms, jobs[each.row])
    return replace(state, rooms=rooms, jobs=tuple(jobs))


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
        state, terms, list(_double(state, movable))
    )


def _best_of(state: LiveState, terms: Terms, choices: Sequence[_Choice]) -> Move | None:
    if not choices:
        return None
    assigned = np.repeat(state.assigned[None], len(choices), axis=0)
    is_moved = np.zeros((len(choices), len(state.jobs)), dtype=bool)
    for nth, choice in enumerate(choices):
        for row, gpus in zip(choice.rows, choice.gpus, strict=True):
            assigned[nth, row] = gpus
            is_moved[nth, row] = True
    before, then = progress(state, state.assigned), progress(state, assigned)
    prices = (is_moved * before).sum(axis=1) * terms.pause_s
    values = ((then - before) * _counted_s(state, terms)).sum(axis=1) - prices
    best = int(values.argmax())
    if values[best] <= 0:
        return None
    return Move(
        relocations=_relocations(state, choices[best]),
        before=before,
        after=then[best],
        value_gpu_s=float(values[best]),
        price_gpu_s=float(prices[best]),
        assigned=assigned[best],
    )


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
        rooms = _left(state.rooms, state.jobs[row])
        for nodes, gpus in _targets(state, row, rooms):
            yield _Choice(rows=(row,), nodes=(nodes,), gpus=(gpus,))


def _double(state: LiveState, movable: Sequence[int]) -> Iterator[_Choice]:
    for one, other in _pairs(state, movable):
        rooms = _left(_left(state.rooms, state.jobs[one]), state.jobs[other])
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
    return sorted(pairs, key=lambda pair: -lost[pair[0]] - lost[pair[1]])[:MOST_PAIRS]


def _together(state: LiveState, first: int, second: int, rooms: Rooms) -> Iterator[_Choice]:
    """Both placed anew, the first with the first choice."""
    for nodes, gpus in _targets(state, first, rooms):
        left = _entered(rooms, _moved(state.jobs[first], nodes, gpus))
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
        if len(nodes) == count and set(nodes) != own:
            gpus = np.zeros(len(state.topology), dtype=bool)
            for share in shares_on(each, nodes):
                gpus |= free_gpus(state.topology, rooms[share.node].gpus, share.gpus)
            found.append((nodes, gpus))
    return found


def _takes(room: TargetNode, each: PlacedJob) -> bool:
    """Whether a node may take the job, and has room for its largest share."""
    shares = each.shares
    return (
        room.takes_jobs
        and each.job.partition in room.partitions
        and room.gpu_type == shares[0].gpu_type
        and int(room.gpus.sum()) >= max(share.gpus for share in shares)
        and room.cpus >= max(share.cpus for share in shares)
        and room.memory_mib >= max(share.memory_mib for share in shares)
        and not (room.tenants and each.details.takes_whole_nodes)
    )


def shares_on(each: PlacedJob, nodes: Sequence[str]) -> tuple[NodeShare, ...]:
    """What the job has now, on other nodes, as many. A node that it keeps keeps its share."""
    kept = [share for share in each.shares if share.node in nodes]
    free = [node for node in nodes if node not in {share.node for share in kept}]
    leaving = [share for share in each.shares if share.node not in nodes]
    moved = [
        replace(share, node=node, gpu_numbers=()) for share, node in zip(leaving, free, strict=True)
    ]
    return (*kept, *moved)


def _left(rooms: Rooms, each: PlacedJob) -> dict[str, TargetNode]:
    """The rooms once the job has gone."""
    found = dict(rooms)
    for share in each.shares:
        if (room := found.get(share.node)) is not None:
            found[share.node] = replace(
                room,
                gpus=room.gpus | (each.gpus & room.members),
                cpus=room.cpus + share.cpus,
                memory_mib=room.memory_mib + share.memory_mib,
                tenants=room.tenants - {each.job.job_id},
            )
    return found


def _entered(rooms: Rooms, each: PlacedJob) -> dict[str, TargetNode]:
    """The rooms once the job is there, with its shares and GPUs."""
    found = dict(rooms)
    for share in each.shares:
        room = found[share.node]
        found[share.node] = replace(
            room,
            gpus=room.gpus & ~each.gpus,
            cpus=room.cpus - share.cpus,
            memory_mib=room.memory_mib - share.memory_mib,
            tenants=room.tenants | {each.job.job_id},
        )
    return found


def _moved(each: PlacedJob, nodes: Sequence[str], gpus: Bools) -> PlacedJob:
    """The job on other nodes."""
    return replace(each, details=replace(each.details, shares=shares_on(each, nodes)), gpus=gpus)
