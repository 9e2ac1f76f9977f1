"""Two more tables of a model's card: pairs that end early apart, and how true its forecasts are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mirage.domain import Penalties
from mirage.models.card import markdown_table
from mirage.provision.learn.episode import Episode, Floats, Load
from mirage.provision.learn.law import Forecaster
from mirage.provision.learn.model import States
from slurm_sim.seconds import HOUR_S

LEAST_TO_GAIN_H = 1.0
"""Mean penalty at e_I + e_O = 1 between reactive and oracle, below which no regret is shown."""
EARLY, FULL = "early end", "to its limit"
EVERY = 6
"""Forecasts are scored at every so many-th decision point."""


def ends_table(
    judged: Sequence[Episode], tastes: Sequence[Penalties], chosen: dict[Penalties, list[int]]
) -> list[str]:
    """Regret by how the predecessor ends. ``chosen``: the model's choice for each episode."""
    rows = []
    for taste in tastes:
        for load in (Load.HEAVY, Load.MEDIUM):
            for ends in (FULL, EARLY):
                picked = [
                    (episode, at)
                    for episode, at in zip(judged, chosen[taste], strict=True)
                    if episode.load is load and episode.ends_early == (ends == EARLY)
                ]
                if picked:
                    ratio = f"{taste.interruption:g}:{taste.overlap:g}"
                    rows.append((ratio, load.value, ends, f"{len(picked)}", _regret(picked, taste)))
    head = ("penalties I:O", "load", "predecessor", "episodes", "regret")
    return [*markdown_table(head, rows), "", _ENDS_NOTE] if rows else []


_ENDS_NOTE = (
    "Regret: 0 % is the oracle, 100 % reactive. Nobody can foresee an early end, and who releases"
    " early by mistake looks good there. No regret is shown where the oracle saves less than an"
    " hour."
)


def _regret(picked: Sequence[tuple[Episode, int]], taste: Penalties) -> str:
    costs = [episode.costs_s(taste) for episode, _ in picked]
    total_s = (taste.interruption + taste.overlap) * HOUR_S
    mine = np.array([cost[at] for cost, (_, at) in zip(costs, picked, strict=True)])
    best, never = np.array([[cost.min(), cost[-1]] for cost in costs]).T
    if (never - best).mean() < LEAST_TO_GAIN_H * total_s:
        return "-"
    return f"{(mine - best).sum() / (never - best).sum():.0%}"


def forecast_table(model: object, judged: Sequence[Episode]) -> list[str]:
    """Score and coverage of the forecast waits, by load; nothing for a model without forecasts."""
    if not isinstance(model, Forecaster):
        return []
    rows = [
        (load.value, *words)
        for load in Load
        if (words := _forecast_words(model, [each for each in judged if each.load is load]))
    ]
    head = ("load", "points", "score h", "at most p10", "at most p50", "at most p90")
    return [*markdown_table(head, rows), "", _FORECAST_NOTE] if rows else []


_FORECAST_NOTE = (
    "Score: continuous ranked probability score, lower is better; of a sure forecast it is the mean"
    " error. The shares of waits at most as long as forecast should be 10, 50 and 90 % or, where"
    " many waits are zero, more."
)


def _forecast_words(model: Forecaster, group: Sequence[Episode]) -> tuple[str, ...]:
    found = list(_forecasts(model, group))
    if not found:
        return ()
    scores_h, below = (np.concatenate(part) for part in zip(*found, strict=True))
    shares = (f"{share:.0%}" for share in below.mean(axis=0))
    return (f"{len(scores_h):,}", f"{scores_h.mean():.1f}", *shares)


def _forecasts(model: Forecaster, group: Sequence[Episode]) -> Iterator[tuple[Floats, Floats]]:
    """Of each episode the scores in hours, (n,), and whether waits are below p10, p50, p90, (n, 3)."""
    for episode in group:
        states = States.of(episode).every(EVERY)
        if len(states):
            waits_s = episode.waits_s[:-1:EVERY].astype(np.float64)
            law = model.law(states)
            quantiles_s = [law.quantile_s(np.full(len(states), at)) for at in (0.1, 0.5, 0.9)]
            below = waits_s[:, None] <= np.stack(quantiles_s, axis=1)
            yield law.score_s(waits_s) / HOUR_S, below.astype(np.float64)
