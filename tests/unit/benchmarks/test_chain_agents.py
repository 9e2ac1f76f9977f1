"""Chains as tables: the rule in them is the real one, and values and gradients are exact."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

torch = pytest.importorskip("torch")

from benchmarks.chain_agents import Agent, AgentPolicy, Episodes  # noqa: E402
from benchmarks.chain_goodput import run_cases, together  # noqa: E402
from benchmarks.chain_tables import EVERY_S, FEATURES, Table, last_times, record  # noqa: E402
from mirage.config import PolicyConfig  # noqa: E402
from mirage.domain import HANDOVER_S  # noqa: E402
from mirage.provision.chains.run import Scenario  # noqa: E402
from mirage.provision.policies.goodput import Goodput  # noqa: E402

LIMIT_S = 8 * HOUR_S


def table(waits_h: list[float], seed: int = 1) -> Table:
    """Made up, with states of chance."""
    times_s = EVERY_S * np.arange(len(waits_h))
    starts_s = np.maximum.accumulate(times_s + (np.array(waits_h) * HOUR_S).astype(int))
    end_s = int(times_s[-1] + EVERY_S)
    offsets = [0]
    for at, last in enumerate(last_times(starts_s, times_s, LIMIT_S)):
        open_times = max(0, min(last, len(times_s)) - at - 1) if starts_s[at] < end_s else 0
        offsets.append(offsets[-1] + open_times)
    states = np.random.default_rng(seed).normal(size=(offsets[-1], FEATURES)).astype(np.float16)
    return Table("made up", 2, times_s, starts_s, end_s, LIMIT_S, np.array(offsets), states)


def lost_h(found: Table, releases: tuple[int, ...]) -> float:
    """Of a chain with these releases, summed up by hand."""
    starts_s = [int(found.starts_s[at]) for at in (0, *releases)]
    starts_s = [start for start in starts_s if start < found.end_s]
    nexts_s = [*starts_s[1:], found.end_s]
    gaps_s = sum(
        max(0, after - start - LIMIT_S) for start, after in zip(starts_s, nexts_s, strict=True)
    )
    return (gaps_s + HANDOVER_S * (len(starts_s) - 1)) / HOUR_S


def test_who_knows_all_waits_loses_what_the_best_releases_lose():
    found = table([0, 5, 9, 1, 0, 3, 12, 4, 0, 0])
    episodes = Episodes([found], torch.device("cpu"))
    episodes.wall[:] = 1e9
    episodes.wall[0, 0] = 1.0
    times = range(1, len(found.times_s))
    best = min(
        lost_h(found, chosen)
        for count in range(len(times) + 1)
        for chosen in combinations(times, count)
        if follows(found, chosen)
    )
    assert float(episodes.least()[0]) == pytest.approx(best / 1, rel=1e-4)


def follows(found: Table, releases: tuple[int, ...]) -> bool:
    """Whether each is let in no later than at its predecessor's end."""
    lasts = last_times(found.starts_s, found.times_s, LIMIT_S)
    at = 0
    for release in releases:
        if release > lasts[at]:
            return False
        at = release
    is_over = found.starts_s[at] >= found.end_s
    return is_over or lasts[at] >= len(found.times_s)


def test_values_of_a_policy_are_the_mean_of_sampled_chains():
    found = table([0, 5, 9, 1, 0, 3, 12, 4, 0, 0])
    episodes = Episodes([found], torch.device("cpu"))
    chances = torch.rand(len(episodes.states), generator=torch.Generator().manual_seed(1))
    value = float(episodes.values(chances).lost[0, 0])
    random = np.random.default_rng(1)
    lasts = last_times(found.starts_s, found.times_s, LIMIT_S)
    sampled = [lost_h(found, sample(found, lasts, chances, random)) for _ in range(4000)]
    error = np.std(sampled) / np.sqrt(len(sampled))
    assert abs(np.mean(sampled) - value) < 4 * error + 1e-6


def sample(found: Table, lasts: list[int], chances, random) -> tuple[int, ...]:
    at, releases = 0, []
    while found.starts_s[at] < found.end_s:
        states = range(found.offsets[at], found.offsets[at + 1])
        hits = [place for place, state in enumerate(states) if random.random() < chances[state]]
        if hits:
            at = at + 1 + hits[0]
        elif lasts[at] < len(found.times_s):
            at = lasts[at]
        else:
            break
        releases.append(at)
    return tuple(releases)


def test_the_gradient_is_that_of_the_expected_loss():
    episodes = Episodes([table([0, 5, 9, 1, 0, 3, 12, 4, 0, 0])], torch.device("cpu"))
    chances = torch.rand(len(episodes.states), generator=torch.Generator().manual_seed(2))
    values = episodes.values(chances)
    weights = (episodes.visits(values) * (values.release - values.wait)).view(-1)[episodes.index]
    step = 1e-2
    for state in (0, 1, len(chances) // 3):
        more, less = chances.clone(), chances.clone()
        more[state] += step
        less[state] -= step
        change = episodes.losses(episodes.values(more)) - episodes.losses(episodes.values(less))
        assert float(weights[state]) == pytest.approx(float(change[0]) / step / 2, abs=2e-4)


def busy(scenario: Scenario) -> Simulator:
    """A queue of several days."""
    random = np.random.default_rng(3)
    count = len(scenario.cluster.nodes)
    jobs = [
        JobSpec(
            int(random.integers(1, count // 8)),
            int(random.integers(4, 48)) * HOUR_S,
            int(random.integers(2, 40)) * HOUR_S,
            user=f"u{number % 7}",
            submit_s=int(random.integers(0, 9 * DAY_S)),
        )
        for number in range(220)
    ]
    return Simulator(scenario.cluster, sorted(jobs, key=lambda job: job.submit_s or 0))


def test_an_agent_begins_as_the_rule_in_the_real_runner():
    scenario = Scenario(chains=1, lasts_s=5 * DAY_S, warm_up_s=4 * DAY_S, link_nodes=2)
    found = [
        run_cases(scenario, lambda _, policy=policy: policy, busy(scenario), 3600)
        for policy in (Goodput(PolicyConfig().goodput), AgentPolicy(Agent(4, 1.0), "rule"))
    ]
    assert found[0] == found[1]
    assert together(found[0][0]).handovers > 0


def test_a_table_holds_a_state_for_each_time_between_release_and_end():
    scenario = Scenario(chains=1, lasts_s=2 * DAY_S, warm_up_s=4 * DAY_S, link_nodes=2)
    found = record("busy", scenario, busy(scenario))
    assert (np.diff(found.starts_s) >= 0).all()
    assert (found.starts_s >= found.times_s).all()
    episodes = Episodes([found], torch.device("cpu"))
    assert len(episodes.states) == found.offsets[-1] > 0
    assert float(episodes.least()[0]) <= float(
        episodes.losses(episodes.values((episodes.states[:, 0] >= 0).float()))[0]
    )
