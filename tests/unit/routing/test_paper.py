"""The paper's partitions, episodes and rewards, and that an agent learns them
(`papers/mdrl-routing.txt`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.routing.episode import EpisodeOutcome, PartitionEpisode, draw_episode, play
from mirage.routing.flavors import (
    Demand,
    PartitionKind,
    load_partitions,
    paper_partitions,
    parse_partitions,
)
from mirage.routing.rules import best_possible, first_fit, naive, random_fit
from mirage.routing.state import (
    PartitionState,
    Variant,
    choice_blocks,
    features,
    job_features,
    possible,
    width,
)
from mirage.routing.world import Arrival, PartitionWorld

HOUR = 3600
DAY = 24 * HOUR
SMALL, MEDIUM, LARGE, FULL = range(4)
FIGURE_3 = [
    Arrival(number * HOUR, flavor)
    for number, flavor in enumerate([SMALL, MEDIUM, MEDIUM, LARGE, FULL])
]


@pytest.fixture
def a100() -> PartitionKind:
    return paper_partitions()[0]


def test_the_numbers_that_the_text_gives(a100: PartitionKind) -> None:
    names = [flavor.name for flavor in a100.flavors]
    assert names == ["s-A100", "m-A100", "l-A100", "f-A100"]
    assert [a100.rate(flavor) for flavor in a100.flavors] == [0.125, 0.25, 0.5, 1.0]
    assert [flavor.limit_s // DAY for flavor in a100.flavors] == [3, 7, 10, 14]
    small = a100.flavors[SMALL]
    assert (small.gpus, small.cpus, small.memory_mib // 1024) == (2, 64, 256)
    assert [kind.busy_w for kind in paper_partitions()] == [6500, 3500]


def test_figure_3_by_the_default_rule_takes_17_days_from_job_2(a100: PartitionKind) -> None:
    """31 days with the full job's 14."""
    found = play(a100, FIGURE_3, first_fit)
    assert found.run_s == HOUR + 17 * DAY  # counted from job 1, an hour before


def test_figure_3_with_job_2_on_server_2_takes_13_days(a100: PartitionKind) -> None:
    episode = PartitionEpisode(a100, FIGURE_3)
    places = {0: 0, 1: 1, 2: 1}
    for number in range(3):
        assert episode.question is not None
        action = a100.actions.run(FIGURE_3[number].flavor, places[number])
        assert action in episode.question.possible
        episode.answer(action)
    while episode.question is not None:
        episode.answer(episode.question.possible[0])
    assert episode.finish().run_s == 13 * DAY
    assert best_possible(a100, FIGURE_3).run_s == 13 * DAY


def test_utilization_is_equation_4(a100: PartitionKind) -> None:
    world = PartitionWorld(a100)
    assert world.utilization() == 0
    world.start(SMALL, 0)
    assert world.utilization() == 0.125
    world.advance(DAY)
    world.start(LARGE, 1)
    assert world.utilization() == 0.125
    world.advance(5 * DAY)  # the small one ended after three days
    assert world.utilization() == pytest.approx((0.125 * 3 + 0.5 * 4) / 5)


def test_rewards_of_section_5_2(a100: PartitionKind) -> None:
    actions = a100.actions
    jobs = [
        Arrival(number * HOUR, flavor) for number, flavor in enumerate([LARGE, LARGE, SMALL, FULL])
    ]
    episode = PartitionEpisode(a100, jobs, masked=False)
    assert episode.answer(actions.run(LARGE, 0)) == 0.5  # runs: the utilization
    assert episode.answer(actions.queue(LARGE)) == -1  # queued although server 2 is free
    assert episode.answer(actions.run(SMALL, 0)) == -1  # server 1 is full: it is queued
    episode = PartitionEpisode(a100, [Arrival(0, FULL)])
    assert episode.answer(actions.run(FULL, 0)) == 1
    assert episode.is_over  # the terminal state
    episode = PartitionEpisode(
        a100, [*(Arrival(number * HOUR, LARGE) for number in range(3)), Arrival(3 * HOUR, FULL)]
    )
    episode.answer(actions.run(LARGE, 0))
    episode.answer(actions.run(LARGE, 1))
    assert episode.answer(actions.queue(LARGE)) == 0  # no room anywhere


