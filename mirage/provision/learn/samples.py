"""Labelled episodes: collected over cores or machines, kept in a folder, split by time, read in
batches.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import Drawing
from mirage.provision.learn.episode import HISTORY, Episode, Floats, Ints, Load, Span, Vectors, span
from mirage.provision.learn.parallel import spread
from mirage.provision.learn.sampler import DropReason, label
from mirage.provision.learn.shards import SHARD, Shard, ShardFolder
from slurm_sim.seconds import DAY_S

_DRAWS = 100
"""Sets of blocks that `Samples.hold_out` chooses from."""
_BLOCK_S = 14 * DAY_S
Progress = Callable[[int, int], None]
"""Gets how many episodes are done, and of how many."""


def collect(
    background: Background,
    drawing: Drawing,
    folder: Path,
    workers: int = 1,
    progress: Progress | None = None,
    until_s: float | None = None,
) -> Samples:
    """All episodes of the drawing, in `folder`: what is there already is not made again.
    ``until_s``: on the monotonic clock; later no further file is begun, but one is there at least.

    Nothing submitted after the drawing's end is used. The same drawing gives the same samples,
    however many workers there are. An interrupted collection goes on
    where it was when it is called again. Raises InputError if the folder holds samples of something
    else, or the cluster could never run a pair.
    """
    background = background.until(drawing.end_s)
    _check_pairs(background, drawing)
    shards = ShardFolder.opened(folder, header_of(background, drawing))
    missing = [number for number in range(shards.count) if not shards.has(number)]
    done = drawing.count - sum(len(shards.numbers(number)) for number in missing)
    if progress is not None:
        progress(done, drawing.count)
    items = [shards.numbers(number) for number in missing]
    if done and _is_up(until_s):
        items = []
    with closing(spread(_label_all, (background, drawing), items, workers)) as labelled:
        for numbers, shard in labelled:
            shards.write(numbers[0] // SHARD, shard)
            done += len(numbers)
            if progress is not None:
                progress(done, drawing.count)
            if _is_up(until_s):
                break
    return Samples.load(folder, is_whole=until_s is None)


def _is_up(until_s: float | None) -> bool:
    return until_s is not None and time.monotonic() >= until_s


def header_of(background: Background, drawing: Drawing) -> dict[str, Any]:
    """What the samples depend on."""
    return {
        "drawing": drawing.record(),
        "trace": {"source": background.log.source, "sha256": background.log.checksum()},
        "cluster": {"name": background.cluster.name, "sha256": background.cluster_checksum()},
    }


def _label_all(task: tuple[Background, Drawing], numbers: range) -> Shard:
    background, drawing = task
    shard = Shard()
    for number in numbers:
        found = label(background, drawing.plan(number))
        if isinstance(found, DropReason):
            shard.dropped[found.value] += 1
        else:
            shard.numbers.append(number)
            shard.episodes.append(found.episode)
            shard.tally.update(asdict(found.tally))
    return shard


def _check_pairs(background: Background, drawing: Drawing) -> None:
    """Before hours of work: each pair of a fixed list, and the widest and longest of a mix."""
    for pair in drawing.extremes():
        background.check(pair, drawing.partition)


# --- what was collected
# ----------------------------------------------------------------------------------------------


class StateBatch(NamedTuple):
    """n states at decision points, and what comes of a release there. Everything is a copy."""

    matrices: Vectors
    """(n, 144, 40), raw."""
    remaining_s: Ints
    """(n,): until the predecessor's limit."""
    interruption_s: Ints
    overlap_s: Ints
    """(n,) each."""
    episode: Ints
    """(n,): index into the samples."""
    point: Ints
    """(n,): its decision point, from 0 on."""


