"""All trials put together: what `results.json` and the page are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirage.domain import Penalties
from mirage.provision.evaluation.calibration import Bin, Coverage, bins, coverages
from mirage.provision.evaluation.metrics import (
    ALL,
    Difference,
    Group,
    MethodSummary,
    Point,
    Situation,
    ratio_text,
)
from mirage.provision.evaluation.protocol import BOUNDS, REACTIVE, EpisodeTrial
from mirage.provision.learn.episode import Load

DEFAULT_PENALTIES = (Penalties(1.0, 1.0), Penalties(4.0, 1.0))
CURVE = tuple(Penalties(float(max(1, 4**k)), float(max(1, 4**-k))) for k in range(-2, 3))
"""1:16 to 16:1."""


BOUND, RULE, TRAINED = "bound", "rule", "trained"


@dataclass(frozen=True)
class MethodInfo:
    """One of those that are compared."""

    name: str
    kind: str
    """BOUND, RULE or TRAINED."""
    about: str
    """One line for people."""
    folder: str | None = None
    """Of a trained one."""
    recipe_sha256: str | None = None
    train_s: tuple[int, int] | None = None
    """What it learnt from, Unix seconds."""
    saw_these: bool = False
    """It learnt from a part of the very time that it is judged on: its figures are too good."""
    foreign: str | None = None
    """The cluster, pool and nodes that it was trained for, if these are others."""


@dataclass(frozen=True)
class Setup:
    """What was asked for. Times are Unix seconds."""

    start_s: int
    every_s: int
    episodes: int
    nodes: tuple[int, ...]
    limit_s: int
    warm_up: str
    penalties: tuple[Penalties, ...] = DEFAULT_PENALTIES
    curve: tuple[Penalties, ...] = CURVE
    resamples: int = 2000
    seed: int = 1

    @property
    def all_penalties(self) -> tuple[Penalties, ...]:
        """All penalties that the methods are asked for, the default ones first."""
        return tuple(dict.fromkeys((*self.penalties, *self.curve)))


@dataclass(frozen=True)
class Comparison:
    """Every figure. All lists are flat: a record tells its own size, load class, penalties and
    method.
    """

    setup: Setup
    methods: tuple[MethodInfo, ...]
    groups: tuple[Group, ...]
    situations: tuple[Situation, ...]
    summary: tuple[MethodSummary, ...]
    differences: tuple[Difference, ...]
    tradeoff: tuple[Point, ...]
    coverage: tuple[Coverage, ...]
    bins: tuple[Bin, ...]
    dropped: Mapping[int, Mapping[str, int]]
    """By size: pairs without an outcome, and why (`mirage.provision.learn.sampler.DropReason`)."""

    @property
    def headline(self) -> str:
        """The first method named that learnt, else the first that is no bound: chosen by who asked,
        not by results.
        """
        learnt = [method.name for method in self.methods if method.kind == TRAINED]
        others = [method.name for method in self.methods if method.name not in BOUNDS]
        return (*learnt, *others, REACTIVE)[0]

    def against_headline(self, nodes: int, load: str, penalties: Penalties) -> list[Difference]:
        """All other methods minus the headline one."""
        return [
            row if row.than == self.headline else row.reversed()
            for row in self.differences
            if (row.nodes, row.load, row.penalties) == (nodes, load, ratio_text(penalties))
            and self.headline in (row.method, row.than)
        ]

    def row(self, nodes: int, load: str, penalties: Penalties, method: str) -> MethodSummary | None:
        """None: there is no such episode."""
        wanted = (nodes, load, ratio_text(penalties), method)
        return next(
            (
                row
                for row in self.summary
                if (row.nodes, row.load, row.penalties, row.method) == wanted
            ),
            None,
        )

    def shown_loads(self, nodes: int) -> list[str]:
        """The two load classes that matter most: the heaviest that occurs, and all, unless these
        are the same.
        """
        counts = {row.load: row.episodes for row in self.situations if row.nodes == nodes}
        busiest = self.busiest(nodes)
        return [
            load
            for load in (busiest, ALL)
            if load in counts and (load != ALL or counts[ALL] > counts[busiest or ALL])
        ]

    def busiest(self, nodes: int) -> str | None:
        """The heaviest load class that occurs."""
        found = {row.load for row in self.situations if row.nodes == nodes}
        return next((load.value for load in Load if load.value in found), None)


def compare(
    setup: Setup,
    methods: Sequence[MethodInfo],
    trials: Iterable[EpisodeTrial],
    dropped: Mapping[int, Mapping[str, int]],
) -> Comparison:
    """Works out every figure. ``methods`` in the order in which they are shown."""
    by_nodes: dict[int, list[EpisodeTrial]] = {}
    for trial in trials:
        by_nodes.setdefault(trial.nodes, []).append(trial)
    groups = tuple(
        Group(by_nodes[nodes], setup.resamples, setup.seed)
        for nodes in setup.nodes
        if nodes in by_nodes
    )
    names = [method.name for method in methods]
    return Comparison(
        setup,
        tuple(methods),
        groups,
        situations=tuple(group.situation(load) for group in groups for load in group.present),
        summary=tuple(
            group.summary(name, penalties, load)
            for group in groups
            for penalties in setup.penalties
            for load in group.present
            for name in names
        ),
        differences=tuple(_differences(setup, groups, names)),
        tradeoff=tuple(
            point for group in groups for name in names for point in group.points(name, setup.curve)
        ),
        coverage=tuple(row for group in groups for name in names for row in coverages(group, name)),
        bins=tuple(row for group in groups for name in names for row in bins(group, name)),
        dropped=dropped,
    )


def _differences(
    setup: Setup, groups: Sequence[Group], names: Sequence[str]
) -> Iterable[Difference]:
    """Of every two methods, once."""
    for group in groups:
        for penalties in setup.penalties:
            for load in group.present:
                for index, name in enumerate(names):
                    for than in names[:index]:
                        yield group.difference(name, than, penalties, load)
