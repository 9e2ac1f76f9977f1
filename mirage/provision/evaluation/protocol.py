"""What each method makes of an episode: the first decision point at which it releases, and so an
exact outcome.

The paper's protocol (section 6): pairs at fixed begins, load classes by the reactive wait,
interruption and overlap of each method. Beyond it: all methods meet the same episodes, so they are
compared in pairs, and with the best that was possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from mirage.domain import Action, Penalties
from mirage.ports import Policy
from mirage.provision.evaluation.case import Case
from mirage.provision.learn.episode import Episode, Floats
from mirage.provision.learn.model import Assessment, Model, States, releases

ORACLE, REACTIVE = "oracle", "reactive"
BOUNDS = (REACTIVE, ORACLE)
"""Always there: what users do today, and the best that was possible."""


@dataclass(frozen=True)
class ReleaseChoice:
    point: int
    """Index of the first decision point at which the method releases; T: it never does, as in
    `reactive`.
    """
    wait_quantiles_s: Floats | None = None
    """(T, 3): the quantiles p10, p50, p90 of the wait, NaN where the method gave none. None: not
    asked, or never.
    """


class Chooser(Protocol):
    """A method on an episode whose outcomes are known."""

    @property
    def name(self) -> str: ...

    @property
    def minds_penalties(self) -> bool:
        """Whether its choice may change with the penalties."""

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        """``with_quantiles``: also what it says of the wait at every decision point, those after its release
        too.
        """


@dataclass(frozen=True)
class Oracle:
    """The cheapest of the outcomes, known only afterwards."""

    name: str = ORACLE
    minds_penalties: bool = True

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        del with_quantiles  # it knows the wait
        return ReleaseChoice(case.episode.best(penalties))


@dataclass(frozen=True)
class Never:
    """Reactive: Slurm's dependency lets the successor in at its predecessor's end."""

    name: str = REACTIVE
    minds_penalties: bool = False

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        del penalties, with_quantiles  # it waits whatever they are
        return ReleaseChoice(len(case.episode))


@dataclass(frozen=True)
class PolicyChooser:
    """A policy of the daemon's form, asked at one decision point after the other."""

    policy: Policy
    name: str
    minds_penalties: bool = True

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        points = len(case.episode)
        wait_quantiles_s, chosen = np.full((points, 3), np.nan), points
        for point in range(points):
            advice = self.policy.decide(case.observe(point, penalties))
            quantiles = (advice.wait_p10_s, advice.wait_p50_s, advice.wait_p90_s)
            wait_quantiles_s[point] = [np.nan if value is None else value for value in quantiles]
            if advice.action is Action.RELEASE and chosen == points:
                chosen = point
                if not with_quantiles:
                    break
        return ReleaseChoice(chosen, _if_any(wait_quantiles_s) if with_quantiles else None)


@dataclass(frozen=True)
class ModelChooser:
    """A trained method: all decision points of the episode in one batch, and so what it remembers
    of those before.
    """

    model: Model
    name: str
    minds_penalties: bool = True

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        episode = case.episode
        if not len(episode):
            return ReleaseChoice(0)
        states = States.of(episode, penalties.interruption, penalties.overlap)
        said = self.model.assess(states)
        released = releases(self.model, said, states)
        point = int(np.argmax(released)) if released.any() else len(episode)
        return ReleaseChoice(point, _if_any(_quantiles(said)) if with_quantiles else None)


def _quantiles(said: Assessment) -> Floats:
    return np.stack([said.wait_p10_s, said.wait_p50_s, said.wait_p90_s], axis=1)


def _if_any(wait_quantiles_s: Floats) -> Floats | None:
    return wait_quantiles_s if np.isfinite(wait_quantiles_s).any() else None


@dataclass(frozen=True)
class EpisodeTrial:
    """An episode, and every method's choice in it."""

    episode: Episode
    """With one column of its rows only: the number of queued jobs."""
    choices: dict[tuple[str, Penalties], int]
    """By method and penalties, as in `ReleaseChoice.point`."""
    wait_quantiles_s: dict[str, Floats]
    """By method, of those that give quantiles: as in `ReleaseChoice.wait_quantiles_s`."""

    @property
    def nodes(self) -> int:
        return self.episode.pair.successor.nodes

    def gap_s(self, point: int) -> int:
        """Interruption of a choice; below zero: overlap."""
        return int(self.episode.successor_start_s[point]) - self.episode.predecessor_end_s


def try_all(
    case: Case, choosers: Sequence[Chooser], penalties: Sequence[Penalties]
) -> EpisodeTrial:
    """Lets every method choose for each of the penalties.

    What a method tells of the wait is asked once, for the first penalties.
    """
    choices: dict[tuple[str, Penalties], int] = {}
    wait_quantiles_s: dict[str, Floats] = {}
    for chooser in choosers:
        for index, each in enumerate(penalties):
            if index == 0 or chooser.minds_penalties:
                choice = chooser.choose(case, each, with_quantiles=index == 0)
            choices[chooser.name, each] = choice.point
            if choice.wait_quantiles_s is not None:
                wait_quantiles_s[chooser.name] = choice.wait_quantiles_s
    slim = replace(case.episode, rows=case.episode.rows[:, :1].copy())
    return EpisodeTrial(slim, choices, wait_quantiles_s)
