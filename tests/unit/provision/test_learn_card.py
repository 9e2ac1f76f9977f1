"""A card's tables: pairs that end early apart, forecasts scored, experts counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from mirage.domain import Penalties
from mirage.provision.learn.card_details import EARLY, FULL, ends_table, forecast_table
from mirage.provision.learn.episode import Episode, Floats
from mirage.provision.learn.law import DURATIONS_S, Law
from mirage.provision.learn.mixture import effective_experts, expert_groups, experts_a_state
from mirage.provision.learn.model import States
from slurm_sim.seconds import HOUR_S
from tests.toy import Toy

EVEN = Penalties(1, 1)
QUEUE = Toy(limit_h=20, most_jobs=300)
BUSY = [each for each in map(QUEUE.episode, range(30)) if each.reactive_wait_s > 4 * HOUR_S]


def cut(episode: Episode, by_s: int) -> Episode:
    """The same, with a predecessor that ends so much before its limit."""
    return replace(episode, predecessor_end_s=episode.predecessor_end_s - by_s)


@dataclass(frozen=True)
class Sure:
    """Says the same wait at every state."""

    wait_s: float

    def law(self, states: States) -> Law:
        return Law.of_chances(np.tile(self.wait_s > DURATIONS_S, (len(states), 1)).astype(float))


def test_an_end_a_step_before_the_limit_is_early() -> None:
    assert not BUSY[0].ends_early
    assert not cut(BUSY[0], 599).ends_early
    assert cut(BUSY[0], 600).ends_early


def rows(table: Sequence[str]) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table if line.startswith("| 1:1")]


def test_early_ends_have_rows_of_their_own() -> None:
    judged = [*BUSY, cut(BUSY[0], 2 * HOUR_S)]
    best = [episode.best(EVEN) for episode in judged[:-1]]
    found = rows(ends_table(judged, [EVEN], {EVEN: [*best, len(judged[-1])]}))
    assert {row[2] for row in found} == {FULL, EARLY}
    assert {row[4] for row in found if row[2] == FULL} == {"0%"}
    assert [row[3:] for row in found if row[2] == EARLY] == [["1", "100%"]]


def test_no_regret_is_shown_where_there_is_less_than_an_hour_to_gain() -> None:
    one = next(each for each in BUSY if 4 * HOUR_S < each.reactive_wait_s < 12 * HOUR_S)
    starts_s = np.where(np.arange(len(one) + 1) < len(one), one.successor_start_s[-1] - 600, 0)
    starts_s[-1] = one.successor_start_s[-1]
    flat = replace(one, successor_start_s=starts_s)
    assert rows(ends_table([flat], [EVEN], {EVEN: [0]}))[0][4] == "-"


@pytest.mark.parametrize(("error_h", "share"), [(0.0, "100%"), (-6.0, "0%")])
def test_the_score_of_a_sure_forecast_is_its_error(error_h: float, share: str) -> None:
    waits = Law.of_chances(np.tile((np.arange(len(DURATIONS_S)) < 12) * 1.0, (2, 1)))
    real_s = DURATIONS_S[12] - 1 + np.zeros(2)
    assert waits.score_s(real_s) == pytest.approx(0)
    later_s = DURATIONS_S[14] - 1 + np.zeros(2)
    assert waits.score_s(later_s) == pytest.approx(DURATIONS_S[13] - DURATIONS_S[11])
    episode = BUSY[0]
    table = forecast_table(Sure(float(episode.waits_s[0]) + error_h * HOUR_S), [episode])
    assert table[2].strip("| ").split(" | ")[5] == share


def test_a_model_without_a_law_has_no_forecast_table() -> None:
    assert forecast_table(object(), BUSY) == []


def test_experts_used_over_all_states_and_at_each_one() -> None:
    turns: Floats = np.eye(4)  # each state its own expert
    assert effective_experts(turns) == pytest.approx(4)
    assert experts_a_state(turns) == pytest.approx(1)
    assert experts_a_state(np.full((3, 4), 0.25)) == pytest.approx(4)


def test_states_are_groups_where_they_have_experts_of_their_own() -> None:
    halves: Floats = np.repeat(np.eye(4)[:2], 3, axis=0)
    assert expert_groups(halves) == pytest.approx(2)
    assert expert_groups(np.tile([[0.7, 0.1, 0.1, 0.1]], (5, 1))) == pytest.approx(1)
