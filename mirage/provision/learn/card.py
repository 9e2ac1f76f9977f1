"""`card.md`: what a model was made of, how it did on the validation part, what it can't do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mirage.domain import Penalties
from mirage.models.folder import Recipe
from mirage.provision.learn.episode import HOUR_S, Episode, Load
from mirage.provision.learn.model import Model, States, releases

TASTES = (Penalties(1, 1), Penalties(4, 1))
Choose = Callable[[Episode, Penalties], int]


def choice(model: Model, episode: Episode, penalties: Penalties) -> int:
    """The first decision point at which the model releases; the last outcome's index: never."""
    released = releases(
        model, model.assess(States.of(episode, penalties.interruption, penalties.overlap))
    )
    return int(np.argmax(released)) if released.any() else len(episode)


def card(
    recipe: Recipe,
    model: Model | None,
    judged: Sequence[Episode],
    facts: Mapping[str, Any],
    limits: str,
    notes: Sequence[str] = (),
) -> str:
    """The page. `model` None: there is nothing to judge on labelled episodes (look-ahead). `notes`:
    of the readers.
    """
    days = " to ".join(_day(time_s) for time_s in recipe.train_s)
    held = " to ".join(_day(time_s) for time_s in recipe.validation_s)
    lines = [
        f"# {recipe.method} for {recipe.cluster}",
        "",
        (
            f"Trained by `mirage train` on `{recipe.trace}`, {days}, pool `{recipe.pool}` of"
            f" {recipe.nodes} nodes, seed {recipe.seed}. All options, versions and checksums:"
            " `recipe.toml`."
        ),
        "",
        *_remarks(model),
        *_facts(facts),
        *_notes(notes),
    ]
    if model is not None and judged:
        lines += [
            f"## On {len(judged)} episodes of {held}, never trained on",
            "",
            *_results(model, judged),
        ]
    return "\n".join([*lines, "## Limits", "", limits, ""])


def _day(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")


def _remarks(model: Model | None) -> list[str]:
    """What its method alone does not tell of a model."""
    lines = []
    if model is not None and model.interrupted:
        lines += ["Its training was interrupted: it is the best model until then.", ""]
    if model is not None and model.share is not None:
        taste = f"e_I / (e_I + e_O) = {model.share:g}"
        lines += [
            (
                f"For one taste, {taste}: users of any other are served as if it were theirs, and"
                " told no costs."
            ),
            "",
        ]
    return lines


def _notes(notes: Sequence[str]) -> list[str]:
    return (
        ["## Notes on the job history and the cluster", "", *(f"- {note}" for note in notes), ""]
        if notes
        else []
    )


def _facts(facts: Mapping[str, Any]) -> list[str]:
    rows = [f"| {name} | {value} |" for name, value in facts.items()]
    return ["## Learnt from", "", "| | |", "| --- | --- |", *rows, ""] if rows else []


def _results(model: Model, judged: Sequence[Episode]) -> list[str]:
    head = (
        "| penalties I:O | load | episodes | reactive: interruption h | interruption h | overlap h"
        " | under 10 min | "
    )
    lines = [
        head + "penalty of the oracle, ours, reactive (h) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for penalties in TASTES:
        for load in Load:
            group = [episode for episode in judged if episode.load is load]
            if group:
                lines.append(_row(model, group, load, penalties))
    return [
        *lines,
        "",
        (
            "Means. Pairs of mixed sizes and limits at random times: neighbouring episodes share a"
            " queue, so they are few independent situations. `mirage evaluate` compares methods,"
            " with intervals."
        ),
        "",
    ]


def _row(model: Model, group: Sequence[Episode], load: Load, penalties: Penalties) -> str:
    ours = [choice(model, episode, penalties) for episode in group]
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
        f"| {penalties.interruption:g}:{penalties.overlap:g} | {load.value} | {len(group)} | "
        f"{waited:.1f} | {mean(lambda it, at: it.interruption_s[at], ours):.1f} | "
        f"{mean(lambda it, at: it.overlap_s[at], ours):.1f} | {short:.0%} | "
        f"{costs(best):.1f}, {costs(ours):.1f}, {costs(never):.1f} |"
    )