def test_the_queue_is_largest_first_of_those_that_fit(a100: PartitionKind) -> None:
    jobs = [
        Arrival(0, LARGE),
        Arrival(HOUR, LARGE),
        Arrival(2 * HOUR, SMALL),
        Arrival(3 * HOUR, MEDIUM),
    ]
    episode = PartitionEpisode(a100, [*jobs, Arrival(4 * HOUR, FULL)])
    asked = []
    while episode.question is not None:
        asked.append((episode.question.flavor, episode.question.has_room))
        episode.answer(episode.question.possible[0])
    waited = [flavor for flavor, has_room in asked[5:] if has_room]
    assert waited[:2] == [MEDIUM, SMALL]
    assert waited[-1] == FULL


def test_the_full_job_starts_after_all_others_even_when_they_are_put_aside(
    a100: PartitionKind,
) -> None:
    jobs = [Arrival(number * HOUR, flavor) for number, flavor in enumerate([LARGE, LARGE, FULL])]
    episode = PartitionEpisode(a100, jobs, masked=False)
    while episode.question is not None:
        episode.answer(a100.actions.run(episode.question.flavor, 0))
    found = episode.finish()
    assert [run.flavor for run in episode.world.runs] == [LARGE, LARGE, FULL]
    assert (found.run_s, found.utilization) == (20 * DAY, 0.5)


def test_who_queues_everything_has_the_full_job_last_too(a100: PartitionKind) -> None:
    episode = PartitionEpisode(a100, FIGURE_3, masked=False)
    while episode.question is not None:
        episode.answer(a100.actions.queue(episode.question.flavor))
    assert [run.flavor for run in episode.world.runs] == [LARGE, MEDIUM, MEDIUM, SMALL, FULL]


def test_the_papers_three_figures_fit_together(a100: PartitionKind) -> None:
    """Its naive rule has 0.62; placing well brings a fifth of the time and a third of the waste."""
    random = np.random.default_rng(1)
    episodes = [draw_episode(a100, random) for _ in range(400)]
    blind = [play(a100, jobs, naive(random), masked=False) for jobs in episodes]
    placed = [play(a100, jobs, first_fit) for jobs in episodes]

    def means(outcomes: list[EpisodeOutcome]) -> tuple[float, float]:
        return (
            float(np.mean([outcome.utilization for outcome in outcomes])),
            float(np.mean([outcome.run_s for outcome in outcomes])),
        )

    (before, before_s), (after, after_s) = means(blind), means(placed)
    assert before == pytest.approx(0.62, abs=0.02)
    assert 0.15 < 1 - after_s / before_s < 0.21
    assert 0.27 < 1 - (1 - after) / (1 - before) < 0.35


def test_actions_are_flavours_by_servers_and_a_queue_each(a100: PartitionKind) -> None:
    actions = a100.actions
    assert actions.count == 3 * 2 + 1 + 4  # n m single-server ones, the full flavour's, n queues
    numbers = [number for flavor in range(4) for number in actions.of(flavor)]
    assert sorted(numbers) == list(range(actions.count))
    assert [actions.place(MEDIUM, action) for action in actions.of(MEDIUM)] == [0, 1, None]


def test_no_rule_is_better_than_the_best(a100: PartitionKind) -> None:
    random = np.random.default_rng(3)
    for _ in range(40):
        jobs = draw_episode(a100, random)
        best = best_possible(a100, jobs)
        for rule in (first_fit, random_fit(random)):
            assert play(a100, jobs, rule).run_s >= best.run_s
        assert play(a100, jobs, naive(random), masked=False).run_s >= best.run_s


def test_the_papers_agents_see_what_is_free_of_each_server(a100: PartitionKind) -> None:
    state = PartitionState.empty(a100)
    state.take(MEDIUM, 1, 7 * DAY)
    assert features(state) == [1, 1, 1, 0.5, 0.5, 0.5]
    assert len(features(state)) == width(a100, Variant.PAPER)


def test_what_agents_with_a_choice_see_does_not_grow_with_the_servers(a100: PartitionKind) -> None:
    state = PartitionState.empty(a100)
    state.take(MEDIUM, 1, 7 * DAY)
    state.wait(LARGE, DAY)
    state.waits_s[LARGE] = 7 * DAY
    assert choice_blocks([state, state], [LARGE, None], 0) == [
        *(1, 0.5),  # it fits; a server of two has room
        0,  # but somebody waits
        0.75,  # free GPUs
        *(0, 0, 0.25),  # when the first server gets room, the first is empty, and one is on average
        *(1 / 8, 8 / 16 / 14 * 4),  # waiting jobs, and their work
        0.5,  # the forecast wait
        *(0,) * 10,  # it does not fit there
    ]
    assert job_features(a100, LARGE, 7 * DAY) == [0.5, 0.5]
    state.queued = [0] * 4
    state.servers[0].up = False
    assert choice_blocks([state], [SMALL], 0)[1:7] == [0.5, 1, 0.25, 0.5, 0.5, 0.75]
    assert width(replace(a100, servers=64), Variant.CHOICE, 2) == 22
    assert replace(a100, servers=64).actions.count == 3 * 64 + 1 + 4


