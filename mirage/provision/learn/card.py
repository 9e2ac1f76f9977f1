"""`card.md`: what a model was made of, how it did on the validation part, what it can't do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mirage.domain import Penalties
from mirage.figures.words import hours
from mirage.models.card import card_text, markdown_table
from mirage.models.recipe import Recipe
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.card_details import ends_table, forecast_table
from mirage.provision.learn.episode import Episode, Floats, Load
from mirage.provision.learn.mixture import (
    Mixture,
    effective_experts,
    expert_groups,
    experts_a_state,
)
from mirage.provision.learn.model import Model, States, releases
from slurm_sim.seconds import HOUR_S

TASTES = (Penalties(1, 1), Penalties(4, 1))
LIMITS = (
    "Learnt from one cluster's queue. The service uses it on a pool of this name and about this"
    " size only, and falls back to the untrained `quantile` where a state is far from all that"
    " was seen in training."
)


Choices = dict[Penalties, list[int]]
"""Of each ratio the chosen outcome of each episode."""


@runtime_checkable
class Descendant(Protocol):
    """A `Model` that continued from another."""

    def distance(self, base: Model) -> float:
        """Of the weights, as a share of the norm of the base's."""


def choice(model: Model, episode: Episode, penalties: Penalties) -> int:
    """The first decision point at which the model releases; the last outcome's index: never."""
    states = States.of(episode, penalties.interruption, penalties.overlap)
    released = releases(model, model.assess(states), states)
    return int(np.argmax(released)) if released.any() else len(episode)