@dataclass(frozen=True)
class Samples(Sequence[Episode]):
    """Episodes, in the order of the drawing's numbers."""

    episodes: tuple[Episode, ...]
    dropped: Counter[str]
    """Plans without an episode, by reason (`sampler.DropReason`)."""
    tally: Counter[str]
    """What the log could not tell, over all warm-ups (`logstate.Tally`)."""

    @classmethod
    def load(cls, folder: Path, *, is_whole: bool = True) -> Samples:
        """Raises InputError if it holds no samples, not all of them (``is_whole``), or a damaged
        file.
        """
        shards = ShardFolder.existing(folder)
        numbers = range(shards.count)
        read = [shards.read(number) for number in numbers if is_whole or shards.has(number)]
        dropped, tally = (
            sum((getattr(it, name) for it in read), Counter[str]()) for name in ("dropped", "tally")
        )
        return cls(tuple(episode for shard in read for episode in shard.episodes), dropped, tally)

    def __len__(self) -> int:
        return len(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Episode, ...]: ...
    def __getitem__(self, index: int | slice) -> Episode | tuple[Episode, ...]:
        return self.episodes[index]

    @property
    def points(self) -> int:
        """Decision points of all episodes."""
        return sum(map(len, self.episodes))

    @property
    def tried(self) -> int:
        """Plans that became episodes or were dropped."""
        return len(self) + sum(self.dropped.values())

    def those(self, chosen: Callable[[Episode], bool]) -> Samples:
        """The episodes for which this is true; what was dropped or counted stays with the whole."""
        return Samples(tuple(filter(chosen, self.episodes)), Counter(), Counter())

    def apart_from(self, others: Sequence[Episode]) -> Samples:
        """The episodes that share no second (`span`) with any of the others."""
        return Samples(tuple(apart(self.episodes, others)), Counter(), Counter())

    def split(self, at_s: int) -> tuple[Samples, Samples]:
        """What was over by `at_s`, and what had not begun: an episode that reaches over it is in
        neither.
        """
        return self.those(lambda it: span(it)[1] <= at_s), self.those(
            lambda it: span(it)[0] >= at_s
        )

    def hold_out(
        self, share: float, seed: int, block_s: int | None = None
    ) -> tuple[Samples, Samples]:
        """(for training, held out): episodes of whole blocks of time, a fortnight each where there
        is time enough.

        Of blocks drawn at random those are taken whose episodes are most like all in how busy the
        cluster is: who stops early by quiet weeks alone keeps weights that never release. Months
        hold few independent situations, and neighbours share a queue: so no training episode shares
        any second with one that is held out (`span`). Raises InputError if there is too little
        time.
        """
        begins_s = np.array([episode.begin_s for episode in self.episodes], dtype=np.int64)
        if block_s is None:
            block_s = (
                max(DAY_S, min(_BLOCK_S, int(share * np.ptp(begins_s))))
                if len(begins_s)
                else _BLOCK_S
            )
        block = begins_s // block_s
        blocks = np.unique(block)
        if not 0 < share < 1 or len(blocks) < 2:
            days = float(np.ptp(begins_s)) / DAY_S if len(begins_s) else 0.0
            raise InputError(
                f"{len(begins_s)} training episodes begin within {days:.1f} days: too short a time"
                " to stop training early by a part of it. Give a longer history, or a longer time"
                " from --from to --until."
            )
        count, rng = max(1, round(share * len(blocks))), np.random.default_rng(seed)
        drawn = [rng.permutation(blocks)[:count] for _ in range(_DRAWS)]
        held = min(drawn, key=lambda some: self._unlike(np.isin(block, some), count / len(blocks)))
        out = self.those(lambda it: it.begin_s // block_s in held)
        rest = self.apart_from(out)
        if not len(out) or not len(rest):
            raise InputError(
                f"{len(begins_s)} training episodes are too few: {share:.0%} of them decide when"
                " training stops, and without those that share time with these none is left. Give"
                " more --episodes, or a longer history."
            )
        return rest, out

    def _unlike(self, chosen: NDArray[np.bool_], share: float) -> float:
        """How much the chosen episodes, (episodes,), are unlike all: in load, and in number where
        they are too few.
        """
        loads = np.array([list(Load).index(episode.load) for episode in self.episodes])
        mixes = [
            np.bincount(some, minlength=len(Load)) / max(1, len(some))
            for some in (loads, loads[chosen])
        ]
        return float(
            np.abs(mixes[0] - mixes[1]).sum() + max(0.0, share / 2 - chosen.mean()) / share
        )

    def batches(self, size: int, seed: int, per_episode: int | None = None) -> Iterator[StateBatch]:
        """Once through random decision points, at most `size` a batch; only the batch at hand is in
        memory.

        `per_episode`: so many random points of each episode; None: all. Neighbouring points are
        nearly equal, so a few a time teach nearly as much. The same seed gives the same batches.
        """
        rng = np.random.default_rng(seed)
        lengths = np.array([len(episode) for episode in self.episodes], dtype=np.int64)
        episode = np.repeat(np.arange(len(lengths)), lengths)
        point = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = rng.permutation(len(episode))
        if per_episode is not None:
            order = order[_first_of_each(episode[order], per_episode)]
        for first in range(0, len(order), size):
            chosen = order[first : first + size]
            yield self.batch(episode[chosen], point[chosen])

    def batch(self, episode: Ints, point: Ints) -> StateBatch:
        """The states of these decision points, (n,) each."""
        matrices = np.empty((len(point), HISTORY, 40), dtype=np.float32)
        facts = np.empty((3, len(point)), dtype=np.int64)
        for place, (which, at) in enumerate(zip(episode.tolist(), point.tolist(), strict=True)):
            it = self.episodes[which]
            matrices[place] = it.rows[at : at + HISTORY]
            facts[:, place] = it.remaining_s[at], it.interruption_s[at], it.overlap_s[at]
        return StateBatch(
            matrices=matrices,
            remaining_s=facts[0],
            interruption_s=facts[1],
            overlap_s=facts[2],
            episode=episode,
            point=point,
        )

    def summary(self) -> dict[str, Any]:
        """For cards and reports: how many, in which load class, how they came to be."""
        loads = Counter(episode.load.value for episode in self.episodes)
        made = Counter(episode.tags.get("augmentation") or "as logged" for episode in self.episodes)
        return {
            "episodes": len(self),
            "points": self.points,
            "load": dict(loads),
            "augmentation": dict(made),
            "dropped": dict(self.dropped),
            "log": dict(self.tally),
        }


def apart(episodes: Sequence[Episode], others: Sequence[Episode]) -> list[Episode]:
    """The episodes that share no second (`span`) with any of the others."""
    taken = _union([span(episode) for episode in others])
    return [episode for episode in episodes if not _meets(span(episode), taken)]


def _union(spans: Sequence[Span]) -> Floats:
    """Ascending, without overlaps: (spans, 2)."""
    merged: list[list[int]] = []
    for begin_s, end_s in sorted(spans):
        if merged and begin_s <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end_s)
        else:
            merged.append([begin_s, end_s])
    return np.array(merged, dtype=np.float64).reshape(-1, 2)


def _meets(one: Span, taken: Floats) -> bool:
    return bool(((taken[:, 0] < one[1]) & (one[0] < taken[:, 1])).any())


def _first_of_each(groups: Ints, count: int) -> Ints:
    """Places of the first so many members of each group, ascending."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    rank = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return np.sort(order[rank < count])