def test_a_job_would_start_now_where_there_is_room_and_nobody_waits(a100: PartitionKind) -> None:
    state = PartitionState.empty(a100)
    state.take(MEDIUM, 1, DAY)
    assert (state.may_start(LARGE), state.may_start(FULL)) == (True, False)
    assert possible(state, FULL) == {a100.actions.queue(FULL): None}
    state.wait(SMALL, DAY)
    assert not state.may_start(LARGE)


def test_a_full_job_takes_all_servers(a100: PartitionKind) -> None:
    state = PartitionState.empty(a100)
    assert state.places(FULL) == [0]
    state.take(FULL, 0, DAY)
    assert [server.free for server in state.servers] == [(0, 0, 0)] * 2
    assert state.places(SMALL) == []


def test_the_smallest_flavour_that_covers_a_job(a100: PartitionKind) -> None:
    assert a100.flavor_of(Demand(1)) == SMALL
    assert a100.flavor_of(Demand(2, cpus=65)) == MEDIUM
    assert a100.flavor_of(Demand(2, limit_s=8 * DAY)) == LARGE
    assert a100.flavor_of(Demand(8, nodes=2)) == FULL
    assert a100.flavor_of(Demand(17)) is None
    assert a100.flavor_of(Demand(1, limit_s=15 * DAY)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('[a]\nservers = "two"', "flavors: give at least one"),
        ("", "no partition"),
        ("[a", "not TOML"),
        (
            (
                "[a]\nservers=2\ngpus=8\ncpus=1\nmemory_mib=1\nidle_w=1\nbusy_w=1\n[[a.flavors]]\nname='x y'"
            ),
            "one word",
        ),
        (
            (
                "[a]\nservers=2\ngpus=4\ncpus=9\nmemory_mib=9\nidle_w=1\nbusy_w=1\n"
                "[[a.flavors]]\nname='x'\ngpus=5\ncpus=1\nmemory_mib=1\nlimit_h=1"
            ),
            "more gpus",
        ),
        (
            (
                "[a]\nservers=2\ngpus=4\ncpus=9\nmemory_mib=9\nidle_w=1\nbusy_w=1\n"
                "[[a.flavors]]\nname='x'\ngpus=4\ncpus=1\nmemory_mib=1\nlimit_h=0.001"
            ),
            "limit_h: expected hours, at least a minute",
        ),
    ],
)
def test_wrong_flavours_are_one_clear_error(change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_partitions(change, "mine.toml")


def test_a_missing_file_is_one_clear_error(tmp_path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        load_partitions(tmp_path / "none.toml")


@pytest.mark.long
def test_an_agent_learns(a100: PartitionKind) -> None:
    """Better than the naive rule on episodes it never saw, and near to the best possible."""
    torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
    torch.set_num_threads(1)  # small networks are slower on several
    from mirage.routing.dqn import train_on_episodes
    from mirage.routing.network import AgentOptions
    from mirage.routing.rules import agent_rule

    agent = train_on_episodes(a100, 300, AgentOptions(explore=0.4))
    random = np.random.default_rng(77)
    episodes = [draw_episode(a100, random) for _ in range(60)]

    def mean(outcomes: list[EpisodeOutcome]) -> float:
        return float(np.mean([outcome.utilization for outcome in outcomes]))

    learnt = mean([play(a100, jobs, agent_rule(agent), masked=False) for jobs in episodes])
    blind = mean([play(a100, jobs, naive(random), masked=False) for jobs in episodes])
    best = mean([best_possible(a100, jobs) for jobs in episodes])
    assert learnt > blind + 0.03
    assert learnt > best - 0.07


def test_training_is_repeatable(a100: PartitionKind) -> None:
    torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
    torch.set_num_threads(1)  # small networks are slower on several
    from mirage.routing.dqn import train_on_episodes

    first, again = (train_on_episodes(a100, 20, seed=4) for _ in range(2))
    assert first.layers == again.layers
    assert train_on_episodes(a100, 20, seed=5).layers != first.layers