def card(
    recipe: Recipe,
    about: ProvisionAbout,
    model: Model,
    *,
    base: Model | None = None,
    episodes: Sequence[Episode] = (),
    facts: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The page.

    ``base``: the foundation that it continued from, if any. ``episodes``: of the validation part.
    ``facts``: of the training episodes. ``notes``: of the readers of the job history and of the
    cluster.
    """
    days = " to ".join(_day(time_s) for time_s in about.train_s)
    held = " to ".join(_day(time_s) for time_s in about.validation_s)
    summary = (
        f"Trained by `mirage train` on `{about.trace}`, {days}, pool `{about.pool}` of"
        f" {about.nodes} nodes, seed {recipe.seed}. All options, versions and checksums:"
        " `recipe.toml`."
    )
    sections = {
        "Learnt from": markdown_table(("", ""), facts.items()) if facts else [],
        "Notes on the job history and the cluster": [f"- {note}" for note in notes],
        **(_judgement(model, base, episodes, held) if episodes else {}),
    }
    title = f"{recipe.method} for {about.cluster}"
    return card_text(title, [summary, *_remarks(model, episodes)], sections, LIMITS)


def _judgement(
    model: Model, base: Model | None, judged: Sequence[Episode], held: str
) -> dict[str, list[str]]:
    """The sections on the validation part."""
    chosen = choices(model, judged)
    return {
        f"On {len(judged)} episodes of {held}, never trained on": _results(chosen, judged),
        "Beside its foundation": [] if base is None else _beside(model, chosen, base, judged),
        "By the predecessor's end": ends_table(judged, TASTES, chosen),
        "Forecasts of the wait": forecast_table(model, judged),
    }


def choices(model: Model, judged: Sequence[Episode]) -> Choices:
    """What it chooses for each of the episodes, as `choice`."""
    return {taste: [choice(model, each, taste) for each in judged] for taste in TASTES}


def in_a_phrase(model: Model, judged: Sequence[Episode]) -> str:
    """Mean interruption and overlap on the validation part, beside no early release at all."""
    even = Penalties(1.0, 1.0)
    gaps_h = [
        [(int(each.successor_start_s[at]) - each.predecessor_end_s) / HOUR_S for each, at in pairs]
        for pairs in (
            [(each, choice(model, each, even)) for each in judged],
            [(each, len(each)) for each in judged],
        )
    ]
    (ours, early), (reactive, _) = (
        (np.maximum(gap, 0).mean(), np.maximum(np.negative(gap), 0).mean()) for gap in gaps_h
    )
    return (
        f"on {len(judged)} validation episodes interrupted for {hours(ours)} and {hours(early)} too"
        f" early a handover; without Mirage interrupted for {hours(reactive)}"
    )


def _day(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")


def _remarks(model: Model, judged: Sequence[Episode]) -> Iterator[str]:
    """What its method alone does not tell of a model."""
    if isinstance(model, Mixture) and judged:
        weights = gates(model, judged)
        if weights.shape[1] > 1:
            yield (
                f"Of its {weights.shape[1]} experts {effective_experts(weights):.1f} share the work on"
                " the validation part (inverse Simpson index of the mean weights);"
                f" {experts_a_state(weights):.1f} answer for one state (exponential of the mean"
                f" entropy). States differ in their experts as {expert_groups(weights):.1f} groups"
                " would (exponential of the mutual information; 1: not at all)."
            )
    if model.traits.interrupted:
        yield "Its training was interrupted: it is the best model until then."
    if model.traits.share is not None:
        yield (
            f"For one ratio of penalties, e_I / (e_I + e_O) = {model.traits.share:g}: users of any"
            " other are served as if it were theirs, and see no costs."
        )


def gates(model: Mixture, judged: Sequence[Episode]) -> Floats:
    """(n, experts): the weights of a mixture's experts at every 12th decision point."""
    return np.concatenate([model.gate(States.of(each).every(12)) for each in judged])


def _beside(model: Model, chosen: Choices, base: Model, judged: Sequence[Episode]) -> list[str]:
    """What online learning changed: mean penalties, and the weights."""
    rows = []
    for taste, theirs in choices(base, judged).items():
        for load in (load for load in Load if any(each.load is load for each in judged)):
            spent = (_mean_h(judged, load, taste, at) for at in (theirs, chosen[taste]))
            ratio = f"{taste.interruption:g}:{taste.overlap:g}"
            rows.append((ratio, load.value, *(f"{hours:.2f}" for hours in spent)))
    table = markdown_table(("penalties I:O", "load", f"`{base.name}` (h)", "ours (h)"), rows)
    words = "Mean penalties, each of one training."
    if isinstance(model, Descendant):
        words += (
            f" The weights are {model.distance(base):.1%} from the foundation's (norm of the"
            " difference by the norm)."
        )
    return [*table, "", words]


def _mean_h(
    judged: Sequence[Episode], load: Load, taste: Penalties, chosen: Sequence[int]
) -> float:
    picked = zip(judged, chosen, strict=True)
    costs_s = [each.costs_s(taste)[at] for each, at in picked if each.load is load]
    return float(np.mean(costs_s)) / HOUR_S


def _results(chosen: Choices, judged: Sequence[Episode]) -> list[str]:
    head = (
        "penalties I:O",
        "load",
        "episodes",
        "reactive: interruption h",
        "interruption h",
        "overlap h",
        "under 10 min",
        "penalty of the oracle, ours, reactive (h)",
    )
    rows = []
    for penalties, ours in chosen.items():
        for load in Load:
            picked = [it for it in zip(judged, ours, strict=True) if it[0].load is load]
            if picked:
                rows.append(_row(picked, load, penalties))
    return [
        *markdown_table(head, rows),
        "",
        (
            "Means. Pairs of mixed sizes and limits at random times: neighbouring episodes share a"
            " queue, so they are few independent situations. `mirage evaluate` compares methods,"
            " with intervals."
        ),
    ]


def _row(
    picked: Sequence[tuple[Episode, int]], load: Load, penalties: Penalties
) -> tuple[str, ...]:
    group, ours = zip(*picked, strict=True)
    best = [episode.best(penalties) for episode in group]

    def mean(value: Callable[[Episode, int], float], chosen: Sequence[int]) -> float:
        return (
            float(np.mean([value(it, at) for it, at in zip(group, chosen, strict=True)])) / HOUR_S
        )

    def costs(chosen: Sequence[int]) -> float:
        return mean(lambda it, at: it.costs_s(penalties)[at], chosen)

    never = [len(episode) for episode in group]
    short = np.mean([it.interruption_s[at] < 600 for it, at in zip(group, ours, strict=True)])
    waited = mean(lambda it, at: it.interruption_s[at], never)
    return (
        f"{penalties.interruption:g}:{penalties.overlap:g}",
        load.value,
        f"{len(group)}",
        f"{waited:.1f}",
        f"{mean(lambda it, at: it.interruption_s[at], ours):.1f}",
        f"{mean(lambda it, at: it.overlap_s[at], ours):.1f}",
        f"{short:.0%}",
        f"{costs(best):.1f}, {costs(ours):.1f}, {costs(never):.1f}",
    )
